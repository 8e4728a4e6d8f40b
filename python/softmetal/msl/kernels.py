"""The kernels of a source: functions that are kernels, and templates of which an instantiation makes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from metal_dlpack.language import address_spaces, attributes
from metal_dlpack.language.declarations import FUNCTION, INSTANTIATION, Declaration
from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.tokens import Tokens, joined

KERNEL = "kernel"
#: What entry points are marked as.
STAGES = {KERNEL, "vertex", "fragment", "mesh", "object", "visible", "intersection"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """`name` is what Metal calls it.  `at` is the word whose line is the kernel's."""

    name: str
    stage: str
    at: int
    expression: str  # the function, as it is called in its namespace
    signature: str | None  # its parameters' types, if an instantiation spells them or other functions have its name
    declaration: Declaration  # of the function or the template
    instantiation: Declaration | None


def find(tokens: Tokens, declarations: list[Declaration]) -> dict[str, Kernel]:
    """All kernels by name, in the order of the source.  Raises SourceError for a name that is given twice."""
    functions: dict[str, list[Declaration]] = {}
    for one in declarations:
        if one.kind == FUNCTION:
            functions.setdefault(one.name(tokens), []).append(one)
    found: dict[str, Kernel] = {}
    for one in declarations:
        if one.kind == INSTANTIATION:
            kernel = _instantiated(tokens, one, functions)
        elif one.kind == FUNCTION and one.body is not None and not one.is_template:
            others = [other for other in functions[one.name(tokens)] if other.namespaces == one.namespaces]
            kernel = _plain(tokens, one, is_overloaded=len(others) > 1)
        else:
            continue
        if kernel is not None and kernel.name in found:
            raise source_error(tokens, kernel.at, f"redefinition of '{kernel.name}': a kernel has this name already")
        if kernel is not None:
            found[kernel.name] = kernel
    return found


def stage_words(tokens: Tokens, one: Declaration) -> Iterator[int]:
    """Where `kernel` stands among the words before the name, outside of attributes."""
    at = one.first
    while at < (one.parameters or one.head_end):
        if tokens.words[at] in STAGES and tokens.words[at + 1] not in {"::", "(", "<", "=", ";", ","}:
            yield at
        at = tokens.partner[at] + 1 if tokens.words[at] in {"(", "["} else at + 1


def stage(tokens: Tokens, one: Declaration) -> str | None:
    """What a function or a template of functions is marked as: kernel, vertex, ...; None for what a kernel may call."""
    return _marks(tokens, one)[0]


def _plain(tokens: Tokens, one: Declaration, *, is_overloaded: bool) -> Kernel | None:
    assert one.parameters is not None
    stage, host_name = _marks(tokens, one)
    if stage is None:
        return None
    name = one.name(tokens)
    at = one.parameters - 1
    if stage == KERNEL and not {"void", "auto", "<", "::"} & set(tokens.words[one.first : at]):
        raise source_error(tokens, at, f"the kernel '{name}' must return void")
    expression, signature = name, None
    if tokens.words[at] == ">":  # template <> kernel void f<float>(...)
        at = tokens.before_angle(at)
        expression = joined(address_spaces.without(tokens.words[at : one.parameters]))
    elif is_overloaded:
        ranges = tokens.split(one.parameters + 1, tokens.partner[one.parameters])
        types = [address_spaces.type_of_parameter(tokens, *place) for place in ranges]
        signature = ", ".join(joined(address_spaces.without(words)) for words in types)
    return Kernel(host_name or "::".join([*one.namespaces, name]), stage, at, expression, signature, one, None)


def _instantiated(tokens: Tokens, one: Declaration, functions: dict[str, list[Declaration]]) -> Kernel | None:
    stage, host_name = _marks(tokens, one)
    if stage is None and host_name is None:
        return None
    first, name_at, end = _declarator(tokens, one)
    close, name = end - 1, tokens.words[name_at]
    candidates = [known for known in functions.get(name, []) if known.is_template]
    if not candidates:
        raise source_error(tokens, name_at, f"explicit instantiation of undeclared template '{name}'")
    signature = None
    if tokens.words[end] == "(":
        close = tokens.partner[end]
        count = len(tokens.split(end + 1, close))
        signature = joined(address_spaces.without(attributes.left_out(tokens, end + 1, close)))
        candidates = [known for known in candidates if _parameter_count(tokens, known) == count] or candidates
    template = next((known for known in reversed(candidates) if known.body is not None), candidates[-1])
    expression = joined(address_spaces.without(tokens.words[first:end]))
    own_name = "::".join([*one.namespaces, name])
    return Kernel(host_name or own_name, stage or KERNEL, name_at, expression, signature, template, one)


def _marks(tokens: Tokens, one: Declaration) -> tuple[str | None, str | None]:
    """Which stage the function is of, and its [[host_name]]."""
    at = next(stage_words(tokens, one), None)
    stage = tokens.words[at] if at is not None else None
    host_name = None
    for attribute in attributes.within(tokens, one.first, one.parameters or one.head_end):
        if attribute.name in STAGES:
            stage = attribute.name
        elif attribute.name == "host_name":
            host_name = _string(attribute.arguments)
    return stage, host_name


def _string(words: tuple[str, ...]) -> str | None:
    """Adjacent string literals are one."""
    try:
        value = ast.literal_eval(" ".join(words))
    except (SyntaxError, ValueError):
        return None
    return value if isinstance(value, str) else None


def _declarator(tokens: Tokens, one: Declaration) -> tuple[int, int, int]:
    """words[first:end] are `ns::f<float>` of an instantiation, f stands between; its parameters may follow."""
    words = tokens.words
    end = one.last
    if words[end - 1] == ")":
        end = tokens.partner[end - 1]
    name = first = tokens.before_angle(end - 1) if words[end - 1] == ">" else end - 1
    while words[first - 1] == "::" and words[first - 2].isidentifier() and words[first - 2] != "void":
        first -= 2
    return first, name, end


def _parameter_count(tokens: Tokens, one: Declaration) -> int:
    assert one.parameters is not None
    return len(tokens.split(one.parameters + 1, tokens.partner[one.parameters]))
