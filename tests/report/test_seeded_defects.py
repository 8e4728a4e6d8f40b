"""Each defect of tests/seeded is found once, of its kind, at its lines; the kernel without it is silent."""

import re

import pytest
from kernel_images import quickly
from seeded import SEEDED, library_of

import softmetal
from softmetal.report import building

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

ALL = {
    f"{one.name} {number}": (one, one.defects[number]) for one in SEEDED.values() for number in range(len(one.defects))
}
QUICK = [name for name, (_, defect) in ALL.items() if defect.is_quick]


@pytest.mark.parametrize("name", quickly(*QUICK, of=ALL))
@pytest.mark.some(8)
def test_a_defect_is_found_once_at_its_lines(name, reported, metal_settings):
    seeded, defect = ALL[name]
    said = []

    def run():
        metal_settings(kernel_check=1)
        said.append(seeded.run(defect))

    found = reported(run)["findings"]
    assert said[0], "the launch has not failed"
    assert re.search(defect.words, softmetal.last_report())
    told = [
        one
        for one in found
        if one["kind"] == defect.kind and sorted(each["line"] for each in one["accesses"]) == sorted(defect.lines)
    ]
    assert len(told) == 1, [(one["kind"], one["text"], [each["line"] for each in one["accesses"]]) for one in found]
    assert {each["file"] for each in told[0]["accesses"]} == {building.named_from(building.root(), str(seeded.path))}
    assert told[0]["kernels"] == [seeded.name]


@pytest.mark.parametrize("path", sorted({one.path for one in SEEDED.values()}), ids=lambda path: path.stem)
@pytest.mark.some(4)
def test_of_right_kernels_nothing_is_reported(path, reported):
    kernels = {one.name: one for one in SEEDED.values() if one.path == path}
    library = library_of(path.read_text(), path)

    def run():
        for name, seeded in kernels.items():
            for _ in range(2):
                given = seeded.arrays()
                library.kernel(name)(*given, **seeded.launch)

    result = reported(run)
    assert result["findings"] == []
    assert {one["name"] for one in result["kernels"]} == set(kernels)
    for one in result["kernels"]:
        shapes = [list(given.shape) for given in kernels[one["name"]].arrays() if hasattr(given, "shape")]
        assert [given["shape"] for given in one["arguments"] if given["shape"]] == shapes
        assert (one["launches"], one["stopped"]) == (2, 0)
        x, y, z = one["grid"]
        assert one["threads"] == 2 * x * y * z
        assert 0 < one["seconds"] < 60
