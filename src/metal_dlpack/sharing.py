"""show(): who shares which memory, as a picture.

Each array is placed by the bytes that its items lie on; arrays of one MTLBuffer, or with bytes in common, stand
together.  Nothing is copied and nothing is waited for: only metadata is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from . import _core
from .notebook import nbytes_text

__all__ = ["Picture", "show"]

METAL = 8
#: Cells of a bar.
WIDTH = 48
#: Cells with items, with gaps between items, and without.
FULL, GAPS, NONE = "█", "▒", "·"


@dataclass(frozen=True)
class Part:
    """Where one array lies."""

    name: str
    kind: str  #: its type, shape, element type and device
    space: object  #: what the bytes are counted in: a private buffer's handle, or None for CPU addresses
    begin: int  #: first byte of the items, in its space
    end: int  #: past the last one
    region: tuple[int, int]  #: the whole MTLBuffer; the items, if the memory is foreign
    handle: int | None  #: the id<MTLBuffer>; None, if the memory is foreign
    storage: str
    is_dense: bool


@dataclass(frozen=True)
class Group:
    """One memory, and the parts of it that arrays see."""

    title: str
    begin: int  #: of the memory, in its space
    parts: tuple[Part, ...]

    def extent(self, part: Part) -> tuple[float, float]:
        """Where the part begins and ends, if the bytes that any part has run from 0 to 1."""
        low = min(other.begin for other in self.parts)
        nbytes = max(max(other.end for other in self.parts) - low, 1)
        return (part.begin - low) / nbytes, (part.end - low) / nbytes

    def bar(self, part: Part) -> str:
        """The part among all parts, WIDTH cells wide."""
        begin, end = self.extent(part)
        first = min(int(begin * WIDTH), WIDTH - 1)
        ncells = max(math.ceil(end * WIDTH) - first, 1) if end > begin else 0
        return NONE * first + (FULL if part.is_dense else GAPS) * ncells + NONE * (WIDTH - first - ncells)

    def range_text(self, part: Part) -> str:
        """The part's bytes, counted from the memory's first."""
        if part.begin == part.end:
            return "no bytes"
        return f"bytes {part.begin - self.begin:,} to {part.end - self.begin:,}{'' if part.is_dense else ', with gaps'}"


@dataclass(frozen=True)
class Picture:
    """What show() gives: a text picture for terminals (str, repr), HTML for notebooks."""

    groups: tuple[Group, ...]
    refusals: tuple[tuple[str, str], ...]  #: names of what could not be placed, and why

    def __str__(self) -> str:
        lines = []
        for group in self.groups:
            width = max(len(part.name) for part in group.parts)
            lines.append(group.title)
            for part in group.parts:
                lines.append(f"  {part.name:>{width}}  {group.bar(part)}  {group.range_text(part)}: {part.kind}")
        lines += [f"{name}: {why}" for name, why in self.refusals]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        blocks = []
        for group in self.groups:
            rows = "".join(
                f"<tr><th>{escape(part.name)}</th><td>{_bar_html(group, part)}</td>"
                f'<td style="text-align:left">{escape(group.range_text(part))}</td>'
                f'<td style="text-align:left">{escape(part.kind)}</td></tr>'
                for part in group.parts
            )
            blocks.append(f"<div><b>{escape(group.title)}</b><table>{rows}</table></div>")
        blocks += [f"<div><b>{escape(name)}</b>: {escape(why)}</div>" for name, why in self.refusals]
        return "".join(blocks)


def show(*arrays: Any, **named: Any) -> Picture:
    """Draw which arrays lie on which memory, and where.

    Parameters
    ----------
    *arrays
        Arrays of this package or of any framework that speaks DLPack; called 0, 1, 2 ... in the picture.
    **named
        More of them, under names of your own: ``show(a=a, t=tensor)``.

    Returns
    -------
    Picture
        ``print`` draws it as text, a notebook as HTML.  One group for each memory: an MTLBuffer, or CPU
        memory that is not one of this package's.  Arrays that share bytes always stand in one group.

    Notes
    -----
    Copies nothing, waits for nothing (``from_dlpack(x, copy=False, stream=-1)``), keeps nothing alive.  What
    cannot be looked at without a copy stands under the groups with the reason.
    """
    parts, refusals = [], []
    for name, array in [*((str(i), array) for i, array in enumerate(arrays)), *named.items()]:
        try:
            parts.append(_place(name, array))
        except (AttributeError, BufferError, TypeError, ValueError, _core.MetalError) as error:
            refusals.append((name, str(error)))
    return Picture(tuple(map(_group, _join(parts))), tuple(refusals))


def _place(name: str, array: Any) -> Part:
    ours = array if isinstance(array, _core.Array) else _core.from_dlpack(array, copy=False, stream=-1)
    buffer = ours.buffer
    base = buffer.address or 0
    begin, end, is_dense = _item_bytes(ours)
    begin, end = base + begin, base + end
    is_metal = isinstance(array, _core.Array) or array.__dlpack_device__()[0] == METAL
    return Part(
        name=name,
        kind=_kind(array, ours),
        space=None if buffer.address is not None else buffer.handle,
        begin=begin,
        end=end,
        region=(base, base + buffer.size) if is_metal else (begin, end),
        handle=buffer.handle if is_metal else None,
        storage=ours.storage,
        is_dense=is_dense,
    )


def _item_bytes(array: _core.Array) -> tuple[int, int, bool]:
    """First byte and end of the items in their Buffer, and whether every byte between is an item's."""
    start = array.byte_offset
    if array.size == 0:
        return start, start, True
    nbits = array.dtype.bits * array.dtype.lanes
    if nbits % 8:  # compact
        return start, start + array.nbytes, True
    lowest, highest = array.layout.offset_bounds
    nbytes = nbits // 8
    is_dense = array.layout.is_dense or (highest - lowest + 1) == array.size
    return start + lowest * nbytes, start + (highest + 1) * nbytes, is_dense


def _kind(array: Any, ours: _core.Array) -> str:
    of = type(array)
    owner = "" if of.__module__.startswith("metal_dlpack") else f"{of.__module__.partition('.')[0]}."
    return f"{owner}{of.__name__} {ours.shape} {ours.dtype.name}{', read-only' if ours.readonly else ''}"


def _join(parts: Iterable[Part]) -> list[list[Part]]:
    """Parts whose regions meet in one space, together; in the order of their first ones."""
    groups: list[list[Part]] = []
    for part in parts:
        met = [group for group in groups if any(_meet(part, other) for other in group)]
        joined = [*(other for group in met for other in group), part]
        groups = [group for group in groups if group not in met]
        groups.append(joined)
    return groups


def _meet(a: Part, b: Part) -> bool:
    is_same_buffer = a.handle is not None and a.handle == b.handle
    is_same_space = a.space == b.space
    return is_same_buffer or (is_same_space and a.region[0] < b.region[1] and b.region[0] < a.region[1])


def _group(parts: list[Part]) -> Group:
    begin = min(part.region[0] for part in parts)
    end = max(part.region[1] for part in parts)
    handles = sorted({part.handle for part in parts if part.handle is not None})
    if handles:
        what = "MTLBuffer " + " and ".join(f"{handle:#x}" for handle in handles) + f" ({parts[0].storage})"
    else:
        what = f"CPU memory at {begin:#x}"
    return Group(f"{what}, {nbytes_text(end - begin)}", begin, tuple(parts))


def _bar_html(group: Group, part: Part) -> str:
    begin, end = group.extent(part)
    left, width = 100 * begin, max(100 * (end - begin), 0.5)
    opacity = 1 if part.is_dense else 0.5
    return (
        '<div style="width:20em;height:0.8em;border:1px solid currentColor;position:relative">'
        f'<div style="position:absolute;left:{min(left, 99.5):.2f}%;width:{min(width, 100):.2f}%;height:100%;'
        f'background:currentColor;opacity:{opacity}"></div></div>'
    )
