"""Which tests run which lines of C: measured once, by a build that marks what runs (mutant_trace.c).

As a plugin of pytest (-p mutant_trace) it notes the marks after each test; children of a test mark the same file.
"""

import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections import ChainMap
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
from mutant_shop import ROOT, Shop

MARKS = 1 << 22  # as mutant_trace.c

# ---- the plugin ----


class Marks:
    def __init__(self, path: str):
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), MARKS)
        self.tests: dict[str, tuple[float, list[int]]] = {}

    def note(self, name: str, seconds: float) -> None:
        before, found = self.tests.get(name, (0, []))
        at = self.map.find(b"\1")
        while at >= 0:
            found.append(at)
            self.map[at] = 0
            at = self.map.find(b"\1", at + 1)
        self.tests[name] = (before + seconds, found)


marks: Marks | None = None


def pytest_configure(config):
    global marks
    marks = Marks(os.environ["MUTANT_TRACE"])


def pytest_collection_finish(session):
    """What runs while a test file is imported counts for its first test."""
    if session.items:
        marks.note(session.items[0].nodeid, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    started = time.perf_counter()
    result = yield
    marks.note(item.nodeid, time.perf_counter() - started)
    return result


def pytest_unconfigure(config):
    Path(os.environ["MUTANT_TRACE"] + ".json").write_text(json.dumps(marks.tests))


# ---- the measuring ----

TEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long")
FLAGS = "-O0 -g -w -MMD -fsanitize-coverage=trace-pc"


def test_environment(shop: Shop) -> dict[str, str]:
    path = [shop.folder / "src", shop.folder / "tools"]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOFTMETAL_VALIDATION": "1",
    }


def run_file(shop: Shop, test_file: str) -> dict[str, tuple[float, list[int]]]:
    """Its tests by name: seconds, and which bytes of the module's code were marked."""
    with tempfile.TemporaryDirectory(dir=shop.folder) as folder:
        marked = Path(folder, "marks")
        with marked.open("wb") as file:
            file.truncate(MARKS)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *TEST_OPTIONS, "-p", "mutant_trace", test_file],
            cwd=shop.folder,
            env=test_environment(shop) | {"MUTANT_TRACE": str(marked)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 5):  # 5: no tests, all are long
            sys.exit(f"without a mutant, {test_file} ends with {done.returncode}:\n{done.stdout[-3000:]}")
        return json.loads(Path(f"{marked}.json").read_text())


def lines_of(shop: Shop, places: list[int]) -> list[tuple[str, str, str]]:
    """(file, function, text of the line) of each place.  A mark is where the call returns: the line is before it."""
    asked = "\n".join(hex(place - 1) for place in places)
    command = ["addr2line", "-f", "-e", str(shop.module)]
    answers = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    texts: dict[str, list[str]] = {}
    found = []
    for function, where in zip(answers[::2], answers[1::2], strict=True):
        path, _, number = where.partition(" ")[0].rpartition(":")
        file = path.removeprefix(f"{shop.folder}/").removeprefix("./")
        if file not in texts:
            texts[file] = (ROOT / file).read_text().splitlines() if (ROOT / file).is_file() else []
        is_known = number.isdigit() and 0 < int(number) <= len(texts[file])
        found.append((file, function, texts[file][int(number) - 1].strip() if is_known else ""))
    return found


def test_files() -> list[str]:
    """All but those of the house, which look at texts."""
    return [str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").glob("*/test_*.py")) if p.parent.name != "house"]


def measure(path: Path, workers: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        hook = Path(scratch, "hook.o")
        source = ROOT / "tools" / "mutant_trace.c"
        subprocess.run(["gcc", "-O2", "-fPIC", "-c", source, "-o", hook], check=True)
        shop = Shop(Path(scratch, "traced"), FLAGS, str(hook))
        with ThreadPoolExecutor(workers) as pool:
            runs = dict(ChainMap(*pool.map(lambda file: run_file(shop, file), test_files())))
        places = sorted({place for _, marked in runs.values() for place in marked})
        lines = lines_of(shop, places)
    numbers = {line: i for i, line in enumerate(dict.fromkeys(lines))}
    number_of = {place: numbers[line] for place, line in zip(places, lines, strict=True)}
    tests = {
        name: (seconds, sorted({number_of[place] for place in marked})) for name, (seconds, marked) in runs.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"of": fingerprint(), "lines": list(numbers), "tests": tests}))


def fingerprint() -> str:
    """Of all that a measurement depends on."""
    whole = sha256()
    for path in sorted(
        [*(ROOT / "src").rglob("*.[chm]"), *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.*")]
    ):
        if path.suffix in (".c", ".h", ".m", ".py"):
            whole.update(path.read_bytes())
    return whole.hexdigest()


# ---- what was measured ----


class Trace:
    def __init__(self, path: Path):
        known = json.loads(path.read_text())
        self.fingerprint = known["of"]
        self.seconds = {name: seconds for name, (seconds, _) in known["tests"].items()}
        self.tests_of_line: dict[tuple[str, str, str], set[str]] = {tuple(line): set() for line in known["lines"]}
        self.tests_of_function: dict[tuple[str, str], set[str]] = {}
        for name, (_, numbers) in known["tests"].items():
            for number in numbers:
                line = tuple(known["lines"][number])
                self.tests_of_line[line].add(name)
                self.tests_of_function.setdefault(line[:2], set()).add(name)

    def tests_of(self, file: str, function: str, lines: list[str]) -> tuple[set[str], set[str]]:
        """Those that run the last of these lines that begins a block, and all that run the function."""
        of_function = self.tests_of_function.get((file, function), set())
        for line in reversed(lines):
            if tests := self.tests_of_line.get((file, function, line.strip())):
                return tests, of_function
        return of_function, of_function

    def tests_of_folder(self, folder: Path) -> set[str]:
        """All that run something of a folder's."""
        found: set[str] = set()
        for (file, _), tests in self.tests_of_function.items():
            if Path(file).parent == folder:
                found |= tests
        return found
