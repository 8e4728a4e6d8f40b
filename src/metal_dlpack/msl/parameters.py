"""The parameters of a kernel, and what binds each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from . import attributes, declarators
from .flags import INCLUDE
from .integers import Integers
from .messages import source_error
from .tokens import Tokens, joined

#: Attributes of what each thread is told: those that the shim has an answer to.
_OF_THE_THREAD = set(re.findall(r"^    FACT\((\w+)", (INCLUDE / "softmetal_image.h").read_text(), re.MULTILINE))
_BOUND = {"device": "buffer", "constant": "buffer", "threadgroup": "threadgroup"}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    binder: str  # a type of C++
    condition: tuple[str, ...]  # the words of its [[function_constant(...)]]


@dataclass(frozen=True, slots=True)
class _Written:
    """A parameter as it stands in the source."""

    first: int
    end: int
    name: str
    space: str | None  # "buffer" or "threadgroup": what its address space says
    attributes: dict[str, tuple[str, ...]]

    def kind(self) -> str | None:
        return next((kind for kind in ("buffer", "threadgroup") if kind in self.attributes), self.space)


def bind(tokens: Tokens, opening: int, integers: Integers, named: Mapping[str, list[str]]) -> list[Parameter]:
    """The parameters after the `(` at `opening`.  Raises SourceError for one that nothing can be bound to.

    named: the address spaces that a typedef's name stands for.
    """
    written = [_read(tokens, *place, named) for place in tokens.split(opening + 1, tokens.partner[opening])]
    written = [one for one in written if tokens.words[one.first : one.end] != ["void"]]
    free = {kind: _free_indices(written, kind, integers) for kind in ("buffer", "threadgroup")}
    return [
        Parameter(one.name, _binder(tokens, one, free, integers), one.attributes.get("function_constant", ()))
        for one in written
    ]


def _read(tokens: Tokens, first: int, end: int, named: Mapping[str, list[str]]) -> _Written:
    found = {one.name: one.arguments for one in attributes.within(tokens, first, end)}
    declared = declarators.read(tokens, first, end)
    one = declared.declarators[0] if declared and declared.declarators else None
    name = tokens.words[one.name] if one and one.name is not None else ""
    words = tokens.words[first : declared.type_end] if declared else []
    spaces = (
        declared.spaces if declared and declared.spaces else [space for word in words for space in named.get(word, [])]
    )
    space = next((_BOUND[word] for word in spaces if word in _BOUND), None)
    return _Written(first, end, name, space, found)


def _free_indices(written: list[_Written], kind: str, integers: Integers) -> Iterator[int]:
    used = {integers.value(one.attributes[kind]) for one in written if kind in one.attributes}
    return (index for index in range(1 << 16) if index not in used)


def _binder(tokens: Tokens, one: _Written, free: dict[str, Iterator[int]], integers: Integers) -> str:
    kind = one.kind()
    thread = next((name for name in one.attributes if name in _OF_THE_THREAD), None)
    if thread is not None:
        return f"softmetal::builtin<softmetal::{thread}>"
    if kind is None:
        raise source_error(tokens, one.first, _why_not(one))
    index = one.attributes.get(kind)
    value = integers.value(index) if index else next(free[kind])
    binder = f"softmetal::{kind}<({joined(index)})>" if value is None and index else f"softmetal::{kind}<{value}>"
    condition = one.attributes.get("function_constant")
    if condition:
        return f"metal::conditional_t<bool({joined(condition)}), {binder}, softmetal::absent>"
    return binder


def _why_not(one: _Written) -> str:
    what = f"parameter '{one.name}' of a kernel" if one.name else "this parameter of a kernel"
    if one.attributes:
        return f"{what} has an attribute ('{next(iter(one.attributes))}') that is not supported without a Mac"
    return f"{what} is neither in an address space nor has an attribute, such as [[buffer(0)]]"
