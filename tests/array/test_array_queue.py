"""Copies and fills that a stream does later: the caller goes on, the bytes are right, nothing dies too early."""

import functools
import gc
import threading
import time

import numpy as np
import pytest
import stream_programs
from children import output_of
from eventually import PATIENCE
from held_work import held
from objc_messages import foreign_buffer, send

import metal_dlpack as md

pytestmark = pytest.mark.needs_softmetal


def numbers(shape=(1024,), dtype="float32"):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


# ---- nobody waits who need not ----


@pytest.mark.needs_kernels
@pytest.mark.parametrize("storage", ["shared", "private"])
def test_asynchronous_copies_and_fills_return_at_once_and_host_access_sees_the_end(storage, slow, live_buffers):
    stream = md.Stream()
    memory = numbers()
    src, dst, other = md.asarray(memory).copy(), md.zeros(1024, storage=storage), md.zeros(1024, storage=storage)
    with held(stream):
        dst.copy_from(src, stream=stream)
        src.copy_to(other, stream=stream)
        made = dst.copy(stream=stream)
    for array in (dst, other, made):
        assert np.array_equal(np.asarray(array), memory)
    with held(stream):
        dst.fill(0, stream=stream)
        other.fill(1.5, stream=stream)
    assert not np.asarray(dst).any()
    assert np.asarray(other).tolist() == [1.5] * 1024


@pytest.mark.needs_kernels
def test_a_hand_over_between_two_streams_never_blocks_the_cpu(slow):
    one, two = md.Stream(), md.Stream()
    memory = numbers()
    src, between, dst = md.asarray(memory).copy(), md.zeros(1024, storage="private"), md.zeros(1024)

    with held(one):
        between.copy_from(src, stream=one)
        dst.copy_from(between, stream=two)
        src.fill(0, stream=two)
    assert np.array_equal(np.asarray(dst), memory)
    assert not np.asarray(src).any()


@pytest.mark.needs_kernels
def test_with_a_stream_everything_goes_there():
    memory = numbers()
    src, dst = md.asarray(memory).copy(), md.zeros(1024)
    with md.Stream() as stream, held(stream):
        dst.copy_from(src)
        dst[:8] = src[8:16]
        made = dst.copy()
        src.fill(2)
        md.default_device().default_stream.synchronize()
        assert not any(work_on(array).query() for array in (src, dst, made)), "it went elsewhere"
    memory[:8] = memory[8:16]
    assert np.array_equal(np.asarray(made), memory)
    assert np.asarray(src).tolist() == [2.0] * 1024


def test_a_host_read_does_not_wait_for_reads():
    src, dst = md.asarray(numbers()).copy().as_readonly(), md.zeros(1024)
    stream = md.Stream()
    with held(stream):
        dst.copy_from(src, stream=stream)
        dst.copy_from(src[::-1], stream=stream)
        assert src[-1].item() == 1023


def test_cpu_memory_is_written_before_the_return(slow):
    src, memory = md.zeros(64), np.zeros(64, "float32")
    stream = md.Stream()
    src.fill(3, stream=stream)
    src.copy_to(memory, stream=stream)
    assert memory.tolist() == [3] * 64


# ---- a call without a stream is done on return, where anybody else can see ----


SYNCHRONOUS = {
    "fill": lambda a: a.fill(7),
    "assign": lambda a: a.__setitem__(..., 7),
    "copy_from an Array": lambda a: a.copy_from(md.full(a.shape, 7, "float32")),
    "copy_from private": lambda a: a.copy_from(md.full(a.shape, 7, "float32", storage="private")),
    "copy_from NumPy": lambda a: a.copy_from(np.full(a.shape, 7, "float32")),
    "assign and convert": lambda a: a.__setitem__(..., np.full(a.shape, 7, "float64")),
}


@pytest.mark.parametrize("write", SYNCHRONOUS)
@pytest.mark.parametrize("in_flight", ["nothing", "a read", "a write"])
def test_a_write_without_a_stream_is_seen_through_memory_that_others_have(slow, write, in_flight):
    outside = np.zeros(16, "float32")
    array, stream = md.from_dlpack(outside), md.Stream()
    view = np.asarray(array)
    if in_flight == "a read":
        array.copy(stream=stream)
    elif in_flight == "a write":
        array.fill(3, stream=stream)
    SYNCHRONOUS[write](array)
    assert outside.tolist() == view.tolist() == [7] * 16


def test_a_buffer_of_ours_that_came_back_is_one_that_was_given_away(torch, slow):
    """The Array made of the tensor stands for the same storage."""
    first = md.zeros(16, storage="private")
    array = md.from_dlpack(torch.from_dlpack(first))
    md.default_device().synchronize()
    start = time.perf_counter()
    array.fill(7)
    assert time.perf_counter() - start >= slow * 0.9


# ---- what lives how long ----


@pytest.mark.parametrize("storage", ["shared", "private"])
def test_operands_live_until_the_gpu_is_done(storage, settings, live_buffers):
    """Nothing of Python's keeps them; validation reports a buffer that dies in use."""
    settings(latency_us=30_000)
    stream = md.Stream()
    dst = md.zeros(1024, storage=storage)
    dst.copy_from(md.asarray(numbers()).copy(), stream=stream)
    gc.collect()
    del stream
    assert np.array_equal(np.asarray(dst), numbers())
    for _ in range(20):
        md.zeros(1024).copy_from(md.full(1024, 3.0), stream=md.Stream())
    gc.collect()
    md.default_device().synchronize()


def test_memory_of_others_is_kept_until_the_gpu_is_done(slow):
    gone = threading.Event()

    class Watched(np.ndarray):
        def __del__(self):
            if not isinstance(self.base, Watched):
                gone.set()

    stream, dst = md.Stream(), md.zeros(1 << 14)
    src = md.asarray(np.zeros(1 << 14, "float32").view(Watched), copy=False)
    dst.copy_from(src, stream=stream)
    event = stream.record()
    del src
    gc.collect()
    assert not gone.is_set() and not event.query()
    event.wait()
    for _ in range(1000):
        if gone.is_set():
            break
        time.sleep(0.002)
    assert gone.is_set()


def test_closing_a_buffer_waits_for_its_work(slow):
    buffer = md.Buffer(256)
    array = buffer.array(64)
    array.fill(1, stream=md.Stream())
    del array
    gc.collect()
    buffer.close()
    assert buffer.is_closed


# ---- failures ----


@pytest.mark.needs_kernels
@pytest.mark.parametrize("what", ["commandBuffer", "encoder"])
def test_no_command_is_an_error_and_changes_nothing(what, settings, live_buffers):
    stream, array, private = md.Stream(), md.zeros(64), md.Buffer(64, storage="private")
    settings(fail=f"{what}@1+")
    for call in (
        lambda: private.fill(1),
        lambda: array.fill(3, stream=stream),
        lambda: array.fill(0, stream=stream),
        lambda: array.copy_from(md.full(64, 1.0), stream=stream),
    ):
        with pytest.raises(md.MetalError, match="no command buffer or encoder"):
            call()
    settings(fail=None)
    assert np.asarray(array).tolist() == [0] * 64


def test_bad_streams_are_refused_and_nothing_is_written():
    array, src = md.zeros(64), md.full(64, 1.0)
    for call in (
        lambda s: array.copy_from(src, stream=s),
        lambda s: src.copy_to(array, stream=s),
        lambda s: array.fill(1, stream=s),
        lambda s: src.copy(stream=s),
    ):
        with pytest.raises(TypeError, match="stream must be a Stream"):
            call("x")
        with pytest.raises(BufferError, match="not the handle of a command queue"):
            call(12345)
    with pytest.raises(ValueError, match="read-only"):
        array.as_readonly().fill(1, stream=md.Stream())
    assert not np.asarray(array).any()


# ---- the exchange ----


def work_on(array):
    """The moment when the work in flight on it is done."""
    _, _, event, value = array.__metal_stream__()
    return md.Event.from_handle(event, value)


@pytest.mark.needs_kernels
@pytest.mark.rule("export-stream-none", "export-cpu-waits")
def test_the_stream_of_dlpack_says_who_waits(settings):
    settings(latency_us=50_000)  # of twenty command buffers, one after the other
    working, using = md.Stream(), md.Stream()
    array = md.zeros(64)

    def fill():
        array.fill(7, stream=working)
        return work_on(array)

    for give in (array.__dlpack__, functools.partial(md.from_dlpack, array)):
        event = fill()
        give()
        assert event.query(), "stream=None waits"
        for stream in (using, using.handle):
            with held(working):
                event = fill()
                given = give(stream=stream)
                after = using.record()
            after.wait()
            assert event.query(), "the queue ran ahead of the work that it was told to wait for"
            del given
        with held(working):
            fill()
            give(stream=-1)
            using.synchronize()
    for keywords in ({"stream": -1}, {"stream": using}, {}):
        event = fill()
        array.__dlpack__(dl_device=(1, 0), **keywords)
        assert event.query(), "a CPU export waits, whatever the stream"


@pytest.mark.parametrize("device", [(8, 0), (1, 0)], ids=["GPU", "CPU"])
@pytest.mark.rule("export-stream-none", "export-cpu-waits")
def test_an_export_waits_for_reads_as_well_since_its_consumer_may_write(device, slow):
    working, array, copy = md.Stream(), md.full(64, 3.0), md.zeros(64)
    copy.copy_from(array, stream=working)
    event = work_on(copy)
    array.__dlpack__(dl_device=device)
    assert event.query()


class Foreign:
    """A producer that says by __metal_stream__ what to wait for."""

    def __init__(self, event, value=1, version=1, queue=0):
        self.array = md.zeros(64)
        self.answer = (version, queue, event, value)
        self.asked = []

    def __dlpack__(self, *, stream=None, max_version=None, copy=None, dl_device=None):
        self.asked.append(stream)
        return self.array.__dlpack__(stream=-1, max_version=max_version)

    def __dlpack_device__(self):
        return (8, 0)

    def __metal_stream__(self):
        return self.answer


def test_a_producer_with_metal_stream_is_waited_for_on_the_gpu_or_by_the_cpu(shared_event):
    def comes_to(value):
        """The shared event, 50 ms from now."""
        timer = threading.Timer(0.05, lambda: send(shared_event, "setSignaledValue:", value, result=None))
        timer.start()
        return time.perf_counter()

    using, foreign = md.Stream(), Foreign(shared_event, 3)
    array = md.from_dlpack(foreign, stream=using)
    assert foreign.asked == [-1], "who says what to wait for need not wait"
    assert not using.record().wait(0.03)
    assert md.from_dlpack(foreign, stream=-1).shape == (64,)
    start = comes_to(3)
    assert array.tolist() == [0] * 64, "the CPU comes after what the stream waits for"
    assert time.perf_counter() - start > 0.03
    foreign.answer = (1, 0, shared_event, 4)
    start = comes_to(4)
    md.from_dlpack(foreign)
    assert time.perf_counter() - start > 0.03


def test_a_wrong_answer_of_metal_stream_is_refused(subtests, live_buffers):
    tuples, ints, bits = "version, queue, event, value", "four ints", "fit in 64 bits"
    wrong = [(ValueError, "version", answer) for answer in ((2, 0, 0, 0), (2**80, 0, 0, 0))]
    wrong += [(ValueError, "MTLCommandQueue", (1, 8, 0, 0)), (ValueError, "MTLSharedEvent", (1, 0, 8, 0))]
    wrong += [(TypeError, tuples, answer) for answer in ((1, 0, 0), [1, 0, 0, 0], None)]
    wrong += [(TypeError, ints, answer) for answer in ((1, 0, "x", 0), (1, 0.0, 0, 0))]
    wrong += [(ValueError, bits, answer) for answer in ((1, 0, 0, -1), (1, 0, 0, 2**64), (1, 0, 2**70, 1))]
    foreign = Foreign(0)
    for error, match, answer in wrong:
        foreign.answer = answer
        for call in (lambda: md.from_dlpack(foreign), lambda: md.Stream().wait(foreign)):
            with subtests.test(answer=answer), pytest.raises(error, match=match):
                call()


@pytest.mark.needs_kernels
def test_arrays_say_what_to_wait_for(slow):
    array, stream = md.zeros(64), md.Stream()
    version, queue, event, value = array.__metal_stream__()
    assert (version, queue) == (1, md.default_device().default_stream.handle)
    assert md.Event.from_handle(event, value).query()
    array.fill(1, stream=stream)
    version, queue, event, value = array.__metal_stream__()
    assert (version, queue, value) == (1, stream.handle, 1)
    assert not md.Event.from_handle(event, value).query()
    reader, dst = md.Stream(), md.zeros(64)
    array.copy_to(dst, stream=reader)
    array.copy_to(md.zeros(64), stream=md.Stream())
    _, queue, event, value = array.__metal_stream__()
    assert md.Event.from_handle(event, value).wait(PATIENCE)
    assert stream.record().wait() and dst.tolist() == [1] * 64


def test_a_hook_may_return_an_event_instead_of_waiting(slow):
    from dlpack_structs import Producer

    from metal_dlpack import sync

    class Kind(Producer):
        pass

    working, using = md.Stream(), md.Stream()
    array = md.zeros(6)
    md.register_sync(Kind, lambda _: working.record())
    try:
        producer = Kind(data=array.buffer.handle, device=(8, 0))
        with held(working):
            md.from_dlpack(producer, stream=using)
            after = using.record()
            assert not after.query()
        after.wait()
        start = time.perf_counter()
        md.from_dlpack(producer)
        assert time.perf_counter() - start > slow / 2
    finally:
        del sync._registered[Kind]
        sync._forget_types()


# ---- memory of others, and untracked ----


def test_untracked_buffers_are_kept_in_order_on_one_stream(settings):
    """MLX's buffers are untracked: Metal itself reorders commands that use them."""
    untracked = 1 << 8  # MTLResourceHazardTrackingModeUntracked
    settings(seed="last", latency_us=2000)
    with foreign_buffer(4096, untracked) as handle:
        buffer = md.Buffer.from_handle(handle)
        array, stream = buffer.array(1024), md.Stream()
        for value in range(1, 6):
            array.fill(value, stream=stream)
        assert np.asarray(array).tolist() == [5] * 1024
        del array, buffer


#: A buffer of a heap, which softmetal has not: untracked, and it says "default", for its heap says more.
IN_A_HEAP = """
import ctypes
import numpy as np
from objc_messages import foreign_buffer, libobjc, send
import metal_dlpack as md

UNTRACKED = 1 << 8
with foreign_buffer(4096, UNTRACKED) as handle:
    replace = libobjc.class_replaceMethod
    replace.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_char_p]
    says_default = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p)(lambda _self, _name: 0)
    selector = libobjc.sel_registerName(b"hazardTrackingMode")
    replace(send(handle, "class"), selector, ctypes.cast(says_default, ctypes.c_void_p), b"L@:")
    assert send(handle, "hazardTrackingMode", result=ctypes.c_ulong) == 0
    buffer = md.Buffer.from_handle(handle)
    array, stream = buffer.array(1024), md.Stream()
    for value in range(1, 6):
        array.fill(value, stream=stream)
    print(set(np.asarray(array).tolist()))
    del array, buffer
"""


def test_a_buffer_that_leaves_its_tracking_to_its_heap_counts_as_untracked():
    """Apple's default is "tracked" of a device, and of a heap what that has: untracked, as a rule."""
    assert output_of(IN_A_HEAP, SOFTMETAL_SEED="last", SOFTMETAL_LATENCY_US="2000").strip() == "{5.0}"


def test_two_arrays_over_one_foreign_buffer_know_of_each_other(slow):
    with foreign_buffer(4096, 0) as handle:
        one, two = md.Buffer.from_handle(handle).array(1024), md.Buffer.from_handle(handle).array(1024)
        one.fill(4, stream=md.Stream())
        assert np.asarray(two).tolist() == [4] * 1024
        del one, two


def test_more_readers_than_are_kept_apart(slow):
    src = md.asarray(numbers()).copy()
    outs = [md.zeros(1024) for _ in range(9)]
    for out in outs:
        out.copy_from(src, stream=md.Stream())
    src.fill(0, stream=md.Stream())
    for out in outs:
        assert np.array_equal(np.asarray(out), numbers())
    assert not np.asarray(src).any()


# ---- anything at all ----


@pytest.mark.parametrize("first", range(0, 400, 100))
@pytest.mark.some(2)
def test_random_programs_equal_their_sequential_result(first, live_buffers):
    """`make streams` runs 10,000 of them."""
    for number in range(first, first + 100):
        stream_programs.run(number)
    gc.collect()
    md.default_device().synchronize()
