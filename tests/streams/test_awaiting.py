"""`await event`, `async with stream`, `Stream.query`: no thread blocked, and every way a wait can end."""

import asyncio
import contextlib
import functools
import gc
import os
import random
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from objc_messages import send

import metal_dlpack as md
import softmetal
from metal_dlpack import awaiting

pytestmark = pytest.mark.needs_softmetal
LATENCY_US = 100_000
LATENCY = LATENCY_US / 1e6


@pytest.fixture
def slow(settings):
    settings(latency_us=LATENCY_US)


def work(stream):
    """Something that takes LATENCY, and the moment after it."""
    md.zeros(64).fill(1, stream=stream)
    return stream.record()


class Bell:
    """A pipe as an event loop has it."""

    def __init__(self):
        self.reading, self.writing = ends = os.pipe()
        for end in ends:
            os.set_blocking(end, False)

    def heard(self) -> bytes:
        try:
            return os.read(self.reading, 8)
        except BlockingIOError:
            return b""

    def close(self):
        md.Event._silence(self.writing)
        os.close(self.reading)
        os.close(self.writing)


@pytest.fixture
def bell():
    with contextlib.closing(Bell()) as bell:
        yield bell


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def finish(awaitable):
    return await awaitable


def in_a_loop(test):
    """The test as the one task of an event loop."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run


# ---- await event ----


@in_a_loop
async def test_the_loop_goes_on_while_a_task_waits(slow):
    event = work(md.Stream())
    waiting = asyncio.ensure_future(event)
    ticks = 0
    while not waiting.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert event.query()
    assert await waiting is None
    assert ticks >= 5


@in_a_loop
async def test_nothing_runs_in_the_loop_until_the_moment_comes(slow):
    """No polling: the loop's selector is asked once, and returns when the bell rings."""
    loop, selections = asyncio.get_running_loop(), []
    select = loop._selector.select
    loop._selector.select = lambda timeout=None: selections.append(timeout) or select(timeout)
    await work(md.Stream())
    assert len(selections) <= 2


@pytest.mark.parametrize("moment", ["not recorded", "reached", "reached, of others"])
def test_a_moment_that_has_come_needs_no_loop(moment):
    stream = md.Stream()
    event = {"not recorded": md.Event(), "reached": stream.record()}.get(moment)
    stream.synchronize()
    event = event or md.Event.from_handle(stream.record().handle, 1)
    assert list(event.__await__()) == []


def test_without_a_loop_the_way_out_is_said(slow):
    event = work(md.Stream())
    with pytest.raises(RuntimeError, match=r"no asyncio event loop runs .*trio\.to_thread\.run_sync\(event\.wait\)"):
        next(event.__await__())
    event.wait()


def test_uvloop_awaits_as_asyncio_does(slow):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        stream = md.Stream()
        await asyncio.gather(*[finish(work(stream)) for _ in range(3)])
        async with stream:
            md.zeros(64).copy()
        assert stream.query()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_anyio_on_asyncio_awaits_and_cancels(slow):
    anyio = pytest.importorskip("anyio")

    async def main():
        event = work(md.Stream())
        with anyio.move_on_after(LATENCY / 10) as scope:
            await event
        assert scope.cancelled_caught
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(finish, event)
        assert event.query()

    anyio.run(main)


def test_trio_lets_a_thread_wait_as_the_error_says(slow):
    trio = pytest.importorskip("trio")

    async def main():
        event = work(md.Stream())
        with pytest.raises(RuntimeError, match=r"trio\.to_thread\.run_sync"):
            await event
        await trio.to_thread.run_sync(event.wait)
        assert event.query()

    trio.run(main)


def test_tasks_and_loops_await_one_event(slow):
    event = work(md.Stream())

    async def main():
        await asyncio.gather(*[finish(event) for _ in range(20)])
        return event.query()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(asyncio.run, [main() for _ in range(4)])) == [True] * 4


def test_a_thousand_events_of_ten_streams_in_any_order(settings):
    settings(latency_us=300, seed=5)
    done = []

    async def wait(number, event):
        await event
        assert event.query()
        done.append(number)

    async def main():
        streams = [md.Stream() for _ in range(10)]
        events = [work(random.choice(streams)) for _ in range(1000)]
        await asyncio.gather(*[wait(number, event) for number, event in enumerate(events)])
        assert len(done) == 1000
        waiting = awaiting.waiting_of(asyncio.get_running_loop())
        assert waiting.moments == {}

    before = descriptors()
    asyncio.run(main())
    softmetal.wait_idle()
    gc.collect()
    assert descriptors() <= before


@in_a_loop
async def test_the_moment_is_the_one_at_the_await(slow):
    """Recorded anew meanwhile: the task waits for what it asked for."""
    stream = md.Stream()
    event = work(stream)
    waiting = asyncio.ensure_future(event)
    await asyncio.sleep(0)
    for _ in range(5):
        work(stream)
    stream.record(event)
    await waiting
    assert not event.query()
    await event


@in_a_loop
async def test_an_event_that_others_signal(shared_event):
    event = md.Event.from_handle(shared_event, 7)
    waiting = asyncio.ensure_future(event)
    await asyncio.sleep(0.02)
    assert not waiting.done()
    send(shared_event, "setSignaledValue:", 7, result=None)
    await asyncio.wait_for(waiting, 5)
    assert event.query()


# ---- failures ----


@in_a_loop
async def test_a_failure_is_raised_once(settings, slow):
    stream = md.Stream()
    settings(fail="commit@1=OutOfMemory")
    event = work(stream)
    ends = await asyncio.gather(*[finish(event) for _ in range(3)], return_exceptions=True)
    (error,) = filter(None, ends)
    assert isinstance(error, md.MetalError)
    assert str(error).count("8") == 1
    assert "OutOfMemory, 8" in str(error)
    await event
    stream.synchronize()


@in_a_loop
async def test_a_failure_is_left_to_the_next_wait_by_a_task_that_was_cancelled(settings, slow):
    stream = md.Stream()
    settings(fail="commit@1=OutOfMemory")
    event = work(stream)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(event, LATENCY / 10)
    with pytest.raises(md.MetalError, match="OutOfMemory"):
        await event


# ---- cancelled, closed, forked, at the end ----


@in_a_loop
async def test_cancelled_tasks_leave_the_others_waiting(slow):
    event = work(md.Stream())
    tasks = [asyncio.ensure_future(event) for _ in range(100)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, type(None)] * 50
    assert awaiting.waiting_of(asyncio.get_running_loop()).moments == {}


@in_a_loop
async def test_a_task_that_is_cancelled_as_the_bell_rings_is_cancelled_or_done(settings):
    stream = md.Stream()
    for turn in range(200):
        settings(latency_us=turn * 10)
        task = asyncio.ensure_future(work(stream))
        await asyncio.sleep(turn * 10e-6)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await work(stream)


def test_a_loop_may_be_closed_while_work_is_in_flight(shared_event):
    before = descriptors()
    loop = asyncio.new_event_loop()
    stream = md.Stream()
    stream.wait(md.Event.from_handle(shared_event, 1))
    event = work(stream)
    task = loop.create_task(finish(event))
    loop.run_until_complete(asyncio.sleep(0))
    number = awaiting.waiting_of(loop).bell
    with warnings.catch_warnings():
        loop.close()
        loop.call_exception_handler = lambda _context: None  # the task was destroyed, and is pending
        del task, loop
        gc.collect()
    assert not event.query()
    assert descriptors() <= before
    assert len(awaiting._waiting) == 0
    with contextlib.closing(Bell()) as bell:
        os.dup2(bell.writing, number)
        send(shared_event, "setSignaledValue:", 1, result=None)
        event.wait()
        softmetal.wait_idle()
        os.close(number)
        assert bell.heard() == b""


def test_a_loop_that_is_run_again_hears_the_bell(slow):
    loop = asyncio.new_event_loop()
    task = loop.create_task(finish(work(md.Stream())))
    loop.run_until_complete(asyncio.sleep(0))
    time.sleep(1.5 * LATENCY)
    loop.run_until_complete(asyncio.wait_for(task, 1))
    loop.close()


# ---- async with stream ----


@in_a_loop
async def test_the_block_ends_when_the_work_is_done(slow):
    stream, array = md.Stream(), md.zeros(64)
    default = md.current_stream()
    async with stream as entered:
        assert md.current_stream() is stream is entered
        copy = array.copy()
        assert not stream.query()
    assert md.current_stream() is default
    assert stream.query()
    assert copy.tolist() == array.tolist()


@in_a_loop
async def test_a_failure_comes_out_of_the_block(settings):
    stream, array = md.Stream(), md.zeros(64)
    settings(fail="commit@1=OutOfMemory")
    with pytest.raises(md.MetalError, match="OutOfMemory"):
        async with stream:
            array.copy()
    assert md.current_stream() is not stream


def test_a_block_that_raises_does_not_wait(shared_event):
    async def main():
        stream = md.Stream()
        stream.wait(md.Event.from_handle(shared_event, 1))
        with pytest.raises(KeyError):
            async with stream:
                work(stream)
                raise KeyError
        assert not stream.query()
        assert md.current_stream() is not stream
        send(shared_event, "setSignaledValue:", 1, result=None)
        stream.synchronize()

    asyncio.run(asyncio.wait_for(main(), 10))


@in_a_loop
async def test_blocks_are_left_in_order():
    one, two = md.Stream(), md.Stream()
    await one.__aenter__()
    await two.__aenter__()
    with pytest.raises(RuntimeError, match="not the stream that this thread"):
        await one.__aexit__(None, None, None)
    await two.__aexit__(None, None, None)
    await one.__aexit__(None, None, None)


# ---- Stream.query ----


def test_a_stream_says_whether_it_is_done(settings, slow):
    stream, other = md.Stream(), md.Stream()
    assert stream.query()
    event = work(stream)
    assert not stream.query()
    assert other.query()
    event.wait()
    assert stream.query()
    settings(fail="commit@1=OutOfMemory")
    work(stream)
    softmetal.wait_idle()
    assert stream.query(), "a failure is no matter of query"
    with pytest.raises(md.MetalError):
        stream.synchronize()


# ---- the bell ----


def test_an_event_of_a_stream_writes_a_byte_when_it_is_reached(slow, bell):
    stream = md.Stream()
    event = work(stream)
    for wrong in (md.Event(), md.Event.from_handle(event.handle, 1 << 40)):
        with pytest.raises(TypeError, match=r"Event\._ring: <.*> is not of a stream"):
            wrong._ring(bell.writing)
    for wrong in (-1, None):
        with pytest.raises((TypeError, ValueError)):
            event._ring(wrong)
        with pytest.raises((TypeError, ValueError)):
            md.Event._silence(wrong)
    assert event._ring(bell.writing) and event._ring(bell.writing)
    assert bell.heard() == b""
    event.wait()
    softmetal.wait_idle()
    assert bell.heard() == bytes(2)
    assert not event._ring(bell.writing)


def test_work_of_other_streams_writes_nothing(shared_event, bell):
    one, other = md.Stream(), md.Stream()
    other.wait(md.Event.from_handle(shared_event, 1))
    first, second = other.record(), other.record()
    for _ in range(5):
        work(one)
    assert first._ring(bell.writing) and second._ring(bell.writing)
    one.synchronize()
    assert bell.heard() == b""
    send(shared_event, "setSignaledValue:", 1, result=None)
    second.wait()
    softmetal.wait_idle()
    assert bell.heard() == bytes(2)


def test_a_descriptor_that_is_silenced_hears_nothing_more(slow, bell):
    event = work(md.Stream())
    with contextlib.closing(Bell()) as other:
        assert event._ring(bell.writing) and event._ring(other.writing) and event._ring(bell.writing)
        md.Event._silence(bell.writing)
        event.wait()
        softmetal.wait_idle()
        assert (bell.heard(), other.heard()) == (b"", bytes(1))


def test_without_descriptors_no_task_waits(slow):
    import resource

    async def main():
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        kept = os.open(os.devnull, os.O_RDONLY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (kept, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                await event
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            os.close(kept)
        await event

    event = work(md.Stream())
    asyncio.run(main())
