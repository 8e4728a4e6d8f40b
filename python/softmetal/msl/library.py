"""A Metal library without a Mac: what a source has, and the image of each kernel that is asked for."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from metal_dlpack.language.errors import PROGRAM, SourceError, Undefined

from . import cache, compiler
from .flags import NEWEST_VERSION, translator_hash

if TYPE_CHECKING:
    from metal_dlpack.language.diagnostics import Lines

    from .kernels import Kernel
    from .translation import Translation

# The translator is imported when a source is translated: one that the cache knows never is.


class Constant(NamedTuple):
    """A function constant: its type as Metal spells it ("uint", "float4")."""

    name: str
    type: str
    index: int  # type: ignore[assignment]  # a tuple has a method of this name, which nobody needs here
    is_required: bool


class Function(NamedTuple):
    """An entry point, and the function constants that it can read."""

    name: str
    stage: str  # "kernel", or what else it is marked as
    constants: tuple[Constant, ...]


class Library:
    """What `open_library` returns.  Any thread may use it."""

    def __init__(self, source: str, version: int, functions: list[Function], translation: Translation | None):
        self._source = source
        self._version = version
        self._translation = translation  # None: not yet
        self._lock = threading.Lock()
        self.functions = {function.name: function for function in functions}

    def compile(
        self, name: str, constants: Mapping[int, bytes], *, checked: bool | None = None, counting: bool = False
    ) -> str:
        """Return the path of a kernel's image, compiled now if the cache has none.

        constants: the bytes of each function constant's value, by index.  checked: make an image for the checker; None:
        if SOFTMETAL_KERNEL_CHECK is 1.  counting: make one that counts, and is not checked.  Raises SourceError, and
        KeyError for a kernel that the library does not have.
        """
        function = self.functions[name]
        is_checked = os.environ.get("SOFTMETAL_KERNEL_CHECK") == "1" if checked is None else checked
        is_checked = is_checked and not counting
        found = compiler.find()
        values = [part for index in sorted(constants) for part in (str(index), constants[index])]
        path = cache.made(
            [
                *found.key_parts(checked=is_checked, counting=counting),
                str(self._version),
                translator_hash(),
                self._source,
                function.name,
                *values,
            ],
            ".so",
            lambda out: self._build(found, out, (name, constants), is_checked, counting),
        )
        return str(path)

    def _build(
        self,
        found: compiler.Compiler,
        out: Path,
        kernel: tuple[str, Mapping[int, bytes]],
        is_checked: bool,
        is_counting: bool,
    ) -> None:
        text = self._kernel_text(*kernel)
        try:
            found.build(text, out, checked=is_checked, counting=is_counting, source=self._source)
        except Undefined as error:
            assert self._translation is not None
            with _lines_of_the_user(self._source):
                raise self._translation.lacks_definition(kernel[0], error.symbol) from None

    def translated_lines(self, name: str, constants: Mapping[int, bytes]) -> Lines:
        """The lines of a kernel as they were compiled, by the user's files and numbers."""
        from metal_dlpack.language.diagnostics import lines_of_source

        from .translation import TEXT_BEGINS, TEXT_ENDS

        text = self._kernel_text(name, constants)
        return lines_of_source(text.removeprefix(TEXT_BEGINS).partition(TEXT_ENDS)[0])

    def _kernel_text(self, name: str, constants: Mapping[int, bytes]) -> str:
        with self._lock:
            if self._translation is None:
                self._translation = _translated(compiler.find(), self._source, self._version)
            with _lines_of_the_user(self._source):
                return self._translation.kernel_text(name, constants)


def open_library(source: str, version: int = NEWEST_VERSION, *, is_strict: bool = True) -> Library:
    """Read a source: preprocess it, find its kernels, and check all that is no template.

    version: of the language, as __METAL_VERSION__ says it.  is_strict: what Apple's compiler refuses is refused.
    Raises SourceError, CompilerNotFound.
    """
    found = compiler.find()
    key = ["library", *found.key_parts(checked=False), str(version), str(is_strict), translator_hash(), source]
    remembered = cache.read(key)
    if remembered is not None:
        known = [
            Function(name, stage, tuple(Constant(*one) for one in constants))
            for name, stage, constants in json.loads(remembered)
        ]
        return Library(source, version, known, None)
    translation = _translated(found, source, version)
    with _lines_of_the_user(source):
        checked = translation.checked_text()
    with _judged(found, translation, source) if is_strict else contextlib.nullcontext():
        found.check(checked, source)
    with _lines_of_the_user(source):
        functions = [
            Function(name, one.stage, tuple(_constants(translation, one))) for name, one in translation.kernels.items()
        ]
    cache.write(key, json.dumps(functions).encode())
    return Library(source, version, functions, translation)


@contextlib.contextmanager
def _judged(found: compiler.Compiler, translation: Translation, source: str) -> Iterator[None]:
    """Refuse what is no Metal, once the block has found that it is C++; the compiler reads both at the same time."""
    from . import space_conversions

    with found.reading(space_conversions.HEAD + translation.text_with_spaces(), space_conversions.FLAGS) as said:
        yield
        with _lines_of_the_user(source):
            translation.refuse_what_metal_has_not()
        space_conversions.refuse(said(), source)


def _constants(translation: Translation, kernel: Kernel) -> Iterator[Constant]:
    """What an instantiation reads depends on its arguments, which only the compiler follows: it requires none."""
    for one in translation.constants_of(kernel):
        yield Constant(one.name, one.type, one.index, one.is_required and kernel.instantiation is None)


def _translated(found: compiler.Compiler, source: str, version: int) -> Translation:
    from metal_dlpack.language.tokens import Unbalanced

    from . import space_calls, space_conversions
    from .translation import Translation

    preprocessed = found.preprocess(source, version)
    try:
        with _lines_of_the_user(source):
            translation = Translation(preprocessed)
            calls = translation.text_with_spaces(of_calls=True)
        if calls:
            flags = [*space_conversions.FLAGS, *space_calls.FLAGS]
            with found.reading(space_conversions.HEAD + calls, flags, warns=True) as said:
                translation.settle(said())
        return translation
    except (Unbalanced, RecursionError):  # clang takes fewer levels of brackets than the translator
        raise _of_unbalanced(found, preprocessed, source) from None


@contextlib.contextmanager
def _lines_of_the_user(source: str) -> Iterator[None]:
    """What the translator refuses shows the line as the user wrote it."""
    try:
        yield
    except SourceError as error:
        from metal_dlpack.language.diagnostics import of_the_user

        raise of_the_user(error, source) from None


def _of_unbalanced(found: compiler.Compiler, preprocessed: str, source: str) -> SourceError:
    """The compiler's own words about brackets that do not match, or ours if it sees none."""
    import re

    from metal_dlpack.language.address_spaces import without

    try:
        found.check("".join(without(re.split(r"(\w+)", preprocessed))), source)
    except SourceError as error:
        return error
    return SourceError(f"{PROGRAM}:1:1: error: a bracket has no partner\n")
