"""layout.h in C: random layouts through every function, under the sanitizers; see layout_laws.c."""

import os
import shutil
import subprocess

import pytest
from places import C_FILES, SRC

SOURCES = [SRC / "arithmetic" / name for name in ("layout.c", "layout_views.c", "layout_order.c", "layout_repack.c")]
FLAGS = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SRC}"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

pytestmark = pytest.mark.needs_no_sanitizer


def build(folder, flags):
    compiler = os.environ.get("CC", "cc").split()
    if shutil.which(compiler[0]) is None:
        pytest.skip("needs a C compiler")
    program = folder / "layout_laws"
    command = [*compiler, *FLAGS, *flags, str(C_FILES / "layout_laws.c"), *map(str, SOURCES), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("layout"), SANITIZED)


@pytest.mark.parametrize("seed", range(4))
def test_random_layouts_keep_the_laws(program, seed):
    result = subprocess.run([str(program), str(seed), "10000"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_it_compiles_without_a_warning(tmp_path, level):
    build(tmp_path, [level])


def test_every_fault_has_a_text_with_its_numbers():
    text = (SRC / "arithmetic" / "layout.h").read_text()
    faults = text[text.index("#define LAYOUT_FAULT_LIST") : text.index("#define LAYOUT_AS_ENUM")]
    for line in faults.replace('"     ', '"').split("X(")[2:]:
        assert 0 <= line.count("%lld") <= 2
        assert line.count("%") == line.count("%lld")
    assert '#define LAYOUT_TEXT_EXTENT "extent %lld of axis %lld is negative"' in text
