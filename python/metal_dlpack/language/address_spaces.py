"""Address spaces: a CPU has one.  The words go, and declarations that they alone told apart become one.

`float f(device float *)` and `float f(threadgroup float *)` are one function here.  The first stays.  In Metal there is
no other way to write a function for two address spaces, so that their texts are copies; where they are not, each gets
a name (space_calls.py), or the source is refused rather than run as something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from . import attributes, declarators
from .declarations import FUNCTION, INSTANTIATION, Declaration, after_template, every
from .declarators import SPACES
from .diagnostics import source_error
from .tokens import Tokens

_AS_CPP = dict.fromkeys(SPACES, "") | {"constant": "const", "kernel": ""}
_NO_DIFFERENCE = {"inline", "static", "constexpr", "METAL_FUNC", "extern"}
_WHY_NOT = (
    "an address space chooses between this and the declaration in line {}, which does something else: "
    "without a Mac there is one address space, so give one of the two another name"
)


class Differing(NamedTuple):
    """A function that differs from another in an address space, and does something else: a call may mean it."""

    function: Declaration
    why: str


def differ(tokens: Tokens, known: Declaration, one: Declaration) -> list[Differing]:
    """Return both; raises SourceError where no name can tell their calls apart."""
    why = _WHY_NOT.format(tokens.place(known.first)[1])
    for each in (known, one):
        name = (each.parameters or 0) - 1
        is_named = tokens.words[name].isidentifier() and tokens.words[name - 1] not in {"operator", "::"}
        if each.is_template or each.is_constructor or each.body is None or not is_named:
            raise source_error(tokens, one.first, why)
    return [Differing(known, why), Differing(one, why)]


def without(words: Iterable[str]) -> list[str]:
    """Return the words as C++ has them."""
    return [_AS_CPP.get(word, word) for word in words]


def erase(tokens: Tokens, declarations: list[Declaration]) -> None:
    """Rewrite the words of the source; `declarations` are those that are left of it."""
    words = tokens.words
    for one in every(declarations):
        if one.is_constructor and one.parameters is not None:  # of all functions, it may not be const
            after = range(tokens.partner[one.parameters] + 1, one.head_end)
            tokens.words[after.start : after.stop] = ["" if words[at] in SPACES else words[at] for at in after]
    tokens.words = without(words)


def drop_duplicates(tokens: Tokens, declarations: list[Declaration], differing: list[Differing]) -> list[Declaration]:
    """Drop what is declared already once address spaces are gone; return the declarations that stay.

    differing: what does something else is added.
    """
    dropped = {id(one) for one in _duplicates(tokens, declarations, differing)}
    stay = []
    for one in declarations:
        if id(one) in dropped:
            tokens.drop(one.first, one.last)
            continue
        one.members = drop_duplicates(tokens, one.members, differing)
        stay.append(one)
    return stay


def _duplicates(tokens: Tokens, declarations: list[Declaration], differing: list[Differing]) -> Iterator[Declaration]:
    for same_name in _alike(tokens, declarations):
        groups: dict[tuple[str, ...], list[Declaration]] = {}
        for one in same_name:
            groups.setdefault((str(one.body is None), *signature(tokens, one)), []).append(one)
        choosing = {id(one.function) for one in differing}
        for known, *others in groups.values():
            twins = [one for one in others if _head(tokens, one) != _head(tokens, known)]
            different = [one for one in twins if rest(tokens, one) != rest(tokens, known)]
            is_asked = all(condition(tokens, one) for one in different)
            if not is_asked or not choosing.isdisjoint(map(id, [known, *twins])):
                differing += [each for one in [*different, *twins] for each in differ(tokens, known, one)]
                continue
            if different:
                forbid(tokens, different[0], known)
            yield from twins


def condition(tokens: Tokens, one: Declaration) -> list[str]:
    """What enable_if asks in the head of a template: it may exclude what the address space alone seems to choose."""
    words = tokens.words
    head = range(one.first, one.head_end)
    places = [at for at in head if words[at] in {"enable_if", "enable_if_t"} and words[at + 1] == "<"]
    return [word for at in places for word in words[at : tokens.after_angle(at + 1)]]


def forbid(tokens: Tokens, beside: Declaration, one: Declaration) -> None:
    """Let the compiler refuse what calls it."""
    at, _ = after_template(tokens, one.first)
    if tokens.words[at]:
        why = _WHY_NOT.format(tokens.place(beside.first)[1])
        tokens.gaps[at] += f'__attribute__((unavailable("{why}"))) '


def _alike(tokens: Tokens, declarations: list[Declaration]) -> Iterator[list[Declaration]]:
    """Groups of one name and namespace, in which an address space stands."""
    groups: dict[tuple[object, ...], list[Declaration]] = {}
    for one in declarations:
        if one.kind != INSTANTIATION:
            groups.setdefault((one.namespaces, one.kind, one.name(tokens)), []).append(one)
    for group in groups.values():
        if len(group) > 1 and any(not SPACES.isdisjoint(tokens.words[one.first : one.head_end]) for one in group):
            yield group


def _head(tokens: Tokens, one: Declaration) -> list[str]:
    return attributes.left_out(tokens, one.first, one.head_end)


def rest(tokens: Tokens, one: Declaration) -> list[str]:
    """What follows the head, with parameters called by their places."""
    places = {}
    if one.kind == FUNCTION and one.parameters is not None:
        ranges = tokens.split(one.parameters + 1, tokens.partner[one.parameters])
        for place, (first, end) in enumerate(ranges):
            name = declarators.name_of_parameter(tokens, first, end)
            if name is not None:
                places[tokens.words[name]] = f"{place}"
    words = without(tokens.words[one.head_end : one.last + 1])
    return [places.get(word, word) for word in words if word]


def signature(tokens: Tokens, one: Declaration) -> list[str]:
    """What tells the declaration from others, without address spaces and the names of parameters."""
    if one.kind != FUNCTION or one.parameters is None:
        return _once_const(_head(tokens, one))
    close = tokens.partner[one.parameters]
    signature = _once_const(attributes.left_out(tokens, one.first, one.parameters))
    for first, end in tokens.split(one.parameters + 1, close):
        signature += [",", *_type_of_parameter(tokens, first, end)]
    after = attributes.left_out(tokens, close + 1, one.head_end)
    if one.is_constructor:
        after = [word for word in after if word not in SPACES]
    return [*signature, ")", *_once_const(after)]


def _type_of_parameter(tokens: Tokens, first: int, end: int) -> list[str]:
    """`const device T *x = 0` and `constant T *y` both become const T *."""
    words = type_of_parameter(tokens, first, end)
    pointer = next((at for at, word in enumerate(words) if word in {"*", "&", "&&"}), len(words))
    return _const_first(without(words[:pointer])) + _const_first(without(words[pointer:]))


def type_of_parameter(tokens: Tokens, first: int, end: int) -> list[str]:
    """The words of a parameter's type: without its name, its attributes and its default."""
    name = declarators.name_of_parameter(tokens, first, end)
    ranges = [(first, end)] if name is None else [(first, name), (name + 1, end)]
    words = [word for part in ranges for word in attributes.left_out(tokens, *part)]
    return words[: words.index("=")] if "=" in words else words


def _const_first(words: list[str]) -> list[str]:
    rest = [word for word in words if word not in {"", "const"}]
    return ["const", *rest] if "const" in words else rest


def _once_const(words: list[str]) -> list[str]:
    kept: list[str] = []
    for word in without(words):
        if word and word not in _NO_DIFFERENCE and not (word == "const" and kept and kept[-1] == "const"):
            kept.append(word)
    return kept
