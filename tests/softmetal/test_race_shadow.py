"""race_shadow.h in C: random uses of a block against a plain list for each byte; see race_shadow_laws.c.

It compiles with race_shadow.c alone: the shadow knows no buffers, no queues and no Metal.
"""

import os
import shutil
import subprocess

import pytest
from places import C_FILES, SRC

CC = os.environ.get("CC", "cc").split()
FLAGS = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SRC}"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
SOURCES = [C_FILES / "race_shadow_laws.c", SRC / "softmetal" / "race_shadow.c"]

pytestmark = [
    pytest.mark.skipif(shutil.which(CC[0]) is None, reason="needs a C compiler"),
    pytest.mark.needs_no_sanitizer,
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("race_shadow") / "race_shadow_laws"
    subprocess.run([*CC, *FLAGS, *SANITIZED, *SOURCES, "-o", path], check=True)
    return path


@pytest.mark.parametrize("seed", range(3))
def test_random_uses_leave_what_a_plain_list_leaves(program, seed):
    result = subprocess.run([program, str(seed), "1000"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
