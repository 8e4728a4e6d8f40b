"""The child process that tries cases: ``python -m metal_dlpack.conformance.child producer numpy items copy-none``.

It prints a line of JSON when the library is there, and one for each case; `judging` reads them.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import Any

from metal_dlpack.answers import take_stdout

from .catalogue import rules_of
from .libraries import Library, library_of
from .rules import Absent, Broken, Rule, Side

__all__ = ["main", "try_rule"]


def try_rule(rule: Rule, library: Library) -> tuple[str, str]:
    """(outcome, what happened): "kept", "broken" or "absent"."""
    try:
        happened = "kept", rule.case(library)
    except Absent as absent:
        happened = "absent", str(absent)
    except Broken as broken:
        happened = "broken", str(broken)
    except Exception as error:  # whatever a library raises where nothing should
        happened = "broken", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    gc.collect()  # what a deleter does belongs to this case
    return happened


def main(side: Side, name: str, *names: str) -> None:
    output = take_stdout()

    def say(*facts: Any) -> None:
        print(json.dumps(facts), file=output, flush=True)

    try:
        library = library_of(name)
    except (ImportError, LookupError) as error:
        say("missing", f"{type(error).__name__}: {error}")
        os._exit(0)
    say("ready", library.name or name, library.version())
    rules = {rule.name: rule for rule in rules_of(side)}
    for each in names:
        say(each, *try_rule(rules[each], library))
    os._exit(0)  # what the library holds of the cases is never deleted


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # judging names a Side
