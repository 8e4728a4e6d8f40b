"""Kernels without waits: loops that the threads of a row go round together, and whether columns suit them better.

A loop that they go round together is split as if each round began with a wait:

    for (k = 0; k < K; k++) sum += a[y * K + k] * b[k * N + x];

One thread after the other walks along a column of b here; round by round, the threads of a row read side by side, as on
a GPU, and LLVM makes vectors of them.  Where each thread walks along memory of its own, the loop stays as it is.

    out[x * H + y] = in[y * W + x];

Column by column, threads write side by side here: what is written all over is slower than what is read so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from metal_dlpack.language.tokens import split

from .llvm_function import Block, Instruction
from .llvm_layout import Layout
from .varying import Varying, find_varying
from .waits import LANE, POSITION, SIMDGROUP, Thread, Wait

#: By how much parameters grow from thread to thread of a row: x in the threadgroup, its index, x in the grid, the lane.
_ROW = {**dict.fromkeys(POSITION, 0), **dict.fromkeys((POSITION[0], POSITION[3], POSITION[4], LANE), 1)}
#: And of a column: y in the threadgroup and in the grid; of the index it is not known.
_COLUMN: dict[str, int | None] = {**_ROW, POSITION[3]: None, LANE: None}
_COLUMN |= {POSITION[0]: 0, POSITION[4]: 0, POSITION[1]: 1, POSITION[5]: 1}
_COMPUTES = re.compile(r"@llvm\.(?!mem|masked)")
_SAME = {"zext", "sext", "trunc", "freeze"}
_UINT = str(2**32 - 1)  # as LLVM keeps a sum of its 64 bits


def wait_in_loops(thread: Thread, layout: Layout) -> bool:
    """Put a wait into the loops that are worth it.  False: there are none."""
    loops = [block for block in thread.blocks.values() if block.label in block.leads and _is_plain(block)]
    if not loops:
        return False
    made = _made(thread)
    varying = _varying(thread, made, loops)
    if not varying.is_lockstep:
        return False
    steps = _Steps(made, varying.values, layout, _ROW)
    worth = [one for one in loops if not varying.values.intersection(one.instructions[-1].values) and steps.fit(one)]
    for block in worth:
        _insert(thread, block)
    return bool(worth)


def goes_by_columns(thread: Thread, layout: Layout) -> bool:
    """Would threads of a column touch more that lies side by side than those of a row?"""
    made = _made(thread)
    varying = _varying(thread, made, []).values
    rows, columns = (_Steps(made, varying, layout, along).cost(thread) for along in (_ROW, _COLUMN))
    return columns < rows


def _made(thread: Thread) -> dict[str, Instruction]:
    return {one.name: one for block in thread.blocks.values() for one in block.instructions if one.name}


def _varying(thread: Thread, made: dict[str, Instruction], waiting: list[Block]) -> Varying:
    leads = {label: block.leads for label, block in thread.blocks.items()}
    own = [one.name for one in made.values() if one.operation == "alloca"]
    waits = frozenset(one.label for one in waiting)
    return find_varying(thread.blocks, leads, waits, [*POSITION, LANE, SIMDGROUP], own)


def _is_plain(block: Block) -> bool:
    """Does it touch memory and compute, and nothing else?"""
    return all(
        (one.operation != "call" or _COMPUTES.match(one.called))
        and not re.match(r"(?:load|store) (?:atomic|volatile)|atomicrmw|cmpxchg|fence", one.text)
        for one in block.instructions
    )


class _Steps:
    """How far from thread to thread a value grows; None: that is not known.  along: of the parameters."""

    def __init__(
        self,
        made: dict[str, Instruction],
        varying: frozenset[str],
        layout: Layout,
        along: Mapping[str, int | None],
    ):
        self._made, self._varying, self._layout = made, varying, layout
        self._known = dict(along)

    def fit(self, block: Block) -> bool:
        """Do the threads touch the same, or what lies side by side; and some the latter?"""
        found = {self._apart(one) for one in block.instructions if one.operation in {"load", "store"}}
        return found in ({1}, {0, 1})

    def cost(self, thread: Thread) -> int:
        """What is touched all over: a store is twice as slow as a load."""
        touching = (one for block in thread.blocks.values() for one in block.instructions)
        return sum(
            1 + (one.operation == "store")
            for one in touching
            if one.operation in {"load", "store"} and self._apart(one) not in {0, 1}
        )

    def _apart(self, one: Instruction) -> int | None:
        """Where two threads beside each other touch memory.  0: the same place; 1: side by side; None: anywhere."""
        kind = split(one.text.removeprefix(f"{one.operation} "))[0]
        kind = kind.rpartition(" ")[0] if one.operation == "store" else kind
        step = self.of(one.values[-1])
        return step if not step else step - self._layout.stride(kind) + 1

    def of(self, name: str) -> int | None:
        if re.fullmatch(r"-?\d+|null|true|false", name):
            return 0
        if name not in self._known:
            self._known[name] = None  # of what is made of itself
            self._known[name] = self._of(name)
        return self._known[name]

    def _of(self, name: str) -> int | None:
        if name not in self._varying:
            return 0
        one = self._made.get(name)
        if one is None or one.operation == "phi":
            return None
        operands = [operand.rpartition(" ")[2] for operand in split(one.text.partition(" ")[2])]
        if one.operation in _SAME or (one.operation == "and" and operands[1] == _UINT):
            return self.of(one.values[0])
        if one.operation == "getelementptr":
            return self._of_pointer(one)
        steps = [self.of(each) for each in one.values]
        if None in steps:
            return None
        if not any(steps):
            return 0
        left, right = (self.of(operand) for operand in operands[:2])
        assert left is not None and right is not None
        if one.operation == "add" or one.text.startswith("or disjoint"):
            return left + right
        if one.operation == "sub":
            return left - right
        if one.operation in {"mul", "shl"} and operands[1].isdecimal():
            return left * int(operands[1]) if one.operation == "mul" else left << int(operands[1])
        return None

    def _of_pointer(self, one: Instruction) -> int | None:
        kind, base, *indices = split(re.sub(r"getelementptr (?:inbounds |nuw |nusw )*", "", one.text))
        start, step = self.of(base.rpartition(" ")[2]), self.of(indices[0].rpartition(" ")[2])
        rest = [self.of(index.rpartition(" ")[2]) for index in indices[1:]]
        if start is None or step is None or any(more != 0 for more in rest):
            return None
        return start + step * self._layout.stride(kind)


def _insert(thread: Thread, block: Block) -> None:
    """A wait behind the phis, and what is behind it in a block of its own, from which the next round comes."""
    rest = [one for one in block.instructions if one.operation != "phi"]
    block.instructions = list(block.phis())
    behind = thread.end_in(block, Wait(len(thread.waits) + 1, is_group=True))
    behind.instructions = rest
    thread.come_from({block.label: behind.label})
