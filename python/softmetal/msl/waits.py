"""The function of one thread of a kernel, in LLVM's text, cut where it waits.

What it waits by and asks for are calls of functions that softmetal_runtime.h declares for this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from .llvm_function import Block, Instruction, read_blocks
from .llvm_loops import LABEL, in_order, leads_of

#: The parameters: arguments; the threadgroup's first thread; where in it this one is, and its index; where in the grid;
#: lane and SIMD-group.
ROW, ORIGIN, *POSITION, LANE, SIMDGROUP = (f"%v{number}" for number in range(11))
INDEX = POSITION[3]
_ENTRY = "v11"
SPOKEN = re.compile(r"@_ZN9softmetalL?\d+(wait_for_group|wait_for_lanes|lane_of_thread|lane_values|variable_address)E")
_WAITS_FOR_LANES = re.compile(r"(.*\bcall .*@_ZN9softmetal\d+wait_for_lanesE\w+\(.*\bi32 (?:noundef )?)0(\).*)")
_FUNCTION = re.compile(r"^define .*?^\}$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"i\d+ (?:noundef )?(-?\d+)")
_VARIABLE = re.compile(r'asm sideeffect "[^"]*softmetal_variables')
_PLACE = re.compile(r"getelementptr .*?, ptr (%[^ ,]+)")
_COUNTS = re.compile(
    r"atomicrmw (?:volatile )?(add|sub|and|or|xor) ptr (%[^ ,]+), (i\d+) (\S+) monotonic(, align \d+)?$"
)
_ALL_LANES = 1 << 31
_BARRIER, _LANES, _EVERY_LANE = 1, 2, 3  # softmetal_kernel.h


@dataclass(frozen=True)
class Wait:
    """What a region begins behind; the entry is number 0.  nbytes: what a lane gives."""

    number: int
    is_group: bool
    is_for_all: bool = False
    nbytes: int = 0

    @property
    def kind(self) -> int:
        return _BARRIER if self.is_group else _EVERY_LANE if self.is_for_all else _LANES


@dataclass
class Thread:
    """The function, with a block behind each wait.  starts: those, by the waits' numbers; the entry's is 0."""

    blocks: dict[str, Block] = field(default_factory=dict)
    starts: dict[int, str] = field(default_factory=dict)
    waits: dict[int, Wait] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)  # lines of assembly that declare variables of the threadgroup ...
    variables: dict[int, tuple[int, int]] = field(default_factory=dict)  # ... which, by number: bytes and alignment

    @property
    def asks_for_lane(self) -> bool:
        return any("lane_of_thread" in one.called for block in self.blocks.values() for one in block.instructions)

    def end_in(self, block: Block, wait: Wait) -> Block:
        """End a block in a wait; returns the empty one behind it."""
        block.instructions.append(Instruction("", f"wait {wait.number}"))
        behind = Block(f"behind{wait.number}")
        self.waits[wait.number] = wait
        self.blocks[behind.label] = behind
        self.starts[wait.number] = behind.label
        return behind

    def come_from(self, ends: Mapping[str, str]) -> None:
        """Say in the phis where blocks end, once they are cut."""
        for block in self.blocks.values():
            for one in block.phis():
                one.text = re.sub(r", %([-\w.$]+) \]", lambda at: f", %{ends.get(at[1], at[1])} ]", one.text)

    def leads(self, label: str, *, past_waits: bool) -> list[str]:
        last = self.blocks[label].instructions[-1]
        if last.operation != "wait":
            return self.blocks[label].leads
        return [self.starts[wait_of(last)]] if past_waits else []


def wait_of(one: Instruction) -> int:
    """The number of the wait that ends a block."""
    return int(one.text.split()[1])


def numbers_in(call: str) -> list[int]:
    """The constants among the arguments of a call."""
    return [int(number) for number in _NUMBER.findall(call[call.index("(") :])]


def plane(nbytes: int) -> int:
    """Where the places of the lanes begin for what has so many bytes; SOFT_SIMD_PLANE of softmetal_kernel.h."""
    return 32 * ((1 << (nbytes - 1).bit_length()) - 1)


def read_thread(text: str) -> Thread:
    """Read the function's body."""
    thread = Thread()
    ends: dict[str, str] = {}  # where a block of the text ends, once it is cut
    blocks = read_blocks(text, _ENTRY)
    used = {name for block in blocks.values() for one in block.instructions for name in one.values}
    shared: set[str] = set()  # pointers to variables of the threadgroup
    # Lanes that wait at several places meet at the first one: those within a loop come before what is behind it
    for label in in_order({label: block.leads for label, block in blocks.items()}):
        block = blocks[label]
        here = thread.blocks[label] = Block(label)
        thread.starts.setdefault(0, label)
        for one in block.instructions:
            spoken = SPOKEN.match(one.called)
            if one.operation == "call" and " asm sideeffect " in one.text and "softmetal_" in one.text:
                _note(thread, one.text)
            elif spoken is None or not spoken[1].startswith("wait"):
                if (spoken is not None and spoken[1] == "variable_address") or _leads_into(one, shared):
                    shared.add(one.name)
                here.instructions += _of_one_thread(one, shared)
            else:
                here = thread.end_in(here, _wait(len(thread.waits) + 1, spoken[1], one))
                if one.name in used:
                    here.instructions.append(Instruction(one.name, "or i32 %met, 0"))
        ends[label] = here.label
    thread.come_from(ends)
    return thread


def tell_order(text: str) -> str:
    """Return LLVM's text of a kernel with each wait of lanes told which it is in the order of the source, from 1 on.

    Where lanes of branches that part wait at several places, those of the first one go on; LLVM lays code out anew.
    """
    numbers = count(1)
    return _FUNCTION.sub(lambda found: "\n".join(_told_order(found[0].split("\n"), numbers)), text)


def _told_order(lines: list[str], numbers: Iterator[int]) -> list[str]:
    """The same of a function's lines, of which the first one begins it."""
    waits: dict[str, list[int]] = {}
    label = ""
    for at, line in enumerate(lines):
        if (found := LABEL.match(line)) is not None:
            label = found[1]
        elif _WAITS_FOR_LANES.match(line):
            waits.setdefault(label, []).append(at)
    for label in in_order(leads_of(lines[1:])) if waits else ():
        for at in waits.get(label, ()):
            lines[at] = _WAITS_FOR_LANES.sub(rf"\g<1>{next(numbers)}\2", lines[at])
    return lines


def _leads_into(one: Instruction, known: set[str]) -> bool:
    """Does it make a pointer from one that is known?"""
    place = _PLACE.match(one.text)
    return place is not None and place[1] in known


def _of_one_thread(one: Instruction, shared: set[str]) -> list[Instruction]:
    """What is atomic among the threads of a threadgroup, which one thread of the system runs: no lock of the processor.

    It stays in its place, and is no vector, because it is volatile.
    """
    found = _COUNTS.match(one.text)
    if found is None or found[2] not in shared:
        return [one]
    how, place, kind, by, unit = found.groups("")
    return [
        Instruction(one.name, f"load volatile {kind}, ptr {place}{unit}"),
        Instruction(f"{one.name}.n", f"{how} {kind} {one.name}, {by}"),
        Instruction("", f"store volatile {kind} {one.name}.n, ptr {place}{unit}"),
    ]


def _note(thread: Thread, mark: str) -> None:
    """A mark of the shim: nothing that a thread does."""
    if _VARIABLE.search(mark) and mark not in thread.marks:
        thread.marks.append(mark)
        number, nbytes, unit = re.findall(r"i\d+ (\d+)", mark.rpartition('"(')[2])
        thread.variables[int(number)] = int(nbytes), int(unit)


def _wait(number: int, how: str, call: Instruction) -> Wait:
    if how == "wait_for_group":
        return Wait(number, is_group=True)
    given, _ = numbers_in(call.text)
    return Wait(number, is_group=False, is_for_all=bool(given & _ALL_LANES), nbytes=given & (_ALL_LANES - 1))
