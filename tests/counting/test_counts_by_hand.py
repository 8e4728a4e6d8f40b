"""Kernels whose counts are derived by hand, as formulas of the sizes."""

import numpy as np
import pytest
from counted_kernels import SOURCE

import metal_dlpack as md

pytestmark = [
    pytest.mark.needs_kernels,
    pytest.mark.needs_softmetal,
]


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
    assert facts(count["x"], "bytes_read", "distinct_read") == (4 * height * width,) * 2
    assert facts(count["y"], "bytes_written", "distinct_written") == (4 * height * width,) * 2


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
