"""PyTorch's functions for Metal that give a wrong number: from the headers of the installed torch, and mended there."""

import math
import tempfile
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

import metal_dlpack as md

INCLUDE = Path(str(distribution("torch").locate_file("torch/include")))
SPECIAL, UTILS = "c10/metal/special_math.h", "c10/metal/utils.h"
#: What is computed: the right number, the header, the piece of it, the piece that is right.
CASES = {
    "sinc(float2(0)).x": (1, SPECIAL, "if (a2 == 0) {\n    return 0;", "if (a2 == 0) {\n    return T(1, 0);"),
    "zeta(x[0] * 1e5f, 2.0f)": (0, SPECIAL, "float w = a;\n  s +=", "float w = a;\n  if (b == 0) return s;\n  s +="),
    "log_gamma(x[0] * INFINITY)": (
        math.inf,
        SPECIAL,
        "float log_gamma(const T x) {\n",
        "float log_gamma(const T x) {\n  if (::metal::isinf(float(x))) return INFINITY;\n",
    ),
    "digamma(x[0] * -1e-6f)": (999999.4, SPECIAL, "r = ::metal::fract(x);", "r = x > -1 ? x : ::metal::fract(x);"),
    "pow(float2(0), float2(-2 * x[0], 0)).x": (
        math.inf,
        UTILS,
        "return float2(0.0, 0.0);",
        "return float2(b.x > 0 ? 0.0 : INFINITY, 0.0);",
    ),
    "remainder(x[0] * 1e8f, 3.0f)": (
        1,
        UTILS,
        "return x_f - y_f * floor_divide(x_f, y_f);",
        "float rest = ::metal::fmod(x_f, y_f);\n  return rest != 0 && (rest < 0) != (y_f < 0) ? rest + y_f : rest;",
    ),
}


def numbers(*folders: str) -> list[float]:
    lines = "".join(f"out[{i}] = c10::metal::{text};\n" for i, text in enumerate(CASES))
    source = f"""#include <metal_stdlib>
#include <c10/metal/special_math.h>
kernel void use(device const float *x, device float *out) {{
    {lines}}}"""
    out = md.zeros(len(CASES), dtype="float32")
    md.kernel(source, include=(*folders, INCLUDE))(md.ones(1, dtype="float32"), out, threads=1)
    return [float(number) for number in np.asarray(out)]


with tempfile.TemporaryDirectory() as folder:
    for name in (SPECIAL, UTILS):
        text = (INCLUDE / name).read_text()
        for _, header, piece, mend in CASES.values():
            text = text.replace(piece, mend) if name == header else text
        copy = Path(folder, name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    for case, published, mended in zip(CASES.items(), numbers(), numbers(folder), strict=True):
        print(f"{case[0]}: published {published:.4g}, right {case[1][0]:.4g}, mended {mended:.4g}")
