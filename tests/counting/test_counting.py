"""What a count is as a value, what it does not depend on, and what it refuses."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from children import run_child

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal
from softmetal import controls, counting

pytestmark = [
    pytest.mark.needs_kernels,
    pytest.mark.needs_softmetal,
]

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant float weights[4] = {1, 2, 3, 4};

struct pair { float left; float right; };

kernel void everything(device const float4 *x, device pair *pairs, constant uint &n, device atomic_uint *bins,
                       threadgroup float *room, uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]])
{
    float4 v = x[i];
    float own[4] = {v.x, v.y, v.z, v.w};
    float sum = 0;
    for (uint j = 0; j < n; j++)
        sum += own[j] * weights[j];
    room[l] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    pairs[i] = pair{room[l], x[i].y + x[i].z};
    atomic_fetch_add_explicit(&bins[i % 3], 1u, memory_order_relaxed);
}

kernel void lanes(device float *x, uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]])
{
    if (lane < 8) {
        x[i] = simd_sum(1.0f);
        x[i] += 1;
    }
    x[i] *= 2;
}

kernel void rounds(device float *x, uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]])
{
    for (uint j = 0; j < 3 && lane < 8; j++)
        x[i] = simd_sum(1.0f);
    if (lane >= 8)
        x[i] = 2;
}

kernel void swapped(device float *x, uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]],
                    uint g [[threadgroup_position_in_grid]])
{
    if (g == 0) {
        threadgroup float small[32];
        small[l] = 1;
    }
    threadgroup float large[64];
    large[l + 32] = 2;
    if (g == 1) {
        threadgroup float late[32];
        late[l] = 1;
    }
    x[i] = large[l + 32];
}

kernel void moved(device float *x, constant uint &at, uint i [[thread_position_in_grid]],
                  uint l [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]])
{
    if (g == 0) {
        threadgroup float small[32];
        small[l] = 1;
    }
    threadgroup float large[64];
    large[g == 0 ? l : at] = 2;
    x[i] = large[l];
}

kernel void stale(device float *x, uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]])
{
    threadgroup uint room[32];
    if (room[l] == 0)
        x[i] = 1;
    room[l] = 5;
}

kernel void first_eight(device float *x, device atomic_uint *next, uint i [[thread_position_in_grid]])
{
    if (atomic_fetch_add_explicit(next, 1u, memory_order_relaxed) < 8)
        x[i] = 1;
}

kernel void choose(device float *x, device float *y, uint i [[thread_position_in_grid]])
{
    device float *to = i % 2 ? x : y;
    to[i] = 1;
}

kernel void past(device float *x, uint i [[thread_position_in_grid]]) { x[i + 1] = 0; }

constant uint STEP [[function_constant(0)]];
kernel void strided(device float *x, uint i [[thread_position_in_grid]]) { x[i * STEP] = 1; }
"""


@pytest.fixture(scope="module")
def library():
    return md.Library(SOURCE, name="all.metal")


@pytest.fixture(scope="module")
def everything(library):
    arguments = md.Buffer(96 * 16), md.Buffer(96 * 8), 4, md.zeros(3, "uint32")
    return lambda: library["everything"].count(*arguments, n=96, group=64, threadgroup_memory={"room": 256})


def line_of(text):
    [number] = [number for number, line in enumerate(SOURCE.split("\n"), 1) if text in line]
    return number


def test_each_access_of_the_source_is_one(everything):
    count = everything()
    x, pairs = count["x"], count["pairs"]
    assert (x.loads, x.bytes_read, x.distinct_read) == (96 * 3, 96 * (16 + 4 + 4), 96 * 16)  # x[i], .y and .z
    assert (pairs.stores, pairs.bytes_written, pairs.lines_per_access) == (96, 96 * 8, 1)
    assert (count["n"].space, count["n"].loads, count.constant.loads) == ("constant", 96 * 5, 96 * 5)
    assert (count["room"].loads, count["room"].stores, count.threadgroup_memory) == (96, 96, 256)
    assert (count["bins"].atomics, count["bins"].most_atomics) == (96, 32)
    assert (count.barriers, count.threads, count.groups, count.simdgroups) == (2, 96, 2, 3)
    assert count.operations["float"] == {"add": 96 * 5, "mul": 96 * 4}
    by_line = {one.line: one for one in count.lines}
    assert by_line[line_of("float4 v")].bytes_read == 96 * 16
    assert by_line[line_of("threadgroup_barrier")].barriers == 2
    assert by_line[line_of("j < n; j++")].divergent_branches == 0
    assert by_line[line_of("room[l] = sum")].source == "    room[l] = sum;"


@pytest.mark.parametrize(
    "settings", [{"seed": 7}, {"seed": "last"}, {"kernel_threads": 1}, {"poison": 1}, {"kernel_check": 1}], ids=str
)
def test_a_count_does_not_depend_on_settings(everything, metal_settings, settings):
    before = everything().to_dict()
    metal_settings(**settings)
    assert everything().to_dict() == before


def test_lanes_are_together_from_the_place_where_all_have_met(library):
    """Eight lanes meet alone, which parts nobody from the others: the third statement is one access of 32."""
    count = library["lanes"].count(md.zeros(32), n=32, group=32)
    stores = [one for one in count.accesses if one.kind == "store"]
    assert [(one.accesses, one.lanes) for one in stores] == [(1, 8), (1, 8), (1, 32)]
    assert count.simd_meetings == 1
    [branch] = count.branches
    assert (branch.executions, branch.lanes, branch.true_lanes, branch.divergent) == (1, 32, 8, 1)


def test_a_lane_that_waits_for_some_goes_on_with_its_count(library):
    count = library["rounds"].count(md.zeros(32), n=32, group=32)
    assert [(one.accesses, one.lanes) for one in count.accesses] == [(3, 24), (1, 24)]


def test_threadgroup_memory_is_told_apart_wherever_it_lies(library):
    count = library["swapped"].count(md.zeros(64), n=64, group=32)
    shared = [one for one in count.arguments if one.space == "threadgroup"]
    told = [(one.name, one.nbytes, one.stores, one.loads) for one in shared]
    assert sorted(told) == [("large", 256, 64, 64), ("late", 128, 32, 0), ("small", 128, 32, 0)]


def test_calls_and_variables_have_the_source_s_names():
    """A call in a function that is inlined, through a macro, with its namespace; and two variables of one name."""
    kernel = md.kernel(
        """
#include <metal_stdlib>
using namespace metal;
#define ADDED(x) simd_sum(x)
inline float twice(float x) { return simd_sum(x) + simd_sum(2 * x); }
kernel void other(device float *x) { threadgroup float unused[8]; unused[0] = x[0]; x[0] = unused[0]; }
kernel void named(device float *x, uint i [[thread_position_in_grid]])
{
    { threadgroup float tile[32], next[32]; tile[i] = x[i]; next[i] = tile[i]; }
    float s = metal::simd_shuffle_down(x[i], 1) + twice(x[i]);
    for (int j = 0; j < 300; j++) s += simd_max(s);
    s += ADDED(s);
    simdgroup_barrier(mem_flags::mem_none);
    { threadgroup float tile[32]; tile[i] = s; x[i] = tile[i]; }
}
""",
        "named",
    )
    count = kernel.count(md.zeros(32), n=32, group=32)
    assert {one.name: (one.loads, one.stores) for one in count.arguments} == {
        "x": (96 - 0, 32), "tile": (32, 32), "next": (0, 32), "tile (2)": (32, 32)
    }  # fmt: skip
    assert count.simd_functions == {
        "simd_max": 300, "simd_sum": 2, "other": 1, "simd_shuffle_down": 1, "simdgroup_barrier": 1
    }  # fmt: skip
    assert count.simd_meetings == sum(count.simd_functions.values())
    assert "simd_max 300" in str(count)


def test_where_threadgroup_memory_lay_before_is_forgotten(library, request):
    library["moved"].count(md.zeros(64), 63, n=64, group=32)
    with pytest.raises(md.MetalError, match="outside its memory: bytes 288 to 291 of threadgroup variable"):
        library["moved"].count(md.zeros(64), 72, n=64, group=32)
    request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted


def test_what_an_earlier_threadgroup_left_is_no_input(library):
    assert library["stale"].count(md.zeros(128), n=128, group=32)["x"].stores == 128


def test_threads_come_in_their_order_whatever_the_seed(library, metal_settings):
    metal_settings(seed=7)
    count = library["first_eight"].count(md.zeros(4096), md.zeros(1, "uint32"), n=4096, group=256)
    assert (count["x"].accesses, count["x"].lines) == (1, 1)


def test_what_the_library_does_to_stand_for_a_gpu_is_no_branch_and_no_arithmetic(library):
    count = library["lanes"].count(md.zeros(32), n=32, group=32)
    assert count.operations["float"] == {"add": 8, "mul": 32}
    assert len(count.branches) == 1


def test_an_access_that_touches_two_arguments_counts_in_each(library):
    count = library["choose"].count(md.zeros(32), md.zeros(32), n=32, group=32)
    assert [(one.argument, one.lanes, one.accesses) for one in count.accesses] == [("x", 16, 1), ("y", 16, 1)] or [
        (one.argument, one.lanes, one.accesses) for one in count.accesses
    ] == [("y", 16, 1), ("x", 16, 1)]
    assert count["x"].distinct_written == count["y"].distinct_written == 64


def test_memory_of_another_library_counts_as_if_a_line_began_there(library):
    memory = np.zeros(64, "float32")[3:35]
    x = md.from_dlpack(memory, copy=False) if hasattr(memory, "__dlpack__") else None
    count = library.kernel("strided", {"STEP": 1}).count(x, n=32)
    assert (count.lines_per_access, count["x"].lines) == (1, 1)
    owned = md.zeros(64)[3:35]
    assert library.kernel("strided", {"STEP": 1}).count(owned, n=32).lines_per_access == 2


def test_function_constants_are_the_kernel_s(library):
    counts = [library.kernel("strided", {"STEP": step}).count(md.zeros(1024), n=32) for step in (1, 2, 32)]
    assert [count.lines_per_access for count in counts] == [1, 2, 32]


def test_a_launch_without_threads_counts_nothing(library):
    count = library.kernel("strided", {"STEP": 1}).count(md.zeros(4), n=0)
    assert (count.threads, count.lines_per_access, count.arguments) == (0, 0, ())


@pytest.mark.parametrize("n", [32, 1024])
def test_what_may_not_be_touched_raises(library, request, capfd, n):
    with pytest.raises(
        md.MetalError, match=rf"writes outside its memory: bytes {4 * n} to {4 * n + 3}.*all\.metal:\d+"
    ):
        library["past"].count(md.zeros(n), n=n)
    assert "past" in capfd.readouterr().err
    request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives it
    with pytest.raises(TypeError, match="x"):
        library["past"].count(n=32)


def test_it_is_plain_values(everything):
    count = everything()
    plain = json.loads(count.to_json())
    assert plain == count.to_dict()
    assert plain["lines_per_access"] == count.lines_per_access
    assert [one["name"] for one in plain["arguments"]] == ["x", "pairs", "n", "bins", "room"]
    assert {"lines", "lines_per_access", "lane_share"} <= set(plain["arguments"][0])
    with pytest.raises(KeyError, match="has no argument 'z'; it has x, pairs"):
        count["z"]


def test_it_is_drawn_beside_the_source_largest_first(everything):
    count = everything()
    text = str(count)
    shown = [line for line in text.split("\n") if "all.metal:" in line]
    weights = [one.lines + one.rounds for one in count.lines]
    assert len(shown) == len(count.lines) and weights == sorted(weights, reverse=True)
    assert shown[0].startswith("██████████") and count.lines[0].source in shown[0]
    assert "at most 32 at one address" in text
    html = count._repr_html_()
    ElementTree.fromstring(html)
    assert "<script" not in html and "float4 v = x[i];" in html and "<" in html


def test_every_kernel_of_a_program_is_counted_once(library):
    past = library["past"]
    with counting.install() as counted:
        own = md.kernel("kernel void fill(device float *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }")
        x = md.zeros(64)
        own(x, n=64)
        own(x, n=32)
        past(md.zeros(64), n=32)  # made before
    [count] = counted.counts
    assert (count.kernel, count.threads, count["x"].bytes_written) == ("fill", 64, 256)
    assert count.lines[0].source.startswith("kernel void fill")
    md.kernel("kernel void after(device float *x) { x[0] = 1; }").time(x, n=1)
    assert counted.stop() == (count,)


def test_the_command_prints_the_counts(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import metal_dlpack as md\n"
        "k = md.kernel('kernel void fill(device float *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }')\n"
        "k(md.zeros(64), n=64)\n"
    )
    ran = run_child(["-m", "softmetal", "--count", str(script)], PYTHONUTF8="1")
    assert ran.returncode == 0, ran.stderr
    assert "fill: 64 threads" in ran.stderr and "256 written" in ran.stderr
    both = run_child(["-m", "softmetal", "--count", "--check", str(script)])
    assert both.returncode == 2 and "--count" in both.stderr


def test_on_a_mac_it_says_how_to_run_it(library, monkeypatch):
    monkeypatch.setattr(controls, "is_present", lambda: False)
    for ask in (lambda: library["past"].count(md.zeros(8), n=1), counting.install):
        with pytest.raises(softmetal.SoftwareMetalMissing, match="docker run"):
            ask()


def test_nothing_is_left_behind(library):
    x = md.zeros(1024)
    kernel = library.kernel("strided", {"STEP": 1})
    kernel.count(x, n=1024)
    before = softmetal.live_objects(None)
    for _ in range(20):
        kernel.count(x, n=1024)
    softmetal.wait_idle()
    assert softmetal.live_objects(None) <= before


def test_the_values_have_no_surprise():
    assert SimpleNamespace(**counting.KernelCount("k").to_dict()).lines_per_access == 0
