"""astype and asarray(dtype=): every pair of types beside NumPy and ml_dtypes, packed, padded, strided and private."""

import itertools
import sys
import warnings

import numpy as np
import pytest
from children import run_child

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]


def has_cast(source, target):
    try:
        np.zeros(1, source.numpy).astype(target.numpy)
    except TypeError:
        return False
    return True


def random_numbers(rng, dtype):
    """Any bits that the type has: infinity, NaN and what is past the end of another type among them."""
    bits = rng.integers(0, 256, 12 * dtype.itemsize).astype("uint8")
    if dtype.bits < 8 or dtype is md.bool:
        bits &= 1 if dtype is md.bool else (1 << dtype.bits) - 1
    return bits.view(dtype.numpy).reshape(3, 4)


def by_numpy(values, target):
    """The oracle: NumPy's cast, by way of float32 or complex64 where ml_dtypes has none."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if values.dtype == target.numpy:
            return values
        if not has_cast(md.dtype(values.dtype), target):
            values = values.astype("complex64" if "complex" in values.dtype.name else "float32")
        return values.astype(target.numpy)


def same_bytes(array, expected):
    return np.ascontiguousarray(np.asarray(array)).tobytes() == np.ascontiguousarray(expected).tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(3))
def test_every_type_becomes_every_other(part):
    rng = np.random.default_rng(part)
    for source, target in itertools.product(DTYPES[part::3], DTYPES):
        values = random_numbers(rng, source)
        expected = by_numpy(values, target)
        shared = md.asarray(values)
        private, packed = md.asarray(values, storage="private"), shared.copy(padded=False)
        for array in (shared, packed, private):
            made = array.astype(target)
            assert (made.dtype, made.shape, made.storage) == (target, (3, 4), array.storage)
            assert same_bytes(made, expected), f"{source} to {target}"
            assert made.buffer is not array.buffer
        assert same_bytes(md.asarray(shared, dtype=target), expected)
        assert same_bytes(shared.T[::2].astype(target), by_numpy(values.T[::2], target))
        assert shared[:, :0].astype(target).shape == (3, 0)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_the_rule_in_the_docstring():
    """Rounds to even, drops fractions, keeps low bits, infinity past the end, NaN or the largest where there is none."""

    def cast(values, source, target):
        return md.asarray(np.array(values, source)).astype(target).tolist()

    assert cast([2.5, 3.5, 0.3], "float32", "float4_e2m1fn") == [2.0, 4.0, 0.5]
    assert cast([1.9, -1.9], "float32", "int8") == [1, -1]
    assert cast([300, -1], "int16", "uint8") == [44, 255]
    assert cast([17, -9], "int16", "int4") == [1, 7]
    assert cast([1e6], "float32", "float16") == [float("inf")]
    assert cast([1e6], "float32", "float8_e5m2") == [float("inf")]
    assert cast([1e6], "float32", "float4_e2m1fn") == [6.0]
    (nan,) = cast([1e6], "float32", "float8_e4m3fn")
    assert nan != nan
    assert cast([0.0, 0.5, -2.0], "float32", "bool") == [False, True, True]
    with pytest.warns(np.exceptions.ComplexWarning):
        assert cast([1 + 2j], "complex64", "float32") == [1.0]


def test_the_same_type_is_a_copy_or_a_view():
    for array in (md.asarray([1.0, 2.0, 3.0]), md.zeros((2, 4), "int4")[:, :2], md.zeros(3, "int4").copy(padded=True)):
        view = array.astype(array.dtype, copy=False)
        assert view.buffer is array.buffer
        for fact in ("shape", "strides", "byte_offset", "padded"):
            assert getattr(view, fact) == getattr(array, fact)
        copied = array.astype(array.dtype)
        assert copied.buffer is not array.buffer
        assert (copied.tolist(), copied.padded) == (array.tolist(), array.padded)
        assert array.astype("float64", copy=False).dtype == md.float64
    assert md.zeros(3).as_readonly().astype("float32", copy=False).readonly
    assert not md.zeros(3).as_readonly().astype("int8").readonly


def test_padded_items_stay_padded_in_another_small_type():
    padded = md.full(3, 1, "int4").copy(padded=True)
    assert padded.astype("uint2").padded
    assert not padded.astype("uint8").padded
    assert not md.zeros(3, "int4").astype("uint2").padded


def test_several_lanes_are_converted_as_an_axis():
    array = md.full((2, 2), (0.5, 6), "float4_e2m1fnx2")
    for refused in (
        lambda: array.astype("float32"),
        lambda: md.zeros(2).astype("float4_e2m1fnx2"),
        lambda: np.asarray(array),
    ):
        with pytest.raises(TypeError, match="lanes"):
            refused()
    with pytest.raises(TypeError, match=r"a\.view\('float4_e2m1fn'\)"):
        array.copy(storage="private").astype("float32")
    assert array.view("float4_e2m1fn").astype("float32").tolist() == [[0.5, 6, 0.5, 6]] * 2


@pytest.mark.parametrize(("package", "target"), [("ml_dtypes", "bfloat16"), ("ml_dtypes", "int4"), ("numpy", "int8")])
def test_without_the_package_that_converts_its_name_is_in_the_error(package, target):
    program = (
        "import sys\n"
        f"sys.modules[{package!r}] = None\n"
        "import metal_dlpack as md\n"
        "array = md.full(3, 1.0)\n"
        f"try: array.astype({target!r})\n"
        f"except ImportError as error: assert {package!r} in str(error) and 'install' in str(error), error\n"
        "else: raise AssertionError('converted by whom?')\n"
        f"assert md.full(3, 1, {target!r}).tolist() == [1, 1, 1]\n"
        "assert array.astype('float32').tolist() == [1, 1, 1]\n"
    )
    run_child(program, check=True)


def test_a_look_at_a_type_that_ml_dtypes_has_keeps_no_reference_to_it():
    array, dtype = md.zeros(3, "bfloat16"), np.dtype("bfloat16")
    before = sys.getrefcount(dtype)
    for _ in range(100):
        np.asarray(array)
    assert sys.getrefcount(dtype) < before + 50


def test_conversions_leave_nothing_behind(live_buffers):
    for source, target in itertools.product(["int4", "float32", "float8_e4m3fn"], repeat=2):
        md.full((3, 5), 1, source, storage="private").astype(target)
        with pytest.raises((TypeError, ValueError)):
            md.zeros((2, 2), source)[...] = object()


def test_flags_data_and_ctypes_are_numpys():
    grid = md.zeros((4, 6), "int16")
    for array in (grid, grid.T, grid[::2], grid[:1], grid[:0], grid.as_readonly(), md.full((), 1.0)):
        theirs = np.asarray(array)
        for name, key in [("c_contiguous", "C"), ("f_contiguous", "F"), ("writeable", "W"), ("aligned", "A")]:
            there = getattr(theirs.flags, name)
            assert getattr(array.flags, name) == array.flags[key] == array.flags[name.upper()] == there
            assert all(f"{name.upper()} : {there}" in repr(flags) for flags in (array.flags, theirs.flags))
        assert memoryview(theirs) == array.data
        if array.ndim:
            assert array.ctypes.strides[:] == theirs.ctypes.strides[:]
        assert array.ctypes.data == theirs.ctypes.data
    with pytest.raises(AttributeError, match=r"'writeable' .* a.as_readonly\(\)"):
        grid.flags.writeable = False
    with pytest.raises(KeyError, match="no flag 'OWNDATA'; it has C_CONTIGUOUS"):
        grid.flags["OWNDATA"]
    private = md.zeros(3, storage="private")
    assert private.flags.c_contiguous
    with pytest.raises(md.CopyRequiredError, match="private"):
        private.ctypes  # noqa: B018
