"""softmetal.torch_mps(): torch's mps device on the software Metal, beside torch's CPU."""

import pytest

import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


@pytest.fixture
def latency(late):
    late(20_000)


def test_events_have_times_and_order(torch, latency):
    begin, end = (torch.mps.Event(enable_timing=True) for _ in range(2))
    begin.record()
    t = torch.ones(10, device="mps")
    t.add_(1)
    end.record()
    assert not end.query()
    end.synchronize()
    assert end.query()
    assert 0 < begin.elapsed_time(end) < 10_000
    end.wait()
    assert t.sum().item() == 20


def test_float64_is_refused_as_on_a_mac(torch):
    for ask in (lambda: torch.ones(2, dtype=torch.float64, device="mps"), lambda: torch.ones(2, device="mps").double()):
        with pytest.raises(TypeError, match="doesn't support float64"):
            ask()
    softmetal.torch_mps(float64=True)
    try:
        assert torch.ones(2, dtype=torch.float64, device="mps").sum().item() == 2
    finally:
        softmetal.torch_mps()


def test_memory_is_counted_limited_and_given_back(torch):
    before = torch.mps.current_allocated_memory()
    live, nbytes = (md.memory_stats()[name] for name in ("live_buffers", "live"))
    t = torch.ones(1000, 1000, device="mps")
    assert torch.mps.current_allocated_memory() - before == md.memory_stats()["live"] - nbytes >= 4_000_000
    for _ in range(10_000):
        t[0].add(1)
    del t
    torch.mps.synchronize()
    assert torch.mps.current_allocated_memory() == before
    assert md.memory_stats()["live_buffers"] == live
    torch.mps.set_per_process_memory_fraction(1e-4)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="MPS backend out of memory"):
            torch.empty(1 << 28, device="mps")
    finally:
        torch.mps.set_per_process_memory_fraction(0.0)
    assert torch.empty(1 << 20, device="mps").numel() == 1 << 20
