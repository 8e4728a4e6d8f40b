"""What the software Metal has counted, as a KernelCount: names, lines and sums."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from softmetal.msl.counted_code import ATOMIC, BRANCH, READ, WRITE

from .kernel_count import KernelCount
from .values import AccessCount, ArgumentCount, BranchCount, LineCount, Traffic, total

#: LLVM's names of integers, which have no sign.
_TYPES = {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
#: As a call names it, also with its namespace.
_SIMD_FUNCTION = re.compile(r"(?:\w+::)*((?:simd|quad)\w*)")


class _Raw(NamedTuple):
    """softmetal_counts.c: counts_tuple."""

    kernel: str
    image_path: str
    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    threads: int
    groups: int
    simdgroups: int
    threadgroup_memory: int
    memories: list[tuple[Any, ...]]
    rows: list[tuple[Any, ...]]
    barriers: list[tuple[int, int]]
    meetings: list[tuple[int, int]]
    executions: list[int]
    operations: str


class _Memory(NamedTuple):
    name: str
    is_threadgroup: int
    is_variable: int
    number: int
    nbytes: int
    distinct_read: int
    distinct_written: int
    atomics: int
    most_atomics: int

    @property
    def resource(self) -> int:
        """Its place in resources=; below 0: it is none."""
        return -1 if self.is_threadgroup or self.texture >= 0 else self.number - 31  # finding.h: SOFT_FIRST_RESOURCE

    @property
    def texture(self) -> int:
        """Its [[texture(index)]]; below 0: it is none."""
        return -1 if self.is_threadgroup else self.number - (1 << 16)  # finding.h: SOFT_FIRST_TEXTURE


class _Row(NamedTuple):
    file: str
    line: int
    column: int
    nbytes: int
    how: int
    memory: int
    executions: int
    lanes: int
    possible: int
    lines: int
    least_lines: int
    rounds: int
    least_rounds: int


def kernel_count(given: tuple[Any, ...], text: str | None = None) -> KernelCount:
    """`text`: the source; None: what was compiled for that image."""
    from metal_dlpack.language.diagnostics import lines_of_source
    from softmetal.msl import for_softmetal

    raw = _Raw(*given)
    text = for_softmetal.source_of_image(raw.image_path) if text is None else text
    memories = [_Memory(*one) for one in raw.memories]
    spaces = _spaces(memories, raw.kernel, text)
    names = _names(memories)
    rows = [_Row(*one) for one in raw.rows]
    accesses = [_access(one, names[one.memory], spaces[one.memory]) for one in rows if not one.how & BRANCH]
    accesses.sort(key=lambda one: (one.file, one.line, one.column))
    branches = [_branch(one) for one in rows if one.how & BRANCH]
    branches.sort(key=lambda one: (one.file, one.line, one.column))
    operations = list(_operations(raw))
    barriers = _barriers(raw)
    sources = lines_of_source(text) if text is not None else {}
    functions = _simd_functions(raw, sources)
    return KernelCount(
        kernel=raw.kernel,
        grid=raw.grid,
        group=raw.group,
        threads=raw.threads,
        groups=raw.groups,
        simdgroups=raw.simdgroups,
        threadgroup_memory=raw.threadgroup_memory,
        barriers=sum(barriers.values()),
        simd_meetings=sum(functions.values()),
        simd_functions=functions,
        **{
            space: Traffic(**total(one for one in accesses if one.space == space))
            for space in ("device", "constant", "threadgroup")
        },
        arguments=tuple(
            _argument(one, name, space, [access for access in accesses if access.argument == name])
            for one, name, space in zip(memories, names, spaces, strict=True)
        ),
        accesses=tuple(accesses),
        branches=tuple(branches),
        lines=tuple(_lines(accesses, branches, operations, barriers, sources)),
        operations=_table(operations),
    )


def _names(memories: list[_Memory]) -> list[str]:
    """The source's; of several variables in threadgroup memory that have one name, the others' have a number."""
    known: dict[tuple[int, int, int], str] = {}
    for one in sorted(memories, key=lambda one: (one.is_variable, one.number)):
        name = one.name if one.resource < 0 else f"resources[{one.resource}]"
        same = [known_as for known_as in known.values() if known_as.partition(" ")[0] == name]
        known[one.is_threadgroup, one.is_variable, one.number] = f"{name} ({len(same) + 1})" if same else name
    return [known[one.is_threadgroup, one.is_variable, one.number] for one in memories]


def _spaces(memories: list[_Memory], kernel: str, text: str | None) -> list[str]:
    """Each one's address space; `constant` is seen in the source alone."""
    from metal_dlpack.language import signatures

    constant: set[str] = set()
    if text is not None:
        listed = [
            (one.name, "threadgroup" if one.is_threadgroup else "buffer", one.number)
            for one in memories
            if not one.is_variable and one.resource < 0 and one.texture < 0
        ]
        constant = {place.name for place in signatures.order(text, (kernel, listed)) if place.is_constant}
    return [
        "threadgroup" if one.is_threadgroup else "constant" if one.name in constant else "device" for one in memories
    ]


def _access(row: _Row, name: str, space: str) -> AccessCount:
    is_atomic, is_store = bool(row.how & ATOMIC), bool(row.how & WRITE)
    is_load = not is_store or bool(row.how & READ)
    nbytes = row.lanes * row.nbytes
    return AccessCount(
        bytes_read=nbytes if is_load else 0,
        bytes_written=nbytes if is_store else 0,
        loads=row.lanes if is_load and not is_atomic else 0,
        stores=row.lanes if is_store and not is_atomic else 0,
        atomics=row.lanes if is_atomic else 0,
        accesses=row.executions,
        lanes=row.lanes,
        lanes_possible=row.possible,
        lines=row.lines,
        least_lines=row.least_lines,
        rounds=row.rounds,
        least_rounds=row.least_rounds,
        file=row.file,
        line=row.line,
        column=row.column,
        argument=name,
        space=space,
        kind="atomic" if is_atomic else "store" if is_store else "load",
        nbytes=row.nbytes,
    )


def _branch(row: _Row) -> BranchCount:
    place = (row.file, row.line, row.column)
    return BranchCount(*place, row.executions, row.lanes, row.possible, row.lines, row.least_lines)


def _argument(memory: _Memory, name: str, space: str, accesses: list[AccessCount]) -> ArgumentCount:
    return ArgumentCount(
        **total(accesses),
        name=name,
        index=next((at for at in (memory.texture, memory.resource) if at >= 0), memory.number),
        space=space,
        nbytes=memory.nbytes,
        distinct_read=memory.distinct_read,
        distinct_written=memory.distinct_written,
        most_atomics=memory.most_atomics,
    )


class _Operations(NamedTuple):
    line: int
    what: str
    kind: str
    amount: int


def _operations(raw: _Raw) -> Iterator[_Operations]:
    for row in raw.operations.splitlines():
        block, line, what, kind, each = row.split()
        amount = raw.executions[int(block)] * int(each)
        if amount and kind != "i1":
            yield _Operations(int(line), what, _TYPES.get(kind, kind), amount)


def _table(operations: Iterable[_Operations]) -> dict[str, dict[str, int]]:
    """{"float": {"add": 1000}}"""
    made: dict[str, dict[str, int]] = {}
    for one in sorted(operations, key=lambda one: (one.kind, one.what)):
        row = made.setdefault(one.kind, {})
        row[one.what] = row.get(one.what, 0) + one.amount
    return made


def _placed(image_path: str, counted: list[tuple[int, int]]) -> Iterator[tuple[str, int, int, int]]:
    """(file, line, column, count) of (offset in the image, count)."""
    from softmetal.msl import for_softmetal

    places = for_softmetal.places_of(image_path, [offset for offset, _ in counted]) if counted else []
    for (file, line, column), (_, count) in zip(places, counted, strict=True):
        yield file.removeprefix("near "), line, column, count


def _barriers(raw: _Raw) -> dict[tuple[str, int], int]:
    """How often a threadgroup_barrier opened, by (file, line)."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for file, line, _, count in _placed(raw.image_path, raw.barriers):
        found[file, line] += count
    return found


def _simd_functions(raw: _Raw, sources: Mapping[tuple[str, int], str]) -> dict[str, int]:
    """How often each was called, by SIMD-groups; "other": the source does not name it at the call."""
    found: dict[str, int] = defaultdict(int)
    for file, line, column, count in _placed(raw.image_path, raw.meetings):
        named = _SIMD_FUNCTION.match(sources.get((file, line), ""), max(column - 1, 0))
        found[named[1] if named else "other"] += count
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _lines(
    accesses: list[AccessCount],
    branches: list[BranchCount],
    operations: list[_Operations],
    barriers: dict[tuple[str, int], int],
    sources: Mapping[tuple[str, int], str],
) -> list[LineCount]:
    here: dict[tuple[str, int], list[AccessCount]] = defaultdict(list)
    for one in accesses:
        here[one.file, one.line].append(one)
    divergent: dict[tuple[str, int], int] = defaultdict(int)
    for branch in branches:
        divergent[branch.file, branch.line] += branch.divergent
    computed: dict[int, list[_Operations]] = defaultdict(list)
    for operation in operations:
        computed[operation.line].append(operation)
    made = []
    for file, line in dict.fromkeys([*here, *barriers, *divergent]):
        of_line = here[file, line]
        sums = total(of_line)
        device = total(one for one in of_line if one.space == "device")
        made.append(
            LineCount(
                **{**sums, "lines": device["lines"], "least_lines": device["least_lines"]},
                file=file,
                line=line,
                source=sources.get((file, line), ""),
                barriers=barriers.get((file, line), 0),
                divergent_branches=divergent[file, line],
                operations=_table(computed[line]),
            )
        )
    return sorted(made, key=lambda one: (-one.lines - one.rounds, -one.accesses, one.file, one.line))
