"""From a line of an image to the user's own file and line: language/places.py, for what was compiled here."""

from __future__ import annotations

from metal_dlpack.language import literals
from metal_dlpack.language.places import Place, Said, in_source, is_cell, lines_by_file, name_of, of_said, parse
from softmetal.msl import for_softmetal

__all__ = [
    "Place",
    "Said",
    "find",
    "is_cell",
    "lines_by_file",
    "name_of",
    "of_the_user",
    "parse",
    "shown",
    "source_lines",
]

#: Is a report kept, which names the user's files?
is_reporting = False


def find(image: str, row: str) -> Place | None:
    """The place of a row of an image."""
    said = parse(row)
    return None if said is None else of_said(for_softmetal.source_of_image(image) or "", said)


def shown(image: str, row: str) -> str:
    """A row for a message: as a report names its place where one is kept, and by the cell of a notebook."""
    place = find(image, row) if is_reporting or literals.cells_of_a_notebook() else None
    if place is None or place.file is None or not (is_reporting or is_cell(place.file)):
        return row
    near = "near " if place.is_near else ""
    column = f":{place.column}" if place.column else ""
    return f"{near}{place.file}:{place.line}{column}"


def of_the_user(image: str, file: str, line: int) -> tuple[str, int] | None:
    """(file, line) of a line of an image's source."""
    return in_source(for_softmetal.source_of_image(image) or "", file, line)


def source_lines(image: str, file: str) -> dict[int, str]:
    """The lines of an image's source that the compiler knows by a file's name."""
    return lines_by_file(for_softmetal.source_of_image(image) or "").get(file, {})
