"""Where the memory of an opened file comes from: its pages, or a copy where a GPU does not read them."""

import faulthandler
import os
import signal

import numpy as np
import pytest
from children import output_of, run_child
from forking import exit_code_of_child

import metal_dlpack as md
from metal_dlpack.files import memory

VIRTUAL = """
import sys
import numpy as np
import metal_dlpack as md

for mode in ("r", "c", "r+"):
    file, mapped = md.open(sys.argv[1], mode), np.load(sys.argv[1], mmap_mode=mode)
    try:
        shares = [md.shares_memory(md.asarray(mapped), mapped), file["arr_0"].buffer is file["arr_0"].buffer]
        print(mode, *shares, file["arr_0"][7].item(), md.asarray(mapped)[7].item())
        md.asarray(mapped, copy=False)
    except md.CopyRequiredError as error:
        print(mode, error)
shared = md.asarray(np.zeros(50_000), copy=False)
"""


@pytest.mark.needs_softmetal
@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(("macos", "is_copied"), [("14", True), ("15", False)])
def test_no_buffer_lies_over_a_file_where_a_virtual_mac_would_read_old_bytes(tmp_path, macos, is_copied):
    """Seen by others on macOS 14: unslothai/llama.cpp pull request 37.  Other memory of the CPU is shared there."""
    np.save(tmp_path / "a.npy", np.arange(50_000.0))
    done = run_child(VIRTUAL, tmp_path / "a.npy", SOFTMETAL_DEVICES="paravirtual", SOFTMETAL_MACOS=macos)
    assert done.returncode == 0, done.stderr
    if not is_copied:
        assert done.stdout.splitlines() == [f"{mode} True True 7.0 7.0" for mode in ("r", "c", "r+")]
        return
    r, r_refused, c, c_refused, plus = done.stdout.splitlines()
    assert [r, c] == [f"{mode} False False 7.0 7.0" for mode in ("r", "c")]
    assert all("virtual machine with macOS 14 reads old bytes" in line for line in (r_refused, c_refused, plus))
    assert plus.startswith("r+ open: mode 'r+' writes through the file's pages, and ")
    assert plus.endswith("Modes 'r' and 'c' copy the tensors.")


def end_of_a_child_that_reads(path, mode):
    with md.open(path, mode) as file:
        array = file["arr_0"]

    def read():
        faulthandler.disable()
        assert array[7].item() == 7

    end = exit_code_of_child(read)
    assert array[7].item() == 7
    return end


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.needs_no_sanitizer  # which reports the signal
@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_a_forked_child_does_not_get_the_maps_that_make_a_macs_fork_slow(tmp_path, monkeypatch, mode):
    """Elsewhere it gets them; there the same is asked of the system in its own words."""
    np.save(tmp_path / "a.npy", np.arange(50_000.0))
    ends = []
    for leaves_nothing in (False, True):
        monkeypatch.setattr(memory, "LEAVES_CHILDREN_NOTHING", leaves_nothing)
        ends.append(end_of_a_child_that_reads(tmp_path / "a.npy", mode))
    assert ends == [0, -signal.SIGSEGV]


def test_a_map_that_the_system_refuses_names_the_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(1 << 27))
    code = """
import resource, sys, metal_dlpack as md
md.zeros(3)
file = md.open(sys.argv[1])
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (in_use + (1 << 26),) * 2)
try:
    file["arr_0"]
except OSError as error:
    print(error)
"""
    said = output_of(code, tmp_path / "a.npy")
    assert (
        said
        == f"[Errno 12] open: {(1 << 30) + 128} bytes cannot be mapped (Cannot allocate memory): '{tmp_path}/a.npy'\n"
    )
