"""PyTorch's product with int8 weights: scales are written over the last weights, which another SIMD-group still reads.

The kernel is this project's, with the two mistakes of Quantized.metal alone: one piece of threadgroup memory holds
weights, then scales; and SIMD-group 0 stores the tile while the others have still to write their parts of it.
"""

import numpy as np

import metal_dlpack as md
import softmetal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void product(device const float *weights, device const float *scales, device float *out,
                    uint t [[thread_index_in_threadgroup]], uint group [[simdgroup_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float shared[128], tile[4];
    shared[t] = weights[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint i = 0; i < 128; i++) sum += shared[i];
    // BEFORE THE SCALES
    if (group == 0) shared[lane] = scales[lane];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) tile[group] = sum * shared[group];
    // BEFORE THE STORE
    if (group == 0 && lane < 4) out[lane] = tile[lane];
}"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def products(source: str) -> list[int]:
    """Four times the sum of 128 weights of 1, with scales of 2."""
    out = md.zeros(4, dtype="float32")
    md.kernel(source)(md.ones(128, dtype="float32"), md.full(32, 2, dtype="float32"), out, groups=1, group=128)
    return [int(number) for number in np.asarray(out)]


softmetal.configure(seed=2, poison=1)
mended = products(SOURCE.replace("// BEFORE THE SCALES", BARRIER).replace("// BEFORE THE STORE", BARRIER))
half = products(SOURCE.replace("// BEFORE THE STORE", BARRIER))
print(f"products, scales: published {half}, right {[256] * 4}, mended {mended}")
whole = products(SOURCE.replace("// BEFORE THE SCALES", BARRIER))
print(f"products, store: published {whole}, right {[256] * 4}, mended {mended}")
