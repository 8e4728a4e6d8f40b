"""Arrays as HTML: what a notebook shows.

Plain elements with few styles of their own: the notebook's theme, light or dark, does the rest.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from .text import items_text

if TYPE_CHECKING:
    from ._core import Array

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def array_html(array: Array) -> str:
    """Array._repr_html_: a table of facts, and under it the items as repr() prints them."""
    facts = {
        "shape": str(array.shape),
        "dtype": array.dtype.name,
        "size": nbytes_text(array.nbytes),
        "storage": array.storage + (", read-only" if array.readonly else ""),
        "device": f"{array.device!s} ({array.device.name})",
        "MTLBuffer": f"{array.buffer.handle:#x}, from byte {array.byte_offset:,}" if array.buffer.handle else "none",
    }
    return f"<div><b>Array</b>{facts_table(facts)}<pre>{escape(items_text(array))}</pre></div>"


def facts_table(facts: dict[str, str]) -> str:
    """Two columns, names and values; both are escaped."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def nbytes_text(nbytes: int) -> str:
    """A number of bytes as people say it: '24 bytes', '1.5 MiB'."""
    value, unit = float(nbytes), 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} bytes" if unit == 0 else f"{value:.4g} {UNITS[unit]}"
