"""Views: NumPy is the oracle for what every one of them shows, and for whether there is one."""

import ctypes
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st
from machine import tries

import metal_dlpack as md

#: Types that a view of the bytes may be of, by the size of an item.
TYPES = ["int8", "uint16", "float16", "int32", "float32", "int64", "float64", "complex64", "complex128"]


class NotAView(Exception):
    """NumPy would copy, or lets pass what ours says in this word."""


def reshape(array, shape):
    """NumPy's reshape, as a view or not at all."""
    try:
        return np.reshape(array, shape, copy=False)
    except ValueError as error:
        if "copy" in str(error):
            raise NotAView("copy") from error
        raise


def squeeze(array, *axis):
    if array.ndim == 0 and axis not in {(), ((),)}:  # which NumPy lets pass for 0 and -1
        raise ValueError
    return array.squeeze(*axis)


def view(array, dtype):
    """NumPy's view where strides count whole items and items lie on their alignment, as ours must."""
    made = array.view(dtype)
    if made.itemsize != array.itemsize:
        steps = [stride for stride, extent in zip(made.strides, made.shape, strict=True) if extent > 1]
        if made.size and any(step % made.itemsize for step in steps):
            raise NotAView("divide")
    if made.size and made.ctypes.data % (made.itemsize // (2 if made.dtype.kind == "c" else 1)):
        raise NotAView("alignment")
    return made


def apply_to_ours(array, name, values):
    if name == "[]":
        return array[values[0]]
    if name in {"T", "mT"}:
        return getattr(array, name)
    if name in {"reshape", "permute", "transpose"} and len(values[0]) % 2:
        values = values[0]  # f(2, 3, 4) is f((2, 3, 4)); but transpose(0, 1) is torch's
    return getattr(array, name)(*values)


@st.composite
def keys(draw, shape):
    entries = []
    extents = (*shape, 3) if draw(st.integers(0, 9)) == 0 else shape  # one index too many, now and then
    for extent in extents[: draw(st.integers(0, len(extents)))]:
        bound = st.none() | st.integers(-extent - 2, extent + 2) | st.sampled_from([-(2**70), 2**62, 2**70])
        part = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2, 7, 2**62, -(2**63)]))
        entries.append(draw(st.one_of(st.slices(extent), part, st.integers(-extent - 1, extent))))
    for extra in (None, None, ...):
        if draw(st.integers(0, 4)) == 0:
            entries.insert(draw(st.integers(0, len(entries))), extra)
    return tuple(entries) if len(entries) != 1 or draw(st.booleans()) else entries[0]


@st.composite
def shapes_for(draw, size):
    """A shape of as many items, mostly, perhaps with a -1 or two."""
    rest, shape = size, []
    while rest > 1 and len(shape) < 4:
        shape.append(draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0])))
        rest //= shape[-1]
    shape = draw(st.permutations([*shape, rest]))
    if draw(st.integers(0, 3)) == 0:
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            shape[draw(st.integers(0, len(shape) - 1))] = draw(st.sampled_from([-1, -1, 2]))
    return tuple(shape)


@st.composite
def squeezed_axes(draw, shape):
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    any_axis = st.integers(-len(shape) - 1, len(shape))
    chosen = st.sampled_from(ones) if ones and draw(st.booleans()) else any_axis
    return draw(st.sampled_from([(), (draw(chosen),), (tuple(ones),)]))


@st.composite
def broader_shapes(draw, shape):
    extents = tuple(draw(st.sampled_from([extent, 3])) if extent == 1 else extent for extent in shape)
    return draw(st.sampled_from([(), (2,), (1, 0)])) + extents


def operations(array):
    """Name: (how NumPy does it, what it may be given)."""
    ndim = array.ndim
    axes, nothing = st.integers(-ndim - 1, ndim), st.just(())
    order = st.permutations(range(ndim)) | st.permutations(range(-ndim, 0)) | st.lists(axes, max_size=ndim + 1)
    some_axes = axes | st.lists(axes, max_size=ndim + 1).map(tuple) | st.permutations(range(ndim)).map(tuple)
    return {
        "[]": (lambda key: array[key], st.tuples(keys(array.shape))),
        "reshape": (lambda shape: reshape(array, shape), st.tuples(shapes_for(array.size))),
        "permute": (array.transpose, st.tuples(order.map(tuple))),
        "T": (lambda: array.T, nothing),
        "mT": (lambda: array.mT, nothing),
        "squeeze": (lambda *axis: squeeze(array, *axis), squeezed_axes(array.shape)),
        "expand_dims": (lambda axis: np.expand_dims(array, axis), st.tuples(axes)),
        "broadcast_to": (lambda shape: np.broadcast_to(array, shape), st.tuples(broader_shapes(array.shape))),
        "transpose": (array.transpose, st.tuples(order.map(tuple))),
        "swapaxes": (array.swapaxes, st.tuples(axes, axes)),
        "moveaxis": (lambda source, place: np.moveaxis(array, source, place), st.tuples(some_axes, some_axes)),
        "view": (lambda dtype: view(array, dtype), st.tuples(st.sampled_from(TYPES))),
        "as_readonly": (lambda: array, nothing),
    }


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
@settings(max_examples=tries(300))
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
        possible = operations(theirs)
        name = data.draw(st.sampled_from([*possible, "[]", "[]", "view"]))
        apply_to_numpy, arguments = possible[name]
        values = data.draw(arguments)
        note(f"{theirs.shape} {theirs.strides} {theirs.dtype}: {name} {values}")
        try:
            expected = apply_to_numpy(*values)
        except NotAView as word:
            with pytest.raises(ValueError, match=str(word)):
                apply_to_ours(ours, name, values)
            continue
        except (ValueError, IndexError, TypeError) as error:
            with pytest.raises((ValueError, IndexError, TypeError)) as refused:
                apply_to_ours(ours, name, values)
            assert isinstance(refused.value, IndexError) == isinstance(error, IndexError) or name != "[]"
            assert name in str(refused.value) or name not in {"reshape", "permute"}
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


# ---- what is refused ----


REFUSED = [
    ((1, 3), lambda a: a.squeeze(1), "axis 1 has extent 3; only axes of extent 1 can be squeezed.$"),
    ((1, 3), lambda a: a.squeeze((0, 2)), "out of range"),
    ((1, 3), lambda a: a.expand_dims(3), "out of range"),
    ((3, 1), lambda a: a.broadcast_to((2, 2)), "broadcast"),
    ((2, 3), lambda a: a.flatten(1, 0), r"start_axis \(1\) comes after end_axis \(0\)"),
    ((2, 3), lambda a: a.ravel("K"), r"Array.ravel: order \('K'\) must be 'C', 'F' or 'A'"),
    ((2, 3), lambda a: a.moveaxis((0, 1), 0), "source names 2 axes and destination 1 places"),
    ((2, 3), lambda a: a.transpose(0, -1), r"for torch .* for NumPy; write a.swapaxes\(0, 1\) or a.permute\(0, 1\)"),
    ((3, 4), lambda a: a.reshape(-2), "reshape"),
    ((3, 4), lambda a: a.reshape(-1, -1), "only one extent of a shape may be -1"),
    ((3,), lambda a: a.mT, "at least 2 dimensions, not 1"),
    ((2, 3), lambda a: a.view("int64"), "divide"),
    ((4, 4), lambda a: a.T.view("int8"), "contiguous"),
    ((9,), lambda a: a.view("int8")[1:33].view("int64"), "alignment"),
]


@pytest.mark.parametrize(("shape", "call", "match"), REFUSED)
def test_a_view_that_cannot_be_says_why(shape, call, match):
    with pytest.raises(ValueError, match=match):
        call(md.empty(shape))


def test_a_view_that_needs_a_copy_says_so_with_shapes_and_strides():
    array = md.empty((2, 3)).T
    with pytest.raises(md.CopyRequiredError, match=r"shape \(3, 2\) .*strides \(1, 3\) .*shape \(6,\) .*copy\(\)"):
        array.reshape(6)
    assert array.copy().reshape(6).shape == (6,)


@given(data=st.data())
def test_all_items_in_one_row_are_numpy_s_and_torch_s(torch, data):
    """ravel is a view where NumPy's is one, flatten never; tobytes takes any strides."""
    theirs = np.arange(48, dtype="int16").reshape(data.draw(st.permutations([2, 3, 8]) | st.permutations([1, 4, 12])))
    theirs = theirs.transpose(data.draw(st.permutations(range(3))))
    theirs = theirs[tuple(data.draw(st.slices(extent)) for extent in theirs.shape)]
    ours = md.asarray(theirs, copy=False)
    order = data.draw(st.sampled_from("CFA"))
    row, flat = ours.ravel(order), ours.flatten(order)
    assert row.tolist() == flat.tolist() == theirs.ravel(order).tolist()
    assert ours.tobytes(order) == theirs.tobytes(order)
    if theirs.size:
        assert md.shares_memory(row, ours) == np.shares_memory(theirs.ravel(order), theirs)
    assert not md.shares_memory(flat, ours)
    start, end = sorted(data.draw(st.lists(st.integers(-3, -1), min_size=2, max_size=2)))
    joined = ours.flatten(start, end)
    expected = torch.from_numpy(theirs.copy()).flatten(start, end)
    assert (joined.shape, joined.tolist()) == (tuple(expected.shape), expected.tolist())
    assert not joined.readonly


def test_one_row_of_what_numpy_has_not():
    """Private storage, packed items, read-only views, no axes."""
    private = md.asarray(np.arange(6, dtype="int16").reshape(2, 3)).copy(storage="private")
    assert (private.T.ravel().storage, private.ravel().buffer is private.buffer) == ("private", True)
    assert private.T.flatten().copy(storage="shared").tolist() == [0, 3, 1, 4, 2, 5]
    assert private.tobytes("F") == np.arange(6, dtype="int16").reshape(2, 3).tobytes("F")
    packed = md.asarray([1, 2, 3, 4, 5, 6], dtype="int4").reshape(2, 3)
    assert packed.T.flatten().tolist() == [1, 4, 2, 5, 3, 6]
    assert (packed.tobytes(), packed[:1].tobytes()) == (b"\x21\x43\x65", b"\x21\x03")
    assert packed.copy(padded=True).tobytes() == bytes([1, 2, 3, 4, 5, 6])
    readonly = md.ones(3).as_readonly()
    assert (readonly.ravel().readonly, readonly.flatten().readonly) == (True, False)
    assert md.full((), 2.0).flatten().shape == md.full((), 2.0).ravel().shape == (1,)


def test_two_ints_transpose_where_numpy_and_torch_agree(torch):
    for shape in [(2, 3), (2, 3, 4)]:
        array, tensor = md.zeros(shape), torch.zeros(shape)
        for axes in itertools.product(range(-len(shape), len(shape)), repeat=2):
            try:
                theirs = {np.zeros(shape).transpose(axes).shape, tuple(tensor.transpose(*axes).shape)}
            except ValueError:  # NumPy has no such call
                theirs = {tuple(tensor.transpose(*axes).shape)}
            if len(theirs) == 1:
                assert {array.transpose(*axes).shape} == theirs
            else:
                with pytest.raises(ValueError, match="swapaxes"):
                    array.transpose(*axes)
    assert array.transpose().shape == array.transpose(None).shape == (4, 3, 2)


def test_iteration_gives_the_rows():
    array = md.asarray([[0, 1], [2, 3], [4, 5]])
    assert [row.tolist() for row in array] == [[0, 1], [2, 3], [4, 5]]
    assert all(md.shares_memory(row, array) for row in array)
    assert len(array) == 3
    with pytest.raises(TypeError, match="0-dimensional"):
        iter(array[0, 0])
    with pytest.raises(TypeError, match="0-dimensional"):  # as C code asks, which takes no iterator
        ctypes.pythonapi.PySequence_GetItem(ctypes.py_object(array[0, 0]), ctypes.c_ssize_t(0))
    with pytest.raises(TypeError):
        len(array[0, 0])


def test_sixty_four_dimensions_are_the_limit():
    array = md.zeros((1,) * 64)
    assert array.ndim == 64
    with pytest.raises(ValueError):
        array.expand_dims(0)
    with pytest.raises(ValueError):
        md.zeros((1,) * 65)
