// What all lanes of a SIMD-group must reach.
#include <metal_simdgroup_matrix>
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(some_lanes_return_before_a_simd_groups_barrier, FLOATS) {
    if (simd == 1 && lane < 11 && lane > 31) return; // instead: if (simd == 1 && lane < 11 ) return; // always expect: simdgroup-divergence 1: waits at a place for all lanes of a SIMD-group that thread \(32,0,0\) never reaches: it has ended: .*, thread \(43,0,0\)
    simdgroup_barrier(mem_flags::mem_none);
    b[i] = a[i];
}
KERNEL(a_simd_groups_barrier_in_each_branch, FLOATS) {
    if (lane < 32) // instead: if (lane < 20) // expect: simdgroup-divergence 1 3: two threads of a SIMD-group wait at different places, and one of the places is for all lanes
      simdgroup_barrier(mem_flags::mem_none);
    else
      simdgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = a[i];
}
KERNEL(a_simd_groups_barrier_and_the_threadgroups, FLOATS) {
    if (lane < 32) // instead: if (lane < 20) // always expect: simdgroup-divergence 1 2: two threads of a SIMD-group wait at different places, and one of the places is for all lanes
      simdgroup_barrier(mem_flags::mem_none);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = a[i];
}
// given: {"threads": 64, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(a_product_of_matrices_without_some_lanes, FLOATS) {
    simdgroup_float8x8 x(a[0]), y;
    if (lane < 32) // instead: if (lane != 9) // always expect: simdgroup-divergence 1 2: two threads of a SIMD-group wait at different places, and one of the places is for all lanes
      simdgroup_multiply(y, x, x);
    simdgroup_barrier(mem_flags::mem_none);
    simdgroup_store(y, b + 64 * simd, 8);
}
