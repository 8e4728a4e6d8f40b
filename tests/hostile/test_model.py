"""A machine that does anything in any order, beside NumPy; see tests/support/model.py.  `make model` runs more of it."""

import os
import subprocess
import sys

import pytest
from machine import SANITIZER
from places import SUPPORT, python_path

pytestmark = pytest.mark.needs_softmetal
STEPS = 300 if SANITIZER else 800
LONG = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8)]


@pytest.mark.parametrize("seed", [1, *LONG])
def test_whatever_is_done_numpy_says_the_same(seed):
    """In a child: two devices are set before the import, and a crash is a failure with its words."""
    done = subprocess.run(
        [sys.executable, SUPPORT / "model.py", str(STEPS), str(seed)],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "as NumPy says" in done.stdout
