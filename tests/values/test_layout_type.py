"""StridedLayout by itself; what indices and operations give: test_layout_peer.py and test_array_views.py."""

import copy
import inspect
import itertools
import math
import pickle
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import tries

import metal_dlpack as md

Layout = md.StridedLayout
MANY = hypothesis.settings(max_examples=tries(100))
shapes = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 6]), max_size=5).map(tuple)


def offsets(layout):
    """The offset of every item, as an array of the layout's shape."""
    result = np.full(layout.shape, layout.slice_offset, dtype=np.int64)
    strides = layout.strides if layout.strides is not None else Layout.dense(layout.shape, 1).strides
    for axis, (extent, stride) in enumerate(zip(layout.shape, strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        result += steps.reshape([-1 if i == axis else 1 for i in range(layout.ndim)])
    return result


@st.composite
def layouts(draw):
    """Dense ones in any order, parts of them, broadcast ones, and any strides."""
    shape = draw(shapes)
    kind = draw(st.sampled_from(["any", "dense", "none", "part"]))
    if kind == "none":
        return Layout(shape, None, draw(st.sampled_from([1, 4, 16])))
    if kind == "any":
        return Layout(shape, tuple(draw(st.integers(-9, 9)) for _ in shape), 4)
    layout = Layout.dense(shape, 4, draw(st.permutations(range(len(shape)))))
    if kind == "part":
        layout = layout[tuple(draw(st.slices(extent)) if extent else slice(None) for extent in shape)]
    return layout


# ---- indices ----


def test_an_index_out_of_range_is_refused(subtests):
    for key in [2, -3, (0, 3), (0, -4), (slice(None), 3), 2**62, (0, 0, 0), (..., 0, 0, 0), (..., ...)]:
        with subtests.test(key=key), pytest.raises(ValueError):
            Layout.dense((2, 3), 4)[key]
        with subtests.test(key=key), pytest.raises(ValueError):
            Layout.dense((2, 3), 4).sliced(key)
        if key != (..., ...):
            with subtests.test(key=key), pytest.raises(IndexError):
                md.empty((2, 3))[key]


def test_what_is_no_index_is_a_type_error(subtests):
    for key in [1.0, "1", True, False, [0], (0, 1.0), (0, True), (0, [1]), np.True_, {}, slice("a")]:
        with subtests.test(key=key), pytest.raises(TypeError):
            Layout.dense((2, 3), 4)[key]


def test_an_index_s_own_error_comes_through():
    class Bad:
        def __index__(self):
            raise KeyError("mine")

    for key in (Bad(), (0, Bad()), slice(Bad(), None)):
        with pytest.raises(KeyError, match="mine"):
            Layout.dense((2, 3), 4)[key]


# ---- views ----


def test_axes_that_follow_each_other_across_a_gap_are_joined():
    assert Layout((2, 3), (6, 2), 4).reshaped((6,)).strides == (2,)
    assert Layout((2, 3, 2), (12, 4, 1), 4).reshaped((6, 2)).strides == (4, 1)


def bytes_of(layout):
    """The offset of every byte, in order of the items."""
    return (offsets(layout)[..., None] * layout.itemsize + np.arange(layout.itemsize)).ravel()


@given(layouts(), st.sampled_from([1, 2, 4, 8, 12, 16]), st.booleans())
@MANY
def test_a_repacked_layout_has_the_same_bytes_in_order(layout, itemsize, keep_dim):
    try:
        result = layout.repacked(itemsize, keep_dim=keep_dim)
    except ValueError:
        return
    assert result.itemsize == itemsize
    assert np.array_equal(bytes_of(result), bytes_of(layout))


def test_an_axis_of_one_item_is_dropped_where_it_is_not_kept():
    assert Layout((2, 4), None, 1).repacked(4, keep_dim=False).shape == (2,)
    assert Layout((2, 4), None, 1).repacked(4).shape == (2, 1)


def test_the_largest_itemsize_is_a_common_divisor_that_fits_the_layout_s():
    for itemsize in [1, 2, 3, 4, 6, 12]:
        for extent, limit, address in itertools.product((1, 2, 3, 5, 8), range(itemsize, 50), (0, 8, 30, -12)):
            layout = Layout((3, extent), (2 * extent, 1), itemsize)
            divisor = math.gcd(limit, address, extent * itemsize, 2 * extent * itemsize)
            fits = divisor % itemsize == 0 or itemsize % divisor == 0
            assert layout.max_compatible_itemsize(limit, address) == (divisor if fits else itemsize), (
                extent,
                limit,
                address,
            )


def test_a_refusal_to_repack_says_which_rule_and_both_numbers(subtests):
    for layout, values, words in [
        (Layout.dense((5, 4), 4), (32,), r"extent 4 .* multiple of 8"),
        (Layout.dense((5, 0), 4), (8,), r"extent 0 .* positive"),
        (Layout.dense((5, 4), 4, "F"), (8,), r"stride .* must be 1, not 5"),
        (Layout((5, 4), (5, 1), 4), (8,), r"other stride \(5\) .* multiple of 2"),
        (Layout.dense((5, 4), 4)[:, 1:3], (8,), r"slice_offset \(1\) .* multiple of 2"),
        (Layout.dense((5, 4), 4), (8, 4), r"data_ptr \(4\) .* itemsize \(8\)"),
        (Layout.dense((5, 4), 4), (6,), r"items of 4 bytes .* items of 6 bytes"),
        (Layout.dense((5, 4), 4), (0,), r"itemsize \(0\)"),
        (Layout.dense((5, 4), 4), (8, 0, 2), r"axis .* out of range"),
        (Layout.dense((), 4), (8,), r"axis -1 is out of range for 0 dimensions"),
        (Layout.dense((5, 4), 4), (8, 0, -3), r"axis -3 is out of range for 2 dimensions"),
    ]:
        with subtests.test(words=words), pytest.raises(ValueError, match=words):
            layout.repacked(*values)


# ---- limits ----


def test_a_layout_without_axes_takes_nothing_from_the_one_before():
    """What is left of 64 axes lies where the axes of the next layout would."""
    for last in [2, 3]:
        before = Layout((1,) * 63 + (last,), None, 8)
        assert before.reshaped((1,) * 62 + (last, 1)).shape[-1] == 1
        assert before.reshaped(before.shape).shape == before.shape
        assert Layout((), None, 8).reshaped((1, 1)).strides == (1, 1)


def test_sixty_four_dimensions_do_and_one_more_does_not():
    layout = Layout((1,) * 60 + (2, 3, 4, 5), None, 8)
    assert (layout.ndim, layout.volume, layout.stride_order) == (64, 120, tuple(range(64)))
    assert layout.permuted(range(63, -1, -1)).permuted(range(63, -1, -1)) == layout.to_dense("C")[...]
    assert layout.flattened() == Layout.dense((120,), 8)
    assert layout.flattened_axis_mask() == 2**64 - 2
    assert layout.squeezed().unsqueezed(range(60)).shape == layout.shape
    assert layout.unsqueezed(()) is layout
    assert layout.reshaped((120, *(1,) * 63)).ndim == 64
    assert eval(repr(layout), {"StridedLayout": Layout}) == layout
    for refused in (
        lambda: Layout((1,) * 65, None, 1),
        lambda: Layout.dense((1,) * 65, 1),
        lambda: layout.unsqueezed(0),
        lambda: layout[None],
        lambda: layout.broadcast_to((1,) * 65),
        lambda: layout.reshaped((1,) * 65),
    ):
        with pytest.raises(ValueError):
            refused()


def test_values_survive_at_every_number_of_dimensions():
    for ndim in [0, 1, 7, 8, 9, 63, 64]:
        shape = tuple(2 if axis % 4 == 0 else 1 for axis in range(ndim))
        layout = Layout.dense(shape, 2, "F")
        again = Layout(layout.shape, layout.strides, 2)
        assert again == layout
        assert hash(again) == hash(layout)
        assert again.permuted(range(ndim)) == layout
        assert pickle.loads(pickle.dumps(layout)) == layout
        assert sys.getsizeof(layout) < 400 + 16 * ndim


def test_what_passes_64_bits_is_refused():
    for make in [
        lambda: Layout((2**62, 4, 0), None, 1),
        lambda: Layout((3, 3), (2**61, 2**61), 1),
        lambda: Layout((0,), (2**62,), 2),
        lambda: Layout((2**63,), None, 1),
        lambda: Layout((1,), (2**63,), 1),
        lambda: Layout((1,), None, 2**63),
        lambda: Layout.dense((2**40, 2**40), 1, "F"),
        lambda: Layout((1,), None, 4).broadcast_to((2**62,)),
        lambda: Layout((2, 2), (2**62, 5), 1).unsqueezed(0),
        lambda: Layout((2, 2), (2**62, 5), 1).reshaped((1, 2, 2)),
        lambda: Layout((2**60,), (1,), 8).repacked(1, axis=0),
        lambda: Layout._restore((1, 4), (2**61, 1), 4, 0).repacked(1),  # as an Array's layout can be
        lambda: Layout((0, 5), (1, 2**62), 1)[:, 4],
        lambda: Layout((0, 5), (1, 2**62), 1)[:, ::4],
        lambda: Layout((0, 5), (1, 2**62), 1)[:, 4:],
        lambda: Layout((2,), None, 1)[2**64],
        lambda: Layout((2,), None, 1).flattened(mask=-1),
        lambda: Layout((2,), None, 1).flattened(mask=2**64),
    ]:
        try:
            layout = make()
        except OverflowError as error:
            assert "64" in str(error)
        else:
            pytest.fail(str(layout))


def test_what_just_fits_is_taken():
    top = 2**63 - 1
    assert Layout((2,), (top - 1,), 1).required_size_in_bytes() == top
    assert Layout((2,), (-(2**63),), 1).min_offset == -(2**63)
    assert Layout((top,), None, 1).volume == top
    assert Layout((top, 0), None, 1).volume == 0
    assert Layout((1,), None, top).required_size_in_bytes() == top
    assert Layout((2, 2), (5, 2**62), 1).flattened().shape == (2, 2)
    assert Layout((2,), (2**62,), 1)[::4].strides == (2**62,)


def test_a_refusal_says_the_rule_and_the_numbers(subtests):
    for values, words in [
        (((2, -3), None, 4), r"extent -3 of axis 1"),
        (((2, 3), (3,), 4), r"1 strides are given for 2 extents"),
        (((2, 3), (12, 5), 4, True), r"stride 5 of axis 1 .* itemsize \(4 bytes\)"),
        (((2, 3), None, 0), r"itemsize \(0\)"),
        (((2, 3), (1, 1), -4, True), r"itemsize \(-4\)"),
    ]:
        with subtests.test(words=words), pytest.raises(ValueError, match=words):
            Layout(*values)


def test_a_wrong_call_is_a_type_error(subtests):
    for call in [
        lambda: Layout((2,), None),
        lambda: Layout((2,), None, 4, False, 1),
        lambda: Layout((2,), None, 4, order="C"),
        lambda: Layout("23", None, 4),
        lambda: Layout(None, None, 4),
        lambda: Layout((2, "3"), None, 4),
        lambda: Layout.dense((2,)),
        lambda: Layout.dense_like((2, 3)),
        lambda: Layout((2,), None, 4).reshaped(),
        lambda: Layout((2,), None, 4).reshaped(2, 1),
        lambda: Layout((2,), None, 4).reshaped((2,), shape=(2,)),
        lambda: Layout((2,), None, 4).squeezed(0),
        lambda: Layout((2,), None, 4).flattened(0, 0, 0, 0),
        lambda: Layout((2,), None, 4).flattened(mask="1"),
        lambda: Layout._restore((2,), None, 4),
    ]:
        with subtests.test(call=call), pytest.raises(TypeError):
            call()


# ---- a value ----


def test_strides_none_means_c_order_and_says_so():
    layout = Layout((2, 3), None, 4)
    spelled = Layout((2, 3), (3, 1), 4)
    assert (layout.strides, layout.strides_in_bytes) == (None, None)
    assert layout != spelled
    assert layout[...] == spelled
    assert layout.to_dense() is layout
    assert layout.is_contiguous_c
    assert Layout((2, 0, 3), None, 4)[...].strides == (0, 0, 0)


@given(layouts(), layouts())
def test_equal_layouts_have_equal_hashes(a, b):
    def value(layout):
        return (layout.shape, layout.strides, layout.itemsize, layout.slice_offset)

    assert (a == b) == (value(a) == value(b))
    assert (a != b) == (value(a) != value(b))
    if a == b:
        assert hash(a) == hash(b)
    assert a != value(a)


def test_hashes_differ_where_it_helps():
    made = [Layout((a, b), (c, d), 4) for a in range(8) for b in range(8) for c in range(8) for d in range(8)]
    assert len({hash(layout) for layout in made}) == len(made)
    assert len({hash(layout) % 8192 for layout in made}) > 2500  # random ones: about 3200


@given(layouts())
def test_pickles_and_copies(layout):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(layout, protocol))
        assert again == layout
        assert again.strides == layout.strides
    assert copy.copy(layout) is layout
    assert copy.deepcopy(layout) is layout


@given(layouts())
def test_the_repr_says_all(layout):
    text = repr(layout)
    assert text == (
        f"StridedLayout(shape={layout.shape}, strides={layout.strides}, itemsize={layout.itemsize}"
        + (f", slice_offset={layout.slice_offset})" if layout.slice_offset else ")")
    )
    longest = Layout((1,) * 64, (-(2**63),) * 64, 1)
    assert eval(repr(longest), {"StridedLayout": Layout}) == longest


@given(layouts())
def test_what_is_kept_is_what_was_worked_out(layout):
    for name, value in vars(Layout).items():
        if inspect.isgetsetdescriptor(value):
            first = getattr(layout, name)
            assert getattr(layout, name) == first
            if isinstance(first, tuple) and name != "offset_bounds":  # which is made of two kept numbers
                assert getattr(layout, name) is first


def test_arguments_go_by_name_too():
    layout = Layout(shape=(2, 4), strides=(16, 4), itemsize=4, divide_strides=True)
    assert layout == Layout.dense(shape=(2, 4), itemsize=4, stride_order="C")
    assert layout.reshaped(shape=(8,)) == layout.flattened(start_axis=0, end_axis=1, mask=None)
    assert layout.permuted(axis_order=(1, 0)).to_dense(stride_order="C").shape == (4, 2)
    assert layout.repacked(itemsize=8, data_ptr=0, axis=-1, keep_dim=True).shape == (2, 2)
    assert layout.max_compatible_itemsize(max_itemsize=16, data_ptr=8, axis=1) == 8
    assert layout.sliced(slices=(0, slice(2))).shape == (2,)
    assert layout.unsqueezed(axis=1).broadcast_to(shape=(2, 3, 4)).shape == (2, 3, 4)
