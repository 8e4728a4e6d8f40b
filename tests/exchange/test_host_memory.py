"""CPU memory as Metal arrays without a copy: every kind of owner, a GiB, and reasons where it cannot be."""

import array
import ctypes
import gc
import mmap
import os
import random
import time

import numpy as np
import pytest

import metal_dlpack as md

GIB = 1 << 30


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def numpy_array():
    return np.arange(999, dtype=np.float32)[3:]


def torch_tensor():
    import torch

    return torch.arange(999, dtype=torch.float32)[3:]


def jax_array():
    import jax.numpy as jnp

    return jnp.arange(999, dtype=jnp.float32)


def mlx_array():
    import mlx.core as mx

    made = mx.arange(999, dtype=mx.float32)
    mx.eval(made)
    return made


def anonymous_map():
    memory = mmap.mmap(-1, 4 * 999)
    memory[:] = np.arange(999, dtype=np.float32).tobytes()
    return memory


OWNERS = {
    "numpy": (numpy_array, False),
    "numpy, strided": (lambda: np.arange(999, dtype=np.float32)[::-3], False),
    "bytearray": (lambda: bytearray(range(256)), False),
    "bytes": (lambda: bytes(range(256)), True),
    "mmap": (anonymous_map, False),
    "array.array": (lambda: array.array("d", range(99)), False),
    "memoryview": (lambda: memoryview(bytearray(range(99)))[5:], False),
    "numpy, read-only": (lambda: np.frombuffer(bytes(range(99)), np.uint8), True),
}


def test_memory_of_every_owner_is_shared(subtests):
    for name in OWNERS:
        with subtests.test(name=name):
            make, is_readonly = OWNERS[name]
            owner = make()
            a = md.asarray(owner, copy=False)
            expected = owner if isinstance(owner, np.ndarray) else np.frombuffer(owner, a.dtype.numpy)
            assert a.readonly is is_readonly
            assert np.asarray(a).__array_interface__["data"][0] == expected.__array_interface__["data"][0], (
                "the same bytes"
            )
            assert np.array_equal(np.asarray(a), expected)
            if not is_readonly:
                a[...] = 1
                assert (expected == 1).all()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(torch_tensor, marks=pytest.mark.needs_torch),
        pytest.param(jax_array, marks=pytest.mark.needs_jax),
        pytest.param(mlx_array, marks=pytest.mark.needs_mlx),
    ],
)
@pytest.mark.parametrize("take", [md.asarray, md.from_dlpack])
def test_memory_of_every_framework_is_shared(take, make):
    owner = make()
    a, again = take(owner, copy=False), take(owner, copy=False)
    assert a.shape == tuple(owner.shape)
    assert a.tolist() == owner.tolist()
    assert md.shares_memory(a, again), "both lie on the owner's memory"


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="counts resident pages by /proc")
def test_a_gib_is_shared_in_microseconds_and_none_of_it_is_read():
    x = np.empty(GIB // 4, np.float32)  # no page of it is there yet
    md.from_dlpack(np.empty(9), copy=False)
    before = resident_bytes()
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        a = md.from_dlpack(x, copy=False)
        times.append(time.perf_counter() - begin)
        assert a.nbytes == GIB
        del a
    gc.collect()
    a = md.asarray(x, copy=False)
    assert min(times) < 200e-6
    assert resident_bytes() - before < 8 << 20
    a[GIB // 4 - 1] = 5
    assert x[-1] == 5


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32), "alignment"),
        (np.arange(9, dtype=">f4"), "byte order"),
    ],
    ids=["alignment", "byte order"],
)
def test_what_cannot_be_shared_is_refused_with_the_reason(source, words):
    with pytest.raises((BufferError, ValueError, TypeError), match=words):
        md.asarray(source, copy=False)


def test_explain_names_the_reason_too():
    source = np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32)
    assert "alignment" in str(md.explain(source)) or "aligned" in str(md.explain(source))


@pytest.mark.parametrize("take", [md.asarray, md.from_dlpack])
def test_a_host_view_is_the_array_s_own_buffer_again(take):
    a = md.zeros((3, 4))[1:, ::2]
    for source in (a, a.as_readonly()):
        b = take(source.host)
        assert b.buffer.handle == a.buffer.handle
        assert (b.shape, b.strides, b.byte_offset, b.readonly) == (a.shape, a.strides, a.byte_offset, source.readonly)
    assert take(a.host, copy=True).buffer.handle != a.buffer.handle


def torch_view(a):
    import torch

    return torch.from_dlpack(a.host)


VIEWS = {
    "numpy": np.asarray,
    "numpy by DLPack": lambda a: np.from_dlpack(a.host),
    "memoryview": memoryview,
    "torch": pytest.param(torch_view, marks=pytest.mark.needs_torch),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_what_others_see_of_an_array_is_its_own_buffer_again(view, live_buffers):
    a = md.asarray(np.arange(24, dtype="float32").reshape(4, 6)).copy()
    b = md.asarray(view(a), copy=False)
    assert b.buffer.handle == a.buffer.handle
    assert (b.tolist(), b.byte_offset) == (a.tolist(), a.byte_offset)
    seen = np.asarray(b)
    c = md.asarray(seen[1:, ::2], copy=False)
    assert (c.buffer.handle, c.shape, c.byte_offset) == (a.buffer.handle, (3, 3), 24)
    seen.flags.writeable = False
    assert md.from_dlpack(seen, copy=False).readonly
    before = live_buffers()
    del a, b, seen
    assert live_buffers() == before, "the part keeps the whole"
    assert c.tolist() == [[6, 8, 10], [12, 14, 16], [18, 20, 22]]


@pytest.mark.parametrize("first", [0, 8])
def test_memory_that_reaches_past_the_items_of_an_array_is_not_its(first):
    """1000 bytes lie in a buffer of 1024."""
    a = md.zeros(1000, "uint8")
    for end in (1000, 1001, 1024, 1025):
        seen = (ctypes.c_uint8 * (end - first)).from_address(a.buffer.address + first)
        assert (md.asarray(seen, copy=False).buffer.handle == a.buffer.handle) is (end == 1000), end


def test_among_many_buffers_the_one_that_holds_the_address_is_found(live_buffers):
    rng = random.Random(11)
    arrays = {}
    for step in range(3000):
        if len(arrays) < 300 or rng.random() < 0.5:
            arrays[step] = md.empty(rng.choice((1, 3, 100, 4096, 70_000)), "uint8")
        else:
            del arrays[rng.choice(list(arrays))]
        if step % 500 == 499:
            md.empty_cache()
        array = arrays[rng.choice(list(arrays))]
        start = rng.randrange(array.size)
        part = md.asarray(np.asarray(array)[start:], copy=False)
        assert (part.buffer.handle, part.byte_offset) == (array.buffer.handle, start)
    outside = np.zeros(100)
    assert md.asarray(outside, copy=False).buffer.handle not in {a.buffer.handle for a in arrays.values()}


@pytest.mark.needs_softmetal
def test_work_in_flight_is_known_through_host_views_and_buffers(settings):
    source, stream = md.full(1000, 3), md.Stream()
    for view in (
        lambda a: md.asarray(a.host),
        lambda a: md.asarray(a.buffer).view("float32"),
        lambda a: md.asarray(np.asarray(a)),
    ):
        a = md.zeros(1000)
        b = view(a)
        settings(latency_us=50_000)
        b.copy_from(source, stream=stream)
        assert set(a.tolist()) == {3.0}, "the reader waits for work that was given through the other"
        settings(latency_us=0)


def test_a_buffer_is_an_array_of_its_bytes():
    for buffer in (md.Buffer(6), md.Buffer(6, storage="private"), md.Buffer.from_host(bytearray(6))):
        buffer.copy_from(b"abcdef")
        a = md.asarray(buffer, copy=False)
        assert a.buffer.handle == buffer.handle
        assert (bytes(a.tolist()), a.storage, a.dtype) == (b"abcdef", buffer.storage, md.uint8)
        assert md.asarray(buffer, copy=True).buffer.handle != buffer.handle
    assert md.asarray(md.Buffer.from_host(b"abc")).readonly
    assert md.asarray(md.Buffer(0)).shape == (0,)
    closed = md.Buffer(4)
    closed.close()
    with pytest.raises(ValueError, match="asarray: the Buffer is closed"):
        md.asarray(closed)
