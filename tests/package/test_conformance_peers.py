"""The scores of docs/conformance.md are what the kit finds for the libraries that are installed here."""

import importlib.util
import re

import pytest
from places import DOCS

from metal_dlpack.conformance import LIBRARIES, judge
from metal_dlpack.conformance.report import table

pytestmark = pytest.mark.needs_no_sanitizer

PAGE = (DOCS / "conformance.md").read_text()
SIDES = ("producer", "consumer")
MARKS = {
    "numpy": pytest.mark.needs_numpy,
    "torch": pytest.mark.needs_torch,
    "jax": pytest.mark.needs_jax,
    "mlx": pytest.mark.needs_mlx,
    "tvm-ffi": [pytest.mark.needs_tvm, pytest.mark.needs_numpy],
    "pyarrow": pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow"),
    "metal_dlpack": [],
}


def test_every_library_of_the_kit_has_its_rows():
    assert set(MARKS) == set(LIBRARIES)
    rows = re.findall(r"^\| (\S+) \S+ \| (producer|consumer) \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((library.name, side) for library in LIBRARIES.values() for side in SIDES)


@pytest.mark.long
@pytest.mark.parametrize("library", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
@pytest.mark.parametrize("side", SIDES)
def test_the_page_has_the_score(library, side):
    report = judge(side, library)
    row = list(table([report]))[-1]
    assert sum(report.score("must")) > 30  # most rules apply to each
    if f"| {report.library} {report.version} |" in PAGE:  # another version may have another score
        assert row in PAGE.splitlines()
