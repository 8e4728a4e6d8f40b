"""Arrays as text: every item that is shown is the array's, NumPy or not, and no shape or state makes it long or raise."""

import contextlib
import math
import time
from math import inf, nan

import pytest
from children import run_child
from held_work import held
from hypothesis import example, given, settings
from hypothesis import strategies as st
from places import DOCS

import metal_dlpack as md
from metal_dlpack.looking import text
from metal_dlpack.looking.number_words import float_type, words_of
from metal_dlpack.looking.shown_items import MAX_ITEMS, PATIENCE

try:
    import numpy as np
except ImportError:
    np = None

SHAPES = st.lists(st.integers(0, 9), max_size=7).map(tuple)
#: Shapes that are printed whole, and cut along any of their axes.
PRINTED_SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 7, 9, 40, 1100]), max_size=2).map(tuple) | st.lists(
    st.sampled_from([1, 2, 5, 7, 8]), min_size=3, max_size=4
).map(tuple)
#: Numbers that each number of a type is made of: any bits are one.
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
WEIGHTS = st.sampled_from([0.0, -0.0, 1.0, -1.5, 0.3, 1e-8, 0.0001, 999.5, 1e6, 2.0**-6, 2.0**-30, nan, inf, -inf])
OUR_FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn")


@contextlib.contextmanager
def without_numpy():
    """As if NumPy were not imported."""
    kept, text._numpy = text._numpy, lambda: None
    try:
        yield
    finally:
        text._numpy = kept


@st.composite
def numpy_arrays(draw):
    """NumPy arrays of any numeric type, and views of them."""
    shape, seed = draw(PRINTED_SHAPES), draw(st.integers(0, 2**32 - 1))
    chance = np.random.default_rng(seed)
    name = draw(st.sampled_from(INTEGERS + FLOATS))
    bits = chance.integers(0, 256, (*shape, np.dtype(name).itemsize), dtype=np.uint8)
    numbers = bits.view(name).reshape(shape) if name != "bool" else bits.reshape(shape) > 127
    if name in FLOATS and draw(st.booleans()):
        scale = 10.0 ** draw(st.integers(-6, 6))
        numbers = np.asarray(chance.normal(size=shape) * scale).astype(name)
    if name in FLOATS and draw(st.booleans()):
        weights = np.array(draw(st.lists(WEIGHTS, min_size=1, max_size=4)))
        numbers = np.where(chance.random(shape) < 0.5, numbers, weights[chance.integers(0, len(weights), shape)])
        numbers = np.asarray(numbers).astype(name)
    key = tuple(slice(None, None, draw(st.sampled_from([1, 1, 2, -1]))) for _ in shape)
    return numbers[key] if shape else numbers


@pytest.mark.needs_numpy
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(deadline=None)
@given(st.data())
def test_items_are_printed_as_numpy_prints_them_by_numpy_and_without(data):
    numbers = data.draw(numpy_arrays())
    expected = np.array2string(numbers, separator=", ", prefix="Array(", suffix=")")
    array = md.asarray(numbers)
    assert text.items_text(array, "Array(", ")") == expected
    with without_numpy():
        assert text.items_text(array, "Array(", ")") == expected


@pytest.mark.needs_numpy
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_at_a_border_are_printed_as_numpy_prints_them(subtests):
    """Powers of two have unequal neighbours; the form changes at 1e-4, at a ratio of 1000 and at large numbers."""
    for dtype in ["float16", "float32", "float64"]:
        with subtests.test(str(dtype)):
            finfo = np.finfo(dtype)
            powers = [np.array([2.0**e], dtype) for e in range(finfo.minexp - finfo.nmant, finfo.maxexp)]
            borders = [low * factor for low in (1.0, 1.1, 0.3, 7.7) for factor in (1e-4, 1e3, 1e6, 1e8)]
            steps = [
                np.nextafter(np.array(border, dtype), np.array(way, dtype)) for border in borders for way in (0, inf)
            ]
            pairs = [np.array([low, step], dtype) for low in (1.0, 1.1, 0.3, 7.7) for step in [*borders, *steps]]
            singles = [np.array([number], dtype) for number in [*borders, *steps]]
            for numbers in powers + pairs + singles:
                assert ", ".join(words_of(numbers.tolist(), dtype)) == np.array2string(numbers, separator=", ")[1:-1]


@pytest.mark.needs_numpy
def test_types_that_numpy_lacks_are_printed_alike_with_and_without_it(subtests):
    for dtype in [*OUR_FLOATS, "complex32", "int4", "uint2", "float4_e2m1fnx2"]:
        with subtests.test(str(dtype)):
            chance = np.random.default_rng(0)
            for shape in ((), (5,), (3, 4), (7, 400)):
                count = max(math.prod(shape), 1)
                noise = md.asarray(bytearray(chance.bytes(count * md.dtype(dtype).itemsize)), dtype="uint8")
                array = noise.buffer.array(shape, dtype, noise.byte_offset)
                printed = repr(array)
                with without_numpy():
                    assert repr(array) == printed


@pytest.mark.parametrize(
    "dtype", [*OUR_FLOATS[1:], *(pytest.param(name, marks=pytest.mark.long) for name in ("float16", OUR_FLOATS[0]))]
)
def test_a_float_is_printed_in_digits_that_read_back(dtype):
    count, bits = 1 << md.dtype(dtype).bits, md.dtype(dtype).bits
    every = md.empty(count * bits // 8, "uint8")
    memoryview(every)[:] = b"".join(
        (sum(value << i * bits for i, value in enumerate(range(first, first + 4)))).to_bytes(bits // 2, "little")
        for first in range(0, count, 4)
    )
    values = [value for value in every.buffer.array(count, dtype).tolist() if math.isfinite(value)]
    shortest = [float(float_type(dtype).shortest(value)) for value in values]
    assert md.asarray(shortest, dtype="float64").astype(dtype).tolist() == values


def test_a_number_has_as_few_digits_as_its_type_needs():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert repr(md.full((), 0.3, dtype)).startswith("Array(0.3, ")
    assert repr(md.full((), 0.1 + 0.3j, "complex32")).startswith("Array(0.1+0.3j, ")
    assert repr(md.full((), 1e-8)).startswith("Array(1.e-08, ")


@pytest.mark.needs_numpy
def test_numpys_print_options_are_honoured():
    array = md.asarray([[0.123456789, 1e-9]] * 40)
    with np.printoptions(precision=2, suppress=True, threshold=10, edgeitems=1, linewidth=40):
        printed = repr(array)
    assert printed.startswith("Array([[0.12, 0.  ],\n       ...,\n       [0.12, 0.  ]],")
    assert all(len(line) <= 40 for line in printed.splitlines())


def test_a_text_imports_no_numpy():
    code = "import sys, metal_dlpack as md; print(md.full(2, 0.5)); assert 'numpy' not in sys.modules"
    result = run_child(code, check=True)
    assert result.stdout.startswith("Array([0.5, 0.5], shape=(2,)")


def test_no_line_is_longer_than_numpys(subtests):
    for shape in [(), (3,), (2, 3), (2000,), (3, 400)]:
        with subtests.test(str(shape)):
            for array in (md.zeros(shape), md.zeros(shape, "complex128", storage="private").as_readonly()):
                assert all(len(line) <= 75 for line in repr(array).splitlines())


@given(SHAPES)
@example((7,) * 6)
@example((1,) * 60 + (2,) * 4)
@example((2,) * 58)
@example((2**40, 0, 2**10))
def test_no_shape_makes_a_long_text(shape):
    array = md.zeros((1,), "complex128").broadcast_to((1,) * max(len(shape), 1)).broadcast_to(shape or (1,))
    printed = repr(array)
    assert printed.count("j") <= MAX_ITEMS
    assert len(printed) < 16384
    assert str(array.shape) in printed


def test_every_storage_shows_the_same_items(subtests):
    for shape in [(), (5,), (2000,), (60, 50), (9, 9, 9, 9)]:
        for storage in ["shared", "managed", "private"]:
            with subtests.test(storage=storage, shape=shape):
                count = math.prod(shape)
                array = md.asarray(list(range(count)), dtype="int32").reshape(shape)
                stored = array.copy(storage=storage)
                assert text.items_text(stored) == text.items_text(array)
                assert text.items_text(stored.T) == text.items_text(array.T)


def test_items_smaller_than_a_byte_are_shown_wherever_they_lie(subtests):
    for is_padded in [False, True]:
        for storage in ["shared", "managed", "private"]:
            with subtests.test(storage=storage, is_padded=is_padded):
                numbers = md.asarray([i % 7 for i in range(50 * 32)], dtype="int8").reshape(50, 32)
                stored = numbers.astype("int4").copy(storage=storage, padded=is_padded)
                for view in (lambda a: a, lambda a: a[2:], lambda a: a.T, lambda a: a[::2, ::2], lambda a: a[:, 30]):
                    assert text.items_text(view(stored)) == text.items_text(view(numbers))


def test_only_the_shown_items_of_private_memory_come_to_the_cpu():
    column = md.zeros((1000, 20_000), "uint8", storage="private")[:, 7]
    md.empty_cache()
    before = md.memory_stats()["shared"]["allocations"], md.memory_stats()["shared"]["live"]
    text.items_text(column)
    stats = md.memory_stats()["shared"]
    assert stats["allocations"] > before[0]
    assert stats["cached"] < 1 << 16


def test_a_repr_says_what_the_array_is():
    printed = repr(md.zeros((2, 3), "int16", storage="private").as_readonly())
    said = " ".join(printed.split())
    assert said.endswith("shape=(2, 3), dtype=int16, device=metal:0, storage='private', readonly)")


def test_items_that_no_number_stands_for_are_left_out():
    assert repr(md.empty((3,), "float4_e2m1fnx2")).startswith("Array(")
    assert repr(md.empty((3,), "float32x16")).startswith("Array(<items of many lanes>, ")


# ---- states: a text waits a moment, and never raises ----


def test_work_in_flight_is_waited_for_a_moment(settings):
    settings(latency_us=int(PATIENCE * 0.05e6))
    array = md.zeros(3)
    array.fill(2, stream=md.Stream())
    assert repr(array).startswith("Array([2., 2., 2.], ")


@pytest.mark.needs_softmetal
def test_long_work_in_flight_is_said_and_not_waited_for(subtests):
    """Private memory is behind work on the queue that would copy its items, too: the current stream."""
    for storage in ["shared", "managed", "private"]:
        with subtests.test(storage):
            array, stream = md.zeros(6, storage=storage), md.Stream()
            items = "[0., 0., 0." if storage != "private" else "<GPU work in flight>"
            for current in (stream, array.device.default_stream):
                with current, held(current):
                    printed = [repr(array), repr(array[::2])]
                assert [text for text in printed if items not in text] == []
            with held(stream):
                array.fill(2, stream=stream)
                assert repr(array).startswith("Array(<GPU work in flight>, shape=(6,)")
            stream.synchronize()
            assert repr(array).startswith("Array([2., 2., 2., ")


@pytest.mark.parametrize("looks_through_the_queue", [False, True])
def test_failed_work_is_said_and_stays_to_be_raised(settings, looks_through_the_queue):
    """The array's own failure, or one in the queue that would copy the items of private memory."""
    written, private = md.zeros(3), md.zeros(3, storage="private")
    array, stream = (private, private.device.default_stream) if looks_through_the_queue else (written, md.Stream())
    settings(fail="commit@1=8")
    written.fill(2, stream=stream)
    while md._core._buffer_work(written.buffer)[0] == "writes":
        time.sleep(0.001)
    settings(fail=None)
    said = "earlier GPU work on the current stream" if looks_through_the_queue else "GPU work on the buffer"
    for _ in range(2):
        assert repr(array).startswith(f"Array(<{said} failed; ")
        assert ("earlier GPU work" if looks_through_the_queue else "GPU work failed") in array._repr_html_()
        assert "failed: the next wait raises the reason" in stream._repr_html_()
    with pytest.raises(md.MetalError, match=r"OutOfMemory, 8\)"):
        stream.synchronize()
    assert repr(array).startswith("Array([0., 0., 0.], ")


def test_a_private_array_that_cannot_be_read_says_why(settings):
    array = md.zeros(3, storage="private")
    settings(fail="commit@1=8")
    assert "Array(<Array.tolist: " in repr(array)


def test_the_page_has_the_numbers():
    page = (DOCS / "looking.md").read_text()
    assert f"within {PATIENCE} s" in page
    assert f"more than {MAX_ITEMS} items" in page
