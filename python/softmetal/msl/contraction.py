"""`#pragma METAL fp contract(off)` for vectors, whose operators are the shim's.

Clang's pragma rules the operators that stand behind it.  A vector's stand in the shim, where a product and a sum
may become one operation; those of `softmetal::exact` round each, and are found first where that namespace is open.
"""

from __future__ import annotations

import re

from metal_dlpack.language.declarations import FUNCTION, Declaration, every
from metal_dlpack.language.tokens import Tokens

_PRAGMA = re.compile(r"^#pragma clang fp contract\((\w+)\)[^\n]*\n?", re.MULTILINE)
_OPENED = " using namespace softmetal::exact; "


def rewrite(tokens: Tokens, declarations: list[Declaration]) -> None:
    """Open the namespace in each block that may not contract, in place."""
    if not any("contract(off)" in gap for gap in tokens.gaps):
        return
    bodies = {one.body for one in every(declarations) if one.kind == FUNCTION and one.body is not None}
    is_off, at = False, 0
    while at < len(tokens.words):
        is_off = _state_after(tokens.gaps[at], is_off)
        if at in bodies and tokens.words[at] == "{":
            _in_function(tokens, at, is_off)
            at = tokens.partner[at]
        at += 1


def _in_function(tokens: Tokens, opening: int, is_off: bool) -> None:
    """A pragma holds to the end of its block."""
    states = [is_off]
    for at in range(opening, tokens.partner[opening]):
        if tokens.words[at] == "{":
            states.append(_state_after(tokens.gaps[at + 1], states[-1]))
            if states[-1] and (at == opening or not states[-2]):
                # Behind the pragmas of the block, which come before its statements; before those of a loop.
                gap = tokens.gaps[at + 1]
                end = max((found.end() for found in _PRAGMA.finditer(gap)), default=0)
                tokens.gaps[at + 1] = gap[:end] + _OPENED + gap[end:]
        elif tokens.words[at] == "}":
            states.pop()


def _state_after(gap: str, is_off: bool) -> bool:
    found = _PRAGMA.findall(gap) if "#pragma" in gap else []
    return found[-1] == "off" if found else is_off
