"""HTML and SVG as text: elements whose attributes and texts are escaped, well-formed XML whatever they say."""

from __future__ import annotations

import re
from html import escape

#: What XML 1.0 has no way to write.
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
#: How many characters are shown of a name that came from outside.
MAX_NAME = 80


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """An element; `class_` is class, `stroke_width` is stroke-width, and what is None is left out."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    content = "".join(_escaped(child) for child in children if child is not None)
    return Markup(f"<{tag}{written}>{content}</{tag}>")


def drawing(label: str, width: float, height: float, *children: object) -> Markup:
    """An <svg> that shrinks with the page; `label` is read out."""
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
    )


def _escaped(value: object) -> str:
    if isinstance(value, Markup):
        return value
    return escape(UNWRITABLE.sub("\ufffd", number(value) if isinstance(value, float) else str(value)))


def number(value: float) -> str:
    """A coordinate: at most two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def shortened(name: str, length: int = MAX_NAME) -> str:
    """A name that came from outside, with its middle left out if it is longer than `length`."""
    half = (length - 1) // 2
    return name if len(name) <= length else f"{name[:half]}…{name[-half:]}"
