"""dtype.c and dtype_type.c: names, sizes, and element types of other packages."""

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]


def test_a_dtype_is_its_name():
    for dtype in DTYPES:
        assert getattr(md, dtype.name) is dtype
        assert md.dtype(dtype.name) is dtype
        assert md.dtype(dtype) is dtype
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert dtype.lanes == 1
        assert dtype.itemsize == (dtype.bits + 7) // 8


def test_numpy_and_back_gives_the_same_dtype():
    for dtype in DTYPES:
        if dtype.name != "complex32" or hasattr(ml_dtypes, "complex32"):
            assert md.dtype(dtype.numpy) is dtype
            assert md.dtype(dtype.numpy.type) is dtype


def test_items_of_every_type_stand_beside_each_other():
    for dtype in DTYPES:
        array = md.zeros(3, dtype)
        array[1] = one = -1 if dtype.name.startswith("int") else 1
        assert array.tolist()[1] == one
        assert array.tolist()[0] == array.tolist()[2] == md.zeros(1, dtype).item(), dtype


def test_no_two_dtypes_are_equal():
    assert len({(dtype.code, dtype.bits) for dtype in DTYPES}) == len(DTYPES)
    assert len(set(DTYPES)) == len(DTYPES)


def test_lanes_follow_the_name():
    for name, lanes in itertools.product(["int4", "float32", "float6_e2m3fn"], [2, 3, 255, 256, 65535]):
        dtype = md.dtype(f"{name}x{lanes}")
        assert (dtype.bits, dtype.lanes) == (getattr(md, name).bits, lanes)
        assert dtype.itemsize == (dtype.bits * lanes + 7) // 8
        assert pickle.loads(pickle.dumps(dtype)) == dtype
        with pytest.raises(TypeError, match="lanes"):
            _ = dtype.numpy


class Sibling:
    """Calls itself a dtype of a package, and is none."""


def test_what_is_no_element_type_is_refused(subtests):
    values = [None, 1, [], object(), Sibling, np.zeros(2), np.float32(1), np.random, np.generic, np.dtype("f4,f4")]
    for value in values:
        with subtests.test(value=value), pytest.raises(TypeError):
            md.dtype(value)


def test_numpy_types_of_every_letter_are_known():
    for code in "bBhHiIlLqQefdFD?":
        theirs = np.dtype(code)
        ours = md.dtype(theirs)
        assert (ours.numpy, ours.itemsize) == (theirs, theirs.itemsize)
        assert md.dtype(theirs.type) is ours


def test_the_other_byte_order_is_refused_with_the_way_out(subtests):
    for theirs in (np.dtype("f4"), np.dtype("i8"), np.dtype(ml_dtypes.bfloat16)):
        with subtests.test(theirs=theirs), pytest.raises(ValueError, match="newbyteorder"):
            md.dtype(theirs.newbyteorder("S"))


@pytest.mark.needs_torch
def test_a_tensor_is_not_asked_for_its_text(monkeypatch):
    torch = pytest.importorskip("torch")

    class Loud(torch.Tensor):
        def __str__(self):
            raise AssertionError("printing a tensor waits for its device")

        def __repr__(self, **options):
            return "a tensor"

    with pytest.raises(TypeError, match="a tensor is not an element type"):
        md.dtype(torch.zeros(2).as_subclass(Loud))
