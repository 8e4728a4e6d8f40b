"""How much longer a counted launch takes: in time of the CPU, so that a busy machine does not tell."""

import time

import pytest

import metal_dlpack as md

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs_kernels,
    pytest.mark.needs_softmetal,
]

COUNT, SIDE = 1 << 24, 256  # what is copied is larger than the CPU's caches: within them a copy takes hardly any time
SOURCE = """
kernel void copy(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }
kernel void gemm(device const float *a, device const float *b, device float *c, constant uint &n,
                 uint2 i [[thread_position_in_grid]])
{
    float sum = 0;
    for (uint k = 0; k < n; k++)
        sum += a[i.y * n + k] * b[k * n + i.x];
    c[i.y * n + i.x] = sum;
}
"""


def least(call):
    times = []
    for _ in range(5):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("name", ["copy", "gemm"])
def test_a_count_takes_at_most_thirty_times_as_long_as_a_launch(name, metal_settings):
    metal_settings(kernel_check=None, validation=None)
    kernel = md.Library(SOURCE)[name]
    if name == "copy":
        given, launch = [md.zeros(COUNT), md.zeros(COUNT)], {"n": COUNT}
    else:
        given, launch = [*(md.zeros((SIDE, SIDE)) for _ in range(3)), SIDE], {"threads": (SIDE, SIDE), "group": (32, 8)}
    kernel.count(*given, **launch)
    assert least(lambda: kernel.count(*given, **launch)) <= 30 * least(lambda: kernel.time(*given, **launch))
