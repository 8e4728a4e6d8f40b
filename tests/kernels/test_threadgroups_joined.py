"""Kernels that know nothing of their threadgroup: the run time joins some along x (launch.c), and no kernel can tell."""

import random
import re

import numpy as np
import pytest
from places import ROOT

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels]

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
GRID = "uint3 at [[thread_position_in_grid]], uint3 size [[threads_per_grid]]"
INDEX = "uint i = (at.z * size.y + at.y) * size.x + at.x;"
SHIM = (ROOT / "python/softmetal/shim/softmetal_image.h").read_text()
FACTS = re.findall(r"^    FACT\((\w+), (some)?", SHIM, re.MULTILINE)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    "body", ["", "for (uint k = 0; k < 2 + size.z; k++) value += table[k * size.x + at.x];"], ids=["", "with a loop"]
)
def test_each_thread_runs_once_where_it_is(axes, body):
    source = f"""{HEAD}kernel void f(device atomic_uint *count, device uint *out, device const uint *table, {GRID}) {{
        {INDEX} uint value = at.x + 1000 * at.y + 1000000 * at.z; {body}
        atomic_fetch_add_explicit(&count[i], 1, memory_order_relaxed); out[i] = value; }}"""
    kernel, choose = md.kernel(source), random.Random(axes)
    for _ in range(150):
        group = [choose.choice([1, 2, 3, 7, 8, 16, 32, 33][: 8 - 2 * axes + 2]) for _ in range(axes)]
        threads = [choose.randrange(1, [40000, 90, 20][axes - 1]) for _ in range(axes)]
        shape = (1,) * (3 - axes) + tuple(threads[::-1])
        count, out = md.zeros(shape, "uint32"), md.zeros(shape, "uint32")
        steps = 2 + shape[0] if body else 0
        kernel(count, out, md.ones(max(steps, 1) * threads[0], "uint32"), threads=tuple(threads), group=tuple(group))
        z, y, x = np.indices(shape)
        assert (np.asarray(count) == 1).all(), (threads, group)
        wanted = x + 1000 * y + 1000000 * z + steps
        assert (np.asarray(out) == wanted).all(), (threads, group)


KNOWN = {
    name: (f", {'uint3' if three else 'uint'} fact [[{name}]]", "", "fact") for name, three in FACTS if name not in GRID
}
ADDED = "atomic_fetch_add_explicit({}, 1, memory_order_relaxed)"
OTHERS = {
    "a sum of lanes": ("", "", "simd_sum(i)"),
    "an argument in threadgroup memory": (", threadgroup atomic_uint *sum [[threadgroup(0)]]", "", ADDED.format("sum")),
    "a variable in threadgroup memory": ("", "threadgroup atomic_uint sum;", ADDED.format("&sum")),
}


@pytest.mark.parametrize("name", [*KNOWN, *OTHERS])
def test_what_a_thread_knows_of_its_threadgroup_is_that_of_the_launch(name, metal_settings):
    """Nothing is joined in a kernel's first launch, and where threads run in another order."""
    parameter, declared, value = {**KNOWN, **OTHERS}[name]
    body = f"{declared} {INDEX} uint3 said = uint3({value}); out[i] = said.x + 100 * said.y + 10000 * said.z;"
    kernel = md.kernel(f"{HEAD}kernel void f(device uint *out, {GRID}{parameter}) {{ {body} }}")
    memory = {"sum": 16} if "sum" in parameter else None
    made = []
    for seed in ("0", "0", "last"):
        metal_settings(seed=seed, poison=1)  # memory of a threadgroup begins as the same
        out = md.zeros((3, 30, 100), "uint32")
        kernel(out, threads=(100, 30, 3), group=(16, 3, 1), threadgroup_memory=memory)
        made.append(out.tolist() if name in KNOWN else sorted(np.asarray(out).ravel()))
    assert made[0] == made[1] == made[2]
