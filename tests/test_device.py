"""Device, devices(), default_device()."""

import pickle

import pytest

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


def test_a_device_is_pickled_by_its_index():
    device = md.default_device()
    assert pickle.loads(pickle.dumps(device)) is device


def test_a_device_cannot_be_made():
    with pytest.raises(TypeError):
        type(md.default_device())()
