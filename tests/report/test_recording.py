"""What C hands over while a record is kept, and that it never touches the work."""

import contextlib

import numpy as np
import pytest
from own_threads import in_threads
from seeded import SEEDED

import metal_dlpack as md
import softmetal
from metal_dlpack import _core
from softmetal.report import recording, text

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
SHIFTED = (
    METAL
    + """kernel void shifted(device float *x, constant int &by, uint i [[thread_position_in_grid]])
{
    x[int(i) + by] = 1;
}
"""
)


def test_a_finding_is_its_values(reported):
    """Each of them beside what the sentence says, for offsets before and behind the memory."""
    for by in (-3, 5):

        def run(by=by):
            x = md.zeros((4, 4))
            md.kernel(SHIFTED)(x, by, n=16, group=16)
            with pytest.raises(md.MetalError, match=r"shifted: a thread writes outside its memory"):
                np.asarray(x)

        (one,) = reported(run)["findings"]
        item = -3 if by < 0 else 16
        assert (one["offset"], one["nbytes"], one["item"]) == (4 * item, 4, item)
        memory = {"kind": "buffer", "index": 0, "name": "x", "nbytes": 64, "type": "float", "item_nbytes": 4}
        assert one["memory"] == memory
        assert f"bytes {4 * item} to {4 * item + 3} of buffer 0 (x), which has 64 bytes" in one["text"]
        assert (one["grid"], one["group"]) == ([16, 1, 1], [16, 1, 1])
        assert [(a["name"], a["index"], a["dtype"], a["shape"], a["nbytes"]) for a in one["arguments"]] == [
            ("x", 0, "float32", [4, 4], 64),
            ("by", 1, None, [], 4),
        ]
        (access,) = one["accesses"]
        assert (access["thread"], access["does"]) == ([0 if by < 0 else 16 - by, 0, 0], "writes")


@pytest.mark.needs_mps
def test_torch_s_tensors_and_numbers_are_told_as_what_they_are(reported, torch):
    def run():
        shader = torch.mps.compile_shader(
            "kernel void f(device half *x, constant uint &n, constant long *m, uint i [[thread_position_in_grid]])"
            "{ x[i] = n + m[0]; }"
        )
        shader.f(torch.zeros((2, 4), dtype=torch.float16, device="mps"), 7, [1, 2])
        torch.mps.synchronize()

    (kernel,) = reported(run)["kernels"]
    assert [text.argument(one) for one in kernel["arguments"]] == ["x float16 (2, 4)", "n uint", "m long[2]"]


@pytest.mark.parametrize(("statement", "kind", "numbers"), [
    ("int a[4] = {1, 2, 3, 4}; x[i] = a[n - 1];", "array-index", {"index": 7, "items": 4}),
    ("x[i] = 1u << uint(n + 25);", "shift-amount", {"amount": 33, "bits": 32}),
    ("x[i] = simd_broadcast(x[i], ushort(n + 25));", "lane-index", {"lane": 33, "lanes": 32}),
    ("x[i] = *(device int *)((device char *)x + 2);", "misaligned", {"bytes_past": 2, "alignment": 4}),
])  # fmt: skip
def test_the_numbers_of_a_finding(reported, statement, kind, numbers):
    text = (
        METAL
        + f"kernel void k(device int *x, constant int &n, uint i [[thread_position_in_grid]])\n{{\n    {statement}\n}}\n"
    )

    def run():
        with pytest.raises(md.MetalError):
            ran(text)

    (one,) = reported(run)["findings"]
    assert (one["kind"], one["numbers"]) == (kind, numbers)
    assert (one["offset"], str(one["item"])) == ((2, "0") if kind == "misaligned" else (None, "None"))


def ran(text):
    x = md.zeros(8, "int32")
    md.kernel(text)(x, 8, n=4)
    return np.asarray(x)


@pytest.mark.parametrize("name", ["finding", "launch", "call"])
def test_a_recorder_that_fails_touches_nothing(reported, monkeypatch, name, capfd):
    """The launch ends as without it, and what was found is printed."""

    def fail(*_):
        raise RuntimeError(name)

    monkeypatch.setattr(recording, name, fail)
    seeded = SEEDED["total"]
    reported(lambda: seeded.run(seeded.defects[2]))
    assert "softmetal: kernel: total: one thread writes and another reads" in capfd.readouterr().err
    x = md.full((256,), 1, "float32")
    out = md.zeros(4)
    reported(lambda: seeded.kernel()(x, out, n=256, group=64))
    assert np.asarray(out).tolist() == [64] * 4


def test_the_first_finding_is_printed_and_all_are_counted(reported, capfd):
    seeded = SEEDED["total"]
    before = softmetal.reports("kernel")
    (found,) = reported(lambda: seeded.run(seeded.defects[2], 5))["findings"]
    assert found["launches"] == 5 <= found["times"]
    assert capfd.readouterr().err.count("softmetal: kernel: total") == 1
    assert softmetal.reports("kernel") - before == 5


def test_launches_of_many_streams_and_threads_are_all_counted(reported):
    kernel = md.kernel(METAL + "kernel void ones(device int *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }")

    def work(_):
        stream = md.Stream()
        for _ in range(20):
            kernel(md.zeros(32, "int32"), n=32, stream=stream)
        stream.synchronize()

    (one,) = reported(lambda: in_threads(6, work))["kernels"]
    assert (one["launches"], one["threads"]) == (120, 120 * 32)


@pytest.mark.long
def test_a_record_is_bounded(reported, monkeypatch):
    """What has no room is counted."""
    monkeypatch.setattr(recording, "MOST_KERNELS", 3)
    monkeypatch.setattr(recording, "MOST_FINDINGS", 2)

    def run():
        for seeded in [one for one in SEEDED.values() if one.defects][:6]:
            seeded.run(seeded.defects[0])

    result = reported(run)
    records = len(recording._records)
    assert len(result["kernels"]) <= 3 * records
    assert len(result["findings"]) <= 2 * records
    assert result["lost"] >= 6 - 3 * records


def test_what_is_meant_so_takes_no_room_from_what_is_found(reported, monkeypatch, capfd):
    """The first two of each are kept; the others are counted and told once, however often they come."""
    monkeypatch.setattr(recording, "MOST_FINDINGS", 2)
    meant = "".join(f"x[{item}] = i; // softmetal: benign so\n" for item in range(5))
    kernel = md.kernel(
        f"kernel void k(device uint *x, uint i [[thread_position_in_grid]]) {{\n{meant}"
        + "".join(f"x[{item}] = i;\n" for item in range(5, 10))
        + "}"
    )

    def run():
        x = md.zeros(16, "uint32")
        for _ in range(3):
            kernel(x, n=2)
        x.device.synchronize()

    result = reported(run)
    assert sorted(one["silenced"] is None for one in result["findings"]) == [False, False, True, True]
    assert [one["launches"] for one in result["findings"]] == [3] * 4
    assert result["lost"] == 3 + 3
    assert capfd.readouterr().err.count("two threads write") == 5


@pytest.mark.parametrize(
    ("body", "seed", "way"),
    [
        ("x[i] = 7;", None, "rows"),
        ("x[i] = 7;", 1, "fibers"),
        ("x[i] = simd_sum(7);", None, "regions"),
        ("x[i] = simd_sum(7);", 1, "regions"),
        ("x[i] = waits(3);", None, "fibers"),
    ],
)
def test_a_plain_launch_is_recorded_as_not_checked_with_the_way_that_it_runs(reported, metal_settings, body, seed, way):
    text = (
        METAL
        + "static int waits(int n) { threadgroup_barrier(mem_flags::mem_none); return n > 0 ? waits(n - 1) * waits(n - 2) : n; }\n"
        "kernel void plain(device int *x, uint i [[thread_position_in_grid]]) { " + body + " }"
    )

    def run():
        metal_settings(kernel_check=0, seed=seed)
        md.kernel(text)(md.zeros(8, "int32"), n=8)

    (one,) = reported(run)["kernels"]
    assert (one["name"], one["checked"], one["file"]) == ("plain", False, None)
    assert one["runs_as"] == way


def test_two_texts_of_one_name_are_two_kernels(reported):
    def run():
        for number in (1, 2, 1):
            signature = "kernel void k(device int *x, constant int &n, uint i [[thread_position_in_grid]])"
            ran(f"{METAL}{signature} {{ x[i] = {number}; }}")

    assert sorted(one["launches"] for one in reported(run)["kernels"]) == [1, 2]


TRANSLATED = """
#include <metal_stdlib>
using namespace metal;
#define LOAD(i) x[i + 9999]

kernel void plain(device int *x, uint i [[thread_position_in_grid]]) { x[i + 9999] = 2; x[i] = 1; }
kernel void group(device int *x, uint i [[thread_position_in_grid]]) {
    threadgroup int s[8]; s[i] = 1; x[i] = 0; x[i] = x[i + 9999] + s[i]; x[i] = x[i];
}
kernel void store(device int *x, uint i [[thread_position_in_grid]]) {
    half h = 0; uint2 y = uint2(i).yx; LOAD(i) = y.x + h; x[i] = 1;
}
kernel void load(device int *x, uint i [[thread_position_in_grid]]) {
    half h = 0; uint2 y = uint2(i).yx; x[i] = LOAD(i) + y.x + h;
}
"""


@pytest.mark.parametrize(("kernel", "at"), [
    ("plain", "= 2"), ("group", "x[i + 9999]"), ("store", "= y.x"), ("load", "LOAD"),
])  # fmt: skip
@pytest.mark.some(2)
def test_what_is_said_at_once_names_the_place_that_the_report_names(reported, capfd, kernel, at):
    """At a column of the user's line, also where the translator or a macro has made another of it."""

    def run():
        with contextlib.suppress(md.MetalError):
            x = md.zeros(8, "int32")
            md.Library(TRANSLATED).kernel(kernel)(x, n=4)
            np.asarray(x)

    (access,) = reported(run)["findings"][0]["accesses"]
    assert access["file"].endswith("test_recording.py")
    assert dict(access["context"])[access["line"]][access["column"] - 1 :].startswith(at)
    said = capfd.readouterr().err
    assert f"{access['file']}:{access['line']}:{access['column']}, thread" in said
    assert "program_source" not in said


def test_without_a_report_nothing_is_told(monkeypatch):
    told = []
    monkeypatch.setattr(recording, "launch", told.append)
    monkeypatch.setattr(recording, "call", lambda *values: told.append(values))
    _core._softmetal_record(False)
    ran(METAL + "kernel void k(device int *x, constant int &n, uint i [[thread_position_in_grid]]) { x[i] = n; }")
    assert told == []


def test_a_pixel_outside_that_is_read_is_advice(reported):
    """Metal gives zeros: nothing fails."""

    def run():
        source = METAL + (
            "kernel void f(texture2d<float> t, sampler s, device float *x, uint i [[thread_position_in_grid]])"
            "{ x[i] = t.read(uint2(i, 2)).x + t.sample(s, float2(9)).x; }"
        )
        x = md.zeros((4,))
        md.kernel(source)(md.texture(md.ones((2, 3)), copy=True), md.sampler(), x, n=4)
        assert np.asarray(x).tolist() == [1] * 4

    (one,) = reported(run)["findings"]
    assert (one["kind"], one["advice"], one["times"]) == ("pixel-coordinate", True, 4)
    assert one["memory"] == {
        "kind": "texture",
        "index": 0,
        "name": "t",
        "nbytes": 24,
        "type": "float",
        "item_nbytes": 8,
    }
    assert (
        "reads outside of texture 0 (t): pixel (0,2,0) of level 0, which is 3 by 2 by 1 there; zeros are read"
        in one["text"]
    )
