"""`a.xy` in a template: a call, where clang would see a property.

The shim's swizzles are properties.  Up to version 22, clang forgets that they are when it instantiates an operator of
which it knew no operand before: `a.xy * b.zw`, `-a.xy`, `a.xy += b`.
"""

from __future__ import annotations

import re

from metal_dlpack.language.declarations import Declaration, every
from metal_dlpack.language.tokens import Tokens

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_DOTS = {".", "->"}
_COMPOUND = {"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="}
_WRITES = {"=", "++", "--"}
_PLACES = {letter: place for letters in ("xyzw", "rgba") for place, letter in enumerate(letters)}


def rewrite(tokens: Tokens, declarations: list[Declaration]) -> None:
    """What is read becomes `a.get_xy()`, what is changed `a.part<0, 1>() += b`, in place."""
    words = tokens.words
    swizzles = {word for word in set(words) if _SWIZZLE.fullmatch(word)}
    # A name that stands alone somewhere is declared there: it may be a member of a struct of the user's.
    swizzles -= {word for at, word in enumerate(words) if word in swizzles and words[at - 1] not in _DOTS}
    if not swizzles:
        return
    for at in sorted({at for one in every(declarations) if one.is_template for at in range(one.first, one.last)}):
        word, following = words[at], words[at + 1]
        if word not in swizzles or following in _WRITES | {"("}:
            continue
        if following in _COMPOUND:
            words[at] = f"template part<{', '.join(str(_PLACES[letter]) for letter in word)}>()"
        else:
            letters = "".join("xyzw"[_PLACES[letter]] for letter in word)
            words[at] = f"get_{letters}()"
