"""A kernel that waits, split into regions: what one thread does from its entry, or a wait, to the next wait or the end.

    load; store; barrier; loop { load; barrier }; store

        region 0   from the entry: load, store        -> "waits at 1"
        region 1   from wait 1: the loop's first load -> "waits at 2", or the end
        region 2   from wait 2: the next load, or the loop's end ...

A region is a function of a thread that says where it ended: the number of a wait, or END.  region_loops.py runs it for
many threads in a loop that LLVM turns into vectors; what a thread keeps across a wait lies in an array with a place
for each thread, and what is the same for all threads once beside it.  Nothing is kept that is cheaper to compute again
from the thread's position and the arguments.

The text is that of clang at -O2 with no vectors made; `softmetal_one_thread` (softmetal_image.h) is the kernel for
one thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from metal_dlpack.language.tokens import split

from .llvm_function import PURE, Instruction, type_of
from .llvm_layout import Layout
from .llvm_values import VALUE
from .region_loops import END, MOST_THREADS, ONE_THREAD, Question, Region, attributes_of, write_loops
from .side_by_side import goes_by_columns, wait_in_loops
from .varying import find_varying, reached
from .waits import (
    INDEX,
    LANE,
    ORIGIN,
    POSITION,
    ROW,
    SIMDGROUP,
    SPOKEN,
    Thread,
    Wait,
    numbers_in,
    plane,
    read_thread,
    wait_of,
)

#: What is computed again where it is used may take so many steps.
_CHEAP = 12
_DEAR = {"udiv", "sdiv", "urem", "srem", "fdiv", "frem"}
_QUESTION = re.compile(r"icmp (?:samesign )?(?P<how>\w+) i32 (?P<place>%v2|%v5|%v9), (?P<other>\S+)")
_PLACES = {"%v2": "x", "%v5": "index", "%v9": "lane"}
#: What the threads of a threadgroup keep may take so many bytes.
_MOST_SLOTS = 64 << 20
#: More text than so many times the function's is not made.
_MOST_GROWTH = 60


class CannotSplit(Exception):
    """Why threads of this kernel take turns on fibers."""


class NoWaits(Exception):
    """No thread of this kernel waits.  by_columns: a loop along y suits its threads better than one along x."""

    def __init__(self, by_columns: bool):
        super().__init__()
        self.by_columns = by_columns


@dataclass
class _Kept:
    """A value that other blocks read: loaded from, or stored to, a variable that LLVM dissolves."""

    is_load: bool
    name: str  # as which it is loaded
    value: str


_Line = Instruction | _Kept | Wait


def split_at_waits(text: str) -> str:
    """Return LLVM's text of a kernel with regions in place of its threads' function.  Raises CannotSplit."""
    found = ONE_THREAD.search(text)
    if found is None:
        raise CannotSplit("its text has no function of one thread")
    rest = text[: found.start()] + text[found.end() :]
    if any(SPOKEN.search(line) for line in rest.split("\n") if " call " in line):
        raise CannotSplit("a function that is not inlined waits, or asks which lane it is on")
    named = dict(re.findall(r"^(%\S+|%\"[^\"]*\") = type (.*)$", text, re.MULTILINE))
    thread = read_thread(found["body"])
    layout = Layout(named)
    runs_through = not thread.waits and not thread.asks_for_lane
    if runs_through and not wait_in_loops(thread, layout):
        raise NoWaits(goes_by_columns(thread, layout))
    made = _Split(thread, layout)
    regions = made.regions()
    if sum(len(one.text) for one in regions) > _MOST_GROWTH * len(found["body"]):
        raise CannotSplit("its regions would be too large")
    if made.slots_nbytes > _MOST_SLOTS:
        raise CannotSplit("what its threads keep would be too large")
    attributes = attributes_of(text, found["attributes"])
    if not attributes:
        raise CannotSplit("its attributes are not found")
    return write_loops(
        rest,
        regions,
        thread.marks,
        thread.variables,
        attributes,
        made.slots_nbytes,
        made.shared_nbytes,
        found[0] if runs_through else "",
    )


def is_free(text: str) -> bool:
    """Does nobody in a kernel's text wait?"""
    return SPOKEN.search(text) is None


# ---- splitting ----


class _Split:
    def __init__(self, thread: Thread, layout: Layout):
        self._thread, self._layout = thread, layout
        self._lines: dict[str, list[_Line]] = {}
        blocks = thread.blocks.items()
        self._made = {one.name: (label, one) for label, block in blocks for one in block.instructions if one.name}
        self._own: dict[str, tuple[int, int]] = {}  # variables of a thread: where they begin, and bytes of one
        self.slots_nbytes = self.shared_nbytes = 0
        self._place_variables()
        self._leads = leads = {label: thread.leads(label, past_waits=True) for label in thread.blocks}
        self._ways = {label: thread.leads(label, past_waits=False) for label in thread.blocks}  # of one region
        waiting = frozenset(label for label in leads if leads[label] and not self._ways[label])
        # Where lanes wait for each other, 32 of them go on together
        positions = [*POSITION, LANE, *([SIMDGROUP] if all(one.is_group for one in thread.waits.values()) else [])]
        self._varying = find_varying(thread.blocks, leads, waiting, positions, self._own)
        self._cost: dict[str, int] = {}
        self._kept: dict[str, str] = {}  # values that other blocks read, and their types
        self._copies = 0
        self._make_lines()
        self._live = self._find_live()

    def _place_variables(self) -> None:
        for name, (_, one) in self._made.items():
            if one.operation == "alloca":
                kind = split(one.text.removeprefix("alloca "))
                if len(kind) > 2 and not kind[1].startswith("align"):
                    raise CannotSplit("a thread's variable has no constant size")
                each = -(-self._layout.size(kind[0]) // 16) * 16
                self._own[name] = self.slots_nbytes, each
                self.slots_nbytes += each * MOST_THREADS

    # -- what is computed again --

    def _is_invariant(self, pointer: str) -> bool:
        """Does it lead to the arguments or the launch, which nobody writes?"""
        root = self._root(pointer)
        if root in self._made and self._made[root][1].text == f"load ptr, ptr {ORIGIN}, align 8":
            return True  # the launch
        return root in {ROW, ORIGIN}

    def _root(self, pointer: str) -> str:
        while pointer in self._made and self._made[pointer][1].operation == "getelementptr":
            pointer = self._made[pointer][1].values[0]
        return pointer

    def _is_pure(self, name: str) -> bool:
        one = self._made[name][1]
        if one.operation == "load":
            return self._is_invariant(one.values[-1]) if one.values else False
        if one.operation == "call":
            spoken = SPOKEN.match(one.called)
            return spoken is not None and not spoken[1].startswith("wait")
        return (
            PURE.fullmatch(one.operation) is not None
            and one.operation not in _DEAR
            and not one.text.startswith("or i32 %met")
        )

    def _steps(self, name: str) -> int:
        """How many steps it takes to make a value again where it is used; more than _CHEAP: it is kept."""
        if name not in self._made:
            return 0
        if name in self._own:
            return 1
        if name not in self._cost:
            self._cost[name] = _CHEAP + 1
            one = self._made[name][1]
            if one.operation == "extractvalue":  # its whole is what is kept
                self._cost[name] = 1
            elif self._is_pure(name):
                self._cost[name] = 1 + sum(0 if self._is_shared(used) else self._steps(used) for used in one.values)
        return self._cost[name]

    def _is_shared(self, name: str) -> bool:
        """Kept, but once for all threads."""
        return name in self._made and not self._differs(name) and not self._is_pure(name)

    def _differs(self, name: str) -> bool:
        return not self._varying.is_lockstep or name in self._varying.values

    # -- lines --

    def _make_lines(self) -> None:
        for label, block in self._thread.blocks.items():
            made: list[_Line] = []
            here: dict[str, str] = {}
            for one in block.instructions:
                if one.operation == "wait":
                    made.append(self._thread.waits[wait_of(one)])
                elif one.operation == "phi":
                    made.append(one)
                    here[one.name] = one.name
                elif one.name not in self._own:
                    text = self._renamed(one.text, made, here)
                    made += self._lowered(one.name, text)
                    here[one.name] = one.name
            self._lines[label] = made
        for lines in self._lines.values():
            for at, line in enumerate(lines):
                if isinstance(line, Instruction) and line.operation == "phi":
                    lines[at] = Instruction(line.name, re.sub(r"\[ (.+?), %([-\w.$]+) \]", self._arm, line.text))
        for label, lines in self._lines.items():
            self._lines[label] = list(self._with_stores(lines))

    def _renamed(self, text: str, made: list[_Line], here: dict[str, str]) -> str:
        """The text with each value of another block loaded, or made again, before it."""
        parts = re.split(r"(label %\S+)", text)
        return "".join(
            part if part.startswith("label ") else VALUE.sub(lambda name: self._value(name[0], made, here), part)
            for part in parts
        )

    def _value(self, name: str, made: list[_Line], here: dict[str, str]) -> str:
        if name not in self._made or name in here:
            return here.get(name, name)
        self._copies += 1
        new = f"%c{self._copies}"
        one = self._made[name][1]
        if name in self._own:
            begin, each = self._own[name]
            made += [
                Instruction(f"{new}.i", f"zext i32 {INDEX} to i64"),
                Instruction(f"{new}.m", f"mul i64 {new}.i, {each}"),
                Instruction(f"{new}.b", f"getelementptr i8, ptr %own, i64 {begin}"),
                Instruction(new, f"getelementptr i8, ptr {new}.b, i64 {new}.m"),
            ]
        elif self._steps(name) <= _CHEAP:
            made += self._lowered(new, self._renamed(one.text, made, here))
        else:
            self._kept.setdefault(name, type_of(one))
            made.append(_Kept(True, new, name))
        here[name] = new
        return new

    def _arm(self, arm: re.Match[str]) -> str:
        """A value that comes into a block is loaded, or made again, at the end of the one that it comes from."""
        value, label = arm[1], arm[2]
        if value in self._made and self._made[value][0] != label:
            lines = self._lines[label]
            made: list[_Line] = []
            value = self._value(value, made, {})
            lines[-1:] = [*made, lines[-1]]
        return f"[ {value}, %{label} ]"

    def _with_stores(self, lines: list[_Line]) -> Iterator[_Line]:
        """Each value that is kept is stored where it is made; those of phis behind the last phi."""
        later: list[_Line] = []
        for line in lines:
            is_phi = isinstance(line, Instruction) and line.operation == "phi"
            if not is_phi:
                yield from later
                later = []
            yield line
            if isinstance(line, Instruction) and line.name in self._kept:
                if is_phi:
                    later.append(_Kept(False, "", line.name))
                else:
                    yield _Kept(False, "", line.name)

    # -- what lives across a wait --

    def _find_live(self) -> dict[str, set[str]]:
        reads: dict[str, set[str]] = {}
        writes: dict[str, set[str]] = {}
        for label, lines in self._lines.items():
            reads[label], writes[label] = set(), set()
            for line in lines:
                if isinstance(line, _Kept):
                    if line.is_load and line.value not in writes[label]:
                        reads[label].add(line.value)
                    elif not line.is_load:
                        writes[label].add(line.value)
        live = {label: set(reads[label]) for label in reads}
        is_new = True
        while is_new:
            is_new = False
            for label in reversed(list(live)):
                after = set().union(*(live[to] for to in self._leads[label])) if self._leads[label] else set()
                now = reads[label] | (after - writes[label])
                is_new |= now != live[label]
                live[label] = now
        return live

    def regions(self) -> list[Region]:
        """One for the entry and one behind each wait, by their numbers."""
        at = {number: sorted(self._live[label]) for number, label in self._thread.starts.items()}
        places = self._places(sorted({name for names in at.values() for name in names}))
        holds_pointers = any("ptr" in self._kept[name] for name in places)
        return [self._region(number, at, places, holds_pointers) for number in sorted(at)]

    def _places(self, names: list[str]) -> dict[str, int]:
        """Where a value of each thread begins among the slots, or the one of all among what is shared."""
        places = {}
        for name in names:
            each = self._layout.stride(_stored(self._kept[name]))
            if self._differs(name):
                # The odd lines keep arrays of a page's length out of each other's way in the cache
                places[name] = self.slots_nbytes = -(-self.slots_nbytes // 64) * 64 + 320
                self.slots_nbytes += each * MOST_THREADS
            else:
                places[name] = -(-self.shared_nbytes // 64) * 64
                self.shared_nbytes = places[name] + each
        return places

    def _region(self, number: int, at: dict[int, list[str]], places: dict[str, int], holds_pointers: bool) -> Region:
        start = self._thread.starts[number]
        within = reached(self._ways, [start])
        inside = [label for label in self._lines if label in within]
        lines = [line for label in inside for line in self._lines[label]]
        wrote = {line.value for line in lines if isinstance(line, _Kept) and not line.is_load}
        used = {line.value for line in lines if isinstance(line, _Kept)}
        shared: dict[str, str] = {}
        text = ["entered:"]
        for name in sorted(used | set(at[number])):
            text.append(f"{name}.a = alloca {self._kept[name]}")
        for name in at[number]:
            kind = self._kept[name]
            if self._differs(name):
                if name in used:
                    text += [*self._slot(name, f"{name}.s", places), *_load(kind, f"{name}.l", f"{name}.s")]
                    text.append(f"store {kind} {name}.l, ptr {name}.a")
            else:
                shared[name] = _stored(kind)
                text += _narrowed(kind, f"{name}.l", f"{name}.in")
                text.append(f"store {kind} {name}.l, ptr {name}.a")
        text.append(f"br label %{start}")
        answers: set[int] = set()
        for label in inside:
            text.append(f"{label}:")
            for line in self._lines[label]:
                text += self._written(line, inside, at, places, wrote, answers)
        return Region(
            self._thread.waits.get(number, Wait(0, is_group=True)),
            sorted(answers),
            {name: (kind, places[name]) for name, kind in shared.items()},
            "\n".join(text),
            self._question(start, shared),
            not holds_pointers,
            any("%met" in line for line in text),
        )

    def _question(self, start: str, shared: dict[str, str]) -> Question | None:
        """What the first branch asks, if it is of the thread's place beside what all threads know."""
        lines = self._lines[start]
        last = lines[-1]
        asked = re.match(r"br i1 (%\S+), label", last.text) if isinstance(last, Instruction) else None
        for line in lines if asked else ():
            if isinstance(line, Instruction) and asked and line.name == asked[1]:
                found = _QUESTION.fullmatch(line.text)
                return _asked(line.line, found, self._known(lines, shared)) if found else None
        return None

    def _known(self, lines: list[_Line], shared: dict[str, str]) -> dict[str, str]:
        """Names in a region's first block of what it is given from outside."""
        return {
            one.name: f"{one.value}.in" for one in lines if isinstance(one, _Kept) and shared.get(one.value) == "i32"
        }

    def _written(
        self,
        line: _Line,
        inside: list[str],
        at: dict[int, list[str]],
        places: dict[str, int],
        wrote: set[str],
        answers: set[int],
    ) -> Iterator[str]:
        if isinstance(line, _Kept):
            kind = self._kept[line.value]
            value = f"ptr {line.value}.a"
            yield f"{line.name} = load {kind}, {value}" if line.is_load else f"store {kind} {line.value}, {value}"
        elif isinstance(line, Wait):
            for name in at[line.number]:
                if self._differs(name) and name not in wrote:
                    continue  # it lies there
                self._copies += 1
                new = f"%o{self._copies}"
                kind = self._kept[name]
                yield f"{new} = load {kind}, ptr {name}.a"
                yield from self._slot(name, f"{new}.s", places)
                yield from _store(kind, new, f"{new}.s")
            answers.add(line.number)
            yield f"ret i32 {line.number}"
        elif line.operation == "phi":
            arms = re.findall(r"\[ .+?, %([-\w.$]+) \]", line.text)
            kept = [
                arm
                for arm, label in zip(re.findall(r"\[ .+?, %[-\w.$]+ \]", line.text), arms, strict=True)
                if label in inside
            ]
            yield f"{line.name} = {line.text[: line.text.index('[ ')]}{', '.join(kept)}"
        elif line.text == "ret void":
            answers.add(END)
            yield f"ret i32 {END}"
        else:
            yield line.line

    def _slot(self, name: str, to: str, places: dict[str, int]) -> Iterator[str]:
        if not self._differs(name):
            yield f"{to} = getelementptr i8, ptr %out, i64 {places[name]}"
            return
        yield f"{to}.b = getelementptr i8, ptr %slots, i64 {places[name]}"
        yield f"{to}.i = zext i32 {INDEX} to i64"
        yield f"{to} = getelementptr {_stored(self._kept[name])}, ptr {to}.b, i64 {to}.i"

    def _lowered(self, name: str, text: str) -> list[_Line]:
        """What a thread asks for, in plain steps; anything else as it is."""
        one = Instruction(name, text)
        spoken = SPOKEN.match(one.called)
        if spoken is None:
            return [one]
        numbers = numbers_in(text)
        if spoken[1] == "lane_of_thread":
            return [Instruction(name, f"or i32 {LANE}, 0")]
        if spoken[1] == "lane_values":
            nbytes, is_given = numbers
            where = "%given" if is_given else "%give"
            return [Instruction(name, f"getelementptr i8, ptr {where}, i64 {plane(nbytes)}")]
        place = list(self._thread.variables).index(numbers[0])
        return [
            Instruction(f"{name}.p", f"getelementptr i64, ptr %variables, i64 {place}"),
            Instruction(f"{name}.o", f"load i64, ptr {name}.p"),
            Instruction(name, f"getelementptr i8, ptr %memory, i64 {name}.o"),
        ]


def _asked(line: str, found: re.Match[str], known: dict[str, str]) -> Question | None:
    how, place, other = found["how"], _PLACES[found["place"]], found["other"]
    if other.lstrip("-").isdecimal():
        number = int(other)
        if number < 0 or how in {"uge", "sge", "ule", "sle"}:
            return None
        if how in {"ugt", "sgt"}:
            return Question(line, place, True, str(number + 1), True)
    elif other not in known or how not in {"ult", "eq", "ne"}:
        return None
    else:
        other = known[other]
    return Question(line, place, how in {"ult", "slt"}, other, how == "ne")


def _stored(kind: str) -> str:
    """As what a value lies in memory: a bit takes a byte, but for those of structures."""
    return kind if kind[0] in "{[%" else re.sub(r"\bi1\b", "i8", kind)


def _load(kind: str, name: str, address: str) -> Iterator[str]:
    if _stored(kind) == kind:
        yield f"{name} = load {kind}, ptr {address}"
    else:
        yield f"{name}.w = load {_stored(kind)}, ptr {address}"
        yield from _narrowed(kind, name, f"{name}.w")


def _narrowed(kind: str, name: str, stored: str) -> Iterator[str]:
    wide = _stored(kind)
    yield f"{name} = trunc {wide} {stored} to {kind}" if wide != kind else f"{name} = freeze {kind} {stored}"


def _store(kind: str, value: str, address: str) -> Iterator[str]:
    wide = _stored(kind)
    if wide != kind:
        yield f"{value}.w = zext {kind} {value} to {wide}"
        value = f"{value}.w"
    yield f"store {wide} {value}, ptr {address}"
