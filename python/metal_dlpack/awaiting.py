"""`await event` and `async with stream`, for asyncio.

An event loop has one pipe, the bell.  The Metal thread that finishes work writes to it, without the
GIL; the loop wakes, and looks which of the awaited moments have come.  That thread closes nothing: a loop
may still name a descriptor of a pipe that nobody waits for.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Generator
from contextlib import suppress

from . import _core

Waits = Generator["asyncio.Future[None]", None, None]


class Waiting:
    """The moments that the tasks of one event loop wait for.  The loop keeps it, until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.heard, self.bell = ends = os.pipe()
        weakref.finalize(self, hang_up, *ends).atexit = False  # a loop may run later than that
        self.moments: dict[asyncio.Future[None], _core.Event] = {}
        for end in ends:
            os.set_blocking(end, False)
        loop.add_reader(self.heard, self.look)

    def look(self) -> None:
        with suppress(BlockingIOError):  # a signal that was heard already
            os.read(self.heard, 1 << 16)
        for future, moment in self.moments.items():
            if not future.done() and moment.query():
                future.set_result(None)


def hang_up(heard: int, bell: int) -> None:
    _core.Event._silence(bell)
    os.close(bell)
    os.close(heard)


_waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Waiting]] = weakref.WeakKeyDictionary()


def waiting_of(loop: asyncio.AbstractEventLoop) -> Waiting:
    known = _waiting.get(loop)
    waiting = None if known is None else known()
    if waiting is None:
        waiting = Waiting(loop)
        _waiting[loop] = weakref.ref(waiting)
    return waiting


def running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "await Event: no asyncio event loop runs in this thread; under another framework let a thread wait, "
            "as with `await trio.to_thread.run_sync(event.wait)`."
        ) from None


def wait_for(moment: _core.Event) -> Waits:
    """Wait for a moment that a stream signals; raise as Event.wait does."""
    if not moment.query():
        loop = running_loop()
        waiting = waiting_of(loop)
        future = loop.create_future()
        waiting.moments[future] = moment
        try:
            if moment._ring(waiting.bell):
                yield from future
        finally:
            del waiting.moments[future]
    moment.wait(0)


def wait_for_foreign(moment: _core.Event) -> Waits:
    """Wait for a moment that others signal: a queue of ours waits for it, on the GPU."""
    if not moment.query():
        running_loop()
        stream = _core.Stream()
        stream.wait(moment)
        yield from wait_for(stream.record())


async def enter(stream: _core.Stream) -> _core.Stream:
    return stream.__enter__()


async def leave(stream: _core.Stream, error: type[BaseException] | None) -> None:
    """After a block that has been left: wait for the work, unless the block raised."""
    if error is None:
        await stream.record()
