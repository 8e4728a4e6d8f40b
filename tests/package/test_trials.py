"""trials: a consumer is run once, in a child; what ends the child is one answer."""

import pytest

import metal_dlpack as md
from dlpack_conformance import asking
from metal_dlpack.asking import trials
from metal_dlpack.asking.trial_child import Example

pytestmark = pytest.mark.needs_no_sanitizer

#: A consumer that does something else with each example: NumPy's from_dlpack otherwise.
ODD = """
import os, sys
import numpy as np
print("a word of its own")
print("[[], 1]", "no newline", sep="\\n", end="", flush=True)
def from_dlpack(x):
    if x.fails is not None:
        for keywords in ({"max_version": (1, 9)}, {}):
            try:
                return x.__dlpack__(**keywords)
            except TypeError:
                continue
        raise TypeError
    kind, index = x.__dlpack_device__()
    if kind == 8:
        os.abort()
    if kind == 2:
        raise SystemError("not so")
    if index == 1:
        os._exit(0)
    return np.from_dlpack(x) if x.byte_offset == 0 else np.zeros(3)
"""
EXAMPLES = {
    "metal": {"device": (8, 0)},
    "other_device": {"device": (2, 0)},
    "other_index": {"device": (1, 1)},
    "not_aligned_64": {"byte_offset": 4},
    "plain": {},
}


@pytest.fixture
def odd_consumer(monkeypatch, tmp_path):
    (tmp_path / "odd_consumer.py").write_text(ODD)
    lines = "from metal_dlpack.asking import explain_rules, trials"
    lines += f"\nexplain_rules.MODULES['odd'] = ('odd_consumer', '0')\ntrials.examples_of = lambda _: {EXAMPLES!r}"
    (tmp_path / "sitecustomize.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(trials.CALLS, "odd", [])
    monkeypatch.setattr(trials, "examples_of", lambda _: EXAMPLES)
    yield "odd"
    trials.trial_of.cache_clear()


@pytest.mark.needs_numpy
def test_each_end_is_an_answer(odd_consumer):
    trial = trials.trial_of(odd_consumer)
    assert trial.outcomes == dict(zip(EXAMPLES, ("crash", "refusal", "crash", "copy", "zero-copy"), strict=True))
    assert trial.calls == [({"max_version": (1, 9)}, (TypeError,)), ({}, ())]


def test_a_consumer_is_run_once(monkeypatch):
    asked = []
    monkeypatch.setattr(trials, "ask_child", lambda consumer, names: asked.append(consumer) or {})
    trials.trial_of.cache_clear()
    try:
        for _ in range(3):
            md.explain(md.zeros(3), consumer="jax")
        assert asked == ["jax"]
    finally:
        trials.trial_of.cache_clear()


def test_a_consumer_that_is_not_there_or_hangs_leaves_the_table(monkeypatch):
    assert trials.trial_of.__wrapped__("nobody") == trials.Trial()
    monkeypatch.setattr(asking, "IMPORT_TIMEOUT_S", 0.001)
    assert trials.trial_of.__wrapped__("numpy") == trials.Trial()
    monkeypatch.setattr(asking.sys, "executable", "/no/such/python")
    assert trials.trial_of.__wrapped__("numpy") == trials.Trial()


@pytest.mark.parametrize("asked, calls", [
    ([[{}], [{}]], [({}, ())]),
    ([[{"stream": None}, {}, {}], [{"stream": None}]], [({"stream": None}, (TypeError,)), ({}, ())]),
    ([[{}], [{}, {"max_version": [1, 1]}]], [({}, (BufferError,)), ({"max_version": (1, 1)}, ())]),
])  # fmt: skip
def test_calls_are_read_from_what_a_producer_was_asked(asked, calls):
    assert trials.read_calls("jax", asked) == calls


def test_a_tensor_of_the_examples_is_read_at_its_place():
    example = Example(byte_offset=4, version=(1, 3))
    array = md.from_dlpack(example)
    assert (array.shape, array.strides, array.dtype) == ((2, 3), (3, 1), md.float32)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert md.shares_memory(array, example.array[4:5])
