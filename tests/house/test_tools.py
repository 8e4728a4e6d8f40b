"""The scripts of tools/ that nothing else runs."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT, TOOLS


def load(name):
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def by_hand():
    return load("mutant_table").MUTANTS


@pytest.fixture(scope="module")
def by_rule():
    return [mutant for mutants in load("mutant_rules").all_mutants().values() for mutant in mutants]


def test_there_are_enough_mutants(by_hand, by_rule):
    names = [mutant.name for mutant in [*by_hand, *by_rule]]
    assert len(set(names)) == len(names)
    mutants = load("mutants")
    assert len(load("mutant_rules").choose(mutants.COUNT)) >= 300


def test_each_mutant_by_hand_changes_one_place_of_a_source(by_hand):
    for mutant in by_hand:
        assert (ROOT / mutant.file).read_text().count(mutant.text) == 1, mutant.name
        assert mutant.instead != mutant.text, mutant.name


def test_mutants_by_rule_are_spread_over_folders_and_rules(by_rule):
    rules = load("mutant_rules")
    chosen = rules.choose(load("mutants").COUNT)
    assert {Path(mutant.file).parent.name for mutant in chosen} == {*rules.FOLDERS, "src"}
    assert {name for name, *_ in rules.RULES} == {mutant.rule for mutant in by_rule}
    for folder in rules.FOLDERS:
        assert len({m.rule for m in chosen if Path(m.file).parent.name == folder}) >= 8, folder
    for mutant in by_rule:
        text = (ROOT / mutant.file).read_text()
        assert mutant.apply(text) != text, mutant.name


def test_a_mutant_keeps_its_name_when_lines_move():
    rules = load("mutant_rules")
    text = (ROOT / "src" / "metal" / "pool.c").read_text()
    moved = text.replace("#include", "/* one line more */\n\n#include", 1)
    before, after = (rules.spread(rules.mutants_of("src/metal/pool.c", version)) for version in (text, moved))
    assert [mutant.name for mutant in before] == [mutant.name for mutant in after]


def test_each_reason_is_of_a_mutant_that_there_is(by_hand, by_rule):
    names = {mutant.name for mutant in [*by_hand, *by_rule]}
    reasons = load("mutants").reasons()
    assert set(reasons) <= names, set(reasons) - names
    assert all(len(why) > 20 for why in reasons.values())


def test_each_reason_for_what_is_not_reached_is_of_a_file_that_there_is():
    """The lines themselves `make coverage` looks at: which are reached is known only there."""
    for name, why in load("coverage_report").reasons().items():
        assert (ROOT / name.partition(" ")[0]).is_file(), name
        assert len(why) > 20, name


def test_each_test_that_arm64_leaves_out_is_there_and_has_a_reason():
    for name, why in tomllib.loads((TOOLS / "arm64_left_out.toml").read_text()).items():
        file, _, test = name.partition("::")
        path = ROOT / file
        assert path.exists(), name
        assert not test or f"def {test.partition('[')[0]}(" in path.read_text(), name
        assert len(why) > 20, name


def test_arm64_has_a_part_of_files_that_there_are():
    (part,) = re.findall(r'^PART="(.*?)"$', (TOOLS / "arm64").read_text(), re.DOTALL | re.MULTILINE)
    assert len(part.split()) >= 10
    assert [name for name in part.split() if not (ROOT / name).is_file()] == []


#: Stands for a Python whose pip is talkative, and fails if it is told to.
TALKATIVE = """#!/bin/sh
case "$*" in
"-m venv"*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
*"-m pip --version"*) ;;
*--group*)
    echo "WARNING: Location 'file:///nowhere' is ignored" >&2
    echo "  Downloading https://index.example/torch-2.0-cp311.whl (190.4 MB)"
    echo "  Downloading small-1.0.whl (4 kB)"
    echo "Installing collected packages: torch, small"
    exit ${PIP_FAILS:-0}
    ;;
*"-m pip"*) echo "WARNING: Location 'file:///nowhere' is ignored" >&2 ;;
*) exec %s "$@" ;;
esac
"""


def prepare(folder, **environment):
    python, clang = folder / "python", folder / "clang++-19"
    python.write_text(TALKATIVE % sys.executable)
    clang.touch()  # so that nobody installs one
    for path in (python, clang):
        path.chmod(0o755)
    return subprocess.run(
        [TOOLS / "prepare", folder / "venv", "demo"],
        env={**os.environ, "PYTHON": str(python), "PATH": f"{folder}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.needs_no_sanitizer
def test_preparing_says_what_comes_and_not_what_pip_mutters(tmp_path):
    done = prepare(tmp_path, PIP_EXTRA_INDEX_URL="")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    steps = [line for line in said if line.startswith("metal_dlpack: ")]
    assert [step.split()[1] for step in steps] == ["fetching", "building"]
    assert "    torch-2.0-cp311.whl (190.4 MB)" in said
    assert "    unpacking" in said
    assert "gigabyte" in done.stdout
    assert not re.search("WARNING|small|index.example", done.stdout + done.stderr)


@pytest.mark.needs_no_sanitizer
def test_preparing_shows_all_that_pip_said_if_it_failed(tmp_path):
    done = prepare(tmp_path, PIP_FAILS="3")
    assert done.returncode == 1
    assert "WARNING: Location" in done.stderr
    assert done.stderr.endswith("metal_dlpack: this failed: pip install --group demo\n")
    assert "building" not in done.stdout
