"""Buffers: whose they are, how long they live, which bytes they hold."""

import ctypes
import gc
import mmap
import os
import tempfile
import time
import weakref
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
from objc_messages import PRIVATE, Range, foreign_buffer, gpu_fill, libobjc, pool, send

import metal_dlpack as md

from .asking import attempt, check, prove_shared, question

PAGE = mmap.PAGESIZE
MODES = ("shared", "managed", "private")


def class_named(name: bytes) -> int:
    return libobjc.objc_getClass(name)


# ---- handles ----


def odd_addresses(near: md.Buffer, device: int, queue: int) -> dict[str, int]:
    """Addresses that are no MTLBuffer."""
    words = {"long": b"a text that is long enough to be no tagged pointer", "short": b"tag"}
    texts = {
        f"a {name} text": send(class_named(b"NSString"), "stringWithUTF8String:", ctypes.c_char_p(text))
        for name, text in words.items()
    }
    kept.extend([np.zeros(1 << 20, "uint8"), np.frombuffer(os.urandom(1 << 16), "uint64")])
    kept.append(ctypes.c_uint64(class_named(b"NSString")))
    zeros, noise, word = kept[-3:]
    return {
        "a device": device,
        "a queue": queue,
        **texts,
        "a class": word.value,
        "a word that is a class": ctypes.addressof(word),
        "zeros": zeros.ctypes.data,
        "inside zeros": zeros.ctypes.data + 4096,
        "a Python text": id("x"),
        "a Python int": id(7),
        "inside a buffer object": near.handle + 8,
        "a buffer's bytes": near.address,
        "unaligned": near.handle + 1,
        "page zero": 8,
        "the top": 2**64 - 8,
        "the kernel": 0xFFFF_FFF0_0000_0000,
        "a tag bit": 0x8000_0000_0000_0000,
        "code": ctypes.cast(libobjc.objc_getClass, ctypes.c_void_p).value,
        **{f"noise {i}": noise.ctypes.data + 8 * i for i in range(0, 4096, 64)},
    }


kept: list[object] = []


def is_refused(address: int) -> bool:
    try:
        md.Buffer.from_handle(address)
    except ValueError:
        return True
    return False


@question("handles", "each real buffer is taken, every other address refused with ValueError, no crash")
def handles():
    for mode in MODES:
        buffer = md.Buffer(64, storage=mode)
        check(md.Buffer.from_handle(buffer.handle).handle == buffer.handle, mode)
        print(mode, "buffer: taken")
    near = md.Buffer(64)
    with pool():
        device = send(near.handle, "device")
        queue = send(device, "newCommandQueue")
        addresses = odd_addresses(near, device, queue)
        for name, address in addresses.items():
            check(is_refused(address), f"{name} ({address:#x}) was taken for a buffer")
        print(len(addresses), "other addresses: refused")
        send(queue, "release", result=None)
    started = time.perf_counter()
    for _ in range(10000):
        md.Buffer.from_handle(near.handle)
    print(f"from_handle: {(time.perf_counter() - started) * 100:.2f} us")
    started = time.perf_counter()
    for _ in range(20):
        check(is_refused(device), "a device")
    print(f"a refusal: {(time.perf_counter() - started) * 50:.2f} ms")


# ---- storage ----


@question("storage modes", "each mode as asked, and the same bytes back")
def storage():
    for mode in MODES:
        buffer = md.Buffer(4100, storage=mode)
        check(buffer.storage == mode, f"{mode} was asked, {buffer.storage} came")
        buffer.copy_from(bytes(range(100)) * 41)
        check(bytes(np.array(buffer.array(4100, "uint8"))) == bytes(range(100)) * 41, f"{mode}: what the CPU wrote")
        gpu_fill(buffer.handle, 9, 4096)
        check(bytes(np.array(buffer.array(4096, "uint8"))) == bytes([9]) * 4096, f"{mode}: what the GPU wrote")
        print(mode, "ok", "address", hex(buffer.address or 0))


def retain_count(handle: int) -> int:
    return send(handle, "retainCount", result=ctypes.c_ulong)


@question("reuse", "a buffer that a command buffer retains is not reused, one whose handle nobody has is")
def reuse():
    for mode in MODES:
        cached = md.memory_stats()["cached_buffers"]
        a = md.zeros(1 << 20, storage=mode)
        md.default_device().synchronize()
        del a
        check(md.memory_stats()["cached_buffers"] == cached + 1, f"{mode}: not reused, and nobody has its handle")
        a = md.zeros(1 << 20, storage=mode)
        handle = a.buffer.handle
        print(mode, "retainCount", retain_count(handle))
        with pool():
            queue = send(send(handle, "device"), "newCommandQueue")
            commands = send(queue, "commandBuffer")
            encoder = send(commands, "blitCommandEncoder")
            send(
                encoder,
                "fillBuffer:range:value:",
                handle,
                Range(0, 1 << 22),
                ctypes.c_uint8(7),
                result=None,
            )
            send(encoder, "endEncoding", result=None)
            print("encoded: retainCount", retain_count(handle))
            cached = md.memory_stats()["cached_buffers"]
            del a
            check(md.memory_stats()["cached_buffers"] == cached, f"{mode}: reused while work on it is encoded")
            send(commands, "commit", result=None)
            send(commands, "waitUntilCompleted", result=None)
            send(queue, "release", result=None)
        a = md.zeros(1 << 20, storage=mode)
        gpu_fill(a.buffer.handle, 7, 64)
        del a
        print("after work that is over:", md.memory_stats()["cached_buffers"] - cached, "reused")


# ---- memory of the CPU ----


def shared_or_not(view: np.ndarray) -> str:
    array = md.asarray(view, copy=False)
    if not view.flags.writeable:
        same = np.array(array).tobytes() == view.tobytes()
        return f"taken, read-only, bytes {'equal' if same else 'DIFFER'}"
    view.reshape(-1)[-1] = 77
    return "shared" if np.array(array).reshape(-1)[-1] == 77 else "NOT THE SAME MEMORY"


@question(
    "memory without a copy",
    "anonymous and read-only pages and malloc's blocks: shared or refused, never a crash",
    is_for_people=True,
)
def no_copy():
    def attempt_sharing(what, view):
        attempt(what, lambda: told.append(shared_or_not(view)) or told[-1])

    told: list[str] = []
    pages = np.frombuffer(mmap.mmap(-1, 4 * PAGE), "uint8")
    attempt_sharing("anonymous mmap", pages)
    attempt_sharing("anonymous mmap, inside", pages[100:PAGE])
    with tempfile.TemporaryFile() as file:
        file.write(b"m" * 4 * PAGE)
        file.flush()
        for what, access in (("read-only", mmap.ACCESS_READ), ("private", mmap.ACCESS_COPY)):
            mapped = mmap.mmap(file.fileno(), 4 * PAGE, access=access)
            attempt_sharing(f"{what} file mmap", np.frombuffer(mapped, "uint8"))
    for size in (64, 5000, PAGE, 100_000, 1 << 20, 1 << 26):
        attempt_sharing(f"malloc, {size} bytes", np.zeros(size, "uint8"))
        attempt_sharing(f"malloc, {size} bytes, full", np.ones(size, "uint8"))
    attempt_sharing("bytes (read-only)", np.frombuffer(b"r" * 100_000, "uint8"))
    check(not any("NOT" in text or "DIFFER" in text for text in told), "it was taken, and is not the same memory")


def check_wrapped(what: str, array: md.Array, address: int, nbytes: int) -> None:
    """`contents` and `length` of the MTLBuffer are those of the whole pages round the bytes."""
    first = address // PAGE * PAGE
    length = -(-(address + nbytes) // PAGE) * PAGE - first
    with pool():
        found = send(array.buffer.handle, "contents"), send(array.buffer.handle, "length", result=ctypes.c_ulong)
    print(f"{what}: contents {found[0]:#x}, length {found[1]}")
    check(found == (first, length), f"{what}: the pages are at {first:#x}, {length} bytes")


@question("contents and length", "those of each wrapped buffer are the whole pages that were given")
def contents_and_length():
    pages = np.frombuffer(mmap.mmap(-1, 64 * PAGE), "uint8")
    for what, view in {
        "anonymous pages": pages,
        "one page": pages[PAGE : 2 * PAGE],
        "inside a page": pages[3 * PAGE + 100 : 3 * PAGE + 164],
        "across two pages": pages[6 * PAGE - 64 : 6 * PAGE + 64],
        "the last page": pages[-PAGE:],
    }.items():
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


def write_beside(memory: np.ndarray, first: int, end: int) -> None:
    """The GPU writes the bytes from first to end, and the CPU those on either side of them at the same time."""
    inner, before, after = memory[first:end], memory[: first - 16], memory[end : end + 300]
    array, stream = md.asarray(inner, copy=False), md.Stream()
    for value in range(1, 21):
        memory[:] = 200
        array.fill(value, stream=stream)
        before[:], after[:] = value + 100, value + 50
        stream.synchronize()
        check((inner == value).all(), "the GPU's bytes are not there")
        check((before == value + 100).all() and (after == value + 50).all(), "the CPU's bytes beside are not there")
        check((memory[first - 16 : first] == 200).all(), "bytes changed that nobody wrote")
    print(f"  {inner.nbytes} bytes from {inner.ctypes.data:#x}, and those beside, 20 times: all there")


@question("neighbours", "the GPU writes an array that shares its pages; the bytes beside it stay, and the CPU's arrive")
def neighbours():
    for what, memory in {
        "pages of mmap": np.frombuffer(mmap.mmap(-1, 8 * PAGE), "uint8"),
        "a block of malloc": np.ones(8 * PAGE, "uint8"),
    }.items():
        print(what)
        for first, end in ((320, 5 * PAGE + 4), (321, 5 * PAGE + 3)):  # by a blit; by a kernel
            try:
                write_beside(memory, first, end)
            except md.CopyRequiredError as error:
                check(what != "pages of mmap", f"refused: {error}")
                print(f"  refused, so nothing is beside it: {error}")


class Owner(np.ndarray):
    """NumPy memory that a weak reference watches."""


@question("host memory in use", "the GPU's work keeps it, whoever committed it, and it goes afterwards")
def in_use():
    with pool():
        queue = send(send(md.Buffer(4).handle, "device"), "newCommandQueue")
    for _ in range(5):
        pages = mmap.mmap(-1, 1 << 26)
        owner = np.frombuffer(pages, "uint8").view(Owner)
        array = md.asarray(owner, copy=False)
        gone: list[bool] = []
        weakref.finalize(owner, gone.append, True)
        for value in range(20):
            gpu_fill(array.buffer.handle, value, 1 << 26, queue=queue, waits=False)
        del owner, array
        gc.collect()
        was_there = not gone
        deadline = time.monotonic() + 20
        while not gone and time.monotonic() < deadline:
            time.sleep(0.001)
        print("kept while the GPU worked:", was_there, "written:", pages[0], pages[-1])
        check(gone, "it was never let go")
        check(pages[0] == pages[-1] == 19, "it was let go before the GPU was done")
    send(queue, "release", result=None)


# ---- files and surfaces ----


@question("mapped files", "each mode is shared with the file's pages, and the GPU's copy of it is bit-equal")
def mapped_files():
    path = Path(tempfile.mkdtemp()) / "model.npy"
    data = np.random.default_rng(1).integers(0, 255, 1 << 26, dtype="u1")
    np.save(path, data)
    start = path.stat().st_size - data.nbytes

    def in_file() -> int:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(1)[0]

    def write_file(value: int) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(bytes([value]))

    for mode in ("r", "c", "r+"):
        with md.open(path, mode=mode) as file:
            array = file["arr_0"]
            check(file.is_mapped and array.buffer.owner is not None, f"{mode}: the file was read, and not mapped")
            copy = array.copy(storage="private").copy(storage="shared")
            check(bytes(memoryview(copy)) == data.tobytes(), f"{mode}: the GPU's copy")
            if mode == "r":
                prove_shared("r, the file written", write_file, lambda array=array: array[0].item())
            if mode == "r+":
                prove_shared("r+", lambda value, array=array: array.__setitem__(0, value), in_file)
            if mode == "c":
                stream = md.Stream()
                array[:64].fill(9, stream=stream)
                stream.synchronize()
                check(array[0].item() == 9 and in_file() == data[0], "c: a write of the GPU reached the file")
                print("c: written by the GPU, and the file is as it was")
            del array, copy
        write_file(int(data[0]))


@question(
    "IOSurface",
    "base address and length in whole pages, the same address locked or not, the GPU reads it",
    needs_mac=True,
)
def iosurface():
    import surfaces

    io = surfaces.load("IOSurface")
    for size in ((64, 64), (256, 128), (1000, 333), (4096, 2160)):
        surface = surfaces.make_surface(*size)
        before = io.IOSurfaceGetBaseAddress(surface)
        io.IOSurfaceLock(surface, 0, None)
        address, nbytes = io.IOSurfaceGetBaseAddress(surface), io.IOSurfaceGetAllocSize(surface)
        print(size, "before the lock", before == address, "past pages", address % PAGE, nbytes, nbytes % PAGE)
        buffer = md.Buffer.from_iosurface(surface)
        check((buffer.address, buffer.size) == (address, nbytes), "the Buffer lies elsewhere")
        ctypes.memset(address, 0x5A, nbytes)
        io.IOSurfaceUnlock(surface, 0, None)
        copy = buffer.array(nbytes, "uint8").copy(storage="private").copy(storage="shared")
        check(set(bytes(memoryview(copy))) == {0x5A}, "the GPU does not read what the CPU wrote")
    pixels = surfaces.make_pixel_buffer(64, 64, in_surface=True)
    print("pixel buffer:", md.Buffer.from_iosurface(pixels))
    plain = surfaces.make_pixel_buffer(64, 64, in_surface=False)
    attempt("pixel buffer without a surface", lambda: md.Buffer.from_iosurface(plain))
    attempt("an MTLDevice", lambda: md.Buffer.from_iosurface(md.default_device().handle))


@question(
    "an odd private buffer",
    "a Buffer refuses its last bytes, an Array has them; the last line is what Metal itself does",
    needs_mac=True,
    is_for_people=True,
)
def odd_private():
    with foreign_buffer(11, PRIVATE) as handle:
        buffer = md.Buffer.from_handle(handle)
        attempt("the first 8", lambda: bytes(np.array(buffer.array(8, "uint8"))))
        attempt("the last 3", lambda: bytes(np.array(buffer.array(3, "uint8", 8))))
        attempt("a fill of 11 bytes", lambda: gpu_fill(handle, 5, 11))


@question("too large and empty", "an empty buffer without Metal; MemoryError above maxBufferLength")
def limits():
    check(md.Buffer(0).size == 0, "an empty buffer")
    most = md.default_device().max_buffer_length
    for size in (most + 1, most * 4, 2**62):
        try:
            md.Buffer(size)
        except MemoryError as error:
            print(error)
        else:
            check(False, f"{size} bytes were given")
