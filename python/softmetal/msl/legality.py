"""What Apple's compiler refuses and clang's C++ takes: each construct, found by its words, and what to write instead.

Only what is certain is refused: a source that a Mac takes opens here.  Recursion is no such construct: the
specification forbids it up to Metal 2.3.  Address spaces that meet are found by clang (space_conversions.py).

SPEC Metal Shading Language Specification 3.2, 1.5.4 Restrictions; 4 Address Spaces; 5.2.1 Locating Buffer, Texture,
and Sampler Arguments; 5.2.3.6 Kernel Function Input Attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from metal_dlpack.language import attributes, declarations, declarators
from metal_dlpack.language.declarations import CLASS, FUNCTION, OTHER, Declaration, every
from metal_dlpack.language.declarators import CLASS_KEYS, SPACES, Declared
from metal_dlpack.language.diagnostics import source_error
from metal_dlpack.language.scalars import SCALARS, SPELLED
from metal_dlpack.language.signatures import KINDS, written
from metal_dlpack.language.tokens import Tokens, joined

from .integers import Integers
from .parameters import indices
from .threadgroup_variables import Statement

#: Where the language has these words, Metal does not.
_WORDS = {
    "virtual": "Metal has no virtual functions: write a template, or a switch over a number",
    "new": "Metal has no 'new': declare a variable, or let the kernel have the memory as an argument",
    "delete": "Metal has no 'delete': memory is an argument of the kernel, or a variable",
    "dynamic_cast": "Metal has no 'dynamic_cast': a type is known where the source is compiled",
    "goto": "'goto' is not supported in Metal: write a loop, with break and continue",
    "thread_local": "'thread_local' is not supported in Metal: a variable of a function is the thread's own",
    "register": "Metal does not support the 'register' storage class specifier: leave the word out",
}
_ASM = {"asm", "__asm", "__asm__"}

_VECTORS = {f"{packed}{scalar}{count}" for packed in ("", "packed_") for scalar in SCALARS for count in (2, 3, 4)}
#: Types that a source need not declare.
_TYPES = SCALARS.keys() | SPELLED.keys() | _VECTORS | {"void", "signed"}

#: What a thread is told: a number of 16 or 32 bits, or of its position a vector of them; with how many there are.
_NUMBERS = ("uint", "ushort")
_NUMBER = dict.fromkeys((*_NUMBERS, *(word for word, scalar in SPELLED.items() if scalar in _NUMBERS)), 1)
_POSITION = {**_NUMBER, **{f"{scalar}{count}": count for scalar in _NUMBERS for count in (2, 3)}}
_POSITIONS = {
    "dispatch_threads_per_threadgroup",
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
}
_INDICES = {
    "dispatch_simdgroups_per_threadgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "thread_execution_width",
    "thread_index_in_simdgroup",
    "thread_index_in_threadgroup",
    "threads_per_simdgroup",
}
_TOLD = dict.fromkeys(_POSITIONS, _POSITION) | dict.fromkeys(_INDICES, _NUMBER)
_LAST_INDICES = {"buffer": 30, "threadgroup": 30, "texture": 127, "sampler": 15}
_MIXED = (
    "expecting input declarations with either all scalar types or all vector types with the same number of elements: "
    "'{0}' is of type '{1}' and '{2}' of type '{3}'"
)
_STATIC = (
    "variables in function scope cannot be declared static: leave 'static' out, "
    "or write 'constant' after it for what never changes"
)
_RESERVED = "cannot reserve '{}' resource location at index {}: another {} has it"
_HAS_A_VALUE = (
    "a function constant cannot have an initial value: leave it out, and ask is_function_constant_defined(name) "
    "where there may be none"
)
#: What may stand in a program without an address space, and is no variable.
_NO_VARIABLE = CLASS_KEYS | {"using", "namespace", "typedef", "static_assert", "_Static_assert", "friend", "sampler"}


def refuse(
    tokens: Tokens,
    declared: list[Declaration],
    entries: list[Declaration],
    shared: list[Statement],
    named: Mapping[str, list[Declaration]],
    integers: Integers,
) -> None:
    """Raise SourceError for the first construct that Metal does not have.

    entries: functions that are kernels.  shared: the statements that declare threadgroup memory.  named: what each name
    declares.
    """
    types = _TYPES | {one.name(tokens) for one in declared if one.kind == CLASS and not one.is_template} - {""}
    # The word, and the names of types that are themselves in constant memory.
    constants = {"constant", *(name for name, kind, _ in declarations.aliases(tokens) if "constant" in kind.spaces)}
    found = [
        *_refused_words(tokens),
        *_refused_variables(tokens, declared, constants),
        *_refused_statics(tokens, declared, constants, shared),
        *_refused_locals(tokens, declared, types),
        *_refused_functions(tokens, declared),
        *_called_kernels(tokens, declared, entries),
        *_unqualified_pointers(tokens, types),
    ]
    for entry in entries:
        found += [*_refused_parameters(tokens, entry, integers), *_refused_pointees(tokens, entry, integers, named)]
    if found:
        at, text = min(found)
        raise source_error(tokens, at, text)


def _refused_words(tokens: Tokens) -> Iterator[tuple[int, str]]:
    words = tokens.words
    for at, word in enumerate(words):
        is_other = words[at - 1] == "operator" or (word == "delete" and words[at - 1] == "=")
        if word in _WORDS and not is_other:
            yield at, _WORDS[word]
        if word == "long" and words[at + 1] == "long":
            yield at, "Metal has one 'long', of 64 bits: write the word once"
        if word in _ASM and words[at - 1] in {";", "{", "}", ")", ":"} and not _is_label(tokens, at):
            yield at, "Metal has no inline assembly: call a function of metal_stdlib"


def _is_label(tokens: Tokens, at: int) -> bool:
    """`float f(float) __asm("air.f");` names a function of Apple's compiler: who calls it is refused later."""
    words = tokens.words
    if words[at - 1] != ")" or words[at + 1] != "(":
        return False
    return words[at + 2].startswith('"air.') and words[tokens.partner[at + 1] + 1] in {";", "{", "__attribute__"}


def _refused_variables(tokens: Tokens, declared: list[Declaration], constants: set[str]) -> Iterator[tuple[int, str]]:
    for one in declared:
        if one.kind == OTHER and tokens.words[one.head_end] in {"=", "{"}:
            its = attributes.within(tokens, one.first, one.head_end)
            yield from ((given.at, _HAS_A_VALUE) for given in its if given.name == "function_constant")
        head = attributes.left_out(tokens, one.first, one.head_end)
        is_constant = "function_constant" in tokens.words[one.first : one.head_end]
        is_told = len(head) != one.head_end - one.first and not is_constant
        if one.kind != OTHER or one.is_template or is_told:
            continue  # what has another attribute may be told by Metal
        names = [word for word in head if word.isidentifier()]
        if len(names) > 1 and _NO_VARIABLE.isdisjoint(head) and constants.isdisjoint(head) and one.name(tokens):
            text = f"program scope variable must reside in constant address space: write 'constant' before '{names[0]}'"
            yield one.first, text


def _within_functions(
    tokens: Tokens, declared: list[Declaration], wanted: set[str]
) -> Iterator[tuple[Declaration, list[int]]]:
    """The functions in whose bodies these words stand, and where."""
    for one in every(declared):
        body = range(one.body, one.last) if one.kind == FUNCTION and one.body is not None else ()
        if places := [at for at in body if tokens.words[at] in wanted]:
            yield one, places


def _refused_statics(
    tokens: Tokens, declared: list[Declaration], constants: set[str], shared: list[Statement]
) -> Iterator[tuple[int, str]]:
    """What a function keeps between two calls; a constant it may have, and threadgroup memory is no thread's."""
    words = tokens.words
    for at in [at for _, places in _within_functions(tokens, declared, {"static"}) for at in places]:
        first, opening = declarations.statement(tokens, at)
        end = next(end for end in range(at, len(words)) if words[end] in {";", "=", "{", "(", "}", ""})
        is_shared = any(one.declared.first <= at < one.end for one in shared)
        is_member = declarations.is_class_body(tokens, opening)
        if words[end] != "(" and constants.isdisjoint(words[first:end]) and not is_shared and not is_member:
            yield at, _STATIC


def _refused_locals(tokens: Tokens, declared: list[Declaration], types: set[str]) -> Iterator[tuple[int, str]]:
    """A function's own variable is in device memory, or in constant memory with what a parameter says."""
    words = tokens.words
    for one, places in _within_functions(tokens, declared, {"device", "constant"}):
        assert one.parameters is not None
        names = declarators.names_of_parameters(tokens, one.parameters)
        for at in places:
            for variable in _variables_in(tokens, at, types):
                value = range(variable.value, variable.end)
                if words[at] == "device":
                    yield at, "a variable of a function cannot be in device memory: leave 'device' out"
                elif any(words[each] in names and words[each - 1] not in {".", "->", "::"} for each in value):
                    yield at, "a variable in constant memory has a value that the compiler knows: write 'const' instead"


def _variables_in(tokens: Tokens, at: int, types: set[str]) -> Iterator[declarators.Declarator]:
    """What the statement declares in the address space words[at], behind which its type's name stands."""
    words = tokens.words
    first, opening = declarations.statement(tokens, at)
    if words[opening] != "{" or words[first] in {"typedef", "using"} or declarations.is_class_body(tokens, opening):
        return
    kind = declarators.read(tokens, first, min(declarations.semicolon(tokens, at, len(words)), tokens.partner[opening]))
    if kind is None or at >= kind.type_end or at not in tokens.outside(first, at + 1):
        return
    if not types.isdisjoint(words[first : kind.type_end]):
        yield from (one for one in kind.declarators if one.name and not one.is_indirect and not one.is_function)


def _refused_functions(tokens: Tokens, declared: list[Declaration]) -> Iterator[tuple[int, str]]:
    """What is only declared is refused when a kernel needs it; but the C library has what is declared as C."""
    words = tokens.words
    named = [(one.name(tokens), one) for one in declared if one.kind == FUNCTION]
    defined = {name for name, one in named if one.body is not None}
    as_c = [at for at, word in enumerate(words) if word == "extern" and words[at + 1] == '"C"']
    blocks = [(at, tokens.partner[at + 2]) for at in as_c if words[at + 2] == "{"]
    for name, one in named:
        assert one.parameters is not None
        is_c = one.first in as_c or any(first < one.first < last for first, last in blocks)
        calls = [at for at, word in enumerate(words) if word == name and words[at + 1] == "("] if is_c and name else []
        if name not in defined and any(not one.first <= at <= one.last for at in calls):
            yield one.parameters - 1, f"'{name}' is declared and defined nowhere: write the function in this source"


def _called_kernels(
    tokens: Tokens, declared: list[Declaration], entries: list[Declaration]
) -> Iterator[tuple[int, str]]:
    """A kernel that a kernel calls: by its name, where no other function has it."""
    names = [one.name(tokens) for one in declared if one.kind == FUNCTION]
    kernels = {name for one in entries if names.count(name := one.name(tokens)) == 1}
    for one in entries:
        for at in range(one.head_end, one.last):
            if tokens.words[at] in kernels and tokens.words[at + 1] == "(" and tokens.words[at - 1] in {";", "{", "}"}:
                yield at, f"a kernel cannot call a kernel: let both call a function with what '{tokens.words[at]}' does"


def _unqualified_pointers(tokens: Tokens, types: set[str]) -> Iterator[tuple[int, str]]:
    """`float *p`: which memory it leads to is not known."""
    words = tokens.words
    specifiers = types | _SPECIFIERS
    for at, word in enumerate(words):
        if word not in {"*", "&", "&&"} or not (words[at + 1].isidentifier() or words[at + 1] == ")"):
            continue  # it ends no declaration's or cast's type; a comma may be a template's
        first = at
        while words[first - 1] in specifiers or (first > 1 and not words[first - 1]):  # `coherent(device)` is dropped
            first -= 1
        innermost = next(place for place in range(first, at + 1) if words[place] in {"*", word})
        if types.isdisjoint(words[first:innermost]) or words[first - 1] not in _BEFORE_A_DECLARATION:
            continue
        if innermost < at:
            if word == "*" and SPACES.isdisjoint(words[innermost:at]):
                yield at, _POINTER_TO_POINTER  # a reference to one is taken: MLX's kernels have `const device T *&x`
        elif SPACES.isdisjoint(words[first:at]):
            kind = "pointer" if word == "*" else "reference"
            shown = [one for one in words[first:at] if one in types or one in {"const", "volatile"}]
            text = f"write 'device {joined(shown)} {word}', or thread, threadgroup or constant"
            yield at, f"{kind} type must have explicit address space qualifier: {text}"


_POINTER_TO_POINTER = (
    "pointer type must have explicit address space qualifier: write where the pointer itself is before the last sign, "
    "as in 'device float *thread *'"
)
_BEFORE_A_DECLARATION = {"(", ",", ";", "{", "}", ""}
_SPECIFIERS = {"const", "volatile", "static", "constexpr", "inline", "METAL_FUNC", "metal", "::", "*", *SPACES}


def _refused_parameters(tokens: Tokens, entry: Declaration, integers: Integers) -> Iterator[tuple[int, str]]:
    assert entry.parameters is not None
    places: dict[str, set[int]] = {kind: set() for kind in KINDS}
    before: tuple[str, str] | None = None  # of the positions: the attribute and its type
    for one in attributes.within(tokens, entry.first, entry.head_end):
        if one.name == "max_total_threads_per_threadgroup" and integers.value(one.arguments) == 0:
            yield one.at, f"'{one.name}' attribute parameter is out of bounds: must be 1 or more"
    told: set[str] = set()
    for parameter in written(tokens, entry.parameters, {}):
        of_type = attributes.left_out(tokens, parameter.first, parameter.end)[:-1]
        kind = " ".join(word for word in of_type if word not in {"const", "thread", "metal", "::"})
        is_certain = "function_constant" not in parameter.attributes
        for name, one in parameter.attributes.items():
            if name in _TOLD:
                if name in told and is_certain:
                    yield one.at, f"'{name}' attribute is given to two parameters: leave one of them out"
                told.add(name)
                if kind in _TYPES and kind not in _TOLD[name]:
                    names = " or ".join(one for one in _TOLD[name] if one.strip("23") in _NUMBERS)
                    yield parameter.first, f"type '{kind}' is not valid for attribute '{name}': write {names}"
            elif name in _LAST_INDICES:
                wanted, last = indices(tokens, parameter, name, integers), _LAST_INDICES[name]
                if not one.arguments:
                    yield one.at, f"'{name}' attribute takes one argument: write [[{name}(0)]], or leave it out"
                elif wanted and (wanted.start < 0 or wanted.stop > last + 1):
                    yield one.at, f"'{name}' attribute parameter is out of bounds: must be between 0 and {last}"
                elif is_certain:
                    if taken := sorted(places[name].intersection(wanted)):
                        yield one.at, _RESERVED.format(name, taken[0], "parameter")
                    places[name].update(wanted)
            if name in _POSITIONS and kind in _POSITION:
                if before is not None and _POSITION[kind] != _POSITION[before[1]]:
                    yield parameter.first, _MIXED.format(*before, name, kind)
                before = name, kind


def _refused_pointees(
    tokens: Tokens, entry: Declaration, integers: Integers, named: Mapping[str, list[Declaration]]
) -> Iterator[tuple[int, str]]:
    """What a kernel's buffers hold: pointers to memory of the threads, and fields of a structure with one id."""
    assert entry.parameters is not None
    for parameter in written(tokens, entry.parameters, {}):
        declared = parameter.declared
        if declared is None or not declared.declarators:
            continue
        own = declared.declarators[0].between or ()
        if _OF_BUFFERS.isdisjoint({*own, *declared.spaces}):
            continue
        if own:  # a pointer to pointers
            yield from _leads_to_threads(parameter.first, declared)
        for of_a_class in _classes(tokens, tokens.words[parameter.first : declared.type_end], named):
            taken: set[int | None] = set()
            for member, field in of_a_class:
                if any(one.is_indirect for one in field.declarators):
                    yield from _leads_to_threads(member.first, field)
                ids = (one for one in attributes.within(tokens, member.first, member.last) if one.name == "id")
                for one, index in ((one, integers.value(one.arguments)) for one in ids):
                    if index in taken:
                        yield one.at, _RESERVED.format("id", index, "member")
                    taken |= {index} - {None}


_OF_BUFFERS = {"device", "constant"}


def _leads_to_threads(at: int, declared: Declared) -> Iterator[tuple[int, str]]:
    space = next((one for one in declared.spaces if one not in _OF_BUFFERS), None)
    if space is not None:
        yield at, f"a pointer to {space} memory cannot be used in a buffer: write device or constant"


def _classes(
    tokens: Tokens, type_words: list[str], named: Mapping[str, list[Declaration]]
) -> Iterator[list[tuple[Declaration, Declared]]]:
    """The fields of each class that the words name, and of the classes of the fields; not where a name has two."""
    ahead, known = set(type_words), set[str]()
    while ahead:
        known |= ahead
        found: set[str] = set()
        for one in [known_as[0] for name in ahead if len(known_as := named.get(name, [])) == 1]:
            fields = []
            for member in one.members:
                is_field = member.kind == OTHER and tokens.words[member.first] not in {"typedef", "using", "static"}
                declared = declarators.read(tokens, member.first, member.last) if is_field else None
                if declared is not None:
                    fields.append((member, declared))
                    found |= set(tokens.words[declared.first : declared.type_end])
            yield fields
        ahead = found - known
