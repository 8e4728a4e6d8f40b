"""What `make coverage` has counted: lines and branches by folder, and what no test reaches.

    coverage_report.py FOLDER

FOLDER holds what the tests left behind.  Ends with 1 below LINES or BRANCHES per cent, in all or, for lines, in the
software Metal, and where a line of another folder is not reached that needs a mark (marks.py) and has none.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from marks import marks_of

ROOT = Path(__file__).resolve().parent.parent
LINES, BRANCHES = 95, 85
#: Its lines are held by their share alone: of many a refusal, each would need a machine without memory or threads.
BY_SHARE = "softmetal"

#: A line that passes on a failure, or cleans up after one, needs no mark: `make mutants` drops such lines.
PASSES_ON = re.compile(
    r"(return (NULL|nil|-1|false|status|BRIDGE_(?!OK)\w+)|goto \w+|break|PyErr_NoMemory\(\)|PyErr_Clear\(\)"
    r"|(Py_X?DECREF|Py_CLEAR|free|\w+_release)\([\w>.&-]+\));( /\*.*\*/)?|\}"
)


def count(folder: Path) -> dict:
    """gcovr's report: one entry for each file of src/, whatever it was compiled into."""
    report = folder / "report.json"
    command = [
        *(sys.executable, "-m", "gcovr", "--root", str(ROOT), "--filter", "src/", str(folder)),
        *("--json", str(report), "--json-pretty"),
        "--exclude-unreachable-branches",  # of lines without code, such as a closing brace
        *("--merge-mode-functions", "separate"),  # the tests' C programs have the same functions once more
        *("--gcov-ignore-errors", "source_not_found"),  # a test compiles what it writes to stdin
        *("--gcov-suspicious-hits-threshold", "0"),  # the pool's inner loop runs billions of times in all
    ]
    subprocess.run(command, cwd=ROOT, check=True)
    return json.loads(report.read_text())


@dataclass
class Counts:
    lines: Counter = field(default_factory=Counter)  # of True: reached, and False
    branches: Counter = field(default_factory=Counter)

    def add(self, line: dict) -> None:
        self.lines[line["count"] > 0] += 1
        self.branches.update(branch["count"] > 0 for branch in line["branches"])

    def __str__(self) -> str:
        both = (self.lines, self.branches)
        return "".join(f"{counts[True]:7} of {counts.total():5}  {per_cent(counts):5.1f} %" for counts in both)


def per_cent(counts: Counter) -> float:
    return 100 * counts[True] / max(1, counts.total())


def examine(file: dict) -> tuple[list[str], list[str]]:
    """Return a file's lines that are not reached and have no reason; the marks on what is reached."""
    text = (ROOT / file["file"]).read_text()
    lines = text.splitlines()
    marks = [places for places, _, _ in marks_of(text, "unreached")]
    missed = {line["line_number"] - 1 for line in file["lines"] if line["count"] == 0}
    missed -= {line["line_number"] - 1 for line in file["lines"] if line["count"] > 0}  # under another name
    marked = {i for places in marks for i in places}
    unknown = [i for i in sorted(missed - marked) if not PASSES_ON.fullmatch(lines[i].strip())]
    stale = [places.start for places in marks if not missed & set(places)]
    return tuple([f"{file['file']}:{i + 1}: {lines[i].strip()}" for i in found] for found in (unknown, stale))


def main() -> int:
    report = count(Path(sys.argv[1]).resolve())
    total, folders = Counts(), defaultdict(Counts)
    unknown, stale = [], []
    for file in report["files"]:
        folder = file["file"].split("/")[1]
        for line in file["lines"]:
            total.add(line)
            folders[folder].add(line)
        if folder != BY_SHARE:
            without_mark, without_use = examine(file)
            unknown += without_mark
            stale += without_use
    print(f"{'':16}{'lines':>22}{'branches':>25}")
    for name, counts in [*sorted(folders.items()), ("in all", total)]:
        print(f"{name:16}{counts}")
    print(f"{len(unknown)} lines are not reached and have no mark", *unknown, sep="\n    ")
    print(f"{len(stale)} marks are on what is reached", *stale, sep="\n    ")
    is_enough = True
    for what, counts in (("all", total), (BY_SHARE, folders[BY_SHARE])):
        if per_cent(counts.lines) < LINES:
            print(f"{what}: less than {LINES} % of lines")
            is_enough = False
    if per_cent(total.branches) < BRANCHES:
        print(f"less than {BRANCHES} % of branches")
        is_enough = False
    return 0 if is_enough and not unknown else 1


if __name__ == "__main__":
    sys.exit(main())
