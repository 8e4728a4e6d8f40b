"""The software Metal's race detector runs in all tests: tests/array/test_array_queue.py fails where a wait is missing.

Here it finds what the library is not told of; docs/softmetal_reports.md says what a race is.
"""

import os
import subprocess
import threading
import time

import pytest
from children import run_child
from objc_messages import pool, send

import metal_dlpack as md
import softmetal

pytestmark = pytest.mark.needs_softmetal


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


def test_the_detector_is_on_in_this_process_and_what_it_says_fails_the_test(request):
    """How: tests/package/test_pytest_plugin.py."""
    assert os.environ["SOFTMETAL_VALIDATION"] == "1"
    assert "metal_reports" in request.fixturenames
    assert softmetal.reports("race") == 0
    with pytest.raises(ValueError, match="SOFTMETAL_RACES"):
        softmetal.configure(races="maybe")
