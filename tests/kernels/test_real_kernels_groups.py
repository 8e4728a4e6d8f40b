"""Kernels whose threads work together, beside NumPy: barriers, threadgroup memory, SIMD-groups, atomics.

Integers are equal.  test_barriers_removed.py runs some of them again, without one barrier at a time.
"""

import numpy as np
import pytest
from own_kernels import Kernels, on_metal, random

import metal_dlpack as md

kernels = Kernels()


# ---- reductions ----


@kernels.case("""kernel void tree_sum(device const float *x, device float *sums, uint i [[thread_position_in_grid]],
                     uint t [[thread_index_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
    threadgroup float part[256];
    part[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_ = 128; half_ > 0; half_ /= 2) {
        if (t < half_) part[t] += part[t + half_];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (t == 0) sums[group] = part[0];
}""")
def test_tree_sum(kernel):
    x = random().integers(-1000, 1000, (6, 256)).astype("f4")  # whole numbers: each order gives the same sum
    sums = md.zeros(6, dtype="float32")
    kernel(on_metal(x), sums, groups=6, group=256)
    np.testing.assert_array_equal(np.asarray(sums), x.sum(1))


# ---- scans ----


@kernels.case("""kernel void scan_of_simds(device const uint *x, device uint *y, uint i [[thread_position_in_grid]],
                          uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint sums[4];
    uint mine = x[i], before = simd_prefix_exclusive_sum(mine);
    if (lane == 31) sums[simd] = before + mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint s = 0; s < simd; s++) before += sums[s];
    y[i] = before;
}""")
def test_scan_of_simds(kernel):
    x = random().integers(0, 2**30, (3, 128), dtype="uint32")
    y = md.zeros(x.shape, dtype="uint32")
    kernel(on_metal(x), y, groups=3, group=128)
    np.testing.assert_array_equal(np.asarray(y), x.cumsum(1, dtype="uint32") - x)


# ---- tiles ----


@kernels.case("""constant uint TILE = 8;
kernel void tiled_matmul(device const float *a, device const float *b, device float *c, constant uint &n,
                         uint2 p [[thread_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float left[TILE][TILE], right[TILE][TILE];
    float sum = 0;
    for (uint k = 0; k < n; k += TILE) {
        left[t.y][t.x] = a[p.y * n + k + t.x];
        right[t.y][t.x] = b[(k + t.y) * n + p.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < TILE; i++) sum += left[t.y][i] * right[i][t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[p.y * n + p.x] = sum;
}""")
def test_tiled_matmul(kernel):
    a, b = random().integers(-20, 20, (2, 32, 32)).astype("f4")
    c = md.zeros((32, 32), dtype="float32")
    kernel(on_metal(a), on_metal(b), c, 32, threads=(32, 32), group=(8, 8))
    np.testing.assert_array_equal(np.asarray(c), a.astype("i4") @ b.astype("i4"))


# ---- orders ----


@kernels.case("""kernel void bitonic_sort(device int *x, uint t [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
    threadgroup int items[128];
    items[t] = x[group * 128 + t];
    items[t + 64] = x[group * 128 + t + 64];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint size = 2; size <= 128; size *= 2) {
        for (uint step = size / 2; step > 0; step /= 2) {
            uint low = 2 * step * (t / step) + t % step, high = low + step;
            bool up = (low & size) == 0;
            if ((items[low] > items[high]) == up) {
                int other = items[low];
                items[low] = items[high];
                items[high] = other;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
    x[group * 128 + t] = items[t];
    x[group * 128 + t + 64] = items[t + 64];
}""")
def test_bitonic_sort(kernel):
    x = random().integers(-1000, 1000, (3, 128), dtype="int32")
    out = on_metal(x)
    kernel(out, groups=3, group=64)
    np.testing.assert_array_equal(np.asarray(out), np.sort(x, 1))


# ---- atomics ----


@kernels.case("""kernel void histogram(device const uchar *x, device atomic_uint *counts, constant uint &n, uint i [[thread_position_in_grid]],
                      uint t [[thread_position_in_threadgroup]], uint all [[threads_per_grid]]) {
    threadgroup atomic_uint mine[256];
    atomic_store_explicit(&mine[t], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint at = i; at < n; at += all) atomic_fetch_add_explicit(&mine[x[at]], 1, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint count = atomic_load_explicit(&mine[t], memory_order_relaxed);
    if (count != 0) atomic_fetch_add_explicit(&counts[t], count, memory_order_relaxed);
}""")
def test_histogram(kernel):
    x = random().integers(0, 256, 10_007, dtype="uint8")
    counts = md.zeros(256, dtype="uint32")
    kernel(on_metal(x), counts, x.size, groups=4, group=256)
    np.testing.assert_array_equal(np.asarray(counts), np.bincount(x, minlength=256))


@pytest.mark.long
@kernels.case("""kernel void extremes(device const int *x, device atomic_int *found, device atomic_float *sum, device atomic_uint *product,
                     uint i [[thread_position_in_grid]]) {
    atomic_fetch_min_explicit(&found[0], x[i], memory_order_relaxed);
    atomic_fetch_max_explicit(&found[1], x[i], memory_order_relaxed);
    atomic_fetch_xor_explicit(&found[2], x[i], memory_order_relaxed);
    atomic_fetch_add_explicit(sum, float(x[i]), memory_order_relaxed);
    uint now = atomic_load_explicit(product, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(product, &now, now * (2 * uint(x[i]) + 1), memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}""")
def test_extremes(kernel):
    x = random().integers(-1000, 1000, 700, dtype="int32")
    found, total, product = on_metal(np.zeros(3, "i4")), md.zeros(1, dtype="float32"), on_metal(np.ones(1, "u4"))
    kernel(on_metal(x), found, total, product, threads=700)
    assert np.asarray(found).tolist() == [x.min(), x.max(), np.bitwise_xor.reduce(x)]
    assert total[0] == x.sum()
    assert product[0] == np.multiply.reduce(2 * x.astype("u4") + 1, dtype="u4")


# ---- SIMD-groups ----


@kernels.case("""kernel void shuffles(device const uint *x, device uint *out, uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    device uint *to = out + 8 * i;
    uint mine = x[i];
    to[0] = simd_shuffle(mine, ushort(31 - lane));
    to[1] = simd_shuffle_xor(mine, 5);
    to[2] = simd_broadcast(mine, 7);
    to[3] = simd_shuffle_rotate_down(mine, 3);
    to[4] = simd_shuffle_and_fill_up(mine, 99u, 2);
    to[5] = quad_shuffle_xor(mine, 1);
    to[6] = quad_sum(mine);
    to[7] = quad_broadcast(mine, 2);
}""")
def test_shuffles(kernel):
    x = random().integers(0, 2**20, (2, 32), dtype="uint32")
    out = md.zeros((2, 32, 8), dtype="uint32")
    kernel(on_metal(x), out, groups=2, group=32)
    lane = np.arange(32)
    quads = x.reshape(2, 8, 4)
    np.testing.assert_array_equal(np.asarray(out)[..., 0], x[:, ::-1])
    np.testing.assert_array_equal(np.asarray(out)[..., 1], x[:, lane ^ 5])
    np.testing.assert_array_equal(np.asarray(out)[..., 2], np.repeat(x[:, 7:8], 32, 1))
    np.testing.assert_array_equal(np.asarray(out)[..., 3], np.roll(x, -3, 1))
    np.testing.assert_array_equal(np.asarray(out)[:, :2, 4], 99)
    np.testing.assert_array_equal(np.asarray(out)[:, 2:, 4], x[:, :-2])
    np.testing.assert_array_equal(np.asarray(out)[..., 5], x[:, lane ^ 1])
    np.testing.assert_array_equal(np.asarray(out)[..., 6], quads.sum(2).repeat(4, 1))
    np.testing.assert_array_equal(np.asarray(out)[..., 7], quads[:, :, 2].repeat(4, 1))


@kernels.case("""kernel void votes(device const int *x, device uint *out, uint i [[thread_position_in_grid]]) {
    device uint *to = out + 6 * i;
    bool is_odd = x[i] & 1;
    to[0] = uint(ulong(simd_ballot(is_odd)));
    to[1] = simd_any(x[i] > 95);
    to[2] = simd_all(x[i] > 2);
    to[3] = simd_max(x[i]);
    to[4] = simd_min(x[i]);
    to[5] = simd_xor(x[i]);
}""")
def test_votes(kernel):
    x = random().integers(0, 100, (5, 32), dtype="int32")
    out = md.zeros((5, 32, 6), dtype="uint32")
    kernel(on_metal(x), out, groups=5, group=32)
    expected = [(x % 2 << np.arange(32)).sum(1), (x > 95).any(1), (x > 2).all(1), x.max(1), x.min(1)]
    expected.append(np.bitwise_xor.reduce(x, 1))
    for n, row in enumerate(expected):
        np.testing.assert_array_equal(np.asarray(out)[..., n], row.astype("u4")[:, None].repeat(32, 1))


@pytest.mark.long
@kernels.case("""kernel void parted_simds(device const int *x, device int *out, uint i [[thread_position_in_grid]]) {
    int mine = x[i];
    if (mine % 2 == 0) {
        out[i] = simd_sum(mine);
    } else {
        out[i] = -simd_sum(mine);
    }
}""")
def test_parted_simds(kernel):
    x = random().integers(0, 100, (4, 32), dtype="int32")
    out = md.zeros((4, 32), dtype="int32")
    kernel(on_metal(x), out, groups=4, group=32)
    even = x % 2 == 0
    sums = np.where(even, np.where(even, x, 0).sum(1, keepdims=True), -np.where(even, 0, x).sum(1, keepdims=True))
    np.testing.assert_array_equal(np.asarray(out), sums)


@kernels.case("""kernel void last_group(device const uint *x, device uint *sums, device atomic_uint &done, device uint *total,
                       uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                       uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]]) {
    threadgroup atomic_uint sum;
    if (t == 0) atomic_store_explicit(&sum, 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&sum, x[i], memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) {
        atomic_fetch_add_explicit((device atomic_uint *)total, atomic_load_explicit(&sum, memory_order_relaxed), memory_order_relaxed);
        sums[group] = atomic_load_explicit(&sum, memory_order_relaxed);
        uint before = atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
        if (before + 1 == groups) total[1] = groups;
    }
}""")
def test_last_group(kernel):
    x = random().integers(0, 1000, (9, 64), dtype="uint32")
    sums, done, total = md.zeros(9, dtype="uint32"), md.zeros(1, dtype="uint32"), md.zeros(2, dtype="uint32")
    kernel(on_metal(x), sums, done, total, groups=9, group=64)
    np.testing.assert_array_equal(np.asarray(sums), x.sum(1))
    assert np.asarray(total).tolist() == [x.sum(), 9]
