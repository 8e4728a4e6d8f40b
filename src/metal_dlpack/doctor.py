"""The doctor: what this machine has, and which frameworks share memory through it.

Each pair is tried by sharing, writing and reading (probes.py), in a child process: if a framework
crashes, that is one row of the table, and the next child goes on with the rest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import metal_dlpack as md

from .frameworks import FRAMEWORKS
from .probes import PROBES, Copies, Probe

__all__ = ["Row", "examine", "report_text"]

#: One child may import a framework for the first time, on a slow disk.
CHILD_TIMEOUT_S = 240
VERDICTS = ("shares", "copies", "cannot")


@dataclass(frozen=True)
class Row:
    """What one probe found."""

    probe: str
    source: str
    target: str
    how: str
    verdict: str
    reason: str
    note: str
    is_as_expected: bool


# ---- the children ----


def run_child(names: list[str]) -> None:
    """In the child: run probes, print one line of JSON for each as it ends."""
    by_name = {probe.name: probe for probe in PROBES}
    for name in names:
        verdict, reason = run_probe(by_name[name])
        print(json.dumps([name, verdict, reason]), flush=True)


def run_probe(probe: Probe) -> tuple[str, str]:
    try:
        probe.run()
    except Copies as copies:
        return "copies", str(copies)
    except Exception as error:  # whatever a framework raises is the answer
        return "cannot", f"{type(error).__name__}: {error}"
    return "shares", ""


def child_command(names: list[str]) -> list[str]:
    code = "import sys; from metal_dlpack.doctor import run_child; run_child(sys.argv[1:])"
    return [sys.executable, "-c", code, *names]


def child_environment() -> dict[str, str]:
    # The child imports the package that runs now, wherever that came from.
    folder = os.path.dirname(os.path.dirname(os.path.abspath(md.__file__)))
    paths = [folder, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"JAX_PLATFORMS": "cpu", **os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def end_text(returncode: int, stderr: str) -> str:
    """Why a child ended before it had answered."""
    last = stderr.strip().splitlines()[-1:] or [""]
    if returncode < 0:
        return f"the process died of {signal.Signals(-returncode).name}: {last[0]}".rstrip(": ")
    return f"the process ended with code {returncode}: {last[0]}".rstrip(": ")


def ask_child(names: list[str]) -> tuple[dict[str, tuple[str, str]], str]:
    """The answers of one child, and why it stopped if some are missing."""
    try:
        child = subprocess.run(
            child_command(names),
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=child_environment(),
            timeout=CHILD_TIMEOUT_S,
            check=False,
        )
        output, end = child.stdout, end_text(child.returncode, child.stderr)
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
        output = text.decode(errors="replace") if isinstance(text, bytes) else text
        end = f"no answer in {CHILD_TIMEOUT_S} s"
    return read_answers(output, names), end


def read_answers(output: str, names: list[str]) -> dict[str, tuple[str, str]]:
    answers = {}
    for line in output.splitlines():
        try:
            name, verdict, reason = json.loads(line)
        except ValueError:
            continue  # a framework prints what it likes
        if name in names and verdict in VERDICTS:
            answers[name] = (verdict, reason)
    return answers


def ask_children(names: list[str]) -> dict[str, tuple[str, str]]:
    """Answers for all the names: a child that dies costs the one it was at."""
    answers: dict[str, tuple[str, str]] = {}
    while names:
        found, end = ask_child(names)
        answers |= found
        names = [name for name in names if name not in found]
        if names:
            answers[names[0]] = ("cannot", end)
            names = names[1:]
    return answers


# ---- the table ----


def runnable_probes() -> list[Probe]:
    installed = {f.module for f in FRAMEWORKS if f.is_installed()}
    return [probe for probe in PROBES if installed.issuperset(probe.modules)]


def find_rows() -> list[Row]:
    probes = runnable_probes()
    # One child for each set of frameworks: none is loaded beside one that it has no row with.
    groups: dict[tuple[str, ...], list[str]] = {}
    for probe in probes:
        groups.setdefault(probe.modules, []).append(probe.name)
    answers: dict[str, tuple[str, str]] = {}
    for names in groups.values():
        answers |= ask_children(names)
    return [make_row(probe, *answers[probe.name]) for probe in probes]


def make_row(probe: Probe, verdict: str, reason: str) -> Row:
    return Row(
        probe=probe.name,
        source=probe.source,
        target=probe.target,
        how=probe.how,
        verdict=verdict,
        reason=reason,
        note=probe.note,
        # A better verdict than the expected one counts as expected.
        is_as_expected=VERDICTS.index(verdict) <= VERDICTS.index(probe.expected),
    )


def describe_device(device: md.Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "registry_id": device.registry_id,
        "has_unified_memory": device.has_unified_memory,
        "max_buffer_length": device.max_buffer_length,
        "recommended_max_working_set_size": device.recommended_max_working_set_size,
        "current_allocated_size": device.current_allocated_size,
        "is_software": device.is_software,
    }


def examine() -> dict[str, Any]:
    """Everything the doctor knows, as plain data; "ok" says that all that should share does."""
    devices = [describe_device(device) for device in md.devices()]
    rows = find_rows() if devices else []
    return {
        "metal_dlpack": md.__version__,
        "python": sys.version.split()[0],
        "platform": sys.platform,
        "devices": devices,
        "storage_mode": md.get_storage_mode(),
        "frameworks": [{"name": f.name, "version": f.version()} for f in FRAMEWORKS],
        "pairs": [asdict(row) for row in rows],
        "ok": bool(devices) and all(row.is_as_expected for row in rows),
    }


# ---- as text ----


def size_text(nbytes: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= size:
            return f"{nbytes / size:.4g} {unit}"
    return f"{nbytes} bytes"


def device_lines(device: dict[str, Any]) -> list[str]:
    kind = "software: no GPU, the CPU stands in" if device["is_software"] else "Apple's Metal"
    memory = "unified memory" if device["has_unified_memory"] else "memory of its own"
    return [
        f"  {device['name']} ({kind}), {memory}",
        f"    longest buffer {size_text(device['max_buffer_length'])}, "
        f"working set {size_text(device['recommended_max_working_set_size'])}, "
        f"allocated now {size_text(device['current_allocated_size'])}",
    ]


def table_lines(pairs: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The table's lines, and the notes below it."""
    notes: list[str] = []
    cells = [("from", "to", "how", "verdict")]
    tails = [""]
    for pair in pairs:
        tail = pair["reason"]
        if pair["note"]:
            if pair["note"] not in notes:
                notes.append(pair["note"])
            tail = f"{tail} [{notes.index(pair['note']) + 1}]".strip()
        if not pair["is_as_expected"]:
            tail = f"UNEXPECTED {tail}"
        cells.append((pair["source"], pair["target"], pair["how"], pair["verdict"]))
        tails.append(tail)
    widths = [max(len(row[column]) for row in cells) for column in range(4)]
    lines = []
    for row, tail in zip(cells, tails, strict=True):
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"  {text}  {tail}".rstrip())
    return lines, notes


def report_text(facts: dict[str, Any]) -> str:
    lines = [f"metal_dlpack {facts['metal_dlpack']}, Python {facts['python']}, {facts['platform']}"]
    lines += ["", "Devices"]
    for device in facts["devices"]:
        lines += device_lines(device)
    if not facts["devices"]:
        lines.append("  none: Metal shows no device, so nothing can be shared")
    lines += [f"  storage mode of allocations: {facts['storage_mode']}", "", "Frameworks"]
    for framework in facts["frameworks"]:
        lines.append(f"  {framework['name']:<10} {framework['version'] or 'not installed'}")
    lines += ["", "Who shares memory, found by writing on one side and reading on the other"]
    table, notes = table_lines(facts["pairs"])
    lines += table
    for number, note in enumerate(notes, 1):
        lines += textwrap.wrap(f"[{number}] {note}.", 98, initial_indent="  ", subsequent_indent="      ")
    end = "All that should share does." if facts["ok"] else "Something should share and does not."
    lines += ["", end]
    return "\n".join(lines)
