"""Views: NumPy is the oracle for what every one of them shows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import metal_dlpack as md

shapes = st.lists(st.integers(0, 4), max_size=5).map(tuple)


def numbered(shape):
    """An Array and the NumPy array it must look like, over the same memory."""
    array = md.empty(shape, "int32")
    mirror = np.asarray(array)
    mirror[...] = np.arange(mirror.size, dtype="int32").reshape(shape)
    return array, mirror


def same(array, mirror):
    """Same shape, same items, and the same memory: strides and address too."""
    assert array.shape == mirror.shape
    assert array.tolist() == mirror.tolist()
    if mirror.size:
        base = array.buffer.address
        assert base + array.byte_offset == mirror.__array_interface__["data"][0]
        moving = [axis for axis, extent in enumerate(mirror.shape) if extent > 1]
        assert [array.strides[axis] * 4 for axis in moving] == [mirror.strides[axis] for axis in moving]


@st.composite
def shapes_with_keys(draw):
    shape = draw(shapes)
    entries = []
    for extent in shape:
        index = st.integers(-extent, extent - 1) if extent else st.nothing()
        part = st.slices(extent) if extent else st.just(slice(None))
        entries.append(draw(st.one_of(index, part)))
    entries = entries[: draw(st.integers(0, len(entries)))]
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    key = tuple(entries)
    return shape, key[0] if len(key) == 1 and draw(st.booleans()) else key


@given(shapes_with_keys())
def test_basic_indexing_shows_what_numpy_shows(case):
    shape, key = case
    array, mirror = numbered(shape)
    if not isinstance(mirror[key], np.ndarray):
        key = (*_as_tuple(key), ...)  # NumPy's way to a view of one item
    same(array[key], mirror[key])


def _as_tuple(key):
    key = key if isinstance(key, tuple) else (key,)
    return tuple(entry for entry in key if entry is not Ellipsis)


@pytest.mark.parametrize("key", [5, -6, (0, 4), (0, 0, 0)])
def test_an_index_out_of_range_is_an_index_error(key):
    with pytest.raises(IndexError):
        md.empty((5, 4))[key]


@pytest.mark.parametrize("key", ["a", 1.0, [0, 1], True, (..., ...)])
def test_a_key_that_is_no_basic_index_is_an_index_error(key):
    with pytest.raises((IndexError, TypeError)):
        md.empty((5, 4))[key]


@given(shapes, st.randoms())
def test_permute_shows_what_transpose_shows(shape, random):
    array, mirror = numbered(shape)
    axes = list(range(len(shape)))
    random.shuffle(axes)
    same(array.permute(axes), mirror.transpose(axes))
    same(array.permute(*axes), mirror.transpose(axes))
    same(array.T, mirror.T)


def test_permute_refuses_what_is_no_permutation():
    array = md.empty((2, 3))
    for axes in [(0,), (0, 0), (0, 2), (0, 1, 2)]:
        with pytest.raises(ValueError, match="permute"):
            array.permute(axes)


def test_the_last_two_axes_swap_by_mT():
    array, mirror = numbered((2, 3, 4))
    same(array.mT, mirror.swapaxes(-1, -2))
    with pytest.raises(ValueError, match="at least 2 dimensions"):
        md.empty(3).mT  # noqa: B018


@given(st.sampled_from([(12,), (3, 4), (4, 3), (2, 3, 2), (1, 12), (2, -1), (-1,), (3, 2, 2, 1)]), st.randoms())
def test_reshape_is_a_view_exactly_where_numpy_makes_one(shape, random):
    array, mirror = numbered((2, 2, 3))
    axes = [0, 1, 2]
    random.shuffle(axes)
    array, mirror = array.permute(axes), mirror.transpose(axes)
    expected = mirror.reshape(shape)
    if np.shares_memory(expected, mirror):
        same(array.reshape(shape), expected)
        same(array.reshape(*shape), expected)
    else:
        with pytest.raises(md.CopyRequiredError, match=r"shape \(.*strides \(.*shape .*copy\(\)"):
            array.reshape(shape)
        assert array.copy().reshape(shape).tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(5,), (-1, -1), (-1, 5), (-2,)])
def test_a_reshape_that_cannot_be_is_a_value_error(shape):
    with pytest.raises(ValueError, match="reshape"):
        md.empty((3, 4)).reshape(shape)


def test_squeeze_and_expand_dims_undo_each_other():
    array, mirror = numbered((1, 3, 1, 2))
    same(array.squeeze(), mirror.squeeze())
    same(array.squeeze(0), mirror.squeeze(0))
    same(array.squeeze((0, -2)), mirror.squeeze((0, -2)))
    for axis in range(-5, 5):
        same(array.expand_dims(axis), np.expand_dims(mirror, axis))
    with pytest.raises(ValueError, match="extent 3"):
        array.squeeze(1)
    with pytest.raises(ValueError, match="out of range"):
        array.expand_dims(5)


@given(st.lists(st.sampled_from([0, 1, 1, 1, 2, 3]), max_size=6).map(tuple), st.data())
def test_squeezed_axes_are_numpy_s(shape, data):
    array, mirror = numbered(shape)
    ndim = len(shape)
    axes = tuple(data.draw(st.lists(st.integers(-ndim, ndim - 1), unique_by=lambda axis: axis % ndim)) if ndim else [])
    long_axes = sorted(axis % ndim for axis in axes if shape[axis] != 1)
    if not long_axes:
        same(array.squeeze(axes), mirror.squeeze(axes))
        return
    with pytest.raises(ValueError, match="cannot select an axis"):
        mirror.squeeze(axes)
    axis = long_axes[0]
    with pytest.raises(
        ValueError,
        match=f"^Array.squeeze: axis {axis} has extent {shape[axis]}; only axes of extent 1 can be squeezed.$",
    ):
        array.squeeze(axes)


def test_broadcast_to_repeats_without_memory_and_is_readonly():
    array, mirror = numbered((3, 1))
    wide = array.broadcast_to((2, 3, 4))
    assert wide.tolist() == np.broadcast_to(mirror, (2, 3, 4)).tolist()
    assert wide.strides == (0, 1, 0)
    assert wide.readonly
    with pytest.raises(ValueError, match="broadcast"):
        array.broadcast_to((2, 2))


def test_flatten_joins_a_run_of_axes():
    array, mirror = numbered((2, 3, 4))
    same(array.flatten(), mirror.reshape(24))
    same(array.flatten(0, 1), mirror.reshape(6, 4))
    same(array.flatten(1), mirror.reshape(2, 12))
    same(array[0, 0, 0].flatten(), mirror[0, 0, :1])
    with pytest.raises(md.CopyRequiredError):
        array.T.flatten()
    with pytest.raises(ValueError, match="after end_axis"):
        array.flatten(2, 1)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64", "complex64"])
def test_view_shows_the_same_bytes(dtype):
    array, mirror = numbered((3, 4))
    viewed = array.view(dtype)
    expected = mirror.view(dtype)
    assert viewed.shape == expected.shape
    assert np.asarray(viewed).tobytes() == expected.tobytes()
    assert viewed.buffer is array.buffer


def test_view_refuses_bytes_that_do_not_divide():
    with pytest.raises(ValueError, match="divide"):
        md.empty((2, 3), "int32").view("int64")
    with pytest.raises(ValueError, match="contiguous"):
        md.empty((4, 4), "int32").T.view("int8")
    with pytest.raises(ValueError, match="alignment"):
        md.empty(9, "int8")[1:].view("int64")


def test_packed_types_view_where_they_fall_on_bytes():
    packed = md.empty((2, 4), "int4")
    assert packed.nbytes == 4
    assert packed.view("uint8").shape == (2, 2)
    assert packed.view("uint8").view("int4").shape == (2, 4)
    assert packed[1].byte_offset == 2
    with pytest.raises(md.CopyRequiredError, match="byte"):
        packed[0, 1:]


def test_as_readonly_refuses_every_way_of_writing():
    array = md.zeros(3).as_readonly()
    assert array.readonly
    assert array[1:].readonly
    for write in (lambda: array.fill(1), lambda: array.__setitem__(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    assert not np.asarray(array).flags.writeable
    with pytest.raises(TypeError):
        memoryview(array)[0] = 1.0


def test_every_view_shares_the_buffer_object():
    array = md.empty((2, 3))
    views = [array[0], array.T, array.reshape(6), array.squeeze(), array.as_readonly(), array.view("int32")]
    assert all(view.buffer is array.buffer for view in views)


def test_iteration_gives_the_rows():
    array, mirror = numbered((3, 2))
    assert [row.tolist() for row in array] == mirror.tolist()
    assert len(array) == 3
    with pytest.raises(TypeError):
        iter(array[0, 0]).__next__()
    with pytest.raises(TypeError):
        len(array[0, 0])


def test_sixty_four_dimensions_are_the_limit():
    array = md.zeros((1,) * 64)
    assert array.ndim == 64
    with pytest.raises(ValueError):
        array.expand_dims(0)
    with pytest.raises(ValueError):
        md.zeros((1,) * 65)
