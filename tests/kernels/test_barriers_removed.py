"""Each barrier of real kernels is taken out, one at a time, and the checker says so; where it does not, none was needed.

A GPU may give the right result without a barrier, on most days; the software Metal, whose threads run in a fixed order,
does so always.  So it is the checker that must see it.
"""

import json

import kernel_sources
import pytest
from barrier_kernels import CASES
from children import run_child
from places import SUPPORT

pytestmark = [pytest.mark.long, pytest.mark.needs_softmetal, pytest.mark.needs_kernels, pytest.mark.needs_no_sanitizer]

#: Kernel, number of the barrier: why none is needed there.
REDUNDANT = {
    ("ggml_matmul", 0): "It is for a K that is no multiple of 32, and not compiled here.",
    ("ggml_matmul", 3): "It only holds the lanes of a SIMD-group together between loads: mem_none.",
    ("ggml_matmul", 4): "The same.",
    ("ggml_matmul", 5): "The same.",
}


@pytest.mark.parametrize("name", CASES)
def test_a_barrier_that_is_missed_is_reported(name):
    for author in ("mlx", "ggml"):
        if name.startswith(author):
            getattr(kernel_sources, author)()  # or this test skips: a child could not
    checked = {"SOFTMETAL_KERNEL_CHECK": "1", "SOFTMETAL_VALIDATION": "1", "SOFTMETAL_VALIDATION_MODE": "log"}
    done = run_child(SUPPORT / "barrier_kernels.py", name, timeout=600, **checked)
    assert done.returncode == 0, done.stderr
    whole, *without = json.loads(done.stdout)
    assert whole == []
    assert without, "no barrier was found in the source"
    for number, reports in enumerate(without):
        assert bool(reports) == ((name, number) not in REDUNDANT), f"without barrier {number}: {reports}"
