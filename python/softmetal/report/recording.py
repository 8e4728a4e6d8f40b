"""What ran and what was found, added up while a report is kept.

C calls `finding` and `launch` on the OS thread that ran the launch, its findings first.  Each OS thread adds to a
record of its own, so that none waits for another; they are put together when they are read.  What a record holds is
bounded: launches are counted, not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from metal_dlpack import _core
from metal_dlpack.language import literals

from . import places, silences

#: The limits for one OS thread; of findings, for those that count and for those that do not.
MOST_KERNELS = 4096
MOST_FINDINGS = 1024
MOST_BEYOND = 65536


@dataclass
class KernelRecord:
    """The launches of one image."""

    kernel: str
    image: str
    is_checked: bool
    launches: int = 0
    stopped: int = 0
    threads: int = 0
    seconds: float = 0.0
    first: dict[str, Any] = field(default_factory=dict)  # the first launch, as C told it

    def add(self, other: KernelRecord) -> None:
        """Its launches too."""
        self.launches += other.launches
        self.stopped += other.stopped
        self.threads += other.threads
        self.seconds += other.seconds
        self.first = self.first or other.first


@dataclass
class FindingRecord:
    """One finding of an image, the first time as C told it."""

    told: dict[str, Any]
    launch: dict[str, Any] = field(default_factory=dict)
    launches: int = 0
    times: int = 0


@dataclass
class Record:
    """What one OS thread has run."""

    kernels: dict[str, KernelRecord] = field(default_factory=dict)  # by image
    findings: dict[tuple[Any, ...], FindingRecord] = field(default_factory=dict)
    kept: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})  # how many; True: they are meant so
    beyond: set[int] = field(default_factory=set)  # hashes of the findings that had no room
    pending: list[FindingRecord] = field(default_factory=list)  # of the launch that ends now
    lost: int = 0  # launches and findings that had no room


_records: dict[int, Record] = {}
#: What was given for a kernel's buffers: {index: (dtype, shape, nbytes)}; a Python number has no dtype.
Given = dict[int, tuple[str | None, tuple[int, ...], int]]
#: By a kernel's name, the last call last.
_calls: dict[str, dict[tuple[Any, ...], Given]] = {}
MOST_CALLS = 64
is_kept = False
#: Called after each launch: has it a finding that is new?
after_launch: Callable[[bool], None] | None = None


def start() -> None:
    """Keep a record from now on, from nothing."""
    global is_kept
    is_kept = True
    literals.begin()
    _records.clear()
    _calls.clear()
    places.is_reporting = True
    _core._softmetal_record(True)


def stop() -> None:
    """Keep what there is, and take nothing more."""
    global is_kept
    is_kept = False
    _core._softmetal_record(False)
    places.is_reporting = False


def _mine() -> Record:
    return _records.setdefault(threading.get_ident(), Record())


def key_of(told: dict[str, Any]) -> tuple[Any, ...]:
    """What is the same in two findings that are one: lines, whatever is done first there, and at which column."""
    memory = told["memory"] or {}
    return (
        told["kernel"],
        told["kind"],
        tuple(sorted(place[0].rpartition(":")[0] for place in told["places"])),
        memory.get("kind"),
        memory.get("index"),
    )


def finding(told: dict[str, Any]) -> bool:
    """One launch's; `launch` follows.  True: this OS thread has not had it before."""
    record = _mine()
    key = (told["image"], *key_of(told))
    kept = record.findings.get(key)
    is_news = kept is None
    if kept is None:
        is_meant = bool(told["silenced"] or told["advice"])  # however many these are, what fails a run has its room
        if record.kept[is_meant] >= MOST_FINDINGS:
            return _is_news_beyond(record, hash(key))
        record.kept[is_meant] += 1
        if told["silenced"]:
            rows = (silences.of_row(told["image"], place[0]) for place in told["places"])
            told["silence"] = next((one for one in rows if one is not None), None)
        kept = record.findings[key] = FindingRecord(told)
    kept.times += told["times"]
    if not any(one is kept for one in record.pending):
        record.pending.append(kept)
    return is_news


def _is_news_beyond(record: Record, key: int) -> bool:
    """Count a finding that has no room, once."""
    is_news = key not in record.beyond and len(record.beyond) < MOST_BEYOND
    if is_news:
        record.beyond.add(key)
        record.lost += 1
    return is_news


def advised(kernel: str, image: str, kind: str, text: str) -> dict[str, Any]:
    """As C tells a finding: advice on a kernel, at no place."""
    numbers = {"offset": 0, "nbytes": 0, "first": 0, "second": 0, "times": 1}
    said = {"kernel": kernel, "image": image, "kind": kind, "text": text}
    return {**said, **numbers, "places": [], "memory": None, "silenced": False, "advice": True}


def advise(kernel: str, kind: str, text: str) -> None:
    """Once more, if a report is kept."""
    if is_kept:
        told = advised(kernel, "", kind, text)
        findings = _mine().findings
        kept = findings.setdefault(("", *key_of(told)), FindingRecord(told))
        kept.launches += 1
        kept.times += 1


def call(kernel: str, given: dict[int, Any]) -> None:
    """A kernel is called with these objects.  Its launches come later, from another OS thread, and tell bytes alone."""
    shapes: Given = {
        index: (str(value.dtype).removeprefix("torch."), tuple(map(int, value.shape)), int(value.nbytes))
        for index, value in given.items()
        if hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "nbytes")
    }
    shapes |= {index: (None, (), 0) for index, value in given.items() if isinstance(value, int | float)}
    if kernel not in _calls and len(_calls) >= MOST_KERNELS:
        return
    calls = _calls.setdefault(kernel, {})
    key = tuple(shapes.items())
    calls.pop(key, None)
    if len(calls) >= MOST_CALLS:
        calls.pop(next(iter(calls)), None)
    calls[key] = shapes


def _shapes_of(told: dict[str, Any]) -> dict[int, tuple[str | None, tuple[int, ...]]]:
    """Return the shapes of the kernel's last call whose arguments have as many bytes."""
    nbytes = {index: size for kind, index, _, size, *_ in told["arguments"] if kind == "buffer"}
    for shapes in reversed(list(_calls.get(told["kernel"], {}).values())):
        if all(nbytes.get(index, 0) >= size for index, (_, _, size) in shapes.items()):
            return {index: (dtype, shape) for index, (dtype, shape, _) in shapes.items()}
    return {}


def launch(told: dict[str, Any]) -> None:
    """One launch has ended."""
    record = _mine()
    is_news = any(one.launches == 0 for one in record.pending)
    _add_launch(record, told)
    if after_launch is not None:
        after_launch(is_news)


def _add_launch(record: Record, told: dict[str, Any]) -> None:
    if record.pending or told["image"] not in record.kernels:  # it is kept
        told["shapes"] = _shapes_of(told)
    for one in record.pending:
        one.launches += 1
        one.launch = one.launch or told
    record.pending.clear()
    kernel = record.kernels.get(told["image"])
    if kernel is None:
        if len(record.kernels) >= MOST_KERNELS:
            record.lost += 1
            return
        kernel = record.kernels[told["image"]] = KernelRecord(told["kernel"], told["image"], told["checked"])
    x, y, z = told["grid"]
    kernel.add(
        KernelRecord(told["kernel"], told["image"], told["checked"], 1, not told["done"], x * y * z, told["seconds"])
    )
    kernel.first = kernel.first or told


def read() -> Record:
    """What all OS threads have run so far."""
    whole = Record()
    for record in list(_records.values()):
        whole.lost += record.lost
        for image, kernel in list(record.kernels.items()):
            known = whole.kernels.setdefault(image, KernelRecord(kernel.kernel, image, kernel.is_checked))
            known.add(kernel)
        for key, found in list(record.findings.items()):
            one = whole.findings.setdefault(key, FindingRecord(found.told, found.launch))
            one.launches += found.launches
            one.times += found.times
    return whole
