"""Every wait that the library makes is one that it needs: the software Metal's race detector runs in all tests, and
these are the programs in which a missing wait is a race, in every run.

`tools/mutants.py` takes the waits out, one at a time; docs/softmetal_reports.md says what a race is.
"""

import subprocess
import threading
import time

import numpy as np
import pytest
from children import run_child
from objc_messages import foreign_buffer, gpu_fill, pool, send

import metal_dlpack as md
from metal_dlpack import softmetal

pytestmark = pytest.mark.needs_softmetal
STORAGE = pytest.mark.parametrize("storage", ["shared", "private"])


@pytest.fixture(autouse=True)
def slow():
    """Work is in flight when the next use comes: where it is over, the library finds that out without a wait."""
    softmetal.configure(latency_us=3000)
    yield
    softmetal.configure(latency_us=None)


def array(storage="shared"):
    return md.asarray(np.arange(256, dtype="float32")).copy(storage=storage)


@STORAGE
def test_the_cpu_reads_what_a_stream_writes(storage):
    src, dst = array(), array(storage)
    dst.copy_from(src, stream=md.Stream())
    assert np.array(dst)[255] == 255


@STORAGE
def test_the_cpu_writes_what_a_stream_reads(storage):
    src, dst = array(storage), array()
    src.copy_to(dst, stream=md.Stream())
    src.fill(0)
    assert np.array(dst)[255] == 255


@STORAGE
def test_a_stream_reads_what_another_writes(storage):
    src, between, dst = array(), array(storage), array()
    between.copy_from(src, stream=md.Stream())
    dst.copy_from(between, stream=md.Stream())
    assert np.array(dst)[255] == 255


@STORAGE
def test_a_stream_writes_what_two_others_read(storage):
    src, one, two = array(storage), array(), array()
    one.copy_from(src, stream=md.Stream())
    two.copy_from(src, stream=md.Stream())
    src.fill(0, stream=md.Stream())
    assert np.array(src).sum() == 0
    assert np.array(one).sum() == np.array(two).sum() == np.arange(256).sum()


@STORAGE
def test_a_kernel_reads_what_another_stream_writes(storage):
    """Items with gaps between them: the GPU copies them by a kernel."""
    src, between, dst = array(), array(storage), md.zeros((16, 16), "float32")
    between.copy_from(src, stream=md.Stream())
    dst.copy_from(between.reshape(16, 16).T, stream=md.Stream())
    between.fill(0, stream=md.Stream())
    assert np.array(dst)[1, 0] == 1


UNTRACKED = 1 << 8  # MTLResourceHazardTrackingModeUntracked


def test_a_stream_uses_twice_what_metal_does_not_track():
    with foreign_buffer(1024, UNTRACKED) as handle:
        src = md.Buffer.from_handle(handle).array(256, "float32")
        dst, stream = array(), md.Stream()
        src.fill(3, stream=stream)
        src.copy_to(dst, stream=stream)
        assert np.array(dst)[255] == 3
        del src


def test_a_buffer_of_the_pool_is_used_again():
    stream = md.Stream()
    for _ in range(20):
        array().copy(stream=stream)
        array("private").fill(1)


def test_a_consumer_on_a_stream_of_its_own():
    stream, other = md.Stream(), md.Stream()
    shared = array()
    shared.fill(1, stream=stream)
    capsule = shared.__dlpack__(stream=other, max_version=(1, 3))
    gpu_fill(shared.buffer.handle, 2, shared.nbytes, queue=other.handle)
    assert np.asarray(md.from_dlpack(capsule)).view("uint8").tolist() == [2] * shared.nbytes


def test_what_is_submitted_while_another_thread_writes_staged_bytes_comes_after_them():
    """Three bytes of private storage: no blit takes so few, so that a kernel writes them."""
    private, target, stream = md.Buffer(64, storage="private"), md.Buffer(64), md.Stream()
    private.fill(1)
    view, there = private.array(64, "uint8"), target.array(64, "uint8")
    with pool():
        gates = [send(md.default_device().handle, "newSharedEvent") for _ in range(2)]
    md.default_device().synchronize()
    writes = md.default_device().default_stream
    writes.wait(md.Event.from_handle(gates[0], 1))
    stream.wait(md.Event.from_handle(gates[1], 1))
    writer = threading.Thread(target=private.copy_from, args=(b"\2\2\2",))
    mark = writes.record().value
    writer.start()
    while writes.record().value == mark + 1:  # a gap: the write is submitted, and has taken a value
        mark += 1
        time.sleep(0.02)  # a queue takes 64 command buffers: a second's
    view.copy_to(there, stream=stream)
    send(gates[1], "setSignaledValue:", 1, result=None)
    time.sleep(0.05)  # the copy must not read before the write, which still waits
    send(gates[0], "setSignaledValue:", 1, result=None)
    writer.join()
    assert there.tolist() == [2, 2, 2] + [1] * 61
    assert view.tolist()[:4] == [2, 2, 2, 1]
    for gate in gates:
        send(gate, "release", result=None)


def run(program: str, **settings: str) -> subprocess.CompletedProcess:
    return run_child(program, **{"SOFTMETAL_VALIDATION": "1", **settings})


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("latency", ["0", "5000"])
def test_gpu_work_that_nobody_told_of_is_a_race_with_a_read(latency):
    done = run(
        """
        import metal_dlpack as md, time
        from objc_messages import foreign_buffer, gpu_fill, pool, send
        array = md.Buffer(64, label="told of by nobody").array(64, "uint8")
        gpu_fill(array.buffer.handle, 7, 64, waits=False)
        time.sleep(0.05)
        array.tolist()
        time.sleep(0.05)
        """,
        SOFTMETAL_LATENCY_US=latency,
    )
    assert done.returncode == -6, done.stderr
    assert 'softmetal: race: nothing orders two uses of the buffer "told of by nobody" (' in done.stderr
    assert "a write of bytes 0 to 64 by queue " in done.stderr
    assert "a read of bytes 0 to 64 by the CPU at " in done.stderr


def test_the_detector_is_on_in_this_process():
    assert softmetal.reports("race") == 0
    with pytest.raises(ValueError, match="SOFTMETAL_RACES"):
        softmetal.configure(races="maybe")
