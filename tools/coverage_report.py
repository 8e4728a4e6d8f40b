"""What `make coverage` has counted: lines and branches by folder, and what no test reaches.

    coverage_report.py FOLDER

FOLDER holds what the tests left behind.  Ends with 1 below LINES or BRANCHES per cent, and where a line is not reached
that coverage_reasons.toml does not name.
"""

import json
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REASONS = ROOT / "tools" / "coverage_reasons.toml"
LINES, BRANCHES = 95, 85


def count(folder: Path) -> dict:
    """gcovr's report: one entry for each file of src/, whatever it was compiled into."""
    report = folder / "report.json"
    command = [
        *(sys.executable, "-m", "gcovr", "--root", str(ROOT), "--filter", "src/", str(folder)),
        *("--json", str(report), "--json-pretty"),
        "--exclude-unreachable-branches",  # of lines without code, such as a closing brace
        *("--merge-mode-functions", "separate"),  # the tests' C programs have the same functions once more
        *("--gcov-ignore-errors", "source_not_found"),  # a test compiles what it writes to stdin
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


def names_of(file: dict) -> list[tuple[str, bool]]:
    """Each line of a file as coverage_reasons.toml names it, and whether it is reached."""
    texts = (ROOT / file["file"]).read_text().splitlines()
    return [
        (f"{file['file']} {line.get('function_name', '')}: {texts[line['line_number'] - 1].strip()}", line["count"] > 0)
        for line in file["lines"]
    ]


def reasons() -> dict[str, str]:
    """Why a line is not reached, by its name; by "file function" for all lines of a function."""
    groups = tomllib.loads(REASONS.read_text())["missed"]
    return {name: group["why"] for group in groups for name in group["lines"]}


def main() -> int:
    report = count(Path(sys.argv[1]).resolve())
    total, folders = Counts(), defaultdict(Counts)
    missed: list[str] = []
    for file in report["files"]:
        folder = file["file"].split("/")[1]
        for line in file["lines"]:
            total.add(line)
            folders[folder].add(line)
        missed += [name for name, is_reached in names_of(file) if not is_reached]
    print(f"{'':16}{'lines':>22}{'branches':>25}")
    for name, counts in [*sorted(folders.items()), ("in all", total)]:
        print(f"{name:16}{counts}")
    known = reasons()
    unknown = [name for name in dict.fromkeys(missed) if not {name, name.partition(": ")[0]} & known.keys()]
    stale = known.keys() - {part for name in missed for part in (name, name.partition(": ")[0])}
    print(f"{len(missed)} lines are not reached; {len(unknown)} of them without a reason in {REASONS.name}")
    for name in unknown:
        print(f"    '''{name}''',")
    print(f"{len(stale)} reasons are for what is reached, or gone")
    for name in sorted(stale):
        print(f"    {name}")
    is_enough = per_cent(total.lines) >= LINES and per_cent(total.branches) >= BRANCHES
    if not is_enough:
        print(f"less than {LINES} % of lines or {BRANCHES} % of branches")
    return 0 if is_enough and not unknown else 1


if __name__ == "__main__":
    sys.exit(main())
