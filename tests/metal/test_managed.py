"""Managed storage under threads: two copies of the bytes, and a way between them that carries the whole buffer.

Nothing is lost but what two threads write, or write and read, without an order and at the same items.
"""

import sys
import threading
import time

import numpy as np
import pytest

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
