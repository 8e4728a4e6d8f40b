"""The members of an .npz file that are stored, not compressed: a zip archive of .npy files.

The archive's directory is read by zipfile when the file is opened, the header of a member when it is first asked for.

Source: PKWARE's APPNOTE 4.3.7, local file header; numpy.savez.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Collection
from typing import NamedTuple

from metal_dlpack import _core

from .contents import Contents, TensorInfo, check_extents, make_info
from .lookalikes import refuse_checkpoint
from .npy import read_info
from .source import Source

LOCAL_HEADER = struct.Struct("<4s5H3I2H")
LOCAL_MARK = b"PK\x03\x04"
ENCRYPTED = 0x1
#: The longest directory that is read, in bytes: that of a million members.
MAX_DIRECTORY = 100_000_000
NPY_MARK = b"\x93NUMPY"


class Member(NamedTuple):
    """One file in the archive, as the directory has it."""

    header: int
    nbytes: int  # as stored
    end: int  # nothing of it lies behind
    method: int
    flags: int


class ArchiveContents(Contents):
    """Members by name; each is looked into once, when it is asked for."""

    def __init__(self, source: Source, members: dict[str, Member]):
        super().__init__([], {})
        self._source = source
        self._members = members

    @property
    def names(self) -> Collection[str]:
        return self._members.keys()

    def info(self, name: str) -> TensorInfo:
        info = self._infos.get(name)
        if info is None:
            info = self._infos[name] = read_member(self._source, name, self._members[name])
        return info

    def extents(self) -> list[tuple[int, int]]:
        return [(member.header, member.end) for member in self._members.values()]


class Bounded(io.FileIO):
    """What zipfile reads: the directory in one piece, whose length the archive tells."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY:
            raise ValueError(f"it would have {size} bytes, more than {MAX_DIRECTORY}")
        return super().read(size)


def read_contents(source: Source) -> Contents:
    """The archive's directory."""
    try:
        with Bounded(source.fd, closefd=False) as stream, zipfile.ZipFile(stream) as archive:
            entries, directory = archive.infolist(), archive.start_dir
    except Exception as error:  # zipfile raises what its parts raise: struct.error, OverflowError, ...
        source.refuse(f"its directory is not that of a zip archive: {str(error)[:200]}.", cause=error)
    if any(entry.filename.endswith("/data.pkl") for entry in entries):
        refuse_checkpoint(source)  # torch.save writes zip archives too
    entries.sort(key=lambda entry: entry.header_offset)
    check_extents(source, [(e.header_offset, least_end(e), e.filename) for e in entries])
    ends = [*(entry.header_offset for entry in entries[1:]), directory]
    members: dict[str, Member] = {}
    for entry, end in zip(entries, ends, strict=False):
        name = entry.filename.removesuffix(".npy")
        if entry.header_offset < 0 or least_end(entry) > end:
            source.refuse(
                f"its {entry.compress_size} bytes from byte {entry.header_offset} on overlap what follows at {end}.",
                name,
            )
        if name in members:
            source.refuse("it occurs twice in the archive's directory.", name)
        members[name] = Member(entry.header_offset, entry.compress_size, end, entry.compress_type, entry.flag_bits)
    return ArchiveContents(source, members)


def least_end(entry: zipfile.ZipInfo) -> int:
    return entry.header_offset + LOCAL_HEADER.size + entry.compress_size


def read_member(source: Source, name: str, member: Member) -> TensorInfo:
    if member.flags & ENCRYPTED:
        source.refuse("it is encrypted; save it with np.savez, which encrypts nothing.", name)
    if member.method != zipfile.ZIP_STORED:
        source.refuse(
            "it is compressed, so its bytes cannot be mapped; load it with np.load, or save it with np.savez.", name
        )
    start = find_data(source, name, member)
    if source.read_up_to(start, min(len(NPY_MARK), member.nbytes)) != NPY_MARK:
        return make_info(source, name, "bytes", _core.uint8, (member.nbytes,), start)  # a member that is no array
    info = read_info(source, name, start)
    if info.offset + info.nbytes > start + member.nbytes:
        source.refuse(
            f"its {info.nbytes} bytes from byte {info.offset} on pass the end of its member ({start + member.nbytes}).",
            name,
        )
    return info


def find_data(source: Source, name: str, member: Member) -> int:
    """Where the member's bytes begin: behind its own header, whose length the directory does not tell."""
    head = source.read_up_to(member.header, LOCAL_HEADER.size)
    if len(head) < LOCAL_HEADER.size or not head.startswith(LOCAL_MARK):
        source.refuse(f"no member begins at byte {member.header}, where the directory has it.", name)
    fields = LOCAL_HEADER.unpack(head)
    start = member.header + LOCAL_HEADER.size + fields[-2] + fields[-1]
    if start + member.nbytes > member.end:
        source.refuse(f"its {member.nbytes} bytes from byte {start} on overlap what follows at {member.end}.", name)
    return int(start)
