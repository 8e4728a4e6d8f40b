"""Would a test notice?  Break the sources in one place at a time, and run the tests that reach the place.

    python tools/mutants.py                 400 mutants of the C core; ends with 1 if one survives
    python tools/mutants.py --of=softmetal  100 of the software Metal; --of=python: of what mutant_rules.SOURCES names
    python tools/mutants.py --count 1000    so many
    python tools/mutants.py pool.c retain   those whose name holds these words, of all that there are
    python tools/mutants.py --reasons       those that have a reason to survive: each must survive indeed
    python tools/mutants.py --given FILE    those whose names FILE has, a line each, as --list prints them
    python tools/mutants.py --seconds 10    a quick look: so many seconds of tests for each
    python tools/mutants.py --list [WORDS]  their names

mutant_rules.py makes them; `/* mutant survives (RULE): why */` at the line says that no test can see one (marks.py;
in Python a comment).  Each is built against the software Metal in a copy of the checkout
(mutant_shop.py), and runs with SOFTMETAL_VALIDATION=1 the tests that reach its function (mutant_trace.py): first the
quick ones of its folder that reach its line, then all others.  It is caught if a test fails, crashes or hangs; the run
says which it was.
"""

import argparse
import json
import math
import queue
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import mutant_rules
from mutant_rules import Mutant
from mutant_shop import ROOT, SAME, Shop
from mutant_trace import Trace, fingerprint, measure, test_environment

TRACE = ROOT / "build" / "mutants" / "trace.json"
COUNTS = {"core": 400, "softmetal": 100, "python": 100}  # of each part of mutant_rules.SOURCES
WORKERS = 2
#: Seconds of tests, as they take without a mutant: the first run's, the second's.
FIRST, SECOND = 2, 10

#: Where the tests are not in the folder of the same name.
TESTS_OF = {
    "src/metal/copy_kernel.c": "tests/copy/",
    "src/softmetal": "tests/softmetal/",
    "python/softmetal/msl": "tests/msl/",
    "python/metal_dlpack/language": "tests/msl/",
    "python/metal_dlpack": "tests/package/",
    "kit": "tests/package/",
}


def folder_of(file: str) -> str:
    """Where its own tests are."""
    parents = map(str, (Path(file), *Path(file).parents))
    return next((TESTS_OF[path] for path in parents if path in TESTS_OF), f"tests/{Path(file).parent.name}/")


# ---- which tests ----


def place_of(mutant: Mutant) -> tuple[str, list[str]]:
    """The function that it changes, and the function's lines up to there."""
    text = (ROOT / mutant.file).read_text()
    function = mutant_rules.function_at(mutant_rules.functions(mutant.file, text), mutant.start)
    return (function.name, text[function.head : mutant.end].splitlines()) if function else ("", [])


def runs_of(mutant: Mutant, trace: Trace, budget: float) -> list[list[str]]:
    """The tests that reach its function, quick ones first, in runs: its folder's at the line, a few more, the rest."""
    reach_line, reach_function = trace.tests_of(mutant.file, *place_of(mutant))
    near = {name for name in trace.seconds if name.startswith(folder_of(mutant.file))}
    # What reaches nothing of a folder that it is there to test compiles the sources itself.
    compiling = set() if mutant.file.endswith(".py") else near - trace.tests_of_folder(Path(mutant.file).parent)
    stages = ((near & reach_line | compiling, FIRST), (reach_line, SECOND), (near | reach_function, budget))
    done: set[str] = set()
    runs, total = [], 0.0
    for names, most in stages:
        taken, seconds = [], 0.0
        for name in sorted(names - done, key=trace.seconds.__getitem__):
            seconds += trace.seconds[name]
            if seconds > min(most, budget - total):
                break
            taken.append(name)
        done |= set(taken)
        total += seconds
        runs.append(taken)
    return [taken for taken in runs if taken]


# ---- running them ----


class Runner:
    """A shop, and the process that runs tests in it (mutant_server.py)."""

    def __init__(self, folder: Path):
        self.shop = Shop(folder)
        command = [sys.executable, str(ROOT / "tools" / "mutant_server.py")]
        self.server = subprocess.Popen(
            command,
            cwd=folder,
            env=test_environment(self.shop),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self.server.stdin.close()
        self.server.wait()

    def test(self, tests: list[str], trace: Trace) -> str:
        """ "" where all pass, or what happened.  A run that writes nothing for long, as its tests go, hangs."""
        seconds = 30 + 5 * max(map(trace.seconds.__getitem__, tests))
        output = self.shop.folder / "output.txt"
        request = {"tests": tests, "options": ["-x"], "seconds": seconds, "output": str(output)}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        code = json.loads(self.server.stdout.readline())
        if code is None:
            return f"hangs ({seconds:.0f} s)"
        if code == 0:
            return ""
        if code not in (1, 2, 3):  # 3: a test failed, and so does pytest at its end
            return f"crashes ({code})"
        text = output.read_text(errors="replace")
        failed = [line for line in text.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].partition(" ")[2].partition(" - ")[0] if failed else text[-300:]


@dataclass
class Verdict:
    mutant: Mutant
    word: str  # "caught", "SURVIVES"; "broken": does not compile; "same": compiles to the same code
    detail: str
    seconds: float


def outcome(mutant: Mutant, runner: Runner, trace: Trace, budget: float) -> tuple[str, str]:
    text = (ROOT / mutant.file).read_text()
    if problem := runner.shop.change(mutant.file, mutant.apply(text)):
        return ("same" if problem == SAME else "broken"), problem
    runs = runs_of(mutant, trace, budget)
    for tests in runs:
        if what := runner.test(tests, trace):
            return "caught", what
    return "SURVIVES", f"{sum(map(len, runs))} tests"


def judge(mutant: Mutant, free: queue.Queue, trace: Trace, budget: float) -> Verdict:
    """By the next runner that is free."""
    runner = free.get()
    started = time.monotonic()
    verdict = Verdict(mutant, *outcome(mutant, runner, trace, budget), time.monotonic() - started)
    free.put(runner)
    if verdict.word in ("caught", "SURVIVES"):
        print(f"{verdict.word:8}  {mutant.name}: {verdict.detail} ({verdict.seconds:.1f} s)", flush=True)
    return verdict


def fail_anyway(tests: set[str], runner: Runner, trace: Trace) -> set[str]:
    """Return the tests that fail without a mutant, as they are run here: they catch none."""
    runner.shop.restore()
    runner.shop.run(runner.shop.link)
    failing: set[str] = set()
    while (left := sorted(tests - failing)) and (what := runner.test(left, trace)):
        if what not in left:
            sys.exit(f"without a mutant: {what}")
        failing.add(what)
    return failing


def check_sound(runner: Runner, trace: Trace) -> None:
    """Before the mutants, the quick tests: if nothing works, all would count as caught."""
    quick = sorted(trace.seconds, key=trace.seconds.__getitem__)[:200]
    if failing := fail_anyway(set(quick), runner, trace):
        sys.exit(f"without a mutant they fail: {failing}")


def check_catchers(done: list[Verdict], runner: Runner, trace: Trace) -> None:
    """After the mutants, each test that caught one."""
    failing = fail_anyway({verdict.detail for verdict in done} & trace.seconds.keys(), runner, trace)
    for verdict in done:
        if verdict.detail in failing:
            verdict.word = "SURVIVES"
            print(f"SURVIVES  {verdict.mutant.name}: without it {verdict.detail} fails too")


def judge_all(mutants: list[Mutant], trace: Trace, budget: float, workers: int) -> list[Verdict]:
    free: queue.Queue = queue.Queue()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        runners = [Runner(Path(scratch, f"shop{i}")) for i in range(workers)]
        check_sound(runners[0], trace)
        for runner in runners:
            free.put(runner)
        done = list(pool.map(lambda mutant: judge(mutant, free, trace, budget), mutants))
        check_catchers(done, runners[0], trace)
        for runner in runners:
            runner.close()
    return done


# ---- the command ----


def chosen(options: argparse.Namespace) -> list[Mutant]:
    if options.given:
        found, gone = mutant_rules.read_given(options.given)
        print(*(f"gone      {name}" for name in gone), sep="\n")
        return found
    if options.reasons or options.words:
        everything = mutant_rules.all_mutants().values()
        named = (m for made in everything for m in made if all(word in m.name for word in options.words))
        return [mutant for mutant in named if mutant.reason or not options.reasons]
    return mutant_rules.choose(options.count or COUNTS[options.of], options.of)


def report(done: list[Verdict], equivalent: int, must_survive: bool) -> int:
    counts = Counter(verdict.word for verdict in done)
    seconds = sum(verdict.seconds for verdict in done) / max(1, len(done))
    print(f"{counts['caught']} caught, {counts['SURVIVES']} survive, {equivalent} have a reason to")
    print(f"{counts['same']} compile to the same code, {counts['broken']} do not compile; {seconds:.1f} s each")
    wrong = "caught" if must_survive else "SURVIVES"
    for verdict in sorted(done, key=lambda verdict: verdict.mutant.name):
        if verdict.word == wrong:
            print(f"{wrong}: {verdict.mutant.name} => {verdict.mutant.instead}")
    return 1 if counts[wrong] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--of", choices=COUNTS, default="core")
    parser.add_argument("--count", type=int)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of tests for each mutant, and no more")
    parser.add_argument("--reasons", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--given", type=Path, metavar="FILE")
    parser.add_argument("--old-trace", action="store_true", help="do not measure again, whatever has changed")
    options = parser.parse_args()
    mutants = chosen(options)
    if options.list:
        print("\n".join(mutant.name for mutant in mutants))
        return 0
    if sys.platform != "linux":
        print("mutants are built against the software Metal, which this platform does not use")
        return 0
    if not TRACE.exists() or (Trace(TRACE).fingerprint != fingerprint() and not options.old_trace):
        print("measuring which tests reach which lines")
        measure(TRACE, options.workers)
    left = [mutant for mutant in mutants if options.reasons or not mutant.reason]
    done = judge_all(left, Trace(TRACE), options.seconds, options.workers)
    return report(done, len(mutants) - len(left), options.reasons)


if __name__ == "__main__":
    sys.exit(main())
