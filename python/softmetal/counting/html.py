"""A count in a notebook: the same tables, with bars."""

from __future__ import annotations

from collections.abc import Iterable

from metal_dlpack.pages.markup import Markup, element, shortened
from metal_dlpack.pages.style import STYLE_SHEET, accent

from .text import ARGUMENT_HEAD, LINE_HEAD, MOST_LINES, argument_row, launch_facts, line_row, weight
from .values import LaunchCount

#: Arguments that are shown; the width of a bar.
_MOST_ARGUMENTS, _BAR_WIDTH = 40, 80


def html_of(count: LaunchCount) -> Markup:
    facts = launch_facts(count)
    arguments = [_row("td", argument_row(one)) for one in count.arguments[:_MOST_ARGUMENTS]]
    lines = [_row("td", line_row(one), _bar(weight(one, count))) for one in count.lines[:MOST_LINES]]
    more = len(count.lines) - MOST_LINES
    return element(
        "div",
        STYLE_SHEET,
        element("div", element("b", "KernelCount"), " ", shortened(facts[0], 200)),
        *(_quiet(shortened(fact, 400)) for fact in facts[1:]),
        _table(_row("th", ARGUMENT_HEAD), arguments) if arguments else None,
        _table(_row("th", LINE_HEAD[1:], Markup("")), lines) if lines else None,
        _quiet(f"and {more:,} more lines, in `lines`") if more > 0 else None,
        class_="mdl",
    )


def _quiet(text: str) -> Markup:
    return element("div", text, class_="mdl-quiet")


def _table(head: Markup, rows: Iterable[Markup]) -> Markup:
    return element("table", head, *rows, style="border-collapse:collapse;margin-top:6px")


def _row(tag: str, cells: tuple[str, ...], first: Markup | None = None) -> Markup:
    """Numbers stand to the right.  With `first`, a bar, the last cell is source; else the first one is a name."""
    at_left = 0 if first is None else len(cells) - 1
    made = [] if first is None else [element(tag, first)]
    for at, cell in enumerate(cells):
        style = "padding:0 8px;text-align:" + ("left;white-space:pre" if at == at_left else "right")
        made.append(element(tag, element("code", cell) if at == at_left else cell, style=style))
    return element("tr", *made)


def _bar(share: float) -> Markup:
    width = max(1, round(share * _BAR_WIDTH)) if share else 0
    return element("div", style=f"width:{width}px;height:10px;background:{accent(0)}")
