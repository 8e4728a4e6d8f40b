"""The checker against a plain list of all accesses: random kernels, in which every two accesses are compared.

A kernel is six accesses of random kinds and sizes; where a thread makes them, and whether it does, are numbers that it
is given.  So one image runs with many patterns: neighbours' items, steps, gaps, overlaps of other sizes, addresses that
are no multiple of the size, one place for all, threads that leave an access out.  What the checker reports must be a
race by the list, with these lines and threads; and it reports something exactly if there is one.
"""

import itertools
import random
import re

import numpy as np
import pytest
from kernel_images import quickly
from machine import tries

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

ACCESSES, PATTERNS, NBYTES = 6, tries(25), 2048
#: Threadgroups of a row, and of rows that are not as long as a block of the checker's memory or longer.
SHAPES = [(64, 1), (16, 4), (24, 2), (5, 3)]
#: Types that may lie at any address.
TYPES = {1: "uchar", 2: "ushort_1", 4: "uint_1", 8: "ulong_1"}
HEAD = """#include <metal_stdlib>
using namespace metal;
typedef ushort ushort_1 __attribute__((aligned(1)));
typedef uint uint_1 __attribute__((aligned(1)));
typedef ulong ulong_1 __attribute__((aligned(1)));
struct pattern { uint by_thread, by_index, by_group, first, step, rest; };
kernel void f(device uchar *b, device ulong *out, constant pattern *p, uint t [[thread_index_in_threadgroup]],
              uint2 groups [[threadgroup_position_in_grid]], uint2 size [[threads_per_threadgroup]]) {
    uint g = groups.x, i = g * size.x * size.y + t;
    ulong sum = 0;
"""
#: The bytes of what a thread writes are its own: else writes of one instruction may be no race.
TEXTS = {
    "read": "sum += *(volatile device {T} *)({at});",
    "write": "*(volatile device {T} *)({at}) = {T}((i + 1) * 0x0101010101010101ul);",
    "leave": "*(volatile device {T} *)({at}) = {T}(0x0707070707070707ul);",
    "add": "atomic_fetch_add_explicit((device atomic_uint *)({at}), i + 1, memory_order_relaxed);",
    "store": "atomic_store_explicit((device atomic_uint *)({at}), i + 1, memory_order_relaxed);",
}
PLACE = r"program_source:(\d+):\d+, thread \((\d+),(\d+),0\) of threadgroup \((\d+),0,0\)"


def make_kernel(choose):
    """Its source, and (kind, nbytes, line, barriers before it) of each access."""
    lines, accesses, phase = HEAD.splitlines(), [], 0
    barrier = choose.choice([None, None, 2, 4])
    for n in range(ACCESSES):
        if n == barrier:
            lines.append("    threadgroup_barrier(mem_flags::mem_device);")
            phase += 1
        kind = choose.choice(["read", "read", "write", "write", "write", "leave", "add", "store"])
        nbytes = 4 if kind in {"add", "store"} else choose.choice([1, 2, 4, 4, 8])
        at = f"b + p[{n}].first + p[{n}].by_thread * i + p[{n}].by_index * t + p[{n}].by_group * g"
        text = TEXTS[kind].format(T=TYPES[nbytes], at=at)
        lines.append(f"    if (i % p[{n}].step >= p[{n}].rest) {text}")
        accesses.append((kind, nbytes, len(lines), phase))
    lines += ["    out[i] = sum;", "}"]
    return "\n".join(lines), accesses


def make_pattern(choose, accesses):
    """The numbers of each access: now and then all are on items side by side, which race with nothing."""
    pattern = np.zeros((ACCESSES, 6), "uint32")
    apart = choose.random() < 0.5
    for n, (kind, nbytes, _, _) in enumerate(accesses):
        unit = nbytes if kind in {"add", "store"} or choose.random() < 0.8 else 1
        step = 8 if apart else choose.choice([0, 1, 2, 4, 8, nbytes, nbytes])
        step = step // unit * unit
        first = choose.choice([0, 0, 0, 8, unit, 8 * choose.randrange(16), choose.randrange(64)])
        first = 0 if apart and choose.random() < 0.9 else first // unit * unit
        by = choose.choice([(step, 0, 0), (step, 0, 0), (step, 0, 0), (0, step, 0), (0, step, 512), (0, 0, step)])
        pattern[n] = (
            *(by if not apart else (step, 0, 0)),
            first,
            *choose.choice([(1, 0), (1, 0), (1, 0), (2, 1), (7, 3), (40, 39)]),
        )
    return pattern


def racing(accesses, pattern, groups, count):
    """Every two accesses that race, as a set of {(line, threadgroup, thread), (line, threadgroup, thread)}.

    And those that leave the same value, by one instruction in one threadgroup: they race only if they overlap in part,
    or if somebody changed the bytes between them.  Third: is the checker bound to see it, or to be silent?  It need not
    see a race of an atomic with a plain access: of atomics it remembers the last.
    """
    touched, places, is_sure = {}, {}, False
    for g, t, n in itertools.product(range(groups), range(count), range(ACCESSES)):
        by_thread, by_index, by_group, first, step, rest = map(int, pattern[n])
        kind, nbytes, line, phase = accesses[n]
        i = g * count + t
        at = first + by_thread * i + by_index * t + by_group * g
        places[line, g, t] = at
        if i % step >= rest:
            for byte in range(at, at + nbytes):
                touched.setdefault(byte, []).append((kind, phase, (line, g, t)))
    found, same = set(), set()
    for uses in touched.values():
        for (kind, phase, who), (other_kind, other_phase, other) in itertools.combinations(uses, 2):
            is_ordered = who[1:] == other[1:] or (who[1] == other[1] and phase != other_phase)
            is_atomic = {kind, other_kind} <= {"add", "store"}
            if not is_ordered and not is_atomic and {kind, other_kind} != {"read"}:
                is_same = kind == "leave" and who[:2] == other[:2]
                (same if is_same else found).add(frozenset([who, other]))
                is_sure |= not is_same and not {kind, other_kind} & {"add", "store"}
    is_sure |= not found and all(len({places[who] for who in pair}) == 1 for pair in same)
    return found, same, is_sure


@pytest.mark.parametrize("seed", quickly(0, of=range(8)))
def test_races_are_those_of_a_plain_list(seed, metal_settings, capfd, request):
    metal_settings(kernel_check=1, validation_mode="log")
    choose = random.Random(seed)
    source, accesses = make_kernel(choose)
    kernel, verdicts = md.kernel(source), set()
    for _ in range(PATTERNS):
        (width, height), groups = choose.choice(SHAPES), choose.choice([1, 2, 3])
        pattern = make_pattern(choose, accesses)
        expected, same, is_sure = racing(accesses, pattern, groups, width * height)
        arrays = [md.zeros(NBYTES, dtype="uint8"), md.zeros(width * height * groups, dtype="uint64")]
        capfd.readouterr()
        kernel(*arrays, md.asarray(pattern.view("uint8").reshape(-1)), groups=(groups, 1), group=(width, height))
        try:
            np.asarray(arrays[1])
        except md.MetalError:
            request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them
        said = capfd.readouterr().err
        reported = [line for line in said.splitlines() if line.startswith("softmetal: kernel:")]
        for report in reported:
            places = re.findall(PLACE, report)
            pair = frozenset((int(line), int(g), int(x) + int(y) * width) for line, x, y, g in places)
            assert len(places) == 2 and (pair in expected or (pair in same and (expected or not is_sure))), (
                f"{report}\n{source}\n{pattern}"
            )
        if is_sure:
            assert bool(reported) == bool(expected), f"{sorted(map(sorted, expected))[:3]}\n{source}\n{pattern}"
            verdicts.add(bool(expected))
    assert verdicts == {False, True}  # else the patterns say nothing
