"""`[[...]]`: what it says, and taking Metal's own out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .tokens import Tokens

#: What C++ understands; everything else is Metal's.
_OF_THE_LANGUAGE = {"fallthrough", "maybe_unused", "nodiscard", "noreturn", "deprecated", "clang", "gnu"}

_NOT_INLINE = {"noinline", "__noinline__", "optnone"}


class Attribute(NamedTuple):
    name: str
    at: int  # the word of its name
    arguments: tuple[str, ...]  # the words between its parentheses


def is_attribute(tokens: Tokens, at: int) -> bool:
    """True for the first `[` of `[[...]]`."""
    words = tokens.words
    return words[at] == "[" and at + 1 < len(words) and words[at + 1] == "[" and not tokens.gaps[at + 1]


def within(tokens: Tokens, first: int, end: int) -> Iterator[Attribute]:
    """The attributes of words[first:end], in brackets of any kind or in none."""
    words = tokens.words
    for at in [at for at in range(first, end) if is_attribute(tokens, at)]:
        for name, behind in tokens.split(at + 2, tokens.partner[at + 1]):
            while name + 2 < behind and words[name + 1] == "::":
                name += 2
            is_call = name + 1 < behind and words[name + 1] == "("
            arguments = words[name + 2 : tokens.partner[name + 1]] if is_call else []
            yield Attribute(words[name], name, tuple(arguments))


def left_out(tokens: Tokens, first: int, end: int) -> list[str]:
    """words[first:end] without the attributes."""
    words, at = [], first
    while at < end:
        if is_attribute(tokens, at):
            at = tokens.partner[at]
        else:
            words.append(tokens.words[at])
        at += 1
    return words


def let_inline(tokens: Tokens) -> None:
    """Let each call of a `noinline` function be a copy: lanes of two calls, in branches that part, do not meet."""
    words = tokens.words
    for at in range(len(words)) if _NOT_INLINE.intersection(words) else ():
        if words[at] in {"__attribute__", "__declspec"} or is_attribute(tokens, at):
            opening = at if words[at] == "[" else at + 1
            for inside in range(opening, tokens.partner.get(opening, opening)):
                words[inside] = "unused" if words[inside] in _NOT_INLINE else words[inside]


def take_out(tokens: Tokens) -> None:
    """Drop every attribute that is Metal's."""
    words = tokens.words
    for at in [at for at, word in enumerate(words) if word == "[" and is_attribute(tokens, at)]:
        if words[at + 2] not in _OF_THE_LANGUAGE:
            tokens.drop(at, tokens.partner[at])
