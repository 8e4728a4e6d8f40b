"""Device, devices(), default_device()."""

import pickle
import time

import pytest
from children import run_child

import metal_dlpack as md


def test_the_default_device_is_the_first():
    assert md.devices()[0] is md.default_device()
    assert md.devices() is md.devices()


def test_a_device_says_what_it_is():
    device = md.default_device()
    assert device.name
    assert device.index == 0
    assert str(device) == "metal:0"
    assert device.name in repr(device)
    assert device.registry_id > 0
    assert device.max_buffer_length > 2**20
    assert device.recommended_max_working_set_size > 2**20
    assert isinstance(device.has_unified_memory, bool)
    assert isinstance(device.is_software, bool)


def test_allocations_are_counted():
    device = md.default_device()
    md.empty_cache()
    before = device.current_allocated_size
    array = md.empty(2**22, "uint8")
    assert device.current_allocated_size >= before + 2**22
    del array
    md.empty_cache()
    assert device.current_allocated_size < before + 2**22


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("which", [0, 150, 299])
def test_synchronize_forgets_no_stream_however_many_there_are(which, settings, live_buffers):
    """A failure that nobody has heard of shows whose work was waited for."""
    streams, array = [md.Stream() for _ in range(300)], md.zeros(8)
    settings(fail="commit@1=OutOfMemory")
    array.fill(1, stream=streams[which])
    while not streams[which].query():
        time.sleep(0.001)
    with pytest.raises(md.MetalError, match="OutOfMemory"):
        md.default_device().synchronize()
    md.default_device().synchronize()


def test_a_device_is_pickled_by_its_index():
    device = md.default_device()
    assert pickle.loads(pickle.dumps(device)) is device


ONE_GPU_MANY_OBJECTS = """
import numpy as np
import metal_dlpack as md
from objc_messages import PRIVATE, SHARED, foreign_buffer, pool, send

assert len(md.devices()) == 2, md.devices()
assert len({device.registry_id for device in md.devices()}) == 2
array = md.zeros(8, "uint8")
with pool():
    another = send(send(array.buffer.handle, "device"), "newCommandQueue")
for options in (SHARED, PRIVATE):
    with foreign_buffer(64, options) as handle:
        buffer = md.Buffer.from_handle(handle)
        assert buffer.device == md.default_device()
        buffer.fill(3)
        buffer.array(64, "uint8").copy_from(np.arange(64, dtype="uint8"))
        assert np.array(buffer.array(64, "uint8"))[63] == 63
assert md.Stream.from_handle(another).device == md.default_device()
"""


@pytest.mark.needs_softmetal
def test_one_gpu_with_many_objects_is_one_device():
    """Whether MTLCopyAllDevices gives the object of MTLCreateSystemDefaultDevice, or a buffer the object that its
    maker was, is nowhere said: the registry ID is what names a GPU."""
    done = run_child(ONE_GPU_MANY_OBJECTS, SOFTMETAL_DEVICES="unified,discrete", SOFTMETAL_DEVICE_OBJECTS="many")
    assert done.returncode == 0, done.stderr


def test_a_device_equals_its_name_and_hashes_as_it():
    device = md.zeros(1).device
    name = "metal:0"
    assert device == name and name == device and device == md.default_device()
    assert (device != name) is (name != device) is False
    for other in ("metal:1", "metal", "mps", "", None, 0, md.float32, object()):
        assert device != other and other != device
    assert hash(device) == hash("metal:0")
    assert {device: 1}["metal:0"] == {"metal:0": 1}[device] == 1
    with pytest.raises(TypeError):
        device < "metal:1"  # noqa: B015


QUEUES = """
import metal_dlpack as md

device = md.default_device()
for call in (lambda: md.zeros(4, storage="private"), device.synchronize, lambda: device.default_stream):
    try:
        call()
    except md.MetalError as error:
        print(error)
array = md.full(4, 1, storage="private")
print(array.tolist(), device.default_stream is md.current_stream())
"""


def test_a_queue_that_cannot_be_made_is_asked_for_again():
    """Metal may have none left for a while: not for the life of the process."""
    *refused, works = run_child(QUEUES, SOFTMETAL_FAIL="queue@1,queue@2,queue@3", check=True).stdout.splitlines()
    assert len(refused) == 3
    assert works == "[1, 1, 1, 1] True"
