"""Where a product and a sum become one operation: in every mode of mathematics, unless the source's pragma forbids it."""

import platform
import sys

import numpy as np
import pytest

import metal_dlpack as md

pytestmark = pytest.mark.needs_kernels

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
OFF = "\n#pragma METAL fp contract(off)\n"
FAST = "\n#pragma METAL fp contract(fast)\n"
VECTORS = ["float2", "float3", "float4", "packed_float3", "half4", "packed_half2"]
TYPES = ["float", "half", *VECTORS]
#: How a product meets a sum: each gives a * x + y.
EXPRESSIONS = {
    "in one expression": "r = a * x + y;",
    "taken away": "r = y - a * -x;",
    "in two statements": "r = x; r *= a; r += y;",
    "with a scalar": "r = FACTOR * x + y;",
    "in a function": "r = madd(a, x, y);",
    "in a template": "r = madd_of(a, x, y);",
    "in a method": "r = S().madd(a, x, y);",
    "in a lambda": "r = [](T a, T x, T y) { return a * x + y; }(a, x, y);",
    "in a loop": "\n#pragma unroll\nfor (int k = 0; k < 1; k++) { r = a * x + y; }",
    "of swizzles": "r = a * x + y; r.yx = a.yx * x.yx + y.yx;",
}
FUNCTIONS = """
T madd(T a, T x, T y) {{{0} return a * x + y; }}
template <typename V> V madd_of(V a, V x, V y) {{{0} return a * x + y; }}
struct S {{ T madd(T a, T x, T y) {{{0} return a * x + y; }} }};
"""
FACTOR = 1.703125  # a half has it too
COUNT = 48 * 8


def has_fused_operations():
    """An x86-64 of before 2013 has none."""
    if sys.platform == "darwin" or platform.machine() != "x86_64":
        return True
    from softmetal.msl import flags

    return "x86-64-v3" in " ".join(flags.machine_flags())


needs_fused_operations = pytest.mark.skipif(not has_fused_operations(), reason="this processor has no fused operations")


def kernel_of(kind, names, before, within, **options):
    """All expressions, each with rows of its own in `out`; `before` stands before all functions, `within` begins each."""
    text = f"{METAL}typedef {kind} T;\nconstant {kind.strip('packed_234')} FACTOR = {FACTOR};\n{before}"
    parameters = "device const T *xs, device const T *ys, constant T &a, device T *out, "
    parameters += "uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]"
    rows = (f"{{ T r; {EXPRESSIONS[name]} out[{number} * n + i] = r; }}" for number, name in enumerate(names))
    body = "\n".join(["T x = xs[i], y = ys[i];", *rows])
    return md.kernel(text + FUNCTIONS.format(within) + f"kernel void f({parameters}) {{{within} {body} }}", **options)


def shares_of_one_rounding(kind, before="", within="", **options):
    """By expression: of the items where it matters, how many are rounded once; the others are rounded twice."""
    dtype = np.dtype("float16" if "half" in kind else "float32")
    chance = np.random.default_rng(1)
    x, y = (chance.standard_normal(COUNT).astype(dtype) for _ in range(2))
    twice = dtype.type(FACTOR) * x + y
    once = (FACTOR * x.astype("longdouble") + y.astype("longdouble")).astype(dtype)
    lanes = int(kind[-1]) if kind in VECTORS else 1
    stride = 4 if lanes == 3 and "packed" not in kind else lanes
    matters = (np.arange(COUNT) % stride < lanes) & (twice != once)
    names = [name for name, text in EXPRESSIONS.items() if "yx" not in text or lanes > 1]
    out = md.zeros((len(names), COUNT), dtype=dtype.name)
    factor = (
        FACTOR if lanes == 1 else np.full(lanes, FACTOR, dtype).tobytes() if "packed" in kind else (FACTOR,) * lanes
    )
    operands = [md.asarray(items, copy=True) for items in (x, y)]
    kernel_of(kind, names, before, within, **options)(*operands, factor, out, n=COUNT // stride)
    results = np.asarray(out)[:, matters]
    assert ((results == once[matters]) | (results == twice[matters])).all()
    return dict(zip(names, (results == once[matters]).mean(1).tolist(), strict=True))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("before", "within"), [(OFF, ""), (FAST, OFF)])
@pytest.mark.some(4)
def test_the_pragma_rounds_each_operation(kind, before, within):
    assert set(shares_of_one_rounding(kind, before, within).values()) == {0.0}


@needs_fused_operations
@pytest.mark.parametrize("kind", [kind for kind in TYPES if "float" in kind])
@pytest.mark.some(2)
def test_without_it_they_are_joined(kind):
    assert set(shares_of_one_rounding(kind).values()) == {1.0}


@needs_fused_operations
@pytest.mark.parametrize("math", ["safe", "relaxed", "fast"])
@pytest.mark.parametrize(("before", "within"), [(OFF, FAST), (OFF + FAST, "")])
def test_the_nearest_pragma_decides_in_every_mode(math, before, within):
    assert set(shares_of_one_rounding("float4", before, within, math=math).values()) == {1.0}


BLOCKS = """
kernel void blocks(device T *out, constant T &a) {{
    {{{0} out[0] = a * out[0] + a; }}
    {{ out[1] = a * out[1] + a; {{{0} out[2] = a * out[2] + a; }} out[3] = a * out[3] + a; }}
}}
"""


@needs_fused_operations
@pytest.mark.parametrize("kind", ["float", "float2", "packed_float2"])
def test_a_pragma_holds_to_the_end_of_its_block(kind):
    lanes = 1 if kind == "float" else 2
    near_one = np.full(lanes, 1 + 2.0**-12, "float32")
    text = METAL + f"typedef {kind} T;" + BLOCKS.format(OFF)
    out = md.asarray(np.tile(-near_one, 4), copy=True)
    md.kernel(text)(out, near_one.tobytes() if lanes > 1 else float(near_one[0]), n=1)
    result = np.asarray(out)[::lanes]
    twice = near_one[0] * -near_one[0] + near_one[0]
    assert [value == twice for value in result] == [True, False, True, False]


def test_a_bfloat_beside_a_float_is_rounded_too():
    text = METAL + OFF + "kernel void f(device float *x, constant bfloat &b) { x[0] = b * x[0] + b; }"
    x = md.asarray([1 + 2.0**-20])
    md.kernel(text)(x, 1.0078125, n=1)
    assert x.item() == np.float32(1.0078125) * np.float32(1 + 2.0**-20) + np.float32(1.0078125)
