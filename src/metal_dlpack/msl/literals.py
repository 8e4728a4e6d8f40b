"""Numbers: in Metal 1.0 is a float, 1.0h a half and 1.0bf a bfloat."""

from __future__ import annotations

import re

_DECIMAL = re.compile(r"((?:\d[\d']*\.?[\d']*|\.\d[\d']*)(?:[eE][+-]?\d+)?)(bf|BF|h|H)?")
_HEXADECIMAL = re.compile(r"0[xX][\da-fA-F']*\.?[\da-fA-F']*[pP][+-]?\d+")
_TYPES = {"h": "half", "bf": "bfloat"}


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
    known: dict[str, str] = {}
    for at, word in enumerate(words):
        # mutant survives (logic #2): only slower: in_cpp leaves what is no number
        if word[:1].isdigit() or (word[:1] == "." and len(word) > 1):
            if word not in known:
                known[word] = in_cpp(word)
            words[at] = known[word]
