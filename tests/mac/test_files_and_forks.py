"""Maps of files beside the GPU, forks beside the GPU, and what a Mac tells a Python that is not its own.

Each test's text says what is expected.  What is only printed is for a person to judge.
"""

import contextlib
import mmap
import os
import platform
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from children import run_child
from forking import exit_code_of_child, fork
from places import ROOT

import metal_dlpack as md

pytestmark = pytest.mark.mac
PAGE = mmap.PAGESIZE
ITEMS = 64 * PAGE // 4

ADD = "kernel void add(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }"
SPIN = """
#include <metal_stdlib>
kernel void spin(device const float *x, device float *out, constant uint &turns, uint i [[thread_position_in_grid]])
{
    float sum = x[i];
    for (uint turn = 0; turn < turns; turn++) {
        sum = metal::fma(sum, 1.000001f, 0.5f);
    }
    out[i] = sum;
}
"""


def file_of(folder, items=ITEMS):
    path = folder / "a.npy"
    np.save(path, np.zeros(items, "float32"))
    return path


def memories(folder):
    """One of each kind that the GPU uses, by name, as Arrays."""
    path = file_of(folder)
    return {
        "Metal's": md.zeros(ITEMS),
        "NumPy's": md.asarray(np.zeros(ITEMS, "float32")),
        "r": md.open(path, "r")["arr_0"],
        "c": md.open(path, "c")["arr_0"],
    }


# ---- a fork ----


@contextlib.contextmanager
def child_beside():
    """A forked child that lives as long as the block: it shares what it got."""
    ear, mouth = os.pipe()
    if (child := fork()) == 0:
        os.close(mouth)
        os.read(ear, 1)
        os._exit(0)
    try:
        yield
    finally:
        os.close(mouth)
        os.close(ear)
        os.waitpid(child, 0)


@pytest.mark.needs_kernels
@pytest.mark.parametrize("kind", ["Metal's", "NumPy's", "c"])
def test_the_parent_still_shares_bytes_with_the_gpu_after_a_fork(tmp_path, kind):
    """Expected: 6.  5: the parent's write went to a copy of a page that a child has too, and the GPU has the old one."""
    add, array = md.kernel(ADD), memories(tmp_path)[kind]
    add(array, n=ITEMS)
    md.default_device().synchronize()
    with child_beside():
        np.asarray(array)[:] = 5
        add(array, n=ITEMS)
        assert set(array.tolist()) == {6}


@pytest.mark.needs_kernels
def test_how_long_a_fork_takes_while_the_gpu_works(tmp_path):
    """Expected on a Mac: some milliseconds each; of "c" hundreds, unless md.open's map is left out of the child."""
    spin, out = md.kernel(SPIN), md.zeros(ITEMS)
    for name, array in memories(tmp_path).items():
        spin(array, out, 100, n=ITEMS)
        md.default_device().synchronize()
        spin(array, out, 2000, n=ITEMS)
        begin = time.perf_counter()
        code = exit_code_of_child(lambda: None)
        print(f"{name:10}{1000 * (time.perf_counter() - begin):10.1f} ms, the child's end too")
        assert code == 0
        md.default_device().synchronize()


# ---- a file ----


@pytest.mark.needs_kernels
def test_what_the_gpu_writes_in_mode_c_is_seen_by_the_cpu_and_not_by_the_file(tmp_path):
    """Expected: the CPU reads the GPU's bytes, before and after its own write; the file has its zeros."""
    path = file_of(tmp_path)
    array = md.open(path, "c")["arr_0"]
    add = md.kernel(ADD)
    add(array, n=ITEMS)
    assert set(array.tolist()) == {1}
    np.asarray(array)[0] = 9
    add(array, n=ITEMS)
    assert array[:2].tolist() == [10, 2]
    assert not np.load(path).any()


@pytest.mark.needs_kernels
def test_mode_r_writes_nothing_back(tmp_path):
    """Expected: bytes and time of change are as they were, after the GPU has read."""
    path = file_of(tmp_path)
    before = path.read_bytes(), path.stat().st_mtime_ns
    array = md.open(path, "r")["arr_0"]
    out = md.zeros(ITEMS)
    md.kernel(SPIN)(array, out, 3, n=ITEMS)
    assert out[0].item() > 0
    del array
    os.sync()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.needs_metal
def test_mode_r_plus_reaches_the_disk(tmp_path):
    """Expected: after an image was detached and attached again, its file has the GPU's bytes."""
    if shutil.which("hdiutil") is None:
        pytest.skip("needs hdiutil, which is part of macOS")
    image, mount = tmp_path / "disk.dmg", tmp_path / "disk"

    def hdiutil(*words):
        subprocess.run(["hdiutil", *map(str, words)], check=True, capture_output=True)

    hdiutil("create", "-size", "16m", "-fs", "HFS+", "-volname", "disk", image)
    hdiutil("attach", image, "-mountpoint", mount, "-nobrowse")
    try:
        path = file_of(mount)
        with md.open(path, "r+") as file:
            md.kernel(ADD)(file["arr_0"], n=ITEMS)
            md.default_device().synchronize()
    finally:
        hdiutil("detach", mount)
    hdiutil("attach", image, "-mountpoint", mount, "-nobrowse")
    try:
        assert set(np.load(path).tolist()) == {1}
    finally:
        hdiutil("detach", mount)


# ---- what a process is told ----


@pytest.mark.needs_metal
def test_the_kernels_under_metals_shader_validation():
    """Expected: all pass.  A failure names an access that Metal's own check finds wrong."""
    done = run_child(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", "tests/kernels"], cwd=ROOT, timeout=290,
                     MTL_SHADER_VALIDATION="1", MTL_DEBUG_LAYER="1")  # fmt: skip
    print(*done.stdout.splitlines()[-20:], sep="\n")
    assert done.returncode == 0


@pytest.mark.needs_metal
def test_a_trace_is_written(tmp_path):
    """Expected: a folder of some files, which Xcode opens; the kernel is called add there."""
    done = run_child(
        f"import metal_dlpack as md, sys; a = md.zeros(64)\nwith md.capture(sys.argv[1]): md.kernel({ADD!r})(a, n=64)",
        tmp_path / "one.gputrace",
        METAL_CAPTURE_ENABLED="1",
    )
    print(done.stderr, sorted(os.listdir(tmp_path / "one.gputrace"))[:10])
    assert done.returncode == 0


def test_who_is_at_the_screen_and_which_device_there_is():
    """Expected: the same devices, whether or not anybody is logged in (ask once by ssh, with nobody logged in)."""
    print(subprocess.run(["who"], capture_output=True, text=True, check=False).stdout or "nobody is logged in")
    assert [device.name for device in md.devices()]


@pytest.mark.needs_metal
def test_which_pages_and_which_macos_a_python_is_told():
    """Expected: 16384, also under Rosetta, where the package's rounding would be wrong with 4096; macOS's own version,
    or 16 for 26 and 27 where an old SDK built this Python: then a language of macOS 27 is not used there."""
    print("pages", PAGE, "version", platform.mac_ver()[0], "of", sys.executable)
    told = "import mmap, platform; print(mmap.PAGESIZE, platform.mac_ver()[0], platform.machine())"
    for python in ("/usr/bin/python3", sys.executable):
        done = subprocess.run(["arch", "-x86_64", python, "-c", told], capture_output=True, text=True, check=False)
        print("under Rosetta", python, done.stdout or done.stderr)
    assert PAGE == 16384
