"""What the tests of timelines launch, and that they leave nothing."""

import gc

import pytest

import metal_dlpack as md
from metal_dlpack import _core

SCALE = """
kernel void scale(device float *x, constant float &by, uint i [[thread_position_in_grid]]) { x[i] *= by; }
"""


@pytest.fixture(scope="module")
def scale():
    return md.kernel(SCALE)


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    gc.collect()
    assert not _core._timeline_queues()
    assert not _core._timeline_places()
