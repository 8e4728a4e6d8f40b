"""The scores of docs/conformance.md are what the kit finds for the libraries that are installed here."""

import re

import pytest
from machine import has_module
from places import DOCS

from dlpack_conformance import LIBRARIES, judge
from dlpack_conformance.producer_cases import ROWS
from dlpack_conformance.report import table

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


def skip_without(library):
    if missing := [name for name in (library, *MORE.get(library, ())) if not has_module(name.replace("-", "_"))]:
        pytest.skip(f"needs {missing[0]}")


@pytest.mark.parametrize("name", [name for name, its in LIBRARIES.items() if "views" in vars(its)])
def test_a_view_is_what_it_is_called(name):
    skip_without(name)
    library = LIBRARIES[name]()
    found = {view: library.tolist(its) for view, its in library.views(library.make(ROWS, "float32")).items()}
    expected = {
        "transposed": [[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]],
        "part": [[4, 6], [8, 10]],
        "reversed": [[11, 10, 9, 8], [7, 6, 5, 4], [3, 2, 1, 0]],
        "broadcast": [[0, 1, 2, 3]] * 3,
    }
    assert found and found == {view: expected[view] for view in found}


@pytest.mark.long
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("side", SIDES)
def test_the_page_has_the_score(library, side):
    skip_without(library)
    report = judge(side, library)
    row = list(table([report]))[-1]
    assert sum(report.score("must")) > 30  # most rules apply to each
    if f"| {report.library} {report.version} |" in PAGE:  # another version may have another score
        assert row in PAGE.splitlines()
