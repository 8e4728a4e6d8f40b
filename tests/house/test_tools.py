"""The scripts of tools/ that nothing else runs."""

import importlib.util
import re
import subprocess
import sys

import pytest
from places import INSIDE, ROOT, TOOLS


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def mutants():
    return load("mutants").MUTANTS


def test_there_are_enough_mutants(mutants):
    assert len(mutants) >= 20
    assert len({mutant.name for mutant in mutants}) == len(mutants)


def test_each_mutant_changes_one_place_of_a_source_and_names_tests(mutants):
    for mutant in mutants:
        assert (ROOT / mutant.file).read_text().count(mutant.text) == 1, mutant.name
        assert mutant.instead != mutant.text, mutant.name
        assert all((ROOT / path).is_file() for path in mutant.tests.split()), mutant.name


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(
    "options",
    [["--only", "handles"], pytest.param(["--quick"], marks=pytest.mark.long)],
    ids=["one question", "all but the test suite"],
)
def test_what_only_a_mac_can_show_is_asked_everywhere(tmp_path, options):
    report = tmp_path / "answers.txt"
    command = [sys.executable, TOOLS / "on_a_mac.py", *options, "--output", report]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; 0 differ" in done.stdout
    assert "Traceback" not in report.read_text()


def test_the_page_about_macs_names_the_questions_that_there_are():
    names = [question.name for question in load("on_a_mac").QUESTIONS]
    page = (INSIDE / "on_a_mac.md").read_text()
    for word in re.findall(r"--only (\w+)", page):
        assert any(word in name for name in names), word
