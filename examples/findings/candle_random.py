"""candle's random numbers: threads that only fill up the last threadgroup write over the numbers of others.

The kernel is this project's, with the mistake alone: thread i makes item i and the i-th from the end, for half as many
threads as items, and the guard compares with the number of items.
"""

import numpy as np

import metal_dlpack as md
import softmetal

SOURCE = """
kernel void numbers(device float *out, constant uint &size, uint i [[thread_position_in_grid]]) {{
    if (i >= {bound}) return;
    out[i] = i * 7 % 10;
    out[size - 1 - i] = i * 3 % 10;
}}"""


def orders(bound: str) -> int:
    """How many different results ten orders of the same threads give."""
    results = set()
    for seed in range(1, 11):
        softmetal.configure(seed=seed)
        out = md.zeros(10, dtype="float32")
        md.kernel("using namespace metal;" + SOURCE.format(bound=bound))(out, 10, threads=8, group=8)
        results.add(tuple(np.asarray(out).tolist()))
    return len(results)


print(f"results of one seed: published {min(orders('size'), 2)} or more, right {1}, mended {orders('(size + 1) / 2')}")
