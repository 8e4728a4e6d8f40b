"""A timeline as a trace of the Trace Event Format, which Perfetto and chrome://tracing open.

Two processes: the CPU, a thread for each thread; the GPU, a thread for each queue.  A wait is a slice in the lane of
who waits, and a flow from the work that it is for.
"""

from __future__ import annotations

from typing import Any

from .lanes import end_of, lane_of, lanes_of, span_of
from .records import Event, Wait
from .text import words_of, work_words

CPU, GPU = 1, 2
FIRST_LANE = 11  #: a thread that has its process's number would be called the main one


def trace_of(events: list[Event], seconds: float, lost: int) -> dict[str, Any]:
    """What `json.dump` writes; times in microseconds."""
    end = end_of(events, seconds)
    lanes = lanes_of(events)
    numbers = {(lane.is_queue, lane.name): number for number, lane in enumerate(lanes, start=FIRST_LANE)}
    trace: list[dict[str, Any]] = [_named("process_name", pid, 0, name) for pid, name in ((CPU, "CPU"), (GPU, "GPU"))]
    for (is_queue, name), number in numbers.items():
        trace.append(_named("thread_name", GPU if is_queue else CPU, number, name))
    # What begins together is nested by its length.
    for flow, event in enumerate(
        sorted(events, key=lambda event: (_ns(span_of(event, end)[0]), -event.seconds)), start=1
    ):
        lane = lane_of(event)
        track = {"pid": GPU if lane[0] else CPU, "tid": numbers[lane]}
        trace.append(_slice(event, end) | track)
        if isinstance(event, Wait) and event.awaited is not None and event.awaited.ended is not None:
            source = lane_of(event.awaited)
            begin = {"pid": GPU if source[0] else CPU, "tid": numbers[source]}
            shared = {"id": flow, "cat": "wait", "name": "waits"}
            trace.append({"ph": "s", "ts": _us(event.awaited.ended), **begin, **shared})
            trace.append({"ph": "f", "bp": "e", "ts": _us(span_of(event, end)[1]), **track, **shared})
    return {"traceEvents": trace, "displayTimeUnit": "ms", "otherData": {"lost": str(lost)}}


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _slice(event: Event, end: float) -> dict[str, Any]:
    begin, stop = span_of(event, end)
    if isinstance(event, Wait):
        args = {"for": event.what, "in": event.call}
        name = f"waits for {event.what}"
    else:
        args = {"what": work_words(event), "bytes": str(event.nbytes), "submitted (us)": str(_us(event.submitted))}
        args["reason"] = event.reason
        name = event.title
    args |= {"place": event.place, "words": words_of(event)}
    args = {key: value for key, value in args.items() if value}
    length = (_ns(stop) - _ns(begin)) / 1000  # both in whole ones: slices of a track may touch, and not overlap
    return {"ph": "X", "cat": event.kind, "name": name, "ts": _us(begin), "dur": length, "args": args}


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _us(seconds: float) -> float:
    return _ns(seconds) / 1000
