#include "kernel.h"
// given: {"threads": 256, "group": 64}, ("float32", 256), ("float32", 4)
kernel void total(device const float *x, device float *out, uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]])
{
    threadgroup float part[64];
    part[t] = x[i]; // instead: if (t != 17) part[t] = x[i]; // always expect: unwritten-threadgroup-memory 4
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_count = 32; half_count > 0; half_count /= 2) {
        if (t < half_count) { // instead: if (t <= half_count && t < 32) { // expect: race 1 1
            part[t] += part[t + half_count];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // expect: race -2 -2
    }
    if (t == 0) {
        out[g] = part[0];
    }
}
