"""Floats of 4 to 16 bits, every code of them, beside ml_dtypes and beside the definition."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import metal_dlpack as md

#: The small floats of dtype.c: bfloat16, and those whose name tells of exponent and mantissa.
NAMES = [name for name in md.__all__ if name == "bfloat16" or (name.startswith("float") and "_e" in name)]
WITHOUT_NAN = {"float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"}


def all_codes(name):
    """Every code of the type: as integers, and as what ml_dtypes makes of them."""
    codes = np.arange(2 ** getattr(md, name).bits, dtype="uint16" if name == "bfloat16" else "uint8")
    return codes, codes.view(getattr(ml_dtypes, name))


def code_of(array):
    """The integer in a one-item array."""
    return array.copy(padded=True).view("uint16" if array.itemsize == 2 else "uint8").item()


def test_every_code_is_the_number_that_ml_dtypes_says():
    for name in NAMES:
        _, theirs = all_codes(name)
        ours = md.asarray(theirs).tolist()
        assert [repr(x) for x in ours] == [repr(float(x)) for x in theirs], name


def test_every_number_becomes_its_code_again():
    for name in NAMES:
        codes, theirs = all_codes(name)
        array = md.zeros(1, name)
        for code, number in list(zip(codes.tolist(), map(float, theirs), strict=True))[
            :: 1 if codes.size < 999 else 13
        ]:
            if number != number:  # a NaN: any will do
                array.fill(number)
                assert array.item() != array.item()
            else:
                array.fill(number)
                assert code_of(array) == code, (name, code)


def test_numbers_between_round_to_the_nearest_and_ties_to_even():
    """By the definition: of the two neighbours the nearer, of equally near ones the one with the even code."""
    for name in NAMES:
        codes, theirs = all_codes(name)
        ranked = sorted(
            (float(x), code)
            for code, x in zip(codes.tolist(), theirs, strict=True)
            if np.isfinite(float(x)) and float(x) > 0
        )
        array = md.zeros(1, name)
        step = max(len(ranked) // 200, 1)
        for (low, low_code), (high, high_code) in list(itertools.pairwise(ranked))[::step]:
            middle = (low + high) / 2
            even = high_code if name == "float8_e8m0fnu" else min(low_code, high_code, key=lambda code: code & 1)
            for value, code in [
                (np.nextafter(middle, 0), low_code),
                (middle, even),
                (np.nextafter(middle, np.inf), high_code),
            ]:
                array.fill(float(value))
                assert code_of(array) == code, (name, value)
                if name != "float8_e8m0fnu":
                    array.fill(-float(value))
                    assert array.item() == -float(all_codes(name)[1][code])


def test_the_ends_are_those_of_ml_dtypes():
    for name in NAMES:
        kind = getattr(ml_dtypes, name)
        largest = float(ml_dtypes.finfo(kind).max)
        smallest = float(ml_dtypes.finfo(kind).smallest_subnormal)
        values = [
            np.inf,
            1e30,
            1e300,
            largest * 1.01,
            largest * 2,
            largest * 1.75,
            largest,
            smallest,
            smallest * 0.4,
            smallest * 0.6,
            1e-40,
        ]
        values += [] if name == "float8_e8m0fnu" else [-x for x in values] + [0.0, -0.0]
        array = md.zeros(1, name)
        for value in values:
            with np.errstate(all="ignore"):
                expected = float(np.array([value], "float64").astype(kind)[0])
            array.fill(value)
            assert repr(array.item()) == repr(expected) or (expected != expected and array.item() != array.item()), (
                name,
                value,
            )


def test_a_nan_is_refused_where_there_is_none():
    for name in WITHOUT_NAN:
        array = md.full(2, 1, name)
        with pytest.raises(OverflowError, match=f"nan does not fit the element type {name}"):
            array[1] = float("nan")
        assert array.tolist() == [1.0, 1.0]


def test_a_scale_has_neither_sign_nor_zero():
    array = md.zeros(1, "float8_e8m0fnu")
    for value in (0.0, -1.0, float("inf"), float("nan")):
        array.fill(value)
        assert array.item() != array.item()


def test_half_complex_numbers():
    array = md.full(3, 1.5 - 2j, "complex32")
    assert array.tolist() == [1.5 - 2j] * 3
    assert complex(array[1:2]) == 1.5 - 2j
