"""Random chains of views: the same items, strides and addresses as NumPy's, or the same refusal."""

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

import metal_dlpack as md

#: Types that a view of the bytes may be of, by the size of an item.
TYPES = ["int8", "uint16", "float16", "int32", "float32", "int64", "float64", "complex64", "complex128"]
OPERATIONS = [
    *["[]", "[]", "[]", "reshape", "permute", "T", "mT", "squeeze", "expand_dims", "broadcast_to", "flatten"],
    *["view", "view", "as_readonly"],
]


class NotAView(Exception):
    """NumPy would copy."""


def reshape(array, shape):
    """NumPy's reshape, as a view or not at all."""
    try:
        return np.reshape(array, shape, copy=False)
    except ValueError as error:
        if "copy" in str(error):
            raise NotAView from error
        raise


def flatten(array, start, end):
    if array.ndim == 0:
        return array.reshape(1)
    start, end = (axis + array.ndim if axis < 0 else axis for axis in (start, end))
    if not 0 <= start <= end < array.ndim:
        raise ValueError
    joined = int(np.prod(array.shape[start : end + 1]))
    return reshape(array, array.shape[:start] + (joined,) + array.shape[end + 1 :])


def squeeze(array, *axis):
    if axis and array.ndim == 0:  # which NumPy lets pass for 0 and -1
        raise ValueError
    return array.squeeze(*axis)


def view(array, dtype):
    """NumPy's view where strides count whole items and items lie on their alignment, as ours must."""
    made = array.view(dtype)
    if made.itemsize != array.itemsize:
        steps = [stride for stride, extent in zip(made.strides, made.shape, strict=True) if extent > 1]
        if made.size and any(step % made.itemsize for step in steps):
            raise NotAView
    if made.size and made.ctypes.data % (made.itemsize // (2 if made.dtype.kind == "c" else 1)):
        raise NotAView
    return made


def apply_to_numpy(array, name, values):
    calls = {
        "[]": lambda: array[values[0]],
        "reshape": lambda: reshape(array, values[0]),
        "permute": lambda: array.transpose(values[0]),
        "T": lambda: array.T,
        "mT": lambda: array.mT,
        "squeeze": lambda: squeeze(array, *values),
        "expand_dims": lambda: np.expand_dims(array, *values),
        "broadcast_to": lambda: np.broadcast_to(array, *values),
        "flatten": lambda: flatten(array, *values),
        "view": lambda: view(array, *values),
        "as_readonly": lambda: array,
    }
    return calls[name]()


def apply_to_ours(array, name, values):
    if name == "[]":
        return array[values[0]]
    if name in {"T", "mT"}:
        return getattr(array, name)
    return getattr(array, name)(*values)


@st.composite
def keys(draw, shape):
    entries = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        entries.append(draw(st.one_of(st.slices(extent), st.integers(-extent - 1, extent))))
    for extra in (None, None, ...):
        if draw(st.integers(0, 4)) == 0:
            entries.insert(draw(st.integers(0, len(entries))), extra)
    return tuple(entries) if len(entries) != 1 or draw(st.booleans()) else entries[0]


@st.composite
def shapes_for(draw, size):
    """A shape of as many items, mostly, perhaps with one -1."""
    rest, shape = size, []
    while rest > 1 and len(shape) < 4:
        shape.append(draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0])))
        rest //= shape[-1]
    shape = draw(st.permutations([*shape, rest]))
    if draw(st.integers(0, 3)) == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = draw(st.sampled_from([-1, -1, 2]))
    return tuple(shape)


@st.composite
def operations(draw, array):
    name = draw(st.sampled_from(OPERATIONS))
    axes = st.integers(-array.ndim - 1, array.ndim)
    if name == "[]":
        return name, (draw(keys(array.shape)),)
    if name == "reshape":
        return name, (draw(shapes_for(array.size)),)
    if name == "permute":
        return name, (
            tuple(draw(st.permutations(range(-array.ndim, 0) if draw(st.booleans()) else range(array.ndim)))),
        )
    if name == "squeeze":
        ones = [axis for axis, extent in enumerate(array.shape) if extent == 1]
        chosen = st.sampled_from(ones) if ones and draw(st.booleans()) else axes
        return name, draw(st.sampled_from([(), (draw(chosen),)]))
    if name == "expand_dims":
        return name, (draw(axes),)
    if name == "broadcast_to":
        extents = tuple(draw(st.sampled_from([extent, 3])) if extent == 1 else extent for extent in array.shape)
        return name, (draw(st.sampled_from([(), (2,), (1, 0)])) + extents,)
    if name == "flatten":
        return name, (draw(axes), draw(axes))
    if name == "view":
        return name, (draw(st.sampled_from(TYPES)),)
    return name, ()


def assert_same(ours, theirs, base):
    assert (ours.shape, ours.dtype.numpy, ours.ndim, ours.size) == (
        theirs.shape,
        theirs.dtype,
        theirs.ndim,
        theirs.size,
    )
    assert ours.nbytes == theirs.nbytes
    assert np.asarray(ours).tobytes() == theirs.tobytes()
    if theirs.size:
        assert ours.buffer.address + ours.byte_offset == theirs.ctypes.data
        for extent, mine, bytes_ in zip(ours.shape, ours.strides, theirs.strides, strict=True):
            assert extent == 1 or mine * ours.itemsize == bytes_
        assert ours.layout.is_contiguous_c == theirs.flags.c_contiguous
        assert ours.layout.is_contiguous_f == theirs.flags.f_contiguous
    assert ours.buffer is base.buffer


@given(st.data())
@settings(max_examples=300)
def test_a_chain_of_views_is_numpy_s(data):
    shape = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 4, 6, 8]), max_size=4))
    assume(np.prod(shape) < 600)
    theirs = np.arange(int(np.prod(shape)), dtype=data.draw(st.sampled_from(["int32", "int8", "float64"]))).reshape(
        shape
    )
    base = ours = md.asarray(theirs, copy=True)
    memory = np.asarray(base)  # the same memory: addresses can be compared
    theirs = memory
    is_readonly = False
    for _ in range(data.draw(st.integers(1, 6))):
        name, values = data.draw(operations(theirs))
        note(f"{theirs.shape} {theirs.strides} {theirs.dtype}: {name} {values}")
        try:
            expected = apply_to_numpy(theirs, name, values)
        except NotAView:
            with pytest.raises(ValueError, match=r"copy|divide|alignment"):
                apply_to_ours(ours, name, values)
            continue
        except (ValueError, IndexError, TypeError) as error:
            with pytest.raises((ValueError, IndexError, TypeError)) as refused:
                apply_to_ours(ours, name, values)
            assert isinstance(refused.value, IndexError) == isinstance(error, IndexError) or name != "[]"
            continue
        theirs, ours = np.asarray(expected), apply_to_ours(ours, name, values)
        if isinstance(expected, np.generic):  # NumPy gives a number, which has memory of its own
            assert ours.item() == expected
            return
        is_readonly |= name in {"broadcast_to", "as_readonly"}
        assert_same(ours, theirs, base)
        assert ours.readonly == is_readonly
    if not is_readonly and ours.size:
        ours[...] = np.zeros(ours.shape, ours.dtype.numpy)
        assert not theirs.any()
