"""Arrays as text: what repr() prints, and the notebook beside other facts.

NumPy prints the numbers where it is imported, with its print options.  Where it is not, nobody has set any, and
number_words.py prints the same without importing it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .number_words import float_type, words_of
from .shown_items import ShownItems, read_items

if TYPE_CHECKING:
    from metal_dlpack._core import Array

NAME = "Array("
#: NumPy's print options, where nobody has changed them.
OPTIONS = {"threshold": 1000, "edgeitems": 3, "linewidth": 75}
#: Types that NumPy has, but for those of integers.
NUMPYS = ("bool", "float16", "float32", "float64", "complex64", "complex128", "uint64")


def describe_array(array: Array) -> str:
    """The repr of an Array: its items, summarised, and what they are."""
    width = _options()["linewidth"]
    text = NAME + items_text(array, NAME, ")")
    for fact in _facts(array):
        last_line = text[text.rfind("\n") + 1 :]
        fits = len(last_line) + len(", ") + len(fact) + len(")") <= width
        text += ("," + (" " if fits else "\n" + " " * len(NAME))) + fact
    return text + ")"


def _facts(array: Array) -> list[str]:
    """What an Array is, as keywords."""
    facts = [
        f"shape={array.shape}",
        f"dtype={array.dtype.name}",
        f"device={array.device!s}",
        f"storage={array.storage!r}",
    ]
    return facts + [name for name in ("padded", "readonly") if getattr(array, name)]


def items_text(array: Array, prefix: str = "", suffix: str = "", width: int = 0) -> str:
    """Nested brackets with the items, summarised; `<...>` with the reason where none can be shown.

    prefix, suffix: what stands before and behind, for the length of the lines.
    width: characters that a line may have, if the print options allow fewer.
    """
    options = _options()
    width = max(width, options["linewidth"])
    shown = read_items(array, options["threshold"], options["edgeitems"])
    if isinstance(shown, str):
        return f"<{shown}>"
    if not shown.values:
        return "[...]" if array.size else "[]"
    if array.dtype.lanes > 1:
        values, name = shown.values, array.dtype.name
    else:
        values, name = _as_numpys(shown.values, array.dtype.name)
        numpy = _numpy()
        if numpy is not None:
            return _numpys_text(numpy, numpy.array(values, name), shown, prefix, suffix, width)
    words = words_of(values, name)
    if not shown.shape:
        return words[0].strip()
    return _brackets(words, shown.shape, shown.is_cut, width - len(suffix), " " * (len(prefix) + 1))


def _numpy() -> Any:
    """NumPy if it is imported, and not only about to be."""
    numpy = sys.modules.get("numpy")
    return numpy if hasattr(numpy, "array2string") else None


def _options() -> dict[str, Any]:
    numpy = _numpy()
    return OPTIONS if numpy is None else numpy.get_printoptions()


def _as_numpys(values: list[Any], name: str) -> tuple[list[Any], str]:
    """The values under a NumPy type; floats that it lacks as the shortest numbers that read back."""
    if name in NUMPYS:
        return values, name
    if isinstance(values[0], int):
        return values, "int64"
    shortest = float_type(name).shortest

    def read_back(value: float) -> float:
        return float(shortest(value)) if math.isfinite(value) else value

    if isinstance(values[0], complex):
        return [complex(read_back(value.real), read_back(value.imag)) for value in values], "complex128"
    return [read_back(value) for value in values], "float64"


def _numpys_text(numpy: Any, items: Any, shown: ShownItems, prefix: str, suffix: str, width: int) -> str:
    items = items.reshape(shown.shape)
    edges = [extent // 2 for extent, is_cut in zip(shown.shape, shown.is_cut, strict=True) if is_cut]
    for axis, is_cut in enumerate(shown.is_cut):
        if is_cut:  # an item for NumPy to leave out
            items = numpy.insert(items, edges[0], 0, axis=axis)
    threshold, edge = (0, edges[0]) if edges else (sys.maxsize, None)
    text: str = numpy.array2string(
        items,
        max_line_width=width,
        separator=", ",
        prefix=prefix,
        suffix=suffix,
        threshold=threshold,
        edgeitems=edge,
    )
    return text


def _brackets(words: Sequence[str], shape: tuple[int, ...], is_cut: tuple[bool, ...], width: int, indent: str) -> str:
    """The words in brackets, one pair an axis; `indent` is what stands before the first word of a line."""
    inner = shape[1:]
    if inner:
        stride = len(words) // shape[0]
        rows = [words[i : i + stride] for i in range(0, len(words), stride)]
        words = [_brackets(row, inner, is_cut[1:], width - 1, indent + " ") for row in rows]
    if is_cut[0]:
        edge = len(words) // 2
        words = [*words[:edge], "...", *words[edge:]]
    if inner:
        return "[" + ("," + "\n" * len(inner) + indent).join(words) + "]"
    return "[" + _filled(words, width - 1, indent) + "]"


def _filled(words: Sequence[str], width: int, indent: str) -> str:
    """The words with commas between them, in lines of a width that begin with `indent`, but for the first."""
    lines, line = [], indent + words[0]
    for word in words[1:]:
        line += ", "
        if len(line) + len(word) > width:
            lines.append(line.rstrip())
            line = indent
        line += word
    return "\n".join([*lines, line])[len(indent) :]
