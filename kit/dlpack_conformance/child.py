"""The child process that tries cases: ``python -m dlpack_conformance.child producer numpy items copy-none``.

It prints a line of JSON when the library is there, and one for each case; `judging` reads them.
"""

from __future__ import annotations

import gc
import os
import sys

from .asking import print_answer, take_stdout
from .judging import rules_of
from .libraries import Library, library_of
from .rules import Absent, Broken, Rule, Side

#: What a side is judged by.
METHOD: dict[Side, str] = {"producer": "make", "consumer": "from_dlpack"}
#: The most letters of what happened.
LONGEST = 400


def try_rule(rule: Rule, library: Library) -> tuple[str, str]:
    """(outcome, what happened): "kept", "broken" or "absent"."""
    try:
        outcome, happened = "kept", rule.case(library)
    except Absent as absent:
        outcome, happened = "absent", str(absent)
    except Broken as broken:
        outcome, happened = "broken", str(broken)
    except BaseException as error:  # whatever a library raises where nothing should, also SystemExit
        outcome, happened = "broken", f"{type(error).__name__}: {error}".removesuffix(": ")
    gc.collect()  # what a deleter does belongs to this case
    return outcome, one_line(happened)


def one_line(text: str) -> str:
    """What a library says, fit to be shown: its line ends, its escape sequences and its length are its own affair."""
    line = " ".join(text.encode(errors="backslashreplace").decode().split())
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def offers(library: Library, side: Side) -> bool:
    """Whether a Library says how this side is judged."""
    method = getattr(library, METHOD[side])
    return getattr(method, "__func__", None) is not getattr(Library, METHOD[side])


def main(side: Side, name: str, *names: str) -> None:
    answers = take_stdout()
    try:
        library = library_of(name)
        if not offers(library, side):
            raise LookupError(f"it cannot be judged as a {side}, since it has no {METHOD[side]}.")
        facts = one_line(str(library.name or name)), one_line(str(library.version()))
    except BaseException as error:  # of the user's module too: a name that is wrong, a sys.exit
        print_answer(answers, "missing", one_line(f"{name}: {type(error).__name__}: {error}"))
        os._exit(0)
    print_answer(answers, "ready", *facts)
    rules = {rule.name: rule for rule in rules_of(side)}
    for each in names:
        print_answer(answers, each, *try_rule(rules[each], library))
    os._exit(0)  # what the library holds of the cases is never deleted


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # judging names a Side
