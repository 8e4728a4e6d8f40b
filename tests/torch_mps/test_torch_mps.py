"""softmetal.torch_mps(): torch's mps device on the software Metal, beside torch's CPU."""

import numpy as np
import pytest

import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


@pytest.fixture
def latency(late):
    late(20_000)


@pytest.fixture(params=[0, 500])
def any_latency(late, request):
    late(request.param)


def test_an_array_and_a_tensor_are_the_same_memory(torch, any_latency):
    a = md.asarray(np.arange(6, dtype="float32").reshape(2, 3)).copy()  # torch 2.9 knows no memory amid a buffer
    t = torch.from_dlpack(a)
    t.mul_(2)
    t[1].fill_(7)
    torch.add(t[0], 1, out=t[0])
    torch.mps.synchronize()
    assert a.tolist() == [[1, 3, 5], [7, 7, 7]]
    a[0, 0] = 50
    assert t[0, 0].item() == 50
    assert md.from_dlpack(t.t()).tolist() == [[50, 7], [3, 7], [5, 7]]


@pytest.mark.rule("import-sync")
def test_bytes_arrive_when_the_queue_comes_to_them(torch, latency):
    a = md.zeros(4, dtype="float32")
    t = torch.from_dlpack(a)
    bytes_now = np.from_dlpack(a.host)
    t.add_(1)
    assert bytes_now.tolist() == [0] * 4
    assert t.tolist() == [1] * 4  # torch waits for itself
    assert bytes_now.tolist() == [1] * 4
    t.add_(1)
    assert md.from_dlpack(t).tolist() == [2] * 4  # and so do we


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
