"""dtype.c and dtype_type.c: names, sizes, and the formats of the buffer protocol."""

import contextlib
import io
import itertools
import pickle
import re
import struct
import sys

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


def test_lanes_follow_the_name_and_items_are_packed():
    """SPEC dlpack.h DLDataType: (count * bits * lanes + 7) / 8 bytes."""
    for dtype, lanes in itertools.product(DTYPES, [1, 2, 3, 4, 255, 256, 65535]):
        named = dtype if lanes == 1 else md.dtype(f"{dtype.name}x{lanes}")
        assert (named.bits, named.lanes, named.itemsize) == (dtype.bits, lanes, (dtype.bits * lanes + 7) // 8)
        assert pickle.loads(pickle.dumps(named)) == named
        for count in [0, 1, 2, 3, 5, 7, 8]:
            array = md.empty((count,), named)
            assert (array.nbytes, array.itemsize) == ((count * dtype.bits * lanes + 7) // 8, named.itemsize)
            assert array.dtype == named
        if lanes > 1:
            with pytest.raises(TypeError, match="lanes"):
                _ = named.numpy


def test_what_is_no_element_type_is_refused(subtests):
    values = [None, 1, [], object(), dict, np.zeros(2), np.float32(1), np.random, np.generic, np.dtype("f4,f4")]
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


def test_every_code_of_the_header_has_a_name_that_begins_as_there():
    assert len(CODES) >= 17
    assert {dtype.code for dtype in DTYPES} == set(CODES.values())
    for dtype in DTYPES:
        name = next(name for name, code in CODES.items() if code == dtype.code)
        assert dtype.name.lower().startswith(name.lower())
        if name in {"Int", "UInt", "Float", "Complex"}:
            assert dtype.name == f"{name.lower()}{dtype.bits}"
        if name.startswith("Float") and name[5:6].isdigit():
            assert dtype.bits == int(name[5]), dtype


@pytest.mark.needs_ml_dtypes
def test_a_type_that_ml_dtypes_lacks_has_no_numpy_dtype(monkeypatch):
    monkeypatch.delattr(ml_dtypes, "float6_e2m3fn")
    with pytest.raises(TypeError, match="neither NumPy nor ml_dtypes has float6_e2m3fn"):
        md.dtype("float6_e2m3fn").numpy  # noqa: B018


# ---- formats of the buffer protocol ----

#: The names of NumPy's own types, without those of ml_dtypes.
NUMPY = {np.dtype(letter).name for letter in np.typecodes["All"]}
KINDS = {"?": "bool"} | dict.fromkeys("bhilqn", "int") | dict.fromkeys("BHILQN", "uint") | dict.fromkeys("efd", "float")
NO_TYPE = "asarray: .* is structured, of non-native byte order, or unknown; convert it first"


def test_a_format_is_numpy_s_and_there_is_one_where_numpy_has_the_type():
    for dtype in DTYPES:
        array = md.zeros(2, dtype)
        if dtype.name not in NUMPY:
            with pytest.raises(BufferError, match=r"np\.asarray"):
                memoryview(array)
            continue
        theirs = np.zeros(2, dtype.name)
        assert memoryview(array).format == memoryview(theirs).format
        assert md.asarray(memoryview(array)).dtype is dtype
        if dtype.bits > 8:
            with pytest.raises(ValueError, match=NO_TYPE):
                md.asarray(memoryview(theirs.astype(theirs.dtype.newbyteorder(">"))))
    assert md.asarray(bytearray(b"ab")).dtype is md.uint8  # without any format


def struct_formats():
    """Yield every letter with every byte order that it can have (`<n`, for one, is none); and a record."""
    for letter, order in itertools.product([*"?bhilqnBHILQNefdcsP", "BB"], ["", "@", "=", "<", ">", "!"]):
        with contextlib.suppress(struct.error):
            yield letter, order, struct.calcsize(order + letter)


def test_each_letter_means_its_type_in_each_byte_order():
    testbuffer = pytest.importorskip("_testbuffer")
    for letter, order, size in struct_formats():
        item = {"c": b"1", "s": b"1", "BB": (1, 1)}.get(letter, 1)
        exporter = testbuffer.ndarray([item], shape=[1], format=order + letter)
        if letter not in KINDS or (order in (">", "!") and size > 1):
            for take in (md.asarray, md.zeros(1).copy_from):
                with pytest.raises(ValueError, match=NO_TYPE):
                    take(exporter)
        else:
            array = md.asarray(exporter)
            name = KINDS[letter] if letter == "?" else f"{KINDS[letter]}{8 * size}"
            assert (array.dtype.name, array.item()) == (name, 1), order + letter


# ---- as libraries look at NumPy's dtypes ----

ASKED = ["kind", "type", "str", "char", "num", "byteorder", "isnative", "hasobject", "names", "fields", "subdtype"]


@pytest.mark.needs_ml_dtypes
def test_what_numpys_dtype_says_this_one_says_and_where_there_is_none_has_not(monkeypatch):
    for name in dir(md):
        dtype = getattr(md, name)
        if isinstance(dtype, md.dtype):
            theirs = np.dtype(dtype)
            for asked in [*ASKED, "descr"]:
                assert getattr(dtype, asked) == getattr(theirs, asked)
            assert dtype.newbyteorder("=") == theirs
            assert md.dtype(dtype.type) == dtype
    for dtype in (md.float32, md.dtype("float32x4")):
        if dtype.lanes == 1:
            monkeypatch.setitem(sys.modules, "numpy", None)
        assert not any(hasattr(dtype, asked) for asked in ASKED)
        with pytest.raises(AttributeError, match="is what NumPy says; "):
            dtype.kind  # noqa: B018


def test_libraries_that_look_at_a_dtype_take_arrays_as_they_take_numpys():
    """Each read one of these NumPy names alone."""
    theirs = np.arange(24, dtype="float32").reshape(6, 4)
    ours = md.asarray(theirs)
    wavfile = pytest.importorskip("scipy.io.wavfile")
    chunked = pytest.importorskip("dask.array").from_array
    save = pytest.importorskip("safetensors.numpy").save

    def written(array):
        file = io.BytesIO()
        wavfile.write(file, 8000, array)
        return file.getvalue()

    for call in (
        written,
        lambda array: chunked(array, chunks=2).std(axis=0).compute().tolist(),
        lambda array: save({"a": array, "b": array[:, 1]}),
    ):
        assert call(ours) == call(theirs)
    assert written(ours.T) == written(theirs.T)
