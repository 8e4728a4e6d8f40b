"""The dtype objects beside dlpack.h: every code it has, and the bytes that items take."""

import itertools
import re

import pytest
from places import dlpack_include

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]
HEADER = (dlpack_include() / "dlpack" / "dlpack.h").read_text()
#: DLPack's codes by name, without its last one that is no number.
CODES = {name: int(code) for name, code in re.findall(r"\bkDL(\w+) = (\d+)U", HEADER) if name != "OpaqueHandle"}


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


def test_dtypes_are_equal_by_code_bits_and_lanes():
    for a in DTYPES:
        for b in DTYPES:
            same = (a.code, a.bits, a.lanes) == (b.code, b.bits, b.lanes)
            assert (a == b) == same
            assert (a != b) != same
            assert (hash(a) == hash(b)) == same
    assert md.dtype("int4x2") == md.dtype("int4x2") != md.int4


def test_a_dtype_cannot_be_changed():
    for name in ("name", "code", "bits", "lanes", "itemsize", "numpy", "other"):
        with pytest.raises(AttributeError):
            setattr(md.float32, name, 1)
    with pytest.raises(TypeError):
        type("Sub", (md.dtype,), {})


@pytest.mark.needs_ml_dtypes
def test_a_type_that_ml_dtypes_lacks_has_no_numpy_dtype(monkeypatch):
    import ml_dtypes

    monkeypatch.delattr(ml_dtypes, "float6_e2m3fn")
    with pytest.raises(TypeError, match="neither NumPy nor ml_dtypes has float6_e2m3fn"):
        md.dtype("float6_e2m3fn").numpy  # noqa: B018
