"""Host access: the buffer protocol, __array__, and the host view."""

import numpy as np
import pytest

import metal_dlpack as md


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
    assert np.asarray(host).ctypes.data == array.buffer.address
    assert "host view" in repr(host)
