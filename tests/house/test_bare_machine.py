"""The tests run on a machine that lacks what most have: a network, a home that can be written, a path without a space."""

import shutil
import subprocess

import pytest
from children import run_child
from machine import can_sanitize
from places import ROOT, TOOLS

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels, pytest.mark.needs_no_sanitizer]


def tried(*tests, **environment):
    """What a run of pytest of its own says in its last line."""
    done = run_child(
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"], *tests, cwd=ROOT, **environment
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.long
def test_what_could_not_be_fetched_is_a_skip(tmp_path):
    asked = ["tests/kernels/test_barriers_removed.py", "-k", "ggml_norm"]
    assert "1 skipped" in tried(*asked, XDG_CACHE_HOME=str(tmp_path), METAL_DLPACK_NEEDS_REFERENCE="")


@pytest.mark.long
def test_a_cache_that_cannot_be_written_is_replaced():
    asked = ["tests/kernels/test_kernel_order.py", "-k", "a_write_waits"]
    said = tried(*asked, XDG_CACHE_HOME="/proc/nowhere")
    assert "passed" in said
    assert "failed" not in said


@pytest.mark.skipif(not can_sanitize("address"), reason="needs a C compiler with AddressSanitizer")
def test_the_sanitizers_find_their_files_below_a_path_with_a_space(tmp_path):
    """A checkout with tools/sanitized, and for Python a command that compiles and runs a program with a leak."""
    tools = tmp_path / "a check out" / "tools"
    tools.mkdir(parents=True)
    shutil.copy(TOOLS / "sanitized", tools)
    (tools / "asan.supp").write_text("leak:forget\n")
    source = tools / "leak.c"
    source.write_text(
        "#include <stdlib.h>\nvoid *forget(void) { return malloc(8); }\nint main(void) { forget(); return 0; }\n"
    )
    python = tools / "python"
    python.write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\ncase $1 in setup.py) mkdir -p ../build/asan; exec gcc -g -fsanitize=address leak.c -o leak ;; esac\n'
        "exec ./leak\n"
    )
    python.chmod(0o755)
    done = subprocess.run(
        [tools / "sanitized", "address,undefined", python], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
