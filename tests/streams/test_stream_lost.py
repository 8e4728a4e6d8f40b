"""A failure of GPU work is told by the next wait that has to do with it, once; and by sys.unraisablehook where none can come."""

import gc
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from children import run_child
from eventually import until
from objc_messages import SHARED, foreign_buffer, send

import metal_dlpack as md

pytestmark = pytest.mark.needs_softmetal


@pytest.fixture
def unraisable(monkeypatch):
    """What went to sys.unraisablehook: the exceptions, and the objects named with them."""
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: seen.append((what.exc_value, what.object)))
    return seen


@pytest.fixture
def failing(settings):
    """Every command buffer that is committed within `with failing(code):` fails."""

    class Failing:
        def __init__(self, code):
            self.code = code

        def __enter__(self):
            settings(fail=f"commit@1+={self.code}")

        def __exit__(self, *_):
            settings(fail=None)

    return Failing


def settle(array):
    """All work on the array is over and cleaned up after, and nobody has asked how it went."""
    until(lambda: array.__metal_stream__()[3] == 0)


# ---- told by a wait ----

WAITS = {
    "item": lambda array: array[0].item(),
    "float": lambda array: float(array[0]),
    "tolist": lambda array: array.tolist(),
    "numpy": lambda array: np.asarray(array),
    "numpy's copy": lambda array: np.array(array),
    "numpy by DLPack": lambda array: np.from_dlpack(array, device="cpu"),
    "memoryview": lambda array: memoryview(array),
    "array interface": lambda array: array.__array_interface__,
    "to_numpy": md.Array.to_numpy,
    "set": lambda array: array.__setitem__(0, 1),
    "copy": lambda array: array.copy().tolist(),
    "asarray": lambda array: md.asarray(array, copy=True),
    "host": lambda array: array.host.__dlpack__(),
    "buffer": lambda array: bytes(array.buffer),
    "export": lambda array: array.__dlpack__(),
    "cpu export": lambda array: array.__dlpack__(dl_device=(1, 0)),
    "import": md.from_dlpack,
    "to": lambda array: array.to(np),
}


@pytest.mark.rule("export-cpu-waits")
@pytest.mark.parametrize("is_settled", [False, True])
def test_every_way_to_the_bytes_waits_and_tells_of_a_failure_once(failing, settings, unraisable, subtests, is_settled):
    """Without a wait there would be no failure yet, where the work is still in flight."""
    for (name, wait), is_kept in itertools.product(WAITS.items(), [True, False]):
        with subtests.test(name, stream_is_kept=is_kept):
            array, stream = md.zeros(64), md.Stream()
            settings(latency_us=0 if is_settled else 20000)
            with failing(8):
                array.fill(1, stream=stream)
                if is_settled:
                    settle(array)
            if not is_kept:
                del stream
            with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
                wait(array)
            wait(array)
            gc.collect()
            assert unraisable == []


def test_a_buffer_that_is_wrapped_twice_tells_of_a_failure_after_one_of_them_has_gone(failing, settings, unraisable):
    with foreign_buffer(256, SHARED) as handle:
        array, stream = md.Buffer.from_handle(handle).array(64, "float32"), md.Stream()
        with failing(8):
            settings(latency_us=20000)
            array.fill(1, stream=stream)
            other = md.Buffer.from_handle(handle)
            del other  # while the work is in flight
            settings(latency_us=None)
            with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
                array.tolist()
        array.tolist()
        del array, stream
        gc.collect()
    assert unraisable == []


def test_a_failure_that_a_stream_told_is_not_told_by_the_buffer(failing, unraisable):
    array, stream = md.zeros(64), md.Stream()
    with failing(3):
        array.fill(1, stream=stream)
        with pytest.raises(md.MetalError, match="PageFault, 3"):
            stream.synchronize()
    array.tolist()
    del array, stream
    assert unraisable == []


def test_failures_of_two_streams_on_one_buffer_are_told_one_after_the_other(failing):
    one, two = md.Stream(), md.Stream()
    array = md.zeros(64)
    with failing(3):
        array.fill(1, stream=one)
        settle(array)
    with failing(8):
        array.fill(2, stream=two)
        settle(array)
    with pytest.raises(md.MetalError, match="PageFault, 3"):
        array.tolist()
    array.tolist()
    with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
        two.synchronize()
    array.tolist()


def test_a_wait_that_is_interrupted_leaves_the_failure_for_the_next(failing, shared_event):
    """The failure of one stream, and work of another that holds the wait up until a signal comes."""
    import _thread
    import signal
    import threading

    array, other = md.zeros(64), md.Stream()
    with failing(8):
        array.fill(1, stream=md.Stream())
        settle(array)
    other.wait(md.Event.from_handle(shared_event, 1))
    array.fill(2, stream=other)
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        array.tolist()
    signal.signal(signal.SIGINT, previous)
    timer.join()
    send(shared_event, "setSignaledValue:", 1, result=None)
    with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
        array.tolist()
    assert array.tolist() == [2] * 64


def test_a_device_that_is_waited_for_tells_of_each_stream_in_turn(failing):
    one, two = md.Stream(), md.Stream()
    with failing(8):
        events = [one.record(), two.record()]
        until(lambda: all(event.query() for event in events))
    for _ in range(2):
        with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
            md.default_device().synchronize()
    md.default_device().synchronize()


def test_a_device_that_is_waited_for_has_nothing_in_flight_whatever_fails(failing, settings):
    for which in range(2):  # it is not said in which order they are waited for
        streams = [md.Stream(), md.Stream()]
        with failing(8):
            failed = streams[which].record()
            until(failed.query)
        settings(latency_us=30000)
        events = [streams[1 - which].record() for _ in range(5)]
        with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
            md.default_device().synchronize()
        assert all(event.query() for event in events)
        settings(latency_us=None)


# ---- told by nobody ----


def drop_stream():
    md.Stream().record()


def drop_stream_and_array():
    md.zeros(64).fill(1, stream=md.Stream())


def drop_array_last():
    array = md.zeros(64)
    array.fill(1, stream=md.Stream())
    settle(array)


def drop_event_last():
    event = md.Stream().record()
    until(event.query)


@pytest.mark.parametrize("drop", [drop_stream, drop_stream_and_array, drop_array_last, drop_event_last])
def test_a_failure_that_nobody_can_hear_of_goes_to_the_unraisable_hook(drop, failing, unraisable):
    with failing(8):
        drop()
        until(lambda: unraisable)
    ((error, about),) = unraisable
    assert isinstance(error, md.MetalError)
    assert "GPU work that nobody waited for" in str(error)
    assert "OutOfMemory, 8)" in str(error)
    assert about is md.Stream


def test_a_new_array_in_old_memory_is_not_told_of_work_on_the_old_one(failing, unraisable):
    """The buffer comes back from the pool while the clean-up of the failed work is still under way."""
    for _ in range(200):
        array = md.zeros(64)
        with failing(8):
            array.fill(1, stream=md.Stream())
        del array
        assert md.zeros(64).tolist() == [0] * 64
    until(lambda: len(unraisable) == 200)


def test_a_new_array_in_old_memory_is_told_of_its_own_work(failing):
    """The clean-up of the old array's work is still under way when the new one's begins, now and then."""
    stream = md.Stream()
    for _ in range(200):
        array = md.zeros(64)
        array.fill(1, stream=md.Stream())
        del array
        array = md.empty(64)
        with failing(8):
            array.fill(2, stream=stream)
        with pytest.raises(md.MetalError, match="OutOfMemory, 8"):
            array.tolist()


def test_threads_that_drop_failing_streams_lose_none(failing, unraisable):
    with failing(3):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: [drop_stream_and_array() for _ in range(20)], range(4)))
        until(lambda: len(unraisable) == 80)


def test_work_that_succeeds_is_dropped_in_silence(unraisable):
    for drop in (drop_stream, drop_stream_and_array, drop_array_last, drop_event_last):
        drop()
    md.default_device().synchronize()
    assert unraisable == []


def test_the_report_is_what_python_prints_of_exceptions_in_destructors():
    code = """
import time
import metal_dlpack as md
import softmetal
softmetal.configure(fail="commit@1=8")
md.Stream().record()
end = time.monotonic() + 1
while time.monotonic() < end:
    time.sleep(0.01)
"""
    child = run_child(code)
    assert child.returncode == 0
    assert "Exception ignored in: <class 'metal_dlpack.Stream'>" in child.stderr
    assert "MetalError: GPU work that nobody waited for:" in child.stderr
    assert child.stderr.count("MetalError") == 1
