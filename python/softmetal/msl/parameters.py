"""The parameters of a kernel, and what binds each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.signatures import KINDS, Written, written
from metal_dlpack.language.tokens import Tokens, joined

from .flags import INCLUDE
from .integers import Integers

#: Attributes of what each thread is told: those that the shim has an answer to.
_OF_THE_THREAD = set(re.findall(r"^    FACT\((\w+)", (INCLUDE / "softmetal_image.h").read_text(), re.MULTILINE))


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    binder: str  # a type of C++
    condition: tuple[str, ...]  # the words of its [[function_constant(...)]]


def bind(
    tokens: Tokens, opening: int, last: int, integers: Integers, named: Mapping[str, list[str]]
) -> list[Parameter]:
    """The parameters after the `(` at `opening`.  Raises SourceError for one that nothing can be bound to.

    last: the word that ends the function.  named: the address spaces that a typedef's name stands for.
    """
    parameters = written(tokens, opening, named)
    used = set(tokens.words[tokens.partner[opening] : last])
    free = {kind: _free_indices(tokens, parameters, kind, integers) for kind in KINDS}
    return [
        Parameter(one.name, _binder(tokens, one, one.name in used, free, integers), one.arguments("function_constant"))
        for one in parameters
    ]


def indices(tokens: Tokens, one: Written, kind: str, integers: Integers) -> range:
    """The indices that a parameter's attribute takes: of `array<texture2d<float>, 4> t`, four; none: not known."""
    words = tokens.words
    index, many = integers.value(one.arguments(kind)), None
    array = [at for at in range(one.first, one.end) if words[at] == "array" and words[at + 1] == "<"]
    if array and kind in {"texture", "sampler"}:
        _, *given = tokens.split(array[0] + 2, tokens.after_angle(array[0] + 1) - 1)
        many = integers.value(words[slice(*given[-1])]) if given else None
    return range(index, index + (many or 1)) if index is not None else range(0)


def _free_indices(tokens: Tokens, parameters: list[Written], kind: str, integers: Integers) -> Iterator[int]:
    used = {index for one in parameters for index in indices(tokens, one, kind, integers)}
    return (index for index in range(1 << 16) if index not in used)


def _binder(tokens: Tokens, one: Written, is_used: bool, free: dict[str, Iterator[int]], integers: Integers) -> str:
    kind = one.kind()
    thread = next((name for name in one.attributes if name in _OF_THE_THREAD), None)
    if thread is not None:
        return f"softmetal::builtin<softmetal::{thread}>" if is_used else "softmetal::absent"
    if kind is None:
        raise source_error(tokens, one.first, _why_not(one))
    index = one.arguments(kind)
    value = integers.value(index) if index else next(free[kind])
    binder = f"softmetal::{kind}<({joined(index)})>" if value is None else f"softmetal::{kind}<{value}>"
    if condition := one.arguments("function_constant"):
        return f"metal::conditional_t<bool({joined(condition)}), {binder}, softmetal::absent>"
    return binder


def _why_not(one: Written) -> str:
    what = f"parameter '{one.name}' of a kernel" if one.name else "this parameter of a kernel"
    if one.attributes:
        return f"{what} has an attribute ('{next(iter(one.attributes))}') that is not supported without a Mac"
    return f"{what} is neither in an address space nor has an attribute, such as [[buffer(0)]]"
