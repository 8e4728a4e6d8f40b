"""torch's streams on mps: 33 of them, and a current one on each thread.

torch.mps.Stream is there from 2.15 on.  Before, torch gives the default stream alone; here the others, by their numbers,
are the same code, so that it is tested with each torch.
"""

import contextlib

import pytest
from children import run_child
from own_threads import in_threads

import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


@pytest.fixture
def streams(torch):
    """Four of them, beside the default one."""
    if hasattr(torch.mps, "Stream"):
        return [torch.mps.Stream() for _ in range(4)]
    mps = torch.accelerator.current_stream().device_type
    return [torch.Stream(stream_id=number, device_index=0, device_type=mps) for number in (1, 2, 31, 32)]


@pytest.fixture
def latency(late):
    late(50_000)


def test_torch_mps_gives_streams_as_on_a_mac(torch):
    if not hasattr(torch.mps, "Stream"):
        assert torch.Stream(device="mps").stream_id == 0, "before 2.15 there is one stream"
        return
    default, other = torch.mps.default_stream(), torch.mps.Stream()
    assert default.stream_id == 0 and torch.mps.current_stream() == default
    assert isinstance(other, torch.Stream) and other.device == torch.device("mps:0")
    assert {torch.mps.Stream().stream_id for _ in range(32)} == set(range(1, 33))
    with torch.mps.stream(other):
        assert torch.mps.current_stream() == other == torch.accelerator.current_stream()
        with torch.mps.stream(None):
            assert torch.mps.current_stream() == other
    assert torch.mps.current_stream() == default
    torch.zeros(1, device="mps").record_stream(other)
    other.synchronize()


@pytest.mark.parametrize("number", [-1, 33])
@pytest.mark.parametrize("use", ["set_stream", "record", "wait", "synchronize"])
def test_a_number_that_no_stream_has_is_refused(torch, number, use):
    mps = torch.accelerator.current_stream().device_type
    stream, event = torch.Stream(stream_id=number, device_index=0, device_type=mps), torch.Event(device="mps")
    event.record()
    uses = {
        "set_stream": torch.accelerator.set_stream,
        "record": event.record,
        "wait": event.wait,
        "synchronize": lambda stream: torch._C._mps_synchronizeStream(stream.stream_id),  # torch.mps.Stream calls it
    }
    with pytest.raises(RuntimeError, match=f"no mps stream {number}"):
        uses[use](stream)


def test_each_thread_has_a_current_stream(torch, streams):
    with streams[0]:
        found = in_threads(1, lambda _: torch.accelerator.current_stream().stream_id)
        assert found == [0] and torch.accelerator.current_stream() == streams[0]


def test_one_stream_or_all_are_waited_for(torch, streams, latency):
    first, second = streams[:2]
    t = [torch.zeros(4, device="mps") for _ in range(2)]
    torch.mps.synchronize()
    bytes_now = [md.from_dlpack(x).host.__array__() for x in t]
    with second:
        t[1].add_(1)
        last = torch.Event(device="mps")
        last.record()
    with first:
        t[0].add_(1)
    torch._C._mps_synchronizeStream(first.stream_id)
    assert bytes_now[0].tolist() == [1] * 4
    torch.mps.synchronize()
    assert last.query() and bytes_now[1].tolist() == [1] * 4


def test_another_streams_work_is_seen_only_behind_a_wait(torch, streams, latency):
    t = torch.zeros(4, device="mps")
    torch.mps.synchronize()
    with streams[0]:
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


def test_a_wait_reaches_from_stream_to_stream(torch, streams, latency):
    t = torch.zeros(4, device="mps")
    done = torch.Event(device="mps")
    done.record()
    for stream in streams:
        with stream:
            done.wait()
            t.mul_(2).add_(1)
            done = torch.Event(device="mps")
            done.record()
    done.wait()
    assert t.tolist() == [15] * 4


def test_an_array_is_handed_over_on_the_current_stream(torch, streams, latency):
    """As docs/synchronisation.md tells it."""
    ours = md.Stream()
    a = md.zeros(4, dtype="float32")
    torch.mps.synchronize()
    with streams[0]:
        t = torch.ones(4, device="mps")
        for step in range(1, 6):
            t.add_(1)
            a.copy_from(md.from_dlpack(t, stream=ours), stream=ours)
            t = torch.from_dlpack(a) * 1
            assert t.tolist() == [step + 1] * 4


def test_a_model_is_trained_on_a_stream(torch, streams, latency):
    def losses(stream):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2).to("mps")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(4, 3, device="mps")
        torch.mps.synchronize()
        found = []
        with stream:
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().sum()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        torch.mps.synchronize()
        return found

    assert losses(streams[0]) == losses(contextlib.nullcontext())


def test_a_race_of_two_streams_is_reported():
    done = run_child("""
        import torch
        import softmetal
        softmetal.torch_mps()
        softmetal.configure(validation=1, validation_mode="log", latency_us=50_000)
        mps = torch.accelerator.current_stream().device_type
        stream = torch.Stream(stream_id=1, device_index=0, device_type=mps)
        t, done = torch.zeros(1000, device="mps"), torch.Event(device="mps")
        torch.mps.synchronize()
        for waits in (True, False):
            with stream:
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
