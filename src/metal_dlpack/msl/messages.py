"""Errors that the translator finds itself, in the form of Metal's compiler."""

from __future__ import annotations

from . import diagnostics
from .errors import SourceError
from .tokens import Tokens


def source_error(tokens: Tokens, at: int, text: str) -> SourceError:
    """The error of the word at `at`."""
    file, line, column = tokens.place(at)
    shown = tokens.line(at)
    return SourceError(f"{file}:{line}:{column}: error: {text}\n{shown}\n{diagnostics.caret_under(shown, column)}\n")


def of_the_user(error: SourceError, source: str) -> SourceError:
    """The same with the line as the user wrote it, and the column there."""
    return SourceError(diagnostics.clean(str(error), diagnostics.lines_of_source(source)))
