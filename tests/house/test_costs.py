"""docs/inside/costs.md: its table is made of the figures beside it, and they say what it says; the picture is sound."""

import json
import re
import xml.etree.ElementTree as ElementTree

import cost_picture
import pytest
from children import output_of
from places import INSIDE, ROOT

MEASURED = json.loads((INSIDE / "costs.json").read_text())
COSTS = MEASURED["costs"]
SHARING = ("from_dlpack", "__dlpack__", "np.asarray", "view")
SVG = "{http://www.w3.org/2000/svg}"


def times(part, name):
    return [time for _, time in COSTS[part][name]]


def test_the_table_is_made_of_the_figures():
    page = (INSIDE / "costs.md").read_text()
    assert cost_picture.table(COSTS) in page
    assert f"--passes {MEASURED['passes']} --out docs/inside" in page


def test_the_figures_reach_as_far_as_the_page_says():
    for name in SHARING:
        assert [value for value, _ in COSTS["axes"][name]][:: len(COSTS["axes"][name]) - 1] == [0, 64]
        assert (COSTS["bytes"][name][0][0], COSTS["bytes"][name][-1][0]) == (1, 10 << 30)
        assert COSTS["live"][name][-1][0] == 1_000_000
        assert COSTS["threads"][name][-1][0] == 8
    assert COSTS["bytes"]["copy"][-1][0] == 1 << 30


@pytest.mark.parametrize("name", SHARING)
def test_the_figures_are_flat_where_the_page_says_so(name):
    for part in ("bytes", "live", "threads"):
        assert max(times(part, name)) < 2 * min(times(part, name)), part


def test_every_line_lies_in_its_cell_and_every_call_is_drawn():
    picture = ElementTree.fromstring(cost_picture.draw(COSTS, MEASURED["machine"]))
    assert picture.find(f"{SVG}title").text
    for drawn in picture.iter(f"{SVG}polyline"):
        for x, y in (map(float, point.split(",")) for point in drawn.get("points").split()):
            assert cost_picture.LEFT <= x <= cost_picture.CELL_W - cost_picture.RIGHT
            assert cost_picture.TOP <= y <= cost_picture.CELL_H - cost_picture.BOTTOM
    said = {text.text for text in picture.iter(f"{SVG}text")}
    assert set(cost_picture.MEANING.values()) <= said


@pytest.mark.needs_torch
@pytest.mark.needs_no_sanitizer
@pytest.mark.long
def test_the_benchmark_runs_and_draws(tmp_path):
    benchmark = [ROOT / "benchmarks" / "bench_scaling.py", "--out", tmp_path]
    said = output_of(["-W", "ignore"], *benchmark, "--quick", "--rounds", 1, timeout=300)
    found = json.loads((tmp_path / "costs.json").read_text())
    assert set(found["costs"]) == set(COSTS)
    assert all(time > 0 for part in found["costs"].values() for points in part.values() for _, time in points)
    assert re.search(r"^\| `np.asarray` \|", said, re.M)
    picture = (tmp_path / "costs.svg").read_text()
    output_of(["-W", "ignore"], *benchmark, "--draw", timeout=300)
    assert (tmp_path / "costs.svg").read_text() == picture
