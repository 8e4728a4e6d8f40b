// Races of threads in a threadgroup.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(a_barrier_is_missing, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // expect: race -1 1: one thread writes and another reads byte \d+ of threadgroup variable \w+
    b[i] = s[63 - t];
}
struct pair { uint n; bfloat x; };
void put(threadgroup pair *to, pair from) { *to = from; }
KERNEL(a_structure_of_six_bytes_and_a_barrier_is_missing, FLOATS) {
    threadgroup pair s[64];
    put(s + t, pair{t, bfloat(a[i])});
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // always expect: race -4 1: one thread writes and another reads byte \d+ of threadgroup variable \w+
    b[i] = s[63 - t].n;
}
KERNEL(a_second_barrier_is_missing, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float x = s[63 - t];
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // expect: race -1 1: one thread writes and another reads byte \d+ of threadgroup variable \w+
    s[t] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s[t];
}
KERNEL(a_barrier_is_missing_in_a_loop, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint n = 32; n > 0; n /= 2) {
      if (t < n) s[t] += s[t + n];
      threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // always expect: race -1 -1: one thread writes and another reads byte \d+ of threadgroup variable \w+
    }
    if (t == 0) b[g] = s[0];
}
KERNEL(a_barrier_of_the_other_memory, FLOATS) {
    b[i] = a[i];
    threadgroup_barrier(mem_flags::mem_device); // instead: threadgroup_barrier(mem_flags::mem_threadgroup); // expect: race -1 1: one thread writes and another reads byte \d+ of buffer 1 \(b\)
    float x = b[i ^ 1];
    threadgroup_barrier(mem_flags::mem_device);
    b[i] = x;
}
KERNEL(a_barrier_of_device_memory_for_the_threadgroups, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: threadgroup_barrier(mem_flags::mem_device); // expect: race -1 1: one thread writes and another reads byte \d+ of threadgroup variable \w+
    b[i] = s[63 - t];
}
KERNEL(all_write_one_place, FLOATS) {
    threadgroup float s;
    if (t == 0) s = a[i] + t; // instead: s = a[i] + t; // expect: race 0 0: two threads write byte \d+ of threadgroup variable \w+
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s;
}
KERNEL(neighbours_bytes_one_too_far, FLOATS) {
    threadgroup uchar s[65];
    s[t] = 1;
    s[t | (t & 0)] = 2; // instead: s[t + (t & 1)] = 2; // always expect: race -1 0: two threads write byte \d+ of threadgroup variable \w+
}
KERNEL(a_simd_groups_barrier_between_simd_groups, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s[t ^ 31]; // instead: b[i] = s[63 - t]; // expect: race -2 0: one thread writes and another reads byte \d+ of threadgroup variable \w+
}
KERNEL(lanes_without_a_barrier, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    simdgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // always expect: race -1 1: one thread writes and another reads byte \d+ of threadgroup variable \w+
    b[i] = s[t ^ 1];
}
KERNEL(a_function_of_half_of_the_lanes, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    if (lane < 16) b[i] = simd_sum(a[i]);
    if (lane < 16) b[i] = s[t ^ 1]; // instead: if (lane < 16) b[i] = s[t ^ 16]; // expect: race -2 0: one thread writes and another reads byte \d+ of threadgroup variable \w+
}
KERNEL(plain_beside_atomic, FLOATS) {
    threadgroup atomic_uint s;
    if (t == 0) atomic_store_explicit(&s, 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&s, 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // always expect: race -1 1: one thread writes and another reads byte \d+ of threadgroup variable \w+ with nothing between them, and only one of them is atomic
    b[i] = *(threadgroup uint *)&s;
}
