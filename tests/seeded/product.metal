#include "kernel.h"
// given: {"threads": (16, 16), "group": (8, 8)}, ("float32", (16, 16)), ("float32", (16, 16)), ("float32", (16, 16)), 16
kernel void product(device const float *a, device const float *b, device float *c, constant uint &n,
                    uint2 at [[thread_position_in_threadgroup]], uint2 tile [[threadgroup_position_in_grid]])
{
    threadgroup float left[8][8];
    threadgroup float right[8][8];
    float sum = 0;
    uint row = tile.y * 8 + at.y, column = tile.x * 8 + at.x; // instead: uint row = tile.x * 8 + at.y, column = tile.x * 8 + at.x; // expect: race-of-threadgroups 10 10
    for (uint k = 0; k < n; k += 8) { // instead: for (uint k = 0; k <= n; k += 8) { // expect: out-of-bounds 2
        left[at.y][at.x] = a[row * n + k + at.x];
        right[at.y][at.x] = b[(k + at.y) * n + column];
        threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // expect: race -2 2
        for (uint j = 0; j < 8; j++) {
            sum += left[at.y][j] * right[j][at.x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup); // used
    }
    c[row * n + column] = sum;
}
