"""__dlpack__: what each combination of keywords gives, seen through the C struct itself."""

import ctypes
import enum
import gc
import threading

import numpy as np
import pytest
from dlpack_structs import CAPSULE_NAMES, Legacy, Versioned, open_capsule
from held_work import held

import metal_dlpack as md


@pytest.mark.rule("export-legacy", "export-versioned")
def test_the_flavour_follows_max_version():
    array = md.zeros((2, 3))
    for version in (None, (0, 8)):
        assert open_capsule(array.__dlpack__(max_version=version)).name == b"dltensor"
    for version in ((1, 0), (1, 3), (2, 0), [1, 1]):
        opened = open_capsule(array.__dlpack__(max_version=version))
        assert opened.name == b"dltensor_versioned"
        assert tuple(opened.version) == (1, 3)
    assert open_capsule(array.__dlpack__()).name == b"dltensor"


@pytest.mark.rule("export-metal-data")
def test_a_metal_tensor_carries_the_handle_and_the_true_offset():
    array = md.zeros((4, 6), "int16")[1:, 2:]
    for version in (None, (1, 0)):
        tensor = open_capsule(array.__dlpack__(max_version=version)).tensor
        assert tensor.data == array.buffer.handle
        assert tensor.byte_offset == array.byte_offset == 16
        assert tuple(tensor.device) == (8, 0)
        assert tensor.shape[:2] == [3, 4]
        assert tensor.strides[:2] == [6, 1]
        assert (tensor.code, tensor.bits, tensor.lanes) == (0, 16, 1)


@pytest.mark.rule("export-cpu-data")
def test_a_cpu_tensor_has_its_offset_folded_into_data():
    array = md.zeros((4, 6), "int16")[1:, 2:]
    tensor = open_capsule(array.__dlpack__(dl_device=(1, 0))).tensor
    assert tensor.data == array.buffer.address + array.byte_offset
    assert tensor.byte_offset == 0
    assert tuple(tensor.device) == (1, 0)


@pytest.mark.rule("export-strides")
def test_zero_dimensions_have_real_pointers():
    tensor = open_capsule(md.zeros(()).__dlpack__()).tensor
    assert tensor.ndim == 0
    assert ctypes.cast(tensor.shape, ctypes.c_void_p).value
    assert ctypes.cast(tensor.strides, ctypes.c_void_p).value


@pytest.mark.parametrize("device", [(8, 0), (1, 0)])
@pytest.mark.rule("export-empty")
def test_no_items_means_no_data(device):
    array = md.zeros((4, 3))[2:2]
    tensor = open_capsule(array.__dlpack__(dl_device=device)).tensor
    assert tensor.data is None
    assert tensor.byte_offset == 0
    assert tensor.strides[:2] == [3, 1]


@pytest.mark.parametrize("device", [(8, 0), (1, 0)])
@pytest.mark.rule("export-negative")
def test_negative_strides_are_never_exported(device):
    array = md.asarray(np.arange(4.0), copy=True)[::-1]
    opened = open_capsule(array.__dlpack__(dl_device=device, max_version=(1, 0)))
    assert opened.tensor.strides[0] == 1
    assert opened.is_copied
    with pytest.raises(md.CopyRequiredError, match="negative"):
        array.__dlpack__(dl_device=device, copy=False)


@pytest.mark.rule("export-offset-item")
def test_an_offset_that_is_no_multiple_of_the_itemsize_is_copied_for_metal():
    array = md.Buffer(64).array(2, "complex64", 4)
    assert open_capsule(array.__dlpack__(max_version=(1, 0))).is_copied
    assert not open_capsule(array.__dlpack__(max_version=(1, 0), dl_device=(1, 0))).is_copied
    with pytest.raises(md.CopyRequiredError, match="itemsize"):
        array.__dlpack__(copy=False)


@pytest.mark.rule("export-copy-true")
def test_copy_true_copies_and_says_so():
    array = md.full(4, 3.0)
    opened = open_capsule(array.__dlpack__(copy=True, max_version=(1, 0)))
    assert opened.is_copied
    assert opened.tensor.data != array.buffer.handle
    assert not open_capsule(array.__dlpack__(max_version=(1, 0))).is_copied


@pytest.mark.rule("export-readonly", "export-readonly-legacy")
def test_readonly_needs_a_capsule_that_can_say_so():
    array = md.zeros(4).as_readonly()
    assert open_capsule(array.__dlpack__(max_version=(1, 0))).is_readonly
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    opened = open_capsule(array.__dlpack__(copy=True))
    assert opened.name == b"dltensor"
    assert not open_capsule(array.__dlpack__(copy=True, max_version=(1, 0))).is_readonly


@pytest.mark.rule("export-private")
def test_private_storage_goes_to_metal_as_it_is_and_to_the_cpu_as_a_copy():
    array = md.full(4, 2.0, storage="private")
    assert open_capsule(array.__dlpack__(copy=False)).tensor.data == array.buffer.handle
    capsule = array.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    opened = open_capsule(capsule)
    assert opened.is_copied
    assert list((ctypes.c_float * 4).from_address(opened.tensor.data)) == [2.0] * 4
    with pytest.raises(md.CopyRequiredError, match="private"):
        array.__dlpack__(dl_device=(1, 0), copy=False)


@pytest.mark.rule("export-keywords")
def test_bad_keywords_are_refused_by_name(live_buffers, subtests):
    for keywords, error in [
        ({"stream": 1}, BufferError),
        ({"stream": 2**70}, BufferError),
        ({"stream": "0"}, TypeError),
        ({"stream": True}, TypeError),
        ({"dl_device": (2, 0)}, BufferError),
        ({"dl_device": (8, 1)}, BufferError),
        ({"dl_device": 8}, TypeError),
        ({"dl_device": (8, 0, 0)}, ValueError),
        ({"max_version": "1"}, TypeError),
        ({"max_version": (1,)}, TypeError),
        ({"copy": 1}, TypeError),
        ({"unknown": 1}, TypeError),
    ]:
        with subtests.test(keywords=keywords, error=error):
            array = md.zeros(3)
            with pytest.raises(error, match=next(iter(keywords))):
                array.__dlpack__(**keywords)
            with pytest.raises(TypeError):
                array.__dlpack__(None)


@pytest.mark.rule("export-stream-other")
def test_streams_that_say_nothing_to_wait_for_are_taken():
    array = md.zeros(3)
    for stream in (None, -1):
        assert open_capsule(array.__dlpack__(stream=stream)).tensor.data == array.buffer.handle


@pytest.mark.rule("export-dropped")
def test_a_capsule_nobody_takes_frees_itself(live_buffers):
    array = md.zeros(3)
    capsules = [array.__dlpack__(), array.__dlpack__(max_version=(1, 0)), array.__dlpack__(copy=True)]
    del array
    assert live_buffers() == 2
    del capsules
    assert live_buffers() == 0


@pytest.mark.parametrize("struct", [Legacy, Versioned])
@pytest.mark.rule("export-deleter")
def test_the_deleter_runs_on_a_thread_without_python(struct, live_buffers):
    """A raw pthread calls it: no thread state, no GIL."""
    array = md.zeros(3)
    capsule = array.__dlpack__(max_version=None if struct is Legacy else (1, 0))
    opened = open_capsule(capsule)
    opened.take()
    del array, capsule
    assert live_buffers() == 1
    pthread = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    deleter = ctypes.cast(opened.managed.deleter, ctypes.c_void_p)
    assert pthread.pthread_create(ctypes.byref(thread), None, deleter, ctypes.c_void_p(opened.address)) == 0
    assert pthread.pthread_join(thread, None) == 0
    assert live_buffers() == 0


def test_export_and_deletion_from_many_threads_at_once(live_buffers):
    array = md.zeros(16)

    def work(array):
        for _ in range(2000):
            array.__dlpack__()
            array.__dlpack__(max_version=(1, 0), dl_device=(1, 0))

    threads = [threading.Thread(target=work, args=(array,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del array, threads, thread
    gc.collect()
    assert live_buffers() == 0


@pytest.mark.rule("export-dtypes")
def test_every_element_type_is_exported_as_it_is():
    for name in [entry for entry in dir(md) if isinstance(getattr(md, entry), md.dtype)]:
        dtype = getattr(md, name)
        tensor = open_capsule(md.zeros((2, 8), dtype).__dlpack__()).tensor
        assert (tensor.code, tensor.bits, tensor.lanes) == (dtype.code, dtype.bits, 1)
    assert CAPSULE_NAMES == (b"dltensor", b"dltensor_versioned")


@pytest.mark.rule("export-device-pair")
def test_pairs_may_be_any_sequence_of_two_indices():
    """torch passes members of an IntEnum, others lists and NumPy numbers."""

    class Kind(enum.IntEnum):
        CPU = 1
        METAL = 8

    array = md.zeros(3)
    for make in (tuple, list):
        for kind in (*Kind, np.int32(1), np.int64(8)):
            opened = open_capsule(array.__dlpack__(dl_device=make([kind, 0]), max_version=make([np.int64(1), 0])))
            assert opened.tensor.device[0] == kind
            assert opened.name == b"dltensor_versioned"


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("stream", [None, -1])
def test_a_copy_made_for_an_export_is_ordered_as_no_caller_could(stream, settings):
    """-1 says that the caller has seen to the array's work; of the copy's it cannot know."""
    array = md.zeros(64, storage="private")
    settings(latency_us=30000)
    array.fill(3, stream=md.Stream())
    copy = md.from_dlpack(array.__dlpack__(stream=stream, copy=True, max_version=(1, 3)), stream=-1)
    assert md.Event.from_handle(*copy.__metal_stream__()[2:]).query()
    assert copy.tolist() == [3] * 64


@pytest.mark.needs_softmetal
def test_a_copy_made_for_an_export_is_ordered_on_the_stream_that_is_named():
    array, working, target = md.zeros(64, storage="private"), md.Stream(), md.Stream()
    with held(working):
        array.fill(3, stream=working)
        capsule = array.__dlpack__(stream=target, copy=True, max_version=(1, 3))
        copy = md.from_dlpack(capsule, stream=-1)
        event = md.Event.from_handle(*copy.__metal_stream__()[2:])
    assert target.record().wait(5)
    assert event.query()
    assert copy.tolist() == [3] * 64
