"""The values that a count is made of.

A *SIMD-group access* is one access of the source, carried out once by a SIMD-group: the n-th time that each of its
lanes comes there, counted from the last place where all its lanes met (a barrier, or a SIMD-group function).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: The most threadgroup memory that one threadgroup may have; all of a core share it.
CORE_NBYTES = 32768
LINE_NBYTES = 128


@dataclass(frozen=True)
class Traffic:
    """What moves between threads and memory.

    `lines` are cache lines of 128 bytes, `rounds` turns of threadgroup memory's 32 banks of 4 bytes; `least_lines` and
    `least_rounds`: as many as the same bytes would take if they lay close.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    loads: int = 0  #: by threads; atomic operations are not among them
    stores: int = 0
    atomics: int = 0
    accesses: int = 0  #: by SIMD-groups
    lanes: int = 0  #: that took part in these ...
    lanes_possible: int = 0  #: ... and that the SIMD-groups have
    lines: int = 0
    least_lines: int = 0
    rounds: int = 0
    least_rounds: int = 0

    @property
    def lines_per_access(self) -> float:
        """Lines that were touched, divided by the least possible: 1.0 is coalesced.  0.0: no device memory."""
        return self.lines / self.least_lines if self.least_lines else 0.0

    @property
    def rounds_per_access(self) -> float:
        """The same of the banks of threadgroup memory: 1.0 is free of conflicts.  0.0: no threadgroup memory."""
        return self.rounds / self.least_rounds if self.least_rounds else 0.0

    @property
    def bank_conflicts(self) -> int:
        """Rounds beyond the least."""
        return self.rounds - self.least_rounds

    @property
    def lane_share(self) -> float:
        """Lanes that took part, of all that the SIMD-groups have.  0.0: there was no access."""
        return self.lanes / self.lanes_possible if self.lanes_possible else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts."""
        return {**asdict(self), **_ratios(self)}


def _ratios(traffic: Traffic) -> dict[str, Any]:
    names = ("lines_per_access", "rounds_per_access", "bank_conflicts", "lane_share")
    return {name: getattr(traffic, name) for name in names}


def total(parts: Iterable[Traffic]) -> dict[str, int]:
    """The sums of Traffic's own fields."""
    sums = dict.fromkeys(Traffic.__dataclass_fields__, 0)
    for part in parts:
        for name in sums:
            sums[name] += getattr(part, name)
    return sums


@dataclass(frozen=True)
class AccessCount(Traffic):
    """One access of the source: a load, a store, a copy of a vector or a struct, an atomic operation."""

    file: str = ""
    line: int = 0
    column: int = 0
    argument: str = ""  #: the name of what it touches
    space: str = ""  #: "device", "constant" or "threadgroup"
    kind: str = ""  #: "load", "store" or "atomic"
    nbytes: int = 0  #: of one lane's


@dataclass(frozen=True)
class ArgumentCount(Traffic):
    """What becomes of one argument, or of one variable in threadgroup memory."""

    name: str = ""
    index: int = 0  #: [[buffer(index)]], texture, threadgroup memory, or resources[index]; of a variable its number
    space: str = ""
    nbytes: int = 0
    distinct_read: int = 0  #: bytes that were read once or more; of device and constant memory
    distinct_written: int = 0
    most_atomics: int = 0  #: operations at the address that has most; of threadgroup memory in one threadgroup


@dataclass(frozen=True)
class BranchCount:
    """One condition of the source: an `if`, a loop's, `?:`, `&&`, `||`."""

    file: str
    line: int
    column: int
    executions: int  #: by SIMD-groups
    lanes: int  #: that came
    lanes_possible: int
    true_lanes: int  #: that found it true
    divergent: int  #: executions in which some lanes found it true and some false

    @property
    def lane_share(self) -> float:
        """Lanes at work there, of all that the SIMD-groups have."""
        return self.lanes / self.lanes_possible if self.lanes_possible else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return {**asdict(self), "lane_share": self.lane_share}


@dataclass(frozen=True)
class LineCount(Traffic):
    """All that one line of the source does.  The lines of constant memory are not among its `lines`."""

    file: str = ""
    line: int = 0
    source: str = ""  #: the text, "" where it is not known
    barriers: int = 0  #: by threadgroups
    divergent_branches: int = 0
    operations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  #: as KernelCount's


@dataclass(frozen=True)
class LaunchCount:
    """What one launch of a kernel did: KernelCount without its looks."""

    kernel: str
    grid: tuple[int, int, int] = (0, 0, 0)  #: threads along x, y, z
    group: tuple[int, int, int] = (0, 0, 0)  #: of a threadgroup that is not at an edge
    threads: int = 0
    groups: int = 0  #: threadgroups
    simdgroups: int = 0
    threadgroup_memory: int = 0  #: bytes that a threadgroup takes, variables and arguments
    barriers: int = 0  #: threadgroup_barriers that opened, summed over threadgroups
    simd_meetings: int = 0  #: SIMD-group functions and barriers, summed over SIMD-groups ...
    simd_functions: Mapping[str, int] = field(default_factory=dict)  #: ... and by their names, the most frequent first
    device: Traffic = Traffic()
    constant: Traffic = Traffic()
    threadgroup: Traffic = Traffic()
    arguments: tuple[ArgumentCount, ...] = ()
    accesses: tuple[AccessCount, ...] = ()  #: in the order of the source
    branches: tuple[BranchCount, ...] = ()
    lines: tuple[LineCount, ...] = ()  #: of the source, largest first
    #: {"float": {"add": 1000}}: by type and kind, of the source before it is optimised, with those of the library's
    #: functions; not the arithmetic of addresses.
    operations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def bytes_read(self) -> int:
        """From device memory; each access counts, however often it finds the same byte."""
        return self.device.bytes_read

    @property
    def bytes_written(self) -> int:
        """To device memory."""
        return self.device.bytes_written

    @property
    def lines_per_access(self) -> float:
        """Lines of device memory touched, divided by the least possible.  1.0 is coalesced; 0.0: none was touched."""
        return self.device.lines_per_access

    @property
    def rounds_per_access(self) -> float:
        """Rounds of threadgroup memory's banks, divided by the least possible.  1.0 is free of conflicts."""
        return self.threadgroup.rounds_per_access

    @property
    def bank_conflicts(self) -> int:
        """Rounds beyond the least, of all accesses to threadgroup memory."""
        return self.threadgroup.bank_conflicts

    @property
    def loads_per_thread(self) -> float:
        """Loads from device memory."""
        return self.device.loads / self.threads if self.threads else 0.0

    @property
    def stores_per_thread(self) -> float:
        """To device memory."""
        return self.device.stores / self.threads if self.threads else 0.0

    @property
    def threads_per_group(self) -> int:
        """Threads in a threadgroup that is not at an edge."""
        return self.group[0] * self.group[1] * self.group[2]

    @property
    def groups_that_fit(self) -> int | None:
        """How many threadgroups fit into 32 KiB of threadgroup memory; None: they take none.

        The model of a core knows no registers and no limit of threads: a GPU may run fewer at a time.
        """
        return CORE_NBYTES // self.threadgroup_memory if self.threadgroup_memory else None

    def __getitem__(self, name: str) -> ArgumentCount:
        """The argument, or variable in threadgroup memory, of this name.  Raises KeyError."""
        for one in self.arguments:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.arguments)
        raise KeyError(f"{self.kernel} has no argument {name!r}; it has {known or 'none'}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, texts, lists and dicts, as JSON takes them."""
        numbers = {
            name: list(value) if isinstance(value := getattr(self, name), tuple) else value
            for name in (
                "kernel", "grid", "group", "threads", "groups", "simdgroups", "threads_per_group", "threadgroup_memory",
                "groups_that_fit", "barriers", "simd_meetings", "bytes_read", "bytes_written", "loads_per_thread",
                "stores_per_thread", "lines_per_access", "rounds_per_access", "bank_conflicts",
            )
        }  # fmt: skip
        memory = {name: getattr(self, name).to_dict() for name in ("device", "constant", "threadgroup")}
        lists = {
            name: [one.to_dict() for one in getattr(self, name)]
            for name in ("arguments", "accesses", "branches", "lines")
        }
        operations = {kind: dict(counts) for kind, counts in self.operations.items()}
        functions = dict(self.simd_functions)
        return {**numbers, "simd_functions": functions, **memory, **lists, "operations": operations}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent)
