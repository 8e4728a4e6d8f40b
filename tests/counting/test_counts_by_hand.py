"""Ten kernels whose counts are derived by hand, as formulas of the sizes."""

import numpy as np
import pytest

import metal_dlpack as md

pytestmark = [
    pytest.mark.needs_kernels,
    pytest.mark.needs_softmetal,
]

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


@pytest.fixture(scope="module")
def library():
    return md.Library(SOURCE)


def floats(*shape):
    return md.zeros(shape, "float32")


def up(number, unit):
    return -(-number // unit)


def lines(first, count):
    """Cache lines of `count` floats, from float `first` on."""
    return (first + count - 1) // 32 - first // 32 + 1 if count > 0 else 0


def runs(width):
    """(first column, lanes) of each SIMD-group along a row of threadgroups of 32."""
    return [(first, min(32, width - first)) for first in range(0, width, 32)]


def of_rows(height, width):
    """Lines of a row-major matrix, read once by SIMD-groups along its rows, and the least."""
    touched = sum(lines(row * width + first, count) for row in range(height) for first, count in runs(width))
    return touched, height * up(width, 32)


def facts(traffic, *names):
    return tuple(getattr(traffic, name) for name in names)


@pytest.mark.parametrize("n", [1, 32, 1000, 4096])
def test_a_copy(library, n):
    count = library["copy"].count(floats(n), floats(n), n=n, group=256)
    x, y = count["x"], count["y"]
    assert facts(x, "bytes_read", "distinct_read", "bytes_written") == (4 * n, 4 * n, 0)
    assert facts(y, "bytes_read", "bytes_written", "distinct_written") == (0, 4 * n, 4 * n)
    for one in (x, y):
        assert facts(one, "accesses", "lines", "least_lines", "lanes", "lanes_possible") == (*[up(n, 32)] * 3, n, n)
    assert (count.threads, count.groups, count.simdgroups) == (n, up(n, 256), up(n, 32))
    assert (count.loads_per_thread, count.stores_per_thread, count.lines_per_access) == (1, 1, 1)


SIZES = [(64, 64), (100, 70), (33, 40)]


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_naive_transpose_touches_a_line_for_each_lane_that_stores(library, height, width):
    groups = (up(width, 32), up(height, 8))
    x, y = floats(height, width), floats(width, height)
    count = library["transpose"].count(x, y, (width, height), groups=groups, group=(32, 8))
    touched, least = of_rows(height, width)
    assert facts(count["x"], "accesses", "lines", "least_lines") == (least, touched, least)
    assert facts(count["y"], "accesses", "lines", "least_lines") == (least, height * width, least)
    assert count["y"].lines_per_access == (32 if width % 32 == 0 else height * width / least)
    assert count["x"].bytes_read == count["y"].bytes_written == count["y"].distinct_written == 4 * height * width


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_tiled_transpose_is_coalesced_and_its_padding_ends_the_conflicts(library, height, width, pad):
    groups = (up(width, 32), up(height, 32))
    x, y = floats(height, width), floats(width, height)
    count = library[f"tiled_{pad}"].count(x, y, (width, height), groups=groups, group=(32, 32))
    for one, (touched, least) in ((count["x"], of_rows(height, width)), (count["y"], of_rows(width, height))):
        assert facts(one, "accesses", "lines", "least_lines") == (least, touched, least)
    stores, loads = height * up(width, 32), width * up(height, 32)
    assert (count.threadgroup.accesses, count.threadgroup.least_rounds) == (stores + loads, stores + loads)
    assert count.threadgroup.rounds == stores + (loads if pad else height * width)
    assert count.bank_conflicts == (0 if pad else height * width - loads)
    assert count.threadgroup_memory == 4 * 32 * (32 + pad)
    assert count.groups_that_fit == (7 if pad else 8)
    assert count.barriers == groups[0] * groups[1]


@pytest.mark.parametrize("n", [256, 1000])
def test_a_reduction(library, n):
    groups = up(n, 256)
    count = library["reduce"].count(floats(n), floats(groups), n, groups=groups, group=256)
    assert facts(count["x"], "loads", "lines", "least_lines") == (n, up(n, 32), up(n, 32))
    assert facts(count["y"], "stores", "bytes_written", "lines") == (groups, 4 * groups, groups)
    # 128 threads add, then 64, ... 1: 4 + 2 + 6 SIMD-groups; each reads two and writes one
    part = count["part"]
    assert facts(part, "loads", "stores") == (groups * (2 * 255 + 1), groups * (256 + 255))
    assert facts(part, "accesses", "rounds", "least_rounds") == (*[groups * (8 + 3 * 12 + 1)] * 3,)
    assert (count.barriers, count.bank_conflicts) == (8 * groups, 0)
    assert count.operations["float"] == {"add": 255 * groups}
    [if_below] = [one for one in count.branches if SOURCE.splitlines()[one.line - 1].strip() == "if (l < d)"]
    assert (if_below.executions, if_below.lanes) == (8 * 8 * groups, 8 * 256 * groups)
    assert (if_below.true_lanes, if_below.divergent) == (255 * groups, 5 * groups)


@pytest.mark.parametrize(("n", "bins"), [(1024, 32), (1000, 7)])
def test_a_histogram(library, n, bins):
    x = md.asarray(np.arange(n, dtype=np.uint32) % bins)
    count = library["histogram"].count(x, md.zeros(bins, "uint32"), n=n, group=256)
    one = count["bins"]
    assert facts(one, "atomics", "most_atomics", "loads", "stores") == (n, up(n, bins), 0, 0)
    assert facts(one, "bytes_read", "bytes_written", "distinct_written") == (4 * n, 4 * n, 4 * bins)
    assert facts(one, "lines", "least_lines") == (up(n, 32), up(n, 32))


@pytest.mark.parametrize("n", [64, 1000])
def test_a_stencil(library, n):
    count = library["stencil"].count(floats(n), floats(n), n, n=n, group=256)
    inner = [(max(first, 1), min(first + 32, n - 1)) for first in range(0, n, 32)]
    inner = [(first, end - first) for first, end in inner if end > first]
    x, y = count["x"], count["y"]
    assert facts(x, "loads", "accesses") == (2 * (n - 2), 2 * len(inner))
    assert x.lines == sum(lines(first - 1, lanes) + lines(first + 1, lanes) for first, lanes in inner)
    assert facts(x, "least_lines", "distinct_read") == (2 * len(inner), 4 * n)
    assert facts(y, "stores", "lines", "distinct_written") == (n - 2, len(inner), 4 * (n - 2))


@pytest.mark.parametrize(("m", "n", "k"), [(8, 64, 16), (5, 40, 13)])
def test_a_naive_gemm(library, m, n, k):
    a, b, c = floats(m, k), floats(k, n), floats(m, n)
    count = library["gemm"].count(a, b, c, (m, n, k), groups=(up(n, 32), up(m, 4)), group=(32, 4))
    steps = m * up(n, 32) * k
    assert facts(count["a"], "loads", "accesses", "lines", "least_lines") == (m * n * k, steps, steps, steps)
    assert facts(count["b"], "loads", "accesses", "lines") == (m * n * k, steps, m * of_rows(k, n)[0])
    assert facts(count["c"], "stores", "lines", "least_lines") == (m * n, *of_rows(m, n))
    assert facts(count["a"], "distinct_read", "bytes_read") == (4 * m * k, 4 * m * n * k)
    assert count.operations["float"] == {"add": m * n * k, "mul": m * n * k}


@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 32), (40, 33, 50)])
def test_a_tiled_gemm(library, m, n, k):
    a, b, c = floats(m, k), floats(k, n), floats(m, n)
    columns, rows, tiles = up(n, 32), up(m, 32), up(k, 32)
    count = library["gemm_tiled"].count(a, b, c, (m, n, k), groups=(columns, rows), group=(32, 32))
    assert facts(count["a"], "loads", "lines", "distinct_read") == (
        m * k * columns,
        columns * of_rows(m, k)[0],
        4 * m * k,
    )
    assert facts(count["b"], "loads", "lines", "distinct_read") == (k * n * rows, rows * of_rows(k, n)[0], 4 * k * n)
    assert facts(count["c"], "stores", "lines") == (m * n, of_rows(m, n)[0])
    simdgroups = columns * rows * tiles * 32
    assert facts(count.threadgroup, "accesses", "rounds", "least_rounds") == (*[simdgroups * (2 + 2 * 32)] * 3,)
    assert (count.barriers, count.threadgroup_memory, count.groups_that_fit) == (2 * columns * rows * tiles, 8192, 4)
    assert count.operations["float"] == dict.fromkeys(("add", "mul"), simdgroups * 32 * 32)


@pytest.mark.parametrize(("rows", "n"), [(4, 128), (3, 50)])
def test_a_softmax(library, rows, n):
    count = library["softmax"].count(floats(rows, n), floats(rows, n), n, groups=rows, group=32)
    touched, least = of_rows(rows, n)
    assert facts(count["x"], "loads", "lines", "least_lines") == (3 * rows * n, 3 * touched, 3 * least)
    assert facts(count["y"], "stores", "lines", "least_lines") == (rows * n, touched, least)
    assert facts(count["x"], "lanes_possible", "distinct_read") == (3 * 32 * least, 4 * rows * n)
    assert (count.simd_meetings, count.barriers) == (2 * rows, 0)
    assert count.simd_functions == {"simd_max": rows, "simd_sum": rows}
    assert {name: count.operations["float"][name] for name in ("sub", "div")} == {"sub": 2 * rows * n, "div": rows * n}


@pytest.mark.parametrize(
    ("where", "touched"),
    [
        (lambda i: i * 32 % 1024 + i // 32, 32 * 32),  # each lane has a line of its own
        (lambda i: i // 2, 32),  # two lanes share a word
        (lambda i: 1023 - i, 32),
        (lambda i: 0 * i, 32),
    ],
)
def test_a_gather(library, where, touched):
    places = where(np.arange(1024)).astype(np.uint32)
    count = library["gather"].count(floats(1024), md.asarray(places), floats(1024), n=1024, group=128)
    assert facts(count["x"], "lines", "least_lines") == (touched, 32)
    assert count["x"].distinct_read == 4 * len(np.unique(places))
    assert count["where"].lines_per_access == count["y"].lines_per_access == 1
