"""A preprocessed Metal source as C++: once for the check of all of it, and for each kernel that is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from metal_dlpack.language import address_spaces, attributes, declarations, declarators
from metal_dlpack.language.declarations import FUNCTION, OTHER, Declaration
from metal_dlpack.language.declarators import Declared
from metal_dlpack.language.diagnostics import metal_names, source_error
from metal_dlpack.language.errors import SourceError
from metal_dlpack.language.tokens import Tokens

from . import (
    contraction,
    function_constants,
    kernels,
    legality,
    literals,
    space_calls,
    space_conversions,
    swizzles,
    threadgroup_variables,
    unsupported,
)
from .function_constants import FunctionConstant
from .integers import Integers
from .kernels import Kernel
from .parameters import Parameter, bind
from .space_choices import Choices

#: Around the user's text.
TEXT_BEGINS, TEXT_ENDS = "SOFTMETAL_TEXT_BEGIN\n", "\nSOFTMETAL_TEXT_END\n"

#: What may make a thread wait; for other kernels an image is compiled in one run of clang.
#: A loop, too, may be split: side_by_side.py.
_WAITS = re.compile(r"threadgroup_barrier$|simd_|quad_|simdgroup_|make_filled_simdgroup|(?:for|while|do)$")

_SPELLS_LINKAGE = {"inline", "static", "constexpr", "extern", "friend", "METAL_FUNC"}
_PRAGMA = re.compile(r"^#pragma (METAL\b[^\n]*|unroll\b *\(? *(?!\d+\b)\w[^\n]*)", re.MULTILINE)


class Translation:
    """What a source says, and its C++.  Raises SourceError, or Unbalanced."""

    def __init__(self, preprocessed: str):
        source = Tokens.of(preprocessed)
        declarators.drop_coherence(source)
        self._source = source
        if "double" in source.words:
            raise source_error(source, source.words.index("double"), "'double' is not supported in Metal")
        found = declarations.read(source)
        self._declarations = found
        self._integers = Integers(source, found)
        self.kernels = kernels.find(source, found)
        self.constants = function_constants.find(source, found, self._integers)
        self._variables = threadgroup_variables.find(source, found)
        self._lacks = unsupported.find(source, found)
        self._bound: dict[int, list[Parameter]] = {}
        self._reached_by: dict[str, set[str]] = {}
        self._calls: str | None = None  # what clang said of them

    def constants_of(self, kernel: Kernel) -> list[FunctionConstant]:
        """The function constants that a kernel can reach, through whatever it names.

        Raises SourceError for one that no value can be given to.
        """
        reached = self._reached(kernel) if self.constants else set()
        found = [constant for constant in self.constants if constant.name in reached]
        for constant in found:
            function_constants.refuse_unknown_type(self._source, constant)
        return found

    def _reached(self, kernel: Kernel) -> set[str]:
        """The words of a kernel, its own name, and the words of every declaration that one of them names."""
        if kernel.name not in self._reached_by:
            reached = {kernel.declaration.name(self._source)}  # which a parameter of it may have as well
            ahead = {word for one in (kernel.declaration, kernel.instantiation) if one for word in self._mentions(one)}
            while ahead:
                reached |= ahead
                named = {word for name in ahead for one in self._by_name.get(name, []) for word in self._mentions(one)}
                ahead = named - reached
            self._reached_by[kernel.name] = reached
        return self._reached_by[kernel.name]

    def checked_text(self) -> str:
        """Everything that a compiler can check before a kernel is asked for: all but templates' insides."""
        for kernel in self.kernels.values():
            if id(kernel.declaration) not in self._lacks and kernel.stage == kernels.KERNEL:
                self._binders(kernel.declaration)
        tokens = self._cpp[0].copy()
        function_constants.specialise(tokens, self.constants, {})
        return tokens.text()

    def kernel_text(self, name: str, values: Mapping[int, bytes]) -> str:
        """One kernel and what it may call.  Raises SourceError for a kernel that needs what is not supported."""
        kernel = self.kernels[name]
        image = self.image_text(name)
        for parameter in self._binders(kernel.declaration):
            for one in self.constants:
                if one.name in parameter.condition and one.index not in values:
                    raise self.lacks_constant(name, one.index)
        tokens = self._cpp[0].copy()
        function_constants.specialise(tokens, self.constants, values, is_final=True)
        reached = self._reached(kernel)
        for other in self.kernels.values():
            if other.instantiation is None and other.declaration.name(self._source) not in reached:
                assert other.declaration.body is not None
                tokens.drop(other.declaration.body, other.declaration.last)
                tokens.words[other.declaration.body] = ";"
        self._drop_what_asks_for_others(tokens, reached, values)
        return f"{TEXT_BEGINS}{tokens.text()}{TEXT_ENDS}{image}"

    def _drop_what_asks_for_others(self, tokens: Tokens, reached: set[str], values: Mapping[int, bytes]) -> None:
        """Drop variables that are made of a function constant without a value, and that the kernel does not reach.

        Where their value is the result of a call, the compiler makes it whoever uses it.  Their names stay declared,
        as another kernel's template may have them: the compiler looks up what depends on no parameter of a template.
        """
        asking = {one.name for one in self.constants if one.index not in values}
        for one in self._declarations if asking else ():
            names = set(self._names(one))
            is_variable = one.kind == OTHER and tokens.words[one.head_end] in {"=", "{"} and names
            if is_variable and names.isdisjoint(reached) and not asking.isdisjoint(self._mentions(one)):
                self._drop_values(tokens, one)
                asking |= names

    def _drop_values(self, tokens: Tokens, one: Declaration) -> None:
        declared = self._declared(one)
        if declared is None or "auto" in tokens.words[one.first : declared.type_end]:
            tokens.drop(one.first, one.last)
            return
        for each in declared.declarators:
            tokens.drop(each.value, each.end - 1)
        for at in range(declared.first, declared.type_end):
            if tokens.words[at] in {"static", "constexpr", "inline"}:
                tokens.drop(at, at)
        tokens.words[declared.first] = f"extern {tokens.words[declared.first]}"

    def _declared(self, one: Declaration) -> Declared | None:
        first, _ = declarations.after_template(self._source, one.first)
        return declarators.read(self._source, first, one.last) if one.kind == OTHER else None

    def _names(self, one: Declaration) -> Iterable[str]:
        """What it declares: of variables, each."""
        declared = self._declared(one)
        if declared is None or len(declared.declarators) < 2:
            return [one.name(self._source)]
        return [self._source.words[each.name] for each in declared.declarators if each.name is not None]

    def lacks_definition(self, name: str, symbol: str) -> SourceError:
        """The error of a kernel that needs what is not defined: a function constant, or what is only declared."""
        index = symbol.removeprefix(function_constants.MISSING)
        if index != symbol:
            return self.lacks_constant(name, int(index))
        plain = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", symbol)).partition("(")[0]
        called = re.split(r"[ :]", plain)[-1]
        known = (
            one for one in declarations.every(self._declarations) if one.body is None and called in self._names(one)
        )
        place = next((one.first for one in known), self.kernels[name].at)
        text = f"the kernel '{name}' uses '{metal_names(symbol)}', which is declared and not defined"
        return source_error(self._source, place, text)

    def lacks_constant(self, name: str, index: int) -> SourceError:
        """The error of a kernel that reads a function constant without a value."""
        constant = next(one for one in self.constants if one.index == index)
        text = f"the kernel '{name}' reads the function constant '{constant.name}' (index {index}), which has no value"
        return source_error(self._source, constant.declaration.first, text)

    def image_text(self, name: str) -> str:
        """What makes an image of a kernel; it stands for the kernel's line.  Raises SourceError as kernel_text does."""
        kernel = self.kernels[name]
        self._refuse_what_is_not_supported(kernel)
        file, line, _ = self._source.place(kernel.at)
        _, variables = self._cpp
        function = kernel.declaration
        own = self._source.words[function.first : function.last]
        # Threads that ask for their y may do better along that: side_by_side.py
        may_wait = "y" in own or any(map(_WAITS.match, self._reached(kernel)))
        return f"#line {line} {_string(file)}\n{_image(kernel, self._binders(kernel.declaration), variables, may_wait)}"

    def _binders(self, function: Declaration) -> list[Parameter]:
        assert function.parameters is not None
        if id(function) not in self._bound:
            self._bound[id(function)] = bind(
                self._source, function.parameters, function.last, self._integers, self._named_spaces
            )
        return self._bound[id(function)]

    def _refuse_what_is_not_supported(self, kernel: Kernel) -> None:
        if kernel.stage != kernels.KERNEL:
            text = f"'{kernel.name}' is no kernel: {kernel.stage} functions need a Mac"
            raise source_error(self._source, kernel.at, text)
        for one in (kernel.declaration, kernel.instantiation):
            lack = self._lacks.get(id(one))
            if lack is not None:
                raise source_error(self._source, lack.at, lack.sentence(kernel.name))

    def _mentions(self, one: Declaration) -> set[str]:
        """The names in it that can be those of other declarations: a parameter, and what follows a point, cannot."""
        words = self._source.words
        found = {words[at] for at in range(one.first, one.last + 1) if words[at - 1] not in {".", "->"}}
        return found - declarators.names_of_parameters(self._source, one.parameters) if one.parameters else found

    @cached_property
    def _named_spaces(self) -> dict[str, list[str]]:
        return {name: declared.spaces for name, declared, _ in declarations.aliases(self._source)}

    @cached_property
    def _by_name(self) -> dict[str, list[Declaration]]:
        named: dict[str, list[Declaration]] = {}
        for one in self._declarations:
            for name in self._names(one):
                named.setdefault(name, []).append(one)
        return named

    def refuse_what_metal_has_not(self) -> None:
        """Raise SourceError for a construct that C++ has and Metal has not."""
        entries = {id(one.declaration): one.declaration for one in self.kernels.values() if one.stage == kernels.KERNEL}
        named, integers = self._by_name, self._integers
        legality.refuse(self._source, self._declarations, list(entries.values()), self._variables, named, integers)

    def text_with_spaces(self, *, of_calls: bool = False) -> str:
        """The source with the words of address spaces left in it, for space_conversions.py.

        of_calls: so that clang says what space_calls.py asks; empty if there is nothing to ask.
        """
        if of_calls and not self._united[2].differing:
            return ""
        tokens = self._source.copy()
        stay = self._kept(tokens, with_instantiations=of_calls)
        if of_calls:
            space_calls.prepare(tokens, stay, self._united[2].differing)
        space_conversions.prepare(tokens, self.constants, self._variables)
        self._rewrite(tokens, stay)
        return tokens.text()

    def settle(self, said: str) -> None:
        """Take what clang said of the calls; before that, a source with such functions is refused."""
        self._calls = said

    @cached_property
    def _united(self) -> tuple[Tokens, list[Declaration], Choices]:
        """The source without what only address spaces tell apart, its declarations, and what they choose between."""
        tokens, choices = self._source.copy(), Choices(self._source)
        whole = self._kept(tokens)
        choices.refuse(whole)
        return tokens, address_spaces.drop_duplicates(tokens, whole, choices.differing), choices

    @cached_property
    def _cpp(self) -> tuple[Tokens, list[str]]:
        """The source as C++ but for function constants, and the names of its variables in threadgroup memory."""
        tokens, stay, choices = self._united
        choices.answer(tokens)
        if choices.differing:
            space_calls.rewrite(tokens, stay, choices.differing, self._calls)
        self._rewrite(tokens, stay)
        address_spaces.erase(tokens, stay)
        names = threadgroup_variables.rewrite(tokens, [one for one in self._variables if tokens.words[one.end]])
        contraction.rewrite(tokens, stay)
        return tokens, names

    def _kept(self, tokens: Tokens, *, with_instantiations: bool = False) -> list[Declaration]:
        """Drop the kernels' instantiations and what is not supported; return the declarations that stay."""
        for kernel in self.kernels.values():
            if kernel.instantiation is not None and not with_instantiations:
                tokens.drop(kernel.instantiation.first, kernel.instantiation.last)
        # Overloads for bfloat, made with Apple's compiler or beside `using metal::max;`: the shim has them all.
        completes_library = any(word.startswith("__metal_") for word in tokens.words)
        heads = [self._source.words[one.first : one.first + 4] for one in self._declarations]
        used = {words[3] for words in heads if words[:3] == ["using", "metal", "::"]}
        for one in self._declarations:
            is_overload = completes_library and one.namespaces[:1] == ("metal",) and one.kind == FUNCTION
            if one.name(self._source) in used and one.parameters is not None and not one.is_template:
                is_overload = "bfloat" in self._source.words[one.parameters : one.head_end]
            if id(one) in self._lacks or is_overload:
                tokens.drop(one.first, one.last)
        return [one for one in self._declarations if tokens.words[one.first]]

    def _rewrite(self, tokens: Tokens, stay: list[Declaration]) -> None:
        """All that is not C++ but address spaces and function constants."""
        for one in stay:
            _give_linkage(tokens, one)
            _deduce_sizes(tokens, one)
        attributes.take_out(tokens)
        attributes.let_inline(tokens)
        literals.rewrite_chosen(tokens, self._source)
        literals.rewrite(tokens.words)
        swizzles.rewrite(tokens, stay)
        tokens.gaps = [_PRAGMA.sub("", gap) if "#pragma" in gap else gap for gap in tokens.gaps]


def _give_linkage(tokens: Tokens, one: Declaration) -> None:
    """A function that no one calls is not compiled if it is inline."""
    if one.kind != FUNCTION:
        return
    assert one.parameters is not None
    for at in kernels.stage_words(tokens, one):
        tokens.words[at] = ""
    head = tokens.words[one.first : one.parameters]
    if not one.is_template and _SPELLS_LINKAGE.isdisjoint(head) and head[-2:-1] != ["::"]:
        at = one.first if head[0] != "template" else tokens.after_angle(one.first + 1)
        tokens.gaps[at] += "inline "


def _deduce_sizes(tokens: Tokens, one: Declaration) -> None:
    """`template <class T, uint N> f(vec<T, N>)`: Metal takes any integer for the size, a class that of its own type."""
    if one.kind != FUNCTION or not one.is_template or one.parameters is None:
        return
    words = tokens.words
    sizes = set()
    for at in range(one.parameters, tokens.partner[one.parameters]):
        if words[at] in {"vec", "packed_vec", "matrix"} and words[at + 1] == "<":
            sizes.update(words[at + 2 : tokens.after_angle(at + 1)])
    for at in range(one.first, one.parameters):
        if (
            words[at] in sizes
            and words[at - 1] in {"uint", "size_t", "ushort", "uint32_t"}
            and words[at + 1] in {",", ">"}
        ):
            words[at - 1] = "int"


def _string(text: str) -> str:
    """In quotes, as C++ has it: letters of any alphabet stay, because JSON's escapes for some are not C++'s."""
    return json.dumps(text, ensure_ascii=False)


def _image(kernel: Kernel, parameters: list[Parameter], variables: list[str], may_wait: bool) -> str:
    namespaces = kernel.declaration.namespaces if kernel.instantiation is None else kernel.instantiation.namespaces
    opened = "".join(f"namespace {name} {{ " for name in namespaces)
    pointer = "auto softmetal_kernel" if kernel.signature is None else f"void (*softmetal_kernel)({kernel.signature})"
    types = " ".join(f"typedef {one.binder} softmetal_binder_{nth};" for nth, one in enumerate(parameters))
    path = "".join(f"{name}::" for name in namespaces)
    whole = "" if namespaces else "::"  # a kernel `transpose`, beside Metal's own
    names = ", ".join(_string(one.name) for one in parameters) or "nullptr"
    own_names = f"SOFTMETAL_VARIABLE_NAMES({', '.join(map(_string, variables))})" if variables else ""
    binders = [f"{path}softmetal_binder_{nth}" for nth in range(len(parameters))]
    arguments = ", ".join([f"{path}softmetal_kernel", *binders])
    image = "SOFTMETAL_WAITING_IMAGE" if may_wait else "SOFTMETAL_IMAGE"
    return (
        f"{opened}static constexpr {pointer} = &{whole}{kernel.expression}; {types} {'} ' * len(namespaces)}"
        f"static const char *const softmetal_argument_names[] = {{{names}}}; {image}({arguments}) {own_names}\n"
    )
