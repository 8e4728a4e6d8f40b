"""The bytes of a file as Metal buffers: a map of the whole file, or a copy of a small one.

Owns the map and the buffers over it until close(); Arrays keep what they need on their own.
"""

from __future__ import annotations

import mmap
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress

from metal_dlpack import _core

from .source import Source

#: Files of fewer bytes are read, larger ones mapped.  Reading clears and copies, mapping takes a few calls and faults:
#: the two cross here, as benchmarks/bench_files.py measures.
READ_BELOW = 16 * 1024

#: Pages that the GPU uses make a fork() slow on a Mac, as townsendmerino/goinfer measured
#: (docs/measurements/m26-alias-fork-collapse-2026-09-24.md), unless the child does not get them.
LEAVES_CHILDREN_NOTHING = sys.platform == "darwin"

ACCESS = {"r": mmap.ACCESS_READ, "c": mmap.ACCESS_COPY, "r+": mmap.ACCESS_WRITE}


def plan_spans(extents: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """As few spans of at most `limit` bytes as hold each extent whole; an extent above the limit has none.

    A span begins on a page.  Spans can share a page, never a tensor.
    """
    spans: list[tuple[int, int]] = []
    for first, end in sorted(extents):
        start = first - first % mmap.PAGESIZE
        if end - start > limit:
            continue
        if spans and end - spans[-1][0] <= limit:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


class Memory:
    """Buffers over the bytes of one file, made when a tensor is first asked for.  Used by one thread at a time."""

    def __init__(
        self,
        source: Source,
        mode: str,
        device: _core.Device,
        extents: Callable[[], list[tuple[int, int]]],
        read_below: int = READ_BELOW,
    ):
        self._source = source
        self._mode = mode
        self.device = device
        self._extents = extents
        self._is_read = mode != "r+" and source.size < read_below
        self._bytes: memoryview | None = None
        self._spans: list[tuple[int, int]] = []
        self._buffers: dict[int, _core.Buffer | None] = {}
        self._is_closed = False
        self._is_refused = False  # Metal did not take pages of the map

    @property
    def is_mapped(self) -> bool:
        """False for a file small enough to be read, and where Metal does not take the map's pages: maps the file."""
        if not self._is_read and not self._is_closed:
            self._load()
            with suppress(_core.CopyRequiredError):
                self._buffer(0)
        return not self._is_read and not self._is_refused

    def buffers(self) -> Iterator[_core.Buffer]:
        """Yield the Buffers over the file's pages, or one of the file's length if it was read."""
        self._load()
        for index in range(len(self._spans)):
            buffer = self._buffer(index)
            if buffer is not None:
                yield buffer

    def locate(self, first: int, end: int) -> tuple[_core.Buffer, int] | None:
        """The buffer over these bytes of the file and the place of `first` in it; None where only copy() can help."""
        self._load()
        index = bisect_right(self._spans, first, key=lambda span: span[0]) - 1
        while index >= 0 and self._spans[index][1] < end:
            index -= 1  # spans overlap by less than a page: the one before can hold it
        if index < 0:
            return None
        buffer = self._buffer(index)
        return None if buffer is None else (buffer, first - self._spans[index][0])

    def copy(self, first: int, end: int) -> _core.Buffer:
        """These bytes in a buffer of their own."""
        self._load()
        assert self._bytes is not None
        buffer = _core.Buffer(end - first, device=self.device, storage="shared")
        buffer.copy_from(self._bytes[first:end])
        return buffer

    def close(self) -> None:
        self._is_closed = True
        self._bytes = None
        self._spans = []
        self._buffers.clear()

    def _buffer(self, index: int) -> _core.Buffer | None:
        if index not in self._buffers and index < len(self._spans):
            self._buffers[index] = self._wrap(*self._spans[index])
        return self._buffers.get(index)

    def _load(self) -> None:
        if self._bytes is not None:
            return
        self._source.check_size()
        if self._is_read:
            buffer = _core.Buffer(self._source.size, device=self.device, storage="shared")
            with memoryview(buffer) as memory:
                self._source.read_into(0, memory)
            self._buffers = {0: buffer}
            self._spans = [(0, self._source.size)]
            self._bytes = memoryview(buffer)
        else:
            page = mmap.PAGESIZE
            limit = self.device.max_buffer_length // page * page
            extents = [(0, self._source.size)] if self._source.size <= limit else self._extents()
            self._spans = plan_spans(extents, limit)
            try:
                pages = mmap.mmap(self._source.fd, self._source.size, access=ACCESS[self._mode])
            except OSError as error:
                sentence = f"open: {self._source.size} bytes cannot be mapped ({error.strerror})"
                raise OSError(error.errno, sentence, self._source.path) from None
            if LEAVES_CHILDREN_NOTHING:
                _core._keep_from_children(pages)
            self._bytes = memoryview(pages)

    def _wrap(self, start: int, end: int) -> _core.Buffer | None:
        """A buffer over whole pages of the map; None where Metal does not take them."""
        assert self._bytes is not None
        try:
            return _core.asarray(self._bytes[start:end], device=self.device, copy=False).buffer
        except _core.CopyRequiredError as error:
            self._is_refused = True
            if self._mode == "r+":  # writes to a copy would not reach the file
                raise _core.CopyRequiredError(
                    f"open: mode 'r+' writes through the file's pages, and {error} Modes 'r' and 'c' copy the tensors."
                ) from None
            return None
