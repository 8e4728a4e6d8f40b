"""What NumPy reads: __array_interface__, __array__ and to_numpy(); where there is none, and how a failure is told."""

import weakref

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import metal_dlpack as md

NUMPY_TYPES = "?bhilBHILefdFD"


class Reader:
    """What NumPy makes of an interface and nothing else; it keeps the Array, as a reader must."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def key(random, extent):
    return slice(random.choice([None, 0, 1]), None, random.choice([1, 2, -1])) if extent else slice(None)


@hypothesis.given(
    st.sampled_from(NUMPY_TYPES), st.lists(st.integers(0, 4), max_size=4), st.randoms(), st.booleans(), st.booleans()
)
def test_it_says_what_numpy_says_of_its_view(dtype, shape, random, is_turned, is_readonly):
    view = md.empty(tuple(shape), dtype)
    view = view.permute(*random.sample(range(len(shape)), len(shape))) if is_turned and shape else view
    view = view[(..., *(key(random, extent) for extent in view.shape))]
    view = view.as_readonly() if is_readonly else view
    seen, said = np.asarray(view), view.__array_interface__
    theirs = seen.__array_interface__
    for name in ("shape", "typestr", "version"):
        assert said[name] == theirs[name]
    assert said["data"][1] == is_readonly
    read = np.asarray(Reader(view))
    assert read.dtype == seen.dtype
    assert (said["strides"] is None) == seen.flags.c_contiguous
    if view.size:
        assert read.flags.writeable != is_readonly
        assert read.ctypes.data == seen.ctypes.data
        assert read.strides == seen.strides or read.flags.c_contiguous or 1 in read.shape
        if not is_readonly:
            seen[...] = np.arange(seen.size).reshape(seen.shape) % 2
            assert np.array_equal(read, seen)


def test_where_it_would_lie_it_is_not_there():
    cases = {f"no name for {name}": md.zeros(3, name) for name in ("bfloat16", "int4", "float32x2")}
    for why, array in (cases | {"private storage has no address": md.zeros(3, storage="private")}).items():
        assert not hasattr(array, "__array_interface__")
        with pytest.raises(AttributeError, match=why):
            _ = array.__array_interface__


def test_to_numpy_is_asarray(subtests):
    for storage in ["shared", "managed", "private"]:
        for dtype in ["float32", "bfloat16", "float8_e8m0fnu", "int4"]:
            with subtests.test(storage=storage, dtype=dtype):
                array = md.full((2, 3), 2, dtype, storage=storage)
                found, wanted = array.to_numpy(), np.asarray(array)
                assert found.dtype == wanted.dtype
                assert np.array_equal(found, wanted)
                assert np.shares_memory(found, wanted) == (storage != "private" and dtype != "int4")


def test_private_storage_is_copied_where_that_is_allowed():
    array = md.full(5, 3, "int16", storage="private")
    assert np.array(array).tolist() == [3] * 5
    assert np.asarray(array).tolist() == [3] * 5
    for refuse in (lambda: np.asarray(array, copy=False), lambda: array.__array__(copy=False)):
        with pytest.raises(ValueError):
            refuse()
    for refuse in (lambda: memoryview(array), lambda: array.host):
        with pytest.raises(md.CopyRequiredError, match="private"):
            refuse()


def test_array_follows_numpys_keywords():
    array = md.asarray([1.0, 2.0])
    assert array.__array__("int64").tolist() == [1, 2]
    assert array.__array__("float32").ctypes.data == array.buffer.address
    assert array.__array__(copy=True).ctypes.data != array.buffer.address
    with pytest.raises(md.CopyRequiredError, match="int64"):
        array.__array__("int64", copy=False)


def fail_and_hear(array, settings, hear=memoryview):
    settings(fail="commit@1=8")
    array.fill(3, stream=md.Stream())
    with pytest.raises(md.MetalError, match=r"OutOfMemory, 8\)"):
        hear(array)
    settings(fail=None)


READS = [lambda a: a.__array_interface__, md.Array.to_numpy, md.Array.__array__, memoryview]


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("hear", READS)
@pytest.mark.parametrize("read", READS)
def test_a_failure_of_the_gpu_is_told_once(read, hear, settings):
    array = md.zeros(64)
    fail_and_hear(array, settings, hear)
    read(array)


@pytest.mark.needs_softmetal
def test_a_failure_of_a_dead_array_is_not_its_successors(settings):
    """The next Array of as many dimensions can have its address."""
    array = md.zeros(64)
    address, dead = id(array), weakref.ref(array)
    fail_and_hear(array, settings)
    del array
    assert dead() is None, "the failure keeps the frame that heard it, and so the Array"
    others = [md.zeros(64, "bfloat16") for _ in range(2)]
    for other in others:
        assert np.asarray(other).shape == (64,), id(other) == address
