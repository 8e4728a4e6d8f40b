"""Regions (regions.py) over many threads: a loop for each, which LLVM inlines and turns into vectors, and their table.

The loop goes along the rows of a threadgroup, or over the 32 lanes of a SIMD-group that are all there.  Threads of one
region touch nothing of each other, since no wait lies between them, unless they race: that is what its metadata says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: softmetal_kernel.h.
MOST_THREADS = 1024
END, SEVERAL = 0xFFFF, 0xFFFE
_BARRIER, _LANES, _ALL_LANES = 1, 2, 3
#: Of a soft_step: where each field begins.
_STEP = {
    "row": 0,
    "origin": 8,
    "slots": 16,
    "in": 24,
    "out": 32,
    "memory": 40,
    "variables": 48,
    "given": 56,
    "give": 64,
    "next": 72,
}
_MET, _WIDTH, _HEIGHT = 80, 84, 88
_GRID_POSITION = 8  # of a soft_thread


@dataclass(frozen=True)
class Wait:
    """What a region begins behind; the entry is number 0.  nbytes: what a lane gives."""

    number: int
    is_group: bool
    is_for_all: bool = False
    nbytes: int = 0

    @property
    def kind(self) -> int:
        return _BARRIER if self.is_group else _ALL_LANES if self.is_for_all else _LANES


@dataclass(frozen=True)
class Region:
    wait: Wait
    answers: list[int]
    shared: dict[str, tuple[str, int]]  # values of all threads that it is given: type, and place
    text: str
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
) -> str:
    """The rest of a kernel's text with its regions.

    marks: lines of assembly that declare its threadgroup variables; variables: bytes and alignment of each, by number.
    """
    strings = " ".join(re.findall(r'"[^"]*"(?:="[^"]*")?', attributes))
    progress = "mustprogress " if "mustprogress" in attributes else ""
    has_lanes = any(not one.wait.is_group for one in regions)
    made = [_without_declaration(text)]
    for one in regions:
        made += [_region(one), _loop(one, has_lanes)]
    made += [
        f"define hidden void @softmetal_one_thread() {{ ret void }}",
        "define hidden void @softmetal_declares() {\n  " + "\n  ".join([*(f"{mark}" for mark in marks), "ret void\n}"]),
        _array("runs", "ptr", [f"ptr @softmetal_run_{one.wait.number}" for one in regions]),
        _array("waits", "{ i32, i32 }", [f"{{ i32, i32 }} {{ i32 {one.wait.kind}, i32 {one.wait.nbytes} }}" for one in regions]),
        _array("variables", "[3 x i64]", [f"[3 x i64] [i64 {number}, i64 {nbytes}, i64 {unit}]" for number, (nbytes, unit) in variables.items()]),
        "@softmetal_regions = hidden constant { i32, i32, i64, i64, ptr, ptr, ptr, i64 } "
        f"{{ i32 {len(regions)}, i32 {int(has_lanes)}, i64 {slots_nbytes}, i64 {shared_nbytes}, "
        "ptr @softmetal_region_runs, ptr @softmetal_region_waits, ptr @softmetal_region_variables, "
        f"i64 {len(variables)} }}, align 8",
        f"attributes #9000 = {{ alwaysinline {progress}nounwind {strings} }}",
        f"attributes #9001 = {{ {progress}nounwind {strings} }}",
        "!9000 = distinct !{}",
        '!9001 = !{!"llvm.loop.parallel_accesses", !9000}',
        '!9002 = !{!"llvm.loop.vectorize.enable", i1 true}',
        *(f"!{9010 + 2 * one.wait.number + full} = distinct !{{!{9010 + 2 * one.wait.number + full}, !9001, !9002}}" for one in regions for full in (0, 1)),
    ]
    return "\n".join(made) + "\n"


def _without_declaration(text: str) -> str:
    text = re.sub(r"^@softmetal_regions = .*\n", "", text, flags=re.M)
    return re.sub(r"(call void @softmetal_one_thread)\([^\n]*\)", r"\1()", text)


def _array(name: str, kind: str, items: list[str]) -> str:
    return f"@softmetal_region_{name} = internal constant [{len(items)} x {kind}] [{', '.join(items)}]"


def _region(one: Region) -> str:
    alone = " noalias" if one.is_alone else ""
    shared = "".join(f", {kind} {name}.in" for name, (kind, _) in one.shared.items())
    return (
        f"define internal i32 @softmetal_region_{one.wait.number}(ptr noalias readonly %v0, ptr noalias readonly %v1, "
        + ", ".join(f"i32 %v{number}" for number in range(2, 11))
        + f", ptr noalias %slots, ptr{alone} %own, ptr noalias %out, ptr{alone} %memory, ptr noalias readonly %variables, "
        f"ptr noalias readonly %given, ptr noalias %give, i32 %met{shared}) #9000 {{\n{one.text}\n}}"
    )


def _loop(one: Region, has_lanes: bool) -> str:
    number = one.wait.number
    lines = [f"define internal i32 @softmetal_run_{number}(ptr noalias readonly %step, i32 %first, i32 %count) #9001 {{", "enter:"]
    for name, at in _STEP.items():
        lines += [f"%at.{name} = getelementptr i8, ptr %step, i64 {at}", f"%{name} = load ptr, ptr %at.{name}"]
    for name, at in (("met", _MET), ("width", _WIDTH), ("height", _HEIGHT)):
        lines += [f"%at.{name} = getelementptr i8, ptr %step, i64 {at}", f"%{name} = load i32, ptr %at.{name}"]
    for axis in range(3):
        at = f"%at.grid{axis}"
        lines += [f"{at} = getelementptr i8, ptr %origin, i64 {_GRID_POSITION + 4 * axis}", f"%grid{axis} = load i32, ptr {at}"]
    for name, (kind, at) in one.shared.items():
        lines += [f"{name}.at = getelementptr i8, ptr %in, i64 {at}", f"{name}.in = load {kind}, ptr {name}.at"]
    lines += [
        "%end = add i32 %first, %count",
        "%x0 = urem i32 %first, %width",
        "%row0 = udiv i32 %first, %width",
        "%y0 = urem i32 %row0, %height",
        "%z0 = udiv i32 %row0, %height",
        "%simdgroup0 = lshr i32 %first, 5",
    ]
    is_several = len(one.answers) > 1
    if has_lanes:
        lines += [
            "%far = add i32 %x0, 31",
            "%fits = icmp ult i32 %far, %width",
            "%whole = icmp eq i32 %count, 32",
            "%everyone = icmp eq i32 %met, -1",
            "%full.1 = and i1 %fits, %whole",
            "%full.2 = and i1 %full.1, %everyone" if one.asks_who_met else "%full.2 = and i1 %full.1, true",
            "br i1 %full.2, label %lanes, label %rows",
            "lanes:",
            "%y.gf = add nuw i32 %grid1, %y0",
            "%z.gf = add nuw i32 %grid2, %z0",
            "br label %full",
            *_threads(one, "full", "lanes", "x0", "first", "32", is_several),
            "br label %finished",
        ]
    else:
        lines.append("br label %rows")
    lines += [
        "rows:",
        "%index = phi i32 [ %first, %enter ], [ %index.next, %part.end ]",
        "%x = phi i32 [ %x0, %enter ], [ 0, %part.end ]",
        "%y = phi i32 [ %y0, %enter ], [ %y.next, %part.end ]",
        "%z = phi i32 [ %z0, %enter ], [ %z.next, %part.end ]",
        "%o.row = phi i32 [ 0, %enter ], [ %o.part.end, %part.end ]",
        "%a.row = phi i32 [ -1, %enter ], [ %a.part.end, %part.end ]",
        "%left = sub i32 %end, %index",
        "%room = sub i32 %width, %x",
        "%is_short = icmp ult i32 %left, %room",
        "%n = select i1 %is_short, i32 %left, i32 %room",
        "%y.g = add nuw i32 %grid1, %y",
        "%z.g = add nuw i32 %grid2, %z",
        "br label %part",
        *_threads(one, "part", "rows", "x", "index", "%n", is_several),
        "%index.next = add i32 %index, %n",
        "%y.up = add i32 %y, 1",
        "%is_top = icmp eq i32 %y.up, %height",
        "%y.next = select i1 %is_top, i32 0, i32 %y.up",
        "%z.up = add i32 %z, 1",
        "%z.next = select i1 %is_top, i32 %z.up, i32 %z",
        "%is_more = icmp ult i32 %index.next, %end",
        "br i1 %is_more, label %rows, label %finished",
        "finished:",
    ]
    if is_several:
        ends = [("part.end", "part"), *([("full.end", "full")] if has_lanes else [])]
        for letter in "oa":
            lines.append(f"%{letter} = phi i32 " + ", ".join(f"[ %{letter}.{name}.end, %{block} ]" for block, name in ends))
        lines += ["%same = icmp eq i32 %o, %a", f"%answer = select i1 %same, i32 %o, i32 {SEVERAL}", "ret i32 %answer"]
    else:
        lines.append(f"ret i32 {one.answers[0] if one.answers else END}")
    return "\n  ".join(lines) + "\n}"


def _threads(one: Region, name: str, before: str, x: str, first: str, count: str, is_several: bool) -> list[str]:
    """The innermost loop: `count` threads from `first` on, of one row; it ends in a block `name`.end."""
    is_full = name == "full"
    number = one.wait.number
    shared = "".join(f", {kind} {value}.in" for value, (kind, _) in one.shared.items())
    y, z, gy, gz = ("y0", "z0", "y.gf", "z.gf") if is_full else ("y", "z", "y.g", "z.g")
    lane = f"%{name}.k" if is_full else f"%{name}.lane"
    simdgroup = "%simdgroup0" if is_full else f"%{name}.simdgroup"
    met = "-1" if is_full and one.asks_who_met else "%met"
    start = ("0", "-1") if is_full else ("%o.row", "%a.row")
    call = (
        f"%{name}.r = call i32 @softmetal_region_{number}(ptr %row, ptr %origin, i32 %{name}.x, i32 %{y}, i32 %{z}, "
        f"i32 %{name}.i, i32 %{name}.gx, i32 %{gy}, i32 %{gz}, i32 {lane}, i32 {simdgroup}, ptr %slots, ptr %slots, ptr %out, "
        f"ptr %memory, ptr %variables, ptr %given, ptr %give, i32 {met}{shared}), !llvm.access.group !9000"
    )
    keep = [
        f"%{name}.next = getelementptr i16, ptr %next, i64 %{name}.wide",
        f"%{name}.short = trunc i32 %{name}.r to i16",
        f"store i16 %{name}.short, ptr %{name}.next, !llvm.access.group !9000",
    ]
    return [
        f"{name}:",
        f"%{name}.k = phi i32 [ 0, %{before} ], [ %{name}.up, %{name} ]",
        f"%{name}.o = phi i32 [ {start[0]}, %{before} ], [ %{name}.or, %{name} ]",
        f"%{name}.a = phi i32 [ {start[1]}, %{before} ], [ %{name}.and, %{name} ]",
        f"%{name}.x = add nuw nsw i32 %{x}, %{name}.k",
        f"%{name}.i = add nuw nsw i32 %{first}, %{name}.k",
        f"%{name}.wide = zext i32 %{name}.i to i64",
        f"%{name}.gx = add nuw i32 %grid0, %{name}.x",
        f"%{name}.lane = and i32 %{name}.i, 31",
        f"%{name}.simdgroup = lshr i32 %{name}.i, 5",
        call,
        *(keep if is_several else []),
        f"%{name}.or = or i32 %{name}.o, %{name}.r",
        f"%{name}.and = and i32 %{name}.a, %{name}.r",
        f"%{name}.up = add nuw nsw i32 %{name}.k, 1",
        f"%{name}.done = icmp eq i32 %{name}.up, {count}",
        f"br i1 %{name}.done, label %{name}.end, label %{name}, !llvm.loop !{9010 + 2 * number + is_full}",
        f"{name}.end:",
        f"%o.{name}.end = phi i32 [ %{name}.or, %{name} ]",
        f"%a.{name}.end = phi i32 [ %{name}.and, %{name} ]",
    ]
