"""mlx-vlm's quantised cache: sums of SIMD-groups that do not exist go into the norm of a key.

The kernel is this project's, with the mistake alone: eight sums are added, of which heads of 96 items write three.
"""

import numpy as np

import metal_dlpack as md
import softmetal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void norm(device const float *x, device float *out, uint group [[simdgroup_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]], uint i [[thread_index_in_threadgroup]]) {{
    threadgroup float sums[8];
    float sum = simd_sum(x[i] * x[i]);
    if (lane == 0) sums[group] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = simd_sum(lane < {groups} ? sums[lane] : 0.0f);
    if (i == 0) out[0] = total;
}}"""


def squares(groups: str) -> int:
    """The sum of 96 squares of 1."""
    out = md.zeros(1, dtype="float32")
    md.kernel(SOURCE.format(groups=groups))(md.ones(96, dtype="float32"), out, groups=1, group=96)
    return int(np.asarray(out)[0])


softmetal.configure(poison=1)
print(f"squared norm: published {squares('8')}, right {96}, mended {squares('(96 + 31) / 32')}")
