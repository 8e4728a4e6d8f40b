"""Small defects in ten right kernels: a report has each of them once, at the line of seeded_kernels.py."""

from pathlib import Path

import pytest
import seeded_kernels
from seeded_kernels import ALL, SEEDED

from softmetal.report import building

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

FILE = Path(seeded_kernels.__file__)
LAUNCHES = 2


def line_of(seeded, defect, piece):
    """Of seeded_kernels.py, where the kernel's line with this piece stands; of a line that was put in, what it replaced."""
    file = FILE.read_text()
    begin = file[: file.index(seeded.text)].count("\n") + 1
    changed = seeded.text.replace(defect.old, defect.new)
    (whole,) = {line for line in changed.split("\n") if piece in line}
    lines = seeded.text.split("\n")
    if whole in lines:
        return begin + lines.index(whole)
    at = seeded.text[: seeded.text.index(defect.old)].count("\n")
    return begin + at + defect.new.partition(piece)[0].count("\n") * (piece in defect.new)


def check(reported, seeded, defect):
    found = reported(lambda: seeded.run(seeded.source(defect), LAUNCHES))["findings"]
    expected = {line_of(seeded, defect, piece) for piece in defect.lines}
    name = building.named_from(building.root(), str(FILE))
    told = [
        one
        for one in found
        if one["kind"] == defect.kind and {access["line"] for access in one["accesses"]} == expected
    ]
    assert len(told) == 1, [(one["kind"], one["text"], [a["line"] for a in one["accesses"]]) for one in found]
    (one,) = told
    assert {access["file"] for access in one["accesses"]} == {name}
    assert one["kernels"] == [seeded.name]
    assert one["launches"] == LAUNCHES
    assert one["times"] >= LAUNCHES


@pytest.mark.parametrize(
    ("seeded", "defect"), [(one, one.defects[0]) for one in SEEDED], ids=lambda one: getattr(one, "name", None)
)
def test_a_defect_of_each_kernel_is_reported_once_at_its_line(reported, seeded, defect):
    check(reported, seeded, defect)


@pytest.mark.long
@pytest.mark.parametrize(("seeded", "defect"), ALL)
def test_every_defect_is_reported_once_at_its_line(reported, seeded, defect):
    check(reported, seeded, defect)


@pytest.mark.parametrize("seeded", SEEDED, ids=lambda one: one.name)
def test_of_a_right_kernel_nothing_is_reported(reported, seeded):
    result = reported(lambda: seeded.run(seeded.source(), LAUNCHES))
    assert result["findings"] == []
    (kernel,) = result["kernels"]
    shapes = [
        list(one[1]) if isinstance(one[1], tuple) else [one[1]] for one in seeded.arguments if not isinstance(one, int)
    ]
    assert [one["shape"] for one in kernel["arguments"] if one["shape"]] == shapes
    assert (kernel["name"], kernel["launches"], kernel["stopped"]) == (seeded.name, LAUNCHES, 0)
    x, y, z = kernel["grid"]
    assert kernel["threads"] == LAUNCHES * x * y * z
    assert 0 < kernel["seconds"] < 60
