"""Reports as text for people and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from .judging import Report, Result
from .rules import Rule

WIDTH = 100
#: What heads a rule that is not kept, by its level.
LOST = {"must": "broken", "should": "advice"}


def headline(report: Report) -> str:
    """One line: who, and the score."""
    (kept, rules), (taken, advice) = report.score("must"), report.score("should")
    who = f"{report.library} {report.version}".strip()
    return f"{who} as {report.side}: keeps {kept} of {rules} rules, follows {taken} of {advice} pieces of advice"


def table(reports: Iterable[Report]) -> Iterator[str]:
    """Lines of a table in Markdown: a row for each library on each side."""
    yield "| library | as | rules | breaks | advice | does not follow |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for report in reports:
        cells = [f"{report.library} {report.version}".strip(), report.side]
        for level in ("must", "should"):
            kept, known = report.score(level)
            names = ", ".join(f"`{result.rule.name}`" for result in report.of("broken", level))
            cells += [f"{kept} of {known}", names or "none"]
        yield f"| {' | '.join(cells)} |"


def describe(report: Report, *, shows_all: bool = False) -> Iterator[str]:
    """Lines: the score, then what is not kept; with `shows_all` also what is, and what does not apply."""
    yield headline(report)
    for level in ("must", "should"):
        for result in report.of("broken", level):
            yield ""
            yield from _lost(result)
    if shows_all:
        yield ""
        for result in report.of("kept"):
            yield f"  kept    {result.rule.name:<22} {result.happened}"
        for result in report.of("absent"):
            yield f"  n/a     {result.rule.name:<22} {result.happened}"
    elif absent := report.of("absent"):
        yield ""
        yield from _filled("  n/a     ", ", ".join(result.rule.name for result in absent))


def _lost(result: Result) -> Iterator[str]:
    rule = result.rule
    yield f"  {LOST[rule.level]:<7} {rule.name}"
    yield from _filled("          happened  ", result.happened)
    yield from _filled("          standard  ", rule.says)
    yield from _filled("          source    ", f"{rule.source.title}: {rule.source.url}")


def _filled(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )


def describe_rule(rule: Rule) -> Iterator[str]:
    yield f"{rule.side:<8} {rule.level:<6} {rule.name}"
    yield from _filled("    ", rule.says)
    yield from _filled("    ", f"{rule.source.title}: {rule.source.url}")


def as_dict(report: Report) -> dict[str, Any]:
    (kept, rules), (taken, advice) = report.score("must"), report.score("should")
    return {
        "library": report.library,
        "version": report.version,
        "side": report.side,
        "kept": kept,
        "rules": rules,
        "followed": taken,
        "advice": advice,
        "results": [
            {
                "rule": result.rule.name,
                "level": result.rule.level,
                "outcome": result.outcome,
                "happened": result.happened,
                "says": result.rule.says,
                "source": result.rule.source.title,
                "url": result.rule.source.url,
            }
            for result in report.results
        ],
    }
