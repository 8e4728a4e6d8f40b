"""Arrays as text and HTML: every item that is shown is the array's, and no shape makes the text long."""

from html.parser import HTMLParser
from math import inf, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import metal_dlpack as md

SHAPES = st.lists(st.integers(0, 9), max_size=7).map(tuple)


def items_of(text):
    """The nested lists that a repr prints, read by Python."""
    body = text[len("Array(") : text.rindex(", shape=")]
    return eval(body, {"inf": inf, "nan": nan, "__builtins__": {}})


@given(st.lists(st.floats(width=32, allow_nan=False) | st.just(inf), min_size=1, max_size=20))
def test_a_short_array_is_printed_whole(values):
    printed = items_of(repr(md.asarray(values)))
    assert printed == pytest.approx(md.asarray(values).tolist(), rel=1e-7)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "complex64"])
def test_items_of_every_kind_are_printed(dtype):
    array = md.full((2, 3), 1, dtype)
    assert items_of(repr(array)) == array.tolist()


@given(SHAPES)
@example((7,) * 6)
@example((1,) * 60 + (2,) * 4)
@example((2**40, 0, 2**10))
def test_no_shape_makes_a_long_text(shape):
    array = md.zeros((1,), "complex128").broadcast_to((1,) * max(len(shape), 1)).broadcast_to(shape or (1,))
    for text in (repr(array), array._repr_html_()):
        assert len(text) < 8192
        assert str(array.shape) in text


def test_a_long_array_shows_its_edges():
    text = repr(md.asarray(list(range(1000))))
    assert text.startswith("Array([  0,   1,   2, ..., 997, 998, 999], shape=(1000,)")


def test_a_repr_says_what_the_array_is():
    text = repr(md.zeros((2, 3), "int16", storage="private").as_readonly())
    assert text.endswith("shape=(2, 3), dtype=int16, device=metal:0, storage='private', readonly)")


def test_items_that_no_number_stands_for_are_left_out():
    assert repr(md.empty((3,), "float4_e2m1fnx2")).startswith("Array(")


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_notebook_shows_facts_and_items():
    array = md.full((2, 3), 1.5)
    shown = Tags(array._repr_html_())
    assert shown.open == []
    for fact in ("(2, 3)", "float32", "24 bytes", "shared", f"{array.buffer.handle:#x}", "[1.5, 1.5, 1.5]"):
        assert fact in shown.text


def test_text_in_html_is_escaped(monkeypatch):
    monkeypatch.setattr("metal_dlpack.notebook.items_text", lambda array: "<script>&")
    assert "<script>" not in md.zeros(1)._repr_html_()
    assert "<script>&" in Tags(md.zeros(1)._repr_html_()).text


def test_iteration_gives_views_of_the_first_axis():
    array = md.asarray([[1, 2], [3, 4]])
    assert [row.tolist() for row in array] == [[1, 2], [3, 4]]
    assert all(md.shares_memory(row, array) for row in array)
    with pytest.raises(TypeError, match="0-dimensional"):
        iter(md.zeros(()))
