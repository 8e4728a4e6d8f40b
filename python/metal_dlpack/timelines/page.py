"""A timeline as one HTML page: the picture, which zooms, the sums, and the records; without other files."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from metal_dlpack.pages.markup import Markup, element
from metal_dlpack.pages.style import whole_page

from .lanes import end_of, lane_of, lanes_of, span_of, time_text
from .records import Event, Wait, Work
from .summary import Summary, line_of, numbers_of
from .text import words_of
from .time_drawing import CPU_WAIT, NO_BUFFER, colours_of

_STYLE = (
    "body{margin:1rem auto;max-width:80rem;padding:0 1rem}h1{font-size:1.3rem;margin:0}"
    "canvas{display:block;width:100%;touch-action:none;cursor:grab;border:1px solid var(--line);border-radius:4px}"
    "#said{min-height:3em;white-space:pre-wrap;overflow-wrap:anywhere}"
    "pre,#said{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere}ul{padding-left:1.2rem}"
)


def page_of(events: list[Event], summary: Summary, lost: int) -> str:
    """The whole page."""
    losses = f", {lost:,} earlier ones were lost" if lost else ""
    body = [
        element("h1", f"Timeline of {time_text(summary.seconds)}"),
        element(
            "p",
            f"{len(events):,} records{losses}. ",
            "Wheel or + and -: zoom. Drag or ← and →: move. 0: all.",
            class_="quiet",
        ),
        element("canvas", id="lanes", tabindex=0, role="img", aria_label="lanes of threads and queues"),
        element("p", id="said"),
        element("ul", *(element("li", line_of(advice)) for advice in summary.advice)) if summary.advice else None,
        element("pre", "\n".join(numbers_of(summary))),
        element("script", _data(events, summary.seconds), type="application/json", id="data"),
        element("script", Markup(resources.files(__package__).joinpath("zoom.js").read_text())),
    ]
    return whole_page(f"Timeline of {time_text(summary.seconds)}", _STYLE, body)


def _data(events: list[Event], seconds: float) -> Markup:
    """What zoom.js draws: lanes of [begin, end, colour, second colour, is it a wait, label, words], in seconds."""
    end = end_of(events, seconds)
    colours = colours_of(events)
    numbers = {(lane.is_queue, lane.name): index for index, lane in enumerate(lanes_of(events))}
    lanes = [
        {"name": lane.name, "events": [_event(event, end, colours) for event in lane.events]}
        for lane in lanes_of(events)
    ]
    arrows = []
    for event in events:
        if isinstance(event, Wait) and event.awaited is not None and event.awaited.ended is not None and event.ended:
            ends = (numbers[lane_of(event.awaited)], event.awaited.ended, numbers[lane_of(event)], event.ended)
            arrows.append(list(ends))
    text = json.dumps({"end": end, "lanes": lanes, "arrows": arrows})
    return Markup(text.replace("<", "\\u003c"))


def _event(event: Event, end: float, colours: dict[str, str]) -> list[Any]:
    begin, stop = span_of(event, end)
    words = f"{words_of(event)}\nfrom {time_text(begin)}, {time_text(event.seconds)}  {event.place}"
    if isinstance(event, Wait):
        return [begin, stop, CPU_WAIT, None, 2 if event.waiter is None else 1, "", words]
    label = event.name if event.kind in ("kernel", "operator") else event.kind
    first = _colour(event, "target", colours)
    second = _colour(event, "source", colours) if event.kind == "copy" else None
    return [begin, stop, first, second, 0, label, words]


def _colour(work: Work, side: str, colours: dict[str, str]) -> str:
    memory = getattr(work, side)
    return colours.get(memory.name, NO_BUFFER) if memory is not None else NO_BUFFER
