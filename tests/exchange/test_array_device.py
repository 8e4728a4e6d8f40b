"""Array.to_device: the same device, another one, the CPU; streams and what is refused."""

import numpy as np
import pytest
from children import output_of
from held_work import held

import metal_dlpack as md


@pytest.mark.parametrize("device", ["metal", "metal:0", (8, 0), md.default_device()], ids=str)
def test_the_same_device_gives_the_array_itself(device):
    a = md.full((3, 4), 2.0)[1:, ::2]
    assert a.to_device(device) is a
    assert a.to_device(device=device, stream=None) is a
    assert a.to_device(device, -1) is a


@pytest.mark.parametrize("device", ["cpu", (1, 0)])
def test_the_cpu_sees_the_same_memory(device):
    a = md.zeros((3, 4))
    host = a.to_device(device)
    assert host.__dlpack_device__() == (1, 0)
    np.from_dlpack(host)[1, 2] = 5
    assert a[1, 2].item() == 5
    assert host.array is a


def test_the_cpu_gets_a_copy_of_private_storage():
    a = md.full((3, 4), 7.0, storage="private")
    host = a[:, ::2].to_device("cpu")
    assert np.from_dlpack(host).tolist() == [[7, 7]] * 3
    a.fill(1)
    assert np.from_dlpack(host)[0, 0] == 7


@pytest.mark.needs_softmetal
def test_a_stream_waits_on_the_gpu_and_the_cpu_does_not():
    first, second = md.Stream(), md.Stream()
    a, source, late = md.zeros(1000), md.full(1000, 3.0), md.zeros(1000)
    with held(first):
        a.copy_from(source, stream=first)
        assert a.to_device("metal", second) is a
        assert not second.record().wait(0.05)
        assert a.to_device("metal", second.handle) is a
        late.copy_from(a, stream=second)
    assert late.tolist() == [3] * 1000


REFUSED = [
    (("metal:99",), ValueError, "metal:99"),
    (("cuda",), ValueError, "cuda"),
    (((2, 0),), ValueError, r"\(2, 0\) is neither"),
    (((8, 99),), ValueError, r"\(8, 99\) is neither"),
    (((1, 1),), ValueError, r"\(1, 1\) is neither"),
    (((8,),), ValueError, "neither"),
    ((None,), TypeError, "not None"),
    ((3,), TypeError, "not int"),
    (("metal", 12345), BufferError, ""),
    (("metal", "main"), TypeError, ""),
    ((), TypeError, ""),
]


def test_other_devices_and_streams_are_refused(subtests):
    for arguments, error, words in REFUSED:
        with subtests.test(arguments=arguments), pytest.raises(error, match=r"to_device.*" + words):
            md.zeros(3).to_device(*arguments)


TWO_DEVICES = """
import numpy as np, metal_dlpack as md
first, second = md.devices()
a = md.zeros(5)
for device, is_same in ((first, True), (second, False)):  # what NumPy sees of it is memory for the other
    b = md.from_dlpack(np.asarray(a), device=device, copy=False)
    assert (b.device, b.buffer.handle == a.buffer.handle) == (device, is_same)
for storage in ("shared", "private"):
    a = md.asarray(np.arange(24, dtype=np.int16).reshape(4, 6)).copy(storage=storage)[::2, 1:]
    for device in (second, "metal:1", (8, 1)):
        b = a.to_device(device)
        assert (b.device, b.storage, b.dtype, b.strides) == (second, storage, a.dtype, (5, 1))
        assert b.tolist() == a.tolist()
    b.fill(0)
    assert any(a.tolist()[0])
    assert b.to_device(first).device == first
nibbles = md.full(6, 3, "int4").copy(padded=True)
assert nibbles.to_device(second).padded and nibbles.to_device(second).tolist() == [3] * 6
packed = md.full(6, 3, "int4").to_device(second)
assert not packed.padded and packed.tolist() == [3] * 6
"""


@pytest.mark.needs_softmetal
def test_another_device_gets_a_copy():
    output_of(TWO_DEVICES, SOFTMETAL_DEVICES="unified,unified")
