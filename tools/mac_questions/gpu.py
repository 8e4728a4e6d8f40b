"""What runs on the GPU: kernels, events, one command of many bytes."""

import ctypes
import os
import re
import time
from contextlib import contextmanager

import numpy as np
from objc_messages import PRIVATE, foreign_buffer, gpu_fill, libobjc, pool, send

import metal_dlpack as md

from .asking import IS_MAC, ROOT, Skipped, check, question

#: One command of Metal's that is longer than 32 bits can say.  `--large` sets another, for a small machine.
LARGE = int(os.environ.get("ON_A_MAC_LARGE", 4 * 2**30 + 4))


# ---- kernels ----


def kernel_text() -> str:
    """The text that the package gives to Metal's compiler."""
    source = (ROOT / "src" / "metal" / "copy_kernel.c").read_text()
    head = re.findall(r'^.* "(#.+|using.+)\\n"$', source, re.MULTILINE)
    begin, end = "COPY_KERNEL_TEXT(\n", ")\n/* clang-format on"
    parts = []
    for name in ("copy_kernel_shape.h", "copy_kernel.h"):
        body = (ROOT / "src" / "metal" / name).read_text()
        parts.append(body[body.index(begin) + len(begin) - 1 : body.rindex(end)])
    return "\n".join([*head, *parts])


def text_object(words: str) -> int:
    string = libobjc.objc_getClass(b"NSString")
    return send(string, "stringWithUTF8String:", ctypes.c_char_p(words.encode()))


def said(error: ctypes.c_void_p) -> str:
    made = error.value and send(error.value, "localizedDescription")
    return send(made, "UTF8String", result=ctypes.c_char_p).decode() if made else "nothing"


@question("kernels", "Metal compiles the text, and says nothing of it; each unit size copies as NumPy does")
def kernels():
    text = kernel_text()
    with pool():
        device = md.default_device().handle
        error = ctypes.c_void_p()
        where = ctypes.addressof(error)
        library = send(device, "newLibraryWithSource:options:error:", text_object(text), ctypes.c_void_p(), where)
        print("the compiler says:", said(error))
        check(library, "it does not compile")
        for name in re.findall(r"copy_units_[0-9]+", text):
            function = send(library, "newFunctionWithName:", text_object(name))
            made = send(device, "newComputePipelineStateWithFunction:error:", function, where)
            check(made, f"{name}: {said(error)}")
            print(name, send(made, "maxTotalThreadsPerThreadgroup", result=ctypes.c_ulong), "threads at most")
    for dtype in ("uint8", "int16", "float32", "int64", "complex128"):
        a = (np.arange(7 * 300 * 50) % 251).reshape(7, 300, 50).astype(dtype)
        p = md.asarray(a).copy(storage="private")
        got = np.array(p.permute(2, 0, 1)[::-2, :, 3:].copy(storage="private"))
        check(got.tobytes() == np.ascontiguousarray(a.transpose(2, 0, 1)[::-2, :, 3:]).tobytes(), dtype)
        print(dtype, "equal")


#: One parameter of each kind whose facts Metal's pages leave open.
REFLECTED = """
#include <metal_stdlib>
using namespace metal;
struct pair { float first; uchar second; };
struct node { device float *values; uint count; };
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


def numbers_of(binding: int, *names: str) -> str:
    return ", ".join(f"{name} {send(binding, name, result=ctypes.c_ulong)}" for name in names)


def told_of(binding: int) -> str:
    name = send(send(binding, "name"), "UTF8String", result=ctypes.c_char_p).decode()
    is_buffer = send(binding, "type", result=ctypes.c_ulong) == 0
    more = ("bufferDataType", "bufferDataSize", "bufferAlignment")
    room = ("threadgroupMemoryDataSize", "threadgroupMemoryAlignment")
    is_used = send(binding, "isUsed", result=ctypes.c_bool)
    facts = numbers_of(binding, "index", "access", *(more if is_buffer else room))
    return f"{name}: {facts}{'' if is_used else ', not used'}"


@question("reflection", "a line for each argument but the position; their order and what is told of them is Metal's")
def reflection():
    with pool():
        device, error, made = md.default_device().handle, ctypes.c_void_p(), ctypes.c_void_p()
        library = send(
            device,
            "newLibraryWithSource:options:error:",
            text_object(REFLECTED),
            ctypes.c_void_p(),
            ctypes.addressof(error),
        )
        check(library, said(error))
        function = send(library, "newFunctionWithName:", text_object("reflected"))
        pipeline = send(
            device,
            "newComputePipelineStateWithFunction:options:reflection:error:",
            function,
            ctypes.c_ulong(3),
            ctypes.addressof(made),
            ctypes.addressof(error),
        )
        check(pipeline, said(error))
        bindings = send(made.value, "bindings")
        count = send(bindings, "count", result=ctypes.c_ulong)
        lines = [told_of(send(bindings, "objectAtIndex:", ctypes.c_ulong(i))) for i in range(count)]
    print("\n".join(lines))
    names = {line.partition(":")[0] for line in lines}
    check({"out", "packed", "both", "counter", "small", "shared"} <= names, f"only {names}")


@question("diagnostics", "the compiler's words name line 3 and the name; their form, and what follows, is told")
def diagnostics():
    with pool():
        device, error = md.default_device().handle, ctypes.c_void_p()
        source = text_object("#include <metal_stdlib>\n\nkernel void broken(device float *x) { x[0] = nowhere; }\n")
        library = send(
            device, "newLibraryWithSource:options:error:", source, ctypes.c_void_p(), ctypes.addressof(error)
        )
        check(not library, "it compiles")
        words, code = said(error), send(error.value, "code", result=ctypes.c_ulong)
        print(f"code {code}:\n{words}")
    check("program_source:3:" in words and "nowhere" in words, "another form")


# ---- streams and events ----


@contextmanager
def metal_queue_and_event():
    """A queue and a shared event that the package did not make."""
    with pool():
        device = md.default_device().handle
        queue, event = send(device, "newCommandQueue"), send(device, "newSharedEvent")
    try:
        yield queue, event
    finally:
        with pool():
            send(queue, "release", result=None)
            send(event, "release", result=None)


def raise_event(event: int, value: int) -> None:
    send(event, "setSignaledValue:", value, result=None)


@question("streams", "events reach queues and the CPU, the handler runs, both directions of stream=")
def streams():
    one, two = md.Stream(label="one"), md.Stream()
    check(md.Stream.from_handle(one.handle) == one, "a Stream of the same queue")
    a, b, c = (md.zeros(1 << 20, storage=mode) for mode in ("shared", "private", "managed"))
    started = time.perf_counter()
    for value in range(20):
        a.fill(value + 0.5, stream=one)
        b.copy_from(a, stream=two)
        c.copy_from(b, stream=one)
    print(f"60 pieces of work submitted in {(time.perf_counter() - started) * 1e3:.1f} ms")
    check(np.asarray(c)[-1] == 19.5, "the last of them")
    print(f"... and done after {(time.perf_counter() - started) * 1e3:.1f} ms")
    _, _, event, value = c.__metal_stream__()
    check(md.Event.from_handle(event, value).wait(10), "the event of the last piece")
    with metal_queue_and_event() as (queue, event):
        stream = md.Stream.from_handle(queue)
        stream.wait(md.Event.from_handle(event, 5))
        after = stream.record()
        check(not after.wait(0.05), "the queue did not wait for the event")
        raise_event(event, 5)
        check(after.wait(10), "the event that the CPU raised did not reach the queue")
        raise_event(event, 3)
        print("a value set lower reads as", send(event, "signaledValue", result=ctypes.c_uint64))
        gpu_fill(a.buffer.handle, 7, 64, queue=queue, waits=False)
        stream.synchronize()
        check(np.asarray(a).view("uint8")[0] == 7, "a fill on the queue")


def bytes_now(address: int) -> int:
    """The first byte as it is, without waiting for anything."""
    return ctypes.string_at(address, 1)[0]


def metal_waits_with_later_buffers() -> bool:
    """Does a wait in one command buffer hold back a blit in the next of its queue?"""
    buffer = md.Buffer(64, storage="shared")
    buffer.fill(0)
    with metal_queue_and_event() as (queue, event), pool():
        commands = send(queue, "commandBuffer")
        send(commands, "encodeWaitForEvent:value:", event, 5, result=None)
        send(commands, "commit", result=None)
        gpu_fill(buffer.handle, 9, 64, queue=queue, waits=False)
        time.sleep(0.3)
        waited = bytes_now(buffer.address) == 0
        raise_event(event, 5)
        send(commands, "waitUntilCompleted", result=None)
        last = send(queue, "commandBuffer")
        send(last, "commit", result=None)
        send(last, "waitUntilCompleted", result=None)
        check(bytes_now(buffer.address) == 9, "the fill was never done")
    return waited


@question(
    "a wait in one command buffer, a blit in the next",
    "each later piece of a Stream waits; whether Metal's queue itself does is told, and both are right",
)
def wait_then_blit():
    print("Metal: a later command buffer", "waits" if metal_waits_with_later_buffers() else "GOES PAST the wait")
    for pieces in (1, 3):
        arrays = [md.zeros(64, "uint8", storage="shared") for _ in range(pieces)]
        stream = md.Stream()
        with metal_queue_and_event() as (_, event):
            stream.wait(md.Event.from_handle(event, 5))
            for array in arrays:
                array.fill(9, stream=stream)
            time.sleep(0.3)
            early = [bytes_now(array.buffer.address) for array in arrays]
            raise_event(event, 5)
            stream.synchronize()
        check(early == [0] * pieces, f"a piece ran before the event: {early}")
        check([array[0].item() for array in arrays] == [9] * pieces, "a piece was never done")
        print(f"a Stream: a wait, then {pieces} of its command buffers: none ran before the event")


# ---- one command of many bytes ----


def why_not(count: int) -> str:
    """Why this machine should not be asked for so many large buffers; "" if it may be."""
    device, system = md.default_device(), os.sysconf("SC_PAGE_SIZE")
    free = os.sysconf("SC_PHYS_PAGES" if IS_MAC else "SC_AVPHYS_PAGES") * system
    limits = {
        "max_buffer_length": (LARGE, device.max_buffer_length),
        "recommended_max_working_set_size": (count * LARGE, device.recommended_max_working_set_size),
        "two thirds of the memory": (count * LARGE, free * 2 // 3),
    }
    for what, (needed, most) in limits.items():
        if needed > most:
            return f"{count} x {LARGE:,} bytes are needed, and {what} allows {most:,} bytes"
    return ""


@question("a copy and a fill of 4 GiB + 4", "the bytes at both ends and round each GiB are those that were written")
def large_copy():
    if why_not(2):
        raise Skipped(why_not(2))
    places = sorted({0, LARGE - 8, *(gib + near for gib in range(2**30, LARGE - 8, 2**30) for near in (-8, 0))})
    stream = md.Stream()
    source, target = (md.Buffer(LARGE, storage="private").array(LARGE, "uint8") for _ in range(2))

    def look(array):
        return {place: bytes(np.array(array[place : place + 8])) for place in places}

    started = time.perf_counter()
    source.fill(7, stream=stream)
    stream.synchronize()
    print(f"fill of {LARGE:,} bytes: {time.perf_counter() - started:.2f} s", flush=True)
    check(set(look(source).values()) == {bytes([7]) * 8}, f"fill: {look(source)}")
    written = {place: (place + 1).to_bytes(8, "little") for place in places}
    for place, value in written.items():
        source[place : place + 8] = np.frombuffer(value, "uint8")
    target.fill(1, stream=stream)
    started = time.perf_counter()
    target.copy_from(source, stream=stream)
    stream.synchronize()
    print(f"copy of {LARGE:,} bytes: {time.perf_counter() - started:.2f} s", flush=True)
    check(look(target) == written, f"copy: {look(target)}")
    print("bytes compared at", *places)


@question(
    "one fill of Metal's own of 4 GiB + 4",
    "whether Metal fills the last bytes in one command; the package asks for less at once",
    needs_mac=True,
    is_for_people=True,
)
def large_fill_of_metal():
    if why_not(1):
        raise Skipped(why_not(1))
    with foreign_buffer(LARGE, PRIVATE) as handle:
        last = md.Buffer.from_handle(handle).array(4, "uint8", LARGE - 4)
        last.fill(0)
        gpu_fill(handle, 7, LARGE)
        print("the last four bytes:", bytes(np.array(last)))
        del last
