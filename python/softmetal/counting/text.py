"""A count as text, for a terminal: the launch, its arguments, and the source with what each line does."""

from __future__ import annotations

from .values import ArgumentCount, LaunchCount, LineCount

#: Lines of the source that are shown, characters of one, and of a bar.
MOST_LINES, MOST_SOURCE, BAR = 40, 88, 10


def text_of(count: LaunchCount) -> str:
    parts = [*launch_facts(count), "", *_table(ARGUMENT_HEAD, [argument_row(one) for one in count.arguments])]
    shown = count.lines[:MOST_LINES]
    if shown:
        parts += ["", *_table(LINE_HEAD, [_line_row(one, count) for one in shown])]
    if len(count.lines) > len(shown):
        parts.append(f"and {len(count.lines) - len(shown):,} more lines, in `lines`")
    return "\n".join(parts)


# ---- what a notebook says too ----

ARGUMENT_HEAD = ("argument", "bytes read", "distinct", "written", "distinct", "lines/least", "rounds/least", "lanes")
LINE_HEAD = ("", "lines", "/least", "rounds", "/least", "lanes", "line", "source")


def launch_facts(count: LaunchCount) -> list[str]:
    """A sentence a row."""
    facts = [
        f"{count.kernel}: {count.threads:,} threads in {count.groups:,} threadgroups of {count.threads_per_group:,}, "
        f"{count.simdgroups:,} SIMD-groups",
        f"device memory: {count.bytes_read:,} bytes read, {count.bytes_written:,} written; "
        f"{count.loads_per_thread:.4g} loads and {count.stores_per_thread:.4g} stores for each thread; "
        f"{count.lines_per_access:.2f} times the least cache lines",
    ]
    if count.threadgroup_memory:
        facts.append(
            f"threadgroup memory: {count.threadgroup_memory:,} bytes for each threadgroup, of which "
            f"{count.groups_that_fit} fit in 32 KiB; {count.bank_conflicts:,} bank conflicts"
        )
    if count.barriers or count.simd_meetings:
        functions = ", ".join(f"{name} {times:,}" for name, times in count.simd_functions.items())
        facts.append(
            f"{count.barriers:,} barriers, {count.simd_meetings:,} SIMD-group functions"
            + (f" ({functions})" if functions else "")
        )
    facts += [
        f"{one.name}: {one.atomics:,} atomic operations, at most {one.most_atomics:,} at one address"
        for one in count.arguments
        if one.atomics
    ]
    done = [f"{amount:,} {kind} {what}" for kind, row in count.operations.items() for what, amount in row.items()]
    return [*facts, f"operations: {', '.join(done)}"] if done else facts


def argument_row(one: ArgumentCount) -> tuple[str, ...]:
    is_shared = one.space == "threadgroup"
    return (
        one.name,
        f"{one.bytes_read:,}",
        "" if is_shared else f"{one.distinct_read:,}",
        f"{one.bytes_written:,}",
        "" if is_shared else f"{one.distinct_written:,}",
        _ratio(one.lines, one.least_lines),
        _ratio(one.rounds, one.least_rounds),
        _share(one.lane_share) if one.accesses else "",
    )


def line_row(one: LineCount) -> tuple[str, ...]:
    """From the second column on."""
    return (
        f"{one.lines:,}" if one.lines else "",
        _ratio(one.lines, one.least_lines),
        f"{one.rounds:,}" if one.rounds else "",
        _ratio(one.rounds, one.least_rounds),
        _share(one.lane_share) if one.accesses else "",
        f"{shortened_file(one.file)}{one.line}",
        one.source if len(one.source) <= MOST_SOURCE else f"{one.source[: MOST_SOURCE - 1]}…",
    )


def shortened_file(file: str) -> str:
    """Before a line's number; nothing for a source without a name."""
    return "" if file == "program_source" else f"{file.rpartition('/')[2]}:"


def weight(one: LineCount, count: LaunchCount) -> float:
    """How much of the largest line's: 0 to 1."""
    largest = count.lines[0]
    most = largest.lines + largest.rounds
    return (one.lines + one.rounds) / most if most else 0.0


def _ratio(number: int, least: int) -> str:
    return f"{number / least:.2f}" if least else ""


def _share(share: float) -> str:
    return f"{share:.0%}"


# ---- the terminal's own ----


def _line_row(one: LineCount, count: LaunchCount) -> tuple[str, ...]:
    return ("█" * round(weight(one, count) * BAR)).ljust(BAR), *line_row(one)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Numbers to the right; names, bars and the source to the left."""
    all_rows = [head, *rows]
    widths = [max(len(row[at]) for row in all_rows) for at in range(len(head))]
    left = {0, len(head) - 1} if head[-1] == "source" else {0}
    return [
        "  ".join(
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in all_rows
    ]
