"""Texts with a null character, at which C would cut them, are refused wherever a text is taken."""

import itertools

import pytest

import metal_dlpack as md
from metal_dlpack import softmetal

DEVICES = ["metal:0\0", "metal:0\0x", "metal\0", "cpu\0", "\0"]
MODES = ["shared\0", "shared\0x", "private\0", "\0"]


def array():
    return md.zeros((2, 3))


TAKES_STORAGE = {
    "empty": lambda text: md.empty(2, storage=text),
    "zeros": lambda text: md.zeros(2, storage=text),
    "full": lambda text: md.full(2, 1, storage=text),
    "empty_like": lambda text: md.empty_like(array(), storage=text),
    "Buffer": lambda text: md.Buffer(4, storage=text),
    "copy": lambda text: array().copy(storage=text),
    "asarray": lambda text: md.asarray([1.0], storage=text),
}
TAKES_DEVICE = {
    "empty": lambda text: md.empty(2, device=text),
    "zeros": lambda text: md.zeros(2, device=text),
    "full": lambda text: md.full(2, 1, device=text),
    "empty_like": lambda text: md.empty_like(array(), device=text),
    "asarray": lambda text: md.asarray(array(), device=text),
    "from_dlpack": lambda text: md.from_dlpack(array(), device=text),
    "Buffer": lambda text: md.Buffer(4, device=text),
    "Stream": lambda text: md.Stream(text),
    "to_device": lambda text: array().to_device(text),
    "from_iosurface": lambda text: md.Buffer.from_iosurface(1, device=text),
    "explain": lambda text: md.explain(array(), device=text),
}
TAKES_NAMES = {
    "Buffer's label": lambda: md.Buffer(4, label="a\0b"),
    "Stream's label": lambda: md.Stream(label="a\0b"),
    "copy's order": lambda: array().copy("C\0"),
    "copy's order, F": lambda: array().copy("F\0x"),
    "stride_order": lambda: md.StridedLayout.dense((2, 3), 4, "C\0"),
    "open's path": lambda: md.open("a\0b.npy"),
    "open's mode": lambda: md.open("a.npy", mode="r\0"),
    "explain's consumer": lambda: md.explain(array(), consumer="torch\0"),
}


@pytest.mark.needs_numpy
def test_storage_modes_and_devices(subtests):
    for takers, texts in ((TAKES_STORAGE, MODES), (TAKES_DEVICE, DEVICES)):
        for (function, take), text in itertools.product(takers.items(), texts):
            with subtests.test(function, text=text), pytest.raises(ValueError, match=r"\\x00"):
                take(text)


def test_all_other_names(subtests):
    for what, take in TAKES_NAMES.items():
        with subtests.test(what), pytest.raises(ValueError):
            take()


def test_dtypes_are_no_element_type():
    for text in ("float32\0", "<f4\0", "torch.float32\0x", "\0"):
        for take in (md.dtype, lambda text: md.zeros(2, text), array().view, array().astype):
            with pytest.raises(TypeError, match=r"\\x00"):
                take(text)


@pytest.mark.skipif(not softmetal.is_present(), reason="the software Metal is not there")
def test_names_of_the_software_metal():
    for take in (softmetal.live_objects, softmetal.reports):
        with pytest.raises(ValueError, match="null character"):
            take("MTLBuffer\0x")


def test_half_a_surrogate_pair_is_no_text():
    for take in (lambda text: md.zeros(2, storage=text), lambda text: md.zeros(2, device=text)):
        with pytest.raises(UnicodeEncodeError):
            take("\ud800")
