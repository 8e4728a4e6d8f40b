"""Memory behind the buffer protocol, as the standard library exports it, given to every public function that takes it."""

import array
import ctypes
import itertools
import mmap
import re
from pathlib import Path

import pytest

import metal_dlpack as md

SRC = Path(__file__).parents[2] / "src"
INTS = [1, 2, 3, 4]


def of_axes(count):
    """An array of ctypes: of 4 items along its last axis, of 1 along each other."""
    kind = ctypes.c_int32 * 4
    for _ in range(count - 1):
        kind *= 1
    return kind.from_buffer_copy(array.array("i", INTS))


def mapped():
    memory = mmap.mmap(-1, 16)
    memory[:] = bytes(array.array("i", INTS))
    return memory


#: Makers of memory with the items INTS, of int32 or of bytes.
EXPORTERS = {
    "ctypes": lambda: (ctypes.c_int32 * 4)(*INTS),
    "ctypes, 2 axes": lambda: ((ctypes.c_int32 * 2) * 2)((1, 2), (3, 4)),
    "ctypes, 64 axes": lambda: of_axes(64),
    "ctypes, 65 axes": lambda: of_axes(65),
    "ctypes, 100 axes": lambda: of_axes(100),
    "ctypes, other byte order": lambda: (ctypes.c_int32.__ctype_be__ * 4)(*INTS),
    "ctypes, bytes": lambda: (ctypes.c_uint8 * 4)(*INTS),
    "a cast of ctypes": lambda: memoryview((ctypes.c_uint8 * 4)(*INTS)).cast("B"),
    "array": lambda: array.array("i", INTS),
    "bytes": lambda: bytes(INTS),
    "bytearray": lambda: bytearray(INTS),
    "a cast": lambda: memoryview(bytearray(array.array("i", INTS))).cast("i"),
    "a cast, 2 axes": lambda: memoryview(bytearray(array.array("i", INTS))).cast("i", (2, 2)),
    "steps": lambda: memoryview(bytearray([1, 0, 2, 0, 3, 0, 4]))[::2],
    "backwards": lambda: memoryview(bytearray(INTS[::-1]))[::-1],
    "mmap": lambda: memoryview(mapped()).cast("i"),
}
try:
    import _testbuffer as testbuffer
except ImportError:  # CPython was installed without its tests
    pass
else:
    writable = testbuffer.ND_WRITABLE
    EXPORTERS |= {
        "_testbuffer": lambda: testbuffer.ndarray(INTS, shape=[4], format="i", flags=writable),
        "_testbuffer, steps": lambda: testbuffer.ndarray(
            [1, 0, 2, 0, 3, 0, 4], shape=[4], strides=[8], format="i", flags=writable
        ),
        "_testbuffer, pointers": lambda: testbuffer.ndarray(
            INTS, shape=[4], format="i", flags=writable | testbuffer.ND_PIL
        ),
        "_testbuffer, 65 axes": lambda: testbuffer.ndarray(INTS[:1], shape=[1] * 64, format="i", flags=writable),
    }


def flat(items):
    return [number for item in items for number in flat(item)] if isinstance(items, list) else [items]


def shaped(x):
    """An Array into which x can be copied, of ones."""
    memory = memoryview(x)
    return md.full(memory.shape, 9, "uint8" if memory.itemsize == 1 else "int32")


def after(array, call):
    call(array)
    return flat(array.tolist())


def copied_to(x):
    source = md.asarray(x, copy=True)
    expected = flat(source.tolist())
    source.fill(7)
    source.copy_to(x)
    assert flat(md.asarray(x, copy=True).tolist()) == [7] * len(expected)
    return expected


#: How each public function reads x: its items, or None where it gives no items back.
CALLS = {
    "asarray": lambda x: flat(md.asarray(x).tolist()),
    "asarray(copy=True)": lambda x: flat(md.asarray(x, copy=True).tolist()),
    "share": lambda x: flat(md.asarray(x, copy=False).tolist()),
    "Array.copy_from": lambda x: after(shaped(x), lambda a: a.copy_from(x)),
    "Array.copy_to": copied_to,
    "Array.__setitem__": lambda x: after(shaped(x), lambda a: a.__setitem__(..., x)),
    "Buffer.copy_from": lambda x: md.Buffer(64).copy_from(x),
    "Buffer.copy_to": lambda x: md.Buffer(64).copy_to(x),
    "Buffer.from_host": lambda x: md.Buffer.from_host(x) and None,
    "shares_memory": lambda x: None if md.shares_memory(x, x) else "nothing shared",
    "shares_memory, other first": lambda x: md.shares_memory(md.zeros(4), x) or None,
    "from_dlpack": lambda x: md.from_dlpack(x) and None,
    "explain": lambda x: str(md.explain(x)) and None,
}
#: What shares memory, or writes it, does not go through tables of pointers.
NOT_POINTED = {"share", "Array.copy_to", "Array.__setitem__", "Buffer.copy_from", "Buffer.from_host", "shares_memory"}
#: What may be raised, in words that name the cause.
CAUSES = "axes|dimension|byte order|no __dlpack__|suboffsets|contiguous|read-?only|not writable"


@pytest.mark.needs_numpy
def test_every_function_reads_what_the_standard_library_exports_or_says_why_not(subtests, live_buffers):
    for name, (call, read) in itertools.product(EXPORTERS, CALLS.items()):
        with subtests.test(f"{name}: {call}"):
            x = EXPORTERS[name]()
            try:
                items = read(x)
            except (ValueError, TypeError, BufferError, AttributeError) as error:
                assert re.search(CAUSES, str(error)), error
                assert not (call.startswith(("asarray", "Array")) and name in ("ctypes", "array", "a cast", "mmap"))
            else:
                assert items in (None, INTS, INTS[:1]), items
                assert name != "_testbuffer, pointers" or call not in NOT_POINTED


def test_a_view_of_more_axes_than_a_layout_has_is_refused_by_its_count():
    with pytest.raises(ValueError, match=r"shares_memory: the memory of .* has 65 axes; at most 64 are possible"):
        md.shares_memory(of_axes(65), md.zeros(4))


def test_the_exporter_gets_its_view_back_as_it_gave_it():
    """An exporter that leaves the strides out finds none at the end, and its memory can be let go of."""
    memory = bytearray(16)
    x = (ctypes.c_int32 * 4).from_buffer(memory)
    md.zeros(4, "int32").copy_from(x)
    md.shares_memory(x, x)
    del x
    memory.clear()


def test_foreign_views_are_opened_in_one_place():
    opening = re.compile(r"\b(PyObject_GetBuffer|PyMemoryView_FromObject|PyBuffer_Release)\(")
    allowed = {"array/view_items.c", "array/array_numpy.c", "exchange/array_host.c"}
    allowed |= {"module/array_type.c", "module/memory.c"}  # Array.data, and maps of files: our own memory
    found = {str(path.relative_to(SRC)) for path in SRC.rglob("*.c") if opening.search(path.read_text())}
    assert found <= allowed, found - allowed
