"""Random StridedLayouts, and the offset of each of their items by NumPy."""

import numpy as np
from hypothesis import strategies as st

import metal_dlpack as md

Layout = md.StridedLayout

shapes = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 6]), max_size=5).map(tuple)


def offsets(layout):
    """The offset of every item, as an array of the layout's shape."""
    result = np.full(layout.shape, layout.slice_offset, dtype=np.int64)
    strides = layout.strides if layout.strides is not None else Layout.dense(layout.shape, 1).strides
    for axis, (extent, stride) in enumerate(zip(layout.shape, strides, strict=True)):
        steps = np.arange(extent, dtype=np.int64) * stride
        result += steps.reshape([-1 if i == axis else 1 for i in range(layout.ndim)])
    return result


def same_offsets(layout, expected):
    assert layout.shape == expected.shape
    assert np.array_equal(offsets(layout), expected)


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
