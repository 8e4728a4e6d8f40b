"""Kernels of the kinds that people count: how much longer they take counted, and of two the counts by hand."""

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void copy(device const float *x, device float *y, uint i [[thread_position_in_grid]])
{
    y[i] = x[i];
}

kernel void transpose(device const float *x, device float *y, constant uint2 &size, uint2 i [[thread_position_in_grid]])
{
    if (i.x < size.x && i.y < size.y)
        y[i.x * size.y + i.y] = x[i.y * size.x + i.x];
}

template <int PAD>
kernel void tiled(device const float *x, device float *y, constant uint2 &size, uint2 l [[thread_position_in_threadgroup]],
                  uint2 g [[threadgroup_position_in_grid]])
{
    threadgroup float tile[32][32 + PAD];
    uint column = g.x * 32 + l.x, row = g.y * 32 + l.y;
    if (column < size.x && row < size.y)
        tile[l.y][l.x] = x[row * size.x + column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    column = g.y * 32 + l.x;
    row = g.x * 32 + l.y;
    if (column < size.y && row < size.x)
        y[row * size.y + column] = tile[l.x][l.y];
}
template [[host_name("tiled_0")]] kernel void tiled<0>(device const float *, device float *, constant uint2 &, uint2, uint2);
template [[host_name("tiled_1")]] kernel void tiled<1>(device const float *, device float *, constant uint2 &, uint2, uint2);

kernel void reduce(device const float *x, device float *y, constant uint &n, uint i [[thread_position_in_grid]],
                   uint l [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]])
{
    threadgroup float part[256];
    part[l] = i < n ? x[i] : 0;
    for (uint d = 128; d > 0; d /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (l < d)
            part[l] += part[l + d];
    }
    if (l == 0)
        y[g] = part[0];
}

kernel void histogram(device const uint *x, device atomic_uint *bins, uint i [[thread_position_in_grid]])
{
    atomic_fetch_add_explicit(&bins[x[i]], 1u, memory_order_relaxed);
}

kernel void stencil(device const float *x, device float *y, constant uint &n, uint i [[thread_position_in_grid]])
{
    if (i > 0 && i + 1 < n)
        y[i] = x[i - 1] + x[i + 1];
}

kernel void gemm(device const float *a, device const float *b, device float *c, constant uint3 &size,
                 uint2 i [[thread_position_in_grid]])
{
    if (i.x >= size.y || i.y >= size.x)
        return;
    float sum = 0;
    for (uint k = 0; k < size.z; k++)
        sum += a[i.y * size.z + k] * b[k * size.y + i.x];
    c[i.y * size.y + i.x] = sum;
}

kernel void gemm_tiled(device const float *a, device const float *b, device float *c, constant uint3 &size,
                       uint2 i [[thread_position_in_grid]], uint2 l [[thread_position_in_threadgroup]])
{
    threadgroup float left[32][32], right[32][32];
    float sum = 0;
    for (uint t = 0; t < size.z; t += 32) {
        left[l.y][l.x] = i.y < size.x && t + l.x < size.z ? a[i.y * size.z + t + l.x] : 0;
        right[l.y][l.x] = t + l.y < size.z && i.x < size.y ? b[(t + l.y) * size.y + i.x] : 0;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k = 0; k < 32; k++)
            sum += left[l.y][k] * right[k][l.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (i.x < size.y && i.y < size.x)
        c[i.y * size.y + i.x] = sum;
}

kernel void softmax(device const float *x, device float *y, constant uint &n, uint row [[threadgroup_position_in_grid]],
                    uint lane [[thread_index_in_simdgroup]])
{
    float most = -INFINITY, sum = 0;
    for (uint j = lane; j < n; j += 32)
        most = max(most, x[row * n + j]);
    most = simd_max(most);
    for (uint j = lane; j < n; j += 32)
        sum += exp(x[row * n + j] - most);
    sum = simd_sum(sum);
    for (uint j = lane; j < n; j += 32)
        y[row * n + j] = exp(x[row * n + j] - most) / sum;
}

kernel void gather(device const float *x, device const uint *where, device float *y, uint i [[thread_position_in_grid]])
{
    y[i] = x[where[i]];
}
"""
