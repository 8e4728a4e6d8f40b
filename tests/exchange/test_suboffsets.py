"""Memory that is reached through tables of pointers (suboffsets), as PIL's images are: read by a copy, or refused."""

import itertools

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


def test_the_items_are_read_and_not_the_pointers(live_buffers, subtests):
    for letter, shape, storage in itertools.product(DTYPES, SHAPES, ["shared", "managed", "private"]):
        with subtests.test(letter=letter, shape=shape, storage=storage):
            producer, x = pointed(shape, letter, testbuffer.ND_PIL | testbuffer.ND_WRITABLE)
            array, target = md.asarray(producer, storage=storage), md.zeros(shape, DTYPES[letter], storage=storage)
            target.copy_from(producer)
            for made in (array, target, md.asarray(producer, copy=True)):
                assert (made.shape, made.dtype.name, made.tolist()) == (shape, DTYPES[letter], x.tolist())
            array.fill(1)
            assert (array.storage, producer.tolist()) == (storage, x.tolist())


def test_views_of_it_are_read_as_well_and_converted():
    producer, x = pointed((4, 6), "h")
    assert md.asarray(producer[::2, 1::2]).tolist() == x[::2, 1::2].tolist()
    assert md.asarray(producer[::-1, ::-1]).tolist() == x[::-1, ::-1].tolist()
    assert md.asarray(producer[1:1]).shape == (0, 6)
    assert md.asarray(memoryview(producer)).tolist() == x.tolist()
    array = md.asarray(producer, dtype="float64")
    assert (array.dtype, array.tolist()) == (md.float64, x.tolist())
    with pytest.raises(TypeError, match="int16"):
        md.zeros((4, 6)).copy_from(producer)
    records = testbuffer.ndarray([(1, 2), (3, 4)], shape=[2], format="BB", flags=testbuffer.ND_PIL)
    with pytest.raises(ValueError, match="format 'BB'"):
        md.asarray(records)
