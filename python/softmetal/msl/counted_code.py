"""What a counting kernel tells before it touches memory or branches, and how often it computes.

A counting image is compiled twice.  The first run of clang only reads the source and inlines what is always inlined:
nothing is merged, moved or dropped yet, so that each access of the source is one load, one store or one copy of
LLVM's text.  Here a call is put before each of them, which the second run, which optimises, must leave where it is:

    call void @softmetal_count(ptr %9, ptr @softmetal_access_table), !dbg !473
    %10 = load float, ptr %9, align 4, !dbg !473

Where no loop leads back to an access, each thread comes there at most once: `softmetal_count_once` is cheaper, with the
place in `softmetal_once_table` where each lane says where it was.

`softmetal_access_table` has a soft_counted (softmetal_kernel.h) for each access, with its line.  Not counted:

- variables of a thread, as far as the text shows that a pointer leads there; the run time knows the others;
- what is at no line of the user's: the run time's own;
- what is behind a name of the program: constants of the source.

Components of one vector that one expression reads (`v.xz`) are loads of their own here, and one access together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from metal_dlpack.language.errors import CompilerError
from metal_dlpack.language.tokens import split

from .checked_code import COPY
from .llvm_function import typed
from .llvm_layout import Layout
from .llvm_loops import LABEL, in_loops
from .llvm_places import find_places
from .llvm_values import DBG, LOAD, NAME, Values, address_of

#: softmetal_kernel.h.
WRITE, ATOMIC, READ, BRANCH = 1, 2, 4, 16
#: Bytes of a soft_counted, and of what the run time writes into it.
_SITE, _OF_RUN_TIME = 152, 120
#: Bytes in which the lanes of a SIMD-group say where they were.
_LANES = 32 * 8

_STORE = re.compile(r"  store (?P<atomic>atomic )?(?:volatile )?(?P<rest>.*)")
_RMW = re.compile(r"  (?:\S+ = )?atomicrmw (?:volatile )?\w+ ptr (?P<rest>.*)")
_EXCHANGE = re.compile(r"  (?:\S+ = )?cmpxchg (?:weak )?(?:volatile )?ptr (?P<rest>.*)")
_BRANCH = re.compile(r"  br i1 (?P<condition>\S+), label")
#: The function of the shim that each thread enters once: the kernel is inlined there (softmetal_image.h).
_ENTERED = re.compile(r"define [^@]*@_ZN9softmetal5imageI\w*E5enterI")
_OPERATION = re.compile(
    r"  \S+ = (?P<what>f?(?:add|sub|mul|div|rem)|[us](?:div|rem)|fneg|shl|lshr|ashr|and|or|xor)"
    r" (?:(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nuw|nsw|exact|disjoint) )*(?P<type><\d+ x \w+>|\w+) "
)
_CALL = re.compile(
    r"  \S+ = (?:tail )?call (?:[\w() ]+ )?(?P<type><\d+ x \w+>|half|bfloat|float|double) @(?P<name>[\w.]+)\("
)
_WORDS = {
    **{f"f{one}": one for one in ("add", "sub", "mul", "div", "rem", "neg")},
    **{f"{sign}{one}": one for sign in "us" for one in ("div", "rem")},
    **dict.fromkeys(("shl", "lshr", "ashr"), "shift"),
}
#: Files of the library whose loops stand for what a GPU does at once.
_EMULATES = {"softmetal_simdgroups.h", "softmetal_simdgroup_matrix.h", "softmetal_atomics.h", "softmetal_runtime.h"}


@dataclass(eq=False)
class _Site:
    """One access: `nbytes` from `root` + `low` on."""

    number: int
    place: tuple[str, int, int]
    dbg: str
    how: int
    root: str
    low: int
    nbytes: int
    once: int | None  # its number among those that no loop leads back to
    parts: set[int] = field(default_factory=set)

    def text(self) -> str:
        table = f"ptr getelementptr inbounds (i8, ptr @softmetal_access_table, i64 {self.number * _SITE})"
        name, dbg, made = f"%softmetal.{self.number}", f"!dbg !{self.dbg}", ""
        if self.how == BRANCH:
            made = f"  {name}.bit = zext i1 {self.root} to i64, {dbg}\n"
            made += f"  {name} = inttoptr i64 {name}.bit to ptr, {dbg}\n"
        elif self.low != 0:
            made = f"  {name} = getelementptr i8, ptr {self.root}, i64 {self.low}, {dbg}\n"
        else:
            name = self.root
        if self.once is not None:
            return f"{made}  call void @softmetal_count_once(ptr {name}, {table}, {_lanes(self.once)}), {dbg}"
        return f"{made}  call void @softmetal_count(ptr {name}, {table}), {dbg}"


def instrument(text: str) -> str:
    """Return LLVM's text of a kernel with the calls in it."""
    return _Module(text).instrumented()


class _Module:
    def __init__(self, text: str):
        self._lines = text.rstrip("\n").split("\n")
        types: dict[str, str] = {}
        nodes = {}
        for line in self._lines:
            if line.startswith("!") and (found := re.match(r"!(\d+) = (?:distinct )?(!DI\w+\(.*)", line)):
                nodes[found[1]] = found[2]
            elif line.startswith("%") and (found := re.match(rf"({NAME}) = type (.*)", line)):
                types[found[1]] = found[2]
        self._layout = Layout(types)
        self._places, self._library = find_places(nodes)
        self._sites: list[_Site] = []
        self._is_once, self._once_count = False, 0
        #: By block that computes: (line, what, type) and how often.
        self._blocks: list[Counter[tuple[int, str, str]]] = []

    def instrumented(self) -> str:
        made: list[str | _Site | _Block] = []
        body: list[str] = []
        is_inside = False
        for line in self._lines:
            if line.startswith("define "):
                is_inside = True
                line = self._inlined(line)
            if is_inside and line == "}":
                made += self._function(body)
                body, is_inside = [], False
            if is_inside:
                body.append(line)
            else:
                made.append(line)
        texts = (one if isinstance(one, str) else one.text() for one in made)
        declared = ["declare void @softmetal_count(ptr, ptr)", "declare void @softmetal_count_once(ptr, ptr, ptr)"]
        return "\n".join([*texts, *self._tables(), *declared, ""])

    def _inlined(self, define: str) -> str:
        """The kernel becomes part of the loop over the threads, now that its own loops are told from that one."""
        group = re.search(r" #(\d+) ", define) if _ENTERED.match(define) else None
        if group is None:
            return define
        [attributes] = [line for line in self._lines if line.startswith(f"attributes #{group[1]} = ")]
        own = f"#{10**6 + int(group[1])} "
        self._lines.append(attributes.replace(f"#{group[1]} ", own).replace(" noinline ", " alwaysinline "))
        return define.replace(group[0], f" {own}")

    # ---- one function ----

    def _function(self, body: list[str]) -> Iterator[str | _Site | _Block]:
        values = Values(body, self._layout)
        pending: dict[tuple[int, str, str], _Site] = {}
        block: _Block | None = None
        is_once = self._is_once = _ENTERED.match(body[0]) is not None
        looping = in_loops(body) if is_once else set()
        for line in body:
            if LABEL.match(line) or (" call " in line and "@llvm." not in line):
                pending = {}
            if (label := LABEL.match(line)) is not None:
                block = None
                self._is_once = is_once and label[1] not in looping
            dbg = DBG.search(line)
            # LLVM before 19 says where a variable is by a call, which with another function's place spoils all places.
            if dbg is None or not line.startswith("  ") or "@llvm.dbg." in line:
                yield line
                continue
            at, library = self._library.get(dbg[1], (dbg[1], ""))
            line = line.replace(dbg[0], f", !dbg !{at}")
            place = self._places.get(at)
            if place is None:
                yield line
                continue
            if not (library and _BRANCH.match(line)):
                yield from self._accesses(line, place, at, values, pending)
            operation = None if library in _EMULATES else _operation(line)
            if operation is not None:
                if block is None:
                    block = _Block(len(self._blocks), at)
                    self._blocks.append(Counter())
                    yield block
                what, kind, count = operation
                self._blocks[block.number][place[1], what, kind] += count
            yield line

    def _accesses(
        self,
        line: str,
        place: tuple[str, int, int],
        dbg: str,
        values: Values,
        pending: dict[tuple[int, str, str], _Site],
    ) -> Iterator[_Site]:
        """The sites of one instruction that are not in the text yet."""
        for how, address, nbytes in self._touched(line):
            if not address.startswith("%") or (how != BRANCH and values.is_local(address)):
                continue
            root, low = (address, 0) if how & (ATOMIC | BRANCH) else values.root(address)
            key = (how, dbg, root)
            one = pending.get(key)
            if one is not None and low not in one.parts and not how & (ATOMIC | BRANCH):
                end = max(one.low + one.nbytes, low + nbytes)
                one.low = min(one.low, low)
                one.nbytes = end - one.low
                one.parts.add(low)
                continue
            once = self._once_count if self._is_once else None
            self._once_count += self._is_once
            one = _Site(len(self._sites), place, dbg, how, root, low, nbytes, once, {low})
            pending[key] = one
            self._sites.append(one)
            yield one

    def _touched(self, line: str) -> Iterator[tuple[int, str, int]]:
        """(how, address, bytes) of what an instruction touches."""
        if (found := LOAD.match(line)) is not None:
            kind, address, *_ = split(found["rest"])
            yield (ATOMIC if found["atomic"] else 0), address_of(address), self._layout.size(kind)
        elif (found := _STORE.match(line)) is not None:
            value, address, *_ = split(found["rest"])
            nbytes = self._layout.size(typed(value))
            yield WRITE | (ATOMIC if found["atomic"] else 0), address_of(address), nbytes
        elif (found := _RMW.match(line) or _EXCHANGE.match(line)) is not None:
            address, value, *_ = split(found["rest"])
            yield WRITE | READ | ATOMIC, address, self._layout.size(value.split()[0])
        elif (found := COPY.match(line)) is not None:
            to, second, extent, *_ = split(found["arguments"])
            length = extent.removeprefix("i64 ")
            if not length.isdigit():
                raise CompilerError(f"LLVM writes a copy of a length that is not known: {line.strip()}")
            if length == "0":
                return
            if found["what"] != "set":
                yield 0, second.rpartition(" ")[2], int(length)
            yield WRITE, to.rpartition(" ")[2], int(length)
        elif (found := _BRANCH.match(line)) is not None:
            yield BRANCH, found["condition"], 1

    # ---- what the run time reads ----

    def _tables(self) -> Iterator[str]:
        files = list(dict.fromkeys(site.place[0] for site in self._sites))
        for number, file in enumerate(files):
            yield f"@softmetal_file_{number} = private constant {_string(file)}"
        rows = [
            f"{_ROW} {{ ptr @softmetal_file_{files.index(one.place[0])}, i32 {one.place[1]}, i32 {one.place[2]}, "
            f"i32 {one.nbytes}, i32 {one.how}, {'ptr null' if one.once is None else _lanes(one.once)}, "
            f"[{_OF_RUN_TIME} x i8] zeroinitializer }}"
            for one in self._sites
        ]
        table = f"[{len(rows)} x {_ROW}] [{', '.join(rows)}]"
        yield f'@softmetal_access_table = hidden global {table}, section "softmetal_counted", align 8'
        yield f"@softmetal_once_table = internal global [{_LANES * self._once_count} x i8] zeroinitializer, align 64"
        if self._blocks:
            count = len(self._blocks)
            yield (
                f"@softmetal_block_table = hidden global [{count} x i64] zeroinitializer, "
                'section "softmetal_executions", align 8'
            )
            said = "".join(
                f"{block} {line} {what} {kind} {count}\n"
                for block, counted in enumerate(self._blocks)
                for (line, what, kind), count in counted.items()
            )
            yield f'@softmetal_operation_table = hidden constant {_string(said)}, section "softmetal_operations"'


_ROW = f"{{ ptr, i32, i32, i32, i32, ptr, [{_OF_RUN_TIME} x i8] }}"


def _lanes(once: int) -> str:
    return f"ptr getelementptr inbounds (i8, ptr @softmetal_once_table, i64 {once * _LANES})"


@dataclass(frozen=True)
class _Block:
    """Counts how often what follows is carried out."""

    number: int
    dbg: str

    def text(self) -> str:
        name, at = f"%softmetal.block.{self.number}", f"!dbg !{self.dbg}"
        place = f"ptr getelementptr inbounds (i8, ptr @softmetal_block_table, i64 {8 * self.number})"
        return (
            f"  {name}.was = load i64, {place}, align 8, {at}\n"
            f"  {name}.is = add i64 {name}.was, 1, {at}\n"
            f"  store i64 {name}.is, {place}, align 8, {at}"
        )


def _operation(line: str) -> tuple[str, str, int] | None:
    """(what, type, how many) of an instruction that computes."""
    found = _OPERATION.match(line)
    if found is not None:
        what = _WORDS.get(found["what"], found["what"])
    elif (found := _CALL.match(line)) is not None:
        name = found["name"].removeprefix("llvm.").partition(".")[0]
        what = "fma" if name in {"fma", "fmuladd"} else "function"
        if name in {"fabs", "copysign", "experimental"} or name.startswith(("_ZN9softmetal", "softmetal")):
            return None
    else:
        return None
    vector = re.fullmatch(r"<(\d+) x (\w+)>", found["type"])
    kind, count = (vector[2], int(vector[1])) if vector else (found["type"], 1)
    return what, kind, count


def _string(text: str) -> str:
    data = text.encode() + b"\0"
    escaped = "".join(f"\\{byte:02X}" for byte in data)
    return f'[{len(data)} x i8] c"{escaped}"'
