"""How each public name is called, for tests that let something fail inside of the call.

CALLS has a list of calls for each name of public_surface.surface().  Calls with arguments are written down, the
others are found by looking.  A call may be made any number of times, and leaves nothing behind.
"""

import _testbuffer
import contextlib
import ctypes
import functools
import io
import operator
import os
import pickle
import re
import tempfile
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import c_api
import fault_textures
import numpy as np
import public_surface
from dlpack_structs import Tensor, delete, kind_with_table, table_with

import metal_dlpack as md
import softmetal
from dlpack_conformance import exchange_table

METAL, CPU, VERSIONED, IMPORTS_TORCH = (8, 0), (1, 0), (1, 3), {"share_mps_tensors"}

array = md.zeros((4, 6), "float32")
readonly = array.as_readonly()
odd = md.zeros((4, 6), "int16", storage="private")[1:, ::2]
odd_copy = odd.copy()
managed = md.zeros((4, 6), storage="managed")
room = md.zeros((4, 6))
one = md.full((), 3.0)
whole = md.full((), 3, "int32")
nibbles = md.zeros(12, "int4")
vectors = md.zeros(3, "int64x40")
unnamed = md.zeros(4, "bfloat16").to_numpy()  # of a type that the buffer protocol has no name for
empty = md.zeros((0, 3))
buffer = md.Buffer(64)
memory = bytearray(64)
numbers = list(range(12))
stream, other_stream = md.Stream(), md.Stream()
event = stream.record()
_heard, bell = os.pipe()
os.set_blocking(bell, False)
device = md.default_device()
layout = md.StridedLayout.dense((4, 6), 4)
dtype = md.float32
library = md.Library(
    """
    #include <metal_stdlib>
    constant uint STEP [[function_constant(1000)]];  // past Python's shared ints: one that is left behind is a block
    kernel void scale(device float *x, constant float2 &by, threadgroup float *room, uint i [[thread_position_in_grid]])
    {
        x[i] *= by.x;
    }
    kernel void skip(device float *x, uint i [[thread_position_in_grid]]) { x[i * STEP] = 1; }
    kernel void fill(device float *x, device int *y) { *x = 1; *y = 2; }
    """
)
ONE_KERNEL = "kernel void nothing(device float *x) {}"  # compiled once, made each time
kernel = library["scale"]
signs = md.zeros(2, dtype="int32")
library.fill(n=1, out=[(2, "float32"), (2, "int32")])  # so that it is compiled
kernel.count(room, (1, 2), n=1, threadgroup_memory={"room": 16})  # so that it is compiled
pointers = _testbuffer.ndarray(list(range(12)), shape=[3, 4], format="B", flags=_testbuffer.ND_PIL)
shared = SharedMemory(create=True, size=64)
shared.unlink()  # its memory stays until the end
pickled_layout, pickled_dtype = pickle.dumps(layout), pickle.dumps(dtype)
#: One of each type, whose attributes are read.
INSTANCES = {
    "dtype": dtype,
    "StridedLayout": layout,
    "Device": device,
    "Buffer": buffer,
    "Array": array,
    "HostView": array.host,
    "Stream": stream,
    "Event": event,
    "Library": library,
    "Kernel": kernel,
    "Argument": kernel.arguments[0],
    **fault_textures.INSTANCES,
}
#: What stands on the other side of an operator: something that a type compares itself with, else a number.
OPERANDS = {"dtype": md.int4, "StridedLayout": layout.to_dense("F"), "Device": "metal:0", "Stream": other_stream}
#: Objects of which a call that fails must not keep a reference.
KEPT = [array, readonly, odd, managed, room, buffer, stream, event, device, layout, dtype, memory, shared]
KEPT += [layout.shape, layout.strides, layout.strides_in_bytes, layout.stride_order]
folder = tempfile.TemporaryDirectory()
file = Path(folder.name, "numbers.npy")
np.save(file, np.zeros((4, 6), "float32"))


class Producer:
    """Says no more than it must."""

    def __dlpack__(self):
        return array.__dlpack__()

    def __dlpack_device__(self):
        return METAL


class Moment:
    """Says what to wait for."""

    def __metal_stream__(self):
        return stream.__metal_stream__()


producer, moment = Producer(), Moment()
interface = {"data": (buffer.address, False), "typestr": "<f4", "shape": (2, 3)}
interface = SimpleNamespace(__array_interface__=interface)  # NumPy's older protocol
model = SimpleNamespace(shape=(2, 3), dtype="int16")  # an array of another library, as far as empty_like looks
library_of_tensors = SimpleNamespace(Tensor=md.Array, from_dlpack=None)


def refused(call, error, *arguments):
    """It does what it does, which is to raise this."""
    try:
        call(*arguments)
    except error:
        return
    raise AssertionError(f"{call} takes {arguments}")


def print_nowhere(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        call(*arguments)


def wait_for(work):
    work()
    stream.synchronize()


def copies_by_gpu():
    odd.copy_from(odd_copy, stream=stream)
    odd.copy_to(odd_copy, stream=stream)
    stream.synchronize()


def enter_stream():
    with stream:
        md.zeros(3)


def finish(coroutine):
    """What a coroutine that has nothing to wait for returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    finally:
        coroutine.close()
    raise AssertionError(f"{coroutine} waits")


async def leave_stream():
    stream.__enter__()
    await stream.__aexit__(ValueError, ValueError(), None)


def use_numpy_memory():
    with md.numpy_memory():
        np.zeros(1 << 17, "uint8")


def launch():
    kernel(room, (1, 2), n=4, threadgroup_memory={"room": 16}, stream=stream)
    kernel(room.buffer, by=(1, 2), groups=2, group=2, threadgroup_memory={"room": 16}, resources=[room, room.buffer])
    stream.synchronize()
    device.synchronize()


def refuse_launch(*arguments):
    refused(functools.partial(kernel, n=4, threadgroup_memory={"room": 16}), (TypeError, ValueError), *arguments)


#: Too few, too many, of a wrong kind, type or place.
NOT_LAUNCHED = [(), (room,), (room, (1, 2), 3), (producer, (1, "a")), (producer, object()), (numbers, (1, 2))]
NOT_LAUNCHED += [(odd, (1, 2)), (memory, (1, 2)), (readonly, (1, 2))]


def transpose_nibbles():
    square = md.asarray([[1, 2], [3, 4]], dtype="int4")
    square.copy_from(square.T)
    assert square.tolist() == [[1, 3], [2, 4]]


def answer_wrongly(answer):
    """As the software Metal's compiler must not."""
    with mock.patch("softmetal.msl.for_softmetal.functions", lambda *_: answer):
        refused(md.Library, md.MetalError, "kernel void other() {}")


def lose_an_encoder():
    softmetal.configure(fail="encoder@1")
    try:
        refused(functools.partial(odd.fill, 0, stream=stream), md.MetalError)
    finally:
        softmetal.configure(fail=None)


# ---- the C tables ----

table = exchange_table.table_of(md.Array)
view, access = ctypes.byref(c_api.View()), ctypes.byref(c_api.Access())
extents = (ctypes.c_int64 * 2)(2, 3)
float32 = c_api.Dtype(2, 32, 1)
prototype = exchange_table.tensor_from(table, array).tensor
api = c_api.table()


def own_a_tensor(thing=array):
    delete(ctypes.addressof(exchange_table.tensor_from(table, thing)))


def steal_a_tensor():
    exchange_table.object_from(table, exchange_table.tensor_from(table, array))


def allocate_a_tensor():
    status, made, told = exchange_table.allocate(table, prototype)
    if status != 0:
        raise MemoryError(told)
    delete(ctypes.addressof(made))


def refuse_to_allocate():
    """A tensor of an element type that there is not."""
    assert exchange_table.allocate(table, Tensor(code=99))[0] == -1


def give_nothing(_op, result):
    result[0] = None
    return 0


by_method = kind_with_table(table_with(from_object=give_nothing))()  # its method gives what its table does not


def api_round_trip():
    api.array_from_dlpack(api.array_to_dlpack(array, -1), -1)


def api_to_dlpack():
    delete(api.array_to_dlpack(array.T, 1))


def api_access(thing, is_writing):
    api.array_begin(thing, is_writing, access)
    api.array_end(thing, access, is_writing)


# ---- what needs arguments ----

CALLS = {
    # functions
    "empty_cache": [lambda: (md.zeros(3), md.empty_cache())],
    "set_memory_limit": [lambda: (md.set_memory_limit(1 << 40), md.set_memory_limit(None))],
    "empty": [lambda: md.empty(100), lambda: md.empty(100, storage="private")],
    "zeros": [lambda: md.zeros((3, 4)), lambda: md.zeros((3, 4), storage="managed")],
    "full": [lambda: md.full((3, 4), 2, "int16"), lambda: md.full(4, 2, storage="private")],
    "ones": [lambda: md.ones((3, 4)), lambda: md.ones(3, storage="private")],
    "empty_like": [
        lambda: md.empty_like(array),
        lambda: md.empty_like(model),
        lambda: refused(md.empty_like, TypeError, 1),
    ],
    "zeros_like": [lambda: md.zeros_like(array, shape=3)],
    "ones_like": [lambda: md.ones_like(array, dtype="int8")],
    "full_like": [lambda: md.full_like(array, 2)],
    "asarray": [
        lambda: md.asarray(numbers),
        lambda: md.asarray(1.5),
        lambda: md.asarray([[1, 2.5], [2**60 + 1, True]], dtype="float32"),
        lambda: md.asarray([1.5, 2], dtype="int4"),
        lambda: md.asarray(pointers),
        lambda: md.asarray(memory),
        lambda: md.asarray(memory, copy=True),
        lambda: md.asarray(shared),
        lambda: md.asarray(array, dtype="int16"),
        lambda: md.asarray(array, storage="private"),
    ],
    "from_dlpack": [
        lambda: md.from_dlpack(array),
        lambda: md.from_dlpack(array, copy=True),
        lambda: md.from_dlpack(array, stream=stream),
        lambda: md.from_dlpack(producer),
        lambda: md.from_dlpack(by_method),
        lambda: md.from_dlpack(md.zeros(4).__dlpack__(max_version=VERSIONED)),
        lambda: md.from_dlpack(array.host),
        lambda: md.from_dlpack(array.host.__dlpack__()),
    ],
    "shares_memory": [
        lambda: md.shares_memory(array, array[1:]),
        lambda: md.shares_memory(array.host, memory),
        lambda: md.shares_memory(producer, array),
        lambda: md.shares_memory(interface, array),
    ],
    "set_num_threads": [lambda: md.set_num_threads(md.get_num_threads())],
    "capture": [lambda: md.capture("trace.gputrace")],
    "explain": [lambda: md.explain(array), lambda: md.explain(producer), lambda: md.explain(odd, device="cpu")],
    "keep_resident": [lambda: md.keep_resident(array, [array]).close()],
    "load": [lambda: md.load(file), lambda: md.load(file, dtype="float16", storage="private")],
    "numpy_memory": [use_numpy_memory],
    "open": [lambda: md.open(file)],
    "register_sync": [lambda: (md.register_sync(Producer, print), md.register_sync(Producer, None))],
    "show": [lambda: print_nowhere(md.show, array, odd)],
    "softmetal.configure": [
        lambda: softmetal.configure(latency_us=None),
        lose_an_encoder,
        functools.partial(answer_wrongly, None),
        functools.partial(answer_wrongly, (0, [3])),
    ],
    "softmetal.live_objects": [softmetal.live_objects, lambda: softmetal.live_objects(None)],
    "softmetal.reports": [softmetal.reports, lambda: softmetal.reports("race")],
    # dtype
    "dtype.__new__": [
        lambda: md.dtype("float32"),
        lambda: md.dtype("float32x4"),
        lambda: md.dtype("mlx.core.float32"),
        lambda: (md.dtype("<f4"), md.dtype(int), md.dtype(md.float32)),
    ],
    "dtype.__reduce__": [dtype.__reduce__, lambda: pickle.loads(pickled_dtype)],
    # StridedLayout
    "StridedLayout.__new__": [
        lambda: md.StridedLayout((4, 6), None, 4),
        lambda: md.StridedLayout((4, 6), (6, 1), 4),
    ],
    "StridedLayout.__getitem__": [lambda: layout[1:, ::2]],
    "StridedLayout.dense": [lambda: md.StridedLayout.dense((4, 6), 4, (1, 0))],
    "StridedLayout.dense_like": [lambda: md.StridedLayout.dense_like(layout)],
    "StridedLayout.to_dense": [lambda: layout.to_dense("F")],
    "StridedLayout.repacked": [lambda: layout.repacked(2)],
    "StridedLayout._restore": [lambda: pickle.loads(pickled_layout)],
    "StridedLayout.reshaped": [lambda: layout.reshaped((2, 12))],
    "StridedLayout.permuted": [lambda: layout.permuted((1, 0))],
    "StridedLayout.unsqueezed": [lambda: layout.unsqueezed(0), lambda: layout.unsqueezed((0, 2))],
    "StridedLayout.broadcast_to": [lambda: layout.broadcast_to((5, 4, 6))],
    "StridedLayout.sliced": [lambda: layout.sliced((slice(1, 3), slice(None, None, 2)))],
    "StridedLayout.__deepcopy__": [lambda: layout.__deepcopy__({})],
    # Device
    # Buffer
    "Buffer.__new__": [lambda: md.Buffer(64, label="a name"), lambda: md.Buffer(64, storage="private")],
    "Buffer.from_handle": [lambda: md.Buffer.from_handle(buffer.handle, owner=buffer)],
    "Buffer.from_host": [
        lambda: md.Buffer.from_host(memory, writable=False),
        lambda: md.Buffer.from_host(shared),
        lambda: md.Buffer.from_host(unnamed),
        lambda: refused(md.Buffer.from_host, TypeError, array.host),
    ],
    "Buffer.from_iosurface": [lambda: refused(md.Buffer.from_iosurface, (NotImplementedError, ValueError), 1)],
    "Buffer.array": [
        lambda: buffer.array((2, 3), "int16", 4),
        lambda: buffer.array(md.StridedLayout((2, 3), (3, 1), 4), "float32"),
    ],
    "Buffer.close": [lambda: md.Buffer(64).close()],
    "Buffer.fill": [lambda: buffer.fill(0), lambda: md.Buffer(64, storage="private").fill(7)],
    "Buffer.copy_from": [lambda: buffer.copy_from(memory)],
    "Buffer.copy_to": [lambda: buffer.copy_to(memory)],
    "Buffer.__reduce__": [lambda: refused(buffer.__reduce__, TypeError)],
    "Buffer.__buffer__": [lambda: memoryview(buffer).release()],
    # Array
    "Array.__new__": [lambda: refused(md.Array, TypeError, [1, 2])],
    "Array.__format__": [lambda: f"{one:.2f}", lambda: f"{one}"],
    "Array.__repr__": [lambda: repr(array), lambda: repr(odd)],
    "Array.__iter__": [lambda: list(array)],
    "Array.__bool__": [lambda: bool(one)],
    "Array.__int__": [lambda: int(one)],
    "Array.__float__": [lambda: float(one)],
    "Array.__complex__": [lambda: complex(one)],
    "Array.__index__": [lambda: operator.index(whole)],
    "Array.__getitem__": [
        lambda: array[1:, None, ..., 2],
        lambda: refused(operator.getitem, IndexError, array, 9),
        lambda: refused(operator.getitem, (IndexError, md.CopyRequiredError), nibbles, 1),
        lambda: md.zeros((2, 3))[1],
    ],
    "Array.__setitem__": [
        lambda: operator.setitem(array, (slice(1, None), slice(None, None, 2)), 0),
        lambda: operator.setitem(array, slice(1, 3), array[0:2]),
        lambda: operator.setitem(nibbles, slice(1, 9), nibbles[2:10]),
        lambda: operator.setitem(odd, 0, 0),
    ],
    "Array.__delitem__": [lambda: refused(operator.delitem, TypeError, array, 0)],
    "Array.reshape": [lambda: array.reshape(2, 12), lambda: refused(array.T.reshape, md.CopyRequiredError, 24)],
    "Array.permute": [lambda: array.permute(1, 0)],
    "Array.transpose": [array.transpose, lambda: array.transpose(1, 0), lambda: array.transpose((0, 1))],
    "Array.swapaxes": [lambda: array.swapaxes(0, 1)],
    "Array.moveaxis": [lambda: array.moveaxis(0, 1), lambda: array.moveaxis((0, 1), (1, 0))],
    "Array.ravel": [array.ravel, lambda: array.ravel("F"), odd.ravel],
    "Array.flatten": [array.flatten, lambda: array.flatten("F"), lambda: odd.flatten(0, 1)],
    "Array.tobytes": [array.tobytes, lambda: odd.tobytes("F"), nibbles.tobytes],
    "Array.expand_dims": [lambda: array.expand_dims(0)],
    "Array.broadcast_to": [lambda: array.broadcast_to((2, 4, 6))],
    "Array.view": [array.view, lambda: array.view(-1, 4), lambda: array.view("int8"), lambda: nibbles.view("uint2")],
    "Array.copy_from": [
        lambda: odd.copy_from(odd_copy),
        transpose_nibbles,
        lambda: array.copy_from(0.0),
        lambda: array.copy_from(managed),
        copies_by_gpu,
    ],
    "Array.copy_to": [lambda: array.copy_to(room), lambda: odd.copy_to(odd_copy)],
    "Array.fill": [lambda: odd.fill(7), lambda: wait_for(lambda: odd.fill(2, stream=stream)), lambda: managed.fill(0)],
    "Array.copy": [
        lambda: odd.copy(order="F"),
        lambda: array.copy(storage="managed"),
        lambda: nibbles.copy(padded=True),
        lambda: wait_for(lambda: odd.copy(stream=stream)),
    ],
    "Array.item": [lambda: array.item(0, 0), lambda: odd.item(0, 0), lambda: vectors.item(1)],
    "Array.astype": [lambda: array.astype("int16"), lambda: array.astype("bfloat16")],
    "Array.to_device": [
        lambda: (array.to_device("metal"), array.to_device(CPU)),
        lambda: odd.to_device("cpu"),
    ],
    "Array.__dlpack__": [
        array.__dlpack__,
        lambda: array.__dlpack__(max_version=VERSIONED, copy=True),
        lambda: array.__dlpack__(max_version=VERSIONED, dl_device=CPU),
        lambda: array.__dlpack__(stream=stream.handle),
        lambda: odd.__dlpack__(max_version=VERSIONED, dl_device=CPU),
        lambda: refused(readonly.__dlpack__, BufferError),
    ],
    "Array.to_numpy": [array.to_numpy, odd.to_numpy, nibbles.to_numpy],
    "Array.tolist": [odd.tolist, array.tolist, vectors.tolist, nibbles.tolist, managed.tolist],
    "Array.__deepcopy__": [lambda: array.__deepcopy__({})],
    "Array.to": [lambda: array.to(md.Array), lambda: array.to(library_of_tensors)],
    "Array.__reduce_ex__": [lambda: array.__reduce_ex__(5), lambda: array.T.__reduce_ex__(2)],
    "Array.__buffer__": [lambda: memoryview(array).release(), lambda: memoryview(managed).release()],
    # HostView
    "HostView.__dlpack__": [lambda: array.host.__dlpack__(), lambda: array.host.__dlpack__(max_version=VERSIONED)],
    "HostView.__buffer__": [lambda: memoryview(array.host).release()],
    # Stream
    "Stream.__new__": [lambda: md.Stream(label="a name")],
    "Stream.from_handle": [lambda: md.Stream.from_handle(stream.handle)],
    "Stream.__aenter__": [lambda: finish(stream.__aenter__()).__exit__(None, None, None)],
    "Stream.__aexit__": [lambda: finish(leave_stream())],
    "Stream.wait": [
        lambda: wait_for(lambda: stream.wait(event)),
        lambda: wait_for(lambda: stream.wait(moment)),
        lambda: wait_for(lambda: stream.wait(array)),
    ],
    "Stream.__enter__": [enter_stream],
    "Stream.__exit__": [enter_stream],
    # Event
    "Event.__new__": [lambda: md.Event()],
    "Event.from_handle": [lambda: md.Event.from_handle(event.handle, 0)],
    "Event.wait": [lambda: event.wait(1.0)],
    "Event.__await__": [lambda: list(event.__await__())],
    "Event._ring": [lambda: event._ring(bell), lambda: wait_for(lambda: stream.record()._ring(bell))],
    "Event._silence": [lambda: md.Event._silence(bell)],
    # kernels; compiling takes a compiler of its own, and is not tried here
    "kernel": [lambda: refused(functools.partial(md.kernel, math="quick"), ValueError, "")],
    "Library.__getitem__": [
        lambda: md.Library(ONE_KERNEL)["nothing"],
        lambda: library["scale"],
        lambda: refused(operator.getitem, KeyError, library, "no"),
    ],
    "Library.kernel": [
        lambda: library.kernel("scale"),
        lambda: library.kernel("skip", {"STEP": 1000}),
        lambda: refused(library.kernel, TypeError, "skip"),
        lambda: refused(library.kernel, OverflowError, "skip", {"STEP": -1}),
        lambda: refused(library.kernel, TypeError),  # a template's text is Python's own work
    ],
    "Library.__dir__": [lambda: dir(library)],
    "Library.__getattribute__": [lambda: library.fill, lambda: refused(getattr, AttributeError, library, "no")],
    "Kernel.__getitem__": [lambda: refused(operator.getitem, TypeError, library["scale"], (1, 2))],
    "Kernel.__call__": [
        launch,
        *(functools.partial(refuse_launch, *given) for given in NOT_LAUNCHED),
        lambda: refused(kernel, TypeError, room, (1, 2)),
        lambda: library.fill(n=1, out=((2,), "float32"), y=signs),
        lambda: library.fill(n=1, out=[(2, "float32"), (2, "int32")]),
        lambda: refused(functools.partial(library.fill, n=1, out=3), TypeError),
    ],
    "Kernel.count": [lambda: kernel.count],  # Python's own work
    "Kernel.time": [lambda: kernel.time(producer, (1, 2), n=4, threadgroup_memory={"room": 16})],
    **fault_textures.calls(refused),
    # the exchange table
    "exchange.allocate": [allocate_a_tensor, refuse_to_allocate],
    "exchange.from_object": [own_a_tensor, functools.partial(own_a_tensor, odd)],
    "exchange.to_object": [steal_a_tensor],
    "exchange.borrow": [lambda: exchange_table.borrow(table, array)],
    "exchange.stream": [lambda: exchange_table.stream_of(table, METAL)],
    # metal_dlpack.h
    "api.array_check": [lambda: api.array_check(array)],
    "api.array_get": [lambda: api.array_get(array, view)],
    "api.array_new": [lambda: api.array_new(2, extents, float32, 0), lambda: api.array_new(2, extents, float32, 3)],
    "api.buffer_wrap": [lambda: api.buffer_wrap(buffer.handle, 64, None)],
    "api.buffer_array": [lambda: api.buffer_array(buffer, 2, extents, None, float32, 8)],
    "api.array_from_dlpack": [api_round_trip],
    "api.array_to_dlpack": [api_to_dlpack],
    "api.array_begin": [lambda: api_access(array, 0), lambda: api_access(odd, 0), lambda: api_access(managed, 1)],
    "api.array_end": [lambda: api_access(odd, 1)],
}


# ---- what needs none ----

BINARY = re.compile(
    "__[ri]?(add|sub|mul|matmul|truediv|floordiv|mod|lshift|rshift|and|or|xor|pow|divmod)__"
    "|__(lt|le|gt|ge|eq|ne|contains)__"
)
UNARY = {"__neg__", "__pos__", "__abs__", "__invert__"}


def operate(method, thing, *others):
    """With each of these at its other side; most types have no operators, and say so."""
    for operands in [(other,) for other in others] or [()]:
        with contextlib.suppress(TypeError):
            method(thing, *operands)


def plain_call(name):
    """An attribute is read; all else is called without arguments, but for operators."""
    kind, _, member = name.rpartition(".")
    if kind not in INSTANCES:
        return getattr(softmetal if kind else md, member)
    thing = INSTANCES[kind]
    if name in public_surface.attributes():
        return functools.partial(getattr, thing, member)
    method = getattr(type(thing), member)
    if BINARY.fullmatch(member):
        return functools.partial(operate, method, thing, OPERANDS.get(kind, 1), 3)
    if member in UNARY:
        return functools.partial(operate, method, thing)
    return functools.partial(method, thing)


CALLS |= {name: [plain_call(name)] for name in sorted(public_surface.surface() - set(CALLS) - IMPORTS_TORCH)}
CALLS["Array.layout"].append(lambda: odd.layout)
CALLS["Array.buffer"].append(lambda: md.zeros(3).buffer)

#: What else may be raised: the memory has no room in Metal, and a copy is forbidden; CPython makes a type without
#: room for its name, and sets no exception.
ALSO_RAISED = {"Buffer.from_host": md.CopyRequiredError, "import": SystemError}


def is_usable():
    """The objects that the calls used hold what they held, and work."""
    assert array.tolist() == [[0.0] * 6] * 4
    assert managed.tolist() == [[0.0] * 6] * 4
    assert nibbles.tolist() == [0] * 12
    assert odd.copy().shape == (3, 3)
    odd.fill(1, stream=stream)
    stream.synchronize()
    assert odd.item(0, 0) == 1
    assert bytes(memory) == bytes(64)
    assert os.path.exists(file)
    return True
