"""Two kernels whose counts are derived by hand, as formulas of the sizes; any accesses: test_counting_model.py."""

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
