"""Try cases in child processes: a library that dies or hangs in a case loses that case, and the rest is tried.

A child tries many cases, one after the other.  The case in which it ends is tried again in a child of its own; what
happens there counts, since an earlier case may have broken the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from . import consumer_cases, consumer_types, copy_cases, exchange_cases, lifetime_cases, producer_cases, producer_types
from .asking import Child
from .rules import Rule, Side

CASE_TIMEOUT_S = 30.0

#: All rules, in the order in which they are tried and shown.
RULES: tuple[Rule, ...] = (
    *producer_cases.RULES,
    *producer_types.RULES,
    *copy_cases.RULES,
    *exchange_cases.RULES,
    *consumer_cases.RULES,
    *consumer_types.RULES,
    *lifetime_cases.RULES,
)
Outcome = Literal["kept", "broken", "absent"]


class Missing(Exception):
    """The library cannot be imported, or nothing has its name."""


@dataclass(frozen=True)
class Result:
    """What became of one rule: "kept", "broken", or "absent" where the library does not offer it."""

    rule: Rule  #: which one
    outcome: Outcome  #: "kept", "broken" or "absent"
    happened: str  #: a sentence


@dataclass(frozen=True)
class Report:
    """What became of all rules for one library on one side."""

    library: str  #: as people call it
    version: str  #: "" if it does not say
    side: Side  #: "producer" or "consumer"
    results: tuple[Result, ...]  #: one of each rule

    def of(self, outcome: Outcome, level: str = "") -> list[Result]:
        """The results with this outcome, of one level or of both."""
        return [result for result in self.results if result.outcome == outcome and level in ("", result.rule.level)]

    def score(self, level: str) -> tuple[int, int]:
        """(rules kept, rules that apply) of this level."""
        kept = len(self.of("kept", level))
        return kept, kept + len(self.of("broken", level))

    @property
    def passes(self) -> bool:
        """Whether every "must" that applies is kept."""
        return not self.of("broken", "must")


@dataclass
class Answers:
    """What one child said before it ended."""

    library: str = ""
    version: str = ""
    answers: dict[str, tuple[Outcome, str]] | None = None  #: by the name of the rule; None if it never was ready
    end: str = ""  #: how it ended if that was too early


def rules_of(side: Side) -> list[Rule]:
    return [rule for rule in RULES if rule.side == side]


def judge(side: Side, name: str, rules: Sequence[str] | None = None, *, timeout_s: float = CASE_TIMEOUT_S) -> Report:
    """Try rules against a library, in child processes.

    Parameters
    ----------
    side : "producer" or "consumer"
        Whether its `__dlpack__` or its `from_dlpack` is judged.
    name : str
        A name of `LIBRARIES`, or "module:attribute" for a `Library` of yours.
    rules : sequence of str, optional
        Names of rules; all of the side by default.
    timeout_s : float
        A case that takes longer than these seconds is broken.

    Returns
    -------
    Report
        Its `passes` is True if no rule is broken; advice does not count.

    Raises
    ------
    Missing
        The library cannot be imported.
    LookupError
        The side has no rule of a name.
    """
    known = {rule.name: rule for rule in rules_of(side)}
    names = list(known) if rules is None else list(dict.fromkeys(rules))
    unknown = [each for each in names if each not in known]
    if unknown:
        raise LookupError(f"there is no rule {unknown[0]!r} for a {side}; --list shows them.")
    outcomes: dict[str, tuple[Outcome, str]] = {}
    first: Answers | None = None
    while first is None or len(outcomes) < len(names):
        left = [each for each in names if each not in outcomes]
        said = ask_child(side, name, left, timeout_s)
        first = first or said
        outcomes |= said.answers or {}
        if said.end:
            left = [each for each in left if each not in outcomes]
            outcomes[left[0]] = try_alone(side, name, left[0], timeout_s)
    results = tuple(Result(known[each], *outcomes[each]) for each in names)
    return Report(first.library, first.version, side, results)


def try_alone(side: Side, name: str, rule: str, timeout_s: float) -> tuple[Outcome, str]:
    said = ask_child(side, name, [rule], timeout_s)
    return (said.answers or {}).get(rule) or ("broken", said.end)


def ask_child(side: Side, name: str, rules: list[str], timeout_s: float) -> Answers:
    """Let one child try these rules, until it ends."""
    said = Answers()
    with Child(f"{__package__}.child", side, name, *rules) as child:
        while said.answers is None or len(said.answers) < len(rules):
            answer = child.answer(None if said.answers is None else timeout_s)
            if answer is None:
                said.end = child.end
                break
            read_answer(answer, said)
    if said.answers is None:
        raise Missing(f"{name}: {said.end}")
    return said


def read_answer(answer: list[Any], said: Answers) -> None:
    head, *facts = answer
    if head == "missing":
        raise Missing(facts[0])
    if head == "ready":
        said.library, said.version = facts
        said.answers = {}
    elif said.answers is not None:
        said.answers[head] = (facts[0], facts[1])
