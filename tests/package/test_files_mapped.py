"""Where the memory of an opened file comes from: its pages, or a copy where a GPU does not read them."""

import numpy as np
import pytest
from children import run_child

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
