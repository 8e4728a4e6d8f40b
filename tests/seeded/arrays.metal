// Past the end of a thread's arrays, tables and vectors.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(past_a_local_array, FLOATS) {
    float x[8];
    for (uint k = 0; k < 8; k++) x[k] = a[i] * k;
    b[i] = x[t % 8]; // instead: b[i] = x[t]; // expect: array-index 0: passes the end of an array: index 8 of 8: 
}
KERNEL(before_a_local_array, FLOATS) {
    float x[8];
    for (uint k = 0; k < 8; k++) x[k] = a[i] * k;
    b[i] = x[t % 8]; // instead: b[i] = x[int(t) - 1]; // expect: array-index 0: passes the end of an array: index -1 of 8: 
}
KERNEL(past_an_array_of_the_threadgroups, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i]; // instead: s[t + 1] = a[i]; // expect: array-index 0: passes the end of an array: index 64 of 64: 
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s[t % 64];
}
constant float table[4] = {1, 2, 3, 4};
KERNEL(past_a_table, FLOATS) {
    b[i] = table[t % 4]; // instead: b[i] = table[t]; // expect: array-index 0: passes the end of an array: index 4 of 4: 
}
KERNEL(past_a_local_array_by_a_pointer, FLOATS) {
    float x[8] = {};
    thread float *p = x + t % 8;
    p[0] = a[i]; // instead: p[t / 8] = a[i]; // always expect: array-index 0: passes the end of an array
    b[i] = x[1];
}
struct block { float x[8]; float y; };
KERNEL(past_a_member_of_a_structure, FLOATS) {
    block x;
    for (uint k = 0; k < 8; k++) x.x[k] = k;
    b[i] = x.x[t % 8]; // instead: b[i] = x.x[t]; // always expect: array-index 0: passes the end of an array: index 8 of 8: 
}
KERNEL(past_a_vector, FLOATS) {
    float4 x = float4(a[i]);
    b[i] = x[t % 4]; // instead: b[i] = x[t]; // expect: vector-index 0: passes the end of a vector: index 4 of 4: 
}
