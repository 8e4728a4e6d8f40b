"""Loops that the threads of a row go round together (side_by_side.py): the same bits as when each thread goes alone.

And threads that run column by column, where they write side by side so.
"""

import itertools
import random

import numpy as np
import pytest
from kernel_images import quickly

import metal_dlpack as md
from softmetal import report

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels]

HEAD = """#include <metal_stdlib>
using namespace metal;
kernel void f(device const float *a, device const float *b, device float *out, constant uint &K, constant uint &N,
              uint2 at [[thread_position_in_grid]], uint2 in [[thread_position_in_threadgroup]],
              uint2 size [[threads_per_threadgroup]])
{
    uint x = at.x, y = at.y;
"""
WIDTH, HEIGHT, MOST = 40, 6, 37
#: Threadgroups whose threads run one by one, and those that go round together.
ALONE, TOGETHER = [(1, 1), (4, 2), (7, 3)], [(8, 1), (40, 6), (16, 4), (33, 2)]
#: Bodies with such a loop, some of whose threads leave before, differ behind, or sum up what others do not.
BODIES = {
    "a product": "float s = 0; for (uint k = 0; k < K; k++) s += a[y * K + k] * b[k * N + x]; out[y * N + x] = s;",
    "a guard": "if (x >= N - 3 || y > 4) return;\n"
    "float s = 0; for (uint k = 0; k < K; k++) s += a[y * K + k] * b[k * N + x]; out[y * N + x] = s;",
    "a column's sums": "float s = 0; for (uint k = 0; k < K; k++) { s += b[k * N + x]; out[(y * K + k) * N + x] = s; }",
    "two loops": "float m = 0, s = 0; for (uint k = 0; k < K; k++) m = max(m, b[k * N + x]);\n"
    "for (uint k = 0; k < K; k++) s += fma(b[k * N + x], m, a[k]); out[y * N + x] = x % 2 ? s : m;",
    "a loop in a loop": "float s = 0; for (uint j = 0; j < K; j += 5) for (uint k = 0; k < K; k++)\n"
    "s += a[j * K + k] * b[k * N + x]; out[y * N + x] = s;",
    "a branch that some take": "float s = 0; if ((x ^ y) & 1) for (uint k = 0; k < K; k++) s += b[k * N + x];\n"
    "out[y * N + x] = s;",
    "as many rounds as the thread asks for": "float s = 0; for (uint k = 0; k < x % 9; k++) s += b[k * N + x];\n"
    "out[y * N + x] = s;",
    "vectors": "float4 s = 0; for (uint k = 0; k < K; k++) s += ((device const float4 *)b)[k + x]; out[y * N + x] = s.x + s.w;",
    "memory of the thread": "float t[8] = {}; for (uint k = 0; k < K; k++) { t[x % 8] += b[k * N + x]; }\n"
    "out[y * N + x] = t[x % 8] + t[(x + 1) % 8];",
    "the threadgroup's memory": "threadgroup float t[256]; t[in.y * size.x + in.x] = x;\n"
    "float s = 0; for (uint k = 0; k < K; k++) s += b[k * N + x]; out[y * N + x] = s + t[in.y * size.x + in.x];",
    "a loop without an end of its own": "float s = 0; uint k = 0; do { s += b[k * N + x]; } while (++k < K); out[y * N + x] = s;",
    "backwards": "float s = 0; for (int k = K - 1; k >= 0; k--) s = s * 0.5f + b[k * N + x]; out[y * N + x] = s;",
}


def results(kernel, rounds, group):
    drawn = np.random.default_rng(rounds)
    a, b = (md.asarray(drawn.random(4096, dtype="f4")) for _ in range(2))
    out = md.zeros(HEIGHT * MOST * WIDTH)
    kernel(a, b, out, rounds, WIDTH, threads=(WIDTH, HEIGHT), group=group)
    return np.asarray(out).view("u4").copy()


def check(body, rounds=(1, 2, 3, 5, 8, MOST), groups=TOGETHER):
    kernel = md.kernel(HEAD + body + "\n}")
    for count in rounds:
        expected = results(kernel, count, ALONE[count % len(ALONE)])
        for group in groups:
            assert np.array_equal(results(kernel, count, group), expected), f"{count} rounds in {group}:\n{body}"


@pytest.mark.parametrize("name", BODIES)
def test_threads_that_go_round_together_make_the_same_bits(name):
    check(BODIES[name])


def make_body(choose):
    """One or two loops over what lies anywhere: side by side, at one place, apart, or the one of another thread."""
    places = [
        "k * N + x",
        "y * K + k",
        "k",
        "x",
        "k * N + x + 1",
        "x * K + k",
        "k * N + N - 1 - x",
        "(k + y) * N + x",
        "K + x",
    ]
    lines = ["float s = 0, t = 1;"]
    if choose.random() < 0.4:
        lines.append(choose.choice(["if (x % 7 == 3) return;", "if (y > K) return;", "if (x % 5 == 2) t = 3;"]))
    for _ in range(choose.choice([1, 1, 2])):
        start, bound = (
            choose.choice(["0", "1", "y % 2", "K / 2"]),
            choose.choice(["K", "K", "K - 1", "K / 3", "x % 4 + 2"]),
        )
        made = [f"s += a[{choose.choice(places)}] * b[{choose.choice(places)}];"]
        if choose.random() < 0.4:
            made.append(f"t = {choose.choice(['max', 'min'])}(t, b[{choose.choice(places)}]);")
        if choose.random() < 0.2:
            made.append("if (s > 5) s -= t;")
        lines.append(f"for (uint k = {start}; k < {bound}; k++) {{ {' '.join(made)} }}")
    lines.append(f"out[y * N + x] = s + t * {choose.choice(['1', 'float(x % 3)', 'b[x]'])};")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", quickly(0, of=range(40)))
def test_random_loops_make_the_same_bits(seed):
    choose = random.Random(seed)
    check(make_body(choose), rounds=(choose.choice([1, 3]), choose.choice([4, 11, MOST])), groups=TOGETHER[:3])


def test_a_shuffled_order_makes_the_same_bits(metal_settings):
    kernel = md.kernel(HEAD + BODIES["a guard"] + "\n}")
    expected = results(kernel, 11, (16, 4))
    for seed in (1, 2, "last"):
        metal_settings(seed=seed)
        assert np.array_equal(results(kernel, 11, (16, 4)), expected)


#: A loop is worth it if what its threads touch lies side by side, and they all go round as often.
WORTH = {
    "s += b[k * N + x];": "regions",
    "s += a[y * K + k] * b[k * N + x];": "regions",
    "s += a[k];": "rows",
    "s += b[x * K + k];": "rows",
    "s += b[k * N + x] * b[x * K + k];": "rows",
    "s += b[(k ^ x) % 64];": "rows",
    "s += b[k * N + x]; if (s > 3) break;": "rows",
}


@pytest.mark.parametrize("statement", WORTH)
def test_a_loop_is_split_where_its_threads_read_side_by_side(statement):
    kernel = md.kernel(HEAD + f"float s = 0; for (uint k = 0; k < K; k++) {{ {statement} }} out[y * N + x] = s;\n}}")
    report.start()
    try:
        results(kernel, 5, (16, 4))
    finally:
        said = report.end()
    assert [one["runs_as"] for one in said["kernels"]] == [WORTH[statement]]


FACTS = """#include <metal_stdlib>
using namespace metal;
kernel void f(device const uint *a, device uint *out, constant uint &W, constant uint &H, constant uint &D,
              uint3 at [[thread_position_in_grid]],
              uint3 in [[thread_position_in_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
              uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
              uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    uint x = at.x, y = at.y, z = at.z;
"""
#: Where a thread writes; the strides of x and y are the grid's, or of a number.
COLUMNS = {
    "out[(z * W + x) * H + y] = a[(z * H + y) * W + x]": True,
    "out[z * 4096 + x * 64 + y] = y": True,
    "out[z * 4096 + x * 64 + y] = a[z * 4096 + x * 64 + y]": True,
    "out[(z * H + y) * W + x] = a[(z * W + x) * H + y]": False,
    "out[(z * H + y) * W + x] = a[(z * H + y) * W + x]": False,
    "out[(z * H + y) * W + x] = x": False,
    "out[z * 4096 + x * 64 + y * 2] = x": False,
    "out[z * 4096 + y * 64 + x] = a[y]": False,
    "atomic_fetch_add_explicit((device atomic_uint *)out + x * 64 + y, 1, memory_order_relaxed)": False,
}


@pytest.fixture
def by_columns(monkeypatch):
    """Do the threads run column by column?  For each kernel that is compiled."""
    from softmetal.msl import regions

    split, found = regions.split_at_waits, []

    def listens(text):
        try:
            return split(text)
        except regions.NoWaits as none:
            found.append(none.by_columns)
            raise

    monkeypatch.setattr(regions, "split_at_waits", listens)
    return found


@pytest.mark.parametrize("statement", COLUMNS)
def test_threads_run_by_columns_where_they_write_side_by_side_so(statement, by_columns, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kernel = md.kernel(FACTS + statement + ";\n}")
    kernel(md.zeros(4096, "uint32"), md.zeros(4096, "uint32"), 2, 2, 1, threads=(2, 2), group=(2, 2))
    md.default_device().synchronize()
    assert by_columns == [COLUMNS[statement]]


def facts(grid, side):
    """What each thread is told, in the order of x, y, z; the threadgroups at the end have what is left."""
    for x, y, z in itertools.product(*map(range, grid)):
        at = x, y, z
        own = [one % most for one, most in zip(at, side, strict=True)]
        first = [one - less for one, less in zip(at, own, strict=True)]
        size = [min(most, all_ - one) for most, all_, one in zip(side, grid, first, strict=True)]
        index = (own[2] * size[1] + own[1]) * size[0] + own[0]
        yield [*at, *own, *(one // most for one, most in zip(at, side, strict=True)), index, index % 32, index // 32]


@pytest.mark.parametrize("seed", range(20))
def test_threads_that_run_by_columns_know_where_they_are(seed):
    choose = random.Random(seed)
    grid = tuple(choose.choice([1, 2, 7, 33, 40]) for _ in range(2)) + (choose.choice([1, 3]),)
    side = choose.choice([(1, 1, 1), (8, 4, 1), (16, 16, 1), (3, 5, 2), (32, 2, 2), (1, 32, 1), (40, 3, 1)])
    told = "x, y, z, in.x, in.y, in.z, group.x, group.y, group.z, index, lane, simdgroup"
    # twelve planes, y innermost in each
    body = f"uint told[] = {{{told}}}; const uint plane = W * H * D;\n"
    body += "\n".join(f"out[{n} * plane + (z * W + x) * H + y] = told[{n}];" for n in range(12))
    kernel = md.kernel(FACTS + body + "\n}")
    out = md.zeros(12 * int(np.prod(grid)), "uint32")
    kernel(out, out, *grid, threads=grid, group=side)
    made = np.asarray(out).reshape(12, grid[2], grid[0], grid[1]).transpose(2, 3, 1, 0).reshape(-1, 12)
    assert made.tolist() == list(facts(grid, side))
