"""README.md shows what is printed; test_pages.py runs its examples."""

import re

import pytest
from children import output_of
from places import ROOT, TOOLS
from recipes import blocks

README = (ROOT / "README.md").read_text()
EXAMPLES = [block.text for block in blocks("README.md") if block.language == "python"]


@pytest.mark.needs_numpy
@pytest.mark.needs_torch
@pytest.mark.needs_tvm
def test_the_first_command_shows_one_write_in_every_framework():
    commands, shown = re.findall(r"\n```\n(.*?)```", README.partition("## See it")[2], re.DOTALL)[:2]
    assert [line.partition("#")[0].split() for line in commands.splitlines()] == [["make", "demo"], ["make", "test"]]
    demo = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    first = next(line.split() for line in demo.splitlines() if line.startswith("\t$(PY)"))
    assert shown in output_of(first[1:], cwd=ROOT)


def test_what_the_demo_downloads_is_said_alike():
    (said,) = re.findall(r"\b(\d+ MB) for the demo", README)
    assert f"some {said}:" in (TOOLS / "prepare").read_text()


def test_there_is_a_short_example():
    assert EXAMPLES
    assert all(len(example.splitlines()) <= 15 for example in EXAMPLES)
