"""Buffer.from_host: whose memory, which bytes, who may write, what is refused."""

import array
import gc
import mmap
import os
import random
import subprocess
import sys
import weakref
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

import metal_dlpack as md

PAGE = mmap.PAGESIZE


def bytes_of(buffer):
    with memoryview(buffer) as view:
        return view.tobytes()


SOURCES = {
    "bytearray": lambda: bytearray(range(200)),
    "bytes": lambda: bytes(range(200)),
    "memoryview": lambda: memoryview(bytearray(range(200)))[7:90],
    "array.array": lambda: array.array("d", range(99)),
    "numpy": lambda: np.arange(5000, dtype=np.int16),
    "numpy, byte-swapped": lambda: np.arange(50, dtype=">i4"),
    "numpy, structured": lambda: np.ones(50, [("a", "i4"), ("b", "f8")]),
    "numpy, read-only": lambda: np.frombuffer(bytes(range(99)), np.uint8),
    "pages": lambda: mmap.mmap(-1, 3 * PAGE),
}


def test_the_bytes_are_the_owners_and_begin_at_the_offset(subtests):
    for name in SOURCES:
        with subtests.test(name=name):
            owner = SOURCES[name]()
            with memoryview(owner) as view:
                expected, is_readonly = view.tobytes(), view.readonly
            buffer = md.Buffer.from_host(owner)
            address = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
            assert buffer.address % PAGE == 0
            assert buffer.address + buffer.offset == address
            assert buffer.size == buffer.offset + len(expected)
            assert (buffer.storage, buffer.label) == ("shared", None)
            assert bytes_of(buffer) == expected
            items = buffer.array(len(expected), "uint8")
            assert items.byte_offset == buffer.offset
            assert bytes(items.tolist()) == expected
            assert items.readonly is is_readonly
            assert memoryview(buffer).readonly is is_readonly
            assert buffer.owner is (owner.obj if isinstance(owner, memoryview) else owner)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: __import__("torch").arange(99), marks=pytest.mark.needs_torch),
        pytest.param(lambda: __import__("torch").ones(99).bfloat16(), marks=pytest.mark.needs_torch),
        pytest.param(lambda: __import__("jax.numpy").numpy.arange(99), marks=pytest.mark.needs_jax),
        pytest.param(lambda: __import__("mlx.core").core.arange(99), marks=pytest.mark.needs_mlx),
        pytest.param(lambda: np.ones(99, __import__("ml_dtypes").bfloat16), marks=pytest.mark.needs_ml_dtypes),
    ],
)
def test_tensors_of_frameworks_are_taken_as_asarray_takes_them(make):
    owner = make()
    a = md.asarray(owner, copy=False)
    buffer = md.Buffer.from_host(owner)
    assert buffer.address + buffer.offset == a.buffer.address + a.byte_offset
    assert bytes_of(buffer) == a.copy().reshape(-1).view("uint8").__array__().tobytes()


def test_random_views_give_the_bytes_from_the_lowest_to_the_highest_item():
    rng = random.Random(5)
    base = np.arange(7 * 8 * 9, dtype=np.int32).reshape(7, 8, 9)
    begin = base.__array_interface__["data"][0]
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


@pytest.mark.parametrize(("writable", "is_readonly"), [(None, False), (True, False), (False, True)])
def test_writable_memory_is_as_it_is_asked_for(writable, is_readonly):
    owner = bytearray(16)
    buffer = md.Buffer.from_host(owner, writable=writable)
    a = buffer.array(16, "uint8")
    assert a.readonly is is_readonly
    assert memoryview(buffer).readonly is is_readonly
    if is_readonly:
        with pytest.raises(ValueError, match="read-only"):
            buffer.fill(1)
        with pytest.raises(ValueError, match="read-only"):
            a[...] = 1
    else:
        a[3] = 5
        assert owner[3] == 5


@pytest.mark.parametrize("owner", [b"abc", np.frombuffer(b"abc", np.uint8)], ids=["bytes", "numpy"])
def test_read_only_memory_is_never_writable(owner):
    for writable in (None, False):
        assert md.Buffer.from_host(owner, writable=writable).array(3, "uint8").readonly
    with pytest.raises(md.CopyRequiredError, match=r"read-only, and writable=True .* asarray\(x, copy=True\)"):
        md.Buffer.from_host(owner, writable=True)


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


def test_shared_memory_is_taken_and_kept_open():
    memory = SharedMemory(create=True, size=100)
    try:
        buffer = md.Buffer.from_host(memory)
        buffer.fill(3)
        assert bytes(memory.buf[:100]) == b"\x03" * 100
        with pytest.raises(BufferError):
            memory.close()
        buffer.close()
        memory.close()
        with pytest.raises(ValueError, match=r"from_host: the SharedMemory is closed"):
            md.Buffer.from_host(memory)
    finally:
        memory.unlink()


def test_no_bytes_make_an_empty_buffer():
    buffer = md.Buffer.from_host(b"")
    assert (buffer.size, buffer.offset, bytes_of(buffer)) == (0, 0, b"")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: 5, TypeError, "int has no memory to share"),
        (lambda: [1.0], TypeError, "list has no memory to share"),
        (lambda: md.zeros(3), TypeError, "Metal memory already"),
        (lambda: md.Buffer(3), TypeError, "Metal memory already"),
        (lambda: md.zeros(3).host, TypeError, "Metal memory already"),
        (lambda: np.array([object()]), TypeError, "Python objects"),
        (lambda: np.zeros(3, "M8[s]"), BufferError, r"x\.view\('int64'\)"),
    ],
    ids=["number", "list", "array", "buffer", "host view", "objects", "dates"],
)
def test_what_is_no_host_memory_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        md.Buffer.from_host(make())


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="writable must be True, False or None"):
        md.Buffer.from_host(b"abc", writable=1)
    with pytest.raises(TypeError):
        md.Buffer.from_host()
    with pytest.raises(TypeError):
        md.Buffer.from_host(b"abc", True)


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
    env = {**os.environ, "SOFTMETAL_MAX_BUFFER_LENGTH": "262144", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", TOO_LONG], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Buffer.from_host: the memory cannot be shared with Metal: its whole pages (26214" in done.stdout
    assert (
        ": 2097152 bytes are more than one buffer of the device can hold (max_buffer_length is 262144 bytes)"
        in done.stdout
    )


def test_items_past_64_bits_are_refused():
    strides = np.lib.stride_tricks.as_strided
    for view in (
        strides(np.zeros(1, "u1"), (5,), (2**62,)),
        strides(np.zeros(1, "u1"), (2, 2), (2**62, 2**62)),
        strides(np.zeros(1, "u1"), (4, 2), (-(2**62), -(2**62))),
    ):
        with pytest.raises(BufferError, match=r"^Buffer.from_host: .*2\*\*63 bytes or farther"):
            md.Buffer.from_host(view)
