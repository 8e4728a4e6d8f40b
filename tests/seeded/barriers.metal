// Barriers that not all threads of a threadgroup reach.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(some_return_before_a_barrier, FLOATS) {
    ; // instead: if (t > 40) return; // expect: barrier-divergence 1: waits at a threadgroup_barrier that thread .* never reaches: it has ended
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = a[i];
}
KERNEL(a_barrier_in_each_branch, FLOATS) {
    if (t < 64) // instead: if (t < 40) // always expect: barrier-divergence 1 3: two threads of a threadgroup wait at different barriers
      threadgroup_barrier(mem_flags::mem_threadgroup);
    else
      threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = a[i];
}
KERNEL(not_all_go_round_as_often, FLOATS) {
    for (uint k = 0; k < 1 + t / 64; k++) // instead: for (uint k = 0; k < 1 + t / 32; k++) // expect: barrier-divergence 1: never reaches: it has ended
      threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = a[i];
}
