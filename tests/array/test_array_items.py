"""Items in and out: assignment, fills, copies, Python numbers, in every storage mode."""

import copy

import numpy as np
import pytest

import metal_dlpack as md

STORAGES = ["shared", "private"]
NUMPY_TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def read(array):
    return np.array(array)


@pytest.mark.parametrize("storage", STORAGES)
def test_what_is_written_is_read_back(storage):
    for dtype in NUMPY_TYPES:
        expected = (np.arange(24) % 7).reshape(2, 3, 4).astype(dtype)
        array = md.zeros((2, 3, 4), dtype, storage=storage)
        array[...] = expected
        assert (read(array) == expected).all(), dtype
        assert array.tolist() == expected.tolist(), dtype


def test_assignment_broadcasts_arrays_of_every_kind():
    array = md.zeros((2, 3))
    array[...] = md.full((3,), 2)
    assert array.tolist() == [[2, 2, 2], [2, 2, 2]]
    array[...] = [[1], [4]]
    assert array.tolist() == [[1, 1, 1], [4, 4, 4]]
    array[0] = np.array([7, 8, 9], "int8")
    array[1] = md.asarray([1, 2, 3])
    assert array.tolist() == [[7, 8, 9], [1, 2, 3]]


def test_a_shape_that_does_not_fit_is_refused_before_anything_is_written():
    array = md.zeros((2, 3))
    with pytest.raises(ValueError):
        array[...] = md.full((2,), 1)
    with pytest.raises(ValueError):
        array[...] = [1, 2]
    assert array.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_number_that_does_not_fit_the_type_is_refused_with_both_named():
    too_large = [("int8", 128), ("int8", -129), ("uint8", -1), ("uint64", 2**64)]
    of_another_kind = [("int32", 1.5), ("float32", 1j), ("float32", "1")]
    for error, cases in ((OverflowError, too_large), (TypeError, of_another_kind)):
        for dtype, value in cases:
            array = md.zeros(2, dtype)
            with pytest.raises(error, match=dtype):
                array.fill(value)
            assert array.tolist() == [0, 0]


def test_floats_round_once_to_the_narrower_type():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = np.random.default_rng(0)
    values = np.concatenate(
        [
            random.standard_normal(2000) * 10.0 ** random.integers(-44, 39, 2000),
            [0.0, -0.0, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-40, 3.4e38, 3.395e38, 1e39],
            [9e-41, 4.6e-41, 1e-45],
        ]
    )
    array = md.empty(1, "bfloat16")
    for value in values:
        array.fill(float(value))
        stored = read(array.view("uint16"))[0]
        # ml_dtypes rounds by way of float32, which is a second rounding for a few values.
        exact = _nearest_bfloat16(float(value))
        assert stored == exact, value
    assert read(array).dtype == ml_dtypes.bfloat16


def _nearest_bfloat16(value):
    """By the definition: the nearest of the two neighbours, ties to the even one."""
    if value == 0 or np.isinf(value):
        return np.float32(value).view("uint32") >> np.uint32(16)
    with np.errstate(over="ignore"):
        low = int(np.float32(value).view("uint32") >> np.uint32(16))
    candidates = [bits for bits in (low - 1, low, low + 1) if 0 <= (bits & 0x7FFF) <= 0x7F80]

    def as_number(bits):
        if bits & 0x7FFF == 0x7F80:  # infinity stands where the next power of two would
            return (-1.0 if bits & 0x8000 else 1.0) * 2.0**128
        return float(np.uint32(bits << 16).view("float32"))

    return min(candidates, key=lambda bits: (abs(as_number(bits) - value), bits & 1))


@pytest.mark.parametrize("storage", STORAGES)
def test_copy_has_memory_of_its_own(storage):
    source = md.asarray(np.arange(12, dtype="int16").reshape(3, 4)).T
    for order in "CFAK":
        copied = source.copy(order, storage=storage)
        assert read(copied).tolist() == source.tolist()
        assert (copied.storage, copied.buffer is source.buffer) == (storage, False)
        expected = np.arange(12).reshape(3, 4).T.copy(order)
        assert [stride * 8 for stride in copied.strides] == list(expected.strides), order


def test_the_copy_module_copies():
    array = md.asarray([1.0, 2.0])
    for made in (copy.copy(array), copy.deepcopy(array)):
        made[0] = 9
        assert array.tolist() == [1, 2]


def test_one_item_is_a_python_number():
    assert md.full((1, 1), 2.5).item() == 2.5
    assert float(md.full((), 2.5)) == 2.5
    assert int(md.full(1, 3, "uint8")) == 3
    assert complex(md.full((), 1 + 2j, "complex64")) == 1 + 2j
    assert bool(md.full((), 1, "bool")) is True
    assert [10, 20][md.full((), 1, "int64")] == 20
    with pytest.raises(TypeError):
        [10][md.full((), 0.0)]
    for convert, error in [(float, TypeError), (int, TypeError), (complex, TypeError), (bool, ValueError),
                           (md.Array.item, ValueError)]:  # fmt: skip
        with pytest.raises(error, match="one item"):
            convert(md.zeros(2))


def test_items_cannot_be_deleted():
    with pytest.raises(TypeError):
        del md.zeros(2)[0]


def test_types_of_ml_dtypes_are_written_and_read():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        expected = np.arange(8).astype(getattr(ml_dtypes, name))
        array = md.zeros(8, name)
        array[...] = expected
        assert (read(array) == expected).all(), name
        assert [float(x) for x in array.tolist()] == expected.astype("float32").tolist()
        array.fill(2)
        assert (read(array).astype("float32") == 2).all(), name


def test_fill_of_a_strided_view_leaves_the_gaps():
    for storage in STORAGES:
        array = md.zeros(10, "int16", storage=storage)
        array[1::3].fill(7)
        assert read(array).tolist() == [0, 7, 0, 0, 7, 0, 0, 7, 0, 0]


def test_odd_sizes_of_private_bytes_come_back():
    """Blits on macOS take multiples of 4 bytes: kernels move the ends, and nothing else changes."""
    expected = np.arange(23, dtype="uint8")
    array = md.zeros(23, "uint8", storage="private")
    array[...] = expected
    array[3:6] = 255
    expected[3:6] = 255
    array[22] = 1
    expected[22] = 1
    assert (read(array) == expected).all()
