"""What the tests of torch's mps device share."""

import pytest


@pytest.fixture
def late(torch, settings):
    """A function that delays the GPU's work by microseconds; torch's own is over before the delay ends."""
    yield lambda latency_us: settings(latency_us=latency_us)
    torch.mps.synchronize()
