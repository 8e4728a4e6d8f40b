// Races of threadgroups.
#include "kernel.h"
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("float32", 128, 1)
KERNEL(all_threadgroups_write_one_place, FLOATS) {
    if (t == 0) b[g] = a[i]; // instead: if (t == 0) b[0] = a[i]; // expect: race-of-threadgroups 0 0: threads of two threadgroups write byte \d+ of buffer \d \(\w+\)
}
KERNEL(all_threadgroups_add_to_one_place, FLOATS) {
    if (t == 0) b[g] += a[i]; // instead: if (t == 0) b[0] += a[i]; // always expect: race-of-threadgroups 0 0: writes and one of another threadgroup reads byte \d+ of buffer \d \(\w+\)
}
KERNEL(a_threadgroup_reads_what_another_writes, FLOATS) {
    if (t == 0) b[g] = a[i];
    if (t == 0 && g == 1) b[5] = b[1]; // instead: if (t == 0 && g == 1) b[5] = b[0]; // expect: race-of-threadgroups -1 0: writes and one of another threadgroup reads byte \d+ of buffer \d \(\w+\)
}
KERNEL(a_read_before_another_threadgroups_write, FLOATS) {
    if (t == 0 && g == 0) b[5] = b[0]; // instead: if (t == 0 && g == 0) b[5] = b[1]; // expect: race-of-threadgroups 0 1: writes and one of another threadgroup reads byte \d+ of buffer \d \(\w+\)
    if (t == 0) b[g] = a[i];
}
// given: {"threads": 128, "group": 64}, ("float32", 128, 1), ("uint8", 2, 1)
KERNEL(a_byte_of_two_threadgroups, device const float *a, device uchar *b) {
    if (t == 0) b[g] = 1; // instead: if (t == 0) b[g / 2] = 1; // expect: race-of-threadgroups 0 0: threads of two threadgroups write byte \d+ of buffer \d \(\w+\)
}
// given: {"threads": 128, "group": 64}, ("float32", 192, 1), ("the first from", 64)
KERNEL(two_buffers_on_the_same_bytes, FLOATS) {
    b[i] = 1; // instead: b[i] = a[i]; // expect: race-of-threadgroups 0 0: writes and one of another threadgroup reads byte \d+ of buffer \d \(\w+\) with nothing between them; buffers 0 \(a\) and 1 \(b\) are the same memory there
}
