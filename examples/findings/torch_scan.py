"""PyTorch's scans of long rows: a SIMD-group writes the next block's sum while another has still to read this block's.

The kernel is this project's, with the mistake of ScanKernel.metal alone: the sum of a row so far, block by block.
"""

import numpy as np

import metal_dlpack as md
import softmetal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void scan(device const float *x, device float *out, constant uint &size, uint t [[thread_index_in_threadgroup]],
                 uint group [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup float sums[32];
    float before = 0;
    for (uint block = 0; block < size; block += 128) {
        float sum = simd_prefix_inclusive_sum(x[block + t]);
        // HERE
        if (lane == 31) sums[group] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (group == 0) {
            float all = lane < 4 ? sums[lane] : 0;
            all = simd_prefix_inclusive_sum(all);
            if (lane < 4) sums[lane] = all;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        out[block + t] = before + (group > 0 ? sums[group - 1] : 0) + sum;
        before += sums[3];
    }
}"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
SIZE = 1280


def last_sums(source: str) -> list[int]:
    """The sums up to the ends of the last three blocks, of a row of ones."""
    out = md.zeros(SIZE, dtype="float32")
    md.kernel(source)(md.ones(SIZE, dtype="float32"), out, SIZE, groups=1, group=128)
    return [int(number) for number in np.asarray(out)[-257::128]]


softmetal.configure(seed=1)
mended = last_sums(SOURCE.replace("// HERE", BARRIER))
print(f"sums of ones: published {last_sums(SOURCE)}, right {[1024, 1152, 1280]}, mended {mended}")
