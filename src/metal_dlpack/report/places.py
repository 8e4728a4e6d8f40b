"""From a line that the compiler names to the user's own file and line."""

from __future__ import annotations

import functools
import linecache
import os
from typing import NamedTuple

from metal_dlpack.msl import for_softmetal
from metal_dlpack.msl.diagnostics import numbered

from . import literals


class Said(NamedTuple):
    """A place in the words of the compiler: "near program_source:12:5"."""

    file: str
    line: int
    column: int
    is_near: bool  # of a neighbour: the instruction was moved


class Place(NamedTuple):
    """Where a line of a kernel is: `file` is None where it is in no file, and then it is line `line` of the text."""

    file: str | None
    line: int
    column: int
    is_near: bool
    name: str  # of the source, as the compiler knows it
    text: str  # the line


def parse(row: str) -> Said | None:
    """None: the compiler names no line."""
    file, _, rest = row.rpartition(":")
    file, _, line = file.rpartition(":")
    if not (line.isdecimal() and rest.isdecimal()):
        return None
    return Said(file.removeprefix("near "), int(line), int(rest), file.startswith("near "))


def find(image: str, row: str) -> Place | None:
    """The place of a row of an image."""
    said = parse(row)
    if said is None:
        return None
    here = of_the_user(image, said.file, said.line)
    if here is None:
        text = source_lines(image, said.file).get(said.line, "")
        return Place(None, said.line, said.column, said.is_near, said.file, text.strip())
    file, line = here
    # The columns of a literal in Python are others, but of a `.metal` file.
    text = linecache.getline(file, line).strip() or source_lines(image, said.file).get(said.line, "").strip()
    return Place(file, line, said.column, said.is_near, said.file, text)


def of_the_user(image: str, file: str, line: int) -> tuple[str, int] | None:
    """(file, line) of a line of an image's source."""
    if os.path.isfile(file) or (file.startswith("<") and linecache.getline(file, line)):
        return file, line
    found = _literal(image, file)
    if found is None:
        return None
    path, numbers = found
    return (path, numbers[line - 1]) if 0 < line <= len(numbers) else None


def source_lines(image: str, file: str) -> dict[int, str]:
    """The lines of an image's source that the compiler knows by a file's name."""
    return lines_by_file(for_softmetal.source_of_image(image) or "").get(file, {})


@functools.lru_cache(maxsize=256)
def lines_by_file(source: str) -> dict[str, dict[int, str]]:
    """The lines of a source by number, for each name that `#line` gives them."""
    lines: dict[str, dict[int, str]] = {}
    for file, number, line, is_directive in numbered(source, "program_source"):
        if not is_directive:
            lines.setdefault(file, {})[number] = line
    return lines


def _literal(image: str, file: str) -> literals.Lines | None:
    """Where the text of that name is: a literal, or a file beside the program's modules."""
    lines = source_lines(image, file)
    if not lines:
        return None
    text = "\n".join(lines.get(number, "") for number in range(1, max(lines) + 1))
    return literals.lines_of(text) or literals.metal_file(text)
