"""Kernels whose threads work together, beside NumPy: barriers, threadgroup memory, SIMD-groups, atomics."""

import pytest
from group_kernels import KERNELS

import metal_dlpack as md


@pytest.mark.parametrize("name", KERNELS)
def test_gives_what_numpy_gives(name):
    KERNELS[name].run(md.kernel(KERNELS[name].source, math="safe"))
