"""Strided copies by kernels and blits: private storage, work in flight, streams; NumPy is the oracle."""

import random
import sys
import threading
import time

import numpy as np
import pytest
from children import run_child
from held_work import held

import metal_dlpack as md
from metal_dlpack import softmetal

LATENCY = 0.2

needs_softmetal = pytest.mark.needs_softmetal


@pytest.fixture
def slow_gpu(settings):
    """Every command buffer takes LATENCY seconds."""
    settings(latency_us=int(LATENCY * 1e6))


def read(array):
    return np.array(array)


def random_view(chance, shape, dtype):
    """A private array, what is in it, and a view of both: axes in some order, with gaps, some of them backwards."""
    order = list(range(len(shape)))
    chance.shuffle(order)
    steps = [chance.choice([1, 1, 1, 2, 3, -1, -2]) for _ in shape]
    pads = [chance.choice([0, 0, 1, 3]) for _ in shape]
    whole = [shape[axis] * abs(steps[axis]) + pads[axis] for axis in order]
    key = [slice(None)] * len(shape)
    for axis in order:
        step, end = steps[axis], shape[axis] * abs(steps[axis])
        key[axis] = slice(0, end, step) if step > 0 else slice(end - 1, None, step)
    back = [order.index(axis) for axis in range(len(shape))]
    memory = np.arange(int(np.prod(whole)), dtype="int64").astype(dtype).reshape(whole)
    array = md.asarray(memory).copy(storage="private")
    return array, memory, array.permute(back)[tuple(key)], memory.transpose(back)[(*key, ...)]


@pytest.mark.parametrize("seed", range(4))
def test_strided_copies_between_private_arrays_equal_numpy_s(seed):
    chance = random.Random(seed)
    for _ in range(120):
        shape = [chance.choice([1, 2, 3, 4, 5, 7, 16]) for _ in range(chance.randint(0, 4))]
        dtype = chance.choice(["uint8", "int16", "float32", "float64", "complex128"])
        dst, dst_memory, to, to_mirror = random_view(chance, shape, dtype)
        _, _, part, part_mirror = random_view(chance, shape, dtype)
        assert to.shape == tuple(shape) == to_mirror.shape
        to.copy_from(part)
        to_mirror[...] = part_mirror
        assert (read(dst) == dst_memory).all()


@pytest.mark.parametrize("seed", range(2))
def test_a_program_of_copies_in_flight_equals_its_sequential_result(seed, slow_gpu):
    """Nothing waits in between: each copy finds what those before it have written."""
    softmetal.configure(latency_us="300", seed=str(seed + 1))
    chance = random.Random(seed)
    try:
        mirrors = [np.arange(64, dtype="float32").reshape(8, 8) * (i + 1) for i in range(4)]
        arrays = [
            md.asarray(m).copy(storage=s)
            for m, s in zip(mirrors, ["private", "private", "shared", "managed"], strict=True)
        ]
        streams = [md.Stream(), md.Stream()]
        for _ in range(80):
            to, part = chance.randrange(4), chance.randrange(4)
            key = chance.choice([np.s_[:], np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, ::-1]])
            stream = chance.choice(streams)
            if chance.random() < 0.2:
                value = chance.randint(0, 100)
                with stream:
                    arrays[to][2:4].fill(value)
                mirrors[to][2:4] = value
                continue
            arrays[to].copy_from(arrays[part][key].T, stream=stream)
            mirrors[to][...] = mirrors[part][key].T.copy()
        for array, mirror in zip(arrays, mirrors, strict=True):
            assert (read(array) == mirror).all()
    finally:
        softmetal.configure(seed=None)


@pytest.mark.needs_kernels
@needs_softmetal
def test_a_copy_on_a_stream_does_not_wait(slow_gpu):
    stream = md.Stream()
    src, dst = md.full((64, 64), 3), md.zeros((64, 64))
    dst.copy_from(src.T, stream=stream)  # the kernel is compiled
    stream.synchronize()
    dst.fill(0)
    with held(stream):
        dst.copy_from(src.T, stream=stream)
        src.copy_to(dst, stream=stream.handle)
        with stream:
            dst[1:, ::2] = src[1:, ::2]
            dst[0].fill(7)
    assert dst.tolist() == [[7.0] * 64] + [[3.0] * 64] * 63


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
def test_what_others_can_see_is_done_on_return(slow_gpu):
    """NumPy's view of shared memory does not know of the GPU."""
    private, shared = md.full((4, 4), 5, storage="private"), md.zeros((4, 4))
    seen = np.asarray(shared)
    shared.copy_from(private.T)
    assert (seen == 5).all()
    seen[...] = 6
    private.copy_from(shared)
    seen[...] = 7
    assert (read(private) == 6).all()


@needs_softmetal
def test_private_memory_that_was_given_away_is_done_on_return(slow_gpu):
    a, b = md.zeros((4, 4), storage="private"), md.zeros((4, 4), storage="private")
    assert a.buffer.handle
    for call in (
        lambda: a.fill(1),
        lambda: a.copy_from(b.T),
        lambda: b.copy_from(a.T),
        lambda: a.copy_from(np.zeros((4, 4), "float32")),
    ):
        start = time.perf_counter()
        call()
        assert time.perf_counter() - start >= LATENCY


@needs_softmetal
@pytest.mark.parametrize("what", ["library", "pipeline"])
def test_kernels_that_metal_refuses_are_an_error_and_asked_for_again(what):
    program = """
        import metal_dlpack as md
        from metal_dlpack import softmetal
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


def test_any_range_of_bytes_of_private_storage_is_read_and_written():
    chance, size = random.Random(3), 24
    buffer, mirror = md.Buffer(size, storage="private"), bytearray(size)
    buffer.fill(0)
    for step in range(300):
        first = chance.randrange(size)
        last = chance.randrange(first, size)
        view = buffer.array((last - first + 1,), "uint8", first)
        if step % 3 == 0:
            mirror[first : last + 1] = new = chance.randbytes(last - first + 1)
            view.copy_from(new)
        elif step % 3 == 1:
            view[::3].fill(step % 256)
            mirror[first : last + 1 : 3] = bytes([step % 256]) * len(mirror[first : last + 1 : 3])
        host = bytearray(size)
        buffer.copy_to(host)
        assert host == mirror and bytes(view.tolist()) == mirror[first : last + 1], step


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
