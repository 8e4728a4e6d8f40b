"""The copy engine and the kernels' text, compiled by themselves: no Python, no Metal."""

import os
import shutil
import subprocess

import pytest
from places import C_FILES, SRC

CC = os.environ.get("CC", "cc").split()
SOURCES = [*sorted(SRC.glob("copy/*.c")), SRC / "metal" / "copy_kernel.c"]
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SRC}", f"-I{C_FILES}"]

# It is compiled by the tests, with sanitizers of their own.
needs_compiler = [
    pytest.mark.skipif(shutil.which(CC[0]) is None, reason="needs a C compiler"),
    pytest.mark.needs_no_sanitizer,
]


def compile_copy(path, *flags, small_caches=False):
    """With small caches, small copies take the roads of large ones."""
    small = ["-DCOPY_FIRST_CACHE=4096", "-DCOPY_SECOND_CACHE=4096"] if small_caches else []
    subprocess.run([*CC, *FLAGS, *flags, *small, *map(str, SOURCES), "-o", str(path)], check=True)
    return path
