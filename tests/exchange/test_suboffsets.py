"""Memory that is reached through tables of pointers (suboffsets), as PIL's images are: read by a copy, or refused."""

import numpy as np
import pytest

testbuffer = pytest.importorskip("_testbuffer", reason="CPython was installed without its tests")

import metal_dlpack as md  # noqa: E402

DTYPES = {"B": "uint8", "h": "int16", "i": "int32", "q": "int64", "?": "bool", "f": "float32", "d": "float64"}
SHAPES = [(3,), (1,), (3, 4), (2, 3, 4), (2, 1, 3), (2, 3, 1, 2)]


def pointed(shape, letter="B", flags=testbuffer.ND_PIL):
    """CPython's own producer of such memory, and its items as a NumPy array."""
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(DTYPES[letter])
    producer = testbuffer.ndarray([item.item() for item in x.flat], shape=list(shape), format=letter, flags=flags)
    assert producer.suboffsets
    return producer, x


def test_asarray_reads_the_items_and_not_the_pointers(live_buffers, subtests):
    for letter in DTYPES:
        for shape in SHAPES:
            for copy in [None, True]:
                with subtests.test(letter=letter, shape=shape, copy=copy):
                    producer, x = pointed(shape, letter, testbuffer.ND_PIL | testbuffer.ND_WRITABLE)
                    array = md.asarray(producer, copy=copy)
                    assert (array.shape, array.dtype.name, array.tolist()) == (shape, DTYPES[letter], x.tolist())
                    array.fill(1)
                    assert producer.tolist() == x.tolist()


def test_views_of_it_are_read_as_well():
    producer, x = pointed((4, 6), "h")
    assert md.asarray(producer[::2, 1::2]).tolist() == x[::2, 1::2].tolist()
    assert md.asarray(producer[::-1, ::-1]).tolist() == x[::-1, ::-1].tolist()
    assert md.asarray(producer[1:1]).shape == (0, 6)
    assert md.asarray(memoryview(producer)).tolist() == x.tolist()


@pytest.mark.parametrize("storage", ["shared", "managed", "private"])
def test_dtype_and_storage_are_as_asked(storage):
    producer, x = pointed((3, 4), "i")
    array = md.asarray(producer, dtype="float64", storage=storage)
    assert (array.dtype, array.storage) == (md.float64, storage)
    assert array.tolist() == x.tolist()


@pytest.mark.parametrize("storage", ["shared", "managed", "private"])
def test_copy_from_reads_the_items(storage):
    producer, x = pointed((2, 3, 4), "i")
    array = md.zeros((2, 3, 4), "int32", storage=storage)
    array.copy_from(producer)
    assert array.tolist() == x.tolist()
    with pytest.raises(TypeError, match="int32"):
        md.zeros((2, 3, 4), "float32").copy_from(producer)


def test_structured_items_are_refused_as_ever():
    producer = testbuffer.ndarray([(1, 2), (3, 4)], shape=[2], format="BB", flags=testbuffer.ND_PIL)
    with pytest.raises(ValueError, match="format 'BB'"):
        md.asarray(producer)
