"""Every call with each of its allocations failing in turn: an exception, nothing lost, nothing half done."""

import os
import subprocess
import sys

import pytest
from places import C_FILES, SUPPORT

from metal_dlpack import softmetal

pytest.importorskip("_testcapi", reason="needs CPython's _testcapi")

CHILD = SUPPORT / "no_memory_child.py"

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]


def run_child(which, **environment):
    # With validation, the software Metal notes where each object was made: too slow here.
    environment = {**os.environ, "SOFTMETAL_VALIDATION": "0", **environment}
    return subprocess.run([sys.executable, CHILD, which], env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.rule("import-failing-half")
def test_pythons_allocations_may_fail():
    assert softmetal.is_present()
    done = run_child("python")
    assert (done.returncode, done.stdout, done.stderr) == (0, "quiet\n", "")


@pytest.mark.needs_glibc
@pytest.mark.rule("import-failing-half")
def test_allocations_of_the_extension_may_fail(tmp_path):
    library = tmp_path / "short_malloc.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-O2", C_FILES / "short_malloc.c", "-o", library], check=True)
    done = run_child("c", LD_PRELOAD=str(library))
    assert (done.returncode, done.stdout, done.stderr) == (0, "quiet\n", "")
