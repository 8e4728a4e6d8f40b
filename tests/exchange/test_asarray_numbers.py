"""asarray of numbers and lists with a dtype: each goes straight to it, rounded once, or is refused as full() does."""

import decimal
import fractions
import math
import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from machine import tries

import metal_dlpack as md

NAMES = sorted(name for name, value in vars(md).items() if isinstance(value, md.dtype))
INTEGERS = [name for name in NAMES if name.lstrip("u").startswith("int")]
REFUSALS = (TypeError, OverflowError, ValueError)


def outcome(make):
    """The bits of what is made (NaN equals NaN, -0.0 is not 0.0), or the class of the refusal."""
    try:
        made = make()
    except REFUSALS as error:
        return type(error)
    return made.copy(storage="shared").view("uint8").tolist() if made.dtype.bits >= 8 else repr(made.tolist())


def without_fraction(value):
    """What an integer type gets of a float."""
    if not isinstance(value, float | np.floating):
        return value
    if math.isnan(value) or math.isinf(value):
        return 1 << 80  # no integer type holds it
    return int(value)


def expected(value, name):
    """What full() makes of the number, which is the oracle."""
    number = without_fraction(value) if name in INTEGERS else value
    return outcome(lambda: md.full((1,), number, name))


numbers = st.one_of(
    st.booleans(),
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.floats(-70000, 70000, width=32),
    st.complex_numbers(),
    st.floats(allow_nan=False, width=16).map(np.float16),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.integers(-128, 127).map(np.int8),
    st.integers(0, 2**64 - 1).map(np.uint64),
)


@hypothesis.given(
    values=st.lists(numbers, max_size=6),
    name=st.sampled_from(NAMES),
    storage=st.sampled_from(["shared", "managed", "private"]),
)
def test_a_list_is_what_its_numbers_are(live_buffers, values, name, storage):
    wanted = [expected(value, name) for value in values]
    for value, alone in zip(values, wanted, strict=True):
        assert outcome(lambda value=value: md.asarray(value, dtype=name, storage=storage).reshape((1,))) == alone
        assert outcome(lambda value=value: md.asarray(((value,),), dtype=name).reshape((1,))) == alone
    refused = next((entry for entry in wanted if isinstance(entry, type)), None)
    if refused is not None:
        with pytest.raises(refused):
            md.asarray(values, dtype=name)
        return
    array = md.asarray([values, values], dtype=name, storage=storage)
    assert (array.shape, array.dtype.name, array.storage, array.padded) == ((2, len(values)), name, storage, False)
    for row in range(2):
        singles = [md.asarray([value], dtype=name).item() for value in values]
        assert repr(array.tolist()[row]) == repr(singles)


# ---- one rounding ----

WIDTHS = {"float16": "uint16", "bfloat16": "uint16", "float32": "uint32", "float64": "uint64"}


def is_nearest(exact, array):
    """Is the only item of the array the nearest number of its type, ties to even?"""
    bits = array.view(WIDTHS[array.dtype.name])
    code = bits.item()
    error = abs(fractions.Fraction(array.item()) - exact)
    for near in (max(code - 1, 0), code + 1):
        neighbour = md.asarray([near], dtype=bits.dtype).view(array.dtype).item()
        if not math.isfinite(neighbour):
            continue
        other = abs(fractions.Fraction(neighbour) - exact)
        if other < error or (other == error and code % 2):
            return False
    return True


EXACT_NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(1e-4, 6e4),
    st.floats(-300, 300).map(decimal.Decimal),
    st.fractions(-70000, 70000),
    st.integers(-300, 300),
    st.integers(-(2**70), 2**70),
    st.integers(2**53, 2**63).map(np.uint64),
    st.builds(lambda top, low: (top << 35) + low, st.integers(2**24, 2**25), st.sampled_from([-1, 0, 1])),
)
LARGEST = {"float16": 65504, "bfloat16": 3.38e38, "float32": 3.4e38, "float64": 1.7e308}


@hypothesis.settings(max_examples=tries(600))
@hypothesis.given(value=EXACT_NUMBERS, name=st.sampled_from([*WIDTHS, *INTEGERS, "bool"]))
def test_a_number_becomes_the_nearest_of_its_type_rounded_once_or_is_out_of_range(value, name):
    exact = fractions.Fraction(int(value) if isinstance(value, np.uint64) else value)
    if name in WIDTHS:
        hypothesis.assume(abs(exact) <= LARGEST[name])
        for array in (md.asarray([value], dtype=name), md.full((1,), value, name)):
            assert is_nearest(exact, array)
        return
    array = md.dtype(name)
    low, high = (
        (0, 2**array.bits - 1) if name.startswith("u") else (-(2 ** (array.bits - 1)), 2 ** (array.bits - 1) - 1)
    )
    if name == "bool" or low <= int(exact) <= high:
        assert md.asarray([value], dtype=name).item() == (exact != 0 if name == "bool" else int(exact))
    else:
        with pytest.raises(OverflowError):
            md.asarray([value], dtype=name)


NO_NUMBERS = [
    *("1", "", None, {}, {1}, object()),
    *(np.datetime64(0, "s"), np.timedelta64(5, "s"), np.str_("1"), np.bytes_(b"1")),
]


def test_what_is_out_of_range_is_an_overflow_and_what_is_no_number_is_refused(subtests):
    refused = [(value, name, OverflowError) for name in ("int32", "uint8") for value in (math.nan, -math.inf)]
    refused += [(math.nan, "float4_e2m1fn", OverflowError), (10**400, "float64", OverflowError)]
    names = ["float32", "int32", "bool", "complex64", "bfloat16", "int4"]
    refused += [(value, name, TypeError) for name in names for value in NO_NUMBERS]
    complexes = [1j, np.complex64(1j), np.complex128(1j)]
    refused += [(value, name, TypeError) for name in ("float32", "int32", "float8_e5m2") for value in complexes]
    for value, name, error in refused:
        with subtests.test(value=value, name=name):
            for given in (value, [value], [[0], [value]]):
                with pytest.raises(error):
                    md.asarray(given, dtype=name)
    assert [md.asarray([value], dtype="bool").item() for value in complexes] == [True] * 3


def test_what_a_number_raises_itself_is_raised():
    class Hostile:
        def __float__(self):
            raise ZeroDivisionError

    class Silent(float):
        @property
        def dtype(self):
            raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError):
        md.asarray([Hostile()], dtype="float64")
    with pytest.raises(KeyboardInterrupt):
        md.asarray([Silent(1.0)], dtype="float64")


# ---- everything else stays ----


def test_without_a_dtype_floats_are_narrowed_as_ever():
    assert md.asarray(0.1).dtype == md.asarray([0.1, 2]).dtype == md.float32
    assert md.asarray(1j).dtype == md.asarray([np.array(1j), 2]).dtype == md.complex64
    assert md.asarray([2**53 + 1]).item() == 2**53 + 1
    assert md.asarray(np.float64(0.1)).item() == 0.1


def test_memory_that_has_a_type_is_converted_as_astype_does():
    x = np.array([300.5, -1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert md.asarray(x, dtype="int32").tolist() == [300, -1]
        assert md.asarray(np.array([300]), dtype="uint8").tolist() == md.asarray([300]).astype("uint8").tolist() == [44]


class LikeTorch:
    """A tensor without axes that no int() takes, as torch's of floats."""

    def __array__(self, dtype=None, copy=None):
        return np.array(2.5)

    def __index__(self):
        raise TypeError("only integer tensors of a single element can be converted to an index")

    def item(self):
        return 2.5


def test_arrays_without_axes_are_numbers_of_a_list(subtests):
    for name in ["float32", "int64", "bool", "complex64", "bfloat16", "int4"]:
        for make in [np.array, lambda x: md.full((), x, "float64"), lambda x: LikeTorch()]:
            with subtests.test(name=name, make=make):
                assert (
                    md.asarray([[make(2.5)], [1]], dtype=name).tolist() == md.asarray([[2.5], [1]], dtype=name).tolist()
                )


def test_what_is_no_number_is_refused_in_an_array_without_axes(subtests):
    for name in ["float32", "int64", "bool", "int4"]:
        for item in [np.array("1"), np.array(None), np.array("2020", "M8[s]"), np.array(1j)]:
            with subtests.test(name=name, item=item):
                if item.dtype == complex and name == "bool":
                    assert md.asarray([item], dtype=name).tolist() == [True]
                else:
                    with pytest.raises(TypeError, match="is not a number that an element type can hold"):
                        md.asarray([item], dtype=name)


@pytest.mark.parametrize("name", ["bfloat16", "int4", "float8_e4m3fn"])
def test_scalars_of_ml_dtypes_keep_their_type_without_a_dtype(name):
    scalar = md.dtype(name).numpy.type(2)
    for given in (scalar, [[scalar]], [np.array(scalar)]):
        array = md.asarray(given)
        assert (array.dtype, array.shape) == (name, np.shape(given))
        assert array.reshape(-1).tolist() == [2]


def test_what_array_gives_can_be_of_ml_dtypes():
    class Gives:
        def __array__(self, dtype=None, copy=None):
            return memory

    memory = np.arange(5000).astype(md.dtype("bfloat16").numpy)
    array = md.asarray(Gives(), copy=False)
    assert array.dtype == "bfloat16"
    assert np.shares_memory(np.asarray(array), memory)
