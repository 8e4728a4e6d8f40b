"""Numbers: in Metal 1.0 is a float, 1.0h a half and 1.0bf a bfloat.

In `c ? x : 0`, where x is a bfloat, the 0 becomes `softmetal::literal<0>()`, which becomes what x is.  Metal's bfloat
is a number as float is.  The shim's is a class: an int converts to it and it to an int, so that C++ calls such a
conditional ambiguous.
"""

from __future__ import annotations

import functools
import re

from metal_dlpack.language.tokens import Tokens

_DECIMAL = re.compile(r"((?:\d[\d']*\.?[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?)(bf|BF|h|H)?")
_HEXADECIMAL = re.compile(r"0[xX][\da-fA-F']*\.?[\da-fA-F']*[pP][+-]?\d+")
_TYPES = {"h": "half", "bf": "bfloat"}
_INTEGER = re.compile(r"\d+")
_BFLOATS = {"bfloat", "bfloat16_t"}
_ENDS = {";", ")", ",", "]", "}"}
_BEGINS = {";", "(", "{", "}", "[", ","}


@functools.lru_cache(maxsize=4096)
def in_cpp(number: str) -> str:
    """Return the number as C++ has it: of the type that it has in Metal."""
    decimal = _DECIMAL.fullmatch(number)
    if decimal is None:
        return number + "f" if _HEXADECIMAL.fullmatch(number) else number
    digits, suffix = decimal[1], decimal[2]
    is_real = any(letter in digits for letter in ".eE")
    if suffix:
        return f"{_TYPES[suffix.lower()]}({digits}{'' if is_real else '.'}f)"
    return digits + "f" if is_real else number


def rewrite(words: list[str]) -> None:
    """Rewrite the numbers among the words, in place."""
    for at, word in enumerate(words):
        # mutant survives (logic #2): only slower: in_cpp leaves what is no number
        if word[:1].isdigit() or (word[:1] == "." and len(word) > 1):
            words[at] = in_cpp(word)


def rewrite_chosen(tokens: Tokens, source: Tokens) -> None:
    """Rewrite plain integers among what a conditional chooses from, in place, if the source names bfloat at all.

    source: with its instantiations, which may be all that name it.
    """
    words = tokens.words
    if _BFLOATS.isdisjoint(source.words):
        return
    found = [at for at, word in enumerate(words) if _INTEGER.fullmatch(word) and _is_chosen(tokens, at)]
    for at in found:
        words[at] = f"softmetal::literal<{words[at]}>()"


def _is_chosen(tokens: Tokens, at: int) -> bool:
    """The number is all that stands after the `?` or the `:`, and no number stands on the other side."""
    words = tokens.words
    if words[at - 1] == "?":
        return words[at + 1] == ":" and not (_INTEGER.fullmatch(words[at + 2]) and words[at + 3] in _ENDS)
    if words[at - 1] != ":" or words[at + 1] not in _ENDS:
        return False
    question = _question(tokens, at - 1)
    return question is not None and not (question + 2 == at - 1 and _INTEGER.fullmatch(words[question + 1]))


def _question(tokens: Tokens, at: int) -> int | None:
    """The `?` that the `:` at `at` belongs to; None if it is no conditional's."""
    words, depth = tokens.words, 1
    while depth > 0:
        at -= 1
        if at < 0 or words[at] in _BEGINS:
            return None
        if words[at] in {")", "]"}:
            at = tokens.partner[at]
        depth += (words[at] == ":") - (words[at] == "?")
    return at
