"""from_dlpack: what is taken, how, in which words it is refused, and what becomes of the producer's tensor.

hostile/test_hostile.py tries every fault and every oddity, by every road.
"""

import ctypes
import datetime
import gc
import inspect
import re

import numpy as np
import pytest
from dlpack_structs import Handing, Producer, capsule_name

import metal_dlpack as md

BYTES = np.zeros(64)


def collect():
    gc.collect()
    md.from_dlpack(md.zeros(1))  # lets go of what waits for the interpreter


TOO_FAR = r"reach 2\*\*60 bytes or farther, which no memory has"
OUTSIDE = "passes the end of the address space"
NO_BUFFER = r"id<MTLBuffer>.*kDLCPU"
FLOAT = {"shape": (2,)}
#: Where the data is: at 16, which nobody may read, or in a buffer of 64 bytes; what is wrong, and in which words.
REFUSED = [
    ("anywhere", {"ndim": -1}, "ndim"),
    ("anywhere", {"ndim": 1, "shape": None, "strides": None}, "shape is NULL"),
    ("anywhere", {"shape": (2, -3)}, "negative"),
    ("anywhere", {"shape": (2**40, 2**40)}, TOO_FAR),
    ("anywhere", {"dtype": (0, 4, 1), "shape": (2, 2), "strides": (2**62, 1)}, TOO_FAR),
    ("anywhere", {"data": None}, "data is NULL"),
    ("anywhere", {"dtype": (2, 32, 0)}, "lanes"),
    *(("anywhere", {"dtype": dtype}, "element type") for dtype in [(2, 33, 1), (2, 0, 1), (99, 32, 1), (3, 64, 1)]),
    *(("device", {"device": (kind, 0)}, rf"{kind}\b") for kind in [2, 4, 13, 0, -1, 10**6]),
    ("cpu", {"data": 2**64 - 64, "byte_offset": 64, **FLOAT}, OUTSIDE),
    ("cpu", {"data": 2**64 - 64, "shape": (17,)}, OUTSIDE),
    ("cpu", {"data": 64, "shape": (18,), "strides": (-1,)}, OUTSIDE),
    ("buffer", {"byte_offset": 2**63 - 1, **FLOAT}, "larger than any buffer"),
    ("buffer", {"byte_offset": 48, "shape": (2, 3)}, r"48.*24 bytes.*64 bytes"),
    ("buffer", {"shape": (17,)}, r"68 bytes.*64 bytes"),
    ("buffer", {"shape": (2, 2), "strides": (16, 1)}, "passes the end"),
    ("buffer", {"shape": (3,), "strides": (-1,), "byte_offset": 4}, "before"),
    ("buffer", {"byte_offset": 2, **FLOAT}, r"\(2\) is not a multiple"),
    ("buffer", {"device": (8, 1), **FLOAT}, r"\(8, 1\)"),
    *(("metal", {"data": data, **FLOAT}, NO_BUFFER) for data in (16, BYTES.ctypes.data, BYTES.ctypes.data + 1)),
    *(("metal", {"data": data, **FLOAT}, NO_BUFFER) for data in (id(BYTES), md.default_device().handle)),
]


@pytest.mark.rule(
    "import-untouched",
    "import-shape",
    "import-overflow",
    "import-offset",
    "import-bounds",
    "import-handle",
    "import-other-device",
    "import-device-id",
)
def test_what_is_refused_is_refused_in_words_and_untouched(live_buffers, subtests):
    memory = md.Buffer(64)
    devices = {"anywhere": [(1, 0), (8, 0)], "buffer": [(8, 0)], "metal": [(8, 0)], "cpu": [(1, 0)], "device": [(0, 0)]}
    for place, fields, words in REFUSED:
        for device in devices[place]:
            for versioned in (False, True):
                with subtests.test(fields=fields, device=device, versioned=versioned):
                    known = {"data": memory.handle if place == "buffer" else 16, "device": device}
                    producer = Producer(versioned=versioned, **known | fields)
                    capsule = producer.capsule()
                    for given in (capsule, producer):
                        with pytest.raises(BufferError, match=words):
                            md.from_dlpack(given)
                    assert capsule_name(capsule) == producer.name
                    assert producer.deletions == 0


@pytest.mark.rule("import-device-agrees")
@pytest.mark.parametrize("versioned", [False, True])
def test_a_producer_that_contradicts_its_capsule_is_refused_untouched(versioned, live_buffers):
    memory, host = md.Buffer(64), np.zeros(4, "float32")
    metal = {"data": memory.handle, "device": (8, 0), **FLOAT}
    cpu = {"data": host.ctypes.data, "device": (1, 0), **FLOAT}
    for fields, reported, is_taken in [
        (metal, (8, 0), True),
        (metal, (1, 0), False),
        (metal, (8, 2**40), False),
        (metal, (8, 1), False),
        (cpu, (1, 0), True),
        (cpu, (1, None), True),
        (cpu, (1, -1), False),
        (cpu, (8, 0), False),
        (cpu | {"device": (1, 3)}, (1, 0), True),  # it reports no number
    ]:
        producer = Producer(versioned=versioned, **fields)
        capsule = producer.capsule()
        for take in (md.from_dlpack, md.asarray):
            if not is_taken:
                both = f"reports device {reported}, but its tensor is on device {fields['device']}"
                with pytest.raises(BufferError, match=re.escape(both)):
                    take(Handing(capsule, reported))
                assert (capsule_name(capsule), producer.deletions) == (producer.name, 0)
        if is_taken:
            del capsule
            assert md.from_dlpack(Handing(producer.capsule(), reported)).size == 2


@pytest.mark.rule("import-no-dlpack")
def test_what_does_not_speak_dlpack_is_named():
    for thing in (object(), 5, "text", [1.0], None):
        with pytest.raises(AttributeError, match=rf"{type(thing).__name__}.*asarray"):
            md.from_dlpack(thing)
    half = type("Half", (), {"__dlpack__": lambda _self, **_keywords: pytest.fail("it is asked for a capsule")})()
    with pytest.raises(AttributeError, match="__dlpack_device__"):
        md.from_dlpack(half)
    with pytest.raises(BufferError, match=r"datetime\.datetime_CAPI"):
        md.from_dlpack(datetime.datetime_CAPI)


def giving(dlpack, device=(1, 0)):
    """A producer whose __dlpack__ is this function."""
    methods = {"__dlpack_device__": lambda _self: device, "__dlpack__": lambda _self, **keywords: dlpack(**keywords)}
    return type("Giving", (), methods)()


@pytest.mark.rule("import-old-producers")
def test_producers_old_and_young_are_asked_for_what_they_know(subtests):
    source = np.arange(6.0)
    for dlpack in [
        lambda: source.__dlpack__(),
        lambda stream=None: source.__dlpack__(stream=stream),
        lambda max_version=None: source.__dlpack__(max_version=max_version),
        lambda max_version=None, copy=None: source.__dlpack__(max_version=max_version, copy=copy),
    ]:
        for copy in [None, True, False]:
            with subtests.test(dlpack=inspect.signature(dlpack), copy=copy):
                array = md.from_dlpack(giving(dlpack), copy=copy)
                assert array.tolist() == source.tolist()
                shares = array.buffer.address + array.byte_offset == source.ctypes.data
                assert shares == (copy is not True)


@pytest.mark.rule("import-errors")
def test_what_a_producer_raises_comes_through_and_what_it_gives_must_be_a_capsule():
    with pytest.raises(ZeroDivisionError, match="by zero"):
        md.from_dlpack(giving(lambda **_: 1 // 0))
    with pytest.raises(TypeError, match="int instead of a capsule"):
        md.from_dlpack(giving(lambda **_: 5))
    for device in (5, (1,), (1, 0, 0), ("a", 0), None):
        with pytest.raises((BufferError, TypeError, ValueError)):
            md.from_dlpack(giving(lambda **_: pytest.fail("it is asked for a capsule"), device))


@pytest.mark.parametrize("take", [md.asarray, md.from_dlpack])
def test_an_array_of_ours_shares_its_buffer_object(take):
    array = md.zeros((2, 3))
    assert take(array[1]).buffer is array.buffer
    assert take(array, copy=True).buffer is not array.buffer


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
    raised = []

    def destroy(_capsule):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            raised.append(error)

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(destroy)

    def dlpack(**_keywords):
        capsule = Producer(data=16, dtype=(99, 1, 1)).capsule()
        ctypes.pythonapi.PyCapsule_SetDestructor.argtypes = [ctypes.py_object, ctypes.c_void_p]
        ctypes.pythonapi.PyCapsule_SetDestructor(capsule, ctypes.cast(callback, ctypes.c_void_p))
        return capsule

    with pytest.raises(BufferError, match="code 99"):
        md.from_dlpack(giving(dlpack))
    assert len(raised) == 1


def test_a_producer_is_asked_with_fewer_and_fewer_keywords():
    asked = []

    class Older:
        device = (1, 0)

        def __dlpack__(self, **keywords):
            asked.append(keywords)
            raise TypeError

        def __dlpack_device__(self):
            return self.device

    class Queued(Older):
        device = (8, 0)

        def __metal_stream__(self):
            raise AssertionError

    for producer, copy, first in ((Older(), None, []), (Older(), False, [{"copy": False}])):
        asked.clear()
        with pytest.raises(TypeError):
            md.from_dlpack(producer, copy=copy)
        assert asked == [{"max_version": (1, 3)} | more for more in [*first, {}]] + [{}]
    asked.clear()
    with pytest.raises(TypeError):
        md.from_dlpack(Queued(), copy=True)
    assert [set(keywords) - {"max_version"} for keywords in asked] == [{"stream", "copy"}, {"copy"}, set(), set()]
    assert (asked[0]["stream"], asked[0]["copy"]) == (-1, True)


def test_a_device_without_a_number_is_read_and_of_another_kind_refused():
    """As Paddle reports the CPU."""
    memory = np.arange(3.0)

    class Paddle:
        device = (1, None)

        def __dlpack_device__(self):
            return self.device

        def __dlpack__(self, stream=None):
            return memory.__dlpack__()

    assert md.shares_memory(md.from_dlpack(Paddle()), memory)
    assert md.asarray(Paddle()).tolist() == [0, 1, 2]
    for device, words in [((2, None), "Paddle reports device"), ((None, 0), "must be an int, not NoneType")]:
        Paddle.device = device
        with pytest.raises((BufferError, TypeError), match=words):
            md.from_dlpack(Paddle())
