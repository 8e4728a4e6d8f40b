"""A Metal library without a Mac: what a source has, and the image of each kernel that is asked for."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from . import cache, compiler
from .address_spaces import without
from .errors import SourceError
from .messages import of_the_user
from .tokens import Unbalanced
from .translation import Translation

_KEYWORD = re.compile(r"\b(?:device|threadgroup|thread|constant|kernel)\b")
MATHS = ("fast", "relaxed", "safe")


@dataclass(frozen=True, slots=True)
class Constant:
    """A function constant: its type as Metal spells it ("uint", "float4")."""

    name: str
    type: str
    index: int
    is_required: bool


@dataclass(frozen=True, slots=True)
class Function:
    """An entry point, and the function constants that it can read."""

    name: str
    constants: tuple[Constant, ...]


class Library:
    """What `open_library` returns.  Any thread may use it."""

    def __init__(self, source: str, math: str, translation: Translation):
        self._source = source
        self._math = math
        self._translation = translation
        self._lock = threading.Lock()
        self.functions: dict[str, Function] = {
            name: Function(
                name,
                tuple(
                    Constant(one.name, one.type, one.index, one.is_required) for one in translation.constants_of(kernel)
                ),
            )
            for name, kernel in translation.kernels.items()
        }

    def compile(self, name: str, constants: Mapping[int, bytes]) -> str:
        """Return the path of a kernel's image, compiled now if the cache has none.

        constants: the bytes of each function constant's value, by index.  With SOFTMETAL_KERNEL_CHECK=1 the image is a
        checked one.  Raises SourceError, and KeyError for a kernel that the library does not have.
        """
        is_checked = os.environ.get("SOFTMETAL_KERNEL_CHECK") == "1"
        with self._lock:
            try:
                text = self._translation.kernel_text(name, constants)
            except SourceError as error:
                raise of_the_user(error, self._source) from None
        found = compiler.find()
        path = cache.made(
            [*found.key_parts(math=self._math, checked=is_checked), text],
            ".so",
            lambda out: found.build(text, out, math=self._math, checked=is_checked, source=self._source),
        )
        return str(path)


def open_library(source: str, math: str = "fast") -> Library:
    """Read a source: preprocess it, find its kernels, and check all that is no template.

    math: "fast", "relaxed" or "safe", as MTLMathMode.  Raises SourceError, CompilerNotFound.
    """
    if math not in MATHS:
        raise ValueError(f"math is one of {', '.join(MATHS)}, not {math!r}.")
    found = compiler.find()
    preprocessed = found.preprocess(source)
    try:
        translation = Translation(preprocessed)
        checked = translation.checked_text()
    except Unbalanced:
        raise _of_unbalanced(found, preprocessed, source) from None
    except SourceError as error:
        raise of_the_user(error, source) from None
    _check(found, checked, source)
    return Library(source, math, translation)


def _check(found: compiler.Compiler, text: str, source: str) -> None:
    """What was found right once is not asked again."""
    key = [*found.key_parts(math="safe", checked=False), "checked", text]
    if cache.read(key) is None:
        found.check(text, source)
        cache.write(key, b"")


def _of_unbalanced(found: compiler.Compiler, preprocessed: str, source: str) -> SourceError:
    """The compiler's own words about brackets that do not match, or ours if it sees none."""
    try:
        found.check(_KEYWORD.sub(lambda word: without([word[0]])[0], preprocessed), source)
    except SourceError as error:
        return error
    return SourceError("program_source:1:1: error: a bracket has no partner\n")
