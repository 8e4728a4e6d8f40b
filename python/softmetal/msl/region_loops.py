"""Regions (regions.py) over many threads: a loop for each, which LLVM inlines and turns into vectors, and their table.

The loop goes along the rows of a threadgroup, or over the 32 lanes of a SIMD-group that are all there.  Threads of one
region touch nothing of each other, since no wait lies between them, unless they race: that is what its metadata says.

Where a region begins with a question of where its thread is, such as `if (l < 64)`, the loop is cut there: each part
of it knows the answer, and what has nothing to do takes no time.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from .waits import Wait

ONE_THREAD = re.compile(
    r"^define [^\n]*@softmetal_one_thread\([^\n]*\) [^\n]*?(?P<attributes>#\d+) [^\n]*\{\n(?P<body>.*?)^\}\n",
    re.MULTILINE | re.DOTALL,
)
#: softmetal_kernel.h.
MOST_THREADS = 1024
END, SEVERAL = 0xFFFF, 0xFFFE
#: The pointers of a soft_step in their order from its beginning on, and where its numbers lie.
_POINTERS = ("row", "origin", "slots", "in", "out", "memory", "variables", "given", "give", "next")
_NUMBERS = {"met": 80, "width": 84, "height": 88}
#: What may be read before it is known that it is needed: 128 arguments, or variables; a soft_thread; values of lanes.
_KNOWN = {"row": "!9006", "variables": "!9006", "origin": "!9007", "given": "!9008"}
_GRID_POSITION = 8  # in a soft_thread
_ASKS_Y = r"%v[37]\b"  # in the threadgroup, or in the grid: a kernel of rows of any length has no use for it

#: One thread after the other, from `from` to `to` - 1 of a row; a name for each value of each loop.
_THREADS = """
{n}.ask:
%{n}.any = icmp ult i32 {start}, {end}
br i1 %{n}.any, label %{n}, label %{n}.end
{n}:
%{n}.k = phi i32 [ {start}, %{n}.ask ], [ %{n}.up, %{n} ]
%{n}.or = phi i32 [ {o}, %{n}.ask ], [ %{n}.or.up, %{n} ]
%{n}.and = phi i32 [ {a}, %{n}.ask ], [ %{n}.and.up, %{n} ]
%{n}.x = add nuw nsw i32 {x}, %{n}.k
%{n}.i = add nuw nsw i32 {index}, %{n}.k
%{n}.gx = add nuw i32 %grid0, %{n}.x
%{n}.lane = {lane}
%{n}.sg = {simdgroup}
%{n}.r = call i32 @softmetal_region_{function}(ptr %row, ptr %origin, i32 %{n}.x, i32 {y}, i32 {z}, i32 %{n}.i,
 i32 %{n}.gx, i32 {gy}, i32 {gz}, i32 %{n}.lane, i32 %{n}.sg, ptr %slots, ptr %slots, ptr %out, ptr %memory,
 ptr %variables, ptr %given, ptr %give, i32 {met}{shared}), !llvm.access.group !9000
{keep}
%{n}.or.up = or i32 %{n}.or, %{n}.r
%{n}.and.up = and i32 %{n}.and, %{n}.r
%{n}.up = add nuw nsw i32 %{n}.k, 1
%{n}.done = icmp eq i32 %{n}.up, {end}
br i1 %{n}.done, label %{n}.end, label %{n}, !llvm.loop {loop}
{n}.end:
%{n}.o = phi i32 [ {o}, %{n}.ask ], [ %{n}.or.up, %{n} ]
%{n}.a = phi i32 [ {a}, %{n}.ask ], [ %{n}.and.up, %{n} ]
br label %{then}
"""
#: The wait that each thread came to, where they may come to several.
_KEEP = """%{n}.wide = zext i32 %{n}.i to i64
%{n}.next = getelementptr i16, ptr %next, i64 %{n}.wide
%{n}.short = trunc i32 %{n}.r to i16
store i16 %{n}.short, ptr %{n}.next, !llvm.access.group !9000"""

#: Where the first thread is; to divide is slow, and most threadgroups are rows.
_ENTERED = """
%end = add i32 %first, %count
%in_row = icmp ult i32 %first, %width
br i1 %in_row, label %entered, label %divide
divide:
%x.far = urem i32 %first, %width
%rows.before = udiv i32 %first, %width
%y.far = urem i32 %rows.before, %height
%z.far = udiv i32 %rows.before, %height
br label %entered
entered:
%x0 = phi i32 [ %first, %enter ], [ %x.far, %divide ]
%y0 = phi i32 [ 0, %enter ], [ %y.far, %divide ]
%z0 = phi i32 [ 0, %enter ], [ %z.far, %divide ]
%simdgroup = lshr i32 %first, 5
"""
#: A SIMD-group of which all lanes have come goes its own way where a region asks who has: it knows the answer.
_ALL_THERE = """
%far = add i32 %x0, 31
%fits = icmp ult i32 %far, %width
%whole = icmp eq i32 %count, 32
%everyone = icmp eq i32 %met, -1
%fits.whole = and i1 %fits, %whole
%full = and i1 %fits.whole, %everyone
br i1 %full, label %lanes, label %rows
lanes:
%gy0 = add nuw i32 %grid1, %y0
%gz0 = add nuw i32 %grid2, %z0
"""
#: All threads of one layer, with rows of sixteens: LLVM unrolls those, and takes what rows share out of the loops.  It
#: makes other loops where a row is one sixteen, because of `is_one`.
_ALL_ROWS = """
%layer = mul i32 %width, %height
%is_layer = icmp eq i32 %count, %layer
%is_first = icmp eq i32 %first, 0
%odd = and i32 %width, 15
%is_even = icmp eq i32 %odd, 0
%is_one = icmp eq i32 %width, 16
%is_all = and i1 %is_layer, %is_first
%are_sixteens = and i1 %is_all, %is_even
br i1 %are_sixteens, label %row16, label %rows
row16:
%y16 = phi i32 [ 0, %entered ], [ %y16.up, %row16.end ]
%o.row16 = phi i32 [ 0, %entered ], [ {o}, %row16.end ]
%a.row16 = phi i32 [ -1, %entered ], [ {a}, %row16.end ]
%gy16 = add nuw i32 %grid1, %y16
%row16.index = mul nuw i32 %y16, %width
br label %sixteen
sixteen:
%x16 = phi i32 [ 0, %row16 ], [ %x16.up, %sixteen.end ]
%o.16 = phi i32 [ %o.row16, %row16 ], [ {o}, %sixteen.end ]
%a.16 = phi i32 [ %a.row16, %row16 ], [ {a}, %sixteen.end ]
%index16 = add nuw i32 %row16.index, %x16
"""
_ALL_ROWS_END = """
sixteen.end:
%x16.up = add nuw i32 %x16, 16
%is_in_row16 = icmp ult i32 %x16.up, %width
%is_more16 = select i1 %is_one, i1 false, i1 %is_in_row16
br i1 %is_more16, label %sixteen, label %row16.end
row16.end:
%y16.up = add nuw i32 %y16, 1
%is_more.row16 = icmp ult i32 %y16.up, %height
br i1 %is_more.row16, label %row16, label %finished
"""
_ROWS = """
rows:
%index = phi i32 [ %first, %entered ], [ %index.next, %row.end ]
%x = phi i32 [ %x0, %entered ], [ 0, %row.end ]
%y = phi i32 [ %y0, %entered ], [ %y.next, %row.end ]
%z = phi i32 [ %z0, %entered ], [ %z.next, %row.end ]
%o.row = phi i32 [ 0, %entered ], [ {o}, %row.end ]
%a.row = phi i32 [ -1, %entered ], [ {a}, %row.end ]
%left = sub i32 %end, %index
%room = sub i32 %width, %x
%is_short = icmp ult i32 %left, %room
%n = select i1 %is_short, i32 %left, i32 %room
%gy = add nuw i32 %grid1, %y
%gz = add nuw i32 %grid2, %z
%lane0 = and i32 %index, 31
"""
_ROW_ENDS = """
row.end:
%index.next = add i32 %index, %n
%y.up = add i32 %y, 1
%is_top = icmp eq i32 %y.up, %height
%y.next = select i1 %is_top, i32 0, i32 %y.up
%z.up = add i32 %z, 1
%z.next = select i1 %is_top, i32 %z.up, i32 %z
%is_more = icmp ult i32 %index.next, %end
br i1 %is_more, label %rows, label %finished
finished:
"""


@dataclass(frozen=True)
class Question:
    """What a region asks first: is `place` (x, index or lane) before `other`, or is it that.

    line: of the region's text; is_inverted: the answer is the other way round.
    """

    line: str
    place: str
    is_order: bool
    other: str
    is_inverted: bool

    def told(self, text: str, answer: bool) -> str:
        """The region's text with the question answered."""
        name = self.line.partition(" = ")[0]
        return text.replace(self.line, f"{name} = freeze i1 {str(answer != self.is_inverted).lower()}", 1)


@dataclass(frozen=True)
class Region:
    wait: Wait
    answers: list[int]
    shared: dict[str, tuple[str, int]]  # values of all threads that it is given: type, and place
    text: str
    question: Question | None
    is_alone: bool  # no pointer that is kept leads to variables of the thread or the threadgroup
    asks_who_met: bool


def write_loops(
    text: str,
    regions: list[Region],
    marks: list[str],
    variables: dict[int, tuple[int, int]],
    attributes: str,
    slots_nbytes: int,
    shared_nbytes: int,
    one_thread: str = "",
) -> str:
    """The rest of a kernel's text with its regions.

    marks: lines of assembly that declare its threadgroup variables; variables: bytes and alignment of each, by number.
    one_thread: its function, where threads may as well run it from end to end.
    """
    strings = " ".join(re.findall(r'"[^"]*"(?:="[^"]*")?', attributes))
    progress = "mustprogress " if "mustprogress" in attributes else ""
    has_lanes = any(not one.wait.is_group for one in regions)
    made = [_of_regions(text, bool(one_thread))]
    loops = _Loops()
    for one in regions:
        made += [*_functions(one), loops.of(one, has_lanes)]
    waits = [f"{{ i32, i32 }} {{ i32 {one.wait.kind}, i32 {one.wait.nbytes} }}" for one in regions]
    numbers = [f"[3 x i64] [i64 {number}, i64 {size}, i64 {unit}]" for number, (size, unit) in variables.items()]
    made += [
        one_thread or "declare void @softmetal_one_thread(ptr, ptr, i32, i32, i32, i32, i32, i32, i32, i32, i32)",
        "\n".join(["define hidden void @softmetal_declares() {", *marks, "ret void", "}"]),
        _array("runs", "ptr", [f"ptr @softmetal_run_{one.wait.number}" for one in regions]),
        _array("waits", "{ i32, i32 }", waits),
        _array("variables", "[3 x i64]", numbers),
        "@softmetal_regions = hidden constant { i32, i16, i16, i64, i64, ptr, ptr, ptr, i64 } "
        f"{{ i32 {len(regions)}, i16 {int(has_lanes)}, i16 {int(bool(one_thread))}, "
        f"i64 {slots_nbytes}, i64 {shared_nbytes}, "
        "ptr @softmetal_region_runs, ptr @softmetal_region_waits, ptr @softmetal_region_variables, "
        f"i64 {len(variables)} }}, align 8",
        f"attributes #9000 = {{ alwaysinline {progress}nounwind {strings} }}",
        f"attributes #9001 = {{ {progress}nounwind {strings} }}",
        "!9000 = distinct !{}",
        '!9001 = !{!"llvm.loop.parallel_accesses", !9000}',
        '!9002 = !{!"llvm.loop.vectorize.enable", i1 true}',
        '!9003 = !{!"llvm.loop.vectorize.enable", i1 false}',
        '!9004 = !{!"llvm.loop.unroll.disable"}',
        "!9005 = !{i64 8}",
        "!9006 = !{i64 1024}",
        "!9007 = !{i64 72}",
        "!9008 = !{i64 4064}",
        *loops.metadata,
    ]
    return "\n".join(made) + "\n"


def _of_regions(text: str, has_thread: bool) -> str:
    """What the kernel's text keeps: nothing calls its threads one by one, or by columns."""
    text = without(re.sub(r"^@softmetal_regions = .*\n", "", text, flags=re.MULTILINE), "columns")
    if has_thread:
        return text
    text = without(without(text, "rows"), "thread")
    return text.replace("ptr @softmetal_run_thread, ptr @softmetal_run_rows", "ptr null, ptr null", 1)


def in_rows(text: str, *, by_columns: bool = False) -> str:
    """Return LLVM's text of a kernel that does not wait with what a thread does inside one loop over threads."""
    text = without(text, "rows" if by_columns else "columns").replace("@softmetal_run_columns(", "@softmetal_run_rows(")
    found = ONE_THREAD.search(text)
    attributes = attributes_of(text, found["attributes"]) if found else ""
    if not found or not attributes:  # the loop calls it
        return text
    head = found[0].partition("\n")[0]
    inlined = head.replace("define hidden", "define internal").replace(found["attributes"], "#9000")
    always = attributes.replace("noinline", "alwaysinline")
    return f"{text.replace(head, inlined)}attributes #9000 = {{ {always} }}\n"


def attributes_of(text: str, number: str) -> str:
    """What a function is, by the number behind its head; empty: the text does not say."""
    return text.partition(f"\nattributes {number} = {{ ")[2].partition(" }\n")[0]


def without(text: str, name: str) -> str:
    """The text without one of the functions that run threads (softmetal_image.h)."""
    return re.sub(rf"^define [^\n]*@softmetal_run_{name}\(.*?^\}}\n", "", text, count=1, flags=re.MULTILINE | re.DOTALL)


def _array(name: str, kind: str, items: list[str]) -> str:
    return f"@softmetal_region_{name} = internal constant [{len(items)} x {kind}] [{', '.join(items)}]"


def _functions(one: Region) -> list[str]:
    """A region's function or, for one that asks where its thread is, one for each answer."""
    alone = " noalias" if one.is_alone else ""
    shared = "".join(f", {kind} {name}.in" for name, (kind, _) in one.shared.items())
    numbers = ", ".join(f"i32 %v{number}" for number in range(2, 11))
    parameters = (
        f"ptr noalias readonly %v0, ptr noalias readonly %v1, {numbers}, ptr noalias %slots, ptr{alone} %own, "
        f"ptr noalias %out, ptr{alone} %memory, ptr noalias readonly %variables, ptr noalias readonly %given, "
        f"ptr noalias %give, i32 %met{shared}"
    )
    texts = {"": one.text}
    if one.question is not None:
        texts |= {f".{answer}": one.question.told(one.text, answer) for answer in (False, True)}
    return [
        f"define internal i32 @softmetal_region_{one.wait.number}{name}({parameters}) #9000 {{\n{text}\n}}"
        for name, text in texts.items()
    ]


class _Loops:
    """`metadata` says of each innermost loop whether it is to become vectors."""

    def __init__(self) -> None:
        self.metadata: list[str] = []

    def of(self, one: Region, has_lanes: bool) -> str:
        """The function that runs a region for threads `first` to `first` + `count` - 1."""
        parameters = "ptr noalias readonly %step, i32 %first, i32 %count"
        made = [f"define internal i32 @softmetal_run_{one.wait.number}({parameters}) #9001 {{"]
        made += ["enter:", *_read_step(one), _ENTERED]
        ends = []
        asks = has_lanes and one.asks_who_met
        if asks:
            made.append(_ALL_THERE)
            places = {"x": "%x0", "index": "%first", "lane": "0", "y": "%y0", "z": "%z0", "gy": "%gy0", "gz": "%gz0"}
            lines, block, o, a = self._threads(one, "lanes", places, "32", ("0", "-1"), "finished")
            made += lines
            ends.append((block, o, a))
        elif not has_lanes and re.search(_ASKS_Y, one.text):
            places = {"x": "%x16", "index": "%index16", "lane": "", "y": "%y16", "z": "0"}
            places |= {"gy": "%gy16", "gz": "%grid2"}
            lines, block, o, a = self._threads(one, "of16", places, "16", ("%o.16", "%a.16"), "sixteen.end")
            made += [_ALL_ROWS.format(o=o, a=a), *lines, _ALL_ROWS_END]
            ends.append(("row16.end", o, a))
        else:
            made.append("br label %rows")
        lane = "%lane0" if has_lanes else ""  # of a threadgroup's row they begin anywhere, and begin again
        places = {"x": "%x", "index": "%index", "lane": lane, "y": "%y", "z": "%z", "gy": "%gy", "gz": "%gz"}
        # Lanes that are not all there are few: their loop is made quickly, not to be quick
        row = dataclasses.replace(one, question=None) if asks else one
        kind = "!9003, !9004" if asks else "!9001, !9002"
        lines, block, o, a = self._threads(row, "row", places, "%n", ("%o.row", "%a.row"), "row.end", kind)
        made += [_ROWS.format(o=o, a=a), *lines, _ROW_ENDS]
        ends.append(("row.end", o, a))
        if len(one.answers) > 1:
            for letter, nth in (("o", 1), ("a", 2)):
                made.append(f"%{letter} = phi i32 " + ", ".join(f"[ {end[nth]}, %{end[0]} ]" for end in ends))
            made += [
                "%same = icmp eq i32 %o, %a",
                f"%answer = select i1 %same, i32 %o, i32 {SEVERAL}",
                "ret i32 %answer",
            ]
        else:
            made.append(f"ret i32 {one.answers[0] if one.answers else END}")
        return "\n".join([*made, "}"])

    def _threads(
        self,
        one: Region,
        name: str,
        places: dict[str, str],
        count: str,
        start: tuple[str, str],
        then: str,
        kind: str = "!9001, !9002",
    ) -> tuple[list[str], str, str, str]:
        """The innermost loops; the block that they end in, and which waits its threads came to: or-ed and and-ed."""
        cuts, parts = _parts(one.question, name, places, count)
        lane = places["lane"]
        o, a = start
        made = [*cuts, f"br label %{name}.0.ask"]
        for nth, (begin, end, function) in enumerate(parts):
            part = f"{name}.{nth}"
            loop = f"!{9010 + len(self.metadata)}"
            self.metadata.append(f"{loop} = distinct !{{{loop}, {kind}}}")
            made.append(
                _THREADS.format(
                    n=part,
                    start=begin,
                    end=end,
                    o=o,
                    a=a,
                    lane=f"add nuw nsw i32 {lane}, %{part}.k" if lane else f"and i32 %{part}.i, 31",
                    simdgroup="or i32 %simdgroup, 0" if lane else f"lshr i32 %{part}.i, 5",
                    function=f"{one.wait.number}{function}",
                    met="-1" if name == "lanes" else "%met",
                    shared="".join(f", {kind} {value}.in" for value, (kind, _) in one.shared.items()),
                    keep=_KEEP.format(n=part) if len(one.answers) > 1 else "",
                    loop=loop,
                    then=then if nth == len(parts) - 1 else f"{name}.{nth + 1}.ask",
                    **{key: places[key] for key in ("x", "index", "y", "z", "gy", "gz")},
                )
            )
            o, a = f"%{part}.o", f"%{part}.a"
        return made, f"{part}.end", o, a


def _read_step(one: Region) -> list[str]:
    made = []
    for nth, name in enumerate(_POINTERS):
        known = f", !dereferenceable {_KNOWN[name]}, !align !9005" if name in _KNOWN else ""
        made += [
            f"%at.{name} = getelementptr i8, ptr %step, i64 {8 * nth}",
            f"%{name} = load ptr, ptr %at.{name}{known}",
        ]
    for name, at in _NUMBERS.items():
        made += [f"%at.{name} = getelementptr i8, ptr %step, i64 {at}", f"%{name} = load i32, ptr %at.{name}"]
    for axis in range(3):
        grid = f"%at.grid{axis}"
        made += [
            f"{grid} = getelementptr i8, ptr %origin, i64 {_GRID_POSITION + 4 * axis}",
            f"%grid{axis} = load i32, ptr {grid}",
        ]
    for name, (kind, at) in one.shared.items():
        made += [f"{name}.at = getelementptr i8, ptr %in, i64 {at}", f"{name}.in = load {kind}, ptr {name}.at"]
    return made


def _parts(
    question: Question | None, name: str, places: dict[str, str], count: str
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Where to cut a row at a question's answer, and the parts: from, to, and the region's function for them."""
    if question is None or not places[question.place]:
        return [], [("0", count, "")]
    first, other = places[question.place], question.other
    cut = [f"%{name}.far = sub i32 {other}, {first}"]
    if question.is_order:
        cut += [
            f"%{name}.before = icmp ugt i32 {other}, {first}",
            f"%{name}.short = icmp ult i32 %{name}.far, {count}",
            f"%{name}.most = select i1 %{name}.short, i32 %{name}.far, i32 {count}",
            f"%{name}.cut = select i1 %{name}.before, i32 %{name}.most, i32 0",
        ]
        return cut, [("0", f"%{name}.cut", ".True"), (f"%{name}.cut", count, ".False")]
    cut += [
        f"%{name}.here = icmp ult i32 %{name}.far, {count}",
        f"%{name}.up = add i32 %{name}.far, 1",
        f"%{name}.cut = select i1 %{name}.here, i32 %{name}.far, i32 {count}",
        f"%{name}.behind = select i1 %{name}.here, i32 %{name}.up, i32 {count}",
    ]
    cuts = f"%{name}.cut", f"%{name}.behind"
    return cut, [("0", cuts[0], ".False"), (*cuts, ".True"), (cuts[1], count, ".False")]
