"""Kernels that wait are split into regions (regions.py), which run as loops: they do what threads on fibers do."""

import itertools
import random
import re

import numpy as np
import pytest
from children import output_of
from places import SUPPORT
from region_kernels import HEAD as HEAD_OF_RANDOM
from region_kernels import differing_in, told_of_splits

import metal_dlpack as md
from softmetal.msl import flags
from softmetal.msl.llvm_loops import in_order

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels]

EACH = 10
#: Behind each source, so that no cache has it.
numbers = itertools.count(random.SystemRandom().randrange(1 << 40))


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("first", range(1, 20 * EACH, EACH))
@pytest.mark.some(1)
def test_random_kernels_do_the_same_as_on_fibers(first):
    assert output_of(SUPPORT / "region_kernels.py", EACH, first, timeout=600) == f"{EACH} kernels, 0 differ\n"


#: What clang lays out in another order than the source has.
LAID_OUT_ANEW = {
    "a loop behind what follows it": (
        (104, 4),
        (40, 2),
        """
    for (uint k0 = 0; k0 < 3; k0++) {
        p[v[0] % 5] = u[3] + lane;
        for (uint k1 = 0; k1 < 3; k1++) {
            v[3] ^= through(t, l, n, v[1], 56);
            for (uint k2 = 0, end2 = v[1] & 3; k2 < end2; k2++) { v[3] = min(lane, 0u); p[sg % 5] += mixed(77u - v[0]); }
            if (lane % 2 == 1) v[1] = lane + u[1];
            else { v[3] = p[3] * k0; v[1] ^= quad_shuffle_up(p[3], ushort(0)); v[2] = k0 * lane; v[0] = sg ^ v[0] << 3; }
            if (u[0] % 3 == 0) continue;
        }
        v[2] ^= simd_prefix_inclusive_product(v[3]);
        for (uint k1 = 0; k1 < (k0 & 3); k1++) {
            v[1] = v[2] * v[1];
            for (uint k2 = 0; k2 < 1; k2++) v[2] = min(p[4], k0);
            v[0] = mixed(v[3] - sg);
        }
    }
    v[1] = lane > 1u ? lane : 7u;
    if (l >= 40) { out[i] = sg; return; }
    out[i] = v[0] ^ v[1] * 3 ^ v[2] * 5 ^ v[3] * 7 ^ p[0] ^ p[3] ^ w[sg]; }""",
    ),
    "a branch ahead of the one before it": (
        (512,),
        (256,),
        """
    p[p[0] % 5] += lane * v[3];
    v[3] = v[1] > u[0] ? v[1] : 7u;
    if ((v[2] & 3) == 0) { v[0] ^= simd_shuffle_and_fill_up(v[2], v[3], ushort(30)); v[1] = u[2] ^ 50u << 3; }
    if ((v[0] & 1) == 0) {
        v[0] = mixed(lane - 68u);
        if (lane % 3 == 1) {
            if (lane % 2 == 1) {
                atomic_fetch_and_explicit(&c[v[0] % 8], v[0], memory_order_relaxed);
                v[3] = p[sg % 5]; v[1] = v[3] + lane;
            }
            v[0] = min(lane, u[2]) ^ simd_shuffle_and_fill_up(v[1], v[1], ushort(26));
            atomic_fetch_and_explicit(&c[p[2] % 8], 1u, memory_order_relaxed);
        }
    } else { v[2] = min(sg, v[0]); v[3] = p[1]; }
    threadgroup_barrier(mem_flags::mem_threadgroup); v[0] += atomic_load_explicit(&c[l % 8], memory_order_relaxed);
    out[i] = v[0] ^ v[1] * 3 ^ v[2] * 5 ^ v[3] * 7 ^ p[0] ^ p[3] ^ w[sg]; }""",
    ),
}


@pytest.mark.parametrize("more", [[], ["-mllvm", "-disable-block-placement"]], ids=["", "as LLVM writes it down"])
@pytest.mark.parametrize("name", LAID_OUT_ANEW)
def test_lanes_meet_in_the_order_of_the_source(name, more, monkeypatch):
    for kind in ("INLINED", "SPLIT"):
        monkeypatch.setattr(flags, kind, getattr(flags, kind) + more)
    threads, group, body = LAID_OUT_ANEW[name]
    text = f"{HEAD_OF_RANDOM}{body} // {next(numbers)}\n"
    for seed in range(8):
        launch = {"threads": threads, "group": group}
        assert differing_in(text, launch, seed, ["on fibers", "checked", "counted"]) == ""


def behind(leads, start):
    """The blocks that ways lead to from a block."""
    seen, left = set(), [start]
    while left:
        for to in leads[left.pop()]:
            if to not in seen:
                seen.add(to)
                left.append(to)
    return seen


@pytest.mark.parametrize("seed", range(300))
def test_a_loop_comes_whole_before_what_it_leads_to(seed):
    choose = random.Random(seed)
    names = [f"b{number}" for number in range(choose.randrange(1, 12))]
    # Nothing leads to the entry
    leads = {
        name: [choose.choice(names[1:] or [name]) for _ in range(choose.choice([0, 1, 1, 2, 3]))] for name in names
    }
    leads = leads if len(names) > 1 else {names[0]: []}
    made, ahead = in_order(leads), {name: behind(leads, name) for name in names}
    assert sorted(made) == sorted(names) and made[0] == names[0]
    for one, other in itertools.permutations(names, 2):
        if other in ahead[one] and one not in ahead[other]:
            assert made.index(one) < made.index(other)
    if all(names.index(to) > names.index(one) for one, there in leads.items() for to in there):
        assert made == names  # as in the text


HEAD = """#include <metal_stdlib>
using namespace metal;
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
FACTS = """uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
uint size [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]"""


def in_groups(values, size):
    return [values[first : first + size] for first in range(0, len(values), size)]


def reversed_in_groups(x, size):
    return np.concatenate([part[::-1] for part in in_groups(x, size)])


def sums_of_lanes(x, size):
    return np.concatenate(
        [np.full(len(lanes), lanes.sum()) for part in in_groups(x, size) for lanes in in_groups(part, 32)]
    )


def running_sums(x, size):
    return np.concatenate([np.cumsum(part) for part in in_groups(x, size)])


def odd_lanes(x, size):
    """Odd lanes get the sum of the odd ones, even lanes that of the even ones."""
    made = x.copy()
    for part in in_groups(made, size):
        for lanes in in_groups(part, 32):
            for odd in (0, 1):
                lanes[odd::2] = lanes[odd::2].sum()
    return made


#: The body of each, and what NumPy makes of x and the size of a threadgroup.
BODIES = {
    "through memory of the threadgroup": (
        f"threadgroup uint t[256]; t[l] = x[i]; {BARRIER} out[i] = t[size - 1 - l];",
        reversed_in_groups,
    ),
    "a loop with a barrier": (
        f"threadgroup uint t[256]; t[l] = x[i]; {BARRIER}\n"
        f"for (uint by = 1; by < size; by *= 2) {{ uint v = l >= by ? t[l - by] : 0; {BARRIER} t[l] += v; {BARRIER} }}\n"
        "out[i] = t[l];",
        running_sums,
    ),
    "a branch that all take": (
        f"threadgroup uint t[256]; t[l] = x[i];\n"
        f"if (size > 1) {{ {BARRIER} out[i] = t[size - 1 - l]; }} else {{ {BARRIER} out[i] = t[l]; }}",
        reversed_in_groups,
    ),
    "threads that leave": (
        f"threadgroup uint t[256]; t[l] = x[i]; out[i] = x[i]; if (l % 3 == 2) return; {BARRIER} out[i] = t[l / 3 * 3];",
        lambda x, size: np.concatenate(
            [
                np.array([part[at] if at % 3 == 2 else part[at // 3 * 3] for at in range(len(part))], "u4")
                for part in in_groups(x, size)
            ]
        ),
    ),
    "a variable of the thread": (
        f"threadgroup uint t[256]; uint own[8]; for (uint k = 0; k < 8; k++) own[k] = x[i] + k; t[l] = own[x[i] & 7]; {BARRIER}\n"
        "own[l & 7] = t[size - 1 - l]; out[i] = own[l & 7];",
        lambda x, size: reversed_in_groups(x + (x & 7), size),
    ),
    "sums of lanes": ("out[i] = simd_sum(x[i]);", sums_of_lanes),
    "sums of lanes, and a barrier": (
        f"threadgroup uint t[8]; uint s = simd_sum(x[i]); if (lane == 0) t[l / 32] = s; {BARRIER} out[i] = t[l / 32];",
        sums_of_lanes,
    ),
    "lanes that part": ("uint v; if (lane & 1) v = simd_sum(x[i]); else v = simd_sum(x[i]); out[i] = v;", odd_lanes),
    "a function that waits": (
        "out[i] = turned(t, x[i], l, size);",
        reversed_in_groups,
    ),
    **{
        f"a function in branches that part, {how}": (
            f"struct local {{ {how} static uint sum(uint v) {{ return simd_sum(v); }} }};\n"
            "out[i] = lane & 1 ? local::sum(x[i]) : local::sum(x[i]);",
            odd_lanes,
        )
        for how in ("__attribute__((noinline))", "[[gnu::noinline]]")
    },
}
FUNCTION = f"static uint turned(threadgroup uint *t, uint v, uint l, uint n) {{ t[l] = v; {BARRIER} uint w = t[n - 1 - l]; {BARRIER} return w; }}"


def source_of(body):
    declared = "threadgroup uint t[256]; " if "turned(t" in body else ""
    return f"{HEAD}{FUNCTION}\nkernel void f(device const uint *x, device uint *out, {FACTS}) {{\n{declared}{body}\n}} // {next(numbers)}\n"


@pytest.fixture
def said():
    with told_of_splits() as said:
        yield said


def run(source, group, threads, **settings):
    x = np.random.default_rng(threads).integers(0, 1000, threads, dtype="u4")
    out = md.zeros(threads, "uint32")
    md.kernel(source)(md.asarray(x), out, n=threads, group=group)
    return x, np.asarray(out)


@pytest.mark.parametrize("name", BODIES)
def test_a_kernel_is_split_and_does_what_it_says(name, said, metal_settings, subtests):
    body, wanted = BODIES[name]
    source = source_of(body)
    for seed in ("0", "last", "7"):
        metal_settings(seed=seed)
        for group, threads in ((256, 1024), (32, 64), (1, 3), (100, 250), (7, 20), (64, 1000)):
            with subtests.test(seed=seed, group=group, threads=threads):
                x, made = run(source, group, threads)
                assert (made == wanted(x, group)).all()
    assert said == [None]


def test_in_three_axes_each_thread_is_where_it_is(said):
    """A row or a layer of each threadgroup leaves, so that others come to another wait."""
    source = f"""{HEAD}kernel void f(device uint *out, constant uint &row, constant uint &layer, uint3 at [[thread_position_in_grid]], uint3 of [[threads_per_grid]],
        uint3 in [[thread_position_in_threadgroup]], uint l [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) {{
        device uint &made = out[(at.z * of.y + at.y) * of.x + at.x];
        threadgroup uint t[1024]; t[l] = l;
        if (in.y == row || in.z == layer) {{ made = 2; return; }}
        {BARRIER}
        const uint other = size.x * size.y * size.z - 1 - l;
        made = l == (in.z * size.y + in.y) * size.x + in.x && t[other] == other; }} // {next(numbers)}"""
    kernel = md.kernel(source)
    for group, threads in (
        ((16, 16, 1), (33, 20, 2)),
        ((32, 4, 2), (96, 9, 3)),
        ((48, 3, 1), (48, 7, 1)),
        ((4, 4, 4), (9, 9, 9)),
        ((3, 5, 7), (10, 10, 10)),
        ((40, 2, 1), (85, 3, 1)),
    ):
        z, y, _ = np.indices(threads[::-1]) % np.array(group[::-1])[:, None, None, None]
        for row, layer in ((0, 99), (1, 99), (group[1] - 1, 99), (99, 0), (99, 99)):
            out = md.zeros(threads[::-1], "uint32")
            kernel(out, np.uint32(row), np.uint32(layer), threads=threads, group=group)
            wanted = np.where((y == row) | (z == layer), 2, 1)
            assert (np.asarray(out) == wanted).all(), (group, threads, row, layer)
    assert said == [None]


def test_what_cannot_be_split_takes_turns(said):
    large = f"uint own[50000]; own[x[i]] = l; threadgroup uint t[256]; t[l] = own[x[i]]; {BARRIER} out[i] = t[size - 1 - l] + own[x[i]] - l;"
    _, made = run(source_of(large), 64, 128)
    assert (made == np.tile(np.arange(64)[::-1], 2)).all()
    assert said == ["CannotSplit('what its threads keep would be too large')"]


def test_what_this_clang_does_not_take_of_ours_takes_turns(monkeypatch):
    from softmetal.msl import regions

    split = regions.split_at_waits
    monkeypatch.setattr(regions, "split_at_waits", lambda text: split(text) + "no line of LLVM's\n")
    body, wanted = BODIES["through memory of the threadgroup"]
    x, made = run(source_of(body), 64, 256)
    assert (made == wanted(x, 64)).all()


def test_a_source_that_only_seems_to_wait_is_put_into_one_loop(said, monkeypatch):
    from softmetal.msl import region_loops

    made_in_rows, texts = region_loops.in_rows, []
    monkeypatch.setattr(
        region_loops, "in_rows", lambda *text, **how: texts.append(made_in_rows(*text, **how)) or texts[-1]
    )
    source = source_of("if (size > 5000) simdgroup_barrier(mem_flags::mem_none); out[i] = x[i];").replace(
        "size > 5000", "false"
    )
    x, made = run(source, 64, 256)
    assert (made == x).all()
    assert said == ["NoWaits()"]
    [text] = texts
    [number] = re.findall(r"^define internal void @softmetal_one_thread.* (#\d+) \{$", text, re.MULTILINE)
    assert "alwaysinline" in text.split(f"\nattributes {number} = ")[1].partition("\n")[0]
    assert "softmetal_run_columns" not in text


def test_a_function_whose_attributes_are_not_told_takes_turns(said, monkeypatch):
    from softmetal.msl import regions

    split = regions.split_at_waits
    monkeypatch.setattr(
        regions, "split_at_waits", lambda text: split(re.sub(r"^attributes .*\n", "", text, flags=re.M))
    )
    body, wanted = BODIES["through memory of the threadgroup"]
    x, made = run(source_of(body), 64, 256)
    assert (made == wanted(x, 64)).all()
    assert said == ["CannotSplit('its attributes are not found')"]
