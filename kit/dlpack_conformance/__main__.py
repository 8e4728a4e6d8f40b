"""python -m dlpack_conformance --producer numpy --consumer torch: judge libraries and print the scores."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

from .command_line import run
from .judging import CASE_TIMEOUT_S, RULES, Missing, Report, judge
from .libraries import LIBRARIES
from .report import as_dict, describe, describe_rule, table
from .rules import Side

#: What the exit status says.
ALL_KEPT, BROKEN, NOT_JUDGED = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dlpack_conformance",
        description="Try the rules of DLPack 1.3 and of the array API standard against libraries. "
        "Each is judged by itself, against tensors that are made and read by hand.",
        epilog="Exits with 0 if every rule that applies is kept, with 1 if one is broken, and with 2 if a library "
        "or a rule does not exist. Advice (should, recommended) changes nothing.",
    )
    names = f"{', '.join(LIBRARIES)}, or module:attribute for a Library of yours"
    parser.add_argument(
        "--producer", action="append", default=[], metavar="NAME", help=f"judge its __dlpack__: {names}"
    )
    parser.add_argument("--consumer", action="append", default=[], metavar="NAME", help="judge its from_dlpack")
    parser.add_argument("--rule", action="append", metavar="NAME", help="try this rule only; may be repeated")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=CASE_TIMEOUT_S,
        metavar="S",
        help="seconds for a case; %(default)g by default",
    )
    parser.add_argument("--all", action="store_true", help="show also what is kept, and why a rule does not apply")
    parser.add_argument("--scores", action="store_true", help="print the scores as a table in Markdown")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    parser.add_argument("--list", action="store_true", help="print all rules with their sources")
    return parser


def seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text} is no time that a case could take.")
    return value


def reports(options: argparse.Namespace) -> Iterator[Report]:
    sides: tuple[tuple[Side, list[str]], ...] = (("producer", options.producer), ("consumer", options.consumer))
    for side, names in sides:
        rules = options.rule
        if rules is not None:  # of the two sides together
            rules = [rule.name for rule in RULES if rule.side == side and rule.name in options.rule]
        for name in names if rules != [] else ():
            yield judge(side, name, rules, timeout_s=options.timeout)


def unknown_rules(options: argparse.Namespace) -> list[str]:
    sides = {side for side in ("producer", "consumer") if getattr(options, side)}
    known = {rule.name for rule in RULES if rule.side in sides}
    return [name for name in options.rule or () if name not in known]


def main(arguments: list[str] | None = None) -> int:
    options = (options_of := parser()).parse_args(arguments)
    if options.list:
        print("\n".join(line for rule in RULES for line in describe_rule(rule)))
        return ALL_KEPT
    if not options.producer and not options.consumer:
        options_of.error("name a library: --producer NAME, --consumer NAME, or both.")
    if unknown := unknown_rules(options):
        options_of.error(f"there is no rule {unknown[0]!r} for these sides; --list shows them.")
    judged = []
    try:
        for report in reports(options):
            judged.append(report)
            if not options.json and not options.scores:
                print("\n".join([*describe(report, shows_all=options.all), ""]), flush=True)
    except (Missing, LookupError) as error:
        print(f"python -m dlpack_conformance: {error}", file=sys.stderr)
        return NOT_JUDGED
    if options.json:
        print(json.dumps([as_dict(report) for report in judged], indent=2))
    elif options.scores:
        print("\n".join(table(judged)))
    return ALL_KEPT if all(report.passes for report in judged) else BROKEN


def command() -> NoReturn:
    """What `dlpack-conformance` runs."""
    run(main, "dlpack-conformance")


if __name__ == "__main__":
    run(main, "python -m dlpack_conformance")
