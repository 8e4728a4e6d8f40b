"""Kernels whose threads work together, beside NumPy: barriers, threadgroup memory, SIMD-groups, atomics."""

import pytest
from group_kernels import KERNELS, METAL
from kernel_images import quickly

import metal_dlpack as md

#: One of each way to work together.
QUICK = ["tree_sum", "softmax", "scan_of_simds", "tiled_matmul", "simdgroup_matmul", "bitonic_sort"]
QUICK += ["histogram", "shuffles", "votes", "last_group"]


@pytest.fixture(scope="module")
def library():
    return md.Library(METAL + "\n".join(case.text for case in KERNELS.values()), math="safe")


@pytest.mark.parametrize("name", quickly(*QUICK, of=KERNELS))
def test_gives_what_numpy_gives(library, name):
    KERNELS[name].run(library[name])
