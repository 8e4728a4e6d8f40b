"""from_dlpack: what is taken, how, and what becomes of the producer's tensor."""

import contextlib
import ctypes
import gc
import sys

import numpy as np
import pytest
from dlpack_structs import IS_COPIED, READ_ONLY, Producer, capsule_name, open_capsule

import metal_dlpack as md

BOTH = pytest.mark.parametrize("versioned", [False, True])


def metal_producer(buffer, **fields):
    return Producer(data=buffer.handle, device=(8, 0), **fields)


def collect():
    gc.collect()
    md.from_dlpack(md.zeros(1))  # lets go of what waits for the interpreter


@BOTH
@pytest.mark.rule("import-flavours")
def test_a_metal_tensor_is_shared_and_deleted_once(versioned, live_buffers):
    buffer = md.Buffer(64)
    producer = metal_producer(buffer, versioned=versioned, shape=(2, 3), byte_offset=8)
    capsule = producer.capsule()
    array = md.from_dlpack(capsule)
    assert capsule_name(capsule).startswith(b"used_dltensor")
    assert array.buffer.handle == buffer.handle
    assert (array.shape, array.strides, array.byte_offset) == ((2, 3), (3, 1), 8)
    assert not array.readonly
    view = array[1]
    del array, capsule
    collect()
    assert producer.deletions == 0
    del view
    collect()
    assert producer.deletions == 1


@BOTH
@pytest.mark.rule("import-flavours")
def test_a_cpu_tensor_is_shared_and_deleted_once(versioned, live_buffers):
    memory = np.arange(6, dtype="float32")
    producer = Producer(versioned=versioned, data=memory.ctypes.data)
    array = md.from_dlpack(producer, copy=False)
    array[0, 0] = 42
    assert memory[0] == 42
    assert array.tolist() == memory.reshape(2, 3).tolist()
    del array
    collect()
    assert producer.deletions == 1


@BOTH
@pytest.mark.rule("import-copy-true")
def test_copy_true_is_honoured_even_by_producers_that_ignore_it(versioned, live_buffers):
    memory = np.arange(6, dtype="float32")
    buffer = md.Buffer(64)
    for producer in (
        Producer(versioned=versioned, data=memory.ctypes.data),
        metal_producer(buffer, versioned=versioned),
    ):
        array = md.from_dlpack(producer, copy=True)
        assert producer.deletions == 1
        assert array.buffer.owner is None
        assert array.buffer.handle != buffer.handle


@pytest.mark.rule("import-copy-true")
def test_a_metal_tensor_that_the_producer_copied_is_not_copied_again():
    buffer = md.Buffer(64)
    producer = metal_producer(buffer, flags=IS_COPIED, shape=(2,))
    array = md.from_dlpack(producer, copy=True)
    assert producer.deletions == 0
    assert array.buffer.handle == buffer.handle


def test_a_copy_of_cpu_memory_is_a_metal_buffer_of_its_own():
    source = np.arange(6.0)
    for copied in (md.from_dlpack(source, copy=True), md.asarray(source, copy=True)):
        assert (copied.byte_offset, copied.buffer.owner) == (0, None)
        source[0] = 7
        assert copied[0].item() == 0
        source[0] = 0


@pytest.mark.rule("import-readonly")
def test_read_only_is_kept_through_views_and_exports():
    memory = np.arange(6, dtype="float32")
    array = md.from_dlpack(Producer(data=memory.ctypes.data, flags=READ_ONLY))
    assert array.readonly
    assert array[0].readonly
    assert open_capsule(array.__dlpack__(max_version=(1, 0))).is_readonly
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (0, 2**62, 2**62)])
@BOTH
@pytest.mark.rule("import-empty")
def test_a_tensor_without_items_is_deleted_at_once_and_its_data_not_looked_at(versioned, shape):
    for device in ((1, 0), (8, 0)):
        producer = Producer(versioned=versioned, shape=shape, strides=None, data=1, device=device)
        if max(shape) > 100:
            with pytest.raises(BufferError):
                md.from_dlpack(producer)
            assert producer.deletions == 0
        else:
            assert md.from_dlpack(producer).shape == shape
            assert producer.deletions == 1


@BOTH
@pytest.mark.rule(
    "import-null-deleter", "import-null-strides", "import-0d", "import-size-1-strides", "import-negative-strides"
)
def test_odd_but_good_tensors_are_taken(versioned):
    memory = np.arange(24, dtype="float32")
    cases = [
        ({"shape": (2, 3), "strides": None}, memory[:6].reshape(2, 3)),
        ({"shape": None, "strides": None}, memory[0]),
        ({"shape": (), "strides": ()}, memory[0]),
        ({"shape": (3,), "strides": (-2,), "byte_offset": 16}, memory[4::-2]),
        ({"shape": (3, 2), "strides": (0, 1)}, np.broadcast_to(memory[:2], (3, 2))),
        ({"shape": (1, 3), "strides": (-(2**62), 1)}, memory[:3].reshape(1, 3)),
        ({"shape": (1, 3), "strides": (0, 1)}, memory[:3].reshape(1, 3)),
        ({"shape": (2,), "byte_offset": 8}, memory[2:4]),
        ({"shape": (1,) * 64}, memory[:1].reshape((1,) * 32)),
        ({"shape": (2,), "has_deleter": False}, memory[:2]),
    ]
    for fields, expected in cases:
        producer = Producer(versioned=versioned, data=memory.ctypes.data, **fields)
        array = md.from_dlpack(producer, copy=False)
        assert np.asarray(array.reshape(array.shape[:32])).tolist() == np.asarray(expected).tolist()
        del array
        collect()
        assert producer.deletions == (0 if fields.get("has_deleter") is False else 1)


FAULTS = [
    ({"ndim": -1}, "ndim"),
    ({"ndim": 65, "shape": (1,) * 65}, "ndim"),
    ({"ndim": 2**31 - 1, "shape": (1,)}, "ndim"),
    ({"ndim": 1, "shape": None, "strides": None}, "shape is NULL"),
    ({"shape": (2, -3)}, "negative"),
    ({"shape": (2**40, 2**40)}, r"reach 2\*\*60 bytes or farther, which no memory has"),
    ({"shape": (2, 2), "strides": (2**62, 1)}, r"reach 2\*\*60 bytes or farther, which no memory has"),
    ({"shape": (2**61,), "dtype": (2, 64, 1)}, r"reach 2\*\*60 bytes or farther, which no memory has"),
    ({"data": None}, "data is NULL"),
    ({"dtype": (2, 32, 0)}, "lanes"),
    ({"dtype": (2, 33, 1)}, "element type"),
    ({"dtype": (2, 0, 1)}, "element type"),
    ({"dtype": (99, 32, 1)}, "element type"),
    ({"dtype": (3, 64, 1)}, "element type"),
    ({"dtype": (17, 8, 1)}, "element type"),
    (
        {"dtype": (0, 4, 1), "shape": (2, 2), "strides": (2**62, 1)},
        r"reach 2\*\*60 bytes or farther, which no memory has",
    ),
]


@pytest.mark.rule("import-untouched", "import-shape")
def test_a_fault_that_the_metadata_shows_is_refused_untouched(live_buffers, subtests):
    """`data` is an address that faults when it is read: nobody may look there."""
    for fields, text in FAULTS:
        for device in [(1, 0), (8, 0)]:
            for versioned in [False, True]:
                with subtests.test(fields=fields, text=text, device=device, versioned=versioned):
                    producer = Producer(**{"versioned": versioned, "device": device, "data": 16, **fields})
                    capsule = producer.capsule()
                    with pytest.raises(BufferError, match=text):
                        md.from_dlpack(capsule)
                    assert capsule_name(capsule) == producer.name
                    assert producer.deletions == 0


@pytest.mark.rule("import-overflow")
def test_a_cpu_tensor_cannot_reach_outside_the_address_space(live_buffers, subtests):
    for fields in [
        {"data": 2**64 - 64, "byte_offset": 64},
        {"data": 2**64 - 64, "shape": (17,)},
        {"data": 2**64 - 64, "byte_offset": 32, "shape": (9,)},
        {"data": 64, "shape": (18,), "strides": (-1,)},
    ]:
        for versioned in [False, True]:
            with subtests.test(fields=fields, versioned=versioned):
                producer = Producer(versioned=versioned, **{"shape": (2,), **fields})
                with pytest.raises(BufferError, match="passes the end of the address space"):
                    md.from_dlpack(producer)
                assert producer.deletions == 0


@pytest.mark.rule("import-readonly")
def test_the_buffer_of_a_tensor_is_read_only_if_the_tensor_is():
    for device in ("cpu", "metal"):
        for flags in (0, READ_ONLY):
            memory = md.zeros(64, "float32")
            if device == "metal":
                producer = metal_producer(memory.buffer, shape=(2,), flags=flags)
            else:
                producer = Producer(data=memory.buffer.address, shape=(2,), flags=flags)
            assert md.from_dlpack(producer).buffer.array(1, "float32").readonly is bool(flags), device


@pytest.mark.rule("import-offset", "import-bounds")
def test_a_metal_tensor_cannot_reach_outside_its_buffer(live_buffers, subtests):
    for fields, text in [
        ({"byte_offset": 2**63}, "larger than any buffer"),
        ({"byte_offset": 2**63 - 1}, "larger than any buffer"),
        ({"byte_offset": 48, "shape": (2, 3)}, r"48.*24 bytes.*64 bytes"),
        ({"shape": (17,)}, r"68 bytes.*64 bytes"),
        ({"shape": (2, 2), "strides": (16, 1)}, "passes the end"),
        ({"shape": (3,), "strides": (-1,), "byte_offset": 4}, "before"),
        ({"byte_offset": 2}, r"\(2\) is not a multiple"),
    ]:
        for versioned in [False, True]:
            with subtests.test(fields=fields, text=text, versioned=versioned):
                buffer = md.Buffer(64)
                producer = metal_producer(buffer, versioned=versioned, **{"shape": (2,), **fields})
                with pytest.raises(BufferError, match=text):
                    md.from_dlpack(producer)
                assert producer.deletions == 0


@pytest.mark.rule("import-handle")
def test_what_is_not_an_mtlbuffer_is_named_and_not_messaged(live_buffers):
    memory = np.zeros(64)
    for data in (memory.ctypes.data, 16, id(memory), md.default_device().handle, memory.ctypes.data + 1):
        producer = Producer(data=data, device=(8, 0), shape=(2,))
        with pytest.raises(BufferError, match=r"id<MTLBuffer>.*kDLCPU"):
            md.from_dlpack(producer)
        assert producer.deletions == 0


@pytest.mark.parametrize("device", [(2, 0), (4, 0), (13, 0), (0, 0), (-1, 0), (10**6, 0)])
@pytest.mark.rule("import-other-device")
def test_a_foreign_device_is_named(device):
    producer = Producer(device=device, data=16)
    with pytest.raises(BufferError, match=str(device[0])):
        md.from_dlpack(producer)
    with pytest.raises(BufferError, match=str(device[0])):
        md.from_dlpack(producer.capsule())
    assert producer.deletions == 0


@pytest.mark.rule("import-device-id")
def test_a_device_id_that_is_not_the_buffers_is_refused():
    producer = Producer(device=(8, 1), data=md.Buffer(64).handle, shape=(2,))
    buffer = md.Buffer(64)
    producer.struct.tensor.data = buffer.handle
    with pytest.raises(BufferError, match=r"\(8, 1\)"):
        md.from_dlpack(producer)


@pytest.mark.parametrize("version", [(0, 9), (2, 0), (2**32 - 1, 3)])
@pytest.mark.rule("import-major")
def test_another_major_version_is_deleted_and_otherwise_untouched(version):
    producer = Producer(version=version, device=(77, 7), ndim=-5)
    capsule = producer.capsule()
    with pytest.raises(BufferError, match=f"{version[0]}.{version[1]}"):
        md.from_dlpack(capsule)
    assert producer.deletions == 1
    assert capsule_name(capsule) == b"used_dltensor_versioned"


@pytest.mark.rule("import-minor")
def test_a_later_minor_version_is_taken():
    memory = np.zeros(6, "float32")
    assert md.from_dlpack(Producer(version=(1, 99), data=memory.ctypes.data)).shape == (2, 3)


@BOTH
@pytest.mark.rule("import-once")
def test_a_capsule_is_taken_once(versioned):
    memory = np.zeros(6, "float32")
    producer = Producer(versioned=versioned, data=memory.ctypes.data)
    capsule = producer.capsule()
    array = md.from_dlpack(capsule)
    for _ in range(2):
        with pytest.raises(BufferError, match="already consumed"):
            md.from_dlpack(capsule)
    del array
    collect()
    assert producer.deletions == 1


@pytest.mark.rule("import-no-dlpack")
def test_what_does_not_speak_dlpack_is_named():
    class HalfProducer:
        def __dlpack__(self, **_):
            raise AssertionError

    for thing in (object(), 5, "text", [1.0], None):
        with pytest.raises(AttributeError, match=rf"{type(thing).__name__}.*asarray"):
            md.from_dlpack(thing)
    with pytest.raises(AttributeError, match="__dlpack_device__"):
        md.from_dlpack(HalfProducer())


def test_a_capsule_of_another_kind_is_named():
    import datetime

    with pytest.raises(BufferError, match=r"datetime\.datetime_CAPI"):
        md.from_dlpack(datetime.datetime_CAPI)


class Strict:
    """A producer that takes only some keywords, as older ones do."""

    def __init__(self, accepted, inner):
        self.accepted = accepted
        self.inner = inner
        self.calls = []

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        if set(keywords) - set(self.accepted):
            raise TypeError("unexpected keyword")
        return self.inner.__dlpack__(**keywords)


@pytest.mark.rule("import-old-producers")
def test_producers_old_and_young_are_asked_for_what_they_know(subtests):
    for accepted in [(), ("max_version",), ("max_version", "copy"), ("stream",)]:
        for copy in [None, True, False]:
            with subtests.test(accepted=accepted, copy=copy):
                inner = np.arange(6.0)
                producer = Strict(accepted, inner)
                array = md.from_dlpack(producer, copy=copy)
                assert array.tolist() == inner.tolist()
                shares = array.buffer.address + array.byte_offset == inner.ctypes.data
                assert shares == (copy is not True)


@pytest.mark.rule("import-errors")
def test_what_a_producer_raises_comes_through():
    class Failing:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise ZeroDivisionError("its own reason")

    with pytest.raises(ZeroDivisionError, match="its own reason"):
        md.from_dlpack(Failing())


@pytest.mark.parametrize("answer", [5, (1,), (1, 0, 0), ("a", 0), None])
def test_a_device_that_is_no_pair_is_refused(answer):
    class Odd:
        def __dlpack_device__(self):
            return answer

        def __dlpack__(self, **_):
            raise AssertionError

    with pytest.raises((BufferError, TypeError, ValueError)):
        md.from_dlpack(Odd())


def test_a_dlpack_method_that_returns_no_capsule_is_refused():
    class Odd:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            return 5

    with pytest.raises(TypeError, match="int instead of a capsule"):
        md.from_dlpack(Odd())


def test_an_array_of_ours_shares_its_buffer_object():
    array = md.zeros((2, 3))
    again = md.from_dlpack(array[1])
    assert again.buffer is array.buffer
    assert md.from_dlpack(array, copy=True).buffer is not array.buffer


@pytest.mark.rule("import-device")
def test_device_cpu_gives_the_host_view_and_names_give_devices():
    array = md.zeros(3)
    assert md.from_dlpack(array, device="cpu").__dlpack_device__() == (1, 0)
    for device in ("metal", "metal:0", md.default_device()):
        assert md.from_dlpack(np.zeros(3), device=device).device is md.default_device()
    with pytest.raises(ValueError, match="metal:7"):
        md.from_dlpack(array, device="metal:7")


def test_streams_other_than_none_and_minus_one_are_refused():
    array = md.zeros(3)
    md.from_dlpack(array, stream=None)
    md.from_dlpack(array, stream=-1)
    with pytest.raises(BufferError, match="stream"):
        md.from_dlpack(array, stream=2**80)
    with pytest.raises(TypeError, match="stream"):
        md.from_dlpack(array, stream="x")


@pytest.mark.rule("import-deleter-exception")
def test_a_refused_capsule_is_freed_with_the_exception_intact():
    """The capsule's destructor runs while our exception is set, and may run Python."""

    class Loud(Exception):
        pass

    class Chatty:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            producer = Producer(data=16, dtype=(99, 1, 1))

            def destroy(_capsule):
                try:
                    raise Loud
                except Loud:
                    pass

            self.callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroy)
            capsule = producer.capsule()
            ctypes.pythonapi.PyCapsule_SetDestructor.argtypes = [ctypes.py_object, ctypes.c_void_p]
            ctypes.pythonapi.PyCapsule_SetDestructor(capsule, ctypes.cast(self.callback, ctypes.c_void_p))
            return capsule

    with pytest.raises(BufferError, match="code 99"):
        md.from_dlpack(Chatty())


def test_references_are_counted_exactly():
    source = np.arange(6.0)
    array = md.zeros(6)
    faulty = Producer(data=16, dtype=(99, 1, 1))
    for call in (
        lambda: md.from_dlpack(source),
        lambda: md.from_dlpack(array),
        lambda: md.from_dlpack(faulty),
        lambda: md.from_dlpack(source, copy=True),
        lambda: md.from_dlpack(array.__dlpack__()),
        lambda: np.from_dlpack(array, device="cpu"),
        lambda: md.asarray([1.0, 2.0]),
        lambda: array[1:].reshape(5),
        lambda: array.__array__("int8"),
    ):
        watched = [source, array, array.buffer, None, md.float32, (1, 3)]
        for _ in range(3):
            _quietly(call)
        gc.collect()
        before = [sys.getrefcount(thing) for thing in watched]
        for _ in range(100):
            _quietly(call)
        gc.collect()
        after = [sys.getrefcount(thing) for thing in watched]
        assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True)), (before, after)


def _quietly(call):
    with contextlib.suppress(BufferError):
        call()
