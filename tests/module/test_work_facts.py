"""What reprs and pictures ask of GPU work and of who holds a buffer: true, and a look that changes nothing."""

import time

import pytest
from held_work import held

import metal_dlpack as md
from metal_dlpack._core import _buffer_work, _stream_work


def work_on(array):
    return _buffer_work(array.buffer)[0]


def wait_until_done(stream):
    while _stream_work(stream)[0] != _stream_work(stream)[1]:
        time.sleep(0.001)


@pytest.mark.needs_softmetal
def test_writes_and_reads_in_flight_are_told_apart():
    source, target, stream = md.zeros(64), md.zeros(64), md.Stream()
    with held(stream):
        target.copy_from(source, stream=stream)
        assert (work_on(source), work_on(target)) == ("reads", "writes")
        assert _stream_work(stream) == (2, 0, False), "the wait that holds it, and the copy"
    stream.synchronize()
    assert (work_on(source), work_on(target)) == ("idle", "idle")
    submitted, completed, has_failed = _stream_work(stream)
    assert submitted == completed >= 1
    assert not has_failed


def test_a_failure_is_seen_and_not_taken(settings):
    array, stream = md.zeros(64), md.Stream()
    settings(fail="commit@1=8")
    array.fill(1, stream=stream)
    wait_until_done(stream)
    settings(fail=None)
    for _ in range(2):
        assert work_on(array) == "failed"
        assert _stream_work(stream)[2]
    with pytest.raises(md.MetalError, match=r"OutOfMemory, 8\)"):
        stream.synchronize()
    assert work_on(array) == "idle"
    assert not _stream_work(stream)[2]


def test_a_failure_of_an_earlier_owner_is_none_of_the_next_ones(settings):
    array, stream = md.zeros(64), md.Stream()
    handle = _buffer_work(array.buffer)[1]
    settings(fail="commit@1=8")
    array.fill(1, stream=stream)
    wait_until_done(stream)
    settings(fail=None)
    del array
    kept = [md.empty(64) for _ in range(10)]  # one of these lies where the first one was
    assert handle in [_buffer_work(array.buffer)[1] for array in kept]
    assert {work_on(array) for array in kept} == {"idle"}
    with pytest.raises(md.MetalError):
        stream.synchronize()


@pytest.mark.needs_softmetal
def test_views_exports_and_work_in_flight_hold_a_buffer():
    array = md.zeros(1 << 16)
    _, handle, views, references = _buffer_work(array.buffer)
    assert (handle, views, references) == (array.buffer.handle, 1, 0)
    view, export = array[1:], array.__dlpack__()
    assert _buffer_work(view.buffer)[2:] == (2, 1)
    stream = md.Stream()
    with held(stream):
        view.fill(1, stream=stream)
        assert _buffer_work(view.buffer)[2:] == (2, 2)
    stream.synchronize()
    del export, view
    assert _buffer_work(array.buffer)[2] == 1


def test_only_buffers_and_streams_have_work():
    buffer = md.Buffer(0)
    assert _buffer_work(buffer) == ("idle", 0, 0, 0)
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        _buffer_work(buffer)
    with pytest.raises(TypeError, match="Buffer, not"):
        _buffer_work(md.zeros(3))
    with pytest.raises(TypeError, match="Stream, not"):
        _stream_work(md.zeros(3))
