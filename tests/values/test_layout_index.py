"""layout_index.c: NumPy says what an index of a layout means; what is no index is refused."""

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import Layout, layouts, offsets, same_offsets

import metal_dlpack as md


@st.composite
def layouts_with_keys(draw):
    layout = draw(layouts())
    entries = []
    for extent in layout.shape[: draw(st.integers(0, layout.ndim))]:
        bound = st.one_of(st.none(), st.integers(-extent - 2, extent + 2), st.sampled_from([-(2**70), 2**62, 2**70]))
        part = st.builds(slice, bound, bound, st.sampled_from([None, 1, 2, 3, -1, -2, 7, 2**62, -(2**63)]))
        entries.append(draw(st.one_of(part, st.integers(-extent, extent - 1)) if extent else part))
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    return layout, entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


@given(layouts_with_keys())
@hypothesis.settings(max_examples=100)
def test_an_index_means_what_it_means_to_numpy(case):
    layout, key = case
    try:
        expected = offsets(layout)[key]
    except IndexError:  # behind `...` an int may find a shorter axis
        with pytest.raises(ValueError, match="out of range"):
            layout[key]
        return
    result = layout[key]
    same_offsets(result, np.asarray(expected))
    assert result.itemsize == layout.itemsize
    assert layout.sliced(key) == result


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


def test_a_slice_without_items_has_no_strides():
    layout = Layout.dense((2, 3), 4)
    assert layout[1, 3:].strides == (0,)
    assert layout[1, 3:].slice_offset == 3
    assert layout[2:].strides == (0, 0)


def test_an_index_s_own_error_comes_through():
    class Bad:
        def __index__(self):
            raise KeyError("mine")

    for key in (Bad(), (0, Bad()), slice(Bad(), None)):
        with pytest.raises(KeyError, match="mine"):
            Layout.dense((2, 3), 4)[key]


def test_the_source_is_left_as_it_was():
    layout = Layout.dense((2, 3), 4)
    before = repr(layout)
    assert layout[1:, ::-1] != layout
    assert repr(layout) == before
