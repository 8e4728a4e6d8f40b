"""`threadgroup float x[64];` in a kernel: a reference to memory that the run time has for the threadgroup.

The run time knows a variable by its number, and an image has one kernel: so each variable has memory of its own.  A
declaration that names threadgroup memory and is not understood is refused: left as it is, each thread would have memory
of its own, and nothing would tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metal_dlpack.language import declarations, declarators
from metal_dlpack.language.declarations import CLASS, FUNCTION, OTHER, Declaration
from metal_dlpack.language.declarators import Declarator, Declared
from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.tokens import Tokens, joined

from . import kernels

_SPACE = "threadgroup"
#: The first half is what Apple's compiler says.
_ONLY_IN_KERNELS = (
    "variables in the threadgroup address space cannot be declared in a non-qualified function: "
    "declare it in the kernel, and hand a pointer to it on"
)
_NOT_UNDERSTOOD = (
    "this declaration in the threadgroup address space is not understood: "
    "declare the variable in a statement of its own, as in `threadgroup float x[16];`"
)
_HAS_A_VALUE = "a variable in the threadgroup address space cannot be given a value where it is declared: assign it"
_NO_FIELD = "a field cannot be in the threadgroup address space: declare the variable of this class in it"
_NOT_OUTSIDE = "a variable outside of a function cannot be in the threadgroup address space: declare it in the kernel"
#: The words of zeros.  Apple's compiler takes a value, as in MLX's layer_norm.metal, and stores none (so WebKit's WGSL
#: assigns as well): another value than zero would be lost.
_ZERO = re.compile(
    r"0[xX]?[0.]*[uUlLfFhH]*|\.0+[fFhH]?|false|[={},()]|float[234]?|half[234]?|u?(char|short|int|long)[234]?|bool[234]?"
)
_CAST = re.compile(r"\( \w+ \) (?=[\d.])")  # to a type of any name
_BEFORE_A_DECLARATION = {"for", "if", "while", "switch"}


@dataclass(frozen=True, slots=True)
class Statement:
    """words[declared.first:end], without the `;`, and which of its declarators are in threadgroup memory."""

    end: int
    declared: Declared
    variables: list[Declarator]


def find(tokens: Tokens, found: list[Declaration]) -> list[Statement]:
    """The statements that declare threadgroup memory.

    Raises SourceError for one in a function that is no kernel or outside of functions, and for what is not understood.
    """
    names = {_SPACE}  # and those of types that are themselves in threadgroup memory, not of pointers to it
    for name, declared, alias in declarations.aliases(tokens):
        if _is_in(tokens, declared, alias, names):
            names.add(name)
    places = [at for at, word in enumerate(tokens.words) if word in names]
    statements: dict[int, Statement] = {}
    for one in declarations.every(found) if places else ():
        if one.kind == FUNCTION and one.body is not None:
            within = [at for at in places if one.body < at < one.last]
            for statement in _in_function(tokens, within, names):
                if not kernels.stage(tokens, one):
                    raise source_error(tokens, statement.declared.first, _ONLY_IN_KERNELS)
                statements[statement.end] = statement
        else:
            _refuse_outside(tokens, one, names)
    return list(statements.values())


def _is_in(tokens: Tokens, declared: Declared, one: Declarator, names: set[str]) -> bool:
    """True for a variable that is itself in threadgroup memory, by the word or by its type's name."""
    type_words = [tokens.words[at] for at in tokens.outside(declared.first, declared.type_end)]
    return _SPACE in one.spaces or (not one.is_indirect and not names.isdisjoint(type_words))


def _is_made_by_a_trait(tokens: Tokens, declared: Declared, at: int) -> bool:
    """`conditional_t<c, threadgroup float, threadgroup int> x`: the type that a template makes may be in the space."""
    words = tokens.words
    type_words = [words[each] for each in tokens.outside(declared.first, declared.type_end)]
    name = next((word for word in reversed(type_words) if word.isidentifier()), "")
    end = next(end for end in range(at, len(words)) if words[end] in {"*", "&", "&&", ",", ">", ";"})
    is_variable = not all(one.is_indirect for one in declared.declarators)
    return (
        at < declared.type_end and is_variable and words[end] in {",", ">"} and (name == "type" or name.endswith("_t"))
    )


def _refuse_outside(tokens: Tokens, one: Declaration, names: set[str]) -> None:
    """What no function has: a field, or a variable of a namespace."""
    if one.kind not in {OTHER, CLASS} or names.isdisjoint(tokens.words[one.first : one.last]):
        return
    first, _ = declarations.after_template(tokens, one.first)
    declared = None if tokens.words[first] in {"typedef", "using"} else declarators.read(tokens, first, one.last)
    for variable in declared.declarators if declared else ():
        if declared and not variable.is_function and _is_in(tokens, declared, variable, names):
            raise source_error(tokens, one.first, _NO_FIELD if one.is_member else _NOT_OUTSIDE)


def _in_function(tokens: Tokens, places: list[int], names: set[str]) -> Iterator[Statement]:
    known: set[int] = set()
    for at in places:
        first, opening = declarations.statement(tokens, at)
        if declarations.is_class_body(tokens, opening):
            for member in declarations.members(tokens, opening) if opening not in known else ():
                _refuse_outside(tokens, member, names)
            known.add(opening)
        elif first not in known and (statement := _read(tokens, at, first, opening, names)):
            known.add(first)
            yield statement


def _read(tokens: Tokens, at: int, first: int, opening: int, names: set[str]) -> Statement | None:
    """The statement from words[first] on, if it declares what is in threadgroup memory."""
    words = tokens.words
    is_block = words[opening] == "{"
    if not is_block and words[opening - 1] not in _BEFORE_A_DECLARATION:
        return None  # a parameter, or a type in an expression
    if words[first] in {"typedef", "using"}:
        return None
    end = min(declarations.semicolon(tokens, first, len(words)), tokens.partner[opening])
    if is_block and words[end] != ";":
        return None  # unfinished: the compiler says so
    declared = declarators.read(tokens, first, end)
    if at not in tokens.outside(first, at + 1):
        if declared is not None and _is_made_by_a_trait(tokens, declared, at):
            raise source_error(tokens, first, _NOT_UNDERSTOOD)
        return None
    if declared is None:
        if is_block and (words[at] == _SPACE or at == first):
            raise source_error(tokens, at, _NOT_UNDERSTOOD)
        return None
    _refuse_other_places(tokens, at, declared)
    variables = [one for one in declared.declarators if _is_in(tokens, declared, one, names)]
    for one in variables:
        value = words[one.value : one.end]
        is_of_value = "auto" in words[first : declared.type_end]
        is_zero = all(map(_ZERO.fullmatch, _CAST.sub("", " ".join(value)).split()))
        if value[:1] in (["="], ["{"]) and (is_of_value or not is_zero):
            raise source_error(tokens, declared.first, _HAS_A_VALUE)
        if one.name is None or one.is_function or value[:1] == [":"] or not is_block:
            raise source_error(tokens, declared.first, _NOT_UNDERSTOOD)
    return Statement(end, declared, variables) if variables else None


def _refuse_other_places(tokens: Tokens, at: int, declared: Declared) -> None:
    """An address space stands in the type, or before a declarator's name; in a value it is one of an expression."""
    if at < declared.type_end and declared.declarators:
        return
    one = next((one for one in declared.declarators if one.first <= at < one.end), None)
    if tokens.words[at] == _SPACE and (one is None or one.name is None or one.name < at < one.value):
        raise source_error(tokens, declared.first, _NOT_UNDERSTOOD)


def rewrite(tokens: Tokens, statements: list[Statement]) -> list[str]:
    """To be called when the words are C++ but for these statements.  Each word that stays keeps its line.

    Returns the variables' names, by their numbers.
    """
    names = list[str]()
    for statement in statements:
        declared, references = statement.declared, list[str]()
        for one in statement.variables:
            assert one.name is not None
            number = len(names)
            names.append(tokens.words[one.name])
            references.append(_reference(tokens, declared, one, number))
        _drop_what_no_type_has(tokens, declared.attributes)
        for at in range(declared.first, declared.type_end):
            if tokens.words[at] == "static":
                tokens.words[at] = ""
        references += _without_others(tokens, statement)
        tokens.gaps[declared.first] += "typedef "
        tokens.words[statement.end] = f"; {' '.join(references)}"
    return names


def _without_others(tokens: Tokens, statement: Statement) -> list[str]:
    """Take the pointers out of `threadgroup float a[4], *p = a;`, and references; return a statement for each."""
    declared, variables = statement.declared, statement.variables
    if len(variables) == len(declared.declarators):
        return []
    type_words = tokens.words[declared.first : declared.type_end]
    if "{" in type_words:
        raise source_error(tokens, declared.first, _NOT_UNDERSTOOD)
    others = [one for one in declared.declarators if one not in variables]
    texts = [f"{joined([*type_words, *tokens.words[one.first : one.end]])};" for one in others]
    for one in others:
        tokens.drop(one.first, one.end - 1)
    for one in declared.declarators[1:]:
        tokens.words[one.first - 1] = "," if one in variables[1:] else ""
    return texts


def _reference(tokens: Tokens, declared: Declared, one: Declarator, number: int) -> str:
    """Make the declarator that of a type; return the statement that declares what it was."""
    assert one.name is not None
    name, type_name, alignment = tokens.words[one.name], f"softmetal_type_{number}", f"softmetal_alignment_{number}"
    texts = [joined(tokens.words[first:end]) for first, end in [*declared.attributes, *one.attributes]]
    aligning = [text for text in texts if "align" in text.lower()]
    _drop_what_no_type_has(tokens, one.attributes)
    tokens.drop(one.value, one.end - 1)
    tokens.words[one.name] = type_name
    arguments = f"{number}, {type_name}" + (f", {alignment}" if aligning else "")
    members = " ".join(f"{text} char member_{nth};" for nth, text in enumerate(aligning))
    declares = f"struct {alignment} {{ {members} }}; " if aligning else ""
    return f"{declares}{type_name} &{name} = softmetal::threadgroup_variable<{arguments}>();"


def _drop_what_no_type_has(tokens: Tokens, its: Iterable[tuple[int, int]]) -> None:
    """A typedef takes `__attribute__`, which can be part of a type, and neither alignas nor `[[...]]` before it."""
    for first, end in its:
        if tokens.words[first] != "__attribute__":
            tokens.drop(first, end - 1)
