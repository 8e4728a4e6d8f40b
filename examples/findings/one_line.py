"""Findings that are one line: what the line gives, what is right, and what the line gives as it should be.

The lines are this project's, with the mistake of the published ones alone.
"""

import numpy as np

import metal_dlpack as md

#: Of whom, and where; what is given; what is computed; what should be; which number is right.
LINES = [
    ("PyTorch, EmbeddingBag.metal:186", "uint index = 10, rows = 10", "index > rows", "index >= rows", 1),
    ("PyTorch, HistogramKernel.metal:92", "float x = -1e-6", "int(floor(x * 4))", "clamp(int(floor(x * 4)), 0, 3)", 0),
    ("mistral.rs, pagedattention.metal:949", "int i = 0; uint n = 100", "i - n + 1", "i - int(n) + 1", -99),
    ("mistral.rs, float8.metal:21", "float m = 0.125", "ldexp(m, -9)", "ldexp(m, 1 - 7)", 0.001953125),
    (
        "mistral.rs, flash_attn.metal:692",
        "float m = -INFINITY / 2",
        "exp(m - m)",
        "exp(-FLT_MAX / 2 - -FLT_MAX / 2)",
        1,
    ),
    (
        "mistral.rs, bnb_dequantize.metal:117",
        "uint block = 0, i = 32, size = 64",
        "block / (size / 2)",
        "i / (size / 2)",
        1,
    ),
    ("candle, affine.metal:48", "long x = 16777217", "float(x) * 1.0f - 16777216.0f", "x * 1 - 16777216", 1),
    ("candle, indexing.metal:59", "uint i = 100, n = 300", "min(i, uint(uchar(n - 1)))", "min(i, n - 1)", 100),
    ("llama.cpp, mul_mv.metal:987", "half a = 300, b = 300", "float(a * b)", "float(a) * float(b)", 90000),
    ("llama.cpp, tri.metal:50", "float x = INFINITY", "x * 0.0f", "false ? x : 0", 0),
]


def number(given: str, computed: str) -> str:
    source = f"""#include <metal_stdlib>
using namespace metal;
kernel void line(device float *out) {{
    {given};
    out[0] = {computed};
}}"""
    out = md.zeros(1, dtype="float32")
    md.kernel(source)(out, threads=1)
    return f"{np.asarray(out)[0]:.6g}"


for place, given, published, mended, right in LINES:
    print(f"{place}: published {number(given, published)}, right {right:.6g}, mended {number(given, mended)}")
