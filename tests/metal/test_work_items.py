"""Strided copies by kernels and blits: who waits, what Metal refuses, bytes beside each other, what is left."""

import sys
import threading

import numpy as np
import pytest
from children import run_child
from held_work import held

import metal_dlpack as md

LATENCY = 0.2

needs_softmetal = pytest.mark.needs_softmetal


@pytest.fixture
def slow_gpu(settings):
    """Every command buffer takes LATENCY seconds."""
    settings(latency_us=int(LATENCY * 1e6))


def read(array):
    return np.array(array)


@pytest.mark.needs_kernels
@needs_softmetal
def test_private_copies_do_not_wait_and_readers_do(slow_gpu):
    a, b = md.zeros((32, 32), storage="private"), md.zeros((32, 32), storage="private")
    a.copy_from(b.T)
    values = np.arange(1024, dtype="float32").reshape(32, 32)
    with held(md.current_stream()):
        a.copy_from(values)  # by way of memory of its own: `values` may change at once
        values[...] = 0
        b.copy_from(a.T)
        a.fill(1)
    assert (read(b) == np.arange(1024).reshape(32, 32).T).all()
    assert (read(a) == 1).all()


@needs_softmetal
@pytest.mark.parametrize("what", ["library", "pipeline"])
def test_kernels_that_metal_refuses_are_an_error_and_asked_for_again(what):
    program = """
        import metal_dlpack as md
        import softmetal
        a, b = md.zeros((3, 4), "int16", storage="private"), md.zeros((4, 3), "int16", storage="private")
        for call in (lambda: b.copy_from(a.T), lambda: b[:, 1].fill(5), b.T.copy):
            try:
                call()
            except md.MetalError as error:
                assert "could not compile a kernel" in str(error), error
            else:
                raise SystemExit("no error")
        softmetal.configure(fail=None)
        b[:, 1].fill(5)
        assert b.tolist() == [[0, 5, 0]] * 4
    """
    done = run_child(program, SOFTMETAL_FAIL=f"{what}@1+")
    assert done.returncode == 0, done.stderr


def test_single_bytes_beside_each_other_belong_to_their_threads():
    """No thread writes back what lies beside its items; managed and shared storage are the CPU's own memory."""
    array, is_over, seen = md.zeros(8, "uint8", storage="private"), threading.Event(), []

    def write_there():
        there, number = array[1], 0
        while not is_over.is_set():
            number += 1
            there.fill(number % 256)
            seen.append(there.item() == number % 256)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=write_there)
    thread.start()
    try:
        for number in range(200):
            array[2].copy_from(np.uint8(number % 256))
            assert array[2].item() == number % 256
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(before)
    assert seen and all(seen)


def test_nothing_of_a_copy_is_left(live_buffers):
    a, b = md.zeros((8, 8), storage="private"), md.zeros((8, 8), storage="private")
    before = live_buffers()
    for _ in range(20):
        a.copy_from(b.T)
        a.copy_from(a.T)
        a.copy_from(np.zeros((8, 8), "float32"))
        a.copy_to(np.zeros((8, 8), "float32"))
    read(a)
    assert live_buffers() == before


def test_two_buffers_over_the_same_bytes_are_copied_by_way_of_a_third():
    pages = np.zeros(2 * 4096, "float32")  # the first whole page of 16 KiB, and what is behind it
    memory = pages[-pages.ctypes.data % 16384 // 4 :][:4096]
    memory[:] = np.arange(4096)
    source, target = (md.asarray(memory, copy=False) for _ in range(2))
    assert source.buffer.handle != target.buffer.handle
    stream = md.Stream()
    target.copy_from(source[::-1], stream=stream)
    stream.synchronize()
    assert memory.tolist() == list(range(4096))[::-1]
