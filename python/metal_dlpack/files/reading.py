"""Runs of bytes read by several threads; the thread that asked waits, tells how far they are, and hears Ctrl-C."""

from __future__ import annotations

import os
import time
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeAlias

from metal_dlpack import _core

from .plan import Run
from .progress import INTERVAL

#: What a thread reads at once, in bytes, and what it still reads when it should stop.
PART = 8 << 20
#: At least four: of a file that is not in memory, each waits for the disk.
THREADS = max(4, min(8, os.cpu_count() or 1))
#: Seconds after which a wait for the threads' end looks again: Ctrl-C can take away the message that they sent.
LOOK = 0.05

#: Bytes of a run, from here to there.
Piece: TypeAlias = tuple[Run, int, int]


class Reading:
    """Runs that are read in parts.  Nothing reads once the ``with`` is left.

    The threads are plain ones: threading.Thread waits in Python for its start, and Ctrl-C there can break its locks.
    Here Ctrl-C finds a SimpleQueue, which is C, and what only the threads write.
    """

    def __init__(self, runs: list[Run]) -> None:
        self.total = sum(run.nbytes for run in runs)
        self._parts = deque(parts_of(runs))
        self._news: SimpleQueue[int | BaseException] = SimpleQueue()
        self._started = 0
        self._ended: deque[None] = deque()
        # Devices whose GPU copies to where the CPU cannot write.
        self._private = {run.target.device for run in runs if run.target.storage == "private"}

    def follow(self, tell: Callable[[int], None]) -> None:
        """Read all; `tell` hears how many bytes are done, in this thread."""
        self._start()
        done = 0
        while done < self.total:
            news = self._news.get()
            if isinstance(news, BaseException):
                try:
                    raise news
                finally:
                    del news  # its traceback has this frame, which would have it in turn
            if news:
                done += news
                tell(done)
        for device in self._private:
            device.synchronize()  # the GPU's copies are part of it, and so are their failures

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()

    def _start(self) -> None:
        for _ in range(min(THREADS, len(self._parts))):
            self._started += 1  # before: Ctrl-C is heard when the call returns, and the thread is there
            try:
                start_new_thread(self._work, ())
            except (RuntimeError, MemoryError):  # there is no memory for its stack
                self._started -= 1
                if self._started == 0:
                    self._work()
                return

    def _wait(self) -> None:
        """Until the threads have ended, also if Ctrl-C comes again."""
        try:
            self._parts.clear()
            while len(self._ended) < self._started:
                with suppress(Empty):
                    self._news.get(timeout=LOOK)
        except BaseException:
            self._wait()
            raise

    # ---- in the threads ----

    def _work(self) -> None:
        done, told = 0, time.monotonic()
        try:
            stage = Stage()
            while self._parts:
                try:
                    part = self._parts.popleft()
                except IndexError:  # another thread had the last one
                    break
                for run, first, end in part:
                    if run.is_direct:
                        run.source.read_into(run.offset + first, memoryview(run.target)[first:end])
                    else:
                        stage.read(run, first, end)
                done += sum(end - first for _, first, end in part)
                if time.monotonic() - told >= INTERVAL:  # not each time: who is woken takes a core from the readers
                    self._news.put(done)
                    done, told = 0, time.monotonic()
        except BaseException as error:
            self._parts.clear()
            self._news.put(error.with_traceback(None))  # which has this frame, and that the queue
        finally:
            if done:
                self._news.put(done)
            self._ended.append(None)
            self._news.put(0)


def parts_of(runs: list[Run]) -> Iterator[list[Piece]]:
    """What a thread does before it looks up: a piece of a long run, or several short runs."""
    part: list[Piece] = []
    room = PART
    for run in runs:
        for first in range(0, run.nbytes, PART):
            end = min(first + PART, run.nbytes)
            if end - first > room:
                yield part
                part, room = [], PART
            part.append((run, first, end))
            room -= end - first
    if part:
        yield part


class Stage:
    """Where bytes lie before they are converted, or copied to where the CPU cannot write.  Each thread has one."""

    def __init__(self) -> None:
        self._buffer: _core.Buffer | None = None

    def read(self, run: Run, first: int, end: int) -> None:
        if self._buffer is None:
            self._buffer = _core.Buffer(PART, device=run.target.device, storage="shared")
        # The memoryview waits for a copy that still reads the buffer.
        run.source.read_into(run.offset + first, memoryview(self._buffer)[: end - first])
        size = run.dtype.itemsize
        run.target[first // size : end // size] = self._buffer.array((end - first) // size, run.dtype)
