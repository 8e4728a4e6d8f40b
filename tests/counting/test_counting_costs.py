"""How much longer a counted launch takes: in time of the CPU, so that a busy machine does not tell."""

import time
from unittest import mock

import numpy as np
import pytest
from counted_kernels import SOURCE

import metal_dlpack as md
from softmetal.msl import regions

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs_kernels,
    pytest.mark.needs_softmetal,
]

COUNT, SIDE = 1 << 20, 1024  # 4 MiB: the CPU's caches hold it, so that a copy takes hardly any time
EDGE = 256  # of the matrices that are multiplied


def floats(*shape):
    return md.zeros(shape, "float32")


def numbers(given):
    return md.asarray(given.astype(np.uint32))


def launch_of(name):
    """The arguments of a launch, as a call and a count take them."""
    tiles = {"groups": (SIDE // 32, SIDE // 32), "group": (32, 32)}
    line = {"n": COUNT, "group": 256}
    places = np.random.default_rng(0).integers(0, COUNT, COUNT)
    square = (floats(SIDE, SIDE), floats(SIDE, SIDE))
    product = (*(floats(EDGE, EDGE) for _ in range(3)), (EDGE, EDGE, EDGE))
    return {
        "copy": ((floats(COUNT), floats(COUNT)), {"n": COUNT}),
        "transpose": ((*square, (SIDE, SIDE)), {"groups": (SIDE // 32, SIDE // 8), "group": (32, 8)}),
        "tiled_0": ((*square, (SIDE, SIDE)), tiles),
        "tiled_1": ((*square, (SIDE, SIDE)), tiles),
        "reduce": ((floats(COUNT), floats(COUNT // 256), COUNT), {"groups": COUNT // 256, "group": 256}),
        "histogram": ((numbers(places % 256), numbers(np.zeros(256))), line),
        "stencil": ((floats(COUNT), floats(COUNT), COUNT), line),
        "gemm": (product, {"groups": (EDGE // 32, EDGE // 8), "group": (32, 8)}),
        "gemm_tiled": (product, {"groups": (EDGE // 32, EDGE // 32), "group": (32, 32)}),
        "softmax": ((*square, SIDE), {"groups": SIDE, "group": 32}),
        "gather": ((floats(COUNT), numbers(places), floats(COUNT)), line),
    }[name]


def least(call):
    times = []
    for _ in range(10):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)


NAMES = "copy transpose tiled_0 tiled_1 reduce histogram stencil gemm gemm_tiled softmax gather"


@pytest.mark.parametrize("name", NAMES.split())
def test_a_count_takes_at_most_thirty_times_as_long_as_a_launch(name, metal_settings, monkeypatch):
    """Both thread by thread: a kernel that is split into regions becomes up to 300 times as fast as its count."""
    metal_settings(kernel_check=None, validation=None)
    monkeypatch.setattr(regions, "split_at_waits", mock.Mock(side_effect=regions.CannotSplit("asked for")))
    kernel = md.Library(f"{SOURCE}// on fibers\n")[name]
    given, launch = launch_of(name)
    counted, plain = least(lambda: kernel.count(*given, **launch)), least(lambda: kernel.time(*given, **launch))
    print(f"{name}: {plain * 1e3:.2f} ms, counted {counted / plain:.1f} times as long")
    assert counted <= 30 * plain
