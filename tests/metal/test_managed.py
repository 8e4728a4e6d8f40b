"""Managed storage under threads: two copies of the bytes, and a way between them that carries the whole buffer.

Nothing is lost but what two threads write, or write and read, without an order and at the same items.
"""

import ctypes
import gc
import pickle
import sys
import threading
import time

import numpy as np
import pytest
from objc_messages import gpu_fill

import metal_dlpack as md

pytestmark = pytest.mark.needs_softmetal
SECONDS = 1.5


@pytest.fixture
def without_validation(settings):
    """The race detector knows spans of bytes: items between others, and views of a whole array, look like races."""
    settings(validation=False)


@pytest.fixture(autouse=True)
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Others:
    """Threads that call their functions again and again until the end of the block."""

    def __init__(self, *functions):
        self.is_over = False
        self.failures = []
        self.threads = [threading.Thread(target=self.repeat, args=(function,)) for function in functions]

    def repeat(self, function):
        try:
            while not self.is_over:
                function()
        except Exception as failure:
            self.failures.append(failure)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *raised):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        assert not self.failures


def rounds():
    end, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        number += 1
        yield number


def read(array):
    return array.tolist()


@pytest.mark.parametrize("latency_us", [0, 100])
def test_a_finished_gpu_write_is_seen_whoever_else_reads(settings, latency_us):
    settings(latency_us=latency_us)
    array, stream = md.zeros(1000, "int32", storage="managed"), md.Stream()
    low, high, one = array[:2], array[500:], array[700]
    with Others(lambda: read(low), lambda: read(low)):
        for number in rounds():
            high.fill(number, stream=stream)
            stream.synchronize()
            assert one.item() == number


WRITES = {
    "fill": lambda array, number: array.fill(number),
    "copy_from NumPy": lambda array, number: array.copy_from(np.full(array.shape, number, "int32")),
    "copy_from an Array": lambda array, number: array.copy_from(md.full(array.shape, number, "int32")),
    "an assignment that converts": lambda array, number: array.__setitem__(..., np.full(array.shape, number, "int64")),
    "assignments of items": lambda array, number: [array.__setitem__(i, number) for i in range(len(array))],
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("key", [slice(0, 4), slice(0, 40, 10)], ids=["a row", "between the others"])
def test_a_write_of_one_thread_is_not_lost_to_the_writes_of_another(write, key, request):
    if key.step:
        request.getfixturevalue("without_validation")
    array, stream = md.zeros(1000, "int32", storage="managed"), md.Stream()
    mine, theirs, read_often = array[key], array[1:40:10] if key.step else array[500:], array[6]
    count = [0]

    def write_theirs():
        count[0] += 1
        theirs.fill(count[0] % 1000, stream=stream)
        if count[0] % 3 == 0:
            stream.synchronize()

    with Others(write_theirs, read_often.item):
        for number in rounds():
            WRITES[write](mine, number)
            assert mine.tolist() == [number] * 4
    stream.synchronize()
    assert theirs.tolist() == [count[0] % 1000] * len(theirs)


def test_bytes_of_a_buffer_are_not_lost_to_those_beside_them():
    buffer = md.Buffer(64, storage="managed")
    beside = buffer.array((8,), "uint8", 3)
    count = [0]

    def write_beside():
        count[0] = (count[0] + 1) % 256
        beside.fill(count[0])
        assert beside.tolist() == [count[0]] * 8

    host = bytearray(3)
    with Others(write_beside):
        for number in rounds():
            expected = bytes([number % 256] * 3)
            buffer.copy_from(expected)
            buffer.copy_to(host)
            assert host == expected


def test_a_view_that_goes_out_while_others_read_keeps_what_is_written_through_it(without_validation):
    """A synchronisation that began before the view must not land after it."""
    array, stream = md.zeros(1000, "int32", storage="managed"), md.Stream()
    low, one = array[:2], array[900]
    with Others(lambda: read(low), lambda: read(low)):
        for number in rounds():
            array[500:800].fill(number, stream=stream)
            stream.synchronize()
            view = np.asarray(array)
            view[900] = number
            assert view[900] == number
            assert view[700] == number
            del view
            assert one.item() == number
            assert array[700].item() == number


def test_gpu_writes_of_another_thread_survive_a_view_that_comes_and_goes(without_validation):
    array, stream = md.zeros(1000, "int32", storage="managed"), md.Stream()
    high, one = array[500:], array[700]

    def look():
        view = np.asarray(array)
        view.sum()
        del view

    with Others(look):
        for number in rounds():
            high.fill(number, stream=stream)
            stream.synchronize()
            assert one.item() == number


@pytest.mark.parametrize("storage", ["private", "managed"])
def test_single_bytes_beside_each_other_belong_to_their_threads(storage):
    array = md.zeros(8, "uint8", storage=storage)
    there = array[1]

    def write_there():
        there.fill(5)
        assert there.item() == 5
        there.fill(6)
        assert there.item() == 6

    with Others(write_there):
        for number in rounds():
            array[2].copy_from(np.uint8(number % 256))
            assert array[2].item() == number % 256


# ---- a read-only view that was made earlier ----


def fresh(dtype="int32"):
    return md.zeros(64, dtype, storage="managed")


def exported(array):
    """As a consumer sees it that keeps the flag: read-only."""
    view = np.from_dlpack(array.host)
    assert not view.flags.writeable
    return view


#: Of a writable Array: what shows the same 64 items, or some of them, and cannot write.
READONLY_VIEWS = {
    "NumPy": lambda array: np.asarray(array.as_readonly()),
    "NumPy, every second item": lambda array: np.asarray(array.as_readonly()[::2]),
    "NumPy, backwards": lambda array: np.asarray(array[::-1].as_readonly()),
    "NumPy, broadcast": lambda array: np.asarray(array.broadcast_to((3, 64))),
    "NumPy, a view of a view": lambda array: np.asarray(array.as_readonly())[1:].view("uint32"),
    "NumPy, of bytes": lambda array: np.frombuffer(array.as_readonly(), "int32"),
    "memoryview": lambda array: memoryview(array.as_readonly()),
    "memoryview of the host view": lambda array: memoryview(array.as_readonly().host),
    "PickleBuffer": lambda array: memoryview(pickle.PickleBuffer(array.as_readonly())),
    "DLPack": lambda array: exported(array.as_readonly()),
    "DLPack, from the device": lambda array: np.from_dlpack(array.as_readonly(), device="cpu"),
    "the handle's Array": lambda array: np.asarray(
        md.Buffer.from_handle(array.buffer.handle).array((64,), "int32").as_readonly()
    ),
}
GPU_WRITES = {
    "fill": lambda array, stream: array.fill(7, stream=stream),
    "copy_from an Array": lambda array, stream: array.copy_from(md.full(64, 7, "int32"), stream=stream),
    "copy_from NumPy": lambda array, stream: array.copy_from(np.full(64, 7, "int32"), stream=stream),
    "copy_to": lambda array, stream: md.full(64, 7, "int32", storage="private").copy_to(array, stream=stream),
    "a fill in parts": lambda array, stream: [array[i : i + 16].fill(7, stream=stream) for i in range(0, 64, 16)],
}


def numbers_of(view):
    return set(np.asarray(view).ravel().tolist())


@pytest.mark.parametrize("make", READONLY_VIEWS.values(), ids=READONLY_VIEWS)
@pytest.mark.parametrize("latency_us", [0, 2000])
def test_a_read_only_view_made_earlier_sees_what_the_gpu_writes(make, latency_us, settings):
    settings(latency_us=latency_us)
    array, stream = fresh(), md.Stream()
    view = make(array)
    assert numbers_of(view) == {0}
    array.fill(7, stream=stream)
    stream.synchronize()
    assert numbers_of(view) == {7}
    array.fill(8)  # on the CPU's copy or the GPU's, as it likes
    assert numbers_of(view) == {8}


@pytest.mark.parametrize("write", GPU_WRITES.values(), ids=GPU_WRITES)
def test_whatever_writes_on_the_gpu_brings_a_read_only_view_along(write):
    array, stream = fresh(), md.Stream()
    view = np.asarray(array.as_readonly())
    write(array, stream)
    stream.synchronize()
    assert numbers_of(view) == {7}


def test_a_view_of_numbers_that_numpy_lacks_is_brought_along():
    array, stream = fresh("bfloat16"), md.Stream()
    view = np.asarray(array.as_readonly())
    array.fill(7, stream=stream)
    stream.synchronize()
    assert view.tolist() == [7] * 64


@pytest.mark.needs_kernels
def test_a_kernel_brings_a_read_only_view_along():
    library = md.Library("kernel void seven(device int *x, uint i [[thread_position_in_grid]]) { x[i] = 7; }")
    array, stream = fresh(), md.Stream()
    view = np.asarray(array.as_readonly())
    library["seven"](array, n=64, stream=stream)
    stream.synchronize()
    assert numbers_of(view) == {7}


def test_foreign_gpu_work_that_a_stream_waits_for_brings_a_read_only_view_along():
    """`stream.wait(event)` says nothing of buffers; from_dlpack(stream=) does, for a producer that names a moment."""
    array, stream = fresh(), md.Stream()
    view = np.asarray(array.as_readonly())

    class Theirs:
        def __dlpack__(self, **keywords):
            return array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

        def __metal_stream__(self):
            return other.__metal_stream__()

    other = md.Stream()
    gpu_fill(array.buffer.handle, 1, 256, queue=other.handle)
    md.from_dlpack(Theirs(), stream=stream)
    stream.synchronize()
    assert numbers_of(view) == {0x01010101}


def test_a_read_only_view_that_is_made_while_the_gpu_writes_misses_nothing(settings, without_validation):
    """Each write comes before the view, which waits for it, or knows of the view."""
    settings(latency_us=50)
    array, stream, count = fresh(), md.Stream(), [0]

    def write():
        count[0] += 1
        array.fill(count[0], stream=stream)

    for _ in rounds():
        with Others(write):
            views = [np.asarray(array.as_readonly()) for _ in range(3)]
        stream.synchronize()
        assert [numbers_of(view) for view in views] == [{count[0]}] * 3


def test_read_only_views_beside_a_writable_one_lose_none_of_its_writes():
    array, result, stream = fresh(), fresh(), md.Stream()
    reader, writer = np.asarray(array.as_readonly()), np.asarray(array)
    array[:32].fill(7, stream=stream)
    stream.synchronize()
    writer[32:] = 8
    del reader
    result.copy_from(array, stream=stream)
    assert result.tolist() == [7] * 32 + [8] * 32
    reader = np.asarray(array.as_readonly())
    del writer
    array[:32].fill(9, stream=stream)
    stream.synchronize()
    assert reader.tolist() == [9] * 32 + [8] * 32


@pytest.mark.parametrize("make", [READONLY_VIEWS["NumPy"], READONLY_VIEWS["DLPack"]], ids=["NumPy", "DLPack"])
def test_a_read_only_view_undoes_nothing_that_foreign_gpu_work_writes(make):
    """A writable view counts all bytes as written by the CPU, which a read-only one must not."""
    array, result = fresh(), fresh()
    handle, view = array.buffer.handle, make(array)
    gpu_fill(handle, 1, 256)
    result.copy_from(array, stream=md.Stream())
    assert numbers_of(result) == {0x01010101}
    assert numbers_of(array) == {0x01010101}
    assert numbers_of(view) == {0x01010101}, "whoever reads the Array brings all of its views along"


def is_brought_along(array, stream) -> bool:
    """Does GPU work bring the CPU's copy along?  A look at the address, which makes nothing current."""
    array.fill(0)
    assert numbers_of(array) == {0}
    array.fill(7, stream=stream)
    stream.synchronize()
    return set(ctypes.string_at(array.buffer.address, array.nbytes)) != {0}


@pytest.mark.parametrize("name", [name for name in READONLY_VIEWS if "DLPack" not in name])
def test_a_view_that_is_gone_costs_gpu_work_nothing(name):
    """But for an export by DLPack, which counts until the buffer is gone."""
    array, stream = fresh(), md.Stream()
    assert not is_brought_along(array, stream)
    view = READONLY_VIEWS[name](array)
    assert is_brought_along(array, stream)
    del view
    gc.collect()
    assert not is_brought_along(array, stream)


def test_a_view_that_could_not_be_made_is_not_counted(settings):
    array, stream = fresh(), md.Stream()
    settings(fail="commit@1=3")
    array.fill(1, stream=stream)
    settings(fail=None)
    with pytest.raises(md.MetalError, match="PageFault"):
        memoryview(array.as_readonly())
    array.fill(2, stream=stream)
    stream.synchronize()
    settings(fail="commit@1=3")  # the synchronisation
    with pytest.raises(md.MetalError, match="PageFault"):
        memoryview(array.as_readonly())
    settings(fail=None)
    assert not is_brought_along(array, stream)


@pytest.mark.parametrize("make", [READONLY_VIEWS["NumPy"], READONLY_VIEWS["DLPack"]], ids=["NumPy", "DLPack"])
def test_a_buffer_comes_from_the_pool_without_the_views_of_its_last_owner(make):
    array, stream = fresh(), md.Stream()
    address = array.buffer.address
    view = make(array)
    del array, view
    gc.collect()
    again = fresh()
    assert again.buffer.address == address
    assert not is_brought_along(again, stream)
