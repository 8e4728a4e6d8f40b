"""Arrays as text: what repr() prints.

Calls nothing but the public surface of Array; reads only the items that are printed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Array

#: An array with more items than this shows only the edges of each axis.
SUMMARY_SIZE = 200
#: How many items stand at each edge then.
EDGE = 3
#: Deeper nesting than this is not printed item by item.
MAX_PRINTED_NDIM = 6


def describe_array(array: Array) -> str:
    """The repr of an Array: its items, summarised, and what they are."""
    facts = (
        f"shape={array.shape}, dtype={array.dtype.name}, "
        f"device={array.device!s}, storage={array.storage!r}"
    )
    if array.readonly:
        facts += ", readonly"
    return f"Array({_items_text(array)}, {facts})"


def _items_text(array: Array) -> str:
    if array.ndim > MAX_PRINTED_NDIM:
        return "..."
    try:
        tree = _edges(array, array.size > SUMMARY_SIZE)
    except TypeError:  # items that no Python number stands for
        return "..."
    width = max((len(leaf) for leaf in _leaves(tree)), default=0)
    return _join(tree, width, len("Array("))


def _edges(array: Array, is_summarised: bool) -> Any:
    """Nested lists of texts; None marks the items left out."""
    if array.ndim == 0:
        return _number_text(array.item())
    count = len(array)
    if not is_summarised or count <= 2 * EDGE:
        return [_edges(array[i], is_summarised) for i in range(count)]
    head = [_edges(array[i], is_summarised) for i in range(EDGE)]
    tail = [_edges(array[i], is_summarised) for i in range(count - EDGE, count)]
    return [*head, None, *tail]


def _number_text(value: Any) -> str:
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
