"""One function of LLVM's text: its blocks, what each instruction makes of what, and of which type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from metal_dlpack.language.errors import CompilerError

from .llvm_loops import LABEL, LEADS
from .llvm_values import VALUE

_ASSIGNED = re.compile(rf"({VALUE.pattern}) = (.*)")
#: What passes may know of an instruction, and what only loops and scopes of the text as it was had.
_ATTACHED = re.compile(r", !(?!fpmath)[\w.]+ (?:!\d+|!\{\})")
_NOTHING = re.compile(r"@llvm\.(?:assume|lifetime|experimental\.noalias|invariant)")
_FLAGS = (
    r"(?: (?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nuw|nsw|nusw|exact|disjoint|nneg|samesign|inbounds"
    r"|atomic|volatile|tail|weak))*"
)
_CALLED = re.compile(
    r"call .*?(?P<type><\d+ x \w+>|\{[^@]*\}|\[[^@]*\]|%\"[^\"]*\"|[%\w.]+) (?P<name>@[-\w.$]+|@\"[^\"]*\"|%[-\w.$]+)\("
)
#: What computes, and neither reads memory nor does anything that is seen.
PURE = re.compile(
    r"(?:add|sub|mul|[us]div|[us]rem|shl|[la]shr|and|or|xor|f(?:add|sub|mul|div|rem|neg)|[if]cmp|select|getelementptr"
    r"|[zs]ext|trunc|fpext|fptrunc|fpto[us]i|[us]itofp|ptrtoint|inttoptr|bitcast|addrspacecast|(?:extract|insert)value"
    r"|(?:extract|insert)element|shufflevector|freeze)"
)


@dataclass
class Instruction:
    """`name` is empty where nothing is made; `text` is what stands behind the `=`."""

    name: str
    text: str

    @property
    def operation(self) -> str:
        words = self.text.split(maxsplit=2)
        return "call" if words[0] in {"tail", "notail", "musttail"} else words[0]

    @property
    def called(self) -> str:
        """The name of the function that it calls, or nothing."""
        found = _CALLED.search(self.text) if self.operation == "call" else None
        return found["name"] if found else ""

    @property
    def values(self) -> list[str]:
        """The names that it reads, each once."""
        return list(dict.fromkeys(VALUE.findall(LEADS.sub("", self.text))))

    @property
    def line(self) -> str:
        return f"{self.name} = {self.text}" if self.name else self.text


@dataclass
class Block:
    label: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def leads(self) -> list[str]:
        return LEADS.findall(self.instructions[-1].text)

    def phis(self) -> Iterator[Instruction]:
        return (one for one in self.instructions if one.operation == "phi")


def read_blocks(body: str, entry: str) -> dict[str, Block]:
    """The blocks of a function's body by their labels, in their order; numbered values get a letter before them.

    entry: the label of the first one, which the text leaves out.
    """
    body = re.sub(r"%(\d+)\b", r"%v\1", body)
    blocks: dict[str, Block] = {}
    here = blocks[entry] = Block(entry)
    for line in _whole_lines(body):
        if (label := LABEL.match(line)) is not None:
            name = label[1]
            here = Block(f"v{name}" if name.isdecimal() else name)
            blocks[here.label] = here
            continue
        if _NOTHING.search(line):
            continue
        found = _ASSIGNED.match(line)
        here.instructions.append(Instruction(found[1], found[2]) if found else Instruction("", line))
    return blocks


def _whole_lines(body: str) -> Iterator[str]:
    """Without comments and what is attached; a switch is one line."""
    kept = ""
    for line in body.split("\n"):
        line = _ATTACHED.sub("", re.sub(r"\s;.*", "", line)).strip()
        if kept or (line.startswith("switch ") and not line.endswith("]")):
            kept += f" {line}"
            if line != "]":
                continue
            line, kept = kept.strip(), ""
        if line and not line.startswith((";", "#dbg")):
            yield line


def type_of(one: Instruction) -> str:
    """The type of what an instruction makes."""
    text, operation = one.text, one.operation
    if operation == "call":
        found = _CALLED.search(text)
        if found is not None:
            return str(found["type"])
        raise CompilerError(f"LLVM writes a call in a way that is not known: {text}")
    if operation in {"getelementptr", "alloca", "inttoptr"}:
        return _of_pointers(text) if operation == "getelementptr" else "ptr"
    if operation == "atomicrmw":
        return typed(text.rpartition(" ptr ")[2].split(", ", 1)[1])
    if operation == "cmpxchg":
        return f"{{ {typed(text.rpartition(' ptr ')[2].split(', ', 1)[1])}, i1 }}"
    if operation != "select" and " to " in text:
        return text.rpartition(" to ")[2]
    rest = re.sub(rf"^{operation}{_FLAGS} ", "", text)
    if operation in {"icmp", "fcmp"}:
        kind = typed(rest.split(" ", 1)[1])
        return re.sub(r" x .*>", " x i1>", kind) if kind[0] == "<" else "i1"
    if operation == "select":
        return typed(rest[len(typed(rest)) :].split(", ", 1)[1])
    kind = typed(rest)
    if operation == "extractelement":
        return kind[kind.index(" x ") + 3 : -1]
    if operation == "shufflevector":
        return str(re.findall(r"<\d+ x i32>", rest)[-1]).replace("i32", kind[kind.index(" x ") + 3 : -1])
    if operation == "extractvalue":
        raise CompilerError("a part of a structure has no type of its own here")  # it is made again where it is used
    return kind


def _of_pointers(text: str) -> str:
    """A getelementptr of vectors makes a vector."""
    wide = re.search(r"<(\d+) x (?:ptr|i64|i32)> ", text)
    return f"<{wide[1]} x ptr>" if wide else "ptr"


def typed(text: str) -> str:
    """The type at the beginning of a text."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{<") - (letter in ")]}>")
        if depth == 0 and letter in " ,":
            return text[:at]
    return text
