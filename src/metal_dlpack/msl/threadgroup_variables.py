"""`threadgroup float x[64];` in a kernel: a reference to memory that the run time has for the threadgroup.

The run time knows a variable by its number, and an image has one kernel: so each variable has memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import kernels
from .declarations import FUNCTION, Declaration, every
from .messages import source_error
from .tokens import Tokens, joined

#: The first half is what Apple's compiler says.
_ONLY_IN_KERNELS = (
    "variables in the threadgroup address space cannot be declared in a non-qualified function: "
    "declare it in the kernel, and hand a pointer to it on"
)
_ENDS_A_STATEMENT = {";", "{", "}", ":"}


@dataclass(frozen=True, slots=True)
class Statement:
    """words[first:end] without the `;`."""

    first: int
    end: int


def find(tokens: Tokens, declarations: list[Declaration]) -> list[Statement]:
    """The statements that declare threadgroup memory: those that declare pointers to it are not among them.

    Raises SourceError for one in a function that is no kernel.
    """
    found = []
    for at in [at for at, word in enumerate(tokens.words) if word == "threadgroup"]:
        first, end = _start(tokens, at), _end(tokens, at + 1)
        if first is not None and end is not None:
            found.append(Statement(first, end))
    if found:
        _refuse_other_functions(tokens, found, every(declarations))
    return found


def _refuse_other_functions(tokens: Tokens, found: list[Statement], declarations: Iterable[Declaration]) -> None:
    others = [
        one for one in declarations if one.kind == FUNCTION and one.body is not None and not kernels.stage(tokens, one)
    ]
    for statement in found:
        if any(one.body < statement.first < one.last for one in others if one.body is not None):
            raise source_error(tokens, statement.first, _ONLY_IN_KERNELS)


def rewrite(tokens: Tokens, statements: list[Statement]) -> None:
    """To be called when the words are C++ but for these statements."""
    number = 0
    for statement in statements:
        declared = _declared(tokens, statement)
        text = _as_references(declared, number)
        number += len(declared.names)
        tokens.drop(statement.first, statement.end)
        tokens.words[statement.first] = text


@dataclass(frozen=True, slots=True)
class _Declared:
    type: str
    names: list[str]
    extents: list[str]  # "[64]", or nothing


def _start(tokens: Tokens, at: int) -> int | None:
    """Where the statement begins: `threadgroup` may stand after the type."""
    words = tokens.words
    while at > 0 and words[at - 1] not in _ENDS_A_STATEMENT:
        at -= 1
        if words[at] in {"(", ")", "=", "]", "*", "&", "template", "typedef", "using"}:
            return None
    return at


def _end(tokens: Tokens, at: int) -> int | None:
    words = tokens.words
    while at < len(words):
        word = words[at]
        if word == ";":
            return at
        if word in {"*", "&", "(", "=", ")", "}"}:
            return None
        at = tokens.partner[at] + 1 if word in {"[", "{"} else max(at + 1, tokens.after_angle(at) if word == "<" else 0)
    return None


def _declared(tokens: Tokens, statement: Statement) -> _Declared:
    words = tokens.words
    groups = tokens.split(statement.first, statement.end)
    names = [_name(tokens, first, end) for first, end in groups]
    return _Declared(
        joined(word for word in words[statement.first : names[0]] if word != "static"),
        [words[name] for name in names],
        [joined(words[name + 1 : end]) for name, (_, end) in zip(names, groups, strict=True)],
    )


def _name(tokens: Tokens, first: int, end: int) -> int:
    """The word before the extents."""
    at = end - 1
    while tokens.words[at] in {"]", ""} and at > first:
        at = tokens.partner[at] - 1 if tokens.words[at] == "]" else at - 1
    return at


def _as_references(declared: _Declared, number: int) -> str:
    types = [f"softmetal_type_{number + nth}" for nth in range(len(declared.names))]
    declarators = ", ".join(f"{name}{extent}" for name, extent in zip(types, declared.extents, strict=True))
    references = " ".join(
        f"{name} &{variable} = softmetal::threadgroup_variable<{number + nth}, {name}>();"
        for nth, (name, variable) in enumerate(zip(types, declared.names, strict=True))
    )
    return f"typedef {declared.type} {declarators}; {references}"
