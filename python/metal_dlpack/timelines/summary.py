"""A timeline added up, and what its numbers say to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from metal_dlpack.looking.memory_lanes import nbytes_text

from .lanes import time_text
from .records import Event, Wait, Work

#: Lines of each table.
MOST_LINES = 8


@dataclass(frozen=True)
class Total:
    """What one kind, kernel or line of Python came to."""

    name: str
    count: int
    seconds: float
    nbytes: int


@dataclass(frozen=True)
class Advice:
    """A mistake that is seen often, and what to do."""

    mistake: str  #: a key of MISTAKES
    text: str
    place: str  #: the line of Python where it is seen most; ""


@dataclass(frozen=True)
class Summary:
    """What `t.summary()` gives."""

    seconds: float
    by_kind: tuple[Total, ...]  #: of work and of waits, the longest first
    by_kernel: tuple[Total, ...]
    by_line: tuple[Total, ...]  #: of work and of the CPU's waits
    idle_seconds: float  #: while a thread of the CPU waited and no queue worked
    needless_nbytes: int  #: copied though nobody asked for a copy
    chain: tuple[Work, ...]  #: the longest: each piece waits for the one before it, or comes behind it in its queue
    advice: tuple[Advice, ...]

    @property
    def chain_seconds(self) -> float:
        return sum(work.seconds for work in self.chain)

    def __str__(self) -> str:
        return "\n".join([f"timeline of {time_text(self.seconds)}", *numbers_of(self), *map(line_of, self.advice)])

    __repr__ = __str__


def numbers_of(summary: Summary) -> list[str]:
    """The sums, in lines."""
    lines: list[str] = []
    for title, totals in (("by kind", summary.by_kind), ("by kernel", summary.by_kernel), ("by line", summary.by_line)):
        if totals:
            lines += [title, *map(_line, totals[:MOST_LINES])]
            hidden = len(totals) - MOST_LINES
            lines += [f"  and {hidden:,} more"] if hidden > 0 else []
    lines.append(f"GPU idle while the CPU waited: {time_text(summary.idle_seconds)}")
    lines.append(f"copied though nobody asked: {nbytes_text(summary.needless_nbytes)}")
    if summary.chain:
        lines.append(f"longest chain: {len(summary.chain):,} pieces, {time_text(summary.chain_seconds)}")
    return lines


def line_of(advice: Advice) -> str:
    """ "100 kernels of 2 µs each. ... [program.py:8]"."""
    return f"{advice.text} [{os.path.basename(advice.place)}]" if advice.place else advice.text


def _line(total: Total) -> str:
    nbytes = f", {nbytes_text(total.nbytes)}" if total.nbytes else ""
    times = f", {total.count:,} times" if total.count > 1 else ""
    return f"  {time_text(total.seconds):>9}  {os.path.basename(total.name)}{times}{nbytes}"


def summary_of(events: list[Event], seconds: float) -> Summary:
    work = [event for event in events if isinstance(event, Work)]
    waits = [event for event in events if isinstance(event, Wait)]
    costs: list[Event] = [*work, *(wait for wait in waits if wait.waiter is None)]
    return Summary(
        seconds=seconds,
        by_kind=_totals((event.kind, event) for event in events),
        by_kernel=_totals((piece.name, piece) for piece in work if piece.kind in ("kernel", "operator")),
        by_line=_totals((event.place, event) for event in costs if event.place),
        idle_seconds=_idle_seconds(work, waits),
        needless_nbytes=sum(piece.nbytes for piece in work if piece.reason),
        chain=longest_chain(work, waits),
        advice=tuple(found for advise in MISTAKES.values() if (found := advise(work, waits)) is not None),
    )


def _totals(named: Iterable[tuple[str, Event]]) -> tuple[Total, ...]:
    groups: dict[str, list[Event]] = {}
    for name, event in named:
        groups.setdefault(name, []).append(event)
    totals = [
        Total(key, len(group), sum(event.seconds for event in group), sum(map(nbytes_of, group)))
        for key, group in groups.items()
    ]
    return tuple(sorted(totals, key=lambda total: -total.seconds))


def nbytes_of(event: Event) -> int:
    return event.nbytes if isinstance(event, Work) else 0


# ---- who stood still ----


def _idle_seconds(work: Sequence[Work], waits: Sequence[Wait]) -> float:
    """Return the part of the CPU's waits that no queue's work covers."""
    waited = merged((wait.started, wait.ended) for wait in waits if wait.waiter is None and wait.ended is not None)
    busy = merged((piece.started, piece.ended) for piece in work if piece.queue and piece.ended is not None)
    return length(waited) - overlap(waited, busy)


Span = tuple[float, float]


def merged(spans: Iterable[tuple[float | None, float | None]]) -> list[Span]:
    """The same times without overlaps, in order."""
    found: list[Span] = []
    for begin, end in sorted((begin, end) for begin, end in spans if begin is not None and end is not None):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def overlap(one: Sequence[Span], two: Sequence[Span]) -> float:
    """Seconds that are in both; both are merged."""
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(two):
        total += max(0.0, min(one[i][1], two[j][1]) - max(one[i][0], two[j][0]))
        if one[i][1] < two[j][1]:
            i += 1
        else:
            j += 1
    return total


# ---- what could not be done at the same time ----


def longest_chain(work: Sequence[Work], waits: Sequence[Wait]) -> tuple[Work, ...]:
    """The pieces whose times, added, are the longest of all ways along queues and waits."""
    before: dict[int, list[Work]] = {piece.number: [] for piece in work}
    last: dict[str, Work] = {}
    for piece in sorted(work, key=lambda piece: piece.number):
        lane = piece.queue or f"CPU {piece.thread}"
        if lane in last:
            before[piece.number].append(last[lane])
        last[lane] = piece
    for wait in waits:
        if wait.waiter is not None and wait.awaited is not None:
            before[wait.waiter.number].append(wait.awaited)
    best: dict[int, tuple[float, Work | None]] = {}
    for piece in sorted(work, key=lambda piece: piece.number):  # what a piece comes behind was asked for before it
        reached, through = max(
            ((best[one.number][0], one) for one in before[piece.number]), default=(0.0, None), key=_first
        )
        best[piece.number] = (reached + piece.seconds, through)
    end = max(work, key=lambda piece: best[piece.number][0], default=None)
    chain: list[Work] = []
    while end is not None:
        chain.append(end)
        end = best[end.number][1]
    return tuple(reversed(chain))


def _first(pair: tuple[float, Work | None]) -> float:
    return pair[0]


# ---- the five mistakes ----

#: So often at one place before it is called one.
OFTEN = 4
#: Kernels at one line, and seconds in which no GPU begins the next one; what the CPU takes for it is measured.
MANY, SMALL = 64, 20e-6


def _most_common(places: Iterable[str]) -> tuple[str, int]:
    """The place that is named most often, and how often."""
    counts: dict[str, int] = {}
    for place in places:
        counts[place] = counts.get(place, 0) + 1
    return max(counts.items(), key=lambda item: item[1], default=("", 0))


def _waits_between(work: Sequence[Work], waits: Sequence[Wait], *, is_named: bool) -> list[Wait]:
    """Waits of the CPU, for all that was submitted or for a memory, after which the same thread asked for more."""
    last_asked: dict[str, float] = {}
    for piece in work:
        if piece.kind in ("kernel", "operator", "copy", "fill") and piece.queue:
            last_asked[piece.thread] = max(last_asked.get(piece.thread, 0.0), piece.submitted)
    return [
        wait
        for wait in waits
        if wait.waiter is None
        and wait.call.endswith("synchronize") == is_named
        and wait.awaited is not None
        and wait.started < last_asked.get(wait.thread, 0.0)
    ]


def _host_reads(work: Sequence[Work], waits: Sequence[Wait]) -> Advice | None:
    found = [
        wait
        for wait in _waits_between(work, waits, is_named=False)
        if wait.memory and wait.awaited is not None and wait.awaited.kind in ("kernel", "operator")
    ]
    place, count = _most_common(wait.place for wait in found)
    if count < OFTEN:
        return None
    return Advice(
        "host read",
        f"The CPU reads {found[0].memory} between kernels, {len(found):,} times: each read waits for the GPU, and the "
        "GPU then for the CPU. Read once, after the last kernel.",
        place,
    )


def _stream_for_each_call(work: Sequence[Work], waits: Sequence[Wait]) -> Advice | None:
    pieces: dict[str, list[Work]] = {}
    for piece in work:
        if piece.queue and piece.kind not in ("mark", "wait"):
            pieces.setdefault(piece.queue, []).append(piece)
    lonely = [found[0] for found in pieces.values() if len(found) == 1]
    place, count = _most_common(piece.place for piece in lonely)
    if count < OFTEN:
        return None
    return Advice(
        "stream for each call",
        f"{len(lonely):,} streams did one piece of work each. Make a few streams once, and use them again: each is a "
        "command queue of Metal's.",
        place,
    )


def _private_round_trips(work: Sequence[Work], waits: Sequence[Wait]) -> Advice | None:
    found = [piece for piece in work if piece.reason in ("staged", "private", "COPY_PRIVATE")]
    place, count = _most_common(piece.place for piece in found)
    if count < OFTEN:
        return None
    nbytes = sum(piece.nbytes for piece in found)
    return Advice(
        "private round trips",
        f"The CPU reaches private memory {len(found):,} times, by copies of {nbytes_text(nbytes)} in all. Use shared "
        "storage for what the CPU touches, or copy once with a.copy(storage='shared').",
        place,
    )


def _synchronize_in_a_loop(work: Sequence[Work], waits: Sequence[Wait]) -> Advice | None:
    found = _waits_between(work, waits, is_named=True)
    place, count = _most_common(wait.place for wait in found)
    if count < OFTEN:
        return None
    return Advice(
        "synchronise in a loop",
        f"{count:,} calls wait until a stream is done, before more work is given to it. Synchronise once, behind the "
        "loop: work on one stream is in order without it.",
        place,
    )


def _small_kernels(work: Sequence[Work], waits: Sequence[Wait]) -> Advice | None:
    kernels = [piece for piece in work if piece.kind == "kernel" and piece.ended is not None]
    place, count = _most_common(piece.place for piece in kernels)
    if count < MANY:
        return None
    seconds = median(piece.seconds for piece in kernels if piece.place == place)
    if seconds >= max(SMALL, median(piece.launch for piece in kernels if piece.place == place)):
        return None
    return Advice(
        "small kernels",
        f"{count:,} kernels of {time_text(seconds)} each, where a launch takes longer than that. Give "
        "one kernel more items, or put the loop into the kernel.",
        place,
    )


MISTAKES: dict[str, Callable[[Sequence[Work], Sequence[Wait]], Advice | None]] = {
    "host read": _host_reads,
    "stream for each call": _stream_for_each_call,
    "private round trips": _private_round_trips,
    "synchronise in a loop": _synchronize_in_a_loop,
    "small kernels": _small_kernels,
}
