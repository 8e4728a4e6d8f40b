"""The signatures of kernels: what a parameter is, and in which order a call gives them.

Metal's reflection names what is bound to a kernel.  No page says in which order it does, or that a parameter which
changes nothing is among them; the signature in the source says both.  It is read as the user wrote it, on a Mac and
elsewhere: no macro is expanded and no `#if` evaluated, so that both systems find the same order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from . import attributes, declarators
from .attributes import Attribute
from .declarators import Declared
from .no_code import COMMENT, RAW_TEXT, TEXT
from .tokens import TOKEN, Tokens, Unbalanced

_BOUND = {"device": "buffer", "constant": "buffer", "threadgroup": "threadgroup"}
#: What an attribute can say of a parameter that a call gives.
KINDS = ("buffer", "threadgroup", "texture", "sampler")
_TEXTURE = re.compile(r"texture_buffer|(?:texture(?:1d|2d|2d_ms|3d|cube)|depth(?:2d|2d_ms|cube))(?:_array)?")


class Written(NamedTuple):
    """A parameter as it stands in the source."""

    first: int
    end: int
    name: str
    space: str | None  # of KINDS: what its address space says, or its type
    is_constant: bool  # in the constant address space
    attributes: dict[str, Attribute]
    declared: Declared | None

    def arguments(self, name: str) -> tuple[str, ...]:
        """The words in an attribute's parentheses."""
        return self.attributes[name].arguments if name in self.attributes else ()

    def kind(self) -> str | None:
        return next((kind for kind in KINDS if kind in self.attributes), self.space)


def written(tokens: Tokens, opening: int, named: Mapping[str, list[str]]) -> list[Written]:
    """The parameters after the `(` at `opening`; named: the address spaces that a typedef's name stands for."""
    found = [_read(tokens, *place, named) for place in tokens.split(opening + 1, tokens.partner[opening])]
    return [one for one in found if tokens.words[one.first : one.end] != ["void"]]


def _read(tokens: Tokens, first: int, end: int, named: Mapping[str, list[str]]) -> Written:
    found = {one.name: one for one in attributes.within(tokens, first, end)}
    declared = declarators.read(tokens, first, end)
    one = declared.declarators[0] if declared and declared.declarators else None
    name = tokens.words[one.name] if one and one.name is not None else ""
    words = tokens.words[first : declared.type_end] if declared else []
    spaces = declared.spaces if declared else []
    spaces = spaces or [space for word in words for space in named.get(word, [])]
    if one and one.between is not None:
        spaces = list(one.between)
    space = next((_BOUND[word] for word in spaces if word in _BOUND), None) or _kind_of(words)
    return Written(first, end, name, space, "constant" in spaces, found, declared)


def _kind_of(type_words: list[str]) -> str | None:
    """Return what a type that is in no address space is: a texture, a sampler, or an array of them."""
    if "sampler" in type_words:
        return "sampler"
    return "texture" if any(map(_TEXTURE.fullmatch, type_words)) else None


# ---- the order of a call ----


class Binding(NamedTuple):
    """What Metal's reflection lists."""

    name: str
    kind: str  # of KINDS, or "" for what no call gives
    index: int  # type: ignore[assignment]  # a tuple has a method of this name, which nobody needs here


class Place(NamedTuple):
    """What a call gives next: the binding at `listed`, or at -1 a parameter that Metal does not list."""

    listed: int
    name: str
    is_threadgroup: bool
    is_constant: bool = False  # in the constant address space, as far as the signature is known


def order(text: str, asked: tuple[str, Sequence[tuple[str, str, int]]]) -> list[Place]:
    """The parameters of a kernel as a call gives them; `asked` is its name, and the bindings that Metal lists.

    Where the text does not show the signature, because a macro makes it, the order is that of the indices.  Raises
    TypeError where it shows one that does not have what Metal lists.
    """
    kernel, listed = asked[0], [Binding(*one) for one in asked[1]]
    known = _signatures(text)
    named: dict[str, str] = dict(_HOST_NAME.findall(text))
    own = named.get(kernel, kernel.rpartition("::")[2])  # the function that Metal knows as `kernel`
    fitting = [one for one in known if one.has(listed)]
    fitting = [one for one in fitting if one.function == own] or fitting
    if not fitting:
        _refuse_disagreement(kernel, [one for one in known if one.function == own], listed)
    orders = sorted((one.order(listed) for one in fitting), key=len)
    if len({tuple(place.listed for place in one if place.listed >= 0) for one in orders}) == 1:
        return orders[0]
    by_index = sorted(range(len(listed)), key=lambda at: listed[at].index)
    return [Place(at, listed[at].name, listed[at].kind == "threadgroup") for at in by_index]


class _Parameter(NamedTuple):
    name: str
    kind: str | None  # None: of the thread, or what a macro hides
    index: int | None  # type: ignore[assignment]  # None: not written as a number
    is_certain: bool  # it is there whatever macros and constants say
    is_constant: bool

    def is_listed_as(self, one: Binding) -> bool:
        is_alike = self.kind is None or one.kind in {"", self.kind}
        return self.name == one.name and is_alike and self.index in {None, one.index}


class _Signature(NamedTuple):
    function: str
    parameters: tuple[_Parameter, ...]
    is_whole: bool  # no macro hides a part of it

    def has(self, listed: Sequence[Binding]) -> bool:
        return all(any(parameter.is_listed_as(one) for parameter in self.parameters) for one in listed)

    def order(self, listed: Sequence[Binding]) -> list[Place]:
        places: dict[str, Place] = {}
        for parameter in self.parameters:
            found = next((at for at, one in enumerate(listed) if parameter.is_listed_as(one)), -1)
            if found >= 0 or (parameter.kind is not None and parameter.is_certain):
                is_threadgroup = parameter.kind == "threadgroup"
                places.setdefault(parameter.name, Place(found, parameter.name, is_threadgroup, parameter.is_constant))
        return list(places.values())


def _refuse_disagreement(kernel: str, own: list[_Signature], listed: Sequence[Binding]) -> None:
    """Raise TypeError where the source shows the kernel's one signature, and it lacks what Metal lists."""
    if len(own) != 1 or not own[0].is_whole:
        return
    wrong = next(one for one in listed if not any(parameter.is_listed_as(one) for parameter in own[0].parameters))
    names = ", ".join(parameter.name for parameter in own[0].parameters)
    raise TypeError(
        f"Library.kernel: Metal lists {wrong.kind or 'an argument'} {wrong.index} of {kernel!r} as {wrong.name!r}, "
        f"which the source's signature ({names}) does not have there: which argument is which is not known. Give each "
        "parameter a name of its own, and its index as a number."
    )


# ---- a source that nothing has preprocessed ----

_OF_NO_CODE = re.compile(rf"(?P<comment> {COMMENT} | \\\r?\n) | {RAW_TEXT} | {TEXT} | \\.", re.DOTALL | re.VERBOSE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^()]*)\))?", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif)\b", re.MULTILINE)
_MARK = re.compile(r"\bkernel\b(?=\s*(?:[\w\[\]]|,\s*\w|__attribute__))")
_HOST_NAME = re.compile(
    r"""host_name\s*\(\s*"(?P<given>[^"]*)"\s*\)[^;{}]{0,1024}?
        \b(?!decltype\b|max_total_threads|__attribute__)(?P<function>\w++)\s*+(?:<[^;{}()]{0,1024}>)?\s*+(?=[(;])""",
    re.VERBOSE,
)
_BEFORE_PARENTHESES = {"__attribute__", "alignas", "max_total_threads_per_threadgroup", "host_name"}
#: Longer than any signature with its attributes.
_MOST_LETTERS = 1 << 15


def without_comments(text: str) -> str:
    """Return the text with each comment and each joined line as white space; what is left keeps its place."""
    return _OF_NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]) if found["comment"] else found[0], text)


@lru_cache(maxsize=16)
def _signatures(text: str) -> tuple[_Signature, ...]:
    """Read all that is marked as a kernel, templates and the bodies of macros among it."""
    plain = without_comments(text)
    # In a macro's body its parameters may stand for anything.
    macros = {word for name, given in _MACRO.findall(plain) for word in (name, *re.findall(r"\w+", given))}
    return tuple(found for mark in _MARK.finditer(plain) if (found := _signature(plain, mark.end(), macros)))


def _signature(plain: str, at: int, macros: set[str]) -> _Signature | None:
    """The signature behind the mark at `at`; None for what has none there, or none that names its parameters."""
    head = head_of(plain, at)
    if head is None:
        return None
    function, opening = head
    try:
        tokens = Tokens.of(plain[opening : behind(plain, opening)])
    except Unbalanced:
        return None
    declarators.drop_coherence(tokens)
    parameters, is_whole = [], not macros & set(tokens.words)
    depth, at = 0, 0
    for one in written(tokens, 0, {}):
        for gap in tokens.gaps[at : one.first + 1]:
            depth += sum(1 if word != "endif" else -1 for word in _CONDITION.findall(gap))
        at = one.first + 1
        kind = one.kind()
        is_known = bool(one.name) and (kind is not None or bool(one.attributes))
        is_whole = is_whole and is_known and depth == 0
        is_certain = depth == 0 and "function_constant" not in one.attributes
        words = one.arguments(kind or "")
        index = int(words[0]) if len(words) == 1 and words[0].isdecimal() else None
        parameters.append(_Parameter(one.name, kind, index, is_certain, one.is_constant))
    return _Signature(function, tuple(parameters), is_whole)


def head_of(plain: str, at: int) -> tuple[str, int] | None:
    """The name of the function that is declared from `at` on, and where the `(` of its parameters is."""
    name, depth = "", 0
    for found in TOKEN.finditer(plain, at, at + _MOST_LETTERS):
        word = found[2] or ""
        if word == "(" and depth == 0 and name not in _BEFORE_PARENTHESES:
            return (name, found.start(2)) if name else None
        if word in {"", ";", "{", "}", "="} and depth == 0:
            return None
        depth = max(depth + (word in {"(", "[", "<"}) - (word in {")", "]", ">"}), 0)  # the mark may stand in [[...]]
        if depth == 0 and word.isidentifier():
            name = word
    return None


def behind(plain: str, opening: int) -> int:
    """Where the `(` or `<` at `opening` is closed; what stands in parentheses closes no `<`."""
    round_depth = depth = 0
    for found in TOKEN.finditer(plain, opening, opening + _MOST_LETTERS):
        round_depth += (found[2] == "(") - (found[2] == ")")
        if plain[opening] == "<" and round_depth == 0:
            depth += (found[2] == "<") - (found[2] == ">")
        if round_depth == depth == 0:
            return found.end(2)
    return opening + 1
