"""Lanes: what each queue and each thread of the CPU did when; what text, SVG and HTML draw.

A lane holds its events in order.  A piece of work lies in its queue's lane, a copy by the CPU and a wait of the CPU in
the thread's, a wait of the GPU in the lane of the piece that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .records import Event, Work, when


@dataclass(frozen=True)
class Lane:
    """A queue, or a thread of the CPU."""

    name: str
    is_queue: bool
    events: Sequence[Event]

    @property
    def work(self) -> list[Work]:
        return [event for event in self.events if isinstance(event, Work)]


def lanes_of(events: Iterable[Event]) -> list[Lane]:
    """Threads first, then queues, each in the order in which they are first used."""
    lanes: dict[tuple[bool, str], list[Event]] = {}
    for event in events:
        lanes.setdefault(lane_of(event), []).append(event)
    ordered = sorted(lanes.items(), key=lambda lane: lane[0][0])  # stable
    return [Lane(name, is_queue, members) for (is_queue, name), members in ordered]


def lane_of(event: Event) -> tuple[bool, str]:
    """Whether it is a queue's, and the name of that or of the thread."""
    piece = event if isinstance(event, Work) else event.waiter
    queue = "" if piece is None else piece.queue
    return bool(queue), queue or event.thread or "a thread"


def span_of(event: Event, end: float) -> tuple[float, float]:
    """From when to when it is drawn: a wait may have begun before the timeline; what has not ended, to the end."""
    return max(0.0, when(event)), end if event.ended is None else event.ended


def end_of(events: Iterable[Event], least: float) -> float:
    """When the last of them ended."""
    return max((span_of(event, least)[1] for event in events), default=least)


def time_text(seconds: float) -> str:
    """Three digits with a unit: '12.3 ms'."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError
