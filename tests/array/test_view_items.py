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
