"""torch.mps.Stream, which torch has from 2.15 on: 33 streams, and a current one on each thread."""

import threading

import pytest
from children import run_child

import metal_dlpack as md
from metal_dlpack import softmetal

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


@pytest.fixture(autouse=True)
def streams(torch):
    if not hasattr(torch.mps, "Stream"):
        pytest.skip("torch has one stream on mps before 2.15")


@pytest.fixture
def latency(late):
    late(50_000)


def test_streams_are_what_they_are_on_a_mac(torch):
    default, other = torch.mps.default_stream(), torch.mps.Stream()
    assert default.stream_id == 0 and torch.mps.current_stream() == default
    assert isinstance(other, torch.Stream) and other.device == torch.device("mps:0")
    assert {torch.mps.Stream().stream_id for _ in range(32)} == set(range(1, 33))
    with torch.mps.stream(other):
        assert torch.mps.current_stream() == other == torch.accelerator.current_stream()
        with torch.mps.stream(None):
            assert torch.mps.current_stream() == other
    assert torch.mps.current_stream() == default
    with pytest.raises(RuntimeError, match="no mps stream 33"):
        torch.mps.set_stream(torch.mps.Stream(stream_id=33))


def test_each_thread_has_a_current_stream(torch):
    found = []
    torch.mps.set_stream(torch.mps.Stream(stream_id=3))
    try:
        thread = threading.Thread(target=lambda: found.append(torch.mps.current_stream().stream_id))
        thread.start()
        thread.join()
        assert found == [0] and torch.mps.current_stream().stream_id == 3
    finally:
        torch.mps.set_stream(torch.mps.default_stream())


def test_one_stream_or_all_are_waited_for(torch, latency):
    first, second = torch.mps.Stream(), torch.mps.Stream()
    t = [torch.zeros(4, device="mps") for _ in range(2)]
    torch.mps.synchronize()
    bytes_now = [md.from_dlpack(x).host.__array__() for x in t]
    with torch.mps.stream(second):
        t[1].add_(1)
        last = torch.Event(device="mps")
        last.record()
    with torch.mps.stream(first):
        t[0].add_(1)
    first.synchronize()
    assert bytes_now[0].tolist() == [1] * 4
    t[1].record_stream(second)
    torch.mps.synchronize()
    assert last.query() and bytes_now[1].tolist() == [1] * 4


def test_another_streams_work_is_seen_only_behind_a_wait(torch, latency):
    stream = torch.mps.Stream()
    t = torch.zeros(4, device="mps")
    torch.mps.synchronize()
    with torch.mps.stream(stream):
        t.add_(1)
        done = torch.Event(device="mps")
        done.record()
    softmetal.configure(validation=0)  # it would report the race
    without = t * 1
    softmetal.configure(validation=None)
    done.wait()
    behind = t * 1
    assert without.tolist() == [0] * 4
    assert behind.tolist() == [1] * 4


def test_a_wait_reaches_from_stream_to_stream(torch, latency):
    t = torch.zeros(4, device="mps")
    done = torch.Event(device="mps")
    done.record()
    for stream in [torch.mps.Stream() for _ in range(4)]:
        with torch.mps.stream(stream):
            done.wait()
            t.mul_(2).add_(1)
            done = torch.Event(device="mps")
            done.record()
    done.wait()
    assert t.tolist() == [15] * 4


def test_an_array_is_handed_over_on_the_current_stream(torch, latency):
    """As docs/synchronisation.md tells it."""
    ours, stream = md.Stream(), torch.mps.Stream()
    a = md.zeros(4, dtype="float32")
    torch.mps.synchronize()
    with torch.mps.stream(stream):
        t = torch.ones(4, device="mps")
        for step in range(1, 6):
            t.add_(1)
            a.copy_from(md.from_dlpack(t, stream=ours), stream=ours)
            t = torch.from_dlpack(a) * 1
            assert t.tolist() == [step + 1] * 4


def test_a_model_is_trained_on_a_stream(torch, latency):
    def losses(stream):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).to("mps")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(4, 3, device="mps")
        torch.mps.synchronize()
        found = []
        with torch.mps.stream(stream):
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().sum()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        torch.mps.synchronize()
        return found

    assert losses(torch.mps.Stream()) == losses(None)


def test_a_race_of_two_streams_is_reported():
    done = run_child("""
        import torch
        from metal_dlpack import softmetal
        softmetal.torch_mps()
        softmetal.configure(validation=1, validation_mode="log", latency_us=50_000)
        t, stream, done = torch.zeros(1000, device="mps"), torch.mps.Stream(), torch.Event(device="mps")
        torch.mps.synchronize()
        for waits in (True, False):
            with torch.mps.stream(stream):
                t.add_(1)
                done.record()
            if waits:
                done.wait()
            t.mul_(2)
            torch.mps.synchronize()
            print(softmetal.last_report() or "nothing", flush=True)
    """)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("\n", 1)
    assert first == "nothing"
    assert second.startswith("softmetal: race: nothing orders two uses of the buffer"), done.stdout
