"""Lanes as a drawing: rows of a name, a track with the bytes that are filled, and a note; hover for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metal_dlpack.looking.memory_lanes import Lane, Memory
from metal_dlpack.pages.markup import Markup, drawing, element, shortened
from metal_dlpack.pages.style import accent

#: Pixels of a track, of a row, of what fills it, of its narrowest piece, and of a character.
TRACK, ROW, FILLED, NARROWEST, CHARACTER = 300.0, 20.0, 11.0, 1.5, 6.7
#: Characters of a name, of a note and of a fact that hovering says; rows, of which the rest is only counted.
MAX_NAME, MAX_NOTE, MAX_FACT, MAX_ROWS = 24, 46, 160, 40


@dataclass(frozen=True)
class Row:
    """One lane as it is drawn."""

    name: str
    pieces: Sequence[tuple[float, float]]  #: what is filled, as fractions of the track
    note: str = ""  #: behind the track
    title: str = ""  #: what hovering says
    is_dense: bool = True  #: False: there are gaps between the pieces, or too many of them to name


def draw_memory(memory: Memory) -> Markup:
    """A row for each lane, on a track of all bytes that any of them has."""
    rows = [row_of(memory, lane, lane.kind) for lane in memory.lanes[:MAX_ROWS]]
    return draw_rows(rows, memory.title, len(memory.lanes))


def row_of(memory: Memory, lane: Lane, note: str) -> Row:
    """The lane on a track of all bytes that any lane of the memory has."""
    pieces = [(memory.fraction(begin), memory.fraction(end)) for begin, end in lane.runs]
    strides = None if lane.strides is None else f"strides {lane.strides} items"
    owner = None if lane.owner is None else f"owned by {shortened(lane.owner)}"
    facts = [f"{shortened(lane.name)}: {lane.kind}", memory.range_text(lane), strides, owner, lane.work]
    title = "\n".join(shortened(fact, MAX_FACT) for fact in facts if fact)
    return Row(lane.name, pieces, note, title, lane.is_dense)


def draw_rows(rows: Sequence[Row], label: str, count: int | None = None) -> Markup:
    """A drawing of the rows; `label` and their titles are read out.

    count: how many there are, if these are only the first of them.
    """
    left = max((min(len(row.name), MAX_NAME) for row in rows), default=0) * CHARACTER + 10
    right = max((min(len(row.note), MAX_NOTE) for row in rows), default=0) * CHARACTER + 12
    drawn = [_row(row, i, left) for i, row in enumerate(rows)]
    hidden = (count or len(rows)) - len(rows)
    if hidden:
        drawn.append(_text(f"and {hidden:,} more", left, len(rows) * ROW + 14, "mdl-quiet"))
    said = "; ".join([label, *(row.title.replace("\n", ", ") or row.name for row in rows)])
    return drawing(said, left + TRACK + right, (len(rows) + (hidden > 0)) * ROW, *drawn)


def _row(row: Row, index: int, left: float) -> Markup:
    top = index * ROW + (ROW - FILLED) / 2
    track = element(
        "rect", class_="mdl-track", x=left, y=top, width=TRACK, height=FILLED, fill="none", stroke="#8c959f"
    )
    return element(
        "g",
        element("title", row.title) if row.title else None,
        _text(shortened(row.name, MAX_NAME), 0.0, top + 9),
        track,
        *_filled(row, left, top, accent(index)),
        _text(shortened(row.note, MAX_NOTE), left + TRACK + 10, top + 9, "mdl-quiet") if row.note else None,
    )


def _filled(row: Row, left: float, top: float, colour: str) -> list[Markup]:
    """A rectangle for each piece; dashes from the first to the last, where the gaps are too narrow to be seen."""
    begin, end = (row.pieces[0][0] * TRACK, row.pieces[-1][1] * TRACK) if row.pieces else (0.0, 0.0)
    if begin == end:
        return []
    pitch = (end - begin) / len(row.pieces)
    if row.is_dense or (len(row.pieces) > 1 and pitch >= 2 * NARROWEST) or end - begin < 2 * NARROWEST:
        return [_piece(first * TRACK, last * TRACK, left, top, colour) for first, last in row.pieces]
    line = f"M{left + begin:.2f} {top + FILLED / 2}H{left + end:.2f}"
    return [element("path", d=line, stroke=colour, stroke_width=FILLED, stroke_dasharray="2 1.5")]


def _piece(begin: float, end: float, left: float, top: float, colour: str) -> Markup:
    width = max(end - begin, NARROWEST)
    return element("rect", x=left + min(begin, TRACK - width), y=top, width=width, height=FILLED, fill=colour)


def _text(text: str, x: float, y: float, class_: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, fill="currentColor", class_=class_)
