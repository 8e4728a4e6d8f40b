"""The file under the arrays: its bytes by offset, its size, and sentences about what is wrong with it.

Owns one file descriptor, closed with the object or by close().
"""

from __future__ import annotations

import io
import os
import stat
from typing import NoReturn


class FileFormatError(ValueError):
    """A file is not what its format requires: truncated, overlapping, wrong about itself, or of another format.

    The message names the path, the tensor where there is one, and the numbers that do not agree.
    """


class Descriptor(io.FileIO):
    """A file that is closed with its last reference, without a warning and without a Python step.

    Ctrl-C can come between any two such steps, and what raises there, in a finalizer, is lost with the descriptor.
    """

    _finalizing = property(lambda _: False)  # FileIO warns of a file whose end found it open, and asks this


class Source:
    """An open regular file.  Threads: reads are by offset, so any number may read at once."""

    def __init__(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], *, is_writable: bool = False):
        self.path = os.fsdecode(path)
        if not stat.S_ISREG(os.stat(self.path).st_mode):  # asked first: opening a pipe would wait for its writer
            self.refuse("it is not a regular file, and cannot be mapped.")
        self._file = Descriptor(self.path, "r+" if is_writable else "r")
        self.fd = self._file.fileno()
        self.size = os.fstat(self.fd).st_size

    def close(self) -> None:
        self._file.close()

    @property
    def is_closed(self) -> bool:
        return self._file.closed

    def refuse(self, sentence: str, tensor: str | None = None, cause: BaseException | None = None) -> NoReturn:
        """Raise FileFormatError: "open: PATH: tensor NAME: SENTENCE"."""
        where = "" if tensor is None else f" tensor {shortened(tensor)}:"
        raise FileFormatError(f"open: {self.path}:{where} {sentence}") from cause

    def check_size(self) -> None:
        """The file is as long as it was when it was opened."""
        size = os.fstat(self.fd).st_size
        if size != self.size:
            self.refuse(f"it has {size} bytes now and had {self.size} when it was opened.")

    def read_up_to(self, offset: int, nbytes: int) -> bytes:
        """`nbytes` from `offset`, fewer where the file ends."""
        parts = []
        while nbytes > 0:
            part = os.pread(self.fd, min(nbytes, 1 << 30), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            nbytes -= len(part)
        return b"".join(parts)

    def read_into(self, offset: int, memory: memoryview) -> None:
        """Fill `memory` from `offset`; FileFormatError where the file ends before."""
        while len(memory):
            try:
                count = os.preadv(self.fd, [memory[: 1 << 30]], offset)
            except OSError as error:
                error.filename = self.path  # preadv knows no name
                raise
            if count == 0:
                self.check_size()
                self.refuse(f"it ends at byte {offset}, {len(memory)} bytes before what its header says.")
            offset += count
            memory = memory[count:]


def shortened(name: str, most: int = 80) -> str:
    """A name as repr, cut: a hostile header's can be megabytes long."""
    return repr(name) if len(name) <= most else f"{name[:most]!r}... ({len(name)} characters)"
