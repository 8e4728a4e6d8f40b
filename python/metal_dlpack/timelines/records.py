"""What a timeline recorded, as plain records: Work, and the Waits between.

Times are seconds since the timeline began.  The clock is Metal's: of a GPU's work the times are
MTLCommandBuffer's, read when it was complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

#: The kinds that are no pieces of work.
GPU_WAITS, CPU_WAITS = "GPU waits", "CPU waits"
#: The queue of what the CPU did itself.
CPU = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """One side of a copy, or what a kernel writes."""

    name: str  #: of a variable where the timeline was opened; else the buffer's address, or "CPU memory"
    storage: str  #: 'shared', 'managed', 'private', or 'cpu': no MTLBuffer
    handle: int  #: the id<MTLBuffer>; 0: none


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work: of a queue, or a copy by the CPU."""

    number: int  #: in the order in which it was asked for
    kind: str  #: 'copy', 'fill', 'kernel', 'operator'; 'mark' or 'wait': an empty piece, to be waited for or that waits
    name: str  #: of the kernel, of torch's operator, or of the function that was called; or ""
    queue: str  #: its label, variable or number; "": the CPU did it
    thread: str  #: that asked for it
    place: str  #: the line of Python that did, as "file.py:12"; "": not known
    submitted: float
    scheduled: float | None  #: kernelStartTime; None of the CPU's
    started: float | None  #: None: it has not ended, or failed before it began
    ended: float | None
    launch: float  #: seconds that the caller was busy with, from `submitted` on, until Metal had it; 0: the CPU did it
    nbytes: int  #: that were copied or filled; 0 of a kernel, whose accesses Metal does not count
    target: Memory | None  #: the first memory that it writes
    source: Memory | None  #: the first that it reads
    reason: str  #: why it was copied, if nobody asked for a copy: 'staged', 'private' or a name from explain; or ""
    has_failed: bool

    @property
    def seconds(self) -> float:
        return 0.0 if self.started is None or self.ended is None else self.ended - self.started

    @property
    def title(self) -> str:
        """The kind and the name, in words."""
        return f"{self.kind} {self.name}".rstrip()


@dataclass(frozen=True, slots=True)
class Wait:
    """A piece of a queue, or a thread of the CPU, that could not go on before another piece was done."""

    waiter: Work | None  #: None: the thread
    thread: str  #: that waited, or that asked for the waiter
    place: str
    call: str  #: of the CPU: the function in which it waited; or ""
    awaited: Work | None  #: None: an event of another library, or work from before the timeline
    memory: str  #: which buffer's work it is about; "": a stream, a moment or an event was named
    started: float
    ended: float | None  #: None: it has not ended

    @property
    def kind(self) -> str:
        return "cpu wait" if self.waiter is None else "gpu wait"

    @property
    def seconds(self) -> float:
        return 0.0 if self.ended is None else self.ended - self.started

    @property
    def what(self) -> str:
        """What it was for, in words."""
        work = "an event" if self.awaited is None else f"{self.awaited.title} on {self.awaited.queue}"
        return f"{work}, for {self.memory}" if self.memory else work


Event = Work | Wait


@dataclass(frozen=True, slots=True)
class Raw:
    """The fields of module/timeline_records.c, in its order."""

    number: int
    kind: str  #: a Work's, or one of the two above
    reason: str
    has_failed: bool
    name: str
    stream: int
    value: int
    event: int
    nbytes: int
    target: int
    source: int
    target_mode: str | None  #: None: no MTLBuffer
    source_mode: str | None
    thread: int
    waiter: int
    place: int
    submitted: float
    scheduled: float
    started: float
    ended: float
    launch: float

    @property
    def is_piece(self) -> bool:
        return self.kind not in (GPU_WAITS, CPU_WAITS)

    @property
    def is_open(self) -> bool:
        """Is it work that has not ended?"""
        return self.is_piece and self.ended != self.ended and not self.has_failed


@dataclass(frozen=True)
class Names:
    """What numbers and addresses stand for."""

    queues: Mapping[int, str]
    buffers: Mapping[int, str]
    threads: Mapping[int, str]
    places: Mapping[int, str]
    events: Mapping[int, int]  #: the stream whose event it is
    births: Mapping[int, int]  #: by handle: what a smaller number is about was other memory

    def queue(self, serial: int) -> str:
        return "" if serial == CPU else self.queues.get(serial) or f"stream {serial}"

    def buffer(self, handle: int, number: int) -> str:
        name = self.buffers.get(handle) if number >= self.births.get(handle, 0) else None
        return name or f"{handle:#x}"

    def memory(self, handle: int, mode: str | None, number: int) -> Memory:
        if mode is None:
            return Memory("CPU memory", "cpu", 0)
        return Memory(self.buffer(handle, number), mode, handle)


def events_of(raws: Iterable[Raw], names: Names, began: float) -> list[Event]:
    """Work and waits, by when they started; not what began in another timeline, and ended in this one.

    A wait of the GPU begins when its piece could have begun otherwise: it is submitted, and the piece before it in
    its queue is done.  It ends with the piece that it waits for.
    """
    own = (raw for raw in raws if raw.submitted >= began)
    ordered = sorted((_by_stream(raw, names) for raw in own), key=lambda raw: raw.number)
    pieces = [raw for raw in ordered if raw.is_piece]
    by_value = {(raw.stream, raw.value): raw for raw in pieces if raw.stream}
    by_number = {raw.number: raw for raw in pieces}

    def seconds(time: float) -> float | None:
        return None if math.isnan(time) or time == 0 else time - began

    def ready(raw: Raw) -> float:
        before = by_value.get((raw.stream, raw.value - 1))
        return raw.submitted if before is None or before.is_open else max(raw.submitted, before.ended)

    def awaited_end(wait: Raw) -> float:
        awaited = by_value.get((wait.stream, wait.value))
        return math.nan if awaited is None else awaited.ended

    released: dict[int, float] = {}
    for raw in ordered:
        if raw.kind == GPU_WAITS and awaited_end(raw) > released.get(raw.waiter, -math.inf):
            released[raw.waiter] = awaited_end(raw)

    def work_of(raw: Raw) -> Work:
        # What Metal says of a piece that waits may be from before the wait: SPEC does not say.
        started = max(raw.started, released.get(raw.number, raw.started), ready(raw)) if raw.stream else raw.started
        has_target = raw.kind != "mark" and (raw.target or not raw.stream)
        has_source = raw.kind == "copy" or raw.source
        return Work(
            number=raw.number,
            kind=raw.kind,
            name=raw.name,
            queue=names.queue(raw.stream),
            thread=names.threads.get(raw.thread, ""),
            place=names.places.get(raw.place, ""),
            submitted=raw.submitted - began,
            scheduled=seconds(raw.scheduled),
            started=seconds(min(started, raw.ended)),
            ended=seconds(raw.ended),
            launch=raw.launch,
            nbytes=raw.nbytes,
            target=names.memory(raw.target, raw.target_mode, raw.number) if has_target else None,
            source=names.memory(raw.source, raw.source_mode, raw.number) if has_source else None,
            reason=raw.reason,
            has_failed=raw.has_failed,
        )

    works = {number: work_of(raw) for number, raw in by_number.items()}

    def wait_of(raw: Raw) -> Wait | None:
        awaited = by_value.get((raw.stream, raw.value))
        waiter = by_number.get(raw.waiter)
        if raw.kind == GPU_WAITS:
            if waiter is None:  # lost
                return None
            started, ended = ready(waiter), awaited_end(raw)
            if awaited is None:
                ended = waiter.started
            ended = max(started, ended) if not math.isnan(ended) else ended
        else:
            started, ended = raw.started, raw.ended
        return Wait(
            waiter=None if waiter is None else works[waiter.number],
            thread=names.threads.get(raw.thread, ""),
            place=names.places.get(raw.place, ""),
            call=raw.name,
            awaited=None if awaited is None else works[awaited.number],
            memory=names.buffer(raw.target, raw.number) if raw.target else "",
            started=started - began,
            ended=seconds(ended),
        )

    waits = [wait for raw in ordered if not raw.is_piece and (wait := wait_of(raw)) is not None]
    return sorted([*works.values(), *waits], key=when)


def _by_stream(raw: Raw, names: Names) -> Raw:
    """A wait for the event of one of our streams is one for that stream."""
    return replace(raw, stream=names.events[raw.event]) if raw.event in names.events else raw


def when(event: Event) -> float:
    """When it started; of what has not, when it was submitted."""
    started = event.started
    return event.submitted if started is None else started  # type: ignore[union-attr]


def raw_of(fields: Iterable[Any]) -> Raw:
    return Raw(*fields)
