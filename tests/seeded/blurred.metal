#include "kernel.h"
// given: {"threads": 256, "group": 64}, ("float32", 256), ("float32", 256), 256
kernel void blurred(device const float *x, device float *y, constant uint &n, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]])
{
    threadgroup float near[66]; // instead: threadgroup float near[65]; // expect: array-index 6
    near[t + 1] = x[i];
    if (t == 0) {
        near[0] = i > 0 ? x[i - 1] : 0; // instead: near[0] = x[int(i) - 1]; // expect: out-of-bounds 0
    }
    if (t == 63) {
        near[65] = i + 1 < n ? x[i + 1] : 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = (near[t] + near[t + 1] + near[t + 2]) / 3;
}
