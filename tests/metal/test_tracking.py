"""tracking.h in C: random work against a list of all of it, under the sanitizers; see tracking_laws.c."""

import os
import shutil
import subprocess

import pytest
from places import C_FILES, SRC

SOURCES = [C_FILES / "tracking_laws.c", SRC / "metal" / "tracking.c", SRC / "metal" / "locks.c"]
FLAGS = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SRC}", f"-I{SRC / 'softmetal'}"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = os.environ.get("CC", "cc").split()
    if shutil.which(compiler[0]) is None:
        pytest.skip("needs a C compiler")
    program = tmp_path_factory.mktemp("tracking") / "tracking_laws"
    subprocess.run([*compiler, *FLAGS, *SANITIZED, *map(str, SOURCES), "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize("seed", range(4))
def test_random_work_keeps_the_laws(program, seed):
    result = subprocess.run([str(program), str(seed), "4000"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
