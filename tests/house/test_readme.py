"""README.md shows what is printed; test_pages.py runs its examples."""

import re
from xml.etree import ElementTree

import pictures
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
    assert commands.startswith("git clone ")
    said = [line.partition("#")[0].split() for line in commands.splitlines()]
    assert said[1:] == [["make", "demo"], ["make", "test"]]
    demo = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    first = next(line.split() for line in demo.splitlines() if line.startswith("\t$(PY)"))
    assert shown in output_of(first[1:], cwd=ROOT)


def test_what_the_demo_downloads_is_said_alike():
    (said,) = re.findall(r"\b(\d+ MB) for the demo", README)
    assert f"some {said}:" in (TOOLS / "prepare").read_text()


def words_of(picture):
    """Its text, but for times and addresses; a timeline's rows are in the order in which streams came first.

    How many bars of copies have room for their name is a matter of how long they took: it counts once.
    """
    root = ElementTree.fromstring(picture)
    text = [re.sub(r"0x[0-9a-f]+", "0x", text) for text in root.itertext()]
    words = sorted(one for one in text if not re.search(r"\d\s*(ms|µs|s)$|^0$", one))
    return [one for at, one in enumerate(words) if one != "copy" or words.index(one) == at]


@pytest.mark.needs_softmetal
@pytest.mark.needs_kernels
@pytest.mark.needs_mlx
@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_picture_is_what_the_package_shows(name):
    kept = (pictures.STATIC / f"{name}.svg").read_text(encoding="utf-8")
    assert f"](docs/static/{name}.svg)" in README
    assert len(kept) <= 30_000
    assert words_of(pictures.PICTURES[name]()) == words_of(kept), "python tools/pictures.py draws it anew"


def test_there_is_a_short_example():
    assert EXAMPLES
    assert all(len(example.splitlines()) <= 15 for example in EXAMPLES)
