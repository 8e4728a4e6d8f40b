"""Which function a call means where an address space decides it, and the functions do different things.

Clang says it, which reads the source with address spaces of its own (space_conversions.py): what calls one of the
functions is told there with its number, and what may be such a call stands on a line that has the call's.  Each
function gets a name of its own then.  What clang did not see called, or saw call several, as in a template, is refused.
"""

from __future__ import annotations

import re

from metal_dlpack.language.address_spaces import Differing, signature, without
from metal_dlpack.language.declarations import FUNCTION, Declaration, every
from metal_dlpack.language.declarators import SPACES
from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.tokens import Tokens, joined

#: Flags for the compiler: to tell of a call is no error, behind which clang would not look for others.
FLAGS = ["-Wno-everything", "-Wuser-defined-warnings"]
_FILE = "softmetal_call"
_CALLED = re.compile(rf"^{_FILE}:(\d+):1: warning: softmetal function (\d+)$", re.MULTILINE)


def prepare(tokens: Tokens, declarations: list[Declaration], differing: list[Differing]) -> None:
    """Rewrite the functions, and what may be their calls, so that clang says which call is whose."""
    words, functions = tokens.words, _functions(tokens, declarations, differing)
    for number, (one, owner, _) in enumerate(functions):
        tells = f'__attribute__((diagnose_if(true, "softmetal function {number}", "warning"))) '
        tokens.gaps[one.first] += tells
        if owner and one.parameters is not None:  # in plain C++ only a parameter has an address space
            opening, close = one.parameters, tokens.partner[one.parameters]
            qualifiers = [word for word in words[close + 1 : one.head_end] if word in {*SPACES, "const"}]
            kind = f"this {' '.join([*qualifiers, owner])} &"
            comma = "," * (close > opening + 1)
            if "const" not in qualifiers:  # a thread's object may have no name
                head, rest = joined(words[one.first : opening + 1]), joined(words[opening + 1 : close])
                tokens.gaps[one.first] += f"{head} {kind}&{comma} {rest}); {tells}"
            words[opening] += f"{kind}{comma}"
            tokens.drop(close + 1, one.last)
            words[close + 1] = ";"
    names = {one.name(tokens) for one, _, _ in functions}
    for at in [at for at, word in enumerate(words) if word in names]:
        tokens.gaps[at] += f'\n#line {at} "{_FILE}"\n'


def rewrite(tokens: Tokens, declarations: list[Declaration], differing: list[Differing], said: str | None) -> None:
    """Give each function, and where clang saw it called, a name of its own.

    Raises SourceError where clang was not asked, and for a function that is declared elsewhere too.
    """
    called: dict[int, set[int]] = {}
    for at, number in _CALLED.findall(said or ""):
        called.setdefault(int(at), set()).add(int(number))
    elsewhere = {one.name(tokens) for one in declarations if one.kind != FUNCTION or one.body is None}
    for one, why in differing[1::2]:  # the second of each pair
        if said is None or one.name(tokens) in elsewhere:
            raise source_error(tokens, one.first, why)
    known = set()
    for number, (one, owner, why) in enumerate(_functions(tokens, declarations, differing)):
        assert one.parameters is not None
        key = (one.namespaces, owner, *signature(tokens, one))
        if key not in known:
            head = joined(without(tokens.words[one.first : one.head_end]))
            why += ": this call does not show which it means"
            tokens.gaps[one.first] += f'__attribute__((unavailable("{why}"))) {head}; '
        known.add(key)
        for at in [one.parameters - 1, *(at for at, numbers in called.items() if numbers == {number})]:
            tokens.words[at] += f"_softmetal{number}"


def _functions(
    tokens: Tokens, declarations: list[Declaration], differing: list[Differing]
) -> list[tuple[Declaration, str, str]]:
    """Each function once, with its class's name, or none, and why it is refused."""
    owners = {id(one): each.name(tokens) for each in every(declarations) for one in each.members}
    each_once = {id(one.function): one for one in differing}.values()
    return [(one, owners.get(id(one), ""), why) for one, why in each_once]
