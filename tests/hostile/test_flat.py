"""Every public call, some hundred times: Python's blocks, references and Metal's objects are as many as before."""

import os
import subprocess
import sys

import pytest
from places import SUPPORT

pytest.importorskip("_testbuffer", reason="needs CPython's _testbuffer")

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]


def test_no_public_call_leaves_anything():
    environment = {**os.environ, "SOFTMETAL_VALIDATION": "0"}
    command = [sys.executable, SUPPORT / "flat_child.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("flat, "), done.stdout
    assert int(done.stdout.split()[1]) > 300
