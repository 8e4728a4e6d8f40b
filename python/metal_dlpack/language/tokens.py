"""A preprocessed source as words, each with the gap before it, and the brackets that belong together.

A gap is white space and directives (`#line`, `#pragma`).  Gaps and words in turn are the source again, letter by
letter: a rewritten word moves nothing from its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from .errors import PROGRAM
from .no_code import RAW_TEXT, TEXT

TOKEN = re.compile(
    rf"""
    ((?:\s++|^\#[^\n]*+)*+)                      # the gap
    ( (?:u8|[uUL])?{RAW_TEXT}
    | (?:[^\W\d]|\$)\w*+
    | {TEXT}
    | \\[^\n]
    | \.?\d(?:[eEpP][+-]|'?[\w.])*+              # a number, with its suffix
    | :: | -> | << | [-+*/%&|^!=<>]= | && | \|\| | \+\+ | -- | . )?+
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_LINE_DIRECTIVE = re.compile(r'^\s*#\s*(?:line\s+)?(\d+)(?:\s+"((?:[^"\\]|\\.)*)")?')
_KEPT_OF_A_GAP = re.compile(r"^#line [^\n]*|\n", re.MULTILINE)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def split(text: str) -> list[str]:
    """At the commas that no bracket holds."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces if piece.strip()]


def numbered(text: str, name: str) -> Iterator[tuple[str, int, str, bool]]:
    """(file, number, the line, is it a `#line`) for each line of a source that is called so."""
    number = 1
    for line in text.split("\n"):
        directive = _LINE_DIRECTIVE.match(line)
        yield name, number, line, directive is not None
        number += 1
        if directive:
            number = int(directive[1])
            name = re.sub(r"\\(.)", r"\1", directive[2]) if directive[2] is not None else name


class Unbalanced(Exception):
    """A bracket without its partner: only the compiler can say well what is wrong."""


class Tokens:
    """Words and gaps of one source.  `partner` leads from each bracket to the other of its pair."""

    def __init__(self, words: list[str], gaps: list[str], partner: dict[int, int]):
        self.words = words
        self.gaps = gaps
        self.partner = partner

    @classmethod
    def of(cls, text: str) -> Tokens:
        """Raises Unbalanced."""
        gaps, words, _ = (list(column) for column in zip(*TOKEN.findall(text), strict=True))
        return cls(words, gaps, _partners(words))

    def copy(self) -> Tokens:
        return Tokens(self.words.copy(), self.gaps.copy(), self.partner)

    def text(self) -> str:
        return "".join([part for pair in zip(self.gaps, self.words, strict=True) for part in pair])

    def drop(self, first: int, last: int) -> None:
        """Take the words out, `last` included; their lines stay."""
        for index in range(first, last + 1):
            self.words[index] = ""
            # mutant survives (comparison #2): a space less where nothing stands
            if index > first and len(self.gaps[index]) > 1:
                self.gaps[index] = "".join(_KEPT_OF_A_GAP.findall(self.gaps[index]))

    def after_angle(self, index: int) -> int:
        """The word after the `>` that closes the `<` at `index`; `index` itself if none does."""
        depth, at = 0, index
        while at < len(self.words):
            word = self.words[at]
            if word == "<":
                depth += 1
            elif word == ">":
                depth -= 1
                if depth == 0:
                    return at + 1
            elif word in _CLOSING:
                at = self.partner[at]
            elif word in {";", ")", "]", "}"}:
                break
            at += 1
        return index

    def outside(self, first: int, end: int) -> list[int]:
        """Which of words[first:end] stand in no brackets, `<...>` among them."""
        found, at = list[int](), first
        while at < end:
            found.append(at)
            behind = self.after_angle(at) if self.words[at] == "<" else at
            at = behind if behind > at else max(self.partner.get(at, at), at) + 1
        return found

    def before_angle(self, index: int) -> int:
        """The word before the `<` that the `>` at `index` closes."""
        depth, at = 0, index
        while at > 0:
            word = self.words[at]
            depth += (word == ">") - (word == "<")
            at = self.partner[at] - 1 if word in _CLOSING.values() else at - 1
            if depth == 0:
                break
        return at

    def split(self, first: int, end: int) -> list[tuple[int, int]]:
        """The ranges between the commas of words[first:end] that stand in no brackets."""
        commas = [at for at in self.outside(first, end) if self.words[at] == ","]
        ranges = [(before + 1, at) for before, at in pairwise([first - 1, *commas, end])]
        return ranges if ranges[-1][0] < end else ranges[:-1]

    def place(self, index: int) -> tuple[str, int, int]:
        """File, line and column where a word stands; the column in bytes, as clang counts."""
        *_, (file, line, before, _) = numbered(self._text_before(index), PROGRAM)
        return file, line, len(before.encode()) + 1

    def line(self, index: int) -> str:
        """The line that a word stands on."""
        text = self.text()
        at = len(self._text_before(index))
        return text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]

    def _text_before(self, index: int) -> str:
        return Tokens(self.words[:index], self.gaps[:index], self.partner).text() + self.gaps[index]


def joined(words: Iterable[str]) -> str:
    """Words as text, with a space wherever two would run together."""
    return " ".join(word for word in words if word)


def _partners(words: list[str]) -> dict[int, int]:
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, word in enumerate(words):
        if word in _CLOSING:
            opened.append(index)
        elif word in {")", "]", "}"}:
            if not opened or _CLOSING[words[opened[-1]]] != word:
                raise Unbalanced
            partner[index] = opened.pop()
            partner[partner[index]] = index
    if opened:
        raise Unbalanced
    return partner
