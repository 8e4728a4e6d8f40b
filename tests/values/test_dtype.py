"""dtype.c and dtype_type.c: names, sizes, and element types of other packages."""

import itertools
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
from places import dlpack_include

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]
HEADER = (dlpack_include() / "dlpack" / "dlpack.h").read_text()
#: DLPack's codes by name, without its last one that is no number.
CODES = {name: int(code) for name, code in re.findall(r"\bkDL(\w+) = (\d+)U", HEADER) if name != "OpaqueHandle"}


def test_a_dtype_is_its_name():
    for dtype in DTYPES:
        assert getattr(md, dtype.name) is dtype
        assert md.dtype(dtype.name) is dtype
        assert md.dtype(dtype) is dtype
        assert pickle.loads(pickle.dumps(dtype)) is dtype
        assert dtype.lanes == 1
        assert dtype.itemsize == (dtype.bits + 7) // 8
        assert dtype.alignment == (dtype.itemsize // 2 if "complex" in dtype.name else dtype.itemsize)


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


def test_a_tensor_is_not_asked_for_its_text(torch, monkeypatch):
    class Loud(torch.Tensor):
        def __str__(self):
            raise AssertionError("printing a tensor waits for its device")

        def __repr__(self, **options):
            return "a tensor"

    with pytest.raises(TypeError, match="a tensor is not an element type"):
        md.dtype(torch.zeros(2).as_subclass(Loud))


# ---- beside dlpack.h ----


def test_every_code_of_the_header_has_a_name():
    assert len(CODES) >= 17
    assert {dtype.code for dtype in DTYPES} == set(CODES.values())


def test_the_name_begins_as_the_header_s():
    for dtype in DTYPES:
        name = next(name for name, code in CODES.items() if code == dtype.code)
        assert dtype.name.lower().startswith(name.lower())
        if name in {"Int", "UInt", "Float", "Complex"}:
            assert dtype.name == f"{name.lower()}{dtype.bits}"
        if name.startswith("Float") and name[5:6].isdigit():
            assert (dtype.name, dtype.bits) == (dtype.name, int(name[5]))


def test_items_are_packed():
    """SPEC dlpack.h DLDataType: (count * bits * lanes + 7) / 8 bytes."""
    for dtype, lanes, count in itertools.product(DTYPES, [1, 2, 3, 4], [0, 1, 2, 3, 5, 7, 8, 100]):
        named = md.dtype(dtype.name if lanes == 1 else f"{dtype.name}x{lanes}")
        array = md.empty((count,), named)
        assert (array.nbytes, array.dtype) == ((count * dtype.bits * lanes + 7) // 8, named)
        assert array.itemsize == named.itemsize == (dtype.bits * lanes + 7) // 8


@pytest.mark.needs_ml_dtypes
def test_a_type_that_ml_dtypes_lacks_has_no_numpy_dtype(monkeypatch):
    monkeypatch.delattr(ml_dtypes, "float6_e2m3fn")
    with pytest.raises(TypeError, match="neither NumPy nor ml_dtypes has float6_e2m3fn"):
        md.dtype("float6_e2m3fn").numpy  # noqa: B018
