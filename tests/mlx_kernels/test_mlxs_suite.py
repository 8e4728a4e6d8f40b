"""MLX's own tests of custom kernels, unchanged: fetched, and run in a child with the kernels switched on."""

import re

import fetched_data
import pytest
from children import run_child

mark = pytest.mark
pytestmark = [mark.needs_softmetal, mark.needs_kernels, mark.needs_mlx, mark.needs_no_sanitizer]

RUN = """
import sys, unittest
sys.path[:0] = {folders!r}
import softmetal
softmetal.mlx_kernels()
unittest.main("test_fast", argv=["test_fast", "-v", "-k", "custom_kernel", "-k", "custom_metal_kernel"])
"""


def test_mlxs_tests_of_metal_kernel_pass():
    folders = [str(fetched_data.file(name).parent) for name in ("mlx-test_fast", "mlx-mlx_tests")]
    done = run_child(["-c", RUN.format(folders=folders)], timeout=300)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\.\.\. ok$", done.stderr, re.MULTILINE)) >= 9, done.stderr
