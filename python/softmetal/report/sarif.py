"""A report as SARIF, for GitHub's code scanning and other readers of results.

SPEC Static Analysis Results Interchange Format 2.1.0, OASIS; docs.github.com, "SARIF support for code scanning".
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from . import text
from .building import Report
from .places import is_cell

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"

#: What each kind of finding is, and what to do.
RULES = {
    "race": (
        "Two threads of a threadgroup use a byte, one writes, and nothing orders them.",
        "Put a threadgroup_barrier with the flag of that memory between the two; a simdgroup_barrier for lanes of one "
        "SIMD-group.",
    ),
    "race-of-threadgroups": (
        "Threads of two threadgroups use a byte of a buffer, and one writes.",
        "Only atomics, fences or two launches order threadgroups.",
    ),
    "unwritten-threadgroup-memory": (
        "Threadgroup memory is read that no thread of the threadgroup has written.",
        "It is not zero on a GPU: write it first.",
    ),
    "unwritten-memory": (
        "A thread reads memory that nobody has written.",
        "It holds old bytes on a GPU: write it first, or give it a value before the launch (MLX: init_value=).",
    ),
    "unwritten-output": (
        "A launch leaves items of an output unwritten.",
        "Let the grid have a thread for each item (MLX's grid counts threads), or give the output a value before the "
        "launch (MLX: init_value=).",
    ),
    "out-of-bounds": (
        "A thread reads or writes outside of an argument's memory.",
        "Compare the index with the size that is passed, also at the edges of the grid.",
    ),
    "write-to-const": ("A thread writes an argument that is declared const.", "Declare it without const."),
    "null-pointer": ("A thread uses a null pointer.", "Bind the argument, or do not use it."),
    "stray-pointer": ("A thread uses an address that belongs to no argument.", "Look at how the pointer is computed."),
    "not-resident": (
        "A thread uses an address of a buffer that the launch was not told of.",
        "Give the Array in resources=; in Metal call useResource:usage:.",
    ),
    "pixel-coordinate": (
        "A thread reads or writes a pixel outside of a texture.",
        "Compare the coordinates with get_width() and get_height(), also at the edges of the grid.",
    ),
    "no-texture": ("A handle is no texture of the launch.", "Give it in resources=, or ask is_null_texture."),
    "texture-fence": (
        "A thread reads a pixel that it has written, with no fence() between.",
        "Call fence() of the texture before the read.",
    ),
    "unmapped-address": ("A thread uses an address that is no memory.", "Look at how the pointer is computed."),
    "misaligned": (
        "A thread uses a type at an address that is no multiple of its alignment.",
        "Use a packed type, or rows of a length that fits.",
    ),
    "barrier-divergence": (
        "Not all threads of a threadgroup reach a threadgroup_barrier.",
        "Let all reach it; return after the last barrier.",
    ),
    "simdgroup-divergence": (
        "Not all lanes of a SIMD-group reach a place that is for all of them.",
        "Let all lanes reach it.",
    ),
    "array-index": ("An index passes the end of an array.", "Check the index."),
    "vector-index": ("An index passes the end of a vector.", "Check the index."),
    "division-by-zero": ("An integer is divided by zero.", "Check the divisor."),
    "shift-amount": ("A shift by less than 0, or by the number's width or more.", "Check the amount."),
    "lane-index": (
        "A shuffle or a broadcast names a lane that its group has not.",
        "Check the lane, also at the ends.",
    ),
    "argument-type": (
        "An argument is not of the type that the kernel reads, and nothing converts it.",
        "Give the parameter's type: x.to(dtype), 2.0 for a float, arg_casts= for short numbers; or declare the other.",
    ),
    "argument-strides": (
        "A kernel reads a strided tensor as if its items lay one after the other.",
        "Give x.contiguous(), or the strides too.",
    ),
    "stack-overflow": ("A thread's variables need too much stack.", "Use threadgroup or device memory."),
    "timeout": ("A kernel runs too long.", "Look for the loop at that line."),
    "barrier-flags": (
        "The flags of a threadgroup_barrier are no constant.",
        "Write an `if` with a barrier of constant flags on each side.",
    ),
    "small-threadgroup": (
        "A kernel with barriers or matrices is declared for threadgroups of one SIMD-group.",
        "Declare more than 32 threads.",
    ),
    "clipped-threadgroup": (
        "MLX cuts a threadgroup to the grid.",
        "MLX's grid counts threads, not threadgroups.",
    ),
    "checker-memory": ("The checker has no memory left.", "Use smaller arguments."),
}


def sarif_of(report: Report) -> dict[str, Any]:
    """The whole file; files are named from the root, with forward slashes."""
    kinds = sorted({one["kind"] for one in report["findings"]})
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "softmetal",
                        "organization": "metal_dlpack",
                        "semanticVersion": report["tool"]["version"],
                        "rules": [_rule(kind) for kind in kinds],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {ROOT: {"uri": Path(report["root"]).as_uri().rstrip("/") + "/"}},
                "results": [_result(one, kinds) for one in report["findings"]],
                **_lost(report),
            }
        ],
    }


def _lost(report: Report) -> dict[str, Any]:
    said = [{"level": "warning", "message": {"text": sentence}} for sentence in text.lost(report)]
    return {"invocations": [{"executionSuccessful": True, "toolExecutionNotifications": said}]} if said else {}


def _rule(kind: str) -> dict[str, Any]:
    what, way_out = RULES[kind]
    return {
        "id": kind,
        "name": "".join(word.capitalize() for word in kind.split("-")),
        "shortDescription": {"text": what},
        "fullDescription": {"text": f"{what} {way_out}"},
        "help": {"text": way_out},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["metal", "gpu", "kernel"], "precision": "very-high", "problem.severity": "error"},
    }


def _result(finding: dict[str, Any], kinds: list[str]) -> dict[str, Any]:
    accesses = finding["accesses"]
    kernels = ", ".join(finding["kernels"])
    result = {
        "ruleId": finding["kind"],
        "ruleIndex": kinds.index(finding["kind"]),
        "level": "note" if finding["advice"] else "error",
        "message": {"text": f"{kernels}: {finding['text']}. {'; '.join(text.facts(finding))}."},
        "locations": [_location(finding, one) for one in accesses[:1]],
        "relatedLocations": [
            {"id": number, **_location(finding, one), "message": {"text": _capital(text.who(one))}}
            for number, one in enumerate(accesses)
        ],
        "partialFingerprints": {"softmetal/v1": _fingerprint(finding)},
        "occurrenceCount": max(finding["times"], 1),
    }
    if finding["silenced"] is not None:
        result["suppressions"] = [{"kind": "inSource", "justification": finding["silenced"]["reason"]}]
    return result


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _location(finding: dict[str, Any], access: dict[str, Any]) -> dict[str, Any]:
    """In a file, or at a line of a source that is in none."""
    kernels = [{"name": name, "kind": "function"} for name in finding["kernels"]]
    location: dict[str, Any] = {"logicalLocations": kernels}
    file = access["file"]
    if file is None or file.startswith("<") or is_cell(file):
        location["message"] = {"text": text.place(access, file)}
        return location
    region: dict[str, Any] = {"startLine": max(access["line"], 1)}
    if access["column"]:
        region["startColumn"] = access["column"]
    if (code := text.line_of(access)) is not None:
        region["snippet"] = {"text": code}
    location["physicalLocation"] = {"artifactLocation": _artifact(file), "region": region}
    return location


def _artifact(file: str) -> dict[str, str]:
    from urllib.parse import quote

    if os.path.isabs(file):
        return {"uri": Path(file).as_uri()}
    return {"uri": quote(file.replace(os.sep, "/")), "uriBaseId": ROOT}


def _fingerprint(finding: dict[str, Any]) -> str:
    """The same after lines were added above: of the lines' texts, not of their numbers."""
    memory = finding["memory"] or {}
    accesses = [(one["file"], (text.line_of(one) or "").strip(), one["does"]) for one in finding["accesses"]]
    parts = [finding["kind"], memory.get("kind"), memory.get("name"), *sorted(map(str, accesses))]
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
