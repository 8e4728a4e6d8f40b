"""Errors that the translator finds itself, in the form of Metal's compiler."""

from __future__ import annotations

from .errors import SourceError
from .tokens import Tokens


def source_error(tokens: Tokens, at: int, text: str) -> SourceError:
    """The error of the word at `at`."""
    file, line, column = tokens.place(at)
    return SourceError(f"{file}:{line}:{column}: error: {text}\n")
