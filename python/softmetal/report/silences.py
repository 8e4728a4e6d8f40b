"""Findings that the user means: `// softmetal: benign REASON` at a line, or a list of kernels and lines.

A comment counts on its line and on the line below, in the kernel's source; as `# softmetal: benign REASON` also in the
Python source, at the line where the kernel's line stands.  A list has a row for each silence:

    KERNEL:LINE REASON          # a name as the report has it, * and ? allowed; or a file's name

A silence without a reason silences nothing.  A silenced finding is not printed, and does not fail a launch that
has gone on to its end.
"""

from __future__ import annotations

import fnmatch
import linecache
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from softmetal.msl import for_softmetal

from . import places

_COMMENT = re.compile(r"(?P<mark>//|/\*|#)\s*softmetal:\s*benign\b[\s:]*(?P<reason>.*?)\s*(?:\*/\s*)?$")
_IS_COMMENT_ALONE = re.compile(r"\s*(?://|/\*|#)")


class Silence(NamedTuple):
    """Where it stands, and why; "" for a comment without a reason."""

    where: str
    reason: str


@dataclass(frozen=True)
class Row:
    """A row of a list."""

    name: str
    line: int
    silence: Silence


#: The rows of the list that was read; what silenced something, and comments that gave no reason.
_rows: list[Row] = []
_lists: list[tuple[str, str]] = []
_used: set[Silence] = set()
_refused: set[Silence] = set()


def silenced(asked: tuple[str, int], rows: bytes) -> bytes:
    """1 for each row of name_lines (compiler.h) at which the user means what is found, else 0.  C calls it.

    `asked` is the kernel's image and the bytes of a row.  Behind the answer come the rows as the user knows them.
    """
    image, nbytes = asked
    texts = [rows[at : at + nbytes].rstrip(b"\0").decode() for at in range(0, len(rows), nbytes)]
    found = [used_at(image, text) for text in texts]
    shown = (for_softmetal.row(places.shown(image, text), nbytes) for text in texts)
    return bytes(one is not None for one in found) + b"".join(shown)


def used_at(image: str, row: str) -> Silence | None:
    """What silences a finding at this line, which was found."""
    silence = of_row(image, row)
    if silence is not None:
        _used.add(silence)
    return silence


def of_row(image: str, row: str) -> Silence | None:
    """What silences a finding at this line."""
    said = places.parse(row)
    if said is None:
        return None
    lines = places.source_lines(image, said.file)
    found = _at(said.line, lambda number: lines.get(number, ""), lambda number: _where(image, said.file, number))
    user = places.of_the_user(image, said.file, said.line) if found is None else None
    if user is not None:
        file, line = user
        found = _at(
            line,
            lambda number: linecache.getline(file, number).rstrip(),
            lambda number: f"{places.name_of(file)}:{number}",
        )
    return found or _listed(image, said, user)


def _where(image: str, file: str, line: int) -> str:
    """Where a line of an image's source is, as a report names it."""
    user = places.of_the_user(image, file, line)
    return f"{places.name_of(user[0])}:{user[1]}" if user else f"{file}:{line}"


def _at(line: int, text_of: Callable[[int], str], where_of: Callable[[int], str]) -> Silence | None:
    """At the line or above it, where a comment stands alone."""
    for number in (line, line - 1):
        text = text_of(number)
        comment = _COMMENT.search(text)
        if comment is None or (number != line and not _IS_COMMENT_ALONE.match(text)):
            continue
        silence = Silence(where_of(number), comment["reason"])
        if silence.reason:
            return silence
        _refused.add(silence)
    return None


def _listed(image: str, said: places.Said, user: tuple[str, int] | None) -> Silence | None:
    kernel = for_softmetal.kernel_of_image(image) or ""
    for row in _rows:
        is_kernel = fnmatch.fnmatchcase(kernel, row.name) and row.line in {said.line, user[1] if user else 0}
        is_file = any(
            _is_file(file, row.name) and line == row.line
            for file, line in [(said.file, said.line), *([user] if user else [])]
        )
        if is_kernel or is_file:
            return row.silence
    return None


def _is_file(file: str, name: str) -> bool:
    return name in {file, places.name_of(file)} or file.endswith(os.sep + name)


# ---- a list ----


def read(text: str, where: str) -> None:
    """Take the rows of a list from now on.  Raises ValueError, with the line, for one that is none or has no reason."""
    taken = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = re.fullmatch(r"\s*(\S.*?):(\d+)(?:\s+(\S.*?))?\s*", line)
        if row is None:
            raise ValueError(f"{where}:{number}: {line.strip()!r} is not KERNEL:LINE REASON.")
        if row[3] is None:
            raise ValueError(f"{where}:{number}: {line.strip()} has no reason; write one behind the line's number.")
        taken.append(Row(row[1], int(row[2]), Silence(f"{where}:{number}", row[3])))
    _rows.extend(taken)
    _lists.append((text, where))


def lists() -> list[tuple[str, str]]:
    """The lists that were read, as `read` takes them."""
    return list(_lists)


def forget() -> None:
    """As if no list had been read, and nothing had been found."""
    _rows.clear()
    _lists.clear()
    _used.clear()
    _refused.clear()


def refused() -> list[Silence]:
    """Comments at findings that give no reason."""
    return sorted(_refused)


def unused(images: set[str]) -> list[Silence]:
    """Comments in the sources of these images, which ran, and rows of the list that have silenced nothing so far."""
    written = {row.silence for row in _rows}
    for image in images:
        source = for_softmetal.source_of_image(image) or ""
        if "softmetal:" not in source:
            continue
        for file, lines in places.lines_by_file(source).items():
            for number, line in lines.items():
                comment = _COMMENT.search(line)
                if comment is not None:
                    written.add(Silence(_where(image, file, number), comment["reason"]))
    return sorted(written - _used - _refused)
