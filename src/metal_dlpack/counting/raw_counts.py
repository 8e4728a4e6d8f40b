"""What the software Metal has counted, as a KernelCount: names, lines and sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from metal_dlpack.msl.counted_code import ATOMIC, BRANCH, READ, WRITE

from .kernel_count import KernelCount
from .values import AccessCount, ArgumentCount, BranchCount, LineCount, Traffic, total

#: LLVM's names of integers, which have no sign.
_TYPES = {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}


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
    meetings: int
    memories: list[tuple[Any, ...]]
    rows: list[tuple[Any, ...]]
    barriers: list[tuple[int, int]]
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
    from metal_dlpack.msl import for_softmetal

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
    return KernelCount(
        kernel=raw.kernel,
        grid=raw.grid,
        group=raw.group,
        threads=raw.threads,
        groups=raw.groups,
        simdgroups=raw.simdgroups,
        threadgroup_memory=raw.threadgroup_memory,
        barriers=sum(barriers.values()),
        simd_meetings=raw.meetings,
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
        lines=tuple(_lines(accesses, branches, operations, barriers, text)),
        operations=_table(operations),
    )


def _names(memories: list[_Memory]) -> list[str]:
    """Variables in threadgroup memory are counted, in the order of the source."""
    numbers = sorted(one.number for one in memories if one.is_variable)
    return [f"threadgroup variable {numbers.index(one.number)}" if one.is_variable else one.name for one in memories]


def _spaces(memories: list[_Memory], kernel: str, text: str | None) -> list[str]:
    """Each one's address space; `constant` is seen in the source alone."""
    from metal_dlpack.msl import signatures

    constant: set[str] = set()
    if text is not None:
        listed = [
            (one.name, "threadgroup" if one.is_threadgroup else "buffer", one.number)
            for one in memories
            if not one.is_variable
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
        index=memory.number,
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


def _barriers(raw: _Raw) -> dict[tuple[str, int], int]:
    """How often a threadgroup_barrier opened, by (file, line)."""
    from metal_dlpack.msl.line_table import lines_of

    found: dict[tuple[str, int], int] = defaultdict(int)
    places = lines_of(raw.image_path, [offset for offset, _ in raw.barriers]) if raw.barriers else []
    for (file, line, _), (_, count) in zip(places, raw.barriers, strict=True):
        found[file.removeprefix("near "), line] += count
    return found


def _lines(
    accesses: list[AccessCount],
    branches: list[BranchCount],
    operations: list[_Operations],
    barriers: dict[tuple[str, int], int],
    text: str | None,
) -> list[LineCount]:
    from metal_dlpack.msl.diagnostics import lines_of_source

    sources = lines_of_source(text) if text is not None else {}
    here: dict[tuple[str, int], list[AccessCount]] = defaultdict(list)
    for one in accesses:
        here[one.file, one.line].append(one)
    places = [*here, *barriers, *((one.file, one.line) for one in branches)]
    made = []
    for file, line in dict.fromkeys(places):
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
                divergent_branches=sum(one.divergent for one in branches if (one.file, one.line) == (file, line)),
                operations=_table(one for one in operations if one.line == line),
            )
        )
    return sorted(made, key=lambda one: (-one.lines - one.rounds, -one.accesses, one.file, one.line))
