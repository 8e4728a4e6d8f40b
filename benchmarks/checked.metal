// checked.metal: kernels of each kind, for what the checker costs them (bench_kernels.py).
// Each writes its first argument.
#include <metal_stdlib>
using namespace metal;

kernel void add(device float *out, device const float *x, device const float *y,
                uint i [[thread_position_in_grid]]) {
    out[i] = x[i] + y[i];
}

kernel void add_float4(device float4 *out, device const float4 *x, device const float4 *y,
                       uint i [[thread_position_in_grid]]) {
    out[i] = x[i] + y[i];
}

kernel void copy_bytes(device uchar *out, device const uchar *x, uint i [[thread_position_in_grid]]) {
    out[i] = x[i];
}

kernel void saxpy_half(device half *y, device const half *x, constant float &a, uint i [[thread_position_in_grid]]) {
    y[i] = half(a) * x[i] + y[i];
}

kernel void stencil(device float *out, device const float *in, uint2 p [[thread_position_in_grid]],
                    uint2 size [[threads_per_grid]]) {
    if (p.x == 0 || p.y == 0 || p.x == size.x - 1 || p.y == size.y - 1) return;
    uint i = p.y * size.x + p.x;
    out[i] = 0.2f * (in[i] + in[i - 1] + in[i + 1] + in[i - size.x] + in[i + size.x]);
}

kernel void transposition(device float *out, device const float *in, constant uint &n,
                          uint2 p [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]],
                          uint2 g [[threadgroup_position_in_grid]]) {
    threadgroup float tile[16][17];
    tile[t.y][t.x] = in[p.y * n + p.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[(g.x * 16 + t.y) * n + g.y * 16 + t.x] = tile[t.x][t.y];
}

kernel void histogram(device atomic_uint *out, device const uchar *in, uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]]) {
    threadgroup atomic_uint bins[256];
    atomic_store_explicit(&bins[t], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 16; k++) atomic_fetch_add_explicit(&bins[in[i * 16 + k]], 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&out[t], atomic_load_explicit(&bins[t], memory_order_relaxed), memory_order_relaxed);
}

kernel void histogram_in_device(device atomic_uint *out, device const uchar *in, uint i [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(&out[in[i]], 1, memory_order_relaxed);
}

kernel void softmax(device float *out, device const float *in, constant uint &n,
                    uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup float most[32], sums[32];
    float m = -INFINITY, sum = 0;
    for (uint i = t; i < n; i += size) m = max(m, in[row * n + i]);
    m = simd_max(m);
    if (lane == 0) most[simd] = m;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    m = most[0];
    for (uint i = 1; i < (size + 31) / 32; i++) m = max(m, most[i]);
    for (uint i = t; i < n; i += size) sum += exp(in[row * n + i] - m);
    sum = simd_sum(sum);
    if (lane == 0) sums[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = 0;
    for (uint i = 0; i < (size + 31) / 32; i++) sum += sums[i];
    for (uint i = t; i < n; i += size) out[row * n + i] = exp(in[row * n + i] - m) / sum;
}

kernel void reduction(device float *out, device const float *in, uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
    threadgroup float s[256];
    s[t] = in[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint n = 128; n > 0; n /= 2) {
        if (t < n) s[t] += s[t + n];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) out[g] = s[0];
}

kernel void sorted_16(device float *out, device const float *in, uint i [[thread_position_in_grid]]) {
    float x[16];
    for (uint k = 0; k < 16; k++) x[k] = in[i * 16 + k];
    for (uint k = 1; k < 16; k++)
        for (uint j = k; j > 0 && x[j - 1] > x[j]; j--) {
            float y = x[j];
            x[j] = x[j - 1];
            x[j - 1] = y;
        }
    for (uint k = 0; k < 16; k++) out[i * 16 + k] = x[k];
}

kernel void matmul(device float *c, device const float *a, device const float *b, constant uint &n,
                   uint2 p [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float left[16][16], right[16][16];
    float sum = 0;
    for (uint k = 0; k < n; k += 16) {
        left[t.y][t.x] = a[p.y * n + k + t.x];
        right[t.y][t.x] = b[(k + t.y) * n + p.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < 16; i++) sum += left[t.y][i] * right[i][t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[p.y * n + p.x] = sum;
}
