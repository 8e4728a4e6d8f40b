"""Integer expressions of attributes, such as `FIRST + 1`, worked out with the constants of the source."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from metal_dlpack.language.declarations import OTHER, Declaration
from metal_dlpack.language.tokens import Tokens

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: lambda a, b: a << min(b, 64),
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
}
_MOST_WORDS = 64


class Integers:
    """The integers that a source's attributes name."""

    def __init__(self, tokens: Tokens, declarations: list[Declaration]):
        self._written = _constants(tokens, declarations)

    def value(self, words: Sequence[str]) -> int | None:
        """Return the value, or None where only a compiler knows it."""
        return _value(words, self._known)

    @cached_property
    def _known(self) -> dict[str, int | None]:
        """The constants' values, worked out in the order of the source: each is made of earlier ones."""
        known: dict[str, int | None] = {}
        for name, words in self._written:
            known[name] = _value(words, known)
        return known


def _value(words: Sequence[str], known: Mapping[str, int | None]) -> int | None:
    if not words or len(words) > _MOST_WORDS:
        return None
    text = " ".join(_in_python(word) for word in words)
    try:
        return _of_node(ast.parse(text, mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError):
        return None


def _of_node(node: ast.expr, known: Mapping[str, int | None]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_of_node(node.left, known), _of_node(node.right, known))
    if isinstance(node, ast.Name) and (value := known[node.id]) is not None:
        return value
    raise ValueError("no integer")


def _in_python(word: str) -> str:
    if word[:1].isdigit():
        word = word.rstrip("uUlL").replace("'", "")
        return f"0o{word}" if word.isdigit() and word.startswith("0") else word
    return "//" if word == "/" else word


def _constants(tokens: Tokens, declarations: list[Declaration]) -> list[tuple[str, list[str]]]:
    """What stands after `=` in the source's variables, and in its enumerators."""
    found = []
    for one in declarations:
        if one.kind == OTHER and one.last - one.head_end <= _MOST_WORDS and tokens.words[one.head_end] == "=":
            found.append((one.name(tokens), tokens.words[one.head_end + 1 : one.last]))
        elif one.body is not None and "enum" in tokens.words[one.first : one.body]:
            found += _enumerators(tokens, one.body)
    return found


def _enumerators(tokens: Tokens, body: int) -> list[tuple[str, list[str]]]:
    words = tokens.words
    found = []
    last_given, distance = ["0"], -1
    for first, end in tokens.split(body + 1, tokens.partner[body]):
        distance += 1
        if first + 1 < end and words[first + 1] == "=":
            last_given, distance = words[first + 2 : end], 0
        found.append((words[first], ["(", *last_given, ")", "+", str(distance)]))
    return found
