"""What came of a suite on two devices: the causes, the row, and their place in docs/suites.md.

A test that does not pass on mps has one of five fates, in this order: skipped there, failed on the CPU too, ended or
held up its process, refused as on a Mac by a rule of torch (a pattern over what the test said), or ours.
"""

import re
import statistics
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs/suites.md"
DIED = "the process died"


@dataclass
class Result:
    """What one test did on one device."""

    outcome: str  # passed, failed, skipped
    said: str = ""
    seconds: float = 0.0


@dataclass
class Row:
    """The counts of one suite; `refused` counts by the rule's name, and `ours` has what each said, by the test."""

    tests: int = 0
    on_cpu: int = 0
    on_mps: int = 0
    skipped: int = 0
    failed_on_both: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ours: dict[str, str] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)  # of the times, by pair of runs
    tensors: int = 0  # bytes of mps more than at the start
    grown: dict[str, int] = field(default_factory=dict)  # bytes of the process, by device

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios) if self.ratios else 0.0


def same_test(nodeid: str) -> str:
    """The name of a test on either device: some have the device in their parameters, and torch's in their class."""
    nodeid = re.sub(r"(?<=[a-z])MPS(?=::)", "CPU", nodeid)
    return re.sub(r"(?<![A-Za-z0-9])mps(?::0|0)?(?![A-Za-z0-9])", "cpu", nodeid)


def cause_of(said: str, test: str, causes: dict[str, Any], known: dict[str, list[str]]) -> str | None:
    """The name of the rule that refuses; None: there is none.  What is known by the test's name comes first."""
    for name, tests in known.items():
        if any(fnmatchcase(test, pattern) for pattern in tests):
            return name
    return next((name for name, cause in causes.items() if re.search(cause["says"], said)), None)


def by_test(results: dict[str, Result]) -> dict[str, Result]:
    """By the name on either device.

    A suite that tries each device that it finds tries the CPU again beside mps: mps counts.
    """
    return {same_test(test): results[test] for test in sorted(results, key=lambda one: one != same_test(one))}


def ratio_of(cpu: dict[str, Result], mps: dict[str, Result]) -> float:
    """The time on mps over the CPU's, of the tests that pass on both."""
    cpu, mps = by_test(cpu), by_test(mps)
    both = [test for test in cpu if cpu[test].outcome == "passed" == mps.get(test, Result("failed")).outcome]
    there, here = (sum(of[test].seconds for test in both) for of in (cpu, mps))
    return here / there if there else 0.0


def row_of(
    cpu: dict[str, Result],
    mps: dict[str, Result],
    causes: dict[str, Any],
    known: dict[str, list[str]],
    *,
    of_mps: bool = False,
) -> Row:
    """Count each test once; those that are skipped on the CPU are no tests, unless those `of_mps` alone count."""
    row = Row(ratios=[ratio_of(cpu, mps)])
    cpu, mps = by_test(cpu), by_test(mps)
    for test, there in cpu.items():
        here = mps.get(test, Result("failed", "it does not run on mps"))
        if there.outcome == "skipped" and not (of_mps and here.outcome != "skipped"):
            continue
        row.tests += 1
        row.on_cpu += there.outcome == "passed"
        if here.outcome == "passed":
            row.on_mps += 1
        elif here.outcome == "skipped":
            row.skipped += 1
        elif there.outcome == "failed":
            row.failed_on_both += 1
        elif here.said.startswith(DIED):
            row.crashes.append(test)
        elif (cause := cause_of(here.said, test, causes, known)) is not None:
            row.refused[cause] = row.refused.get(cause, 0) + 1
        else:
            row.ours[test] = here.said.partition("\n")[0][:200]
    return row


def by_number(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


# ---- the page ----


def lines_of(name: str, version: str, date: str, row: Row, causes: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of each of the page's blocks."""
    refused = sum(row.refused.values())
    numbers = (
        row.tests,
        row.on_cpu,
        row.on_mps,
        refused,
        row.skipped,
        row.failed_on_both,
        len(row.ours),
        len(row.crashes),
    )
    counts = " | ".join(f"{number:,}" for number in numbers)
    return {
        "rows": [f"| {name} {version} | {counts} | {row.ratio:.1f} of {len(row.ratios)} | {memory_of(row)} | {date} |"],
        "refused": [
            f"| {name} | {number:,} | {cause}: {causes[cause]['rule']} |" for cause, number in by_number(row.refused)
        ],
        "ours": [f"| {name} | `{shown(test)}` | {shown(said)} |" for test, said in sorted(row.ours.items())]
        + [f"| {name} | `{shown(test)}` | the process dies, or takes too long |" for test in row.crashes],
    }


def memory_of(row: Row) -> str:
    """Tensors left, in bytes; growth of the process on the CPU and on mps, in MB."""
    cpu, mps = (f"{row.grown.get(device, 0) / 1e6:.0f}" for device in ("cpu", "mps"))
    return f"{row.tensors:,} | {cpu} | {mps}"


def shown(text: str) -> str:
    return text.replace("|", "/").replace("`", "'").replace("<", "(").replace(">", ")").strip()


def name_in(line: str) -> str:
    return line.removeprefix("| ").split(" ")[0]


def placed(page: str, name: str, blocks: dict[str, list[str]]) -> str:
    """The page with these lines in place of the suite's; the lines of a block are sorted by the suite's name."""
    for block, lines in blocks.items():
        begin, end = f"<!-- {block} -->\n", f"<!-- end of {block} -->"
        before, _, rest = page.partition(begin)
        held, _, after = rest.partition(end)
        head, rule, *kept = held.strip().splitlines()
        kept = sorted([line for line in kept if name_in(line) != name] + lines, key=lambda line: name_in(line).lower())
        page = before + begin + "\n".join([head, rule, *kept]) + "\n" + end + after
    return page


def names_on(page: str) -> list[str]:
    """The suites that have a row."""
    held = page.partition("<!-- rows -->\n")[2].partition("<!-- end of rows -->")[0]
    return [name_in(line) for line in held.strip().splitlines()[2:]]
