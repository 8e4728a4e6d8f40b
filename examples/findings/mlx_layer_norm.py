"""MLX's layer norm: a thread that starts beyond its row counts from below 0, and writes in front of its own array.

The kernel is this project's, with the mistake alone: a thread holds four items of a row of 5, and zeros those that
do not exist. What lies in front of a thread's array is the compiler's choice; here a struct says that it is `before`.
"""

import numpy as np

import metal_dlpack as md

SOURCE = """
kernel void rows(device float *out, constant int &size, uint lid [[thread_position_in_grid]]) {{
    struct {{ float before[8]; float items[4]; }} mine;
    for (int i = 0; i < 8; i++) mine.before[i] = 1;
    thread float *items = mine.items;
    int n = size - int(lid) * 4;
    for (int i = {begin}; i < 4; i++) items[i] = 0;
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += mine.before[i];
    out[lid] = sum;
}}"""


def kept(begin: str) -> list[int]:
    """Of eight ones in front of its array, how many each of four threads finds afterwards."""
    out = md.zeros(4, dtype="float32")
    md.kernel("#include <metal_stdlib>\nusing namespace metal;" + SOURCE.format(begin=begin))(out, 5, threads=4)
    return [int(number) for number in np.asarray(out)]


print(f"ones in front of the array: published {kept('n')}, right {[8] * 4}, mended {kept('max(n, 0)')}")
