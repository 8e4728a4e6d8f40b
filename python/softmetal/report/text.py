"""A report for a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .building import Report
from .places import is_cell

MOST_KERNELS = 20


def text_of(report: Report) -> str:
    """Lines that begin with what was found last, so that it stands where one looks."""
    return "\n".join(_lines(report)) + "\n"


def found_and_silenced(report: Report) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Its findings: those that count, and those that are meant so."""
    found = [one for one in report["findings"] if one["silenced"] is None and not one["advice"]]
    silenced = [one for one in report["findings"] if one["silenced"] is not None]
    return found, silenced


def advice(report: Report) -> list[dict[str, Any]]:
    """What fails nothing, and has gone wrong on a Mac."""
    return [one for one in report["findings"] if one["silenced"] is None and one["advice"]]


def _lines(report: Report) -> Iterator[str]:
    found, silenced = found_and_silenced(report)
    unseen = "" if report["kernels"] else "no kernel was launched, so nothing was checked: "
    yield f"softmetal: {unseen}{summary(report)}"
    yield from _kernels(report["kernels"])
    for number, finding in enumerate(found, 1):
        yield ""
        yield from _finding(report, number, finding)
    if advised := advice(report):
        yield ""
        yield f"advice: {len(advised)}"
        for one in advised:
            place = f" at {where(report, one['accesses'][0])}" if one["accesses"] else ""
            yield f"  {one['kind']} in {', '.join(one['kernels'])}{place}: {one['text']}."
    if silenced:
        yield ""
        yield f"silenced: {len(silenced)}"
        for finding in silenced:
            silence = finding["silenced"]
            yield f"  {where(report, finding['accesses'][0])}: {finding['kind']} in {', '.join(finding['kernels'])}"
            yield f"      {silence['where']}: {silence['reason']}"
    for silence in report["refused_silences"]:
        yield f"{silence['where']}: `softmetal: benign` has no reason and silences nothing; write one behind it."
    for silence in report["unused_silences"]:
        yield f"{silence['where']}: nothing was found there, so this silence is not needed: {silence['reason']}"
    yield from lost(report)


def lost(report: Report) -> list[str]:
    """What had no room, in a sentence."""
    many = f"There were too many kernels or findings: {report['lost']:,} are not in this report."
    return [many] if report["lost"] else []


def summary(report: Report) -> str:
    """ "3 kernels, 12 launches, 4,096 threads, 0.12 s; 1 finding, 2 silenced"."""
    kernels = report["kernels"]
    found, silenced = map(len, found_and_silenced(report))
    seconds = sum(one["seconds"] for one in kernels)
    return (
        f"{counted(len(kernels), 'kernel')}, {counted(sum(one['launches'] for one in kernels), 'launch', 'launches')}, "
        f"{counted(sum(one['threads'] for one in kernels), 'thread')}, {seconds:.2f} s; {counted(found, 'finding')}"
        + (f", {silenced:,} silenced" if silenced else "")
    )


def counted(count: int, one: str, more: str | None = None) -> str:
    """ "1 launch", "2,000 launches"."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _kernels(kernels: list[dict[str, Any]]) -> Iterator[str]:
    width = max((len(one["name"]) for one in kernels[:MOST_KERNELS]), default=0)
    for one in kernels[:MOST_KERNELS]:
        yield (
            f"  {one['name']:<{width}}  {one['launches']:>7,} x  {one['threads']:>13,} threads"
            f"  {one['seconds']:>9.3f} s"
            + ("" if one["checked"] else "  not checked")
            + (f"  {one['stopped']:,} failed" if one["stopped"] else "")
        )
    if len(kernels) > MOST_KERNELS:
        yield f"  ... and {len(kernels) - MOST_KERNELS:,} more"


def _finding(report: Report, number: int, finding: dict[str, Any]) -> Iterator[str]:
    yield f"{number}. {finding['kind']}: {finding['text']}"
    for access in finding["accesses"]:
        yield f"   {where(report, access)}: {who(access)}"
        if (code := line_of(access)) is not None:
            yield f"       {code.strip()}"
    for fact in facts(finding):
        yield f"   {fact}"


def where(report: Report, access: dict[str, Any]) -> str:
    """ "file.py:12:5", or that the line is in no file."""
    return place(access, None if access["file"] is None else shown(report, access["file"]))


def place(access: dict[str, Any], file: str | None) -> str:
    """ "file.py:12:5" with this name of the file; None: the line is in none."""
    near = "near " if access["near"] else ""
    column = f":{access['column']}" if access["column"] else ""
    if file is not None:
        return f"{near}{file}:{access['line']}{column}"
    if access["source_line"] == 0:
        return str(access["source"])
    return f"{near}{access['source']}:{access['source_line']}{column} (the kernel's source)"


def shown(report: Report, file: str) -> str:
    """A file's name from the working folder, where that is shorter."""
    if is_cell(file):
        return file
    path = os.path.join(report["root"], file)
    relative = os.path.relpath(path)
    return relative if len(relative) < len(path) else path


def who(access: dict[str, Any]) -> str:
    """ "thread (1,0,0) of threadgroup (0,0,0) writes"."""
    does = "is here" if access["does"] == "is" else access["does"]
    return f"thread {triple(access['thread'])} of threadgroup {triple(access['threadgroup'])} {does}"


def triple(numbers: list[int]) -> str:
    """ "(1,0,0)"."""
    return f"({','.join(map(str, numbers))})"


def line_of(access: dict[str, Any]) -> str | None:
    """The line itself; None: it is not known."""
    return next((text for number, text in access["context"] if number == access["line"]), None)


def facts(finding: dict[str, Any]) -> Iterator[str]:
    """What else is known of it, a sentence each."""
    memory = finding["memory"]
    if memory is not None:
        item = ""
        if finding["item"] is not None:
            kind = memory["type"] or f"{memory['item_nbytes']} bytes"
            item = f", item {finding['item']:,} ({kind}) of {memory['nbytes'] // memory['item_nbytes']:,}"
        yield f"byte {finding['offset']:,} of {memory['nbytes']:,}{item}"
    if finding["numbers"]:
        yield ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in finding["numbers"].items())
    times = f", {finding['times']:,} times" if finding["times"] > finding["launches"] else ""
    yield (
        f"in {', '.join(finding['kernels'])}: {counted(finding['launches'], 'launch', 'launches')}{times}"
        + (
            f"; the first with grid {triple(finding['grid'])}, group {triple(finding['group'])}"
            if finding["grid"]
            else ""
        )
    )
    if finding["arguments"]:
        yield "arguments: " + ", ".join(argument(one) for one in finding["arguments"])


def argument(one: dict[str, Any]) -> str:
    """ "x float32 (4, 8)", or "n uint" of a number."""
    if one["shape"] == [] and (one["dtype"] or one["type"]):
        return f"{one['name']} {one['dtype'] or one['type']}"
    if one["shape"]:
        return f"{one['name']} {one['dtype']} ({', '.join(map(str, one['shape']))}{',' * (len(one['shape']) == 1)})"
    if one["type"] is not None and one["item_nbytes"]:
        return f"{one['name']} {one['type']}[{one['nbytes'] // one['item_nbytes']:,}]"
    return f"{one['name']} {one['nbytes']:,} bytes"
