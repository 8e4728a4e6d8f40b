"""show(): who shares which memory, as a picture."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from .looking.memory_lanes import Lane, Memory, memories_of, place, shown_name

#: Cells of a bar.
WIDTH = 48
#: Cells with items, with gaps between items, and without.
FULL, GAPS, NONE = "█", "▒", "·"
#: The same for a terminal without these characters.
IN_ASCII = str.maketrans(FULL + GAPS + NONE, "#%.")


@dataclass(frozen=True)
class Picture:
    """Arrays by the memory that they lie on: text for terminals (str, repr), HTML for notebooks."""

    memories: tuple[Memory, ...]
    refusals: tuple[tuple[str, str], ...]  #: names of what could not be placed, and why

    def __str__(self) -> str:
        lines = []
        for memory in self.memories:
            names = [shown_name(lane.name) for lane in memory.lanes]
            width = max(map(len, names))
            lines.append(memory.title)
            for name, lane in zip(names, memory.lanes, strict=True):
                lines.append(f"  {name:>{width}}  {bar(memory, lane)}  {memory.range_text(lane)}: {lane.kind}")
        lines += [f"{shown_name(name)}: {why}" for name, why in self.refusals]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .notebook import html_of

        return html_of(self)


def show(*arrays: Any, **named: Any) -> None:
    """Show which arrays lie on which memory, and where: print it, or draw it in a notebook.

    Parameters
    ----------
    *arrays
        Arrays of this package or of any framework that speaks DLPack; called 0, 1, 2 ... in the picture.
    **named
        More of them, under your own names: ``show(a=a, t=tensor)``.

    Notes
    -----
    There is one group for each memory: an MTLBuffer, or CPU memory that is not one of this package's.  Arrays that
    share bytes are always in one group.  What cannot be shown without a copy is listed below the groups, with the
    reason.

    A notebook gets the picture as HTML; elsewhere, IPython in a terminal too, it is printed.  Nothing is returned,
    so that a cell that ends with ``show`` shows one picture.

    Copies nothing, waits for nothing (``from_dlpack(x, copy=False, stream=-1)``), keeps nothing alive.
    """
    picture = draw(*arrays, **named)
    if _takes_html():
        from IPython.display import display

        display(picture)
        return
    text = str(picture)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")  # a replaced stdout may have only write()
    except UnicodeEncodeError:
        text = text.translate(IN_ASCII).encode("ascii", "backslashreplace").decode()
    print(text)


def draw(*arrays: Any, **named: Any) -> Picture:
    """The picture that show() shows, with the same arguments."""
    lanes, refusals = [], []
    for name, array in [*((str(i), array) for i, array in enumerate(arrays)), *named.items()]:
        try:
            lanes.append(place(name, array))
        except Exception as error:  # a producer raises what it likes
            refusals.append((name, str(error) or type(error).__name__))
    return Picture(memories_of(lanes), tuple(refusals))


def bar(memory: Memory, lane: Lane) -> str:
    """The lane among all lanes of its memory, WIDTH cells wide."""
    begin, end = memory.fraction(lane.begin), memory.fraction(lane.end)
    first = min(int(begin * WIDTH), WIDTH - 1)
    ncells = max(math.ceil(end * WIDTH) - first, 1) if end > begin else 0
    return NONE * first + (FULL if lane.is_dense else GAPS) * ncells + NONE * (WIDTH - first - ncells)


def _takes_html() -> bool:
    """Does IPython run this, and show HTML?  In a terminal it does not."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "text/html" in shell.display_formatter.active_types
