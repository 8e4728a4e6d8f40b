"""What runs before another framework's Metal tensor is read."""

import numpy as np
import pytest
from dlpack_structs import Producer

import metal_dlpack as md
from metal_dlpack import sync, torch_facts


@pytest.fixture
def calls():
    class Kind(Producer):
        pass

    seen = []
    md.register_sync(Kind, seen.append)
    yield Kind, seen
    md.register_sync(Kind, None)


@pytest.mark.rule("import-sync")
def test_a_metal_tensor_is_waited_for_and_a_cpu_tensor_is_not(calls):
    kind, seen = calls
    buffer = md.Buffer(64)
    memory = np.zeros(6, "float32")
    producer = kind(data=buffer.handle, device=(8, 0))
    array = md.from_dlpack(producer)
    assert seen == [producer]
    md.from_dlpack(kind(data=memory.ctypes.data))
    md.from_dlpack(producer, stream=-1)
    assert seen == [producer]
    del array


def test_what_the_wait_raises_comes_out_and_nothing_is_taken(calls):
    kind, _ = calls

    def fail(_x):
        raise ZeroDivisionError("its own reason")

    md.register_sync(kind, fail)
    producer = kind(data=md.Buffer(64).handle, device=(8, 0))
    with pytest.raises(ZeroDivisionError, match="its own reason"):
        md.from_dlpack(producer)
    assert producer.deletions == 0


def test_subclasses_count_and_the_last_registration_wins_until_none_takes_it_back(calls):
    kind, seen = calls

    class Sub(kind):
        pass

    buffer, other, inner = md.Buffer(64), [], []
    producer = Sub(data=buffer.handle, device=(8, 0))
    for registered, function, counts in [
        (None, None, (1, 0, 0)),
        (kind, other.append, (1, 1, 0)),
        (Sub, inner.append, (1, 1, 1)),
        (Sub, None, (1, 2, 1)),
        (kind, None, (1, 2, 1)),
        (kind, None, (1, 2, 1)),
    ]:
        if registered is not None:
            md.register_sync(registered, function)
        md.from_dlpack(producer)
        assert (len(seen), len(other), len(inner)) == counts
    assert {*seen, *other, *inner} == {producer}


def test_torch_is_synchronised_where_it_has_mps(monkeypatch, live_buffers, torch):
    """Where its library lacks the functions of its queue."""
    waits = []
    monkeypatch.setattr(torch_facts, "library", lambda _torch: "")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waits.append("torch"))
    sync._forget_types()
    tensor = torch.from_dlpack(md.zeros((2, 3)))
    md.from_dlpack(tensor)
    assert waits == ["torch"]
    md.from_dlpack(tensor, stream=-1)
    md.from_dlpack(torch.zeros(3))
    assert waits == ["torch"]
    monkeypatch.undo()
    sync._forget_types()


def test_a_torch_without_mps_is_not_asked(live_buffers, torch):
    if not torch.backends.mps.is_available():
        assert sync.ways_of(torch.Tensor) == (None, None, "")
    assert sync.ways_of(np.ndarray) == (None, None, None)
