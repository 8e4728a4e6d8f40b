"""Which tests run which lines, measured once: in C by a build that marks them (mutant_trace.c), in Python by coverage.

As a plugin of pytest (-p mutant_trace) it notes the marks after each test; children of a test mark the same file.  To
coverage a test is a context; its children find the context's name in the environment.
"""

import contextlib
import json
import mmap
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import ChainMap, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path

import coverage
import pytest
from mutant_rules import function_at, functions
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


marks = Marks(os.environ["MUTANT_TRACE"]) if "MUTANT_TRACE" in os.environ else None


def pytest_collection_finish(session):
    """What runs while a test file is imported counts for its first test."""
    if session.items:
        marks.note(session.items[0].nodeid, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    started = time.perf_counter()
    os.environ["MUTANT_TEST"] = item.nodeid
    coverage.Coverage.current().switch_context(item.nodeid)
    result = yield
    marks.note(item.nodeid, time.perf_counter() - started)
    return result


def pytest_unconfigure(config):
    Path(os.environ["MUTANT_TRACE"] + ".json").write_text(json.dumps(marks.tests))


# ---- the measuring ----

TEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long")
FLAGS = "-O0 -gdwarf-4 -w -MMD -fsanitize-coverage=trace-pc"
LINES_OF_PYTHON = """[run]
include = {folder}/python/*,{folder}/kit/*
data_file = {data}
context = ${{MUTANT_TEST}}
core = ctrace
parallel = true
patch = _exit
disable_warnings = module-not-measured, no-data-collected, module-not-imported
"""


def test_environment(shop: Shop) -> dict[str, str]:
    path = [shop.folder / "python", shop.folder / "kit", shop.folder / "tools"]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOFTMETAL_CACHE": str(shop.cache),
        "SOFTMETAL_VALIDATION": "1",
    }


def run_file(shop: Shop, settings: Path, test_file: str) -> dict[str, tuple[float, list[int]]]:
    """Its tests by name: seconds, and which bytes of the module's code were marked.  coverage writes its own."""
    with tempfile.TemporaryDirectory(dir=shop.folder) as folder:
        marked = Path(folder, "marks")
        with marked.open("wb") as file:
            file.truncate(MARKS)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *TEST_OPTIONS, "-p", "mutant_trace", test_file],
            cwd=shop.folder,
            env=test_environment(shop) | {"MUTANT_TRACE": str(marked), "COVERAGE_PROCESS_START": str(settings)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1, 5):  # 5: no tests, all are long
            sys.exit(f"without a mutant, {test_file} ends with {done.returncode}:\n{done.stdout[-3000:]}")
        tests = json.loads(Path(f"{marked}.json").read_text())
        for failed in set(re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)) & tests.keys():
            print(f"fails while it is measured, and is left out: {failed}", flush=True)
            del tests[failed]
        return tests


Line = tuple[str, str, str]  # file, function, text


@cache
def lines_in(file: str) -> dict[int, Line]:
    """Return the lines by number; none for a file that is not ours."""
    text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
    named, at, lines = functions(file, text), 0, {}
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        function = function_at(named, at + len(line) - len(line.lstrip()))
        lines[number] = file, function.name if function else "", line.strip()
        at += len(line)
    return lines


def line_at(file: str, number: int) -> Line:
    return lines_in(file).get(number, (file, "", ""))


def lines_of(shop: Shop, places: list[int]) -> dict[int, Line]:
    """What stands at each place.  A mark is where the call returns: the line is before it."""
    asked = "\n".join(hex(place - 1) for place in places)
    command = ["addr2line", "-e", str(shop.module)]
    answers = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for place, where in zip(places, answers, strict=True):
        path, _, number = where.partition(" ")[0].rpartition(":")
        file = path.removeprefix(f"{shop.folder}/").removeprefix("./")
        found[place] = line_at(file, int(number) if number.isdigit() else 0)
    return found


def lines_of_python(shop: Shop, data: Path) -> dict[str, set[Line]]:
    """By test."""
    found = defaultdict(set)
    for written in data.parent.glob(f"{data.name}.*"):
        seen = coverage.CoverageData(str(written))
        with contextlib.suppress(coverage.exceptions.DataError):  # its process was killed meanwhile
            seen.read()
        for path in seen.measured_files():
            for number, tests in seen.contexts_by_lineno(path).items():
                for test in tests:
                    found[test].add(line_at(str(Path(path).relative_to(shop.folder)), number))
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
        data, settings = Path(scratch, "python"), Path(scratch, "coverage.ini")
        settings.write_text(LINES_OF_PYTHON.format(folder=shop.folder, data=data))
        with ThreadPoolExecutor(workers) as pool:
            runs = dict(ChainMap(*pool.map(lambda file: run_file(shop, settings, file), test_files())))
        marks_of_c = lines_of(shop, sorted({place for _, marked in runs.values() for place in marked}))
        python = lines_of_python(shop, data)
    ran = {name: {marks_of_c[place] for place in marked} | python[name] for name, (_, marked) in runs.items()}
    numbers = {line: i for i, line in enumerate(sorted(set().union(*ran.values())))}
    tests = {name: (seconds, sorted(map(numbers.get, ran[name]))) for name, (seconds, _) in runs.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"of": fingerprint(), "lines": list(numbers), "tests": tests}))


def fingerprint() -> str:
    """Hash all that a measurement depends on."""
    whole = sha256()
    for path in sorted(path for name in ("src", "python", "kit", "tests") for path in (ROOT / name).rglob("*.*")):
        if path.suffix in (".c", ".h", ".m", ".py"):
            whole.update(path.read_bytes())
    return whole.hexdigest()


# ---- what was measured ----


class Trace:
    def __init__(self, path: Path):
        known = json.loads(path.read_text())
        self.fingerprint = known["of"]
        self.seconds = {name: seconds for name, (seconds, _) in known["tests"].items()}
        self.tests_of_part: dict[tuple[str, ...], set[str]] = defaultdict(set)  # of a file, a function, or a line
        for name, (_, numbers) in known["tests"].items():
            for number in numbers:
                line = known["lines"][number]
                for length in (1, 2, 3):
                    self.tests_of_part[tuple(line[:length])].add(name)

    def tests_of(self, file: str, function: str, lines: list[str]) -> tuple[set[str], set[str]]:
        """Return the tests that run the last of these lines that begins a block, and all that run the function."""
        # Python outside of functions runs when its file is imported: for all that use the file.
        of_function = self.tests_of_part[(file, function) if function else (file,)]
        for line in reversed(lines):
            if tests := self.tests_of_part[file, function, line.strip()]:
                return tests, of_function
        return of_function, of_function

    def tests_of_folder(self, folder: Path) -> set[str]:
        """All that run something of a folder's."""
        files = (part for part in self.tests_of_part if len(part) == 1 and Path(part[0]).parent == folder)
        return set().union(*map(self.tests_of_part.get, files))
