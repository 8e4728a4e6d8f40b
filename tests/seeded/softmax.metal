#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128), ("float32", 128)
kernel void softmax(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup float shared[2];
    float largest = simd_max(x[i]);
    if (lane == 0) {
        shared[simd] = largest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    largest = max(shared[0], shared[1]);
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // always expect: race 4 -1
    float e = exp(x[i] - largest);
    float sum = simd_sum(e);
    if (lane == 0) {
        shared[simd] = sum; // instead: shared[simd + 1] = sum; // expect: array-index 0
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: if (lane > 4) threadgroup_barrier(mem_flags::mem_threadgroup); // expect: barrier-divergence 0
    y[i] = e / (shared[0] + shared[1]);
}
