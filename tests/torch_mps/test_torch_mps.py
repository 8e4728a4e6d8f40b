"""softmetal.torch_mps(): torch's mps device on the software Metal, beside torch's CPU."""

import copy
import io
import pickle

import numpy as np
import pytest
from children import run_child

import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


@pytest.fixture
def latency(late):
    late(20_000)


@pytest.fixture(params=[0, 500])
def any_latency(late, request):
    late(request.param)


def test_torch_says_that_the_device_is_there(torch):
    assert torch.backends.mps.is_available() and torch.backends.mps.is_built()
    assert torch.mps.device_count() == 1
    assert str(torch.accelerator.current_accelerator()) == "mps"
    assert torch.rand(2, device="mps").device == torch.device("mps:0")


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


def test_hand_overs_to_and_from_streams(torch, any_latency):
    stream, other = md.Stream(), md.zeros(1000, dtype="float32")
    t = torch.zeros(1000, device="mps")
    for step in range(1, 20):
        t.add_(1)
        other.copy_from(md.from_dlpack(t, stream=stream), stream=stream)
        back = torch.from_dlpack(other)
        t = back * 1
        assert t.cpu().eq(step).all(), step


def train(torch, device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = torch.rand(8, 1, 8, 8).to(device), torch.arange(8).remainder(3).to(device)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model[1].running_mean.tolist()


def test_training_gives_what_the_cpu_gives(torch, any_latency):
    losses, running = train(torch, "mps")
    wanted_losses, wanted_running = train(torch, "cpu")
    assert losses == pytest.approx(wanted_losses, rel=1e-4)
    assert running == pytest.approx(wanted_running, rel=1e-4)


def test_tensors_are_saved_copied_and_pickled(torch):
    t = torch.rand(3, 4, device="mps")[1:]
    file = io.BytesIO()
    torch.save({"t": t}, file)
    for where in ("mps", "cpu", None):
        file.seek(0)
        loaded = torch.load(file, map_location=where)["t"]
        assert loaded.device.type == (where or "mps")
        assert torch.equal(loaded.cpu(), t.cpu())
    assert torch.equal(copy.deepcopy(t), t)
    assert torch.equal(pickle.loads(pickle.dumps(t)), t)


def test_random_numbers_have_a_state_of_their_own(torch):
    torch.manual_seed(1)
    state = torch.mps.get_rng_state()
    first = torch.rand(5, device="mps")
    torch.rand(5)
    torch.mps.set_rng_state(state)
    assert torch.equal(torch.rand(5, device="mps"), first)
    generator = torch.Generator(device="mps").manual_seed(3)
    again = torch.Generator(device="mps").manual_seed(3)
    assert torch.equal(torch.randn(4, device="mps", generator=generator), torch.randn(4, device="mps", generator=again))


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.compile imports
def test_a_compiled_function_runs_eagerly_and_says_so(torch):
    doubled = torch.compile(lambda x: x * 2 + 1)
    with pytest.warns(RuntimeWarning, match="a graph runs eagerly"):
        assert doubled(torch.ones(3, device="mps")).tolist() == [3] * 3


def test_a_race_with_torchs_queue_is_reported():
    done = run_child("""
        import torch, metal_dlpack as md
        import softmetal
        softmetal.torch_mps()
        softmetal.configure(validation=1, validation_mode="log", latency_us=100_000)
        t = torch.zeros(1000, device="mps")
        add = md.kernel("kernel void add(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }")
        a, stream = md.from_dlpack(t), md.Stream()
        add(a, n=1000, stream=stream)
        t.add_(1)  # without a wait for the stream
        torch.mps.synchronize()
        stream.synchronize()
        print(softmetal.last_report())
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("softmetal: race: nothing orders two uses of the buffer"), done.stdout
