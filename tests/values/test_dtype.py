"""dtype.c and dtype_type.c: names, sizes, and element types of other packages."""

import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_is_its_name(dtype):
    assert getattr(md, dtype.name) is dtype
    assert md.dtype(dtype.name) is dtype
    assert md.dtype(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert dtype.lanes == 1
    assert dtype.itemsize == (dtype.bits + 7) // 8


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numpy_and_back_gives_the_same_dtype(dtype):
    if dtype.name == "complex32" and not hasattr(ml_dtypes, "complex32"):
        pytest.skip("this ml_dtypes has no complex32")
    assert md.dtype(dtype.numpy) is dtype
    assert md.dtype(dtype.numpy.type) is dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_items_of_every_type_stand_beside_each_other(dtype):
    array = md.zeros(3, dtype)
    array[1] = one = -1 if dtype.name.startswith("int") else 1
    assert array.tolist()[1] == one
    assert array.tolist()[0] == array.tolist()[2] == md.zeros(1, dtype).item()


def test_no_two_dtypes_are_equal():
    assert len({(dtype.code, dtype.bits) for dtype in DTYPES}) == len(DTYPES)
    assert len(set(DTYPES)) == len(DTYPES)


@pytest.mark.parametrize("lanes", [2, 3, 255, 256, 65535])
@pytest.mark.parametrize("name", ["int4", "float32", "float6_e2m3fn"])
def test_lanes_follow_the_name(name, lanes):
    dtype = md.dtype(f"{name}x{lanes}")
    assert (dtype.bits, dtype.lanes) == (getattr(md, name).bits, lanes)
    assert dtype.itemsize == (dtype.bits * lanes + 7) // 8
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    with pytest.raises(TypeError, match="lanes"):
        _ = dtype.numpy


@pytest.mark.parametrize(
    "name",
    ["", "f3", "float32x", "float32x0", "float32x1", "float32x02", "float32x65536", "float32 ", "float32\0", "\ud800"],
)
def test_a_text_that_is_no_name_is_refused(name):
    with pytest.raises(TypeError, match="is not an element type"):
        md.dtype(name)


class Sibling:
    """Calls itself a dtype of a package, and is none."""


@pytest.mark.parametrize(
    "value",
    [None, 1, [], object(), Sibling, np.zeros(2), np.float32(1), np.random, np.generic, np.dtype("f4,f4")],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_element_type_is_refused(value):
    with pytest.raises(TypeError):
        md.dtype(value)


@pytest.mark.parametrize("code", "bBhHiIlLqQefdFD?")
def test_numpy_types_of_every_letter_are_known(code):
    theirs = np.dtype(code)
    ours = md.dtype(theirs)
    assert (ours.numpy, ours.itemsize) == (theirs, theirs.itemsize)
    assert md.dtype(theirs.type) is ours


@pytest.mark.parametrize("theirs", [np.dtype("f4"), np.dtype("i8"), np.dtype(ml_dtypes.bfloat16)], ids=str)
def test_the_other_byte_order_is_refused_with_the_way_out(theirs):
    with pytest.raises(ValueError, match="newbyteorder"):
        md.dtype(theirs.newbyteorder("S"))


def test_python_types_have_an_element_type():
    assert [md.dtype(kind).name for kind in (bool, int, float, complex)] == ["bool", "int64", "float32", "complex64"]


@pytest.mark.needs_torch
def test_torch_types_are_known_by_name():
    torch = pytest.importorskip("torch")
    names = ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex32", "complex64", "float8_e4m3fn"]
    for name in names:
        assert md.dtype(getattr(torch, name)).name == name
    assert md.dtype(torch.float4_e2m1fn_x2).name == "float4_e2m1fnx2"


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


@pytest.mark.needs_mlx
def test_mlx_types_are_known_by_name():
    mx = pytest.importorskip("mlx.core")
    for name in ["bool_", "uint8", "int64", "float16", "bfloat16", "complex64"]:
        assert md.dtype(getattr(mx, name)).name == name.removesuffix("_")
    with pytest.raises(TypeError):
        md.dtype(mx.array([1.0]))


def test_nothing_is_imported_to_know_a_dtype():
    program = (
        "import sys, metal_dlpack as md\n"
        "for value in ('float32', float, object()):\n"
        "    try: md.dtype(value)\n"
        "    except TypeError: pass\n"
        "assert not {'numpy', 'ml_dtypes', 'torch', 'mlx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
