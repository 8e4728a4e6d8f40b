"""CPU memory as Metal buffers without a copy: whose, which bytes, who may write, how long, and what is refused."""

import array
import ctypes
import gc
import mmap
import os
import random
import time
import weakref

import numpy as np
import pytest
from children import output_of

import metal_dlpack as md

GIB = 1 << 30
PAGE = mmap.PAGESIZE


def bytes_of(buffer):
    with memoryview(buffer) as view:
        return view.tobytes()


def anonymous_map():
    memory = mmap.mmap(-1, 3 * PAGE)
    memory[:] = bytes(i % 251 for i in range(3 * PAGE))
    return memory


def numpys_place(x):
    return x.__array_interface__["data"][0]


def address_of(owner):
    return numpys_place(np.frombuffer(owner, np.uint8))


SOURCES = {
    "bytearray": lambda: bytearray(range(200)),
    "bytes": lambda: bytes(range(200)),
    "memoryview": lambda: memoryview(bytearray(range(200)))[7:90],
    "array.array": lambda: array.array("d", range(99)),
    "numpy": lambda: np.arange(5000, dtype=np.int16)[3:],
    "numpy, read-only": lambda: np.frombuffer(bytes(range(99)), np.uint8),
    "pages": anonymous_map,
}
#: Elements that an Array has not.
ONLY_BYTES = {
    "numpy, byte-swapped": lambda: np.arange(50, dtype=">i4"),
    "numpy, structured": lambda: np.ones(50, [("a", "i4"), ("b", "f8")]),
}


def test_memory_of_every_owner_is_shared_and_begins_at_the_offset(subtests):
    for name, make in (SOURCES | ONLY_BYTES).items():
        with subtests.test(name=name):
            owner = make()
            with memoryview(owner) as view:
                expected, is_readonly = view.tobytes(), view.readonly
            buffer = md.Buffer.from_host(owner)
            assert buffer.address % PAGE == 0
            assert buffer.address + buffer.offset == address_of(owner)
            assert buffer.size == buffer.offset + len(expected)
            assert (buffer.storage, buffer.label) == ("shared", None)
            assert bytes_of(buffer) == expected
            items = buffer.array(len(expected), "uint8")
            assert items.byte_offset == buffer.offset
            assert bytes(items.tolist()) == expected
            assert items.readonly is memoryview(buffer).readonly is is_readonly
            assert buffer.owner is (owner.obj if isinstance(owner, memoryview) else owner)
            if name in ONLY_BYTES:
                continue
            a = md.asarray(owner, copy=False)
            seen = np.asarray(a)
            assert (a.readonly, numpys_place(seen), seen.tobytes()) == (is_readonly, address_of(owner), expected)
            if not is_readonly:
                a[...] = 1
                assert set(np.frombuffer(owner, seen.dtype)) == {1}


def test_random_views_give_the_bytes_from_the_lowest_to_the_highest_item():
    rng = random.Random(5)
    base = np.arange(7 * 8 * 9, dtype=np.int32).reshape(7, 8, 9)
    begin = numpys_place(base)
    for _ in range(300):
        key = tuple(slice(rng.choice([None, 0, 2, 5]), None, rng.choice([1, 2, -1, -3])) for _ in range(3))
        view = base[key].transpose(rng.sample(range(3), 3))
        places = {int(item) * 4 + byte for item in view.flat for byte in range(4)}
        buffer = md.Buffer.from_host(view)
        if not places:
            assert buffer.size == 0
            continue
        first, end = min(places), max(places) + 1
        assert buffer.address + buffer.offset == begin + first
        assert buffer.size - buffer.offset == end - first
        assert bytes_of(buffer) == base.tobytes()[first:end]


def test_the_neighbours_on_the_page_are_never_touched():
    memory = mmap.mmap(-1, PAGE)
    memory[:] = b"n" * PAGE
    with memoryview(memory) as whole, whole[100:200] as part:
        buffer = md.Buffer.from_host(part)
        buffer.fill(7)
        buffer.copy_from(b"abc")
        buffer.array(10, "uint8", byte_offset=buffer.offset + 50).fill(9)
        got = bytearray(4)
        buffer.copy_to(got)
        assert got == b"abc\x07"
        with pytest.raises(ValueError, match=r"101 bytes do not fit in the Buffer's 100 bytes"):
            buffer.copy_from(bytes(101))
        with pytest.raises(ValueError, match=r"begin at byte 99, and the bytes before 100 .* count byte_offset from"):
            buffer.array(10, "uint8", byte_offset=99)
        with pytest.raises(ValueError, match="past the Buffer's 200 bytes"):
            buffer.array(10, "uint8", byte_offset=191)
        with pytest.raises(ValueError, match="before 100"):
            buffer.array(md.StridedLayout((5,), (-1,), 1), "uint8", 101)
        wrapped = md.asarray(part, copy=False).buffer
        wrapped.fill(8)
        buffer.close()
        del wrapped
    expected = b"n" * 100 + b"\x08" * 100 + b"n" * (PAGE - 200)
    assert memory[:] == expected


def test_memory_is_writable_as_it_is_asked_for_and_never_where_it_is_read_only():
    for writable in (None, True, False):
        owner = bytearray(16)
        buffer = md.Buffer.from_host(owner, writable=writable)
        a = buffer.array(16, "uint8")
        assert a.readonly is memoryview(buffer).readonly is (writable is False)
        if writable is False:
            for write in (lambda b=buffer: b.fill(1), lambda a=a: a.fill(1)):
                with pytest.raises(ValueError, match="read-only"):
                    write()
        else:
            a[3] = 5
            assert owner[3] == 5
    for owner in (b"abc", np.frombuffer(b"abc", np.uint8)):
        for writable in (None, False):
            assert md.Buffer.from_host(owner, writable=writable).array(3, "uint8").readonly
        with pytest.raises(md.CopyRequiredError, match=r"read-only, and writable=True .* asarray\(x, copy=True\)"):
            md.Buffer.from_host(owner, writable=True)
    with pytest.raises(TypeError, match="writable must be True, False or None"):
        md.Buffer.from_host(b"abc", writable=1)


def test_the_owner_stays_and_stays_in_place_until_the_last_user_is_gone():
    owner = bytearray(100)
    buffer = md.Buffer.from_host(owner)
    view = buffer.array(25)
    with pytest.raises(BufferError):
        owner.append(1)
    with pytest.raises(BufferError, match="1 arrays"):
        buffer.close()
    exported = np.from_dlpack(view.host)
    del view
    with pytest.raises(BufferError):
        buffer.close()
    del exported
    gc.collect()
    buffer.close()
    owner.append(1)

    class Owner(bytearray):
        pass

    owner = Owner(64)
    alive = weakref.ref(owner)
    a = md.Buffer.from_host(owner).array(4)
    del owner
    gc.collect()
    assert alive() is not None
    del a
    gc.collect()
    assert alive() is None


def test_no_bytes_make_an_empty_buffer():
    buffer = md.Buffer.from_host(b"")
    assert (buffer.size, buffer.offset, bytes_of(buffer)) == (0, 0, b"")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="counts resident pages by /proc")
def test_a_gib_is_shared_as_fast_as_two_pages_and_none_of_it_is_read():
    def resident_bytes():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE

    def fastest(x):
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            a = md.from_dlpack(x, copy=False)
            times.append(time.perf_counter() - begin)
            assert a.nbytes == x.nbytes
            del a
        return min(times)

    x = np.empty(GIB // 4, np.float32)  # no page of it is there yet
    small = fastest(np.empty(2 * PAGE // 4, np.float32))
    before = resident_bytes()
    assert fastest(x) < 20 * small  # a GiB that is read or copied takes ten thousand times as long
    gc.collect()
    a = md.asarray(x, copy=False)
    assert resident_bytes() - before < 8 << 20
    a[GIB // 4 - 1] = 5
    assert x[-1] == 5


# ---- what is refused ----


def share(x):
    return md.asarray(x, copy=False)


def strided(*arguments):
    return np.lib.stride_tricks.as_strided(np.zeros(1, "u1"), *arguments)


def misaligned():
    return np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32)


REFUSED = {
    "alignment": (share, misaligned, BufferError, "alignment"),
    "byte order": (share, lambda: np.arange(9, dtype=">f4"), ValueError, "byte order"),
    "number": (md.Buffer.from_host, lambda: 5, TypeError, "int has no memory to share"),
    "list": (md.Buffer.from_host, lambda: [1.0], TypeError, "list has no memory to share"),
    "array": (md.Buffer.from_host, lambda: md.zeros(3), TypeError, "Metal memory already"),
    "buffer": (md.Buffer.from_host, lambda: md.Buffer(3), TypeError, "Metal memory already"),
    "host view": (md.Buffer.from_host, lambda: md.zeros(3).host, TypeError, "Metal memory already"),
    "objects": (md.Buffer.from_host, lambda: np.array([object()]), TypeError, "Python objects"),
    "dates": (md.Buffer.from_host, lambda: np.zeros(3, "M8[s]"), BufferError, r"x\.view\('int64'\)"),
    "past 64 bits": (md.Buffer.from_host, lambda: strided((5,), (2**62,)), BufferError, r"2\*\*63 bytes or farther"),
    "past 64 bits together": (
        md.Buffer.from_host,
        lambda: strided((2, 2), (2**62, 2**62)),
        BufferError,
        r"^Buffer.from_host: .*2\*\*63 bytes or farther",
    ),
    "past 64 bits downward": (
        md.Buffer.from_host,
        lambda: strided((4, 2), (-(2**62), -(2**62))),
        BufferError,
        r"2\*\*63 bytes or farther",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shared_is_refused_with_the_reason(name):
    take, make, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        take(make())


TOO_LONG = """
import mmap, numpy as np, metal_dlpack as md
limit = md.default_device().max_buffer_length
assert limit == 262144, limit
fits = np.frombuffer(mmap.mmap(-1, limit), np.uint8)
over = np.frombuffer(mmap.mmap(-1, 2 * limit), np.float32)[8:][: limit // 4 - 1]  # too long with its pages
for take in (md.asarray, md.from_dlpack):
    assert take(fits, copy=False).nbytes == limit
    for source in (over, np.zeros(limit, np.float64)):
        try:
            take(source, copy=False)
        except md.CopyRequiredError as error:
            assert f"({source.nbytes} bytes" in str(error) and "max_buffer_length (262144 bytes)" in str(error), error
        else:
            raise SystemExit("taken")
assert md.explain(fits).outcome == "zero-copy"
said = md.explain(over)
assert said.outcome == "copy" and str(over.nbytes) in str(said), said
assert md.asarray(over).buffer.owner is None, "copied"
assert md.Buffer.from_host(fits).size == limit
try:
    md.Buffer.from_host(over)
except md.CopyRequiredError as error:
    print(error)
try:
    md.asarray(np.zeros(limit, np.float64))
except MemoryError as error:
    print(error)
"""


@pytest.mark.needs_softmetal
def test_what_is_longer_than_a_buffer_is_refused_with_both_lengths():
    said = output_of(TOO_LONG, SOFTMETAL_MAX_BUFFER_LENGTH="262144")
    assert "Buffer.from_host: the memory cannot be shared with Metal: its whole pages (26214" in said
    long = ": 2097152 bytes are more than one buffer of the device can hold (max_buffer_length is 262144 bytes)"
    assert long in said


# ---- our memory that comes back: test_peers.py has every road ----


@pytest.mark.parametrize("take", [md.asarray, md.from_dlpack])
def test_a_host_view_is_the_array_s_own_buffer_again(take):
    a = md.zeros((3, 4))[1:, ::2]
    for source in (a, a.as_readonly()):
        b = take(source.host)
        assert b.buffer.handle == a.buffer.handle
        assert (b.shape, b.strides, b.byte_offset, b.readonly) == (a.shape, a.strides, a.byte_offset, source.readonly)
    assert take(a.host, copy=True).buffer.handle != a.buffer.handle


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
        a = arrays[rng.choice(list(arrays))]
        start = rng.randrange(a.size)
        part = md.asarray(np.asarray(a)[start:], copy=False)
        assert (part.buffer.handle, part.byte_offset) == (a.buffer.handle, start)
    outside = np.zeros(100)
    assert md.asarray(outside, copy=False).buffer.handle not in {a.buffer.handle for a in arrays.values()}


@pytest.mark.needs_softmetal
def test_work_in_flight_is_known_through_host_views_and_buffers(settings):
    source, stream = md.full(1000, 3.0), md.Stream()
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
