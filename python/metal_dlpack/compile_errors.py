"""What Metal's compiler says of a source, as an exception that knows the line.

The compiler's words come in one text, as clang prints them: `file:line:column: error: text`, the line of the source and
a mark below it, again and again.  Both systems give the same, so that one parser does.

Source: clang, Expressive Diagnostics; MTLLibraryErrorDomain, whose description the text is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .kernel_source import DEFAULT_NAME

if TYPE_CHECKING:
    from .language.places import Place


class Diagnostic(NamedTuple):
    """One thing that the compiler says.

    ``line`` and ``column`` count from 1; 0 where the compiler names no place.  ``severity`` is ``'error'``,
    ``'warning'`` or ``'note'``.
    """

    file: str
    line: int
    column: int
    severity: str
    text: str


class CompileError(SyntaxError):
    """Metal source does not compile.

    A SyntaxError whose fields are about the first error: ``filename``, ``lineno``, ``offset``, ``text`` (the line of
    the source) and ``msg``.  ``diagnostics`` is a tuple of all messages of the compiler; a traceback shows the rest
    in a note.
    """

    __module__ = "metal_dlpack"
    diagnostics: tuple[Diagnostic, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, {"diagnostics": self.diagnostics, **self.__dict__}


_SAID = re.compile(
    r"^(?:(?P<file>[^\n]+?):(?P<line>\d+):(?:(?P<column>\d+):)? )?"
    r"(?P<severity>(?:fatal )?error|warning|note): (?P<text>[^\n]*)$",
    re.MULTILINE,
)

#: Newer compilers print the number of the line before it.
_GUTTER = re.compile(r"^ *\d+ \| ")


def error_of(words: str, text: str = "") -> CompileError:
    """The exception for what the compiler said of a text."""
    words = _with_the_users_files(words, text)
    said = list(_SAID.finditer(words))
    diagnostics = tuple(
        Diagnostic(
            match["file"] or DEFAULT_NAME,
            int(match["line"] or 0),
            int(match["column"] or 0),
            match["severity"].removeprefix("fatal "),
            match["text"],
        )
        for match in said
    )
    at = next((i for i, one in enumerate(diagnostics) if one.severity == "error"), None)
    if at is None:
        error = CompileError(words.strip() or "Metal does not compile the source, and gives no reason")
        error.diagnostics = diagnostics
        return error
    first = diagnostics[at]
    line, column = first.line or None, first.column or None
    # The end as well: without it Python 3.13's traceback marks all the rest of the line.
    place = (first.file, line, column, _line_behind(words, said[at].end()), line, column)
    error = CompileError(first.text, place)
    error.diagnostics = diagnostics
    if len(diagnostics) > 1:
        error.add_note(words.strip())
    return error


def _with_the_users_files(words: str, text: str) -> str:
    """The same about the lines of the program that gives the text as a literal, and of a notebook's cells."""
    lines = words.split("\n")
    for at, line in enumerate(lines):
        found = _SAID.match(line)
        if found is None or not found["column"] or (place := _place(text, found)) is None:
            continue
        column = place.column or int(found["column"])
        lines[at] = f"{place.file}:{place.line}:{column}: {line[found.start('severity') :]}"
        if place.column and lines[at + 2 : at + 3] and lines[at + 2].strip() == "^":
            shown = dict(place.context)[place.line]
            lines[at + 1 : at + 3] = [shown, "".join(c if c == "\t" else " " for c in shown[: column - 1]) + "^"]
    return "\n".join(lines)


def _place(text: str, found: re.Match[str]) -> Place | None:
    """The user's place of a message: in a cell, or, if the source has no name, in the one literal that it can be."""
    from .language import literals, places

    said = places.Said(found["file"], int(found["line"]), int(found["column"]), False)
    if literals.cells_of_a_notebook() and places.is_cell((cell := places.of_said(text, said)).file or ""):
        return cell
    if said.file != DEFAULT_NAME:
        return None
    place = places.of_said(text, said, literals.surely_lines_of)
    return None if place.file is None else place


def _line_behind(words: str, end: int) -> str | None:
    """The line of the source that the compiler prints behind what it says; None where it prints none."""
    line = words[end + 1 :].partition("\n")[0]
    return None if not line or _SAID.match(line) else _GUTTER.sub("", line)
