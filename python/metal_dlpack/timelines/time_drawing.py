"""A timeline as a drawing: a lane for each thread and each queue, time from left to right; hover for the rest.

A piece of work has the colour of the buffer that it writes, a copy that of its source below it.  What is too narrow
to be seen by itself is drawn together with its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from metal_dlpack.pages.markup import Markup, drawing, element, shortened
from metal_dlpack.pages.style import accent

from .lanes import Lane, end_of, lane_of, lanes_of, span_of, time_text
from .records import Event, Wait, Work
from .text import words_of

#: Pixels of the track, of a lane, of what fills it, of a character, and of a letter's place in a bar.
TRACK, ROW, FILLED, CHARACTER, LETTER = 520.0, 26.0, 15.0, 6.7, 7.0
#: Lanes, arrows and colours that are explained; characters of a name and of what hovering says.
MAX_LANES, MAX_ARROWS, MAX_COLOURS, MAX_NAME, MAX_FACT = 24, 40, 6, 16, 160
#: Pixels between the tips of two arrows, at least.
APART = 9
#: Narrower than this, in pixels, a bar is drawn together with what is beside it.
NARROW = 2.0
#: The CPU that waits.  A wait on the GPU is drawn as an outline only: the queue does nothing.
CPU_WAIT, NO_BUFFER = "#d4a72c", "#8c959f"


@dataclass
class Bar:
    """One event, or several that are too narrow."""

    begin: float  #: pixels from the track's left
    end: float
    events: list[Event] = field(default_factory=list)

    @property
    def first(self) -> Event:
        return self.events[0]


def draw_times(events: Sequence[Event], seconds: float) -> Markup:
    """The drawing, with its scale above and its colours below."""
    end = end_of(events, seconds) or 1.0
    lanes = lanes_of(events)
    shown = lanes[:MAX_LANES]
    left = max((min(len(lane.name), MAX_NAME) for lane in shown), default=0) * CHARACTER + 10
    colours = colours_of(events)
    tops = {(lane.is_queue, lane.name): ROW * (index + 1) for index, lane in enumerate(shown)}
    parts = [*_scale(end, left, ROW * (len(shown) + 1))]
    for lane in shown:
        parts.append(_lane(lane, end, left, tops[(lane.is_queue, lane.name)], colours))
    parts += _arrows(events, end, left, tops)
    bottom = ROW * (len(shown) + 1)
    if len(lanes) > len(shown):
        parts.append(_text(f"and {len(lanes) - len(shown):,} more lanes", left, bottom + 12, "mdl-quiet"))
        bottom += ROW
    legend = _legend(events, colours, left, bottom)
    said = f"timeline of {time_text(end)}: " + "; ".join(f"{lane.name}, {len(lane.events):,} events" for lane in shown)
    return drawing(said, left + TRACK + 14, bottom + ROW, *parts, *legend)


def colours_of(events: Iterable[Event]) -> dict[str, str]:
    """A colour for each buffer, in the order in which they are first written: as md.show colours its lanes."""
    colours: dict[str, str] = {}
    for event in events:
        if isinstance(event, Work):
            for memory in (event.target, event.source):
                if memory is not None and memory.handle and memory.name not in colours:
                    colours[memory.name] = accent(len(colours))
    return colours


def bars_of(lane: Lane, end: float, width: float) -> list[Bar]:
    """What is drawn of a lane: waits first, so that work lies above them; what cannot be told apart as one.

    However many events there are, and however they overlap: at most one bar begins in each two pixels, narrow or wide.
    """
    bars: list[Bar] = []
    for is_wait in (True, False):
        before: dict[bool, Bar] = {}  # the last bar, by whether it is of narrow ones
        for event in (event for event in lane.events if isinstance(event, Wait) == is_wait):
            begin, stop = (time / end * width for time in span_of(event, end))
            is_narrow = stop - begin < NARROW
            bar = before.get(is_narrow)
            # A long bar of narrow ones would say nothing of when they were.
            if bar is not None and (
                begin - bar.begin < NARROW or (is_narrow and begin - bar.begin < 40 and begin - bar.end < 1)
            ):
                bar.end = max(bar.end, stop)
                bar.events.append(event)
                continue
            bar = before[is_narrow] = Bar(begin, stop, [event])
            bars.append(bar)
    return bars


def _lane(lane: Lane, end: float, left: float, top: float, colours: dict[str, str]) -> Markup:
    middle = top + (ROW - FILLED) / 2
    track = element("path", class_="mdl-track", d=f"M{left:.1f} {top + ROW / 2:.1f}h{TRACK:.0f}", stroke=NO_BUFFER)
    bars = [_bar(bar, left, middle, colours) for bar in bars_of(lane, end, TRACK)]
    return element("g", _text(shortened(lane.name, MAX_NAME), 0.0, middle + 11), track, *bars)


def _bar(bar: Bar, left: float, top: float, colours: dict[str, str]) -> Markup:
    width = max(bar.end - bar.begin, 1.0)
    x = left + min(bar.begin, TRACK - width)
    title = element("title", _said(bar))
    if isinstance(bar.first, Wait):
        fill = CPU_WAIT if bar.first.waiter is None else "none"
        rectangle = element(
            "rect", x=x, y=top + 4, width=width, height=FILLED - 8, fill=fill, stroke=CPU_WAIT, stroke_width=1
        )
        return element("g", title, rectangle)
    work = bar.first
    colour = _colour(work.target, colours)
    parts = [element("rect", x=x, y=top, width=width, height=FILLED, fill=colour)]
    if work.kind == "copy":
        source = _colour(work.source, colours)
        parts.append(element("rect", x=x, y=top + FILLED / 2, width=width, height=FILLED / 2, fill=source))
    label = work.name if work.kind in ("kernel", "operator") else work.kind
    if len(bar.events) == 1 and width > len(label) * LETTER + 6:
        parts.append(element("text", label, x=x + 4, y=top + 11, style="fill:#fff", fill="#fff"))
    return element("g", title, *parts)


def _colour(memory: object, colours: dict[str, str]) -> str:
    return colours.get(getattr(memory, "name", ""), NO_BUFFER)


def _said(bar: Bar) -> str:
    first = bar.first
    begin, _ = span_of(first, first.started or 0.0)
    length = "in flight" if first.ended is None else time_text(first.seconds)
    if len(bar.events) > 1:
        kinds = {event.kind for event in bar.events}
        name = words_of(first) if len({words_of(event) for event in bar.events}) == 1 else " and ".join(sorted(kinds))
        total = sum(event.seconds for event in bar.events)
        return shortened(
            f"{len(bar.events):,} times {name}, {time_text(total)} in all, from {time_text(begin)}", MAX_FACT
        )
    return shortened(f"{words_of(first)}\nfrom {time_text(begin)}, {length}\n{first.place}".rstrip(), MAX_FACT)


def _arrows(events: Iterable[Event], end: float, left: float, tops: dict[tuple[bool, str], float]) -> list[Markup]:
    """From the end of what was awaited to where who waited went on; the longest waits."""
    waits = [
        event
        for event in events
        if isinstance(event, Wait) and event.awaited is not None and event.ended is not None and event.seconds > 0
    ]
    arrows: list[Markup] = []
    tips: set[tuple[float, int]] = set()
    for wait in sorted(waits, key=lambda wait: -wait.seconds):
        assert wait.awaited is not None
        assert wait.ended is not None
        source, target = tops.get(lane_of(wait.awaited)), tops.get(lane_of(wait))
        if source is None or target is None or source == target or wait.awaited.ended is None:
            continue
        down = target > source
        y0 = source + ROW / 2 + (FILLED / 2 if down else -FILLED / 2)
        y1 = target + ROW / 2 - (FILLED / 2 if down else -FILLED / 2)
        x0, x1 = (left + min(time / end, 1.0) * TRACK for time in (wait.awaited.ended, wait.ended))
        tip_place = (target, round(x1 / APART))
        if tip_place in tips or len(arrows) == MAX_ARROWS:  # two that close are read as one
            continue
        tips.add(tip_place)
        tip = -4 if down else 4
        path = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}m-2.5 {tip}l2.5 {-tip}l2.5 {tip}"
        arrows.append(element("path", d=path, fill="none", stroke="currentColor", stroke_width=1, opacity=0.7))
    return arrows


def _scale(end: float, left: float, bottom: float) -> list[Markup]:
    """The first line: 0 and the whole, with marks at round times between."""
    step = 10.0**-12
    while end / step > 6:
        step *= 10
        step = next((step * part for part in (0.2, 0.5) if end / (step * part) <= 6), step)
    marks = []
    time = 0.0
    while time <= end:
        x = left + time / end * TRACK
        marks.append(element("path", class_="mdl-track", d=f"M{x:.1f} {ROW - 6:.0f}V{bottom:.0f}", stroke=NO_BUFFER))
        if x < left + TRACK - 60:
            marks.append(_text(time_text(time) if time else "0", x + 3, ROW - 10, "mdl-quiet"))
        time += step
    marks.append(_text(time_text(end), left + TRACK - 50, ROW - 10, "mdl-quiet"))
    return marks


def _legend(events: Sequence[Event], colours: dict[str, str], left: float, top: float) -> list[Markup]:
    """The buffers' colours, as many as there is room for, and the CPU's wait."""
    shown = [*list(colours.items())[:MAX_COLOURS]]
    if any(isinstance(event, Wait) for event in events):
        shown.append(("waits", CPU_WAIT))
    parts, x = [], left
    for name, colour in shown:
        word = shortened(name, MAX_NAME)
        if x + len(word) * CHARACTER + 24 > left + TRACK:
            break
        parts.append(element("rect", x=x, y=top + 6, width=9, height=9, fill=colour))
        parts.append(_text(word, x + 13, top + 15, "mdl-quiet"))
        x += len(word) * CHARACTER + 30
    return parts


def _text(text: str, x: float, y: float, class_: str | None = None) -> Markup:
    return element("text", text, x=x, y=y, fill="currentColor", class_=class_)
