"""Pointers and references that lead from one address space to another: Metal refuses them, a CPU has one space.

Clang reads the source once more with its own address spaces, and says much that is not so: the shim has one space, and
in plain C++ no object of a class is copied from one space to another.  But what it says of a pointer of the user's that
would become one to the same type in another space is certain, and only that is believed.

SPEC Metal Shading Language Specification 3.2, 4 Address Spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from metal_dlpack.language import declarations, diagnostics
from metal_dlpack.language.declarations import FUNCTION, Declaration
from metal_dlpack.language.declarators import SPACES
from metal_dlpack.language.diagnostics import Diagnostic
from metal_dlpack.language.errors import SourceError
from metal_dlpack.language.tokens import Tokens

from .flags import INCLUDE
from .function_constants import FunctionConstant
from .threadgroup_variables import Statement

_NUMBERED = {"device": 1, "constant": 2, "threadgroup": 3, "object_data": 4, "ray_data": 5}
_NAMES = {str(number): name for name, number in _NUMBERED.items()} | {"generic": "thread"}
_ATTRIBUTES = {name: f"__attribute__((address_space({number})))" for name, number in _NUMBERED.items()}
#: Before the source: what its words mean.  `thread` is clang's own space.
_MEANINGS = {**_ATTRIBUTES, "constant": f"{_ATTRIBUTES['constant']} const", "thread": "", "kernel": ""}
#: The shim's functions that know address spaces, beside those that do not.
_ATOMICS = re.findall(r"^SOFTMETAL_IN_SPACES\((\w+)", (INCLUDE / "softmetal_atomics.h").read_text(), re.MULTILINE)
_MEANINGS |= {name: f"softmetal_{name}" for name in _ATOMICS}
HEAD = "".join(f"#define {word} {meaning}\n" for word, meaning in _MEANINGS.items())
#: Flags for the compiler: all errors, and no guess which name was meant.
FLAGS = ["-ferror-limit=0", "-fno-spell-checking"]


def _type(name: str) -> str:
    return rf"'(?P<{name}>[^']*)'(?: \(aka '(?P<{name}_is>[^']*)'\))?"


_OLD, _NEW = _type("old"), _type("new")
_POINTERS = [
    re.compile(rf"cannot initialize .* of type {_NEW} with an? [lrx]value of type {_OLD}"),
    re.compile(rf"assigning to {_NEW} from incompatible type {_OLD}"),
    re.compile(rf"assigning {_OLD} to {_NEW} changes address space of pointer"),
]
_CAST = re.compile(rf"reinterpret_cast from {_OLD} to {_NEW} (?:is not allowed|casts away qualifiers)")
_BOUND = re.compile(rf"binding reference of type {_NEW} to value of type {_OLD} changes address space")
_CALLED = re.compile(r"no matching (?:(?:member )?function for call to|constructor for initialization of) '([^']*)'")
_SPACE = r"(?:address space '(\d)'|(?:generic|default) address space)"
_PASSED = re.compile(
    rf"candidate function .*not viable: cannot pass pointer to {_SPACE} as a pointer to {_SPACE} in (\w+) argument"
)
_DECAYED = re.compile(
    rf"candidate (?:function|constructor) not viable: no known conversion from {_OLD} to {_NEW} for (?P<nth>\w+) arg"
)
_DEDUCED = re.compile(
    rf"candidate template ignored: deduced type {_NEW} of (?P<nth>\w+) parameter does not match adjusted type {_OLD} of"
)
_QUALIFIER = re.compile(r"__attribute__\(\(address_space\((\d)\)\)\)")
_OF_EXPRESSIONS = {"*", "&", "+", "-", "!", "~", "++", "--"}
#: What `(` and `)` of a cast become; no line of the user's has the spaces.
_OPENS_CAST, _CLOSES_CAST = "reinterpret_cast<  ", "  >("
#: After these a bracket with a pointer's type in it is a cast.
_BEFORE_A_CAST = {*"=(,[{};?:<>+-*/%&|^!~", "return", "+=", "-=", "==", "!=", "<=", ">=", "&&", "||", "<<"}


def prepare(tokens: Tokens, constants: list[FunctionConstant], variables: list[Statement]) -> None:
    """Rewrite what clang cannot read with address spaces in it; the rest of the source is left to the translation.

    variables: the statements that declare threadgroup memory.
    """
    words = tokens.words
    for one in list(_qualified_members(tokens)):
        tokens.drop(one.first, one.last)
    for constant in constants:
        words[constant.declaration.head_end] = "{};"  # any value: else it is no constant
    casts = list(_casts(tokens))  # a cast in brackets may lead anywhere in C++, one that has a name may not
    for opening, _ in casts:
        words[opening], words[tokens.partner[opening]] = _OPENS_CAST, _CLOSES_CAST
    for _, end in casts:
        words[end - 1] += ")"
    for at in [at for at, word in enumerate(words) if word in SPACES and words[at - 1] == "}"]:
        if declarations.is_class_body(tokens, tokens.partner[at - 1]):  # behind a class, clang forgets the word
            _put_before(words, declarations.statement(tokens, at)[0], words[at])
            words[at] = ""
    for statement in variables:  # what is in a space of its own is not on the stack
        _put_before(words, statement.declared.first, "static")


def _put_before(words: list[str], at: int, word: str) -> None:
    if words[at] not in {"", "static"}:
        words[at] = f"{word} {words[at]}"


def _qualified_members(tokens: Tokens) -> Iterator[Declaration]:
    """Functions of objects in one address space, `float f() device`: C++ has none."""
    words, known = tokens.words, set[int]()
    for at in [at for at, word in enumerate(words) if word in SPACES and words[at - 1] in {")", "const", "volatile"}]:
        _, opening = declarations.statement(tokens, at)
        if opening in known or not declarations.is_class_body(tokens, opening):
            continue
        known.add(opening)
        for one in declarations.members(tokens, opening):
            if one.kind == FUNCTION and one.parameters is not None:
                after = words[tokens.partner[one.parameters] + 1 : one.head_end]
                if not SPACES.isdisjoint(after):
                    yield one


def _casts(tokens: Tokens) -> Iterator[tuple[int, int]]:
    """Where `(device float *)` opens that converts what follows up to words[end]."""
    words, partner = tokens.words, tokens.partner
    for at, word in enumerate(words):
        if word == "(" and words[at - 1] in _BEFORE_A_CAST and words[partner[at] - 1] == "*":
            inside = words[at + 1 : partner[at]]
            if not SPACES.isdisjoint(inside) and "(" not in inside and inside.count("*") == 1:
                end = _end_of_operand(tokens, partner[at] + 1)
                if end is not None:
                    yield at, end


def _end_of_operand(tokens: Tokens, at: int) -> int | None:
    """Where a unary expression ends; None where none begins."""
    words, partner = tokens.words, tokens.partner
    while words[at] in _OF_EXPRESSIONS or (words[at] == "(" and words[partner[at] - 1] == "*"):
        at = at + 1 if words[at] in _OF_EXPRESSIONS else partner[at] + 1
    if words[at] == "(":
        at = partner[at] + 1
    elif words[at].isidentifier():
        at += 1
        while words[at] == "::":
            at += 2
        if words[at] == "<" and words[tokens.after_angle(at)] == "(":
            at = tokens.after_angle(at)
    else:
        return None
    while words[at] in {"(", "[", ".", "->", "++", "--"}:
        at = partner[at] + 1 if words[at] in {"(", "["} else at + 1 if words[at] in {"++", "--"} else at + 2
    return at


def refuse(said: str, source: str) -> None:
    """Raise SourceError for what is certain of what clang says; source: the user's text."""
    for error, notes in diagnostics.errors_of(said.replace("'softmetal_atomic_", "'atomic_")):
        text = _certain(error, notes)
        if text is not None and error.place is not None and not _is_ours(error):
            place, line = error.place, "".join(error.snippet[:1])
            column = len(_as_written(line.encode()[: place.column - 1].decode(errors="ignore")).encode()) + 1
            said_here = f"{place.file}:{place.line}:{column}: error: {text}\n{_as_written(line)}\n"
            raise SourceError(diagnostics.clean(said_here, diagnostics.lines_of_source(source)))


def _as_written(line: str) -> str:
    return line.replace(_OPENS_CAST, "(").replace(_CLOSES_CAST, ")")


def _certain(error: Diagnostic, notes: list[Diagnostic]) -> str | None:
    """What to tell the user, if a pointer or a reference to another space is all that is wrong."""
    for pattern in (*_POINTERS, _CAST, _BOUND):
        found = pattern.search(error.text)
        if found:
            old, new = (_Type.read(found[f"{name}_is"] or found[name]) for name in ("old", "new"))
            is_certain = {_CAST: _is_cast, _BOUND: _is_bound}.get(pattern, _is_converted)
            return f"this {_sentence(old.space, new.space)}" if is_certain(old, new) else None
    if any("from 'diagnose_if' attribute" in note.text and _is_ours(note) for note in notes):
        return error.text
    called = _CALLED.match(error.text)
    candidates = [note for note in notes if note.text.startswith("candidate ") and "(the implicit" not in note.text]
    passed = [None if _is_ours(note) else _passed(note.text) for note in candidates]
    first = passed[0] if passed else None
    if called is None or first is None or not all(passed):
        return None
    nth, *spaces = first
    return f"no matching function for call to '{called[1]}': its {nth} argument {_sentence(*spaces)}"


def _passed(note: str) -> tuple[str, str, str] | None:
    """Which argument a candidate does not take for its address space alone: "1st", its space, the parameter's."""
    found = _PASSED.match(note)
    if found:
        return found[3], _NAMES[found[1] or "generic"], _NAMES[found[2] or "generic"]
    found = _DECAYED.match(note) or _DEDUCED.match(note)
    if found is None:
        return None
    old, new = (_Type.read(found[f"{name}_is"] or found[name]) for name in ("old", "new"))
    is_text = found.re is _DEDUCED and old.name == "char"  # or a copy of one
    return (found["nth"], old.space, new.space) if _is_converted(old, new) and not is_text else None


def _is_ours(one: Diagnostic) -> bool:
    return one.place is None or diagnostics.is_ours(one.place.file)


def _sentence(old: str, new: str) -> str:
    return (
        f"leads to {old} memory, where {new} memory is expected: Metal converts no address space to another; "
        f"write '{old}' there, or copy what it leads to"
    )


@dataclass(frozen=True, slots=True)
class _Type:
    """`const device float *`: is_const of what it leads to."""

    space: str
    name: str
    levels: int  # of pointers
    is_const: bool
    is_text: bool  # Metal has texts in constant memory, clang has not

    @staticmethod
    def read(text: str) -> _Type:
        words = _WORD.findall(_QUALIFIER.sub(lambda found: _NAMES[found[1]], text))
        spaces = [word for word in words if word in SPACES]
        name = [word for word in words if word not in {*SPACES, *_NOT_OF_THE_NAME}]
        is_array = name[-1:] == ["]"] and "[" in name
        if is_array:
            name = name[: name.index("[")]
        levels = is_array + name.count("*") + name.count("&") + name.count("(")
        plain = " ".join(word for word in name if word not in {"*", "&"})
        return _Type(spaces[0] if spaces else "thread", plain, levels, "const" in words, is_array and plain == "char")


_WORD = re.compile(r"\w+|\S")
_NOT_OF_THE_NAME = {"const", "volatile", "__restrict"}


def _is_cast(old: _Type, new: _Type) -> bool:
    return old.space != new.space and old.levels == new.levels == 1 and not old.is_text


def _is_converted(old: _Type, new: _Type) -> bool:
    return _is_cast(old, new) and (old.name == new.name or new.name == "void")


def _is_bound(old: _Type, new: _Type) -> bool:
    """What is const may be bound to a copy."""
    return old.space != new.space and old.name == new.name and old.levels == new.levels == 0 and not new.is_const
