"""One declaration's words: those of its type, and each declarator with its name.

`static const S<int> *a[2] = {}, (*f)(int), b` has the type `static const S<int>` and the declarators `*a[2] = {}`,
`(*f)(int)` and `b`.  The same holds for a parameter, whose declarator may have no name.
"""

from __future__ import annotations

from typing import NamedTuple

from .attributes import is_attribute
from .tokens import Tokens

SPACES = frozenset({"device", "thread", "threadgroup", "constant", "object_data", "ray_data"})
CLASS_KEYS = frozenset({"struct", "class", "union", "enum"})
_STORAGE = {"static", "constexpr", "inline", "extern", "register", "mutable", "friend", "thread_local", "typedef"}
_QUALIFIERS = _STORAGE | {
    "const",
    "volatile",
    "restrict",
    "__restrict",
    "__restrict__",
    "typename",
    "kernel",
    "METAL_FUNC",
}
_FUNDAMENTAL = {"unsigned", "signed", "char", "short", "int", "long", "float", "bool", "void", "wchar_t"}
_TYPE_OF = {"decltype", "typeof", "__typeof__", "__typeof", "__underlying_type", "_Atomic"}
WITH_PARENTHESES = {"__attribute__", "__declspec", "alignas", "_Alignas"}
_INDIRECT = {"*", "&", "&&"}
_CONTROL = {"return", "if", "else", "for", "while", "do", "switch", "case", "default", "break", "continue", "goto"}
_CASTS = {"static_cast", "reinterpret_cast", "const_cast", "sizeof", "alignof", "new", "delete"}
#: What begins a statement that declares nothing, or an expression.
_NO_TYPE = _CONTROL | _CASTS | {"using", "namespace", "template", "operator", "static_assert", "this", "true", "false"}


def drop_coherence(tokens: Tokens) -> None:
    """Drop `coherent(device)`, and `coherent` alone, which tell of caches that a CPU does not have.

    The word is no keyword: a variable may be called so, and then no name follows.
    """
    words = tokens.words
    for at in [at for at, word in enumerate(words) if word == "coherent"]:
        if words[at + 1] == "(" and words[at + 2].isidentifier() and words[at + 3] == ")":
            if words[at + 4].isidentifier() or words[at - 1] in SPACES:
                tokens.drop(at, at + 3)
        elif words[at + 1].isidentifier():
            tokens.drop(at, at)


class Declarator(NamedTuple):
    """words[first:end]; its value, if it has one, begins at `value`, which is `end` otherwise."""

    first: int
    end: int
    name: int | None
    value: int
    is_indirect: bool  # a pointer or a reference: the spaces of the type are those of what it leads to
    is_function: bool  # or a variable with a value in parentheses
    spaces: tuple[str, ...]  # its own ones
    between: tuple[str, ...] | None  # of the pointer that a pointer leads to; None: it leads to no pointer
    attributes: tuple[tuple[int, int], ...] = ()  # the ranges of those behind the name


class Declared(NamedTuple):
    """words[first:type_end] are the type: among them `spaces`, and `attributes`, the ranges of alignas and the like."""

    first: int
    type_end: int
    spaces: list[str]
    attributes: list[tuple[int, int]]
    declarators: list[Declarator]


def read(tokens: Tokens, first: int, end: int) -> Declared | None:
    """Read words[first:end], a declaration without its `;` or a parameter; None if they are none."""
    words, at = tokens.words, first
    spaces, ranges = list[str](), list[tuple[int, int]]()
    kind = ""  # of what was read: a "name", or "words" of a fundamental type
    while at < end:
        word = words[at]
        after = _after_type_word(tokens, at, kind)
        if word in SPACES and words[at + 1] != "::":
            spaces.append(word)
            at += 1
        elif (behind := after_attribute(tokens, at)) > at:
            ranges.append((at, behind))
            at = behind
        elif word == "" or word in _QUALIFIERS:
            at += 1
        elif after > at:
            kind = "words" if word in _FUNDAMENTAL else "name"
            at = after
        else:
            break
    if not kind:
        return None
    at = min(at, end)
    return Declared(first, at, spaces, ranges, [_declarator(tokens, *place) for place in tokens.split(at, end)])


def name_of_parameter(tokens: Tokens, first: int, end: int) -> int | None:
    """Where the name of the parameter words[first:end] stands, if it has one."""
    declared = read(tokens, first, end)
    return declared.declarators[0].name if declared and declared.declarators else None


def names_of_parameters(tokens: Tokens, opening: int) -> set[str]:
    """The names of a function's parameters, which begin after words[opening]."""
    ranges = tokens.split(opening + 1, tokens.partner[opening])
    names = [name_of_parameter(tokens, *place) for place in ranges]
    return {tokens.words[at] for at in names if at is not None}


def after_attribute(tokens: Tokens, at: int) -> int:
    """The word after the `[[...]]`, alignas(...) or __attribute__((...)) that begins here; `at` if none does."""
    if is_attribute(tokens, at):
        return tokens.partner[at] + 1
    if tokens.words[at] in WITH_PARENTHESES and tokens.words[at + 1] == "(":
        return tokens.partner[at + 1] + 1
    return at


def _after_type_word(tokens: Tokens, at: int, kind: str) -> int:
    """The word after a type's name, a class with its body, or one word of `unsigned long`; `at` if none is here."""
    words = tokens.words
    word = words[at]
    if word in _FUNDAMENTAL:
        return at + 1 if kind != "name" else at
    if kind or word in _NO_TYPE:
        return at
    if word in CLASS_KEYS:
        return _after_class(tokens, at)
    if word in _TYPE_OF and words[at + 1] == "(":
        after = tokens.partner[at + 1] + 1
        return _after_name(tokens, after) if words[after] == "::" else after
    return _after_name(tokens, at) if word.isidentifier() or word == "::" else at


def _after_name(tokens: Tokens, at: int) -> int:
    """`::a::b<int>::c`, `a::template b<int>`."""
    words = tokens.words
    at += words[at] == "::"
    while words[at].isidentifier():
        at = tokens.after_angle(at + 1) if words[at + 1] == "<" else at + 1
        if words[at] != "::":
            break
        at += 2 if words[at + 1] == "template" else 1
    return at


def name_of_class(tokens: Tokens, at: int) -> int:
    """The name behind `struct`, `enum class` and their attributes, or what stands there instead."""
    while tokens.words[at] in CLASS_KEYS:
        at += 1
    while (behind := after_attribute(tokens, at)) > at:
        at = behind
    return at


def _after_class(tokens: Tokens, at: int) -> int:
    """`struct S`, `struct S : B { ... }`, `enum class E : int { ... }`."""
    words, at = tokens.words, name_of_class(tokens, at)
    if words[at].isidentifier() or words[at] == "::":
        at = _after_name(tokens, at)
    body = at
    while words[body] == ":" or (body > at and words[body] not in {"{", ";", "", ")", "="}):
        body += 1
    return tokens.partner[body] + 1 if words[body] == "{" else at


def _declarator(tokens: Tokens, first: int, end: int) -> Declarator:
    words = tokens.words
    at, is_indirect, spaces, between = _after_pointers(tokens, first, end)
    name, is_function = None, False
    if at < end and words[at] == "(" and _is_nested(tokens, at):
        inner = _declarator(tokens, at + 1, tokens.partner[at])
        name, at = inner.name, tokens.partner[at] + 1
        if inner.is_indirect:  # `(*p)[4]`, `(*f)(int)`: a pointer, whatever follows
            is_indirect, spaces, between = True, inner.spaces, inner.between
    while at < end and _is_of_name(words[at]) and after_attribute(tokens, at) == at:
        name = at if words[at] != "::" else None  # `S::x`: the last one
        at += 1
    attributes = list[tuple[int, int]]()
    while at < end and words[at] not in {"=", "{", ":"}:
        is_function = is_function or (words[at] == "(" and not is_indirect)
        behind = after_attribute(tokens, at)
        attributes += [(at, behind)] if behind > at else []
        at = behind if behind > at else tokens.partner[at] + 1 if words[at] in {"(", "["} else at + 1
    value = min(at, end)
    return Declarator(first, end, name, value, is_indirect, is_function, spaces, between, tuple(attributes))


def _is_of_name(word: str) -> bool:
    return word == "::" or (word.isidentifier() and word not in SPACES)


def _after_pointers(tokens: Tokens, at: int, end: int) -> tuple[int, bool, tuple[str, ...], tuple[str, ...] | None]:
    """`* const * threadgroup`: the word after it, whether there is a `*` or `&`, and the spaces after the last one.

    And those between the last two; None: there is one at most.
    """
    words = tokens.words
    is_indirect, spaces = False, tuple[str, ...]()
    between: tuple[str, ...] | None = None
    while at < end:
        if words[at] in _INDIRECT:
            between = spaces if is_indirect else None
            is_indirect, spaces = True, ()
        elif words[at] in SPACES:
            spaces = (*spaces, words[at])
        elif (behind := after_attribute(tokens, at)) > at:
            at = behind - 1
        elif words[at] not in {"", "."} and words[at] not in _QUALIFIERS:  # three points are those of a pack
            break
        at += 1
    return at, is_indirect, spaces, between


def _is_nested(tokens: Tokens, at: int) -> bool:
    """True for the `(` of `(*f)(int)`, `(&x)[4]` and `(x)[4]`: not for that of parameters."""
    inner = tokens.words[at + 1]
    return inner in _INDIRECT or (tokens.partner[at] == at + 2 and inner.isidentifier() and inner not in _FUNDAMENTAL)
