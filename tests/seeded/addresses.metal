// Addresses that are no multiple of what lies there.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(a_vector_between_vectors_is_read, FLOATS) {
    float4 v = *(device const float4 *)(a + t / 4 * 4); // instead: float4 v = *(device const float4 *)(a + t); // expect: misaligned 0: uses byte 4 of buffer 0 \(a\) by a type that lies at multiples of 16 bytes: the address is 4 past one
    b[i] = v.x + v.w;
}
// given: {"threads": 64, "group": 64}, ("float16", 128, 1), ("float16", 128, 1)
KERNEL(a_vector_between_vectors_is_written, device const half *a, device half *b) {
    if (t < 16) *(device half4 *)(b + 4 * g + t * 4) = half4(a[i]); // instead: if (t < 16) *(device half4 *)(b + 4 * g + t * 4 + 1) = half4(a[i]); // expect: misaligned 0: uses byte 2 of buffer 1 \(b\) by a type that lies at multiples of 8 bytes: the address is 2 past one
}
KERNEL(a_vector_between_vectors_is_copied, FLOATS) {
    threadgroup float4 s[64];
    s[t] = *(device const float4 *)(a + t / 4 * 4); // instead: s[t] = *(device const float4 *)(a + t); // always expect: misaligned 0: uses byte 4 of buffer 0 \(a\) by a type that lies at multiples of 16 bytes: the address is 4 past one
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s[63 - t].y;
}
KERNEL(a_vector_between_those_of_the_threadgroup, FLOATS) {
    threadgroup float s[64];
    s[t] = a[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = ((threadgroup float2 *)(s + t / 2/ 2 * 2))->x; // instead: b[i] = ((threadgroup float2 *)(s + t / 2 + t % 2))->x; // expect: misaligned 0: uses byte 4 of threadgroup variable \w+ by a type that lies at multiples of 8 bytes: the address is 4 past one
}
// given: {"threads": 128, "group": 64}, ("uint8", 128, 1), ("float32", 128, 1)
KERNEL(a_number_between_bytes, device const uchar *a, device float *b) {
    b[i] = *(device const uint *)(a + t / 4 * 4); // instead: b[i] = *(device const uint *)(a + t); // expect: misaligned 0: uses byte 1 of buffer 0 \(a\) by a type that lies at multiples of 4 bytes: the address is 1 past one
}
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("uint8", 128, 1)
KERNEL(an_atomic_between_bytes, device const float *a, device uchar *b) {
    atomic_fetch_add_explicit((device atomic_uint *)(b + t / 4 * 4 ), 1u, memory_order_relaxed); // instead: atomic_fetch_add_explicit((device atomic_uint *)(b + t / 4 * 4  + t % 4 / 3), 1u, memory_order_relaxed); // expect: misaligned 0: uses byte 1 of buffer 1 \(b\) by a type that lies at multiples of 4 bytes: the address is 1 past one
}
