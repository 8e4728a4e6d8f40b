"""A report as plain values, which schema.json describes: of what was recorded, or of several processes together."""

from __future__ import annotations

import os
import re
import sys
import zlib
from typing import Any

from metal_dlpack.language import literals
from softmetal.msl import for_softmetal

from . import advice, places, silences
from .recording import FindingRecord, KernelRecord, Record

#: The version in schema.json.
SCHEMA = 1

Report = dict[str, Any]

#: What the two numbers of a kind are.
_NUMBERS = {
    "array-index": ("index", "items"),
    "vector-index": ("index", "items"),
    "shift-amount": ("amount", "bits"),
    "lane-index": ("lane", "lanes"),
    "misaligned": ("bytes_past", "alignment"),
    "timeout": ("seconds", None),
    "unwritten-output": ("unwritten", "last"),
    "not-resident": ("byte", "buffer_bytes"),
}
#: What a thread does at a place, unless it reads or writes.
_DOES = {
    **{"barrier-divergence": "waits", "simdgroup-divergence": "waits", "misaligned": "uses"},
    **{"unwritten-threadgroup-memory": "reads", "unwritten-memory": "reads", "unwritten-output": "writes"},
}
_ACCESSES = {"out-of-bounds", "write-to-const", "null-pointer", "stray-pointer", "race", "race-of-threadgroups"}
_ACCESSES |= {"argument-type", "argument-strides", "not-resident", "pixel-coordinate", "no-texture", "texture-fence"}


_root = ""


def name_files_from(folder: str) -> None:
    """As the process does whose report this one's is put to."""
    global _root
    _root = folder


def root() -> str:
    """The folder that files are named from: of the repository that the program began in, or where it began."""
    if _root:
        return _root
    here = os.path.realpath(literals.began_in())
    folder = here
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return here
        folder = above
    return folder


def build(record: Record) -> Report:
    """What was recorded, as schema.json has it."""
    folder = root()
    kernels = [_kernel(one, folder) for one in record.kernels.values()]
    advised = [found for one in record.kernels.values() for found in advice.of_kernel(one)]
    findings = [_finding(one, folder) for one in (*record.findings.values(), *advised)]
    images = set(record.kernels)
    report = {
        "schema": SCHEMA,
        "tool": {"name": "metal_dlpack", "version": sys.modules["metal_dlpack"].__version__},
        "program": list(sys.argv),
        "root": folder,
        "kernels": kernels,
        "findings": findings,
        "unused_silences": [_named(one, folder) for one in silences.unused(images)],
        "refused_silences": [_named(one, folder) for one in silences.refused()],
        "lost": record.lost,
    }
    return merged([report])


def merged(reports: list[Report]) -> Report:
    """One report of several: what is the same is one, and is counted."""
    whole: Report = {**reports[0], "kernels": [], "findings": [], "lost": 0}
    kernels: dict[Any, dict[str, Any]] = {}
    findings: dict[Any, dict[str, Any]] = {}
    for report in reports:
        whole["lost"] += report["lost"]
        for kernel in report["kernels"]:
            key = (kernel["name"], kernel["file"], kernel["line"], kernel["text"], kernel["checked"], kernel["runs_as"])
            _add(kernels, key, kernel, ("launches", "stopped", "threads", "seconds"))
        for finding in report["findings"]:
            known = _add(findings, _identity(finding), finding, ("launches", "times"))
            known["kernels"] = sorted({*known["kernels"], *finding["kernels"]})
    whole["kernels"] = sorted(kernels.values(), key=lambda one: (-one["seconds"], one["name"]))
    whole["findings"] = sorted(findings.values(), key=_order)
    # A silence is used if it is in one of the processes that had it.
    for name in ("unused_silences", "refused_silences"):
        said = [one for report in reports for one in report[name]]
        whole[name] = [one for at, one in enumerate(said) if one not in said[:at]]
    used = [one["silenced"] for one in whole["findings"] if one["silenced"] is not None]
    whole["unused_silences"] = [one for one in whole["unused_silences"] if one not in used]
    return whole


def _add(known: dict[Any, dict[str, Any]], key: Any, one: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """What is known by this key, `one` counted."""
    if key not in known:
        known[key] = dict(one)
    else:
        for name in names:
            known[key][name] += one[name]
    return known[key]


def _identity(finding: dict[str, Any]) -> Any:
    """Instantiations of a template, and kernels that share a function, have the same finding once."""
    named = [(one["file"], one["line"], one["source"], one["source_line"]) for one in finding["accesses"]]
    accesses = tuple(sorted(named, key=str))
    memory = finding["memory"] or {}
    in_a_file = bool(accesses) and all(file is not None for file, *_ in accesses)
    kernels = () if in_a_file else tuple(finding["kernels"])
    return finding["kind"], kernels, accesses, memory.get("kind"), memory.get("name")


def _order(finding: dict[str, Any]) -> Any:
    first = finding["accesses"][0] if finding["accesses"] else {"file": None, "line": 0}
    return finding["silenced"] is not None, first["file"] or "", first["line"], finding["kind"]


def named_from(folder: str, file: str | None) -> str | None:
    """A file's name from the root; one that is elsewhere has its whole path, and a cell of a notebook its number."""
    if file is None:
        return None
    file = places.name_of(file)
    if file.startswith("<") or places.is_cell(file):
        return file
    path = os.path.realpath(file)
    return os.path.relpath(path, folder) if path.startswith(folder.rstrip(os.sep) + os.sep) else path


def _named(silence: silences.Silence, folder: str) -> dict[str, str]:
    file, _, line = silence.where.rpartition(":")
    shown = named_from(folder, file) if os.path.isabs(file) else file
    return {"where": f"{shown}:{line}", "reason": silence.reason}


# ---- kernels ----


def _kernel(record: KernelRecord, folder: str) -> dict[str, Any]:
    place = _declared(record.image, record.kernel)
    return {
        "name": record.kernel,
        "file": named_from(folder, place[0]) if place else None,
        "line": place[1] if place else None,
        "text": f"{zlib.crc32((for_softmetal.source_of_image(record.image) or '').encode()):08x}",
        "checked": record.is_checked,
        "launches": record.launches,
        "stopped": record.stopped,
        "threads": record.threads,
        "seconds": record.seconds,
        "runs_as": record.first["runs_as"],
        **_launch(record.first),
    }


def _declared(image: str, kernel: str) -> tuple[str, int] | None:
    """Where the kernel's name stands in its source, before its parameters."""
    source = for_softmetal.source_of_image(image) or ""
    name = re.compile(rf"\b{re.escape(kernel.rpartition('::')[2])}\b\s*\(")
    for file, lines in places.lines_by_file(source).items():
        for number, line in lines.items():
            if name.search(line):
                return places.of_the_user(image, file, number)
    return None


def _launch(told: dict[str, Any]) -> dict[str, Any]:
    """How a launch was made: the first of a kernel, or the one that a finding is of."""
    arguments = [
        {
            "kind": "buffer" if kind == "buffer" else "threadgroup argument",
            "index": index,
            "name": name,
            "nbytes": nbytes,
            "type": item_type,
            "item_nbytes": item_nbytes,
            "dtype": None,
            "shape": None,
        }
        for kind, index, name, nbytes, item_nbytes, item_type in told["arguments"]
    ]
    for argument, (dtype, shape) in told.get("shapes", {}).items():
        for one in arguments:
            if one["kind"] == "buffer" and one["index"] == argument:
                one["dtype"], one["shape"] = dtype, list(shape)
    return {"grid": list(told["grid"]), "group": list(told["group"]), "arguments": arguments}


# ---- findings ----


def _finding(record: FindingRecord, folder: str) -> dict[str, Any]:
    told = record.told
    memory = told["memory"]
    silence = told.get("silence")
    return {
        "kind": told["kind"],
        "text": told["text"],
        "kernels": [told["kernel"]],
        "accesses": [_access(told, place, folder) for place in told["places"]],
        "memory": memory and _memory(memory),
        "offset": told["offset"] if memory else None,
        "nbytes": told["nbytes"] or None,
        "item": told["offset"] // memory["item_nbytes"] if memory and memory["item_nbytes"] else None,
        "numbers": _numbers(told),
        "launches": record.launches,
        "times": record.times,
        **(_launch(record.launch) if record.launch else {"grid": None, "group": None, "arguments": []}),
        "silenced": silence and _named(silence, folder),
        "advice": told["advice"],
    }


def _memory(memory: dict[str, Any]) -> dict[str, Any]:
    is_variable = memory["kind"] == "threadgroup variable"
    return {
        "kind": memory["kind"],
        "index": None if is_variable else memory["index"],
        "name": memory["name"],
        "nbytes": memory["nbytes"],
        "type": memory["type"],
        "item_nbytes": memory["item_nbytes"] or None,
    }


def _numbers(told: dict[str, Any]) -> dict[str, int]:
    values = (told["first"], told["second"])
    if told["kind"] not in _NUMBERS or (told["kind"].endswith("-index") and not told["second"]):
        return {}
    signed = [value - (1 << 64) if value >> 63 else value for value in values]
    return {name: value for name, value in zip(_NUMBERS[told["kind"]], signed, strict=True) if name is not None}


def _access(told: dict[str, Any], row: tuple[str, Any, Any, bool], folder: str) -> dict[str, Any]:
    line, thread, threadgroup, is_write = row
    kind = told["kind"]
    does = ("writes" if is_write else "reads") if kind in _ACCESSES else _DOES.get(kind, "is")
    place = places.find(told["image"], line)
    if place is None:
        place = places.Place(None, 0, 0, False, line, 0, ())
    return {
        "file": named_from(folder, place.file),
        "line": place.line,
        "column": place.column or None,
        "near": place.is_near,
        "source": place.name,
        "source_line": place.own_line,
        "context": [[number, text] for number, text in place.context],
        "does": does,
        "thread": list(thread),
        "threadgroup": list(threadgroup),
    }
