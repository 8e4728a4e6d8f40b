// Outside of a buffer, or a pointer into nowhere.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(write_past_the_end, FLOATS) {
    b[i] = a[i]; // instead: b[i + 1] = a[i]; // always expect: out-of-bounds 0: writes outside its memory: bytes 512 to 515 of buffer 1 \(b\), which has 512 bytes
}
KERNEL(write_before_the_beginning, FLOATS) {
    b[i] = a[i]; // instead: b[int(i) - 1] = a[i]; // expect: out-of-bounds 0: writes outside its memory: bytes -4 to -1 of buffer 1 \(b\), which has 512 bytes
}
KERNEL(a_vector_that_is_half_outside, FLOATS) {
    device packed_float4 *v = (device packed_float4 *)(b + i / 4 * 4); // instead: device packed_float4 *v = (device packed_float4 *)(b + i / 4 * 4 + 2); // expect: out-of-bounds 1: writes outside its memory: bytes 512 to 515 of buffer 1 \(b\), which has 512 bytes
    if (i % 4 == 0) *v = float4(a[i]);
}
// given: {"threads": 128, "group": 64}, ("uint8", 100, 1), ("float32", 128, 1)
KERNEL(a_byte_past_the_end, device const uchar *a, device float *b) {
    b[i] = a[i / 2] + 1; // instead: b[i] = a[i] + 1; // always expect: out-of-bounds 0: reads outside its memory: byte 100 of buffer 0 \(a\), which has 100 bytes
}
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("uint32", 128, 1)
KERNEL(atomically_past_the_end, device const float *a, device atomic_uint *b) {
    atomic_fetch_add_explicit(&b[i], 1, memory_order_relaxed); // instead: atomic_fetch_add_explicit(&b[i + 1], 1, memory_order_relaxed); // expect: out-of-bounds 0: writes outside its memory: bytes 512 to 515 of buffer 1 \(b\), which has 512 bytes
}
KERNEL(a_const_buffer_is_written, FLOATS) {
    b[i] = 1; // instead: ((device float *)a)[i] = 1; // always expect: write-to-const 0: writes buffer 0 \(a\), which it declares const
}
struct block { float x[8]; };
// given: {"threads": 16, "group": 16}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(a_copy_of_a_structure_past_the_end, FLOATS) {
    ((device block *)b)[i] = ((device const block *)a)[i]; // instead: ((device block *)b)[i + 1] = ((device const block *)a)[i]; // expect: out-of-bounds 0: writes outside its memory: bytes 512 to 543 of buffer 1 \(b\), which has 512 bytes
}
KERNEL(a_pointer_from_a_number, FLOATS) {
    device float *p = (device float *)(0x123456789000ul + t);
    if (a[i] != 0) p = b + i; // instead: if (a[i] == 0) p = b + i; // expect: stray-pointer 1: writes outside its memory: 4 bytes at 0x123456789000
    *p = 1;
}
// given: {"threads": 128, "group": 64}, ("float32", 128, 1)
KERNEL(a_null_pointer, device float *b) {
    device float *p = nullptr;
    if (b[i] != 0) p = b + i; // instead: if (b[i] == 0) p = b + i; // always expect: null-pointer 1: writes through a null pointer
    *p = 1;
}
