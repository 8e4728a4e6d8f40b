// Threadgroup memory: not written, or past its end.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(nobody_writes_it, FLOATS) {
    threadgroup float s[64];
    if (t < 64) s[t] = a[i]; // instead: if (t < 32) s[t] = a[i]; // always expect: unwritten-threadgroup-memory 2: reads byte \d+ of threadgroup variable \w+, which no thread of the threadgroup has written
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s[t];
}
KERNEL(an_atomic_is_not_set, FLOATS) {
    threadgroup atomic_uint s;
    if (t == 0) atomic_store_explicit(&s, 0u, memory_order_relaxed); // instead: ; // expect: unwritten-threadgroup-memory 2: reads byte \d+ of threadgroup variable \w+, which no thread of the threadgroup has written
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&s, 1u, memory_order_relaxed);
}
KERNEL(a_byte_of_a_word, FLOATS) {
    threadgroup uchar s[64];
    if (true) s[t] = 1; // instead: if (t != 5) s[t] = 1; // expect: unwritten-threadgroup-memory 2: reads byte \d+ of threadgroup variable \w+, which no thread of the threadgroup has written
    threadgroup_barrier(mem_flags::mem_threadgroup);
    b[i] = s[t];
}
KERNEL(past_a_threadgroup_array, FLOATS) {
    threadgroup float s[64];
    threadgroup float *p = s;
    p[t] = a[i]; // instead: p[t + 1] = a[i]; // expect: out-of-bounds 0: writes outside its memory: bytes 256 to 259 of threadgroup variable \w+, which has 256 bytes
}
// given: {"threads": 128, "group": 64, "threadgroup_memory": {"s": 256}}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(past_a_threadgroup_argument, device const float *a, device float *b, threadgroup float *s [[threadgroup(0)]]) {
    s[t] = a[i]; // instead: s[t + 1] = a[i]; // always expect: out-of-bounds 0: writes outside its memory: bytes 256 to 259 of threadgroup argument 0 \(s\), which has 256 bytes
}
