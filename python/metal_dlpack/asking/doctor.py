"""The doctor: what this machine has, and which frameworks share memory through it.

Each pair is tried by sharing, writing and reading (probes.py), in a child process: if a framework
crashes, that is one row of the table, and the next child goes on with the rest.  A row that is not as
it should be is tried once more in a child of its own, and that end counts.
"""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import metal_dlpack as md
from dlpack_conformance.asking import Child, print_answer, take_stdout
from metal_dlpack.looking.memory_lanes import joined_groups, nbytes_text

from .frameworks import FRAMEWORKS, entry_of
from .probes import PROBES, Copies, Probe

VERDICTS = ("shares", "copies", "cannot")
#: The name of a probe, its verdict and the reason.
Answer = tuple[str, str, str]


@dataclass(frozen=True)
class Row:
    """What one probe found."""

    probe: Probe
    verdict: str
    reason: str

    @property
    def is_as_expected(self) -> bool:
        """A better verdict than the expected one counts as expected."""
        return VERDICTS.index(self.verdict) <= VERDICTS.index(self.probe.expected)

    def facts(self) -> dict[str, Any]:
        """All of it, as plain data."""
        of_probe = {name: getattr(self.probe, name) for name in ("source", "target", "how", "note")}
        found = {"verdict": self.verdict, "reason": self.reason, "is_as_expected": self.is_as_expected}
        return {"probe": self.probe.name, **of_probe, **found}


# ---- the children ----


def main(*names: str) -> None:
    """In the child: run probes, answer for each as it ends."""
    answers = take_stdout()
    by_name = {probe.name: probe for probe in PROBES}
    for name in names:
        print_answer(answers, name, *run_probe(by_name[name]))


def run_probe(probe: Probe) -> tuple[str, str]:
    try:
        probe.run(*map(importlib.import_module, map(entry_of, probe.modules)))
    except Copies as copies:
        return "copies", str(copies)
    except Exception as error:  # whatever a framework raises is the answer
        return "cannot", f"{type(error).__name__}: {error}"
    return "shares", ""


def ask_together(probes: list[Probe], tell: Callable[[Probe], None]) -> Iterator[Answer]:
    """Answers for all the probes from as few children as can be: one that dies costs the probe it was at."""
    pending = {probe.name: probe for probe in probes}
    while pending:
        with Child(__name__, *pending) as child:
            while pending:
                name, probe = next(iter(pending.items()))
                tell(probe)
                answer = child.answer() or [name, "cannot", f"{child.end}: {child.last_words()}".removesuffix(": ")]
                if pending.pop(answer[0], None) is not None:
                    yield answer[0], answer[1], answer[2]
                if child.end:
                    break


# ---- the table ----


def runnable_probes() -> list[Probe]:
    installed = {f.module for f in FRAMEWORKS.values() if f.is_installed()}
    return [probe for probe in PROBES if installed.issuperset(probe.modules)]


def probes_for(machine: dict[str, Any]) -> list[Probe]:
    return runnable_probes() if machine["devices"] else []


def group_probes(probes: list[Probe]) -> list[list[Probe]]:
    """Probes for one child each: importing a framework takes seconds, so each is imported by one child only."""
    return joined_groups(probes, lambda probe, other: not set(probe.modules).isdisjoint(other.modules))


def find_rows(probes: list[Probe], tell: Callable[[Probe], None] = lambda probe: None) -> Iterator[Row]:
    """A row for each probe, as it is found; `tell` hears which one is tried."""
    by_name = {probe.name: probe for probe in probes}
    for group in group_probes(probes):
        for answer in ask_together(group, tell):
            row = Row(by_name[answer[0]], *answer[1:])
            if not row.is_as_expected and len(group) > 1:
                # Another framework in the process may be the reason.
                alone = next(ask_together([row.probe], tell))
                row = Row(row.probe, *alone[1:])
            yield row


def describe_device(device: md.Device) -> dict[str, Any]:
    names = ["name", "registry_id", "has_unified_memory", "max_buffer_length", "recommended_max_working_set_size"]
    return {name: getattr(device, name) for name in [*names, "current_allocated_size", "is_software"]}


def describe_machine() -> dict[str, Any]:
    """What the doctor knows before it has tried anything, as plain data."""
    return {
        "metal_dlpack": md.__version__,
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "devices": [describe_device(device) for device in md.devices()],
        "storage_mode": md.get_storage_mode(),
        "frameworks": [{"name": f.name, "version": f.version()} for f in FRAMEWORKS.values()],
    }


def examine() -> dict[str, Any]:
    """Everything the doctor knows, as plain data; "ok" says that all that should share does."""
    machine = describe_machine()
    probes = probes_for(machine)
    rows = sorted(find_rows(probes), key=lambda row: probes.index(row.probe))
    return machine | {"pairs": [row.facts() for row in rows], "ok": all_share(machine, rows)}


def all_share(machine: dict[str, Any], rows: Iterable[Row]) -> bool:
    """Does all that should share, on a machine that has a device?"""
    return bool(machine["devices"]) and all(row.is_as_expected for row in rows)


# ---- as text ----


def device_lines(device: dict[str, Any]) -> list[str]:
    kind = "software: no GPU, the CPU stands in" if device["is_software"] else "Apple's Metal"
    memory = "unified memory" if device["has_unified_memory"] else "memory of its own"
    return [
        f"  {device['name']} ({kind}), {memory}",
        f"    longest buffer {nbytes_text(device['max_buffer_length'])}, "
        f"working set {nbytes_text(device['recommended_max_working_set_size'])}, "
        f"allocated now {nbytes_text(device['current_allocated_size'])}",
    ]


def machine_lines(machine: dict[str, Any]) -> list[str]:
    lines = [f"metal_dlpack {machine['metal_dlpack']}, Python {machine['python']}, {machine['platform']}"]
    lines += ["", "Devices"]
    for device in machine["devices"]:
        lines += device_lines(device)
    if not machine["devices"]:
        lines.append("  none: Metal shows no device, so nothing can be shared")
    lines.append(f"  storage mode of allocations: {machine['storage_mode']}")
    if machine["devices"]:
        lines.append("  of a file opened with mode 'c', a Mac copies each page that the GPU touches, into wired memory")
    lines += ["", "Frameworks"]
    for framework in machine["frameworks"]:
        lines.append(f"  {framework['name']:<10} {framework['version'] or 'not installed'}")
    return lines


class Table:
    """The table of pairs, line by line, and the notes below it."""

    HEAD = ("from", "to", "how", "verdict")

    def __init__(self, probes: list[Probe]) -> None:
        cells = [self.HEAD, *((p.source, p.target, p.how, "") for p in probes)]
        self.widths = [max(len(row[column]) for row in cells) for column in range(4)]
        self.notes: list[str] = []

    def head(self) -> str:
        return self.line(self.HEAD, "")

    def row(self, row: Row) -> str:
        tail = " ".join(row.reason.split())  # an error of a framework may be many lines long
        if note := row.probe.note:
            if note not in self.notes:
                self.notes.append(note)
            tail = f"{tail} [{self.notes.index(note) + 1}]".strip()
        if not row.is_as_expected:
            tail = f"UNEXPECTED {tail}"
        return self.line((row.probe.source, row.probe.target, row.probe.how, row.verdict), tail)

    def line(self, cells: tuple[str, ...], tail: str) -> str:
        text = "  ".join(cell.ljust(width) for cell, width in zip(cells, self.widths, strict=True))
        return f"  {text}  {tail}".rstrip()

    def note_lines(self) -> list[str]:
        return [
            line
            for number, note in enumerate(self.notes, 1)
            for line in textwrap.wrap(f"[{number}] {note}.", 98, initial_indent="  ", subsequent_indent="      ")
        ]


def end_line(machine: dict[str, Any], rows: list[Row]) -> str:
    if not machine["devices"]:
        return "Nothing can be shared: Metal shows no device."
    if not rows:
        packages = ", ".join(f.distribution for f in FRAMEWORKS.values() if any(f.module in p.modules for p in PROBES))
        return f"No framework to share with is installed. Install one with pip and run this again: {packages}."
    if all(row.is_as_expected for row in rows):
        return "Everything that should share memory does."
    return "A pair that should share memory does not."


def report(out: TextIO) -> bool:
    """Write all of it as text, each row as it is found; returns whether all that should share does."""
    machine = describe_machine()
    probes = probes_for(machine)
    table, is_terminal = Table(probes), out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    rows: list[Row] = []

    def tell(probe: Probe) -> None:
        if is_terminal:
            out.write(f"\r\x1b[K  trying {len(rows) + 1} of {len(probes)}: {probe.how}"[:78])
            out.flush()

    def write(line: str) -> None:
        out.write(("\r\x1b[K" if is_terminal else "") + line + "\n")
        out.flush()

    for line in machine_lines(machine):
        write(line)
    if probes:
        write("\nWho shares memory, found by writing on one side and reading on the other")
        write(table.head())
    for row in find_rows(probes, tell):
        rows.append(row)
        write(table.row(row))
    for line in [*table.note_lines(), "", end_line(machine, rows)]:
        write(line)
    return all_share(machine, rows)
