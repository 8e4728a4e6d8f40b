"""From a line that the compiler names to the user's own file and line."""

from __future__ import annotations

import functools
import linecache
import os
from collections.abc import Callable
from typing import NamedTuple

from . import literals
from .tokens import numbered


class Said(NamedTuple):
    """A place in the words of the compiler: "near program_source:12:5"."""

    file: str
    line: int
    column: int
    is_near: bool  # of a neighbour: the instruction was moved


#: Lines above and below that a report shows.
CONTEXT = 2


class Place(NamedTuple):
    """Where a line of a kernel is: `file` is None where it is in no file, and then `line` is that of the text."""

    file: str | None  # of a notebook the cell: "In [3]"
    line: int
    column: int  # 0: not known
    is_near: bool
    name: str  # of the source, as the compiler knows it ...
    own_line: int  # ... and the line there
    context: tuple[tuple[int, str], ...]  # (line, its text) from CONTEXT lines above to as many below


def parse(row: str) -> Said | None:
    """None: the compiler names no line."""
    file, _, rest = row.rpartition(":")
    file, _, line = file.rpartition(":")
    if not (line.isdecimal() and rest.isdecimal()):
        return None
    return Said(file.removeprefix("near "), int(line), int(rest), file.startswith("near "))


#: Where a text stands in the program.
Search = Callable[[str], literals.Lines | None]


def _anywhere(text: str) -> literals.Lines | None:
    """In a literal, or in a file beside the program's modules."""
    return literals.lines_of(text) or literals.metal_file(text)


def of_said(source: str, said: Said, search: Search = _anywhere) -> Place:
    """The place in a source."""
    own = lines_by_file(source).get(said.file, {})
    here = in_source(source, said.file, said.line, search)
    if here is None:
        context = _around(said.line, lambda number: own.get(number))
        return Place(None, said.line, said.column, said.is_near, said.file, said.line, context)
    file, line = here
    lines = linecache.getlines(file)
    text = lines[line - 1] if line <= len(lines) else ""
    column = _column(text, own.get(said.line, text), said.column)
    context = _around(line, lambda number: lines[number - 1].rstrip("\n") if 0 < number <= len(lines) else None)
    return Place(name_of(file), line, column, said.is_near, said.file, said.line, context)


def name_of(file: str) -> str:
    """A file's name; of what a cell of a notebook is compiled as "In [3]"."""
    return literals.cells_of_a_notebook().get(file, file)


def is_cell(name: str) -> bool:
    return name.startswith("In [")


def _around(line: int, text_of: Callable[[int], str | None]) -> tuple[tuple[int, str], ...]:
    texts = [(number, text_of(number)) for number in range(line - CONTEXT, line + CONTEXT + 1)]
    return tuple((number, text) for number, text in texts if text is not None)


def _column(text: str, own: str, column: int) -> int:
    """A column of a line of a kernel in the line of a file: a literal may be indented, or something else altogether."""
    column = len(own.encode()[: column - 1].decode(errors="ignore")) + 1  # the compiler counts bytes
    indent = len(own) - len(own.lstrip())
    at = text.find(own.strip())
    return at + column - indent if own.strip() and at >= 0 and column > indent else 0


def in_source(source: str, file: str, line: int, search: Search = _anywhere) -> tuple[str, int] | None:
    """(file, line) of a line that the compiler knows by these."""
    if os.path.isfile(file) or (file.startswith("<") and linecache.getline(file, line)):
        return file, line
    text = _text(source, file)
    found = None if text is None else search(text)
    if found is None:
        return None
    path, numbers = found
    return (path, numbers[line - 1]) if 0 < line <= len(numbers) else None


@functools.lru_cache(maxsize=256)
def lines_by_file(source: str) -> dict[str, dict[int, str]]:
    """The lines of a source by number, for each name that `#line` gives them."""
    lines: dict[str, dict[int, str]] = {}
    for file, number, line, is_directive in numbered(source, "program_source"):
        if not is_directive:
            lines.setdefault(file, {})[number] = line
    return lines


@functools.lru_cache(maxsize=256)
def _text(source: str, file: str) -> str | None:
    """The text of that name, line by line as the compiler counts them."""
    lines = lines_by_file(source).get(file)
    return None if not lines else "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))
