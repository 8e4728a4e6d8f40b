"""`constant bool flag [[function_constant(0)]];`: a value that is given when a kernel is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from metal_dlpack.language import attributes
from metal_dlpack.language.declarations import OTHER, Declaration
from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.scalars import SCALARS, SPELLED
from metal_dlpack.language.tokens import Tokens

from .integers import Integers

_ASKS = "is_function_constant_defined"
_QUALIFIERS = {"constant", "const", "static", "constexpr", "inline"}


@dataclass(frozen=True, slots=True)
class FunctionConstant:
    name: str
    type: str  # as Metal spells it: "uint", "float4"
    index: int
    is_required: bool
    declaration: Declaration


def find(tokens: Tokens, declarations: list[Declaration], integers: Integers) -> list[FunctionConstant]:
    """Raises SourceError for an index that is no integer."""
    words = tokens.words
    if "function_constant" not in words:
        return []
    asked = {words[at + 2] for at, word in enumerate(words) if word == _ASKS and words[at + 1] == "("}
    found = []
    for one in declarations:
        name = one.name(tokens)
        if one.kind != OTHER or one.is_member or words[one.head_end] != ";" or not name:
            continue
        for attribute in attributes.within(tokens, one.first, one.head_end):
            if attribute.name != "function_constant":
                continue
            index = integers.value(attribute.arguments)
            if index is None:
                raise source_error(tokens, attribute.at, "the index of a function constant is an integer constant")
            found.append(FunctionConstant(name, _type(tokens, one, name), index, name not in asked, one))
    return found


def refuse_unknown_type(tokens: Tokens, constant: FunctionConstant) -> None:
    """Raise SourceError for what no value can be given to.  A typedef is not followed: only C++ finds it."""
    if not _has_values(constant):
        text = f"the type '{constant.type}' of the function constant '{constant.name}' needs a Mac: without one it"
        raise source_error(tokens, constant.declaration.first, f"{text} must be spelled as a scalar or a vector")


def _has_values(constant: FunctionConstant) -> bool:
    scalar, _ = _scalar_and_count(constant.type)
    return scalar in SCALARS


#: What the linker misses if a kernel reads a constant without a value; its index follows.
MISSING = "softmetal_constant_"


def specialise(
    tokens: Tokens, constants: list[FunctionConstant], values: Mapping[int, bytes], *, is_final: bool = False
) -> None:
    """Give the constants their values.

    One without a value is not defined: zero or, if is_final, a variable that does not exist.  So an image whose code
    reads it, once the compiler has dropped what cannot be reached, cannot be linked.
    """
    for constant in constants:
        value = values.get(constant.index) if _has_values(constant) else None  # of another constant of this index
        one = constant.declaration
        tokens.drop(one.first, one.last)
        if value is None and is_final:
            label = f'__asm__("{MISSING}{constant.index}")'
            tokens.words[one.first] = f"extern const {constant.type} {constant.name} {label};"
            continue
        text = f"{constant.type}()" if value is None else _in_cpp(constant.type, value)
        tokens.words[one.first] = f"static constexpr {constant.type} {constant.name} = {text};"
    defined = {constant.name: str(constant.index in values).lower() for constant in constants}
    words = tokens.words
    for at in [at for at, word in enumerate(words) if word == _ASKS]:
        if words[at + 1] == "(" and words[at + 2] in defined:
            answer = defined[words[at + 2]]
            tokens.drop(at, tokens.partner[at + 1])
            words[at] = answer


def _type(tokens: Tokens, one: Declaration, name: str) -> str:
    words = tokens.words[one.first : one.head_end]
    text = " ".join(word for word in words[: words.index(name)] if word not in _QUALIFIERS)
    text = text.removeprefix("metal :: ")
    return SPELLED.get(text, text)


def _scalar_and_count(type_name: str) -> tuple[str, int]:
    return (type_name[:-1], int(type_name[-1])) if type_name[-1:] in {"2", "3", "4"} else (type_name, 1)


def _in_cpp(type_name: str, value: bytes) -> str:
    scalar, count = _scalar_and_count(type_name)
    nbytes = SCALARS[scalar].itemsize
    items = [_number(scalar, value[at : at + nbytes]) for at in range(0, count * nbytes, nbytes)]
    return items[0] if count == 1 else f"{type_name}({', '.join(items)})"


def _number(scalar: str, value: bytes) -> str:
    is_real = "float" in SCALARS[scalar].name
    item = int.from_bytes(value, "little", signed=not (is_real or scalar.startswith("u")))
    if is_real:
        return f"__builtin_bit_cast({scalar}, {'ushort' if len(value) == 2 else 'uint'}({item}u))"
    if scalar == "bool":
        return str(bool(item)).lower()
    return f"{scalar}({item}ull)" if item >= 0 else f"{scalar}(-{-item - 1}ll - 1)"
