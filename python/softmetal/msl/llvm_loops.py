"""Which blocks of a function in LLVM's text lie in loops, and which come first."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping

LABEL = re.compile(r'([-\w.$]+|"[^"]*"):')
LEADS = re.compile(r'label %([-\w.$]+|"[^"]*")')


def in_loops(body: list[str]) -> set[str]:
    """The labels of blocks that lie in a loop, or between two."""
    behind = _behind_loops({one: set(there) for one, there in leads_of(body).items()})
    back: dict[str, set[str]] = {one: set() for one in behind}
    for one, there in behind.items():
        for to in there:
            back[to].add(one)
    return set(_behind_loops(back))


def leads_of(body: list[str]) -> dict[str, list[str]]:
    """Where each block leads to, by its label, that of the entry empty."""
    leads: dict[str, list[str]] = {"": []}
    here = ""
    for line in body:
        if (label := LABEL.match(line)) is not None:
            here = label[1]
            leads[here] = []
        leads[here] += LEADS.findall(line)
    return leads


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


def in_order(leads: Mapping[str, list[str]]) -> list[str]:
    """Blocks as they come: a loop whole before what it leads to, else as in the text.  leads begins with the entry."""
    place = {label: nth for nth, label in enumerate(leads)}
    return list(_in_order({label: [to for to in there if to in place] for label, there in leads.items()}, place))


def _in_order(leads: dict[str, list[str]], place: dict[str, int]) -> Iterator[str]:
    loop_of = _loops(leads)
    ahead = Counter(loop_of[to] for one in leads for to in leads[one] if loop_of[to] != loop_of[one])
    members: dict[str, list[str]] = {}
    for one in leads:
        members.setdefault(loop_of[one], []).append(one)
    ready = [(place[one], one) for one in members if not ahead[one]]
    while ready:
        _, first = heapq.heappop(ready)
        inside = members[first]
        if len(inside) == 1:
            yield first
        else:  # without the ways back to its first block it is no loop any more
            within = {one: [to for to in leads[one] if to in inside and to != first] for one in inside}
            yield from _in_order(within, place)
        for to in [loop_of[to] for one in inside for to in leads[one] if loop_of[to] != first]:
            ahead[to] -= 1
            if not ahead[to]:
                heapq.heappush(ready, (place[to], to))


def _loops(leads: dict[str, list[str]]) -> dict[str, str]:
    """The block by which one comes into the outermost loop that a block lies in; outside of loops, the block itself."""
    finished: list[str] = []
    seen: set[str] = set()
    for start in leads:
        left = [(start, iter(leads[start]))] if start not in seen else []
        seen.add(start)
        while left:
            to = next((to for to in left[-1][1] if to not in seen), None)
            if to is None:
                finished.append(left.pop()[0])
            else:
                seen.add(to)
                left.append((to, iter(leads[to])))
    back: dict[str, list[str]] = {one: [] for one in leads}
    for one, there in leads.items():
        for to in there:
            back[to].append(one)
    loop_of: dict[str, str] = {}
    for start in reversed(finished):  # the first of a loop that the ways come to
        waiting = [] if start in loop_of else [start]
        while waiting:
            one = waiting.pop()
            if one not in loop_of:
                loop_of[one] = start
                waiting += [other for other in back[one] if other not in loop_of]
    return loop_of
