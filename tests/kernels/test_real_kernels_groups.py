"""Kernels whose threads work together, beside NumPy: barriers, threadgroup memory, SIMD-groups, atomics."""

import pytest
from group_kernels import KERNELS
from kernel_images import quickly

import metal_dlpack as md

#: One of each way to work together.
QUICK = ["tree_sum", "softmax", "scan_of_simds", "tiled_matmul", "simdgroup_matmul", "bitonic_sort"]
QUICK += ["histogram", "shuffles", "votes", "last_group"]


@pytest.mark.parametrize("name", quickly(*QUICK, of=KERNELS))
def test_gives_what_numpy_gives(name):
    KERNELS[name].run(md.kernel(KERNELS[name].source, math="safe"))
