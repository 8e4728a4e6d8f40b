"""What is right here and has gone wrong on a Mac is advice in the report, and fails nothing."""

import json
from pathlib import Path

import jsonschema
import pytest

import metal_dlpack as md
from softmetal import report as reports
from softmetal.report import building, page, sarif, text

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

SCHEMA = json.loads((Path(building.__file__).parent / "schema.json").read_text())
SOURCE = """#include <metal_stdlib>
using namespace metal;
struct stage { int v; };
void add(device float *x) {
    metal::simdgroup_float8x8 m = metal::make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
    simdgroup_store(m, x, 0);
}
void tile(device float *x) { add(x); }
template <bool V> void wait() { threadgroup_barrier(V ? mem_flags::mem_threadgroup : mem_flags::mem_device); }
%s kernel void f(device float *x, constant int &v, constant stage &s, uint i [[thread_position_in_threadgroup]])
{
    // threadgroup_barrier(v)
    %s
    x[i] = 1;
}
kernel void other(device float *x) { threadgroup_barrier(mem_flags::mem_device); }
"""
FLAGS = "mem_flags::mem_threadgroup : mem_flags::mem_device"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SMALL = "[[max_total_threads_per_threadgroup(%d)]]"

SOURCES = {
    "flags by a number": ("", f"threadgroup_barrier(v ? {FLAGS});", ["barrier-flags"], 13),
    "flags by a struct": ("", f"threadgroup_barrier((s.v > 1) ?\n {FLAGS});", ["barrier-flags"], 13),
    "flags by a type": ("", "wait<true>();", [], 0),
    "constant flags": ("", "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);", [], 0),
    "one SIMD-group": (SMALL % 32, BARRIER, ["small-threadgroup"], 10),
    "one SIMD-group, in a function that it calls": (SMALL % 16, "wait<true>();", ["small-threadgroup"], 10),
    "one SIMD-group, in a function of a function": (SMALL % 32, "tile(x + 64);", ["small-threadgroup"], 10),
    "two SIMD-groups with matrices": (SMALL % 64, "tile(x + 64);", [], 0),
    "two SIMD-groups": (SMALL % 33, BARRIER, [], 0),
    "one SIMD-group without a barrier": (SMALL % 32, "simdgroup_barrier(mem_flags::mem_threadgroup);", [], 0),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.some(3)
def test_what_apples_compilers_get_wrong_is_advice(name, reported):
    head, body, kinds, line = SOURCES[name]
    lib = md.Library(SOURCE % (head, body))

    def run():
        for _ in range(2):
            lib.f(md.zeros(128), 1, b"\1\0\0\0", n=32)
        lib.other(md.zeros(32), n=32)

    report = reported(run)
    assert [one["kind"] for one in report["findings"]] == kinds
    assert [one["advice"] for one in report["findings"]] == [True] * len(kinds)
    assert [one["accesses"][0]["source_line"] for one in report["findings"]] == [line] * len(kinds)
    jsonschema.Draft202012Validator(SCHEMA).validate(report)


def test_advice_that_is_known_is_silenced(reported):
    lib = md.Library(SOURCE % ("", f"threadgroup_barrier(v ? {FLAGS}); // softmetal: benign never on such a Mac"))
    report = reported(lambda: lib.f(md.zeros(32), 1, b"\1\0\0\0", n=32))
    (advice,) = report["findings"]
    assert advice["silenced"]["reason"] == "never on such a Mac"
    assert report["unused_silences"] == [] and text.advice(report) == []


FILL = """#include <metal_stdlib>
kernel void fill(device metal::float3 *y, uint i [[thread_position_in_grid]]) { y[i] = metal::float3(1); }
"""


@pytest.mark.parametrize("is_out", [True, False])
def test_an_array_that_a_launch_fills_in_part_is_advice_and_the_gaps_of_its_items_are_not(is_out, reported, tmp_path):
    k = md.kernel(FILL)

    def run(count):
        y = md.empty((8, 4))
        made = k(n=count, out=((8, 4), "float32")) if is_out else k(y, n=count) or y
        k(made, n=4)

    assert reported(lambda: run(8))["findings"] == []
    report = reported(lambda: run(5))
    (one,) = report["findings"]
    assert one["text"].startswith(
        "the launch leaves 3 of 8 items of buffer 0 (y) unwritten, from item 5 to item 7, and"
    )
    words, is_bad = reports.ended(report, [str(tmp_path / "r.html"), str(tmp_path / "r.sarif")])
    assert not is_bad
    assert "; 0 findings\n" in words
    assert "advice: 1\n  unwritten-output in fill at " in words
    assert "<h2>Advice</h2>" in page.page_of(report)
    assert sarif.sarif_of(report)["runs"][0]["results"][0]["level"] == "note"
