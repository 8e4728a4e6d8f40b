"""What is done again and again leaves as many blocks of Python's memory, references and MTLBuffers as before."""

import contextlib
import ctypes
import functools
import gc
import operator
import sys
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest
from dlpack_structs import SET_ERROR, Producer, Table, Tensor, kind_with_table, table_of

import metal_dlpack as md
from metal_dlpack import _core

MANY = 300

array = md.zeros((4, 6))
private = md.zeros((4, 6), "int16", storage="private")[1:, ::2]
readonly = array.as_readonly()
nibbles = md.zeros(12, "int4")
small = md.zeros(3, "bfloat16")
vectors = md.zeros(3, "float32x4")
layout = md.StridedLayout.dense((4, 6), 4)
turned = layout.permuted((1, 0))
buffer = md.Buffer(64)
memory = bytearray(96)
numbers = np.zeros((4, 6), np.float32)
stream, event = md.Stream(), md.Stream().record()
device = md.default_device()
scale_source = (
    "kernel void scale(device float *x, constant float2 &by, uint i [[thread_position_in_grid]]) { x[i] *= by.x; }"
)
shared = SharedMemory(create=True, size=64)
shared.unlink()  # its memory stays until the end


@functools.cache
def library():
    return md.Library("#include <metal_stdlib>\n" + scale_source)


@functools.cache
def scale():
    return library()["scale"]


def raise_error(_context, _kind, _message):
    """As SetError of a caller that has no use for it."""


def ask_allocator():
    """For a tensor of an element type that there is not."""
    prototype, out, set_error = Tensor(), ctypes.c_void_p(), SET_ERROR(raise_error)
    prototype.code = 99
    return table_of(md.Array).allocator(ctypes.byref(prototype), ctypes.byref(out), None, set_error)


def gives_nothing(_op, out):
    out[0] = None
    return 0


table = Table.from_buffer_copy(table_of(md.Array))
table.from_object = type(table.from_object)(gives_nothing)
by_method = kind_with_table(table)()  # its method gives what its table does not


class Odd:
    """Refuses whatever it is asked."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __index__(self):
        raise RuntimeError("index")


class Outside:
    """Of another framework, on Metal."""

    def __dlpack__(self, **_keywords):
        return array.__dlpack__()

    def __dlpack_device__(self):
        return array.__dlpack_device__()


outside = Outside()

DONE = {
    "made": lambda: (md.zeros((2, 3)), md.full(3, 2, "int16"), md.empty_like(array), md.empty(3, "int8")),
    "asarray": lambda: (md.asarray([[1, 2.5]]), md.asarray(1j), md.asarray(memory), md.asarray(numbers, copy=True)),
    "from_dlpack": lambda: (md.from_dlpack(array), md.from_dlpack(numbers), md.from_dlpack(array, copy=True)),
    "capsules": lambda: (array.__dlpack__(), array.__dlpack__(max_version=(1, 3), dl_device=(1, 0), copy=True)),
    "taken capsules": lambda: (md.from_dlpack(array.__dlpack__()), np.from_dlpack(array.host)),
    "devices of dlpack": lambda: (array.__dlpack_device__(), array.host.__dlpack_device__()),
    "buffers": lambda: (md.Buffer(9, label="a"), md.Buffer.from_host(memory), array.buffer.array(3, "float32", 4)),
    "handles": lambda: (md.Buffer.from_handle(buffer.handle, owner=memory), buffer.handle, buffer.address),
    "bytes": lambda: (buffer.copy_from(b"12345678"), buffer.copy_to(bytearray(64)), bytes(buffer), buffer.fill(1)),
    "index": lambda: (array[1:, None, ..., 2], array[0, 0], array[-1], [*array[0]]),
    "assign": lambda: (operator.setitem(array, slice(1, 3), array[:2]), operator.setitem(array, 0, 1.5)),
    "views": lambda: (array.T, array.reshape(2, 12), array.permute(1, 0), array.squeeze(), array.expand_dims(0)),
    "more views": lambda: (array.flatten(), array.view("int8"), array.broadcast_to((2, 4, 6)), array.as_readonly()),
    "copies": lambda: (private.copy(order="F"), array.copy(storage="managed"), array.to_device("cpu")),
    "moves": lambda: (private.copy_from(private.copy()), array.copy_to(md.zeros((4, 6))), array.copy_from(numbers)),
    "items": lambda: (array.tolist(), private.tolist(), array[0, 0].item(), vectors.tolist(), nibbles.tolist()),
    "fills": lambda: (private.fill(7), vectors.fill((1, 2, 3, 4)), nibbles.fill(-1)),
    "facts": lambda: (array.shape, array.strides, array.layout, array.dtype, array.device, array.nbytes, repr(array)),
    "buffer protocol": lambda: (memoryview(array).release(), memoryview(buffer).release(), np.asarray(array)),
    "numpy": lambda: (array.__array__(), array.__array__(np.dtype("int8")), np.array(array)),
    "numpy of ml_dtypes": lambda: (np.asarray(small), np.array(small), small.__array__()),
    "reduce": lambda: (array.__reduce_ex__(5), array.T.__reduce_ex__(2), md.int4.__reduce__()),
    "shares_memory": lambda: (md.shares_memory(array, array[1:]), md.shares_memory(numbers, array)),
    "layouts": lambda: (layout.permuted((1, 0)).to_dense()[1:, ::2].unsqueezed(0).squeezed(), layout.repacked(2)),
    "facts of layouts": lambda: (layout.shape, layout.strides, layout.stride_order, repr(layout), turned.__reduce__()),
    "dtypes": lambda: (md.dtype("float32"), md.dtype(int), md.dtype("<f4"), repr(md.int4), hash(md.int4)),
    "lanes": lambda: (md.dtype("float32x4"), md.dtype(np.dtype("int8")), md.dtype("bfloat16x2") == md.bfloat16),
    "facts of dtypes": lambda: (md.int4.name, md.int4.bits, md.float32.itemsize, md.dtype("float32x4").lanes),
    "streams": lambda: (md.Stream(label="a"), stream.record(), stream.wait(event), stream.synchronize()),
    "events": lambda: (md.Event(), md.Event.from_handle(event.handle, 0), event.query(), event.wait(1), repr(event)),
    "work": lambda: (private.fill(2, stream=stream), array.copy(stream=stream), stream.synchronize()),
    "protocol of streams": lambda: (
        array.__metal_stream__(),
        stream.__metal_stream__(),
        array.__dlpack__(stream=stream),
    ),
    "devices": lambda: (md.devices(), device.name, repr(device), device.default_stream, device.synchronize()),
    "counts": lambda: (md.memory_stats(), md.set_memory_limit(None), md.empty_cache()),
    "shared memory": lambda: (md.asarray(shared), md.Buffer.from_host(shared)),
    "by the table": lambda: (array.to(md.Array), array.to(np), md.from_dlpack(array)),
    "by the method after the table": lambda: md.from_dlpack(by_method),
    "the allocator": ask_allocator,
    "context": lambda: stream.__enter__().__exit__(None, None, None),
}

REFUSED = {
    "shape": lambda: md.zeros((2, -1)),
    "too large": lambda: md.zeros((2**40, 2**40)),
    "dtype": lambda: md.zeros(3, "floaty"),
    "storage": lambda: md.zeros(3, storage="shard"),
    "keyword": lambda: md.zeros(3, flavour=1),
    "device": lambda: array.to_device("cuda"),
    "ragged": lambda: md.asarray([[1, 2], [3]]),
    "not a number": lambda: md.asarray([1, "a"]),
    "no tensor": lambda: md.from_dlpack(3),
    "faulty tensor": lambda: md.from_dlpack(faulty),
    "odd": lambda: md.from_dlpack(Odd()),
    "odd index": lambda: array[Odd()],
    "index": lambda: array[9],
    "indices": lambda: array[0, 0, 0],
    "read-only": lambda: operator.setitem(readonly, 0, 1),
    "read-only export": lambda: readonly.__dlpack__(),
    "no view": lambda: array.T.reshape(24),
    "broadcast": lambda: array.copy_from(md.zeros(5)),
    "bits": lambda: nibbles[1:],
    "range": lambda: buffer.array(99, "float32"),
    "handle": lambda: md.Buffer.from_handle(12345),
    "copy": lambda: md.asarray([1, 2], copy=False),
    "stream": lambda: array.fill(1, stream=3),
    "event": lambda: stream.wait(3),
    "timeout": lambda: event.wait(-1),
    "item": lambda: array.item(),
    "value": lambda: array.fill("a"),
    "layout": lambda: md.StridedLayout((2,), (1, 2), 4),
    "permutation": lambda: layout.permuted((0, 0)),
    "dtype of anything": lambda: md.dtype(Odd()),
    "memoryview": lambda: memoryview(private),
    "attribute": lambda: setattr(array, "shape", ()),
    "limit": lambda: md.set_memory_limit(-1),
    "shares nothing": lambda: md.shares_memory(array, 3),
}
faulty = Producer(shape=(-1,))

#: Only where kernels are compiled.
KERNELS_DONE = {
    "kernel": lambda: (
        scale()(array, (1, 2), n=3),
        scale()(array.buffer, by=[1, 2], n=3, stream=stream),
        device.synchronize(),
    ),
    "kernel on tensors": lambda: (scale()(outside, (1, 2), n=3), scale()(array, bytes(8), n=3), device.synchronize()),
    "timed kernel": lambda: scale().time(array, (1, 2), groups=2, group=(2, 1)),
    "kernel's facts": lambda: (library()["scale"], scale().arguments, repr(scale()), repr(library()), scale().device),
}
KERNELS_REFUSED = {
    "kernel without threads": lambda: scale()(array, (1, 2)),
    "kernel without arguments": lambda: scale()(n=3),
    "kernel with surplus arguments": lambda: scale()(array, (1, 2), 3, n=3, more=1),
    "kernel with odd arguments": lambda: scale()(outside, Odd(), n=3),
    "kernel with a wrong number": lambda: scale()(outside, (1, "a"), n=3),
    "kernel with another type": lambda: scale()(private, (1, 2), n=3),
    "kernel on the CPU's memory": lambda: scale()(numbers, (1, 2), n=3),
    "kernel on read-only memory": lambda: scale()(readonly, (1, 2), n=3),
    "kernel of another name": lambda: library()["skale"],
    "kernel with constants": lambda: library().kernel("scale", {"N": 1}),
}


#: What calls could keep, or let go of once too often.
WATCHED = [
    *(
        array,
        private,
        buffer,
        memory,
        numbers,
        layout,
        turned.shape,
        turned.strides,
        stream,
        event,
        device,
        shared,
        shared.buf,
    ),
    *(np.dtype(name) for name in ("float32", "int16", "int8", "uint8")),
    *(md.float32, md.int4, md.int8, md.bfloat16, *_core._types()),
]


def counts():
    gc.collect()
    return [sys.getallocatedblocks(), *map(sys.getrefcount, WATCHED)]


def growth(call):
    """The most that MANY calls add to a count, in the best of three rounds: caches and free lists fill up first."""
    most = MANY
    for _ in range(3):
        before = counts()
        for _ in range(MANY):
            call()
        added = [after - earlier for after, earlier in zip(counts(), before, strict=True)]
        assert min(added[1:]) > -MANY / 4, "more references are dropped than were taken"
        most = min(most, max(added))
        if most < MANY / 4:
            break
    return most


def test_what_is_done_leaves_nothing_behind(live_buffers, subtests):
    for name, call in DONE.items():
        with subtests.test(name):
            assert growth(call) < MANY / 4


def test_what_is_refused_leaves_nothing_behind(live_buffers, subtests):
    for name, call in REFUSED.items():
        with subtests.test(name):
            assert growth(refused(call)) < MANY / 4


@pytest.mark.needs_kernels
def test_kernels_leave_nothing_behind(live_buffers, subtests):
    for name, call in (KERNELS_DONE | {name: refused(call) for name, call in KERNELS_REFUSED.items()}).items():
        with subtests.test(name):
            assert growth(call) < MANY / 4


def refused(call):
    def call_it():
        with contextlib.suppress(Exception):
            call()
            pytest.fail("it is not refused")

    return call_it
