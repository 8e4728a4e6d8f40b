"""Arrays as text: what repr() prints, and the notebook beside other facts.

Calls nothing but the public surface of Array; reads only the items that are printed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Array

#: An array with more items than this shows only the edges of each axis.
SUMMARY_SIZE = 200
#: How many items are shown at each edge then: the first that keeps the text short.
EDGES = (3, 2, 1)
#: No text has more items than this: a repr stays below a few kB, whatever the shape.
MAX_ITEMS = 216
#: Items of more lanes are not printed.
MAX_LANES = 8


def describe_array(array: Array) -> str:
    """The repr of an Array: its items, summarised, and what they are."""
    facts = f"shape={array.shape}, dtype={array.dtype.name}, device={array.device!s}, storage={array.storage!r}"
    if array.padded:
        facts += ", padded"
    if array.readonly:
        facts += ", readonly"
    return f"Array({items_text(array, len('Array('))}, {facts})"


def items_text(array: Array, indent: int = 0) -> str:
    """Nested brackets with the items, summarised; `...` for items of very many lanes."""
    if array.size == 0:
        return "[]"
    if array.dtype.lanes > MAX_LANES:
        return "..."
    edge = _choose_edge(array.shape) if array.size > SUMMARY_SIZE else array.size
    if edge is None:
        return "..."
    tree = _edges(array, edge)
    width = max((len(leaf) for leaf in _leaves(tree)), default=0)
    return _join(tree, width, indent)


def _choose_edge(shape: tuple[int, ...]) -> int | None:
    for edge in EDGES:
        if math.prod(min(extent, 2 * edge) for extent in shape) <= MAX_ITEMS:
            return edge
    return None


def _edges(array: Array, edge: int, index: tuple[int, ...] = ()) -> Any:
    """Nested lists of texts, of the items that begin with `index`; None marks the items left out."""
    axis = len(index)
    if axis == array.ndim:
        return _number_text(array.item(*index))
    count = array.shape[axis]
    if count <= 2 * edge:
        return [_edges(array, edge, (*index, i)) for i in range(count)]
    head = [_edges(array, edge, (*index, i)) for i in range(edge)]
    tail = [_edges(array, edge, (*index, i)) for i in range(count - edge, count)]
    return [*head, None, *tail]


def _number_text(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_number_text(lane) for lane in value) + ")"
    if isinstance(value, complex):
        sign = "-" if value.imag < 0 or str(value.imag).startswith("-") else "+"
        return f"{_float_text(value.real)}{sign}{_float_text(abs(value.imag))}j"
    if isinstance(value, float):
        return _float_text(value)
    return str(value)


def _float_text(value: float) -> str:
    text = f"{value:.8g}"
    return text if any(letter in text for letter in ".en") else text + "."


def _leaves(tree: Any) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    if tree is None:
        return []
    return [leaf for branch in tree for leaf in _leaves(branch)]


def _join(tree: Any, width: int, indent: int) -> str:
    if tree is None:
        return "..."
    if isinstance(tree, str):
        return tree.rjust(width)
    is_innermost = all(branch is None or isinstance(branch, str) for branch in tree)
    separator = ", " if is_innermost else ",\n" + " " * (indent + 1)
    return "[" + separator.join(_join(branch, width, indent + 1) for branch in tree) + "]"
