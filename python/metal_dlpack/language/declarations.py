"""The declarations of namespaces and classes, found without understanding what stands in functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from . import declarators
from .declarators import CLASS_KEYS, Declarator, Declared
from .tokens import Tokens

FUNCTION, CLASS, INSTANTIATION, OTHER = "function", "class", "instantiation", "other"

_BEFORE_PARENTHESES_OF_NO_FUNCTION = {
    *"=;{},",
    "__attribute__",
    "__declspec",
    "_Static_assert",
    "alignas",
    "decltype",
    "explicit",
    "noexcept",
    "static_assert",
}


@dataclass(slots=True)
class Declaration:
    """words[first:last + 1]; its head ends before `head_end`, where `{`, `;`, `=` or a constructor's `:` stands."""

    kind: str
    first: int
    head_end: int
    body: int | None  # its `{`
    last: int
    namespaces: tuple[str, ...]
    parameters: int | None = None  # the `(` of a function's parameters
    is_template: bool = False
    is_member: bool = False
    is_constructor: bool = False
    members: list[Declaration] = field(default_factory=list)

    def name(self, tokens: Tokens) -> str:
        """The name that it declares; empty if it is not plain."""
        words = tokens.words
        if self.kind == CLASS:
            at, _ = after_template(tokens, self.first)
            while at < self.head_end and words[at] not in CLASS_KEYS:
                at += 1
            at = declarators.name_of_class(tokens, at)
        else:
            at = (self.head_end if self.parameters is None else self.parameters) - 1
            while at > self.first and words[at] == "]":
                at = tokens.partner[at] - 1
            if words[at] == ">":  # f<float>(...)
                at = tokens.before_angle(at)
        return words[at] if words[at].isidentifier() else ""


def read(tokens: Tokens) -> list[Declaration]:
    """All declarations of the source that stand in namespaces, those of classes within them."""
    end = len(tokens.words) - 1  # the last word is empty: what has no end, ends before it
    return list(_in_scope(tokens, 0, end, (), False))


def every(declarations: list[Declaration]) -> Iterator[Declaration]:
    """The declarations and those within them."""
    for declaration in declarations:
        yield declaration
        yield from every(declaration.members)


def members(tokens: Tokens, body: int) -> list[Declaration]:
    """The declarations of the class whose `{` is at `body`, one within a function too."""
    return list(_in_scope(tokens, body + 1, tokens.partner[body], (), True))


def aliases(tokens: Tokens) -> Iterator[tuple[str, Declared, Declarator]]:
    """What each typedef, and each `using x = ...;`, calls by a name of its own, in functions too."""
    words = tokens.words
    for at in [at for at, word in enumerate(words) if word in {"typedef", "using"}]:
        end = semicolon(tokens, at, len(words))
        equals = words.index("=", at, end) if words[at] == "using" and "=" in words[at:end] else at
        declared = declarators.read(tokens, equals + 1, end)
        if declared is None or (words[at] == "using" and equals == at):
            continue
        if words[at] == "using":
            nothing = Declarator(end, end, None, end, False, False, (), None)
            yield words[at + 1], declared, (declared.declarators or [nothing])[0]
        else:
            yield from ((words[one.name], declared, one) for one in declared.declarators if one.name is not None)


def statement(tokens: Tokens, at: int) -> tuple[int, int]:
    """Where the statement, or what stands in a bracket, begins that words[at] is part of; and the bracket round it."""
    words, partner = tokens.words, tokens.partner
    first = None
    while at > 0:
        word = words[at - 1]
        if word in {"{", "(", "["}:
            return at if first is None else first, at - 1
        ends = word in {";", ":"} or (word == "}" and not is_class_body(tokens, partner[at - 1]))
        first = at if ends and first is None else first
        at = partner[at - 1] if word in {"}", ")", "]"} else at - 1
    return at if first is None else first, 0


def is_class_body(tokens: Tokens, opening: int) -> bool:
    """True for the `{` of a class or an enumeration."""
    words, at = tokens.words, opening
    while words[opening] == "{" and at > 0:
        word = words[at - 1]
        if word in CLASS_KEYS:
            return True
        if word == ")":
            at = tokens.partner[at - 1]
            if words[at - 1] not in declarators.WITH_PARENTHESES:
                return False
        elif word in {";", "{", "}", "(", "=", "->"}:
            return False
        else:
            at = tokens.partner[at - 1] if word == "]" else tokens.before_angle(at - 1) if word == ">" else at - 1
    return False


def _in_scope(
    tokens: Tokens, begin: int, end: int, namespaces: tuple[str, ...], is_member: bool
) -> Iterator[Declaration]:
    words, partner = tokens.words, tokens.partner
    at = begin
    while at < end:
        word = words[at]
        if word in {"", ";", "}"} or (
            is_member and words[at + 1] == ":" and word in {"public", "private", "protected"}
        ):
            at += 1 if word in {"", ";", "}"} else 2
        elif opened := _opens_namespace(tokens, at):
            brace, inner = opened
            yield from _in_scope(tokens, brace + 1, partner[brace], namespaces + inner, False)
            at = partner[brace] + 1
        else:
            declaration = _declaration(tokens, at, end, namespaces, is_member)
            yield declaration
            at = declaration.last + 1


def _opens_namespace(tokens: Tokens, at: int) -> tuple[int, tuple[str, ...]] | None:
    """The `{` of a namespace, or of `extern "C"`, that begins here, and the names that it adds."""
    words = tokens.words
    if words[at] == "inline" and words[at + 1] == "namespace":
        at += 1
    if words[at] == "extern" and words[at + 1].startswith('"') and words[at + 2] == "{":
        return at + 2, ()
    if words[at] != "namespace":
        return None
    end = next(end for end in range(at, len(words)) if words[end] in {"{", ";", "=", ""})  # the last word is empty
    names = tuple(word for word in words[at + 1 : end] if word.isidentifier())
    return (end, names) if words[end] == "{" else None


def _declaration(tokens: Tokens, first: int, end: int, namespaces: tuple[str, ...], is_member: bool) -> Declaration:
    words, partner = tokens.words, tokens.partner
    at, is_template = after_template(tokens, first)
    if words[first] == "template" and words[first + 1] != "<":
        last = semicolon(tokens, first, end)
        return Declaration(INSTANTIATION, first, last, None, last, namespaces, None, False, is_member)
    made = Declaration(OTHER, first, end, None, end - 1, namespaces, None, is_template, is_member)
    is_class = False
    while at < end:
        word = words[at]
        if word == "(":
            if made.kind != FUNCTION and at > first and _begins_parameters(words, first, at):
                made.parameters = at
                made.kind = FUNCTION
            at = partner[at]
        elif word == "[":
            at = partner[at]
        elif word == "<" and words[at - 1] != "operator":
            at = max(at, tokens.after_angle(at) - 1)
        elif word == ";":
            made.head_end, made.last = at, at
            return made
        elif word == "=" and words[at - 1] != "operator":
            return _with_value(tokens, made, at, end)
        elif word == ":" and made.parameters is not None:
            made.head_end = at
            at = _after_initialisers(tokens, at, end) - 1
        elif word == "{":
            made.body = at
            made.head_end = min(made.head_end, at)
            if made.kind == FUNCTION:
                made.last = partner[at]
                return made
            return _with_members(tokens, made, is_class, end)
        elif word in CLASS_KEYS and made.parameters is None:
            is_class = True
        at += 1
    return made


def after_template(tokens: Tokens, at: int) -> tuple[int, bool]:
    """Where the declaration itself begins, after each `template <...>`; and if it is a template: `<>` makes none."""
    words = tokens.words
    is_template = False
    while words[at] == "template" and words[at + 1] == "<":
        is_template = is_template or words[at + 2] != ">"
        after = tokens.after_angle(at + 1)
        if after == at + 1:
            break
        at = after
    return at, is_template


def _begins_parameters(words: list[str], first: int, at: int) -> bool:
    is_function = words[at - 2] == "operator" or words[at - 1] not in _BEFORE_PARENTHESES_OF_NO_FUNCTION  # `operator=(`
    return is_function and words[first] not in {"typedef", "using"}


def _with_value(tokens: Tokens, made: Declaration, at: int, end: int) -> Declaration:
    """`= default;`, `= 0;`, or a variable's value."""
    words = tokens.words
    made.head_end = at
    if made.kind == FUNCTION and words[at + 1] not in {"default", "delete", "0"}:
        made.kind, made.parameters = OTHER, None
    made.last = semicolon(tokens, at, end)
    return made


def semicolon(tokens: Tokens, at: int, end: int) -> int:
    """The `;` after words[at] that stands in no brackets, or the last word before `end`."""
    while at < end and tokens.words[at] != ";":
        at = tokens.partner[at] + 1 if tokens.words[at] in {"(", "[", "{"} else at + 1
    return min(at, end - 1)


def _after_initialisers(tokens: Tokens, at: int, end: int) -> int:
    """The `{` of a constructor's body, after `: a(1), b{2}`."""
    words = tokens.words
    while True:
        at += 1
        while at < end and words[at] not in {"(", "{", ";"}:
            at = tokens.after_angle(at) if words[at] == "<" and tokens.after_angle(at) > at else at + 1
        if at < end and words[at] != ";":
            at = tokens.partner[at] + 1
        if at >= end or words[at] != ",":
            return at


def _with_members(tokens: Tokens, made: Declaration, is_class: bool, end: int) -> Declaration:
    words = tokens.words
    assert made.body is not None
    close = tokens.partner[made.body]
    if is_class:
        made.kind = CLASS
        if "enum" not in words[made.first : made.body]:
            made.members = list(_in_scope(tokens, made.body + 1, close, made.namespaces, True))
            name = made.name(tokens)
            for member in made.members:
                member.is_constructor = member.kind == FUNCTION and member.name(tokens) == name
    made.last = semicolon(tokens, close + 1, end)
    return made
