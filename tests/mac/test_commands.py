"""What Metal's queues and its compiler do where Apple's pages leave it open: each test prints it."""

import ctypes
import os
import time

import numpy as np
import pytest
from machine import IS_MAC
from objc_messages import PRIVATE, foreign_buffer, gpu_fill, libobjc, pool, send

import metal_dlpack as md

pytestmark = pytest.mark.mac

#: One Metal command that is longer than 32 bits can say; the software Metal needs no such length.
LARGE = 4 * 2**30 + 4 if IS_MAC else 2**20 + 4


# ---- the compiler ----


def text_object(words):
    string = libobjc.objc_getClass(b"NSString")
    return send(string, "stringWithUTF8String:", ctypes.c_char_p(words.encode()))


def said(error):
    made = error.value and send(error.value, "localizedDescription")
    return send(made, "UTF8String", result=ctypes.c_char_p).decode() if made else "nothing"


def library_of(source, error):
    made = text_object(source), ctypes.c_void_p(), ctypes.addressof(error)
    return send(md.default_device().handle, "newLibraryWithSource:options:error:", *made)


#: One parameter of each kind whose facts Metal's pages leave open.
REFLECTED = """
#include <metal_stdlib>
using namespace metal;
struct pair { float first; uchar second; };
kernel void reflected(
    uint position [[thread_position_in_grid]], device float *out [[buffer(3)]],
    device const packed_float3 *packed [[buffer(1)]], constant pair &both [[buffer(0)]],
    device atomic_uint *counter [[buffer(5)]], constant uint *unused [[buffer(7)]],
    device const bfloat *small [[buffer(6)]], threadgroup half4 *shared [[threadgroup(0)]])
{
    shared[position % 32] = half4(packed[position].x);
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
    out[position] = both.first + float(small[position]) + float(shared[position % 32].x);
}
"""


def told_of(binding):
    name = send(send(binding, "name"), "UTF8String", result=ctypes.c_char_p).decode()
    is_buffer = send(binding, "type", result=ctypes.c_ulong) == 0
    more = ("bufferDataType", "bufferDataSize", "bufferAlignment")
    room = ("threadgroupMemoryDataSize", "threadgroupMemoryAlignment")
    names = ("index", "access", *(more if is_buffer else room))
    facts = ", ".join(f"{of} {send(binding, of, result=ctypes.c_ulong)}" for of in names)
    return f"{name}: {facts}{'' if send(binding, 'isUsed', result=ctypes.c_bool) else ', not used'}"


@pytest.mark.needs_kernels
def test_reflection_has_a_line_for_each_argument_but_the_position():
    """What is told of each is Metal's.  The package takes the order from the source; this one is that or the indices'."""
    with pool():
        error, made = ctypes.c_void_p(), ctypes.c_void_p()
        library = library_of(REFLECTED, error)
        assert library, said(error)
        function = send(library, "newFunctionWithName:", text_object("reflected"))
        where = ctypes.c_ulong(3), ctypes.addressof(made), ctypes.addressof(error)
        selector = "newComputePipelineStateWithFunction:options:reflection:error:"
        assert send(md.default_device().handle, selector, function, *where), said(error)
        bindings = send(made.value, "bindings")
        count = send(bindings, "count", result=ctypes.c_ulong)
        lines = [told_of(send(bindings, "objectAtIndex:", ctypes.c_ulong(i))) for i in range(count)]
    print("\n".join(lines))
    names = [line.partition(":")[0] for line in lines if not line.startswith(("shared:", "unused:"))]
    assert any(line.startswith("shared:") for line in lines)
    orders = {"the signature's": ["out", "packed", "both", "counter", "small"],
              "the indices'": ["both", "packed", "out", "counter", "small"]}  # fmt: skip
    if not IS_MAC:  # backwards, so that nothing here can rely on an order
        orders["the software Metal's"] = orders["the signature's"][::-1]
    print("the order is", *([of for of, order in orders.items() if order == names] or ["ANOTHER"]))
    assert names in orders.values()


@pytest.mark.needs_kernels
def test_the_compiler_s_words_name_the_line_and_the_name():
    with pool():
        error = ctypes.c_void_p()
        source = "#include <metal_stdlib>\n\nkernel void broken(device float *x) { x[0] = nowhere; }\n"
        assert not library_of(source, error)
        words = said(error)
        print(words)
    assert "program_source:3:" in words
    assert "nowhere" in words


# ---- waits ----


def raise_event(event, value):
    send(event, "setSignaledValue:", value, result=None)


def byte_now(address):
    """The first byte as it is, without waiting for anything."""
    return ctypes.string_at(address, 1)[0]


def test_whether_a_wait_holds_back_a_later_command_buffer_of_metal_s_own_queue(foreign_queue, shared_event):
    """Both are right for the package."""
    buffer = md.Buffer(64, storage="shared")
    buffer.fill(0)
    with pool():
        commands = send(foreign_queue, "commandBuffer")
        send(commands, "encodeWaitForEvent:value:", shared_event, 5, result=None)
        send(commands, "commit", result=None)
        gpu_fill(buffer.handle, 9, 64, queue=foreign_queue, waits=False)
        time.sleep(0.3)
        waited = byte_now(buffer.address) == 0
        raise_event(shared_event, 5)
        for last in (commands, send(foreign_queue, "commandBuffer")):
            if last != commands:
                send(last, "commit", result=None)
            send(last, "waitUntilCompleted", result=None)
        assert byte_now(buffer.address) == 9, "the fill was never done"
        raise_event(shared_event, 3)
        print("a value set lower reads as", send(shared_event, "signaledValue", result=ctypes.c_uint64))
    print("a later command buffer", "waits" if waited else "GOES PAST the wait")


@pytest.mark.parametrize("pieces", [1, 3])
def test_no_later_piece_of_a_stream_runs_before_the_event(pieces, shared_event):
    arrays = [md.zeros(64, "uint8", storage="shared") for _ in range(pieces)]
    stream = md.Stream()
    stream.wait(md.Event.from_handle(shared_event, 5))
    for array in arrays:
        array.fill(9, stream=stream)
    time.sleep(0.3)
    assert [byte_now(array.buffer.address) for array in arrays] == [0] * pieces, "before the event"
    raise_event(shared_event, 5)
    stream.synchronize()
    assert [array[0].item() for array in arrays] == [9] * pieces


def test_many_pieces_are_submitted_long_before_they_are_done():
    one, two = md.Stream(), md.Stream()
    a, b, c = (md.zeros(1 << 20, storage=mode) for mode in ("shared", "private", "managed"))
    started = time.perf_counter()
    for value in range(20):
        a.fill(value + 0.5, stream=one)
        b.copy_from(a, stream=two)
        c.copy_from(b, stream=one)
    print(f"60 pieces submitted in {(time.perf_counter() - started) * 1e3:.1f} ms")
    assert np.asarray(c)[-1] == 19.5
    print(f"... and done after {(time.perf_counter() - started) * 1e3:.1f} ms")


# ---- one command of many bytes ----


def skip_if_too_large(count):
    """Where this machine should not be asked for so many large buffers."""
    device, system = md.default_device(), os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_PHYS_PAGES" if IS_MAC else "SC_AVPHYS_PAGES") * system
    limits = {
        "max_buffer_length": (LARGE, device.max_buffer_length),
        "recommended_max_working_set_size": (count * LARGE, device.recommended_max_working_set_size),
        "two thirds of the memory": (count * LARGE, free * 2 // 3),
    }
    for what, (needed, most) in limits.items():
        if needed > most:
            pytest.skip(f"{count} x {LARGE:,} bytes are needed, and {what} allows {most:,} bytes")


def test_a_copy_and_a_fill_of_more_than_4_gib():
    skip_if_too_large(2)
    places = sorted({0, LARGE - 8, *(gib + near for gib in range(2**30, LARGE - 8, 2**30) for near in (-8, 0))})
    source, target = (md.Buffer(LARGE, storage="private").array(LARGE, "uint8") for _ in range(2))
    stream = md.Stream()

    def look(array):
        return {place: bytes(np.array(array[place : place + 8])) for place in places}

    source.fill(7, stream=stream)
    stream.synchronize()
    assert set(look(source).values()) == {bytes([7]) * 8}
    written = {place: (place + 1).to_bytes(8, "little") for place in places}
    for place, value in written.items():
        source[place : place + 8] = np.frombuffer(value, "uint8")
    target.fill(1, stream=stream)
    started = time.perf_counter()
    target.copy_from(source, stream=stream)
    stream.synchronize()
    print(f"copy of {LARGE:,} bytes: {time.perf_counter() - started:.2f} s")
    assert look(target) == written


@pytest.mark.needs_metal
def test_whether_one_fill_of_metal_s_own_reaches_its_last_bytes():
    skip_if_too_large(1)
    with foreign_buffer(LARGE, PRIVATE) as handle:
        last = md.Buffer.from_handle(handle).array(4, "uint8", LARGE - 4)
        last.fill(0)
        gpu_fill(handle, 7, LARGE)
        print("the last four bytes:", bytes(np.array(last)))
        del last


# ---- files ----


@pytest.mark.needs_metal
def test_how_fast_metal_s_own_queue_reads_a_file_beside_load(tmp_path):
    """MTLIOCommandQueue; the file is in the page cache for both."""
    path, written = tmp_path / "a.npy", np.arange(1 << 26, dtype="u4")
    np.save(path, written)
    place, target = md.open(path).info("arr_0"), md.empty(written.shape, written.dtype)
    device, error = md.default_device().handle, ctypes.c_void_p()
    with pool():
        url = send(libobjc.objc_getClass(b"NSURL"), "fileURLWithPath:", text_object(str(path)))
        file = send(device, "newIOFileHandleWithURL:error:", url, ctypes.addressof(error))
        assert file, said(error)
        described = send(send(libobjc.objc_getClass(b"MTLIOCommandQueueDescriptor"), "alloc"), "init")
        queue = send(device, "newIOCommandQueueWithDescriptor:error:", described, ctypes.addressof(error))
        assert queue, said(error)
        for _ in range(3):
            started = time.perf_counter()
            commands = send(queue, "commandBuffer")
            piece = target.buffer.handle, 0, place.nbytes, file, place.offset
            send(commands, "loadBuffer:offset:size:sourceHandle:sourceHandleOffset:", *piece, result=None)
            send(commands, "commit", result=None)
            send(commands, "waitUntilCompleted", result=None)
            seconds = time.perf_counter() - started
            assert send(commands, "status", result=ctypes.c_long) == 3, "MTLIOStatusComplete"
            started = time.perf_counter()
            loaded = md.load(path)
            print(f"{place.nbytes:,} bytes: {seconds:.3f} s, load() {time.perf_counter() - started:.3f} s")
            del loaded
        for made in (queue, described, file):
            send(made, "release", result=None)
    assert np.array_equal(np.asarray(target), written)
