// No defects.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
// a vector of three and a structure, copied with bytes that nobody wrote
KERNEL(a_vector_of_three_and_a_structure_copied, FLOATS) {
    threadgroup float3 s[64];
    struct pair { uchar x; float y; };
    threadgroup pair p[64];
    s[t] = float3(a[i]);
    p[t].x = 1;
    p[t].y = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    pair q = p[63 - t];
    float3 v = s[63 - t];
    b[i] = v.x + v.y + v.z + q.y + q.x;
}
// lanes that part, and a barrier of theirs where they have met again
KERNEL(lanes_that_part_and_a_barrier_of_theirs, FLOATS) {
    float x = a[i];
    if (lane % 3 == 0) x += simd_sum(x);
    else for (uint k = 0; k < lane; k++) x += simd_max(x);
    simdgroup_barrier(mem_flags::mem_none);
    b[i] = x;
}
// a barrier of a SIMD-group that lies before the place where some of its lanes are
KERNEL(a_barrier_behind_some_of_its_lanes, FLOATS) {
    float x = a[i];
    for (uint k = 0; k < uint(a[i]) + 2; k++) {
      simdgroup_barrier(mem_flags::mem_none);
      if (lane % 2 == 1) x += simd_sum(x);
    }
    b[i] = x;
}
// numbers of 4 and 2 bytes, and packed vectors, at multiples of theirs
KERNEL(numbers_at_multiples_of_theirs, FLOATS) {
    packed_float3 v = *(device const packed_float3 *)(a + i % 64);
    half h = *((device const half *)a + t);
    b[i] = v.x + v.z + float(h);
}
KERNEL(shifts_by_less_than_the_width, FLOATS) {
    b[i] = (1u << t % 32) + (ulong(1) << t % 64) + (uchar4(1) << uchar(t % 8)).x;
}
// a barrier without flags ends what was read before
KERNEL(a_barrier_without_flags, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float x = s[63 - t];
    threadgroup_barrier(mem_flags::mem_none);
    s[t] = x;
    b[i] = s[t];
}
