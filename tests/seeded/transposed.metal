#include "kernel.h"
// given: {"threads": (32, 32), "group": (16, 16)}, ("float32", (32, 32)), ("float32", (32, 32)), 32
kernel void transposed(device const float *x, device float *y, constant uint &n, uint2 at [[thread_position_in_threadgroup]],
                       uint2 tile_at [[threadgroup_position_in_grid]])
{
    threadgroup float tile[16][17];
    uint2 from = tile_at * 16 + at;
    tile[at.y][at.x] = x[from.y * n + from.x]; // instead: tile[at.y][at.x * 2] = x[from.y * n + from.x]; // always expect: array-index 0
    threadgroup_barrier(mem_flags::mem_threadgroup); // instead: ; // expect: race -1 2
    uint2 to = tile_at.yx * 16 + at; // instead: uint2 to = tile_at.yy * 16 + at; // expect: race-of-threadgroups 1 1
    y[to.y * n + to.x] = tile[at.x][at.y];
}
