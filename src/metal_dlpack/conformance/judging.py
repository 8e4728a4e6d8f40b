"""Try cases in child processes: a library that dies or hangs in a case loses that case, and the rest is tried.

A child tries many cases, one after the other.  The case in which it ends is tried again in a child of its own; what
happens there counts, since an earlier case may have broken the process.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from .catalogue import rules_of
from .rules import Rule, Side

__all__ = ["CASE_TIMEOUT_S", "Missing", "Report", "Result", "judge"]

CASE_TIMEOUT_S = 30.0
#: A library may be imported for the first time, on a slow disk.
IMPORT_TIMEOUT_S = 240.0

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
    command = [sys.executable, "-m", "metal_dlpack.conformance.child", side, name, *rules]
    with running(command) as child:
        lines = lines_of(child)
        expected = len(rules)
        while said.answers is None or len(said.answers) < expected:
            patience_s = IMPORT_TIMEOUT_S if said.answers is None else timeout_s
            try:
                line = lines.get(timeout=patience_s)
                if line is None:
                    said.end = how_it_ended(child.wait(patience_s))
                    break
            except (queue.Empty, subprocess.TimeoutExpired):
                said.end = how_it_ended(child.poll(), patience_s)
                break
            read_line(line, said)
    if said.answers is None:
        raise Missing(f"{name}: {said.end or 'the child process said nothing'}")
    return said


def read_line(line: str, said: Answers) -> None:
    try:
        head, *facts = json.loads(line)
    except (ValueError, TypeError):
        return  # printed while Python started
    if head == "missing":
        raise Missing(facts[0])
    if head == "ready":
        said.library, said.version = facts
        said.answers = {}
    elif said.answers is not None:
        said.answers[head] = (facts[0], facts[1])


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A child that sees the modules that this process sees; on leaving, it is ended with all that it started."""
    given = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path), "JAX_PLATFORMS": "cpu"}
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **given},
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # a library may fork
    )
    try:
        yield child
    finally:
        with suppress(ProcessLookupError, PermissionError):  # a Mac forbids it where only zombies are left
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def lines_of(child: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """The lines that a child prints, then None."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert child.stdout is not None
        with child.stdout:  # to close it elsewhere would wait for a process that still has the other end
            for line in child.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def how_it_ended(status: int | None, patience_s: float = 0.0) -> str:
    if status is None:
        return f"no answer within {patience_s:g} s"
    if status >= 0:
        return f"the process ended with status {status}"
    try:
        name: Any = signal.Signals(-status).name
    except ValueError:
        name = -status
    return f"the process died of {name}"
