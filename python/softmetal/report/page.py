"""A report as one HTML page: light or dark as the reader has it, without scripts and without other files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from metal_dlpack.pages.markup import Markup, element
from metal_dlpack.pages.style import ACCENTS, whole_page

from . import text
from .building import Report

_BAD, _GOOD = ACCENTS[3], ACCENTS[2]


_STYLE = (
    "body{max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:0}"
    "p{margin:.3rem 0}"
    "code,pre,.code{font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',monospace}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}"
    "article{border:1px solid var(--line);border-left:4px solid;border-radius:4px;padding:.75rem 1rem;margin:1rem 0}"
    f".bad{{border-left-color:{_BAD}}}.silenced{{border-left-color:var(--line)}}"
    "pre{overflow-x:auto;margin:.25rem 0 .75rem;padding:.5rem 0;border:1px solid var(--line);border-radius:4px}"
    "pre span{display:block;padding:0 .75rem;white-space:pre}"
    "pre .here{font-weight:600;box-shadow:inset 3px 0 var(--text)}"
    ".tag{display:inline-block;border:1px solid currentColor;border-radius:1em;padding:0 .6em;font-size:.85em}"
    f".tag.bad{{color:{_BAD}}}.tag.good{{color:{_GOOD}}}"
)


def page_of(report: Report) -> str:
    """The whole page."""
    found, silenced = text.found_and_silenced(report)
    body = [
        element("h1", "Kernels and what was found in them"),
        element("p", _verdict(found), " ", text.summary(report).partition("; ")[0]),
        element("p", element("code", " ".join(report["program"])), class_="quiet"),
        *(element("p", sentence) for sentence in text.lost(report)),
        *(_finding(report, number, one) for number, one in enumerate(found, 1)),
        *([element("h2", "Advice")] if text.advice(report) else []),
        *(_advice(report, one) for one in text.advice(report)),
        *([element("h2", "Silenced")] if silenced else []),
        *(_finding(report, None, one) for one in silenced),
        *_silences(report),
        element("h2", "Kernels"),
        _kernels(report),
        element("p", f"metal_dlpack {report['tool']['version']}", class_="quiet"),
    ]
    title = f"{text.counted(len(found), 'finding')}: {' '.join(report['program'])[:80]}"
    return whole_page(title, _STYLE, body)


def _verdict(found: list[dict[str, Any]]) -> Markup:
    if not found:
        return element("span", "0 findings", class_="tag good")
    return element("span", text.counted(len(found), "finding"), class_="tag bad")


def _finding(report: Report, number: int | None, finding: dict[str, Any]) -> Markup:
    silence = finding["silenced"]
    said = element("p", f"Silenced at {silence['where']}: {silence['reason']}", class_="quiet") if silence else None
    name = finding["kind"] if number is None else f"{number}. {finding['kind']}"
    return element(
        "article",
        element("h3", name, " ", element("span", ", ".join(finding["kernels"]), class_="quiet code")),
        element("p", finding["text"][:1].upper() + finding["text"][1:] + "."),
        said,
        *(part for access in finding["accesses"] for part in _access(report, access)),
        *(element("p", fact, class_="quiet") for fact in text.facts(finding)),
        class_="bad" if silence is None else "silenced",
    )


def _advice(report: Report, one: dict[str, Any]) -> Markup:
    return element(
        "article",
        element("h3", one["kind"], " ", element("span", ", ".join(one["kernels"]), class_="quiet code")),
        element("p", one["text"][:1].upper() + one["text"][1:] + "."),
        *(element("p", element("code", text.where(report, access))) for access in one["accesses"]),
        class_="silenced",
    )


def _access(report: Report, access: dict[str, Any]) -> Iterator[Markup]:
    yield element("p", element("code", text.where(report, access)), ": ", text.who(access))
    if access["context"]:
        width = len(str(access["context"][-1][0]))
        yield element(
            "pre",
            *(
                element("span", f"{line:>{width}}  {code}", class_="here" if line == access["line"] else None)
                for line, code in access["context"]
            ),
        )


def _silences(report: Report) -> Iterator[Markup]:
    for silence in report["refused_silences"]:
        yield element("p", element("code", silence["where"]), ": benign without a reason; it silences nothing.")
    for silence in report["unused_silences"]:
        yield element("p", element("code", silence["where"]), ": not needed, nothing was found: ", silence["reason"])


def _kernels(report: Report) -> Markup:
    names = ("kernel", "launches", "threads", "seconds", "arguments")
    numbers = {"launches", "threads", "seconds"}
    head = element("tr", *(element("th", one, class_="number" if one in numbers else None) for one in names))
    return element("div", element("table", head, *(_kernel(report, one) for one in report["kernels"])), class_="scroll")


def _kernel(report: Report, kernel: dict[str, Any]) -> Markup:
    place = f"{text.shown(report, kernel['file'])}:{kernel['line']}" if kernel["file"] else None
    notes = [] if kernel["checked"] else ["not checked", f"runs as {kernel['runs_as']}"]
    notes += [f"{kernel['stopped']:,} failed"] if kernel["stopped"] else []
    name = [element("code", kernel["name"])]
    name += [element("div", one, class_="quiet code") for one in ([place] if place else [])]
    name += [element("div", ", ".join(notes), class_="quiet")] if notes else []
    return element(
        "tr",
        element("td", *name),
        element("td", f"{kernel['launches']:,}", class_="number"),
        element("td", f"{kernel['threads']:,}", class_="number"),
        element("td", f"{kernel['seconds']:.3f}", class_="number"),
        element("td", ", ".join(text.argument(one) for one in kernel["arguments"]), class_="code"),
    )
