"""README.md and docs/looking.md show what is printed; test_pages.py runs their examples."""

import re

import pytest
from children import output_of
from places import DOCS, ROOT, TOOLS
from recipes import blocks

README = (ROOT / "README.md").read_text()
EXAMPLES = [block.text for block in blocks("README.md") if block.language == "python"]


@pytest.mark.long
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


@pytest.mark.needs_numpy
def test_the_picture_is_what_show_prints():
    page = (DOCS / "looking.md").read_text()
    ((code, picture),) = re.findall(r"```python\n((?:(?!```).)*md\.show\(.*?)```\n\n```\n(.*?)```", page, re.DOTALL)
    printed = output_of(f"import metal_dlpack as md\nimport numpy as np\n{code}")
    assert without_places(printed) == without_places(picture)


def without_places(picture):
    """The picture but for where the memory happens to be, and how long a page is."""

    def length(match):
        begin, end = (int(number.replace(",", "")) for number in match.groups())
        return f"{end - begin} bytes"

    picture = re.sub(r"bytes ([\d,]+) to ([\d,]+)", length, picture)
    return re.sub(r"0x[0-9a-f]+ \(shared\), [\d.,]+ (KiB|bytes)", "0x (shared), pages", picture)
