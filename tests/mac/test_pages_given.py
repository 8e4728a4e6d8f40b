"""What Metal makes of the pages that it is given: which it takes, whose bytes they are, how long they stay."""

import ctypes
import gc
import mmap
import os
import subprocess
import tempfile
import weakref
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
from eventually import until
from forking import exit_code_of_child
from machine import IS_MAC
from objc_messages import PRIVATE, Range, foreign_buffer, gpu_fill, libobjc, pool, send
from proof import attempt, prove_shared

import metal_dlpack as md

pytestmark = pytest.mark.mac
PAGE = mmap.PAGESIZE
MODES = ("shared", "managed", "private")


def retain_count(handle):
    return send(handle, "retainCount", result=ctypes.c_ulong)


def odd_addresses(near, device, queue, kept):
    """Addresses that are no MTLBuffer."""
    text = libobjc.objc_getClass(b"NSString")
    words = (b"a text that is long enough to be no tagged pointer", b"tag")
    zeros, noise = np.zeros(1 << 20, "uint8"), np.frombuffer(os.urandom(1 << 16), "uint64")
    word = ctypes.c_uint64(text)
    kept += [zeros, noise, word]
    return [
        *(device, queue, *(send(text, "stringWithUTF8String:", ctypes.c_char_p(of)) for of in words)),
        *(word.value, ctypes.addressof(word), zeros.ctypes.data, zeros.ctypes.data + 4096, id("x"), id(7)),
        *(near.handle + 8, near.address, near.handle + 1, 8, 2**64 - 8, 0xFFFF_FFF0_0000_0000, 1 << 63),
        ctypes.cast(libobjc.objc_getClass, ctypes.c_void_p).value,
        *(noise.ctypes.data + 8 * i for i in range(0, 4096, 64)),
    ]


def test_each_real_buffer_is_taken_and_every_other_address_refused(foreign_queue):
    for mode in MODES:
        buffer = md.Buffer(64, storage=mode)
        assert md.Buffer.from_handle(buffer.handle).handle == buffer.handle
    near, kept = md.Buffer(64), []
    with pool():
        device = send(near.handle, "device")
        for address in odd_addresses(near, device, foreign_queue, kept):
            with pytest.raises(ValueError):
                md.Buffer.from_handle(address)
        print("a buffer's device is the object of the list:", device == md.default_device().handle)


def test_the_resident_size_counts_a_buffer():
    """On a Mac a person judges: Dask compares this size with a worker's limit."""
    md.empty_cache()
    before = resident_nbytes()
    array = md.ones(256 << 20, dtype="uint8")
    grown = resident_nbytes() - before
    print("of", array.nbytes, "bytes the resident size shows", grown)
    assert IS_MAC or grown > array.nbytes * 0.9


def resident_nbytes():
    return int(subprocess.check_output(["ps", "-o", "rss=", "-p", str(os.getpid())])) * 1024


@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_a_command_buffer_retains_is_not_reused(mode, foreign_queue):
    md.empty_cache()
    cached = md.memory_stats()["cached_buffers"]
    a = md.zeros(1 << 20, storage=mode)
    md.default_device().synchronize()
    del a
    assert md.memory_stats()["cached_buffers"] == cached + 1, "nobody has its handle"
    a = md.zeros(1 << 20, storage=mode)
    handle = a.buffer.handle
    with pool():
        commands = send(foreign_queue, "commandBuffer")
        encoder = send(commands, "blitCommandEncoder")
        send(encoder, "fillBuffer:range:value:", handle, Range(0, 1 << 22), ctypes.c_uint8(7), result=None)
        send(encoder, "endEncoding", result=None)
        print("encoded: retainCount", retain_count(handle))
        cached = md.memory_stats()["cached_buffers"]
        del a
        assert md.memory_stats()["cached_buffers"] == cached, "reused while work on it is encoded"
        send(commands, "commit", result=None)
        send(commands, "waitUntilCompleted", result=None)


def shared_or_not(view):
    array = md.asarray(view, copy=False)
    if not view.flags.writeable:
        assert np.array(array).tobytes() == view.tobytes()
        return "taken, read-only"
    view.reshape(-1)[-1] = 77
    return "shared" if np.array(array).reshape(-1)[-1] == 77 else "NOT THE SAME MEMORY"


def test_memory_is_taken_without_a_copy_or_refused(capsys):
    """Prints which."""
    views = {"anonymous mmap": np.frombuffer(mmap.mmap(-1, 4 * PAGE), "uint8")}
    views["inside it"] = views["anonymous mmap"][100:PAGE]
    with tempfile.TemporaryFile() as file:
        file.write(b"m" * 4 * PAGE)
        file.flush()
        for what, access in (("read-only", mmap.ACCESS_READ), ("private", mmap.ACCESS_COPY)):
            views[f"{what} file"] = np.frombuffer(mmap.mmap(file.fileno(), 4 * PAGE, access=access), "uint8")
    for size in (64, 5000, PAGE, 100_000, 1 << 20, 1 << 26):
        views |= {f"malloc, {size}": np.zeros(size, "uint8"), f"malloc, {size}, full": np.ones(size, "uint8")}
    views["bytes"] = np.frombuffer(b"r" * 100_000, "uint8")
    for what, view in views.items():
        attempt(what, lambda view=view: shared_or_not(view))
    told = capsys.readouterr().out
    print(told)
    assert "NOT THE SAME" not in told
    assert "AssertionError" not in told


def check_wrapped(what, array, address, nbytes):
    """`contents` and `length` of the MTLBuffer are those of the whole pages round the bytes."""
    first = address // PAGE * PAGE
    length = -(-(address + nbytes) // PAGE) * PAGE - first
    with pool():
        found = send(array.buffer.handle, "contents"), send(array.buffer.handle, "length", result=ctypes.c_ulong)
    print(f"{what}: contents {found[0]:#x}, length {found[1]}")
    assert found == (first, length), f"{what}: the pages are at {first:#x}, {length} bytes"


def test_a_wrapped_buffer_has_the_contents_and_length_of_the_whole_pages():
    pages = np.frombuffer(mmap.mmap(-1, 64 * PAGE), "uint8")
    parts = {"pages": pages, "one page": pages[PAGE : 2 * PAGE], "inside a page": pages[3 * PAGE + 100 :][:64]}
    parts |= {"across two": pages[6 * PAGE - 64 : 6 * PAGE + 64], "the last page": pages[-PAGE:]}
    for what, view in parts.items():
        array = md.asarray(view, copy=False)
        check_wrapped(what, array, view.ctypes.data, view.nbytes)
        prove_shared(what, lambda value, view=view: view.__setitem__(-1, value), lambda array=array: array[-1].item())
        del array
    segment = SharedMemory(create=True, size=5 * PAGE)
    try:
        view = np.frombuffer(segment.buf, "uint8")
        array = md.asarray(segment, copy=False)
        check_wrapped("SharedMemory", array, view.ctypes.data, view.nbytes)
        del view, array
    finally:
        gc.collect()
        segment.close()
        segment.unlink()
    for size in (64, 5000, 100_000, 1 << 20, 1 << 26):
        view = np.ones(size, "uint8")
        try:
            array = md.asarray(view, copy=False)
        except md.CopyRequiredError as error:
            print(f"malloc, {size} bytes: refused: {error}")
            continue
        check_wrapped(f"malloc, {size} bytes", array, view.ctypes.data, size)


def write_beside(memory, first, end):
    """The GPU writes the bytes from first to end, and the CPU those on either side of them at the same time."""
    inner, before, after = memory[first:end], memory[: first - 16], memory[end : end + 300]
    array, stream = md.asarray(inner, copy=False), md.Stream()
    for value in range(1, 21):
        memory[:] = 200
        array.fill(value, stream=stream)
        before[:], after[:] = value + 100, value + 50
        stream.synchronize()
        assert (inner == value).all(), "the GPU's bytes are not there"
        assert (before == value + 100).all(), "the CPU's bytes before are not there"
        assert (after == value + 50).all(), "the CPU's bytes after are not there"
        assert (memory[first - 16 : first] == 200).all(), "bytes changed that nobody wrote"


@pytest.mark.parametrize(("first", "end"), [(320, 5 * PAGE + 4), (321, 5 * PAGE + 3)], ids=["a blit", "a kernel"])
def test_the_gpu_and_the_cpu_write_to_one_page_at_the_same_time(first, end):
    write_beside(np.frombuffer(mmap.mmap(-1, 8 * PAGE), "uint8"), first, end)
    attempt("a block of malloc", lambda: write_beside(np.ones(8 * PAGE, "uint8"), first, end))


class Owner(np.ndarray):
    """NumPy memory that a weak reference watches."""


def test_host_memory_stays_until_the_gpu_is_done_and_goes_then(foreign_queue):
    for _ in range(5 if IS_MAC else 1):
        pages = mmap.mmap(-1, 1 << 26)
        owner = np.frombuffer(pages, "uint8").view(Owner)
        array, gone = md.asarray(owner, copy=False), []
        weakref.finalize(owner, gone.append, True)
        for value in range(20):
            gpu_fill(array.buffer.handle, value, 1 << 26, queue=foreign_queue, waits=False)
        del owner, array
        gc.collect()
        print("kept while the GPU worked:", not gone)
        until(gone.copy)  # else it is never let go
        assert pages[0] == pages[-1] == 19, "it was let go before the GPU was done"


@pytest.mark.needs_metal
def test_the_last_bytes_of_an_odd_private_buffer():
    """A person judges: a Buffer refuses them, an Array has them; the last line is what Metal itself does."""
    with foreign_buffer(11, PRIVATE) as handle:
        buffer = md.Buffer.from_handle(handle)
        attempt("the first 8", lambda: bytes(np.array(buffer.array(8, "uint8"))))
        attempt("the last 3", lambda: bytes(np.array(buffer.array(3, "uint8", 8))))
        attempt("a fill of 11 bytes", lambda: gpu_fill(handle, 5, 11))


def test_memory_in_a_forked_child():
    """On a Mac a person judges: a child reads shared memory, or ends by a signal, since it is not mapped there."""
    arrays = {"Metal's": md.full(8, 3, "int32"), "NumPy's": md.asarray(np.full(8, 3, "int32"), copy=False)}
    for what, array in arrays.items():
        code = exit_code_of_child(lambda array=array: np.testing.assert_array_equal(array, np.full(8, 3)))
        print(what, "read" if code == 0 else f"not read, exit {code}")
        assert code == 0 or IS_MAC
