"""Views of the buffer protocol as items: what a stride in bytes must be, and the words for one that is not."""

import ctypes

import numpy as np
import pytest

import metal_dlpack as md

pytestmark = pytest.mark.needs_numpy


def of_three_bytes():
    """Items of 4 bytes, 7 bytes from one to the next."""
    return memoryview(np.zeros(4, [("tag", "u1", 3), ("item", "<f4")])["item"])


#: A view, and what is wrong with it.
REFUSED = {
    "a stride of 7 bytes": (
        of_three_bytes,
        r"stride 7 of axis 0 is not a multiple of the itemsize \(4 bytes\); copy it",
    ),
    "another byte order": (
        lambda: memoryview(np.zeros(3, ">f4")),
        r"format '>f' is structured, of non-native byte order, or unknown; convert it first",
    ),
    "records": (lambda: memoryview(np.zeros(3, "u1,u1")), "is structured, of non-native byte order, or unknown"),
    "pointers": (lambda: memoryview((ctypes.c_void_p * 3)()), "is structured, of non-native byte order, or unknown"),
}


@pytest.mark.parametrize("take", [md.asarray, md.zeros(4).copy_from], ids=["asarray", "copy_from"])
@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_views_that_have_no_items_are_refused_in_the_same_words(make, words, take):
    with pytest.raises(ValueError, match=f"asarray: .*{words}"):
        take(make())


@pytest.mark.parametrize("key", [np.s_[::-1], np.s_[::2], np.s_[:, ::-3], np.s_[1:1], np.s_[:, None, 0]])
def test_strides_in_bytes_become_strides_in_items(key):
    view = memoryview(np.arange(42, dtype="i2").reshape(6, 7)[key])
    expected = np.asarray(view)
    array = md.asarray(view)
    assert array.tolist() == expected.tolist()
    if expected.size:
        assert [stride * 2 for stride in array.strides] == list(expected.strides)
    target = md.zeros(expected.shape, "int16")
    target.copy_from(view)
    assert target.tolist() == expected.tolist()
