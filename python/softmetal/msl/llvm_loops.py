"""Which blocks of a function in LLVM's text lie in loops."""

from __future__ import annotations

import re
from collections import Counter

from .llvm_values import VALUE

LABEL = re.compile(r'([-\w.$]+|"[^"]*"):')
_LEADS = re.compile(rf"label ({VALUE.pattern})")


def in_loops(body: list[str]) -> set[str]:
    """The labels of blocks that lie in a loop, or between two."""
    leads: dict[str, set[str]] = {"": set()}
    here = ""
    for line in body:
        if (label := LABEL.match(line)) is not None:
            here = label[1]
            leads[here] = set()
        leads[here].update(to[1:] for to in _LEADS.findall(line))
    behind = _behind_loops(leads)
    back: dict[str, set[str]] = {one: set() for one in behind}
    for one, there in behind.items():
        for to in there:
            back[to].add(one)
    return set(_behind_loops(back))


def _behind_loops(leads: dict[str, set[str]]) -> dict[str, set[str]]:
    """Blocks in a loop or reachable from one."""
    left = dict(leads)
    ways = Counter(to for there in leads.values() for to in there)
    reached = [one for one in leads if not ways[one]]
    while reached:
        for to in left.pop(reached.pop()):
            ways[to] -= 1
            if not ways[to]:
                reached.append(to)
    return left
