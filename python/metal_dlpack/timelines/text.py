"""A timeline in a terminal: a bar for each lane, then what took longest."""

from __future__ import annotations

import os
import textwrap

from metal_dlpack.looking.memory_lanes import nbytes_text, shown_name

from .lanes import Lane, end_of, lanes_of, span_of, time_text
from .records import Event, Wait, Work

#: Columns of what is printed.
COLUMNS = 78
#: Cells of a bar; events that are listed.
WIDTH, MOST_LISTED = 56, 20
#: What fills a cell; of several in one, the work that lasts longest there, and a wait where there is none.
WAIT = "░"
CELLS = {
    "kernel": "█",
    "operator": "█",
    "copy": "▓",
    "fill": "▒",
    "mark": "|",
    "wait": "|",
    "cpu wait": WAIT,
    "gpu wait": WAIT,
}
NONE = "·"
LEGEND = "█ kernel  ▓ copy  ▒ fill  ░ wait"


def text_of(events: list[Event], seconds: float, lost: int) -> str:
    """Lanes, and what took longest, in the order in which it began; what repeats stands once."""
    end = end_of(events, seconds)
    lanes = lanes_of(events)
    if not lanes:
        return f"timeline of {time_text(seconds)}: no work was asked for"
    width = max(len(shown_name(lane.name)) for lane in lanes)
    lines = [f"timeline of {time_text(end)}    {LEGEND}"]
    lines += [f"  {shown_name(lane.name):>{width}}  {bar(lane, end)}" for lane in lanes]
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        groups.setdefault((words_of(event), event.place), []).append(event)
    longest = sorted(groups.values(), key=lambda group: -sum(event.seconds for event in group))[:MOST_LISTED]
    lines += [line_of(group) for group in groups.values() if group in longest]
    hidden = len(events) - sum(map(len, longest))
    if hidden:
        lines.append(f"  and {hidden:,} shorter ones")
    if lost:
        lines.append(f"  {lost:,} earlier records were lost: open it with a larger capacity")
    return "\n".join(lines)


def bar(lane: Lane, end: float) -> str:
    """WIDTH cells from the begin to the end."""
    shares = [dict[str, float]() for _ in range(WIDTH)]
    for event in lane.events:
        begin, stop = (time / end * WIDTH if end else 0.0 for time in span_of(event, end))
        first, last = min(int(begin), WIDTH - 1), min(int(stop), WIDTH - 1)
        for cell in range(first, last + 1):
            share = max(min(stop, cell + 1) - max(begin, cell), 1e-9)
            mark = CELLS[event.kind]
            shares[cell][mark] = shares[cell].get(mark, 0.0) + share
    return "".join(max(share, key=lambda mark: (mark != WAIT, share[mark])) if share else NONE for share in shares)


def line_of(group: list[Event]) -> str:
    """When the first began, how long all took, what, and where it was asked for."""
    begin, _ = span_of(group[0], 0.0)
    is_open = any(event.ended is None for event in group)
    length = "in flight" if is_open else time_text(sum(event.seconds for event in group))
    times = f", {len(group):,} times" if len(group) > 1 else ""
    place = f"  [{os.path.basename(group[0].place)}]" if group[0].place else ""
    first = f"  {time_text(begin):>8}  {length:>9}  "
    return textwrap.fill(
        f"{words_of(group[0])}{times}{place}", COLUMNS, initial_indent=first, subsequent_indent=" " * len(first)
    )


def words_of(event: Event) -> str:
    """What happened, in words."""
    if isinstance(event, Wait):
        who = event.thread or "the CPU" if event.waiter is None else event.waiter.queue
        call = f" in {event.call}" if event.call and event.waiter is None else ""
        return f"{who} waits{call} for {event.what}"
    return f"{event.queue or event.thread or 'the CPU'}: {work_words(event)}"


def work_words(work: Work) -> str:
    """A piece of work without its queue."""
    words = work.title
    if work.source is not None and work.target is not None:
        words += f", {shown_name(work.source.name)} → {shown_name(work.target.name)}"
    elif work.target is not None:
        words += f" of {shown_name(work.target.name)}" if work.kind != "kernel" else ""
    if work.nbytes:
        words += f", {nbytes_text(work.nbytes)}"
    if work.reason:
        words += f" ({work.reason})"
    return words + (", failed" if work.has_failed else "")
