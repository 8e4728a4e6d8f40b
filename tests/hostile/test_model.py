"""A machine that does anything in any order, beside NumPy; see tests/support/model.py.  `make model` runs more of it."""

import pytest
from children import run_child
from machine import SANITIZER
from places import SUPPORT

pytestmark = pytest.mark.needs_softmetal
STEPS = 300 if SANITIZER else 500
LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8)]


@pytest.mark.parametrize("seed", [1, *LONG])
def test_whatever_is_done_numpy_says_the_same(seed):
    """In a child: two devices are set before the import, and a crash is a failure with its words."""
    done = run_child(SUPPORT / "model.py", STEPS, seed, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as NumPy says" in done.stdout
