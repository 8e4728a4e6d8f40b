"""The scripts of tools/ that nothing else runs."""

import importlib
import re
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
