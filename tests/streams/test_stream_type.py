"""Streams and events: what they are, who waits, and that the CPU does not where it need not."""

import _thread
import contextvars
import math
import signal
import threading

import numpy as np
import pytest
from children import output_of, run_child
from eventually import PATIENCE, until
from held_work import held
from objc_messages import gpu_fill, pool, send
from own_threads import in_threads

import metal_dlpack as md
import softmetal

pytestmark = pytest.mark.needs_softmetal


# ---- streams ----


def test_a_stream_is_a_queue_with_a_name_and_a_device():
    stream = md.Stream(label="decoder")
    assert stream.label == "decoder"
    assert repr(stream) == f"<metal_dlpack.Stream 'decoder' {stream.handle:#x} on metal:0>"
    unnamed = md.Stream()
    assert unnamed.label is None
    assert repr(unnamed) == f"<metal_dlpack.Stream {unnamed.handle:#x} on metal:0>"
    assert stream.device is md.default_device()
    with pool():
        assert send(stream.handle, "device") == md.default_device().handle


def test_a_queue_of_others_becomes_a_stream_and_two_names_of_a_queue_are_equal():
    class PyObjC:
        """An object of PyObjC says its address so."""

        def __c_void_p__(self):
            import ctypes

            return ctypes.c_void_p(queue)

    with pool():
        queue = send(md.default_device().handle, "newCommandQueue")
    one, two, three = md.Stream.from_handle(queue), md.Stream.from_handle(queue), md.Stream.from_handle(PyObjC())
    assert one == two == three != md.Stream()
    assert len({one, two, three}) == 1
    assert one.handle == queue
    one.synchronize()
    del one, two, three
    send(queue, "release", result=None)
    assert softmetal.live_objects("MTLCommandQueue") >= 1


def test_a_device_has_one_default_stream():
    stream = md.default_device().default_stream
    assert stream is md.default_device().default_stream
    assert md.current_stream() is stream
    assert md.current_stream("metal:0") is stream
    assert md.current_stream(md.default_device()) is stream


def test_with_makes_a_stream_current_for_its_thread_only():
    one, two = md.Stream(), md.Stream()
    with one as entered:
        assert entered is one and md.current_stream() is one
        with two:
            assert md.current_stream() is two
            (seen,) = in_threads(1, lambda _: md.current_stream())
            with one:
                assert md.current_stream() is one
        assert md.current_stream() is one
    assert md.current_stream() is seen is md.default_device().default_stream


def test_leaving_a_stream_that_was_not_entered_last_is_refused():
    one, two = md.Stream(), md.Stream()
    with pytest.raises(RuntimeError, match="entered last"):
        one.__exit__(None, None, None)
    with one:
        two.__enter__()
        with pytest.raises(RuntimeError, match="entered last"):
            one.__exit__(None, None, None)
        two.__exit__(None, None, None)
    with pytest.raises(ZeroDivisionError), one:
        raise ZeroDivisionError
    assert md.current_stream() is md.default_device().default_stream


def test_each_asyncio_task_has_a_current_stream_of_its_own():
    """Two tasks of one thread are in their blocks at the same time, and leave them in another order."""
    import asyncio

    one, two = md.Stream(), md.Stream()
    default = md.current_stream()

    async def work(stream, entered, goes_on):
        with stream:
            entered.set()
            await goes_on.wait()
            assert md.current_stream() is stream
        assert md.current_stream() is default

    async def main():
        events = [asyncio.Event() for _ in range(4)]
        first = asyncio.create_task(work(one, events[0], events[1]))
        await events[0].wait()
        second = asyncio.create_task(work(two, events[2], events[3]))
        await events[2].wait()
        assert md.current_stream() is default
        events[1].set()
        await first
        events[3].set()
        await second

        with one:
            assert await asyncio.create_task(current()) is one, "a task begins with its maker's"
            assert await asyncio.to_thread(md.current_stream) is one
            async for stream in steps(two):
                assert stream is two

    async def current():
        return md.current_stream()

    async def steps(stream):
        with stream:
            await asyncio.sleep(0)
            current = md.current_stream()
        yield current

    asyncio.run(main())
    assert md.current_stream() is default


def test_a_copied_context_is_in_its_makers_block_until_it_leaves_that_itself():
    stream, default = md.Stream(), md.default_device().default_stream
    copies = []
    with stream:
        copies += [contextvars.copy_context() for _ in range(3)]
    assert md.current_stream() is default
    assert [one.run(md.current_stream) for one in copies] == [stream] * 3
    for one in copies[:2]:  # left three times, entered once
        one.run(stream.__exit__, None, None, None)
        assert one.run(md.current_stream) is default
        with pytest.raises(RuntimeError, match="entered last"):
            one.run(stream.__exit__, None, None, None)
    with stream:
        assert md.current_stream() is stream
    assert copies[2].run(md.current_stream) is stream
    del copies, one
    assert md.current_stream() is default


def test_a_generator_that_is_left_within_its_block_is_left_in_order():
    stream = md.Stream()

    def steps():
        with stream:
            yield md.current_stream()

    generator = steps()
    assert next(generator) is stream
    generator.close()
    assert md.current_stream() is md.default_device().default_stream


# ---- events ----


def test_an_event_that_was_never_recorded_is_reached():
    event = md.Event()
    assert event.query() and event.wait() and event.wait(0)
    assert (event.handle, event.value) == (0, 0)
    assert "not recorded" in repr(event)
    md.Stream().wait(event)


def test_an_event_is_reached_when_the_work_before_it_is_done():
    stream = md.Stream()
    with held(stream):
        event = stream.record()
        assert not event.query()
        assert event.wait(0) is False
        assert event.wait(0.005) is False
    assert event.wait(PATIENCE) is True
    assert event.query() and event.wait(0)


def test_an_event_can_be_recorded_again(slow):
    stream = md.Stream()
    event = stream.record()
    assert stream.record(event) is event
    assert event.value == 2
    assert "at value 2>" in repr(event)
    assert event.wait() and event.query()
    assert stream.record().value == 3
    array = md.zeros(64)
    with held(stream):
        array.fill(1, stream=stream)
        stream.wait(array)  # its own work comes first anyway
        assert stream.record().value == 6


def test_an_event_of_others_is_waited_for(shared_event):
    event = md.Event.from_handle(shared_event, 7)
    assert (event.handle, event.value) == (shared_event, 7)
    assert not event.query() and not event.wait(0.01)
    timer = threading.Timer(0.05, lambda: send(shared_event, "setSignaledValue:", 7, result=None))
    timer.start()
    assert event.wait(PATIENCE) and event.query()
    timer.join()
    assert md.Event.from_handle(shared_event, 2**64 - 1).value == 2**64 - 1


def test_long_timeouts_wait_until_it_is_reached(slow):
    for timeout in (None, math.inf, 1e308, 2**70, 1e9, 10, True):
        event = md.Stream().record()
        assert event.wait(timeout) is True
        assert md.Event.from_handle(event.handle, event.value).wait(timeout) is True


def test_short_timeouts_end_a_wait_for_an_event_of_others(shared_event):
    event = md.Event.from_handle(shared_event, 1)
    for timeout in (0, -0.0, 1e-320, 1e-9):
        assert event.wait(timeout) is False


def test_work_that_ends_elsewhere_does_not_end_a_wait(shared_event):
    """Each end wakes all who wait: a wait whose time ran out at each would be over long before its event."""
    gated, busy = md.Stream(), md.Stream()
    gated.wait(md.Event.from_handle(shared_event, 1))
    event = gated.record()

    def work():
        for _ in range(200):
            busy.record().wait()
        send(shared_event, "setSignaledValue:", 1, result=None)

    worker = threading.Thread(target=work)
    worker.start()
    assert event.wait(PATIENCE) is True
    worker.join()


# ---- who waits ----


def test_a_queue_waits_for_another_on_the_gpu():
    one, two = md.Stream(), md.Stream()
    with held(one):
        first = one.record()
        two.wait(first)
        second = two.record()
        assert not second.wait(0.05), "the second queue ran ahead of what it waits for"
    assert second.wait(PATIENCE) and first.wait(PATIENCE)


@pytest.mark.parametrize("what", ["stream", "foreign"])
def test_a_queue_waits_for_whatever_has_metal_stream(what, settings, shared_event):
    """An event that nobody signals holds the queue up until somebody does."""
    waiting = md.Stream()
    shut = md.Event.from_handle(shared_event, 1)
    references = send(shared_event, "retainCount")
    working = md.Stream()
    working.wait(shut)

    class Foreign:
        def __metal_stream__(self):
            return (1, working.handle, shared_event, 1)

    waiting.wait(working if what == "stream" else Foreign())
    event = waiting.record()
    assert not event.wait(0.03)
    send(shared_event, "setSignaledValue:", 1, result=None)
    assert event.wait(PATIENCE)
    assert shut.wait(PATIENCE)
    until(lambda: send(shared_event, "retainCount") == references)


def test_an_answer_without_an_event_is_nothing_to_wait_for():
    class Foreign:
        def __metal_stream__(self):
            return (1, 0, 0, 7)

    md.Stream().wait(Foreign())


def test_synchronize_waits_for_what_others_committed_to_the_queue(settings, foreign_queue):
    buffer = md.Buffer(64)
    stream = md.Stream.from_handle(foreign_queue)
    settings(latency_us=20000)
    gpu_fill(buffer.handle, 5, 64, queue=foreign_queue, waits=False)
    assert buffer.array(64, "uint8").host is not None
    stream.synchronize()
    assert bytes(buffer) == b"\5" * 64


def test_a_device_waits_for_all_its_streams(slow):
    events = [md.Stream().record() for _ in range(3)]
    md.default_device().synchronize()
    assert all(event.query() for event in events)


@pytest.mark.parametrize("wait", ["event", "stream", "foreign", "item", "numpy", "dlpack"])
def test_ctrl_c_ends_a_wait(wait, shared_event):
    """NumPy forgets what the buffer protocol raises: it is raised again."""
    shut = md.Event.from_handle(shared_event, 1)
    stream = md.Stream()
    stream.wait(shut)
    array = md.zeros(4)
    array.fill(1, stream=stream)
    waits = {
        "event": stream.record().wait,
        "stream": stream.synchronize,
        "foreign": shut.wait,
        "item": array[0].item,
        "numpy": lambda: np.asarray(array),
        "dlpack": array.__dlpack__,
    }
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        waits[wait]()
    signal.signal(signal.SIGINT, previous)
    timer.join()
    send(shared_event, "setSignaledValue:", 1, result=None)
    stream.synchronize()
    assert np.asarray(array).tolist() == [1] * 4


# ---- failures ----


@pytest.mark.parametrize("wait", ["event", "stream", "device"])
def test_a_failure_is_told_once_with_metals_words_and_the_stream_stays_usable(wait, settings):
    stream = md.Stream()
    settings(fail="commit@1=8")
    event = stream.record()
    until(event.query)
    settings(fail=None)
    waits = {"event": event.wait, "stream": stream.synchronize, "device": md.default_device().synchronize}
    with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
        waits[wait]()
    waits[wait]()
    stream.synchronize()
    assert stream.record().wait(PATIENCE)


def test_those_that_wait_for_failed_work_go_on(settings):
    one, two = md.Stream(), md.Stream()
    settings(fail="commit@1=3")
    event = one.record()
    two.wait(event)
    assert two.record().wait(PATIENCE)
    settings(fail=None)
    with pytest.raises(md.MetalError, match="PageFault, 3"):
        one.synchronize()


@pytest.mark.parametrize("what", ["queue", "event"])
def test_no_queue_or_event_is_an_error(what, settings):
    settings(fail=f"{what}@1")
    with pytest.raises(md.MetalError, match="Stream"):
        md.Stream()


def test_no_command_buffer_is_an_error(settings):
    stream = md.Stream()
    settings(fail="commandBuffer@1+")
    for call in (stream.record, stream.synchronize, lambda: stream.wait(md.Stream())):
        with pytest.raises(md.MetalError, match="no command buffer"):
            call()
    settings(fail=None)
    stream.synchronize()


@pytest.mark.parametrize("scope", ["queue", "commands"])
@pytest.mark.parametrize("seed", [0, 5, "last"])
def test_a_piece_that_waits_is_overtaken_by_none_of_its_stream(settings, scope, seed):
    """Whatever a wait on the GPU holds back: the stream's event must not tell of work that has not begun."""
    slow, stream = md.Stream(), md.Stream()
    source, seen, other = md.zeros(64, "uint8"), md.zeros(64, "uint8"), md.zeros(1 << 24, "uint8")
    memory, memory_of_other = np.asarray(seen), np.asarray(other)
    settings(wait_scope=scope, seed=seed, latency_us=20_000)
    for value in range(1, 6):
        source.fill(value, stream=slow)
    seen.copy_from(source, stream=stream)  # waits for the other stream
    other.fill(7, stream=stream)  # a long piece, behind one that waits
    stream.record().wait()
    assert memory_of_other[-1] == 7
    assert memory.tolist() == [5] * 64


# ---- forks and interpreters ----

FORKED = """
import asyncio
import os

import metal_dlpack as md
import softmetal

stream, array = md.Stream(label="named"), md.full(64, 3.0)
softmetal.configure(latency_us=300000)
array.fill(7, stream=stream)
event = stream.record()


async def finish():
    await event


if os.fork() == 0:
    wrong = 0
    calls = [event.wait, stream.record, stream.synchronize, lambda: array.fill(1, stream=stream)]
    calls += [array.__metal_stream__, md.default_device().synchronize, md.current_stream, md.Stream]
    calls += [lambda: asyncio.run(asyncio.wait_for(finish(), 20))]
    for call in calls:
        try:
            call()
            wrong += 1
        except md.MetalError as error:
            wrong += "forked child" not in str(error)
    assert not event.query()
    assert (stream.label, repr(stream)) == (None, f"<metal_dlpack.Stream {stream.handle:#x} on metal:0>")
    array.tolist()
    del array, stream, event
    os._exit(wrong)
_, status = os.wait()
assert os.waitstatus_to_exitcode(status) == 0, status
asyncio.run(finish())
assert array.tolist() == [7] * 64
"""


@pytest.mark.needs_no_sanitizer  # work is in flight at fork(): see forking.py
def test_a_forked_child_does_not_wait_for_ever():
    child = run_child(FORKED)
    assert child.returncode == 0, child.stderr


def test_a_stream_belongs_to_all_interpreters_and_ends_with_none():
    """At its end there may be work in flight, entered streams, tasks that wait and failures that nobody heard of."""
    code = """
import asyncio
import metal_dlpack as md
import softmetal
softmetal.configure(latency_us=300_000)
stream = md.Stream()
stream.__enter__()
a = md.zeros(64)
a.fill(1)
loop = asyncio.new_event_loop()
event = stream.record()

async def main():
    await event

task = loop.create_task(main())
loop.run_until_complete(asyncio.sleep(0.01))
task._log_destroy_pending = False
softmetal.configure(fail="commit@1=8")
a.fill(2)
"""
    output_of(code)
