"""One bad argument at a time: the exception and its words; test_flat.py sees that nothing is left behind."""

import itertools
import math
import operator
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from dlpack_structs import Handing, Producer, borrow, table_of

import metal_dlpack as md

array = md.zeros((4, 6))
padded = md.zeros(12, "int4").copy(padded=True)
buffer = md.Buffer(64)
limit = md.default_device().max_buffer_length
layout = md.StridedLayout.dense((4, 6), 4)
stream = md.Stream()
event = stream.record()
NOWHERE, NEGATIVE = Producer(data=None), Producer(shape=(-1,))
ELSEWHERE, TOO_HIGH = Producer(device=(0, 0)), Producer(data=2**64 - 64, shape=(17,))

UNTYPED = SimpleNamespace(__array_interface__={"shape": (2,), "typestr": None, "data": (16, False)})
FAR = {"version": 3, "shape": (3,), "strides": (2**62,), "typestr": "<f4", "data": (4096, False)}
FAR = SimpleNamespace(__array_interface__=FAR)
TOO_LARGE = (MemoryError, ValueError, OverflowError)


class Odd:
    """Breaks whatever it is asked."""

    def __getattr__(self, name):
        raise RuntimeError("odd")

    def __index__(self):
        raise RuntimeError("odd")


REFUSED = {
    "item of many": (array.item, ValueError, "only an array of one item"),
    "item with a keyword": (lambda: array.item(index=1), TypeError, "takes no keywords"),
    "item with an index too few": (lambda: array.item(1), ValueError, "1 indices are given for 2"),
    "item out of range": (lambda: array.item(1, 9), IndexError, "9"),
    "items of no dimension": (lambda: list(md.zeros(())), TypeError, "0-dimensional Array"),
    "an item of no dimension": (lambda: operator.getitem(md.zeros(()), 0), IndexError, "1 indices are given for 0"),
    "empty_like of no array": (lambda: md.empty_like(3), TypeError, "must be an array, with shape and dtype, not int"),
    "zeros_like of a list": (lambda: md.zeros_like([1]), TypeError, "must be an array, with shape and dtype, not list"),
    "empty_like elsewhere": (lambda: md.empty_like(array, device="x"), ValueError, "no device 'x'"),
    "empty_like of no dtype": (lambda: md.empty_like(array, dtype="x"), TypeError, "not an element type"),
    "65 extents": (lambda: array.reshape((1,) * 65), ValueError, "65 entries"),
    "a huge extent": (lambda: array.reshape(2**70, 3), OverflowError, "does not fit in a signed 64-bit integer"),
    "reshape's keyword": (lambda: array.reshape(size=(2, 12)), TypeError, "shape="),
    "reshape twice": (lambda: array.reshape(2, shape=(2, 12)), TypeError, "shape="),
    "an axis of text": (lambda: array.squeeze("x"), TypeError, "axis must be"),
    "a broken axis": (lambda: array.permute(1.5, 0), TypeError, "axes must be an int"),
    "an item that goes": (lambda: operator.delitem(array, 0), TypeError, "cannot be deleted"),
    "astype of no dtype": (lambda: array.astype("float31"), TypeError, "is not an element type"),
    "astype of nothing": (array.astype, TypeError, "needs the argument 'dtype'"),
    "astype's keyword": (lambda: array.astype("int8", False), TypeError, "give by name, as copy="),
    "a copy to a list": (lambda: array.copy_to([0, 0]), md.CopyRequiredError, "list has no memory"),
    "a copy from nothing": (lambda: array.copy_from(object()), TypeError, "cannot be converted to numbers"),
    "fill with text": (lambda: buffer.fill("a"), TypeError, "value must be an int"),
    "too many bytes": (lambda: buffer.copy_from(bytes(100)), ValueError, "100 bytes do not fit"),
    "no bytes": (lambda: buffer.copy_from(3), TypeError, "bytes-like"),
    "bytes that are read-only": (lambda: buffer.copy_to(b"123"), BufferError, "not writable"),
    "memory of none": (lambda: md.Buffer.from_host(3), TypeError, "no memory to share"),
    "data of none": (lambda: md.Buffer.from_host(NOWHERE), BufferError, "data is NULL"),
    "items before a buffer": (lambda: buffer.array(3, "float32", -1), ValueError, "-1 to 11"),
    "no layout": (buffer.array, TypeError, "layout_or_shape"),
    "a buffer past the limit": (lambda: md.Buffer(limit + 4), MemoryError, str(limit + 4)),
    "a handle of Python's": (lambda: md.Buffer.from_handle(id(buffer)), ValueError, "MTLBuffer"),
    "a handle of text": (lambda: md.Buffer.from_handle("1"), TypeError, "must be an int"),
    "a handle's end": (lambda: md.Buffer.from_handle(buffer.handle, 65), ValueError, "65 bytes.*64 bytes"),
    "a surface of text": (
        lambda: md.Buffer.from_iosurface("surface"),
        TypeError,
        "must be an int .the address of an IOSurfaceRef. or an object of PyObjC, not str",
    ),
    "a surface of more bits": (lambda: md.Buffer.from_iosurface(2**64), OverflowError, "too large"),
    "no surface": (md.Buffer.from_iosurface, TypeError, "needs the argument 'handle'"),
    "a surface elsewhere": (lambda: md.Buffer.from_iosurface(8, device="metal:99"), ValueError, "no device 'metal:99'"),
    "a handle of all bits": (lambda: md.Buffer.from_handle(2**64 - 1), ValueError, "not the address"),
    "a handle of more bits": (lambda: md.Buffer.from_handle(2**70), OverflowError, "too large"),
    "an odd handle": (lambda: md.Buffer.from_handle(buffer.handle + 1), ValueError, "not the address"),
    "a borrowed tensor of padded items": (
        lambda: borrow(table_of(md.Array), padded),
        BufferError,
        "sub-byte items are padded",
    ),
    "stats of no device": (lambda: md.memory_stats(device=3), TypeError, "device must be"),
    "a limit of no device": (lambda: md.set_memory_limit(3, device="x"), ValueError, "no device 'x'"),
    "a limit of three": (lambda: md.set_memory_limit(1, 2, 3), TypeError, "at most 1 positional"),
    "a current stream of no device": (lambda: md.current_stream(3), TypeError, "device must be"),
    "a stream that was not entered": (lambda: stream.__exit__(None, None, None), RuntimeError, "entered last"),
    **{
        f"a queue that is {what}": (
            partial(md.Stream.from_handle, handle),
            ValueError,
            "not the .* id<MTLCommandQueue>",
        )
        for what, handle in {"a buffer": buffer.handle, "memory": buffer.address, "1": 1, "16": 16}.items()
    },
    **{
        f"a queue that is {handle!r}": (partial(md.Stream.from_handle, handle), TypeError, "must be an int")
        for handle in ("x", None, 1.5, True)
    },
    "a label of a number": (lambda: md.Stream(label=3), TypeError, "label"),
    "a stream of no device": (lambda: md.Stream("metal:99"), ValueError, "no device"),
    "an event that is a queue": (lambda: md.Event.from_handle(stream.handle, 1), ValueError, "MTLSharedEvent"),
    **{
        f"an event at {value}": (
            partial(md.Event.from_handle, event.handle, value),
            ValueError,
            "negative or does not fit",
        )
        for value in (-1, 2**64, 10**40)
    },
    "an event at a float": (lambda: md.Event.from_handle(event.handle, 1.0), TypeError, "integer"),
    "a record into a stream": (lambda: stream.record(stream), TypeError, "must be an Event"),
    "two events": (lambda: stream.wait(event, 3), TypeError, "exactly one argument"),
    "an event of something": (lambda: md.Event(3), TypeError, "at most 0 positional"),
    "device 0": (lambda: md.from_dlpack(ELSEWHERE), BufferError, r"device \(0, 0\)"),
    "dense like nothing": (lambda: md.StridedLayout.dense_like(3), TypeError, "must be a StridedLayout"),
    "dense in an order of one axis": (lambda: layout.to_dense((0, 0)), ValueError, "axis 0 is named twice"),
    "dense in no order": (lambda: layout.to_dense(1, 2, 3), TypeError, "at most 1 positional"),
    "an itemsize of text": (lambda: layout.max_compatible_itemsize("x"), TypeError, "must be an int"),
    "a permutation of others": (lambda: layout.permuted((0, 9)), ValueError, "axis 9"),
    "axes of text": (lambda: layout.unsqueezed("x"), TypeError, "axis must be"),
    "a span of text": (lambda: layout.flattened("x"), TypeError, "start_axis must be"),
    "no shape": (lambda: md.StridedLayout.__new__(md.StridedLayout), TypeError, "needs the argument 'shape'"),
    "a packed item of text": (lambda: padded.fill("x"), TypeError, "does not fit the element type int4"),
    "a complex item of text": (lambda: md.zeros(3, "complex64").fill("x"), TypeError, "does not fit"),
    "a small float of text": (lambda: md.zeros(3, "float8_e4m3fn").fill("x"), TypeError, "does not fit"),
    "a lane of text": (lambda: md.zeros(3, "float32x4").fill((1, "x", 2, 3)), TypeError, "does not fit"),
    "a type that MLX has not": (lambda: md.dtype("mlx.core.nope"), TypeError, "not an element type"),
    "a target that takes none": (lambda: array.to(stream), TypeError, "neither a type with"),
    "an interface of nothing": (lambda: md.shares_memory(UNTYPED, array), TypeError, "typestr"),
    "no capsule": (lambda: md.shares_memory(Handing(3), array), TypeError, "int instead of a capsule"),
    "memory past all addresses": (
        lambda: md.shares_memory(TOO_HIGH, array),
        BufferError,
        "address space",
    ),
    "memory that reaches too far": (
        lambda: md.shares_memory(FAR, array),
        ValueError,
        r"shares_memory: the memory has more than 63 axes, or reaches 2\*\*63 bytes",
    ),
    "nothing to wire": (md.keep_resident, ValueError, "give it what is to stay wired"),
    "an array of NumPy's to wire": (
        lambda: md.keep_resident(np.zeros(3)),
        TypeError,
        r"ndarray is no Array, Buffer or file.*metal_dlpack.asarray\(x\)",
    ),
    "a name to wire": (lambda: md.keep_resident("model.npy"), TypeError, "str is no Array"),
    "a negative extent": (lambda: md.zeros((2, -1)), ValueError, "extent -1"),
    **{
        f"zeros of {shape}": (
            partial(md.zeros, shape, "float64"),
            ValueError,
            rf"^zeros: 2\*\*63 bytes or more are more than one buffer .*\(max_buffer_length is {limit} bytes\)",
        )
        for shape in ((2**40, 2**40), 2**60)
    },
    "a buffer that no machine has": (lambda: md.Buffer(2**62), TOO_LARGE, r"\d"),
    "items that no machine has": (lambda: md.zeros(2**60), TOO_LARGE, r"\d"),
    "rows that no machine has": (lambda: md.empty((2**31, 2**31)), TOO_LARGE, r"\d"),
    "none of too many items": (lambda: md.zeros((2**62, 0, 4, 2**62)), TOO_LARGE, r"\d"),
    "no dtype": (lambda: md.zeros(3, "floaty"), TypeError, "not an element type"),
    "a broken dtype": (lambda: md.dtype(Odd()), TypeError, "not an element type"),
    "no storage": (lambda: md.zeros(3, storage="shard"), ValueError, "must be 'shared', 'managed' or 'private'"),
    "no keyword": (lambda: md.zeros(3, flavour=1), TypeError, "no keyword argument 'flavour'"),
    "ragged lists": (lambda: md.asarray([[1, 2], [3]]), ValueError, "2"),
    "a list of text": (lambda: md.asarray([1, "a"]), TypeError, "str"),
    "a list that is not copied": (lambda: md.asarray([1, 2], copy=False), md.CopyRequiredError, "copy"),
    "a list converted without a copy": (
        lambda: md.asarray([1.0], dtype="float64", copy=False),
        md.CopyRequiredError,
        "needed",
    ),
    "a list of lanes": (lambda: md.asarray([1.0, 2.0], dtype="float32x2"), TypeError, "no type of 2 lanes"),
    "a wait for a text": (lambda: md.register_sync("torch.Tensor", print), TypeError, "not a type"),
    "a wait by a number": (lambda: md.register_sync(dict, 5), TypeError, "is not callable"),
    "a path for a source": (
        lambda: md.kernel("a/b.metal"),
        ValueError,
        r"path of a file.*Path\('a/b.metal'\).read_text\(\)",
    ),
    "no tensor": (lambda: md.from_dlpack(3), AttributeError, "int has no __dlpack__"),
    "a faulty tensor": (lambda: md.from_dlpack(NEGATIVE), BufferError, "extent -1"),
    "a broken producer": (lambda: md.from_dlpack(Odd()), AttributeError, "Odd has no __dlpack__"),
    "two ellipses": (lambda: array[..., ...], IndexError, "occurs 2 times"),
    "a broken index": (lambda: array[Odd()], RuntimeError, "odd"),
    "a write to read-only items": (lambda: operator.setitem(array.as_readonly(), 0, 1), ValueError, "read-only"),
    "items that cannot be a view": (lambda: array.T.reshape(24), md.CopyRequiredError, "without a copy"),
    "a broadcast": (lambda: array.copy_from(md.zeros(5)), ValueError, "5"),
    "a buffer's end": (lambda: buffer.array(99, "float32"), ValueError, "past the Buffer's 64 bytes"),
    "no stream": (lambda: array.fill(1, stream=3), BufferError, "is not the handle"),
    "no event": (lambda: stream.wait(3), TypeError, "only an Event"),
    **{
        f"a timeout of {timeout} for {moment!r}": (partial(moment.wait, timeout), ValueError, "must be 0 or more")
        for moment, timeout in itertools.product((event, md.Event()), (-1, -0.1, math.nan, -math.inf))
    },
    "a timeout of text": (lambda: event.wait("1"), TypeError, "timeout"),
    "a timeout past all floats": (lambda: event.wait(10**400), OverflowError, "pass None for no limit"),
    "a fill with text": (lambda: array.fill("a"), TypeError, "does not fit"),
    "a negative limit": (lambda: md.set_memory_limit(-1), ValueError, r"limit \(-1 bytes\) is negative"),
    "a limit of text": (lambda: md.set_memory_limit("1 GiB"), TypeError, "int"),
    "no limit": (lambda: md.set_memory_limit(), TypeError, "limit"),
    "the size of what begins before its start": (
        md.StridedLayout((3,), (-2,), 4).required_size_in_bytes,
        ValueError,
        r"min_offset -4\)",
    ),
    "private memory": (lambda: memoryview(md.zeros(3, storage="private")), BufferError, "private"),
    "an attribute": (lambda: setattr(array, "shape", ()), AttributeError, "shape"),
}


def test_a_bad_argument_is_refused_in_words(live_buffers, subtests):
    for name in REFUSED:
        with subtests.test(str(name)):
            call, kind, words = REFUSED[name]
            with pytest.raises(kind, match=words):
                call()


def test_reshape_takes_its_shape_by_name():
    assert array.reshape(shape=(2, 12)).shape == (2, 12)
    assert array.reshape(shape=24).shape == (24,)


def test_a_layout_is_made_by_new_as_by_its_type():
    assert md.StridedLayout.__new__(md.StridedLayout, (2, 3), (3, 1), 4) == md.StridedLayout((2, 3), (3, 1), 4)


def test_a_producer_that_takes_no_keywords_shares_as_well():
    class Old:
        def __dlpack__(self, stream=None):
            return array.host.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    assert md.shares_memory(Old(), array)


def test_a_weak_reference_ends_with_its_object(subtests):
    for make in [md.Stream, md.Event, lambda: md.Buffer(4), lambda: md.zeros(3)]:
        with subtests.test(str(make)):
            thing = make()
            reference = weakref.ref(thing)
            del thing
            assert reference() is None


@pytest.mark.needs_softmetal
def test_zeros_that_the_gpu_does_not_write_are_not_handed_out(settings, live_buffers):
    settings(fail="commit@1+=8")
    with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
        md.zeros(3, storage="private")


def test_numbers_of_torch_without_a_dimension_are_read(torch):
    for dtype in (torch.float32, torch.complex64, torch.int64):
        assert md.from_dlpack(torch.tensor(3, dtype=dtype)).tolist() == 3


def test_a_large_plane_is_copied_in_threadgroups_that_fit():
    numbers = np.arange(300 * 700, dtype="float32").reshape(300, 700)
    turned = md.asarray(numbers, copy=True).T.copy(storage="private").copy(storage="private")
    assert np.array_equal(np.array(turned.copy(storage="shared")), numbers.T)
