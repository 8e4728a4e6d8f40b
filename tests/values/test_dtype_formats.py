"""dtype.c and the buffer protocol: the format of each element type, and the type of each format."""

import contextlib
import itertools
import struct

import numpy as np
import pytest

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]
#: The names of NumPy's own types, without those of ml_dtypes.
NUMPY = {np.dtype(letter).name for letter in np.typecodes["All"]}
KINDS = {"?": "bool"} | dict.fromkeys("bhilqn", "int") | dict.fromkeys("BHILQN", "uint") | dict.fromkeys("efd", "float")


def test_a_format_is_numpy_s_and_there_is_one_where_numpy_has_the_type():
    for dtype in DTYPES:
        array = md.zeros(2, dtype)
        if dtype.name in NUMPY:
            assert memoryview(array).format == memoryview(np.zeros(2, dtype.name)).format
            assert md.asarray(memoryview(array)).dtype is dtype
        else:
            with pytest.raises(BufferError):
                memoryview(array)


def struct_formats():
    """Of every letter and byte order, those that there are: `<n`, for one, is none."""
    for letter, order in itertools.product("?bhilqnBHILQNefdcsP", ["", "@", "=", "<", ">", "!"]):
        with contextlib.suppress(struct.error):
            yield letter, order, struct.calcsize(order + letter)


def test_each_letter_means_its_type_in_each_byte_order():
    testbuffer = pytest.importorskip("_testbuffer")
    for letter, order, size in struct_formats():
        items = [b"1"] if letter in "cs" else [1]
        exporter = testbuffer.ndarray(items, shape=[1], format=order + letter)
        if letter not in KINDS or (order in (">", "!") and size > 1):
            with pytest.raises(ValueError, match="structured, of non-native byte order, or unknown"):
                md.asarray(exporter)
        else:
            array = md.asarray(exporter)
            name = KINDS[letter] if letter == "?" else f"{KINDS[letter]}{8 * size}"
            assert (array.dtype.name, array.item()) == (name, 1), order + letter


def test_arrays_of_numpy_in_each_native_byte_order():
    for dtype, order in itertools.product(DTYPES, "=<"):
        if dtype.name not in NUMPY:
            continue
        theirs = np.ones(3, np.dtype(dtype.name).newbyteorder(order))
        assert md.asarray(memoryview(theirs)).dtype is dtype
        if dtype.bits > 8:
            with pytest.raises(ValueError, match="non-native byte order"):
                md.asarray(memoryview(theirs.astype(theirs.dtype.newbyteorder(">"))))


def test_no_format_at_all_is_bytes():
    assert md.asarray(bytearray(b"ab")).dtype is md.uint8
