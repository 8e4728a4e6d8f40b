"""candle's and mistral.rs' sorts: `a < b` puts a NaN neither before nor behind a number, so numbers are lost.

The kernel is this project's, with the mistake alone: each thread counts the items that come before its own.
"""

import numpy as np

import metal_dlpack as md

SOURCE = """#include <metal_stdlib>
using namespace metal;
bool less(float a, float b) {{ return {less}; }}
kernel void sort(device const float *x, device float *out, constant uint &size, uint i [[thread_position_in_grid]]) {{
    uint place = 0;
    for (uint j = 0; j < size; j++) place += less(x[j], x[i]) || (j < i && !less(x[i], x[j]));
    out[place] = x[i];
}}"""
ITEMS = [5.0, 3.0, float("nan"), 4.0, 1.0, 2.0]


def numbers(less: str) -> list[int]:
    """Those of 1 to 5 that are in the result."""
    out = md.zeros(6, dtype="float32")
    md.kernel(SOURCE.format(less=less))(md.asarray(np.array(ITEMS, "float32")), out, 6, threads=6)
    return sorted({int(number) for number in np.asarray(out) if number > 0})


mended = numbers("isnan(b) ? !isnan(a) : a < b")
print(f"numbers in the result: published {numbers('a < b')}, right {[1, 2, 3, 4, 5]}, mended {mended}")
