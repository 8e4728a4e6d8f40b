"""One call after another with the n-th allocation failing, for each n until there are no more.

    python child.py python          Python's allocators
    python child.py c               malloc as the extension calls it; needs short_malloc.c preloaded

Prints a line for each call that neither worked nor said that memory is short, or left something behind; else "quiet".
"""

import _testbuffer
import _testcapi
import ctypes
import functools
import gc
import itertools
import operator
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import metal_dlpack as md
from metal_dlpack import _core, softmetal

#: A call that needs more allocations than this is not one of ours.
MOST = 400
#: A call that works this often in a row, whichever allocation fails, has no more of them.
ENOUGH = 20
#: What calls are made for that must be refused.
REFUSALS = (IndexError, BufferError)
TYPES = (md.Array, md.Buffer, md.Device, md.Stream, md.Event, md.StridedLayout, md.dtype, type(md.zeros(1).host))

array = md.zeros((4, 6), "float32")
readonly = array.as_readonly()
odd = md.zeros((4, 6), "int16", storage="private")[1:, ::2]
layout = md.StridedLayout.dense((4, 6), 4)
buffer = md.Buffer(64)
memory = bytearray(64)
shared = SharedMemory(create=True, size=64)
shared.unlink()  # its memory stays until the end
numbers = list(range(12))
room = md.zeros((4, 6))
pointers = _testbuffer.ndarray(list(range(12)), shape=[3, 4], format="B", flags=_testbuffer.ND_PIL)
odd_copy = odd.copy()
nibbles = md.zeros(12, "int4")
vectors = md.zeros(3, "int64x40")
stream = md.Stream()
event = stream.record()


class Producer:
    """Says no more than it must."""

    def __dlpack__(self):
        return array.__dlpack__()

    def __dlpack_device__(self):
        return (8, 0)


producer = Producer()


def use_table():
    with memoryview(array):
        pass


def assign():
    array[1:, ::2] = 3


def assign_array():
    array[1:3] = array[0:2]


CALLS = {
    "zeros": lambda: md.zeros((3, 4)),
    "full": lambda: md.full((3, 4), 2, "int16"),
    "empty_private": lambda: md.empty(100, storage="private"),
    "empty_like": lambda: md.empty_like(array),
    "asarray_list": lambda: md.asarray(numbers),
    "asarray_scalar": lambda: md.asarray(1.5),
    "asarray_list_of_dtype": lambda: md.asarray([[1, 2.5], [2**60 + 1, True]], dtype="float32"),
    "asarray_list_of_bits": lambda: md.asarray([1.5, 2], dtype="int4"),
    "asarray_pointers": lambda: md.asarray(pointers),
    "asarray_bytes": lambda: md.asarray(memory),
    "asarray_copy": lambda: md.asarray(memory, copy=True),
    "asarray_shared": lambda: md.asarray(shared),
    "buffer": lambda: md.Buffer(64, label="a name"),
    "buffer_of_array": lambda: md.zeros(3).buffer,
    "view_before_buffer": lambda: md.zeros((2, 3))[1],
    "buffer_from_handle": lambda: md.Buffer.from_handle(buffer.handle, owner=buffer),
    "buffer_from_host": lambda: md.Buffer.from_host(memory, writable=False),
    "buffer_from_host_shared": lambda: md.Buffer.from_host(shared),
    "to_device": lambda: (array.to_device("metal"), array.to_device((1, 0))),
    "to_device_private": lambda: odd.to_device("cpu"),
    "buffer_array": lambda: buffer.array((2, 3), "int16", 4),
    "buffer_array_of_layout": lambda: buffer.array(md.StridedLayout((2, 3), (3, 1), 4), "float32"),
    "buffer_copy": lambda: (buffer.copy_from(memory), buffer.copy_to(memory)),
    "from_dlpack_array": lambda: md.from_dlpack(array),
    "from_dlpack_copy": lambda: md.from_dlpack(array, copy=True),
    "from_dlpack_producer": lambda: md.from_dlpack(producer),
    "from_dlpack_capsule": lambda: md.from_dlpack(array.__dlpack__(max_version=(1, 3))),
    "from_dlpack_host": lambda: md.from_dlpack(array.host),
    "from_dlpack_cpu": lambda: md.from_dlpack(array.host.__dlpack__()),
    "dlpack": lambda: array.__dlpack__(),
    "dlpack_versioned": lambda: array.__dlpack__(max_version=(1, 3), copy=True),
    "dlpack_cpu": lambda: array.__dlpack__(max_version=(1, 3), dl_device=(1, 0)),
    "dlpack_refused": readonly.__dlpack__,
    "dlpack_device": lambda: array.__dlpack_device__(),
    "index": lambda: array[1:, None, ..., 2],
    "index_refused": functools.partial(operator.getitem, array, 9),
    "assign": assign,
    "assign_array": assign_array,
    "reshape": functools.partial(array.reshape, 2, 12),
    "permute": functools.partial(array.permute, 1, 0),
    "expand_dims": functools.partial(array.expand_dims, 0),
    "squeeze": array.squeeze,
    "flatten": array.flatten,
    "transpose": functools.partial(getattr, array, "T"),
    "view": functools.partial(array.view, "int8"),
    "broadcast_to": functools.partial(array.broadcast_to, (2, 4, 6)),
    "reshape_refused": functools.partial(array.T.reshape, 24),
    "copy": lambda: odd.copy(order="F"),
    "host_reduce": lambda: array.host.__reduce__(),
    "reduce": lambda: (array.__reduce_ex__(5), array.T.__reduce_ex__(2)),
    "tolist": lambda: odd.tolist(),
    "item": lambda: array[0, 0].item(),
    "fill": lambda: odd.fill(7),
    "host": lambda: array.host.array,
    "memoryview": use_table,
    "attributes": lambda: (array.shape, array.strides, array.layout, array.dtype, array.device, array.nbytes),
    "explain": lambda: md.shares_memory(array, array[1:]),
    "layout": lambda: md.StridedLayout((4, 6), None, 4),
    "layout_dense": lambda: md.StridedLayout.dense((4, 6), 4, (1, 0)),
    "layout_views": lambda: (
        layout.permuted((1, 0)).to_dense()[1:, ::2].unsqueezed(0).squeezed().broadcast_to((5, 5, 2))
    ),
    "layout_repacked": lambda: layout.repacked(2).flattened().reshaped((2, 4, 6)),
    "layout_facts": lambda: (layout.shape, layout.strides, layout.stride_order, layout.offset_bounds, repr(layout)),
    "dtype": lambda: (md.dtype("float32"), md.dtype(int), repr(md.bfloat16), hash(md.int4)),
    "dtype_lanes": lambda: md.dtype("float32x4"),
    "devices": lambda: (md.devices(), md.default_device().name, repr(md.default_device())),
    "copy_from": lambda: odd.copy_from(odd_copy),
    "copy_from_numbers": lambda: array.copy_from(2.5),
    "copy_to": lambda: array.copy_to(room),
    "padded": lambda: md.zeros((2, 3), "int4").copy(padded=True),
    "bits_overlap": functools.partial(operator.setitem, nibbles, slice(1, 9), nibbles[2:10]),
    "bits_refused": functools.partial(operator.getitem, nibbles, 1),
    "lanes": lambda: (vectors.fill((1, 2) * 20), vectors.tolist(), vectors.item(1)),
    "dtype_text": lambda: (md.dtype("mlx.core.float32"), md.dtype("<f4")),
    "view_dtype": functools.partial(nibbles.view, "uint2"),
    "stream": lambda: md.Stream(label="a name"),
    "event": lambda: (md.Event(), md.Event.from_handle(event.handle, 0)),
    "record": lambda: stream.record(),
    "stream_wait": lambda: stream.wait(event),
    "queued_copy": lambda: (odd.copy_from(odd_copy, stream=stream), stream.synchronize()),
    "queued_fill": lambda: (odd.fill(2), stream.synchronize()),
    "dlpack_stream": lambda: array.__dlpack__(stream=stream.handle),
    "from_dlpack_stream": lambda: md.from_dlpack(array, stream=stream),
    "metal_stream": lambda: (array.__metal_stream__(), stream.__metal_stream__()),
    "memory_stats": lambda: md.memory_stats(),
    "empty_cache": lambda: (md.zeros(3), md.empty_cache()),
    "live": lambda: softmetal.live_objects("MTLBuffer"),
}


def held():
    """Live MTLBuffers, and references to each type: one for each living instance."""
    gc.collect()
    md.default_device().synchronize()  # work that is over lets go on a thread of Metal's
    md.empty_cache()
    return [softmetal.live_objects("MTLBuffer"), *map(sys.getrefcount, TYPES)]


def run(call):
    """True: it did what it does with memory enough, which for some is to refuse."""
    try:
        call()
    except REFUSALS:
        return True
    except (MemoryError, md.MetalError):  # Metal has no memory either
        return False
    return True


def code_of_ours():
    """Addresses of machine code, [begin, end, begin, end ...]: the extension's without the software Metal's.

    That one stops the process where it has no memory for its own records.
    """
    maps = Path("/proc/self/maps").read_text().splitlines()
    base = int(next(line for line in maps if line.endswith(_core.__file__)).split("-")[0], 16)
    listing = subprocess.run(
        ["nm", "-nl", "--defined-only", _core.__file__], capture_output=True, text=True, check=True
    )
    symbols = [line.split(maxsplit=3) for line in listing.stdout.splitlines()]
    code = [(int(at, 16), "/softmetal/" in "".join(place)) for at, kind, _name, *place in symbols if kind in "tT"]
    spans = [[base + begin, base + end] for (begin, is_softs), (end, _) in itertools.pairwise(code) if not is_softs]
    assert 100 < len(spans) < len(code) - 100, "the extension was built without debug information"
    return list(itertools.chain.from_iterable(spans))


def fail_python(n):
    """The n-th allocation of Python's fails; 0: none does."""
    if n:
        _testcapi.set_nomemory(n, n + 1)
    else:
        _testcapi.remove_mem_hooks()


def fail_c(n):
    """The n-th malloc by the extension fails; 0: none does."""
    ctypes.pythonapi.short_malloc_arm(ctypes.c_long(n))


def fail_each_allocation(name, call):
    """A line for the first allocation whose failure is not a plain exception; None if there is none."""
    for _ in range(3):
        run(call)  # what is cached is cached
    before = held()
    nworked = 0
    for n in range(1, MOST):
        fail(n)
        try:
            nworked = nworked + 1 if run(call) else 0
        except BaseException as error:
            fail(0)
            return f"{name}: with allocation {n} failing: {error!r}"
        fail(0)
        after = held()
        # Fewer buffers than before are those of earlier work, which its completion has let go of by now.
        if after[0] > before[0] or after[1:] != before[1:]:
            return f"{name}: with allocation {n} failing, the references {before} became {after}"
        if nworked == ENOUGH:
            return None
    return f"{name}: makes {MOST} allocations"


gc.collect()
gc.freeze()  # each of the next thousand collections looks at what a call leaves, and at nothing else
if sys.argv[1] == "c":
    bounds = (ctypes.c_size_t * len(code_of_ours()))(*code_of_ours())
    ctypes.pythonapi.short_malloc_choose(bounds, ctypes.c_size_t(len(bounds)))
fail = {"python": fail_python, "c": fail_c}[sys.argv[1]]
complaints = [fail_each_allocation(name, call) for name, call in CALLS.items() if name in (sys.argv[2:] or CALLS)]
print("\n".join(filter(None, complaints)) or "quiet")
