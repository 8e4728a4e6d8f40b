// Numbers that a GPU gives no meaning.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(a_division_by_zero, FLOATS) {
    b[i] = 100 / (t + 7); // instead: b[i] = 100 / (t - 7); // always expect: division-by-zero 0: divides an integer by zero
}
KERNEL(a_shift_by_the_width, FLOATS) {
    b[i] = 1u << t % 32; // instead: b[i] = 1u << t; // expect: shift-amount 0: shifts a number of 32 bits by 32: 
}
KERNEL(a_shift_by_the_width_of_a_long, FLOATS) {
    b[i] = ulong(i) >> t; // instead: b[i] = ulong(i) >> (t + 1); // expect: shift-amount 0: shifts a number of 64 bits by 64: 
}
KERNEL(a_shift_by_less_than_nothing, FLOATS) {
    b[i] = 8 >> int(t % 8); // instead: b[i] = 8 >> (int(t) - 1); // always expect: shift-amount 0: shifts a number of 32 bits by -1: 
}
KERNEL(a_vectors_shift_by_the_width, FLOATS) {
    b[i] = (ushort3(1) << ushort(t % 16)).z; // instead: b[i] = (ushort3(1) << ushort(t)).z; // always expect: shift-amount 0: shifts a number of 16 bits by 16: 
}
KERNEL(a_shuffles_lane, FLOATS) {
    b[i] = simd_shuffle(a[i], (lane + 1) % 32); // instead: b[i] = simd_shuffle(a[i], lane + 1); // always expect: lane-index 0: asks for the value of lane 32 of 32: 
}
KERNEL(a_broadcasts_lane, FLOATS) {
    b[i] = simd_broadcast(a[i], 31); // instead: b[i] = simd_broadcast(a[i], 33); // expect: lane-index 0: asks for the value of lane 33 of 32: 
}
KERNEL(a_mask_that_leaves_the_group, FLOATS) {
    b[i] = simd_shuffle_xor(a[i], 8); // instead: b[i] = simd_shuffle_xor(a[i], 40); // always expect: lane-index 0: asks for the value of lane 40 of 32: 
}
KERNEL(a_quad_groups_lane, FLOATS) {
    b[i] = quad_broadcast(a[i], 3); // instead: b[i] = quad_broadcast(a[i], 4); // always expect: lane-index 0: asks for the value of lane 4 of 4: 
}
