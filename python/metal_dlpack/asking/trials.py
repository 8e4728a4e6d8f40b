"""What a consumer does with tensors of all kinds, found by giving it one of each.

A consumer is run in a child process, once in the life of this one: it is not imported here, and a tensor that ends
the child costs that one answer.  The tensors lie in the child's memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from metal_dlpack import _core

from .explain_rules import CALLS, RULES

#: What producers say to a consumer that asks in a way they do not know.
REFUSALS = (TypeError, BufferError)
#: The element type that stands for vectors.
VECTOR = "float32x4"
Calls = list[tuple[dict[str, object] | str, tuple[type[Exception], ...]]]


@dataclass(frozen=True)
class Trial:
    """What a consumer did; nothing where it could not be tried."""

    outcomes: dict[str, str] = field(default_factory=dict)  #: by the name of the example
    calls: Calls = field(default_factory=list)  #: as explain_rules.CALLS


def examples_of(consumer: str) -> dict[str, dict[str, Any]]:
    """Fields of a tensor for each rule, and for each element type."""
    examples = {
        rule.condition: rule.example for rule in RULES if rule.consumer == consumer and rule.example is not None
    }
    types = [kind for kind in vars(_core).values() if isinstance(kind, _core.dtype)]
    types += [_core.dtype("float4_e2m1fnx2"), _core.dtype(VECTOR)]
    return examples | {f"type {kind.name}": {"dtype": (kind.code, kind.bits, kind.lanes)} for kind in types}


def ask_child(consumer: str, names: list[str]) -> dict[str, Any]:
    """The answers that one child gave before it ended."""
    from dlpack_conformance.asking import Child  # slow to import

    answers: dict[str, Any] = {}
    try:
        with Child("metal_dlpack.asking.trial_child", consumer, *names) as child:
            while len(answers) <= len(names) and (answer := child.answer()):
                answers[answer[0]] = answer[1]
    except OSError:  # no process can be started here
        return {}
    return answers


def read_calls(consumer: str, asked: list[list[dict[str, Any]]]) -> Calls:
    """The calls in order, each with the refusals after which the next one comes."""
    calls: Calls = [call for call in CALLS[consumer] if call[0] == "exchange"]
    longest = max(asked, key=len)
    for place, keywords in enumerate(longest):
        follows = [len(calls_of_one) > place + 1 for calls_of_one in asked]
        retried = tuple(refusal for refusal, is_retried in zip(REFUSALS, follows, strict=True) if is_retried)
        known = {name: tuple(value) if isinstance(value, list) else value for name, value in keywords.items()}
        if calls and calls[-1][0] == known:
            calls[-1] = (known, retried)
        else:
            calls.append((known, retried))
    return calls


@cache
def trial_of(consumer: str) -> Trial:
    """What this consumer does; an empty Trial if it cannot be run."""
    crashes = {rule.condition for rule in RULES if rule.consumer == consumer and rule.outcome == "crash"}
    # a child that dies at its last example is not started again
    names = sorted(examples_of(consumer), key=crashes.__contains__)
    outcomes: dict[str, str] = {}
    calls: Calls = []
    while names:
        answers = ask_child(consumer, names)
        if "calls" not in answers:
            return Trial()  # it cannot even be imported
        calls = read_calls(consumer, answers.pop("calls"))
        outcomes |= answers
        names = [name for name in names if name not in outcomes]
        if names:
            outcomes[names.pop(0)] = "crash"
    return Trial(outcomes, calls)
