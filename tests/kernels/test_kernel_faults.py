"""A kernel that nobody checks, and that the processor stops: its launch fails, and the process lives."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels]
# AddressSanitizer's heap has the small buffers, and its handler ends a process with a report.
not_sanitized = pytest.mark.needs_no_sanitizer

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
FORWARD = HEAD + "kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }"
RECURSES = (
    HEAD + "int g(int n, device int *x) { %s return n == -7 ? 0 : 1 + g(n + 1, x) + (x[n & 3] > 5); }\n"
    "kernel void f(device int *x) { x[0] = g(0, x); }"
)
BODIES = {
    "a large array": "int a[4000000]; for (int j = 0; j < 4000000; j++) a[j] = j * x[j & 3]; x[0] = a[x[1] & 1023];",
    "nothing bound": "device int *p = (device int *)(ulong)x[0]; p[i] = 1;",
}


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    monkeypatch.delenv("SOFTMETAL_KERNEL_CHECK", raising=False)


@pytest.mark.parametrize("count", [*(pytest.param(n, marks=not_sanitized) for n in (12, 1024, 4096)), 100_000])
def test_an_overrun_by_pages_fails_the_launch_and_names_the_buffer_and_the_way(count):
    x, right = md.zeros(count), md.zeros(count)
    kernel = md.kernel(FORWARD)
    with pytest.raises(md.MetalError, match=r"f: .* behind buffer 0 \(x\).*--check"):
        kernel(x, n=count + 100_000)
        x.tolist()
    kernel(right, n=count)
    assert right.tolist() == [1.0] * count


@not_sanitized
@pytest.mark.parametrize("seed", range(4))
def test_an_overrun_stops_at_the_guard_whichever_thread_runs_first(seed):
    code = (
        "import metal_dlpack as md\n"
        f"kernel = md.kernel({FORWARD!r})\n"
        "arrays = [md.zeros(count) for count in (12, 5000, 12, 100_000) * 5]\n"
        "for x in arrays:\n    try:\n        kernel(x, n=x.size + 200_000)\n        x.tolist()\n"
        "    except md.MetalError as error:\n        print('behind buffer 0' in str(error))\n"
        "    kernel(x, n=x.size)\n    assert set(x.tolist()) == {1.0}\n"
    )
    done = _run(code, SOFTMETAL_SEED=str(seed), SOFTMETAL_KERNEL_THREADS="16")
    assert (done.returncode, done.stdout) == (0, "True\n" * 20), done


@pytest.mark.parametrize("step", ["", "x[0] = n;", "threadgroup_barrier(mem_flags::mem_none);", "x[0] += simd_sum(n);"])
@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.some(2)
def test_a_recursion_whose_stack_ends_is_reported_wherever_it_ends(step, check):
    source = RECURSES % step
    code = (
        "import metal_dlpack as md\nx = md.zeros(16, 'int32')\n"
        "try:\n"
        f"    md.kernel({source!r})(x, n=1)\n    x.tolist()\n"
        "except md.MetalError as error:\n    print(error)\n"
    )
    done = _run(code, SOFTMETAL_KERNEL_CHECK=check)
    assert (done.returncode, "262144 bytes of stack" in done.stdout) == (0, True), done


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_kernel_that_goes_astray_fails_and_the_next_one_runs(body):
    source = HEAD + "kernel void f(device int *x, uint i [[thread_position_in_grid]]) { " + body + " }"
    x, y = md.zeros(64, "int32"), md.zeros(64)
    with pytest.raises(md.MetalError, match="--check"):
        md.kernel(source)(x, n=64)
        x.tolist()
    md.kernel(FORWARD)(y, n=64)
    assert y.tolist() == [1.0] * 64


WAITS = "while (((volatile device int *)x)[1] == 0) { }"
SPINS = {
    "rows": f"if (i == 0) {{ {WAITS} }} if (i == 5) x[1] = 1;",
    "regions": f"if (i == 0) {{ {WAITS} }} if (i == 5) x[1] = 1; threadgroup_barrier(mem_flags::mem_device); x[i] = 2;",
    "SIMD-groups": f"if (simd_sum(i) == 496) {{ {WAITS} }} x[1] = 1;",
}


@pytest.mark.parametrize("body", SPINS.values(), ids=SPINS)
@pytest.mark.some(1)
def test_a_thread_that_waits_for_another_without_a_barrier_is_stopped_and_told(body, settings):
    settings(kernel_timeout=1, kernel_check=0)
    source = HEAD + "kernel void f(device int *x, uint i [[thread_position_in_grid]]) { " + body + " }"
    x, y = md.zeros(64, "int32"), md.zeros(64)
    with pytest.raises(md.MetalError, match=r"f: a threadgroup has taken 1 s .* hangs on a GPU as well.*--check"):
        md.kernel(source)(x, n=64)
        x.tolist()
    md.kernel(FORWARD)(y, n=64)
    assert y.tolist() == [1.0] * 64


ADDS = "kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }"
LASTS = """kernel void f(device float *x, uint i [[thread_position_in_grid]])
{ float y = i; for (uint n = 0; n < 120000000; n++) y = y * 0.999f + 1; x[i] += y; }"""


@pytest.mark.long
@pytest.mark.parametrize(("body", "seed"), [(LASTS, None), (ADDS, None), (ADDS, 1)], ids=["long", "short", "on fibers"])
def test_threadgroups_may_take_longer_together(body, seed, settings):
    """A launch of many, and many launches of one: the time is that of each."""
    settings(kernel_timeout=1, kernel_check=0, kernel_threads=1, seed=seed)
    kernel, x, begun = md.kernel(HEAD + body), md.zeros(100), time.process_time()
    while time.process_time() - begun < 4:
        kernel(x, n=100, group=1)
        assert min(x.tolist()) > 0


TAKES_SIGSEGV = {
    "Python's": "import faulthandler; faulthandler.enable()",
    "signal": "import signal; signal.signal(signal.SIGSEGV, lambda *_: None)",
    "tvm-ffi's": "import tvm_ffi",
}


@not_sanitized
@pytest.mark.parametrize("taking", TAKES_SIGSEGV.values(), ids=TAKES_SIGSEGV)
@pytest.mark.some(1)
def test_who_took_the_signal_after_the_first_kernel_does_not_get_a_kernels_fault(taking):
    code = (
        f"import metal_dlpack as md\nkernel = md.kernel({FORWARD!r})\nx = md.zeros(12)\nkernel(x, n=12)\nx.tolist()\n"
        f"{taking}\nfor _ in range(2):\n    try:\n        kernel(x, n=100_000)\n        x.tolist()\n"
        "    except md.MetalError as error:\n        print('behind buffer 0' in str(error))\n"
    )
    done = _run(code)
    assert (done.returncode, done.stdout) == (0, "True\n" * 2), done


@not_sanitized
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_that_is_no_kernels_goes_to_the_earlier_handler(when):
    enable = "import faulthandler; faulthandler.enable()\n"
    run = f"import ctypes, metal_dlpack as md\nx = md.zeros(8)\nmd.kernel({FORWARD!r})(x, n=8)\nx.tolist()\n"
    code = (enable + run if when == "before" else run + enable) + "ctypes.string_at(0)\n"
    done = _run(code)
    assert done.returncode == -11
    assert done.stderr.count("Fatal Python error: Segmentation fault") == 1
    assert done.stderr.count("(f was the last)") == 1


ENDS = {
    "a fault": ("ctypes.string_at(0)", signal.SIGSEGV, True),
    "a broken heap": ("os.abort()", signal.SIGABRT, True),
    "somebody's signal": ("subprocess.run(['kill', '-SEGV', str(os.getpid())])", signal.SIGSEGV, False),
}


@not_sanitized
@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.some(3)
def test_a_process_that_dies_after_an_unchecked_kernel_names_it_and_the_way(end, is_checked):
    how, number, is_told = end
    code = (
        "import ctypes, os, subprocess, metal_dlpack as md\n"
        f"x = md.zeros(8)\nmd.kernel({FORWARD!r})(x, n=8)\nx.tolist()\n{how}\n"
    )
    done = _run(code, SOFTMETAL_KERNEL_CHECK=str(int(is_checked)))
    assert done.returncode == -number
    words = rf"softmetal: the process ends by {number.name}, .*\(f was the last\).* --check` names the line\.\n"
    assert bool(re.fullmatch(words, done.stderr)) == (is_told and not is_checked), done


def test_more_buffers_live_than_a_process_may_have_mappings():
    code = (
        "import metal_dlpack as md\n"
        "small = [md.empty(64) for _ in range(40_000)]\nlarge = [md.empty(10_000) for _ in range(40_000)]\n"
        "small[-1].fill(1)\nlarge[-1].fill(1)\nprint(sum(1 for _ in open('/proc/self/maps')) < 30_000)\n"
    )
    assert _run(code).stdout == "True\n"


def _run(code, **environment):
    environment = {"SOFTMETAL_VALIDATION": "0", "SOFTMETAL_KERNEL_CHECK": "0", **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
