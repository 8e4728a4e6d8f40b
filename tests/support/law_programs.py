"""The C files of tests/c: programs that try a part of the library by itself, built with the sanitizers where the compiler
has them and run with a seed; and libraries that are loaded into a child."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from machine import can_sanitize
from places import C_FILES, PACKAGES, SRC, dlpack_include

WARNINGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
INCLUDES = [f"-I{SRC}", f"-I{PACKAGES}", f"-I{SRC / 'softmetal'}", f"-I{dlpack_include()}"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def build(folder: Path, name: str, parts: list[str], flags: list[str] | None = None) -> Path:
    """`parts`: the files that it tries, by their paths in src."""
    if flags is None:
        flags = ["-g1", "-Og", "-pthread", *(SANITIZED if can_sanitize("address,undefined") else [])]
    compiler = os.environ.get("CC", "cc").split()
    if shutil.which(compiler[0]) is None:
        pytest.skip("needs a C compiler")
    program = folder / name
    sources = [C_FILES / f"{name}.c", *(SRC / part for part in parts)]
    subprocess.run([*compiler, *WARNINGS, *INCLUDES, *flags, *map(str, sources), "-o", str(program)], check=True)
    return program


def build_library(folder: Path, name: str, *flags: str) -> Path:
    """One that calls Python leaves its functions to whoever loads it."""
    library = folder / f"{name}.so"
    undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    command = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-O2", "-g", "-Wall", *undefined]
    where = ["-I", sysconfig.get_path("include")]
    subprocess.run([*command, *where, C_FILES / f"{name}.c", "-o", library, *flags], check=True)
    return library


def run(program: Path, seed: int, steps: int) -> None:
    result = subprocess.run([str(program), str(seed), str(steps)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
