"""Which line of the user's source an instruction of an image comes from, for the checker's reports.

Reads the line table (.debug_line, version 4) of our own images: 64-bit ELF, little-endian, one translated kernel each.
A reader of any program's debug information would be a package more to install for one table of one kind.

SPEC DWARF Debugging Information Format, version 4, chapter 6.2.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metal_dlpack.language.diagnostics import is_ours
from metal_dlpack.language.errors import CompilerError

#: (file, line, column); column 0: none is known.
Place = tuple[str, int, int]

_NOWHERE: Place = ("", 0, 0)

# Standard opcodes, by their number; the operands of the others are skipped by the header's own table.
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN = 1, 2, 3, 4, 5
_CONST_ADD_PC, _FIXED_ADVANCE_PC = 8, 9
# Extended opcodes.
_END_SEQUENCE, _SET_ADDRESS = 1, 2


@dataclass(frozen=True)  # mutant survives (constant): nobody tries to change one
class _Row:
    address: int
    place: Place
    is_end: bool = False

    @property
    def is_the_users(self) -> bool:
        return self.place[1] != 0 and not is_ours(self.place[0])


def lines_of(image_path: str | os.PathLike[str], addresses: Iterable[int]) -> list[Place]:
    """Return (file, line, column) for each address: an offset in the image, within an instruction.

    ("near FILE", line, column) is of a neighbour: clang moved this instruction, as out of a loop, and says no line.
    If clang made one instruction of several on a line, without a column, it is the line's first column.
    ("", 0, 0) stands for an address without a line: it is outside the kernel, or the image is not a checked one.
    Raises CompilerError for a file that is no image.
    """
    rows = _rows(os.fspath(image_path), os.stat(image_path).st_mtime_ns)
    starts = [row.address for row in rows]
    places = [_place_at(rows, bisect.bisect_right(starts, address) - 1) for address in addresses]
    return [place if place[2] else _with_column(rows, place) for place in places]


def _place_at(rows: list[_Row], at: int) -> Place:
    if at < 0 or rows[at].is_end:
        return _NOWHERE
    if rows[at].is_the_users:
        return rows[at].place
    near = _first_of_the_user(rows, range(at, -1, -1)) or _first_of_the_user(rows, range(at, len(rows)))
    return (f"near {near[0]}", *near[1:]) if near else _NOWHERE


def _with_column(rows: list[_Row], place: Place) -> Place:
    file, line, _ = place
    here = (file.removeprefix("near "), line)
    return file, line, min((row.place[2] for row in rows if row.place[:2] == here and row.place[2]), default=0)


def _first_of_the_user(rows: list[_Row], indices: Sequence[int]) -> Place | None:
    """Within one sequence."""
    sequence = itertools.takewhile(lambda row: not row.is_end, (rows[at] for at in indices))
    return next((row.place for row in sequence if row.is_the_users), None)


@functools.lru_cache(maxsize=32)
def _rows(path: str, _mtime_ns: int) -> list[_Row]:
    """Sorted by address; where one sequence ends and the next begins, the beginning counts."""
    try:
        table = _section(Path(path).read_bytes(), b".debug_line")
        rows = list(_read_table(_Reader(table)))
    except (IndexError, struct.error, ValueError) as error:
        raise CompilerError(f"{path} is not an image of a kernel, or its line table is broken ({error}).") from error
    rows.sort(key=lambda row: (row.address, not row.is_end))
    return rows


def _section(elf: bytes, name: bytes) -> bytes:
    """SPEC System V ABI, Object Files: the section header table."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    names = headers[names_index][4]
    for header in headers:
        start = names + header[0]
        if elf[start : elf.index(b"\0", start)] == name:
            return elf[header[4] : header[4] + header[5]]
    return b""  # a plain image


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, nbytes: int, *, signed: bool = False) -> int:
        part = self.data[self.at : self.at + nbytes]
        if len(part) != nbytes:
            raise ValueError("it is cut off")
        self.at += nbytes
        return int.from_bytes(part, "little", signed=signed)

    def leb128(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text


@dataclass
class _Program:
    """A unit's header: how its opcodes are read."""

    end: int
    step_nbytes: int
    line_base: int
    line_range: int
    opcode_base: int
    operand_counts: list[int]
    files: list[str]


def _read_table(reader: _Reader) -> Iterator[_Row]:
    while reader.at < len(reader.data):
        program = _read_header(reader)
        yield from _run(reader, program)
        reader.at = program.end


def _read_header(reader: _Reader) -> _Program:
    end = reader.number(4) + reader.at
    version = reader.number(2)
    if version != 4:
        raise ValueError(f"its version is {version}, not 4")
    after_header = reader.number(4) + reader.at
    step_nbytes = reader.number(1)
    reader.number(2)  # operations in one instruction, and whether rows begin as statements
    line_base, line_range = reader.number(1, signed=True), reader.number(1)
    opcode_base = reader.number(1)
    operand_counts = [reader.number(1) for _ in range(opcode_base - 1)]
    folders = [""]
    while folder := reader.text():
        folders.append(folder)
    files = [""]  # they are counted from 1
    while name := reader.text():
        folder = folders[reader.leb128()]
        reader.leb128(), reader.leb128()  # time and length
        files.append(os.path.join(folder, name))
    reader.at = after_header
    return _Program(end, step_nbytes, line_base, line_range, opcode_base, operand_counts, files)


def _run(reader: _Reader, program: _Program) -> Iterator[_Row]:
    """The state machine whose rows are the table."""
    address, file, line, column = 0, 1, 1, 0
    special_span = (255 - program.opcode_base) // program.line_range * program.step_nbytes
    while reader.at < program.end:
        opcode = reader.number(1)
        if opcode >= program.opcode_base:
            steps, lines = divmod(opcode - program.opcode_base, program.line_range)
            address += steps * program.step_nbytes
            line += program.line_base + lines
            yield _Row(address, (program.files[file], line, column))
        elif opcode == 0:
            nbytes = reader.leb128()
            after = reader.at + nbytes
            extended = reader.number(1)
            if extended == _SET_ADDRESS:
                address = reader.number(nbytes - 1)
            elif extended == _END_SEQUENCE:
                yield _Row(address, _NOWHERE, is_end=True)
                address, file, line, column = 0, 1, 1, 0
            reader.at = after
        elif opcode == _COPY:
            yield _Row(address, (program.files[file], line, column))
        elif opcode == _ADVANCE_PC:
            address += reader.leb128() * program.step_nbytes
        elif opcode == _ADVANCE_LINE:
            line += reader.leb128(signed=True)
        elif opcode == _SET_FILE:
            file = reader.leb128()
        elif opcode == _SET_COLUMN:
            column = reader.leb128()
        elif opcode == _CONST_ADD_PC:
            address += special_span
        elif opcode == _FIXED_ADVANCE_PC:
            address += reader.number(2)
        else:
            for _ in range(program.operand_counts[opcode - 1]):
                reader.leb128()
