"""Buffer: one MTLBuffer, its bytes, its life."""

import contextlib
import gc
import re
import threading
import time
import weakref

import numpy as np
import pytest
from held_work import held

import metal_dlpack as md


@pytest.mark.parametrize("storage", ["shared", "private"])
def test_bytes_go_in_and_come_out_in_every_storage_mode(storage, live_buffers):
    buffer = md.Buffer(10, storage=storage)
    assert buffer.size == 10
    assert buffer.storage == storage
    assert buffer.is_host_accessible == (storage != "private")
    assert (buffer.address is None) == (storage == "private")
    if storage == "private":
        with pytest.raises(md.CopyRequiredError, match="copy_to"):
            memoryview(buffer)
    buffer.fill(7)
    md.Buffer(10, storage="shared").fill(0xEE)  # into the pool: what a staging buffer begins with
    buffer.copy_from(b"abc")
    out = bytearray(10)
    buffer.copy_to(out)
    assert out == b"abc" + bytes([7]) * 7


@pytest.mark.parametrize(
    "make",
    [
        lambda: md.zeros((4, 6)),
        lambda: md.asarray(np.zeros((4, 6), "float32"), copy=False),
        lambda: md.asarray(bytearray(24), copy=False).reshape(4, 6),
        lambda: md.from_dlpack(np.zeros((4, 6)), copy=False),
        lambda: md.from_dlpack(md.zeros((4, 6)).__dlpack__(max_version=(1, 3))),
    ],
)
def test_an_array_has_one_buffer_and_shares_it_with_its_views(make, live_buffers):
    array = make()
    views = [array[1:], array.T, array.reshape(24), md.from_dlpack(array)]
    buffer = array.buffer
    assert all(view.buffer is buffer for view in views)
    del array
    with pytest.raises(BufferError, match="4 arrays or memoryviews"):
        buffer.close()
    del views
    buffer.close()
    assert buffer.is_closed


def test_a_buffer_that_is_asked_for_while_it_is_made_is_one(live_buffers):
    array, seen = md.zeros(4), []

    def ask(_phase, _info, array=array):
        seen.append(array.buffer)

    thresholds = gc.get_threshold()
    gc.callbacks.append(ask)
    gc.set_threshold(1)
    try:
        for _ in range(10):
            buffer = array.buffer
            nothing = [[] for _ in range(10)]  # for collectors that wait until the call is over
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(ask)
    assert len(nothing) == 10
    assert seen
    assert all(one is buffer for one in seen)
    seen.clear()
    del array, ask
    buffer.close()


def test_an_empty_buffer_makes_no_metal_buffer(live_buffers):
    buffer = md.Buffer(0)
    assert (buffer.size, buffer.handle, buffer.address) == (0, 0, None)
    assert live_buffers() == 0
    assert memoryview(buffer).nbytes == 0


def test_bad_arguments_are_refused_by_name(subtests, live_buffers):
    sizes = [(ValueError, "-1", -1), (TypeError, "size", "x"), (OverflowError, "signed 64-bit", 2**63)]
    refused = [(error, text, {"size": size}) for error, text, size in sizes]
    refused += [(ValueError, value, {name: value}) for name, value in (("storage", "shard"), ("device", "cuda"))]
    refused += [(ValueError, "metal:99", {"device": "metal:99"})]
    refused += [(TypeError, name, {name: 1}) for name in ("storage", "device", "label", "colour")]
    for error, text, keywords in refused:
        size = keywords.pop("size", 8)
        with subtests.test(keywords, size=size), pytest.raises(error, match=text):
            md.Buffer(size, **keywords)


def test_close_is_refused_while_anybody_uses_the_bytes(live_buffers):
    buffer = md.Buffer(16)
    array = buffer.array((4,), "int32")
    with pytest.raises(BufferError, match="1 arrays"):
        buffer.close()
    capsule = array.__dlpack__()
    del array
    with pytest.raises(BufferError, match="DLPack export"):
        buffer.close()
    del capsule
    view = memoryview(buffer)
    with pytest.raises(BufferError):
        buffer.close()
    view.release()
    buffer.close()
    assert buffer.is_closed
    buffer.close()
    assert live_buffers() == 0
    for name in ("size", "handle", "address", "storage", "device", "label"):
        with pytest.raises(ValueError, match="closed"):
            getattr(buffer, name)
    for use in (lambda: memoryview(buffer), lambda: buffer.fill(0), lambda: buffer.array(1)):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(buffer)


@pytest.mark.parametrize(
    "use", [lambda buffer, number: buffer.fill(number), lambda buffer, number: buffer.array((number,))]
)
def test_an_argument_that_closes_the_buffer_finds_it_closed(use, live_buffers):
    class Closing:
        def __index__(self):
            buffer.close()
            return 4

    buffer = md.Buffer(64)
    with pytest.raises(ValueError, match="closed"):
        use(buffer, Closing())
    assert live_buffers() == 0


def test_the_collector_cannot_close_the_buffer_that_an_array_is_being_made_over(live_buffers):
    class Closing:
        def __init__(self):
            self.itself = self

        def __del__(self):
            with contextlib.suppress(BufferError):  # in use
                buffer.close()

    def make_array():
        try:
            return buffer.array(4)
        except ValueError:  # closed before the call began
            return md.zeros(4)

    before, arrays = gc.get_threshold(), [md.zeros(4)]  # so no Array that is gone is used again
    try:
        for allocations in range(1, 12):  # the collector runs somewhere else in each call
            buffer = md.Buffer(64)
            gc.set_threshold(0)
            gc.collect()
            Closing()
            gc.set_threshold(allocations, 1, 1)
            arrays.append(make_array())
        assert [len(array.tolist()) for array in arrays] == [4] * len(arrays)
    finally:
        gc.set_threshold(*before)


def test_a_buffer_shows_its_name_which_metal_keeps():
    assert (md.Buffer(8, label="weights é").label, md.Buffer(8).label) == ("weights é", None)
    assert repr(md.Buffer(64, label="weights", storage="shared")) == (
        "<metal_dlpack.Buffer 'weights' of 64 bytes, storage='shared', metal:0>"
    )
    assert repr(md.Buffer(0, storage="shared")) == "<metal_dlpack.Buffer of 0 bytes, storage='shared', metal:0>"


def test_closing_while_another_thread_writes_is_refused_or_waits_its_turn(live_buffers):
    def write(buffer):
        with contextlib.suppress(ValueError):  # closed before the write began
            buffer.fill(1)

    for _ in range(200):
        buffer = md.Buffer(1 << 16, storage="private")
        writer = threading.Thread(target=write, args=(buffer,))
        writer.start()
        while not buffer.is_closed:
            with contextlib.suppress(BufferError):
                buffer.close()
        writer.join()


def test_threads_that_close_one_buffer_wait_for_its_work_and_none_is_refused(live_buffers):
    """No Array is left: each of them could say so only of another that closes."""
    buffer, stream, raised = md.Buffer(64), md.Stream(), []

    def close():
        try:
            buffer.close()
        except BufferError as error:
            raised.append(error)

    threads = [threading.Thread(target=close) for _ in range(3)]
    with held(stream):
        buffer.array(16).fill(1, stream=stream)
        for thread in threads:
            thread.start()
        time.sleep(0.1)  # all of them wait
        assert not buffer.is_closed
    for thread in threads:
        thread.join()
    assert raised == []
    assert buffer.is_closed


class Owner:
    """Owns a Buffer made by its handle."""


def test_from_handle_is_the_same_buffer_and_keeps_its_owner(live_buffers):
    original, owner = md.Buffer(16), Owner()
    original.copy_from(bytes(range(16)))
    alive = weakref.ref(owner)
    wrapped = md.Buffer.from_handle(original.handle, owner=owner)
    assert wrapped.handle == original.handle
    assert wrapped.size == 16
    assert wrapped.owner is owner
    del owner
    gc.collect()
    assert alive() is not None
    del original
    gc.collect()
    assert live_buffers() == 1
    assert bytes(memoryview(wrapped)) == bytes(range(16))
    wrapped.close()
    gc.collect()
    assert (alive(), wrapped.owner) == (None, None)


def test_nil_is_refused_as_such():
    event = lambda handle: md.Event.from_handle(handle, 1)  # noqa: E731
    wraps = {"MTLBuffer": md.Buffer.from_handle, "MTLCommandQueue": md.Stream.from_handle, "MTLSharedEvent": event}
    for kind, wrap in wraps.items():
        with pytest.raises(ValueError, match=f"the handle is 0, which is not an id<{kind}>"):
            wrap(0)


def test_the_collector_may_begin_with_the_buffer(live_buffers):
    original = md.Buffer(16)
    owner = {}  # the collector does not know it while it is empty: it comes after the Buffer
    owner["buffer"] = md.Buffer.from_handle(original.handle, owner=owner)
    del owner, original
    gc.collect()
    assert live_buffers() == 0


def test_a_cycle_through_an_exported_buffer_waits_for_the_export(live_buffers):
    original, owner = md.Buffer(16), Owner()
    owner.array = md.Buffer.from_handle(original.handle, owner=owner).array(4)
    capsule = owner.array.__dlpack__()
    alive = weakref.ref(owner)
    del owner, original
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None


def test_array_checks_every_item_against_the_end():
    buffer = md.Buffer(48)
    assert buffer.array((3, 4)).shape == (3, 4)
    assert buffer.array(11, "float32", 4).byte_offset == 4
    for shape, dtype, offset in [
        ((13,), "float32", 0),
        ((12,), "float32", 4),
        (1, "float32", -4),
        ((2**62, 4), "float32", 0),
    ]:
        with pytest.raises(ValueError):
            buffer.array(shape, dtype, offset)
    with pytest.raises(ValueError, match="alignment"):
        buffer.array(1, "float32", 2)
    layout = md.StridedLayout((3, 4), (1, 3), 4)
    assert buffer.array(layout).strides == (1, 3)
    with pytest.raises(ValueError, match="itemsize"):
        buffer.array(layout, "int8")
    with pytest.raises(ValueError, match="past"):
        buffer.array(md.StridedLayout((3, 4), (100, 1), 4))


FAR = "reach 2**60 bytes or farther from the Buffer's start, and it has 64 bytes."


def test_array_says_which_bytes_the_items_would_lie_in(subtests):
    cases = [
        (2**40, "int8", 8, f"lie in bytes 8 to {8 + 2**40 + 1}, past the Buffer's 64 bytes."),
        (-(2**40), "int4", 8, f"lie in bytes {8 - 2**39} to 9, past the Buffer's 64 bytes."),
    ]
    cases += [(stride, "int4", 0, FAR) for stride in (2**62, -(2**62))] + [(2**60, "int4", 2**63 - 8, FAR)]
    cases += [(2**59, "float64", 2**62, FAR), (-(2**60), "float64", -(2**63), FAR)]
    for stride, dtype, byte_offset, words in cases:
        layout, match = md.StridedLayout((2,), (stride,), getattr(md, dtype).itemsize), re.escape(words)
        with subtests.test(stride=stride), pytest.raises(ValueError, match=f"^Buffer.array: the items {match}$"):
            md.Buffer(64).array(layout, dtype, byte_offset)


def test_no_byte_is_counted_past_64_bits():
    for shape, byte_offset in [(4, 2**63 - 1), (2**40, 2**63 - 8), ((2**30, 2**30), 2**62)]:
        with pytest.raises(ValueError, match=r"2\*\*6[03] bytes or farther") as caught:
            md.Buffer(64).array(shape, "float32", byte_offset)
        assert "-" not in str(caught.value)


def test_no_items_lie_nowhere_whatever_their_strides():
    array = md.Buffer(64).array(md.StridedLayout((0, 3), (1, 2**62), 1), "int4", 64)
    assert (array.shape, array.byte_offset) == ((0, 3), 64)
    with pytest.raises(ValueError, match="bytes 65 to 65, past the Buffer's 64 bytes"):
        md.Buffer(64).array(md.StridedLayout((0, 3), (1, 2**62), 1), "int4", 65)
