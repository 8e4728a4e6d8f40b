"""What a checked kernel asks before it touches memory, beside what clang's -fsanitize=thread asks.

Clang's calls tell how long an access is, not what its address must be a multiple of; copies would be told by a
function of clang's own; and of an access of another size than 1, 2, 4, 8 or 16 bytes nothing is told, such as of the
6 that a structure of a uint and a bfloat is stored as.  LLVM's text of the kernel, with those calls in it, says all:

    call void @__tsan_read8(ptr %9), !dbg !473
                                                       <-  call void @softmetal_aligned(ptr %9, i64 15), !dbg !473
    %10 = load <2 x float>, ptr %9, align 16, !dbg !473

All of it was written by LLVM, which has one way to write a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from metal_dlpack.language.errors import CompilerError
from metal_dlpack.language.tokens import split

_TOLD = re.compile(r"  (?:tail )?call void @__tsan_\w+\(ptr (?P<address>.+)\)(?P<line>, !dbg !\d+)?")
COPY = re.compile(
    r"  (?:tail )?call void @llvm\.mem(?P<what>cpy|move|set)\.[\w.]+\((?P<arguments>.*)\)"
    r"(?: #\d+)?(?P<line>, !dbg !\d+)?(?:, !.*)?"
)
_ACCESS = re.compile(
    r"  (?:\S+ = (?P<read>load)|store) (?:volatile )?(?:<(?P<count>\d+) x )?"
    r"(?P<item>i\d+|half|bfloat|float|double|ptr)\b.*, ptr (?P<address>%\S+)"
    r", align (?P<alignment>\d+)(?P<line>, !dbg !\d+)?.*"
)
BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64, "x86_fp80": 128, "fp128": 128}
_LOCAL = re.compile(r"  (%\S+) = alloca ")
#: Where an argument's value begins, after its type and its attributes.
_VALUE = re.compile(r"(?<!\S)(?:[%@]|(?:getelementptr|inttoptr|null|undef|poison)\b)")
#: Sizes in bytes that have functions of their own.
_SIZES = ("1", "2", "4", "8", "16")
_DECLARATIONS = [
    "softmetal_aligned(ptr, i64)",
    *(f"__tsan_{verb}{size}(ptr)" for verb in ("read", "write") for size in _SIZES),
    *(f"__tsan_{verb}_range(ptr, i64)" for verb in ("read", "write")),
]


def instrument(text: str) -> str:
    """Return LLVM's text of a kernel with the calls that are missing."""
    checked = set(re.findall(r"^attributes (#\d+) = \{.*\bsanitize_thread\b", text, re.MULTILINE))
    made: list[str] = []
    is_checked, told, local = False, None, set[str]()
    for line in text.rstrip("\n").split("\n"):  # splitlines() would know other ends of a line
        if line.startswith("define "):
            is_checked, told, local = not checked.isdisjoint(line.split()), None, set()
        elif line == "}":
            is_checked = False
        elif is_checked:
            if told is not None:
                # The access that clang's call, before it, has told of.
                _, _, alignment = line.partition(f", ptr {told['address']}, align ")
                made += _aligned(told["address"], alignment.partition(",")[0], told["line"])
            elif " load " in line or line.startswith("  store "):
                made += _of_odd_access(line, local)
            told = _TOLD.fullmatch(line) if "@__tsan_" in line else None
            if " = alloca " in line:
                local.update(_LOCAL.findall(line))
            elif "@llvm.mem" in line:
                made += _of_copy(line, local)
        made.append(line)
    made += [f"declare void @{one}" for one in _DECLARATIONS if f" @{one.partition('(')[0]}(" not in text]
    return "\n".join([*made, ""])


def _of_odd_access(access: str, local: set[str]) -> Iterator[str]:
    """One whose size clang has no call for; where it has one and told of nothing, it had a reason."""
    found = _ACCESS.fullmatch(access)
    if found is None or found["address"] in local:
        return
    bits = int(found["count"] or 1) * (BITS.get(found["item"]) or int(found["item"][1:]))
    nbytes = (bits + 7) // 8
    if str(nbytes) not in _SIZES:
        verb = "read" if found["read"] else "write"
        yield f"  call void @__tsan_{verb}_range(ptr {found['address']}, i64 {nbytes}){found['line'] or ''}"
        yield from _aligned(found["address"], found["alignment"], found["line"])


def _aligned(address: str, alignment: str, line: str | None) -> Iterator[str]:
    if alignment not in {"", "1"}:
        yield f"  call void @softmetal_aligned(ptr {address}, i64 {int(alignment) - 1}){line or ''}"


def _of_copy(copy: str, local: set[str]) -> Iterator[str]:
    """Where a copy, or a fill, reads and writes; a variable of the thread's own is nobody else's."""
    found = COPY.fullmatch(copy)
    if found is None:
        raise CompilerError(f"LLVM writes a copy in a way that is not known: {copy.strip()}")
    to, second, nbytes, _ = split(found["arguments"])
    length = nbytes.removeprefix("i64 ")
    for verb, given in (("write", to),) if found["what"] == "set" else (("read", second), ("write", to)):
        begin = _VALUE.search(given)
        assert begin is not None
        # mutant survives (off by one): a space stands before the address
        attributes, address = given[: begin.start()], given[begin.start() :]
        if address in local:
            continue
        call = f"{verb}{length}(ptr {address})" if length in _SIZES else f"{verb}_range(ptr {address}, {nbytes})"
        yield f"  call void @__tsan_{call}{found['line'] or ''}"
        yield from _aligned(address, attributes.partition(" align ")[2].partition(" ")[0], found["line"])
