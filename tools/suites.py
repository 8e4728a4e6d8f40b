"""Others' test suites on torch's mps, beside the CPU: suites.py [NAME...] [--page] [--pairs N] [--more] [--again].

    suites.py kornia        one of tools/suites.toml; without a name, all of them; `exchange` is a group there
    suites.py --page        writes what came of it to docs/suites.md too
    suites.py --pairs 3     runs each three times on either device, in turn, for the median of the ratios of their times
    suites.py --more        keeps the pairs of the last run and adds to them
    suites.py --again       counts what build/suites has of the last run once more, and runs nothing

Each suite's version gets an environment of its own in build/suites, behind which stands all of the one that runs this.
Its tests come from the sdist on the package index; where that has none, from its repository at the commit in the table,
or from a clone of it (bare or not) in $SUITES/NAME.  Their files stay in build/.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/support")]

from fetching import keep, said_by, take_archive, take_commit, unpack  # noqa: E402
from suites_rows import DIED, PAGE, Result, Row, by_number, lines_of, placed, ratio_of, row_of  # noqa: E402

BUILD = ROOT / "build/suites"
TABLE = tomllib.loads((ROOT / "tools/suites.toml").read_text())
CAUSES: dict[str, Any] = TABLE["cause"]
SUITES: dict[str, Any] = TABLE["suite"]
#: What a suite's own settings may say of how it is run.
SETTINGS = ("pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini")
ABOUT_TESTS = (*SETTINGS, "conftest.py", "tests", "test")
MAX_DEATHS = 25
MAX_PAIRS = 9


def pip(python: Path, *words: str) -> None:
    said_by(sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input", *words)


def environment(name: str, suite: dict[str, Any]) -> Path:
    """Its Python.  pip sees what stands behind it, so torch is not fetched again."""
    folder = BUILD / name / "environment"
    python, stamp = folder / "bin/python", folder / "installed"
    wanted = json.dumps([suite.get("install", [f"{name}=={suite['version']}"]), suite.get("extra", [])])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    venv.create(folder, symlinks=True)
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    behind = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (packages / "metal_dlpack_suites.pth").write_text(behind)
    for words in json.loads(wanted):
        if words:
            pip(python, "install", "-q", *words, f"torch=={importlib.metadata.version('torch')}")
    stamp.write_text(wanted)
    return python


def source(name: str, suite: dict[str, Any]) -> Path:
    """A folder with the tests, and what they need beside them, but not the library."""
    folder = BUILD / name / "source"
    mark = json.dumps([suite.get(word) for word in ("version", "commit", "take", "without", "parts", "build")])
    keep(folder, mark, lambda new: take_source(name, suite, new))
    return folder


def take_source(name: str, suite: dict[str, Any], folder: Path) -> None:
    if "commit" in suite:
        take_clone(name, suite, folder, ABOUT_TESTS)
    else:
        wanted = "|".join(map(re.escape, (*ABOUT_TESTS, *suite.get("take", ()))))
        with tempfile.TemporaryDirectory() as scratch:
            archive = take_archive(Path(scratch), f"{name}=={suite['version']}", ["--no-binary=:all:"])
            unpack(archive, rf"[^/]+/(?P<path>({wanted})(/.*)?)", folder)
    for part, its in suite.get("parts", {}).items():
        (folder / part).mkdir()
        take_clone(part, its, folder / part)
    if command := suite.get("build", "").format(include=sysconfig.get_path("include")).split():
        subprocess.run(command, cwd=folder, check=True)
    if not has_settings(folder):
        (folder / "pytest.ini").write_text("[pytest]\n")  # else pytest finds ours


def take_clone(name: str, suite: dict[str, Any], folder: Path, maybe: tuple[str, ...] = ()) -> None:
    clone = Path(os.environ.get("SUITES") or BUILD / "clones", name)
    paths = [*suite.get("take", ()), *(f":(exclude){one}" for one in suite.get("without", ()))]
    take_commit(folder, f"https://github.com/{suite['repository']}", suite["commit"], clone, paths, maybe)


def has_settings(folder: Path) -> bool:
    """For pytest: a file that only names it as a package has none."""
    texts = [path.read_text() for name in SETTINGS if (path := folder / name).exists()]
    return any(re.search(r"^\[(tool[.:])?pytest", text, re.MULTILINE) for text in texts)


# ---- one run ----


def command_of(suite: dict[str, Any], device: str) -> list[str]:
    words = ["-m", "pytest", "-q", "--tb=short", "-o", "addopts=", "-p", "suites_plugin", "-p", "no:cacheprovider"]
    words += ["-p", "no:randomly", "--rootdir=.", "-W", "ignore::DeprecationWarning", "--continue-on-collection-errors"]
    words += ["--softmetal-torch"] if device == "mps" else []
    words += [word.replace("{device}", device) for word in suite.get("options", [])]
    return words + suite["paths"]


def variables_of(suite: dict[str, Any], device: str, lines: Path, done: Path) -> dict[str, str]:
    chosen = {name: value.replace("{device}", device) for name, value in suite.get("environment", {}).items()}
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tools"), *map(str, suite.get("beside", []))]),
        "OMP_NUM_THREADS": "1",
        "SOFTMETAL_KERNEL_CHECK": "0",
        "HF_HUB_OFFLINE": "1",
        "SUITE_DEVICE": device,
        "SUITE_DEFAULT": str(int(suite.get("default_device", False))),
        "SUITE_FROM_NUMPY": str(int(suite.get("from_numpy", False))),
        "SUITE_ASKS": suite.get("asks", ""),
        "SUITE_EMPTY": suite.get("empty", ""),
        "SUITE_RESULTS": str(lines),
        "SUITE_DONE": str(done),
        **chosen,
    }


def lines_on(name: str, device: str, pair: int) -> Path:
    return BUILD / name / f"{device}{'' if pair == 0 else pair}.jsonl"


def run(name: str, suite: dict[str, Any], device: str, python: Path, pair: int) -> None:
    """A test that ends its process is left out of the next, which goes on with the others."""
    folder, lines = BUILD / name, lines_on(name, device, pair)
    done = folder / f"{device}.done"
    lines.write_text("")
    done.write_text("")
    variables = variables_of(suite, device, lines, done)
    for _ in range(MAX_DEATHS):
        with (folder / f"{device}.log").open("a") as log:
            command = [str(python), *command_of(suite, device)]
            code = subprocess.run(
                command, cwd=folder / "source" / suite.get("folder", ""), env=variables, stdout=log, stderr=log
            ).returncode
        if is_whole(lines):
            return
        begun = [json.loads(line).get("begun") for line in lines.read_text().splitlines()]
        finished = set(done.read_text().splitlines())
        if not (set(begun) - finished - {None}):
            return  # it is no test that ends it
        results = read(lines)
        done.write_text("".join(f"{test}\n" for test in results))
        for test, result in results.items():
            if result.said == DIED:
                with lines.open("a") as more:
                    more.write(json.dumps({"test": test, "outcome": "failed", "said": f"{DIED}: {code}"}) + "\n")


def pairs_of(name: str) -> list[list[Path]]:
    """The runs on the CPU and on mps, of each pair that is there."""
    pairs = [[lines_on(name, device, pair) for device in ("cpu", "mps")] for pair in range(MAX_PAIRS)]
    return [pair for pair in pairs if all(lines.exists() for lines in pair)]


def is_whole(lines: Path) -> bool:
    """Was the run not cut off?"""
    return '"memory": "end"' in lines.read_text().rpartition("{")[2]


def read(lines: Path) -> dict[str, Result]:
    """By test; one that began and did not end has died."""
    results: dict[str, Result] = {}
    for line in map(json.loads, lines.read_text().splitlines()):
        if "begun" in line:
            results[line["begun"]] = Result("failed", DIED)
        elif "took" in line:
            results[line["took"]].seconds = line["seconds"]
        elif "test" in line:
            seconds = results[line["test"]].seconds
            results[line["test"]] = Result(line["outcome"], line["said"], seconds)
    return results


def worst(runs: list[dict[str, Result]]) -> dict[str, Result]:
    """A test that fails in one of the runs has failed."""
    results: dict[str, Result] = {}
    for test, result in (found for run in runs for found in run.items()):
        if results.setdefault(test, result).outcome != "failed":
            results[test] = result
    return results


def uncollected(lines: Path) -> dict[str, str]:
    """What files said that could not be imported."""
    said = [line for line in map(json.loads, lines.read_text().splitlines()) if "uncollected" in line]
    return {line["uncollected"]: line["said"] for line in said}


def grown(lines: Path) -> dict[str, int]:
    """By how many bytes memory grew from start to end; of the last process, where tests ended others."""
    said = [line for line in map(json.loads, lines.read_text().splitlines()) if "memory" in line]
    if len(said) < 2 or [line["memory"] for line in said[-2:]] != ["start", "end"]:
        return {"tensors": 0, "process": 0}
    return {what: said[-1][what] - said[-2][what] for what in ("tensors", "process")}


def row_from(name: str, suite: dict[str, Any]) -> Row:
    if not (pairs := pairs_of(name)):
        raise OSError(f"there is no run of it in {BUILD / name}")
    runs = [[read(lines) for lines in pair] for pair in pairs]
    cpu, mps = (worst(list(on_device)) for on_device in zip(*runs, strict=True))
    lost = uncollected(pairs[-1][1])
    for test in cpu.keys() - mps.keys():
        if said := lost.get(test.partition("::")[0]):
            mps[test] = Result("failed", said)
    row = row_of(cpu, mps, CAUSES, suite.get("known", {}), of_mps=suite.get("of_mps", False))
    growth = [grown(lines) for lines in pairs[-1]]
    row.ratios, row.tensors = [ratio_of(*pair) for pair in runs], growth[1]["tensors"]
    row.grown = {"cpu": growth[0]["process"], "mps": growth[1]["process"]}
    return row


def show(name: str, suite: dict[str, Any], row: Row) -> None:
    print(
        f"== {name} {suite['version']}: {row.tests} tests, {row.on_cpu} pass on the CPU, {row.on_mps} on mps",
        flush=True,
    )
    print(f"   {sum(row.refused.values())} refused as on a Mac, {row.skipped} skipped on mps, "
          f"{row.failed_on_both} fail on the CPU too, {len(row.ours)} ours, {len(row.crashes)} end the process; "
          f"mps takes {row.ratio:.2f} of the CPU's time, the median of {len(row.ratios)}")  # fmt: skip
    print(f"   {row.tensors} bytes of tensors are left on mps; the process grew by "
          f"{row.grown['cpu'] / 1e6:.0f} MB on the CPU and by {row.grown['mps'] / 1e6:.0f} MB on mps")  # fmt: skip
    for cause, number in by_number(row.refused):
        print(f"{number:7} {cause}: {CAUSES[cause]['rule']}")
    for test in row.crashes:
        print(f"   dies: {test}")
    for test, said in row.ours.items():
        print(f"   ours: {test}: {said}")
    for test in uncollected(BUILD / name / "cpu.jsonl"):
        print(f"   cannot be collected: {test}")


def judge(name: str, suite: dict[str, Any], pairs: int, *, more: bool = False) -> Row:
    if pairs > 0:
        kept = sum(is_whole(pair[-1]) for pair in pairs_of(name)) if more else 0
        python = environment(name, suite)
        source(name, suite)
        for pair in range(kept, MAX_PAIRS):
            for device in ("cpu", "mps"):
                lines_on(name, device, pair).unlink(missing_ok=True)
                if pair < kept + pairs:
                    run(name, suite, device, python, pair)
    row = row_from(name, suite)
    if not row.tests:
        raise OSError(f"no test ran: {BUILD / name}/*.log says why")
    facts = {"name": name, "version": suite["version"], "torch": importlib.metadata.version("torch")}
    (BUILD / f"{name}.json").write_text(json.dumps({**facts, **asdict(row)}, indent=1))
    return row


def chosen(names: list[str]) -> Iterator[str]:
    for name in names or SUITES:
        group = [one for one, suite in SUITES.items() if suite.get("group") == name]
        if name not in SUITES and not group:
            sys.exit(f"suites.py: there is no {name} in tools/suites.toml")
        yield from group or [name]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--pairs", type=int, choices=range(1, MAX_PAIRS + 1), default=1, metavar="N")
    parser.add_argument("--more", action="store_true")
    parser.add_argument("--again", dest="pairs", action="store_const", const=0)
    options = parser.parse_args()
    status = 0
    for name in chosen(options.names):
        suite = SUITES[name]
        try:
            row = judge(name, suite, options.pairs, more=options.more)
        except OSError as why:
            print(f"== {name} {suite['version']}: left out: {why}", flush=True)
            status = 1
            continue
        show(name, suite, row)
        status |= bool(row.ours or row.crashes)
        if options.page:
            date = datetime.date.fromtimestamp(pairs_of(name)[-1][1].stat().st_mtime).isoformat()
            PAGE.write_text(placed(PAGE.read_text(), name, lines_of(name, suite["version"], date, row, CAUSES)))
    return status


if __name__ == "__main__":
    sys.exit(main())
