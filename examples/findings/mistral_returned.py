"""mistral.rs' gated delta rule and mxfp4: threads without a column return, and nobody loads their part.

The kernel is this project's, with the mistake alone: 64 threads load ones, whose sum each of 48 columns takes.
"""

import numpy as np

import metal_dlpack as md
import softmetal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void sums(device const float *k, device float *out, constant uint &columns,
                 uint t [[thread_index_in_threadgroup]]) {{
    threadgroup float shared[64];
    {begin}
    shared[t] = k[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint i = 0; i < 64; i++) sum += shared[i];
    {end}
}}"""


def first_sum(begin: str, end: str) -> int:
    out = md.zeros(48, dtype="float32")
    kernel = md.kernel(SOURCE.format(begin=begin, end=end))
    kernel(md.ones(64, dtype="float32"), out, 48, groups=1, group=64)
    return int(np.asarray(out)[0])


softmetal.configure(poison=1)
published = first_sum("if (t >= columns) return;", "out[t] = sum;")
print(f"sum of 64 ones: published {published}, right {64}, mended {first_sum('', 'if (t < columns) out[t] = sum;')}")
