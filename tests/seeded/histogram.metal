#include "kernel.h"
// given: {"threads": 256, "group": 128}, ("uint8", 256), ("uint32", 64)
kernel void histogram(device const uchar *x, device atomic_uint *bins, uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]])
{
    threadgroup atomic_uint own[64];
    if (t < 64) { // instead: if (t < 63) { // expect: unwritten-threadgroup-memory 5
        atomic_store_explicit(&own[t], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint bin = x[i] / 4; // instead: uint bin = x[i] / 2; // expect: out-of-bounds 1
    atomic_fetch_add_explicit(&own[bin], 1u, memory_order_relaxed); // instead: ((threadgroup uint *)own)[bin / 2] += 1u; // expect: race 0 0
    threadgroup_barrier(mem_flags::mem_threadgroup); // counted
    if (t < 64) {
        uint count = atomic_load_explicit(&own[t], memory_order_relaxed);
        atomic_fetch_add_explicit(&bins[t], count, memory_order_relaxed);
    }
}
