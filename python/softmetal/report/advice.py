"""Advice: what is right here and by Metal's rules, and has gone wrong on a Mac.  It fails nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from metal_dlpack.language.signatures import without_comments
from softmetal.msl import for_softmetal

from . import places, silences
from .recording import FindingRecord, KernelRecord, advised

_SMALL = re.compile(r"\bmax_total_threads_per_threadgroup\s*\(\s*(\d+)\s*\)")
_BARRIER = re.compile(r"\bthreadgroup_barrier\s*\(")
#: What a kernel of one SIMD-group uses, and what becomes of it.
_TRAPS = {
    _BARRIER.pattern: "drop the order that a threadgroup_barrier makes",
    r"\bsimdgroup_(?:matrix\b|\w+\dx\d\b|load\b|multiply)": "leave wrong rows in tiles of simdgroup_matrix",
}
_PAIRS = {"(": ")", "{": "}"}
LANES = 32
#: Beside those of C.
KINDS = ("barrier-flags", "small-threadgroup", "clipped-threadgroup")


def of_kernel(record: KernelRecord) -> Iterator[FindingRecord]:
    """What its source has that Apple's compilers are known to get wrong.

    SOURCE https://github.com/pytorch/pytorch/issues/192802, https://github.com/KhronosGroup/MoltenVK/issues/2711,
        https://github.com/tracel-ai/cubecl/pull/1636 (matrices: rows 4 to 7 of a tile, with barriers and without)
    """
    source = without_comments(for_softmetal.source_of_image(record.image) or "")
    found = re.search(rf"(?P<head>[^;{{}}]*)\b{re.escape(record.kernel.rpartition('::')[2])}\s*\(", source)
    if found is None:
        return
    body = _bracketed(source, source.find("{", found.end()))
    given = [name for kind, _, name, *_ in record.first.get("arguments", ()) if kind == "buffer" and name]
    for flags in _calls(body):
        chosen_by = [name for name in given if re.search(rf"\b{re.escape(name)}\b", flags)]
        if chosen_by:
            text = (
                f"the flags of a threadgroup_barrier depend on {chosen_by[0]}, and Apple's compiler gives up where "
                "they are no constant; write an `if` with a barrier of constant flags on each side"
            )
            yield _record(record, source, "barrier-flags", text, rf"threadgroup_barrier.*\b{re.escape(chosen_by[0])}\b")
    small = _SMALL.search(found["head"])
    traps = [trap for word, trap in _TRAPS.items() if re.search(word, _with_called(source, body))]
    if small and int(small[1]) <= LANES and traps:
        text = (
            f"max_total_threads_per_threadgroup({small[1]}) makes a threadgroup one SIMD-group, and some of Apple's "
            f"compilers then {' and '.join(traps)}; declare {LANES + 1} or more"
        )
        yield _record(record, source, "small-threadgroup", text, _SMALL.pattern)


def _with_called(source: str, body: str) -> str:
    """A function's body, and those of all functions whose names are in it, and so on."""
    texts, names, known = [body], [body], set[str]()
    while names:
        for name in set(re.findall(r"\b\w+(?=\s*[(<])", names.pop())) - known:
            known.add(name)
            for head in re.finditer(rf"\b{name}\s*\([^;{{}}]*\)\s*\{{", source):
                names.append(_bracketed(source, head.end() - 1))
        texts += names
    return "".join(texts)


def _calls(body: str) -> Iterator[str]:
    """What each barrier is given."""
    for call in _BARRIER.finditer(body):
        yield _bracketed(body, call.end() - 1)


def _bracketed(text: str, opening: int) -> str:
    """From a bracket to its partner, or to the end."""
    depth = 0
    for at in range(max(opening, 0), len(text)):
        depth += (text[at] == text[opening]) - (text[at] == _PAIRS[text[opening]])
        if depth == 0:
            return text[opening : at + 1]
    return text[opening:] if opening >= 0 else ""


def _record(record: KernelRecord, source: str, kind: str, text: str, line: str) -> FindingRecord:
    told = advised(record.kernel, record.image, kind, text)
    told["places"] = list(_places(source, re.compile(line)))[:1]
    told["silence"] = next((silences.used_at(record.image, place) for place, *_ in told["places"]), None)
    return FindingRecord(told, record.first, record.launches, record.launches)


def _places(source: str, line: re.Pattern[str]) -> Iterator[tuple[str, Any, Any, bool]]:
    """The lines of a source without comments that have this."""
    for file, lines in places.lines_by_file(source).items():
        for number, text in lines.items():
            if found := line.search(text):
                yield f"{file}:{number}:{found.start() + 1}", (0, 0, 0), (0, 0, 0), False
