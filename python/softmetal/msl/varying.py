"""Which values of a kernel differ between threads that go on together, and whether all threads always do.

A branch whose condition differs sends threads apart.  Threads that come to no wait any more have left, and matter to
nobody; the others are apart up to the block through which all of them must come before they wait.  Where no wait
lies between, the threads of a threadgroup come to each wait together: they are in lockstep.

A value that is loaded from one address by all is one value, unless threads race.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .llvm_function import PURE, Block, Instruction


@dataclass(frozen=True)
class Varying:
    values: frozenset[str]
    is_lockstep: bool


class _Ways:
    """The ways between blocks; a wait is on the way to what follows it."""

    def __init__(self, leads: Mapping[str, list[str]], waits: frozenset[str]):
        self.leads = leads
        self._bits = {one: 1 << nth for nth, one in enumerate(leads)}
        self._passes = self._find_passes(waits)

    def _find_passes(self, waits: frozenset[str]) -> dict[str, int]:
        """The blocks that come to a wait: through which blocks each way from there to the first wait leads, as bits."""
        passes = {one: self._bits[one] if one in waits else -1 for one in self._coming_to(waits)}
        is_new = True
        while is_new:
            is_new = False
            for one in reversed([one for one in passes if one not in waits]):
                common = -1
                for to in self.leads[one]:
                    common &= passes.get(to, -1)
                common |= self._bits[one]
                is_new |= common != passes[one]
                passes[one] = common
        return passes

    def _coming_to(self, waits: frozenset[str]) -> list[str]:
        back: dict[str, list[str]] = {one: [] for one in self.leads}
        for one, there in self.leads.items():
            for to in there:
                back[to].append(one)
        coming = reached(back, waits)
        return [one for one in self.leads if one in coming]

    def apart(self, branch: str) -> tuple[set[str], set[str]]:
        """Where threads are while this branch keeps them apart, and where those ways join."""
        ways = list(dict.fromkeys(self.leads[branch]))
        staying = [one for one in ways if one in self._passes]
        apart, joins = reached(self.leads, [one for one in ways if one not in self._passes]), set()
        for way in staying if len(staying) > 1 else []:
            through = -1
            for other in staying:
                through &= self._passes[other] if other != way else -1
            left, seen = [way], set()
            while left:
                one = left.pop()
                if one in seen:
                    continue
                seen.add(one)
                if through & self._bits[one]:
                    joins.add(one)
                else:
                    apart.add(one)
                    left += self.leads[one]
        return apart, joins


def reached(leads: Mapping[str, list[str]], first: Iterable[str]) -> set[str]:
    """The blocks that ways lead to, the first ones among them."""
    seen: set[str] = set()
    left = list(first)
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += leads[one]
    return seen


def find_varying(
    blocks: Mapping[str, Block],
    leads: Mapping[str, list[str]],
    waits: frozenset[str],
    positions: Iterable[str],
    own: Iterable[str],
) -> Varying:
    """Find the values that differ.

    leads: the ways from each block, also past its wait; waits: the blocks that end in one.  positions: parameters that
    say which thread it is; own: what is a thread's own from the start, such as its variables' addresses.
    """
    ways = _Ways(leads, waits)
    varying = {*positions, *own}
    varying.update(one.name for block in blocks.values() for one in block.instructions if one.name and _differs(one))
    apart: set[str] = set()
    joins: set[str] = set()
    sent: set[str] = set()
    is_new = True
    while is_new:
        before = len(varying), len(sent)
        for label, block in blocks.items():
            for one in block.instructions:
                is_joined = one.operation == "phi" and (label in apart or label in joins)
                if one.name and one.name not in varying and (is_joined or not varying.isdisjoint(one.values)):
                    varying.add(one.name)
            last = block.instructions[-1]
            if label not in sent and len(block.leads) > 1 and not varying.isdisjoint(last.values):
                sent.add(label)
                more = ways.apart(label)
                apart |= more[0]
                joins |= more[1]
        is_new = before != (len(varying), len(sent))
    return Varying(frozenset(varying), apart.isdisjoint(waits))


def _differs(one: Instruction) -> bool:
    if one.operation == "load":
        return one.text.startswith(("load atomic", "load volatile"))
    return (
        PURE.fullmatch(one.operation) is None
        and one.operation not in {"phi", "wait"}
        and not one.called.startswith("@llvm.")
    )
