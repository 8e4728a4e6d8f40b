"""Host access: the buffer protocol, __array__, and the host view."""

import io

import numpy as np
import pytest

import metal_dlpack as md

NUMPY_TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def test_asarray_is_the_same_memory_with_the_same_type(subtests):
    for dtype in NUMPY_TYPES:
        with subtests.test(dtype=dtype):
            array = md.zeros((2, 3), dtype)
            mirror = np.asarray(array)
            assert mirror.dtype == np.dtype(dtype)
            assert mirror.dtype.char == np.dtype(dtype).char
            mirror[1, 2] = 1
            assert array[1, 2].item() == 1
            assert mirror.__array_interface__["data"][0] == array.buffer.address


@pytest.mark.parametrize("key", [np.s_[::2], np.s_[:, ::-1], np.s_[1], np.s_[..., None], np.s_[0, 0]])
def test_strided_views_are_seen_strided(key):
    array = md.asarray(np.arange(12, dtype="int32").reshape(3, 4), copy=True)
    mirror = np.asarray(array)
    assert (np.asarray(array[key]) == mirror[key]).all()
    assert np.shares_memory(np.asarray(array[key]), mirror)


def test_a_memoryview_that_must_be_contiguous_is_refused_for_a_strided_array():
    array = md.zeros((4, 4), "uint8")
    assert memoryview(array).c_contiguous
    assert memoryview(array.T).f_contiguous
    assert bytes(memoryview(array)) == bytes(16)
    with pytest.raises(BufferError, match="strided"):
        io.BytesIO().write(array[:, ::2])


def test_a_readonly_array_gives_readonly_memory():
    array = md.zeros(4).as_readonly()
    assert memoryview(array).readonly
    assert not np.asarray(array).flags.writeable
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(b"abcd").readinto(array)


def test_types_without_a_letter_say_where_to_go():
    with pytest.raises(BufferError, match=r"np\.asarray"):
        memoryview(md.zeros(2, "bfloat16"))


@pytest.mark.needs_ml_dtypes
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_types_of_ml_dtypes_come_without_a_copy(name):
    import ml_dtypes

    array = md.zeros((2, 2), name)
    mirror = np.asarray(array)
    assert mirror.dtype == getattr(ml_dtypes, name)
    mirror[0, 1] = 2
    assert float(array[0, 1].item()) == 2
    assert mirror.__array_interface__["data"][0] == array.buffer.address


def test_private_storage_is_copied_where_that_is_allowed():
    array = md.full(5, 3, "int16", storage="private")
    assert np.array(array).tolist() == [3] * 5
    assert np.asarray(array).tolist() == [3] * 5
    for refuse in (lambda: np.asarray(array, copy=False), lambda: array.__array__(copy=False)):
        with pytest.raises(ValueError):
            refuse()
    with pytest.raises(md.CopyRequiredError, match="private"):
        memoryview(array)
    with pytest.raises(md.CopyRequiredError, match="private"):
        array.host  # noqa: B018


def test_array_follows_numpys_keywords():
    array = md.asarray([1.0, 2.0])
    assert array.__array__("int64").tolist() == [1, 2]
    assert array.__array__("float32").ctypes.data == array.buffer.address
    assert array.__array__(copy=True).ctypes.data != array.buffer.address
    with pytest.raises(md.CopyRequiredError, match="int64"):
        array.__array__("int64", copy=False)


def test_the_host_view_says_cpu_and_is_the_same_memory():
    array = md.zeros((2, 2))
    host = array.host
    assert host.__dlpack_device__() == (1, 0)
    assert host.array is array
    mirror = np.from_dlpack(host)
    mirror[0, 0] = 4
    assert array[0, 0].item() == 4
    assert np.asarray(host).ctypes.data == array.buffer.address
    assert memoryview(host).nbytes == 16
    assert "host view" in repr(host)


def test_the_array_lives_as_long_as_any_host_memory_of_it(live_buffers):
    array = md.full((4,), 2.0)
    mirror = np.asarray(array)[1:]
    host = np.from_dlpack(array.host)
    del array
    assert live_buffers() == 1
    assert mirror.tolist() == [2, 2, 2]
    del mirror
    assert live_buffers() == 1
    assert host.tolist() == [2, 2, 2, 2]
    del host
    assert live_buffers() == 0
