"""A torch that would take a Metal tensor's data for an address is found out once, and refused.

This torch has no memory on MPS, so how it would hold its own is said by the test.
"""

import _thread
import operator

import numpy as np
import pytest
from children import output_of
from dlpack_structs import Producer
from eventually import until

import metal_dlpack as md
from metal_dlpack import _core, explaining, torch_facts
from metal_dlpack.asking import trial_child, trials
from metal_dlpack.asking.explain_rules import METAL

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch]

ROADS = {
    "to(torch)": lambda torch, array: array.to(torch),
    "to(torch.Tensor)": lambda torch, array: array.to(torch.Tensor),
    "to(torch.nn.Parameter)": lambda torch, array: array.to(torch.nn.Parameter),
    "torch.from_dlpack": lambda torch, array: torch.from_dlpack(array),
    "torch.from_dlpack, copy=False": lambda torch, array: torch.from_dlpack(array, copy=False),
    "torch.as_tensor": lambda torch, array: torch.as_tensor(array),
    "torch.utils.dlpack.from_dlpack": lambda torch, array: torch.utils.dlpack.from_dlpack(array),
}
by_every_road = pytest.mark.parametrize("hand_over", ROADS.values(), ids=ROADS)


@pytest.fixture
def mps(torch, monkeypatch):
    """Call it with where torch's own memory is and where it holds ours; the list of what torch was asked."""
    asked = []
    memory = md.zeros(1)
    places = {"buffer": memory.buffer.handle, "address": memory.buffer.address}

    def answer(own, ours=None):
        def own_pointer(_torch):
            asked.append(own)
            if own not in places:
                raise RuntimeError(own)
            return places[own]

        monkeypatch.setattr(torch_facts, "own_pointer", own_pointer)
        if ours is not None:
            monkeypatch.setattr(torch_facts, "our_pointer", lambda _torch: places[ours])
        return asked

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    _core._forget_types()
    yield answer
    monkeypatch.undo()
    _core._forget_types()


@by_every_road
@pytest.mark.rule("export-torch")
def test_a_torch_that_names_memory_by_its_address_is_refused(torch, hand_over, mps, live_buffers):
    mps(own="address")
    array = md.zeros(4)
    for _ in range(2):
        with pytest.raises(BufferError, match=r"reads the data of a Metal tensor as an address.*Pass x\.host"):
            hand_over(torch, array)
    assert torch.from_dlpack(array.host).tolist() == [0] * 4


@by_every_road
@pytest.mark.parametrize("place", ["buffer", "address"])
def test_a_torch_that_holds_our_memory_as_its_own_is_asked_once(torch, place, hand_over, mps, monkeypatch):
    asked = mps(own=place, ours=place)
    hand_over(torch, md.zeros(4))
    assert asked == [place]
    monkeypatch.delattr(torch_facts, "pointers")  # C knows now
    for give in ROADS.values():
        give(torch, md.zeros(4))


def test_this_torch_holds_our_memory_by_the_buffer(torch):
    assert md.Buffer.from_handle(torch_facts.our_pointer(torch)).size > 0


def test_a_torch_that_has_no_memory_now_is_asked_again(torch, mps):
    asked = mps(own="out of memory")
    for _ in range(2):
        assert torch.from_dlpack(md.zeros(4)).shape == (4,)
        assert md.zeros(4).to(torch).shape == (4,)
    assert len(asked) == 4
    mps(own="buffer")
    assert torch.from_dlpack(md.zeros(4)).shape == (4,)
    assert len(asked) == 5


def test_nobody_else_is_refused_or_asked_about(mps):
    asked = mps(own="address")
    array = md.zeros(4)
    array.__dlpack__(max_version=(1, 0))
    array.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
    assert array.to(md.Array).shape == (4,)
    assert np.from_dlpack(array, device="cpu").shape == (4,)
    for name in ({}, {"__name__": 3}, {"__name__": "torchlike"}, {"__name__": "\N{GREEK SMALL LETTER TAU}"}):
        exec("array.__dlpack__(max_version=(1, 0))", name | {"array": array})
    assert asked == []


def test_a_thread_that_runs_no_python_function_is_not_torch(mps):
    asked = mps(own="address")
    capsules = []
    ask = operator.methodcaller("__dlpack__", max_version=(1, 0))
    _thread.start_new_thread(capsules.extend, (map(ask, [md.zeros(4)]),))
    until(lambda: capsules)
    assert len(capsules) == 1
    assert asked == []


def test_a_build_without_mps_is_not_asked(torch, mps, monkeypatch):
    asked = mps(own="address")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert torch.from_dlpack(md.zeros(4)).shape == (4,)
    assert asked == []


def test_an_address_from_torch_is_refused_as_from_anybody(torch, live_buffers):
    """The other way: such a torch would export addresses too, and the import looks at every handle."""
    memory = md.zeros(64)
    tensor = torch.from_dlpack(Producer(device=(8, 0), data=memory.buffer.address, shape=(64,)))
    assert (tensor.device.type, tensor.data_ptr()) == ("mps", memory.buffer.address)
    with pytest.raises(BufferError, match=r"of the kDLMetal tensor is not an id<MTLBuffer>.*Tensor made the tensor"):
        md.from_dlpack(tensor)


def test_explain_says_so_where_the_trial_was_refused(torch, mps, monkeypatch):
    fields = {"device": METAL, "is_ours": True}
    assert trial_child.try_example(torch.from_dlpack, fields) == "zero-copy"
    _core._forget_types()
    mps(own="address")
    assert trial_child.try_example(torch.from_dlpack, fields) == "refusal"
    monkeypatch.setattr(explaining.sys, "platform", "darwin")
    for did, said in (("refusal", "refusal"), ("zero-copy", "zero-copy")):
        trial = trials.Trial({"ours_on_metal": did})
        monkeypatch.setattr(trials, "trial_of", lambda _, trial=trial: trial)
        found = md.explain(md.zeros(4), consumer="torch")
        assert (found.outcome, "by its address" in str(found)) == (said, said == "refusal")
    assert torch_facts.with_mps() is torch


#: The one that has no mps is torch as it is installed: this process may have switched it on.
WITHOUT_MPS = """
import warnings
import metal_dlpack as md, torch
a = md.ones((2, 2))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.from_dlpack(a.host), {first}, torch.from_dlpack(a)
print([(one.category.__name__, one.filename, one.lineno, "softmetal.torch_mps()" in str(one.message)) for one in told])
"""


@pytest.mark.needs_softmetal
@pytest.mark.needs_torch
@pytest.mark.parametrize("first", ["torch.from_dlpack(a)", "a.to(torch)"])
@pytest.mark.some(1)
def test_the_first_export_to_a_torch_without_mps_tells_the_way_once(first):
    assert output_of(WITHOUT_MPS.format(first=first)) == "[('RuntimeWarning', '<string>', 7, True)]\n"
