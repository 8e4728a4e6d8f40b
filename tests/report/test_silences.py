"""What the user means is not reported as found: by a comment in either source, or by a list."""

import linecache

import numpy as np
import pytest

import metal_dlpack as md
import softmetal
from softmetal.report import silences

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
KERNEL = """kernel void all_write(device int *flag, uint i [[thread_position_in_grid]])
{
    %s
    flag[0] = i; %s
}
"""


def source(above="", behind=""):
    return METAL + KERNEL % (above, behind)


def run(text):
    flag = md.zeros(4, "int32")
    md.kernel(text)(flag, n=64, group=32)
    assert np.asarray(flag)[0] in range(64)


def line_at(where):
    """The line of this file."""
    file, _, line = where.rpartition(":")
    assert file == "tests/report/test_silences.py"
    return linecache.getline(__file__, int(line)).removesuffix("\n")


@pytest.mark.parametrize("where", ["behind", "above"])
@pytest.mark.parametrize("comment", ["// softmetal: benign any will do", "/* softmetal: benign any will do */"])
@pytest.mark.some(2)
def test_a_comment_at_the_line_silences_it(reported, where, comment):
    before = softmetal.reports("kernel")
    result = reported(lambda: run(source(**{where: comment})))
    assert [one["silenced"]["reason"] for one in result["findings"]] == ["any will do"]
    assert [one["kind"] for one in result["findings"]] == ["race"]
    assert softmetal.reports("kernel") == before
    assert (result["unused_silences"], result["refused_silences"]) == ([], [])


def test_a_silenced_race_does_not_fail_its_launch(metal_settings):
    """Without a report too."""
    metal_settings(kernel_check=1)
    run(source(behind="// softmetal: benign any will do, without a report"))


def test_a_comment_without_a_reason_is_refused(reported):
    result = reported(lambda: run(source(behind="// softmetal: benign")))
    assert [one["silenced"] for one in result["findings"]] == [None]
    assert [line_at(one["where"]) for one in result["refused_silences"]] == ["    flag[0] = i; %s"]


@pytest.mark.parametrize(("meant", "kind"), [(40, "race"), (100, "checker-memory")])
def test_many_silences_hide_nothing_in_a_launch(reported, meant, kind):
    """What has no room beside them is found, or the launch says that it may be there."""
    lines = "".join(f"x[{item}] = i; // softmetal: benign so\n" for item in range(meant))
    head = "kernel void k(device uint *x, uint i [[thread_position_in_grid]])"
    kernel = md.kernel(f"{head} {{\n{lines}x[{meant}] = i;\n}}")

    def run():
        x = md.zeros(meant + 1, "uint32")
        kernel(x, n=2)
        x.device.synchronize()

    result = reported(run)
    assert [one["kind"] for one in result["findings"] if one["silenced"] is None] == [kind]
    assert len(result["findings"]) > 40


@pytest.mark.parametrize("above", ["int k = 0; // softmetal: benign not of that line", "// softmetal: harmless"])
def test_what_is_no_comment_of_the_line_silences_nothing(reported, above):
    assert [one["silenced"] for one in reported(lambda: run(source(above)))["findings"]] == [None]


def test_a_silence_that_is_not_needed_is_said(reported):
    """Where the finding would be, and of a text that is in no file by the source's name."""
    text = """
kernel void fine(device int *x, uint i [[thread_position_in_grid]]) {
    x[i] = 1; // softmetal: benign so
}
"""
    result = reported(lambda: md.kernel(text)(md.zeros(64, "int32"), n=64))
    assert line_at(result["unused_silences"][0]["where"]) == "    x[i] = 1; // softmetal: benign so"
    generated = "".join(map(chr, b"kernel void f(device int *x) {\n    x[0] = 7; // softmetal: benign so\n}\n"))
    result = reported(lambda: md.kernel(generated)(md.zeros(64, "int32"), n=1))
    assert result["unused_silences"] == [{"where": "program_source:2", "reason": "so"}]


IN_PIECES = (
    "kernel void in_pieces(device int *flag, uint i [[thread_position_in_grid]])\n"
    "{\n"
    "    flag[0] = i;\n"  # softmetal: benign said in Python
    "}\n"
)


def test_a_comment_of_python_at_the_line_of_a_literal_silences_it(reported):
    result = reported(lambda: run(METAL + IN_PIECES))
    assert {one["silenced"]["reason"] for one in result["findings"]} == {"said in Python"}
    assert {one["silenced"]["where"].rpartition(":")[0] for one in result["findings"]} == {
        "tests/report/test_silences.py"
    }


@pytest.mark.parametrize("row", ["all_write:6", "all_*:6", "program_source:6"])
def test_a_row_of_a_list_silences_a_kernel_s_line(reported, row):
    silences.read(f"# a list\n\n{row}   any will do\nother:6 never\n", "benign.txt")
    result = reported(lambda: run(source()))
    assert {(one["silenced"]["where"], one["silenced"]["reason"]) for one in result["findings"]} == {
        ("benign.txt:3", "any will do")
    }
    assert result["unused_silences"] == [{"where": "benign.txt:4", "reason": "never"}]


@pytest.mark.parametrize(("rows", "why"), [
    ("all_write:6", "l:1: all_write:6 has no reason; write one behind the line's number."),
    ("f:1 yes\nall_write why", "l:2: 'all_write why' is not KERNEL:LINE REASON."),
])  # fmt: skip
def test_a_row_without_a_line_or_a_reason_is_refused(rows, why):
    with pytest.raises(ValueError, match=r"^l:") as error:
        silences.read(rows, "l")
    assert str(error.value) == why


def test_a_silenced_access_outside_still_ends_its_launch(reported):
    text = (
        METAL
        + "kernel void past(device int *x, uint i [[thread_position_in_grid]])\n{\n    x[i + 1] = 1; // softmetal: benign known\n}\n"
    )

    def run():
        x = md.zeros(64, "int32")
        md.kernel(text)(x, n=64)
        with pytest.raises(md.MetalError, match="past: a thread writes outside its memory"):
            np.asarray(x)

    (finding,) = reported(run)["findings"]
    assert finding["silenced"]["reason"] == "known"
