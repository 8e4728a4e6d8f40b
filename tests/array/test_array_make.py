"""empty, zeros, ones, full, the same like another array, asarray."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metal_dlpack as md

NUMPY_TYPES = [np.dtype(letter) for letter in "?bBhHilLefdFD"]
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
dtypes = st.sampled_from(NUMPY_TYPES)
storages = st.sampled_from(["shared", "private"])


def same(ours, theirs):
    """Shape, dtype and items, and C order."""
    found = np.array(ours)
    assert (found.shape, found.dtype, found.tolist()) == (theirs.shape, theirs.dtype, theirs.tolist())
    return ours.layout.is_contiguous_c


@given(shape=shapes, dtype=dtypes, storage=storages, value=st.integers(0, 100))
def test_zeros_ones_and_full_are_numpys(shape, dtype, storage, value):
    for ours, theirs in ((md.zeros, np.zeros), (md.ones, np.ones)):
        made = ours(shape, dtype, storage=storage)
        assert same(made, theirs(shape, dtype)) and made.storage == storage
    assert same(md.full(shape, value, dtype, storage=storage), np.full(shape, value, dtype))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (7, "int64"),
        (2**24 + 1, "int64"),
        (7.5, "float32"),
        (1j, "complex64"),
        (np.float16(1.5), "float16"),
        (np.array(3.5), "float64"),
        (np.array(7, "uint8"), "uint8"),
    ],
)
def test_full_has_the_dtype_of_its_value(value, dtype):
    array = md.full((2, 2), value)
    assert (array.dtype, array.tolist()) == (md.dtype(dtype), [[value, value]] * 2)
    assert md.full(2, value, "complex128").tolist() == [complex(value)] * 2


def test_full_takes_a_tensor_of_one_number_and_no_int_beyond_int64(torch):
    tensor = torch.tensor(2.5)
    assert [md.full(1, tensor, dtype).tolist() for dtype in (None, "bfloat16", "complex64")] == [[2.5]] * 3
    with pytest.raises(OverflowError, match="full: 18446744073709551616 does not fit the element type int64"):
        md.full(2, 2**64)
    with pytest.raises(TypeError, match=r"full: array\(\[1, 2\]\) does not fit"):
        md.full(2, np.array([1, 2]))


@given(st.data())
def test_the_same_like_another_array_is_numpys(data):
    model = np.zeros(data.draw(shapes), data.draw(dtypes)).T
    storage = data.draw(storages)
    changes = data.draw(st.fixed_dictionaries({}, optional={"dtype": dtypes, "shape": shapes}))
    for like in (model, md.asarray(model).copy("F", storage=storage)):
        for name, arguments in (("empty_like", ()), ("zeros_like", ()), ("ones_like", ()), ("full_like", (7,))):
            made = getattr(md, name)(like, *arguments, **changes)
            theirs = getattr(np, name)(model, *arguments, order="C", **changes)
            if name == "empty_like":
                made.fill(0)
                theirs[...] = 0
            assert same(made, theirs)
            assert made.storage == (storage if isinstance(like, md.Array) else md.get_storage_mode())
            other = getattr(md, name)(like, *arguments, storage="private", device="metal:0", **changes)
            assert (other.storage, other.shape) == ("private", made.shape)


def test_arrays_of_torch_and_mlx_are_models(torch, mx):
    for model in (torch.zeros(2, 3, dtype=torch.bfloat16), mx.zeros((2, 3), dtype=mx.bfloat16)):
        made = md.ones_like(model)
        assert (made.shape, made.dtype, made.tolist()) == ((2, 3), md.bfloat16, [[1.0] * 3] * 2)


def test_models_of_any_kind_keep_their_padding_and_their_refusals():
    padded = md.zeros(4, "int4").copy(padded=True)
    assert md.zeros_like(padded).padded and md.full_like(padded, 3).tolist() == [3] * 4
    assert not md.zeros_like(padded, dtype="uint4").padded
    assert md.ones(2, "float32x2").tolist() == [(1.0, 1.0)] * 2
    with pytest.raises(OverflowError, match="1 does not fit the element type int1"):
        md.ones(2, "int1")
    with pytest.raises(OverflowError, match="300 does not fit"):
        md.full_like(md.zeros(2, "int8"), 300)

    class Strange:
        shape = (2,)
        dtype = "S3"

    with pytest.raises(TypeError, match="zeros_like: 'S3' is not an element type"):
        md.zeros_like(Strange())
    Strange.shape = "2"
    with pytest.raises(TypeError, match=r"zeros_like: x\.shape must be an int or a sequence"):
        md.zeros_like(Strange())


def test_a_device_has_the_names_that_metal_and_torch_give_it():
    for name in ("metal", "metal:0", "mps", "mps:0", None):
        assert md.zeros(2, device=name).device is md.default_device(), name


def test_a_device_of_torch_is_taken_by_its_name(torch):
    assert md.zeros(2, device=torch.device("mps")).device is md.default_device()
    assert md.zeros(2, device=torch.device("mps", 0)).device is md.default_device()
    with pytest.raises(ValueError, match="'cpu' is not a Metal device"):
        md.zeros(2, device=torch.device("cpu"))


def test_a_name_of_no_device_is_refused(subtests):
    numbers = [f"metal:{number}" for number in (99, "", -1, "+0", "0 ", 10**20)]
    for name in ["mps:1", "mpsx", "gpu", "cuda", "", *numbers]:
        with subtests.test(name=name), pytest.raises(ValueError, match=r"no device .*has 1, called 'metal:0'"):
            md.zeros(2, device=name)


def test_defaults_are_float32_c_order_and_offset_0():
    made = md.empty((2, 3))
    assert (made.dtype, made.strides, made.byte_offset) == (md.float32, (3, 1), 0)
    assert md.empty(()).shape == ()
    assert md.empty(3).shape == (3,)
    assert made.device is md.default_device()


def test_what_cannot_be_a_shape_or_an_element_type_is_refused(subtests, live_buffers):
    refused = [((ValueError, MemoryError), None, (shape,)) for shape in [(-1,), (2, -3), (2**62, 4), (2**40, 2**40)]]
    refused += [(TypeError, "shape", (bad,)) for bad in ("x", 1.5, None, [1.5], object())]
    refused += [(TypeError, "element type", (2, bad)) for bad in ("float31", "float32x", "float32x0", 5, object())]
    for error, match, arguments in refused:
        with subtests.test(arguments=arguments), pytest.raises(error, match=match):
            md.empty(*arguments)


def test_a_different_dtype_converts_and_the_same_does_not():
    source = np.arange(4, dtype="float32")
    assert md.asarray(source, dtype="float32", copy=False).buffer.address is not None
    made = md.asarray(source, dtype="int8")
    assert (made.dtype, made.tolist()) == (md.int8, [0, 1, 2, 3])
    with pytest.raises(md.CopyRequiredError, match="element type"):
        md.asarray(source, dtype="int8", copy=False)
    with pytest.raises(md.CopyRequiredError, match="storage"):
        md.asarray(source, storage="private", copy=False)
    assert np.array(md.asarray(source, storage="private")).tolist() == [0, 1, 2, 3]


def test_what_is_not_made_of_numbers_is_refused(subtests):
    for thing in (None, {}, "abc", 2**70, ["a", 1], len, np.datetime64("2026-01-01")):
        why = rf"^asarray: \S*{type(thing).__name__} (\(|cannot be converted: NumPy gives it ).*give a number"
        with subtests.test(thing=thing), pytest.raises(TypeError, match=why):
            md.asarray(thing)
