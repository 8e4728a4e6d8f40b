"""The scores of docs/conformance.md are what the kit finds for the libraries that are installed here."""

import re

import pytest
from machine import has_module
from places import DOCS

from metal_dlpack.conformance import LIBRARIES, judge
from metal_dlpack.conformance.report import table

pytestmark = pytest.mark.needs_no_sanitizer

PAGE = (DOCS / "conformance.md").read_text()
SIDES = ("producer", "consumer")
#: What the judgement of a library needs beside itself.
MORE = {"tvm-ffi": ("numpy",)}


def test_every_library_of_the_kit_has_its_rows():
    rows = re.findall(r"^\| (\S+) (\S+) \| (producer|consumer) \|", PAGE, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert {(name, side) for name, _, side in rows} == {
        (each.name, side) for each in LIBRARIES.values() for side in SIDES
    }


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("side", SIDES)
def test_the_page_has_the_score(library, side):
    if missing := [name for name in (library, *MORE.get(library, ())) if not has_module(name.replace("-", "_"))]:
        pytest.skip(f"needs {missing[0]}")
    report = judge(side, library)
    row = list(table([report]))[-1]
    assert sum(report.score("must")) > 30  # most rules apply to each
    if f"| {report.library} {report.version} |" in PAGE:  # another version may have another score
        assert row in PAGE.splitlines()
