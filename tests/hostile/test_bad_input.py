"""Bad input: one exception that says what was wrong; no crash, no leak, no half-taken capsule.

test_dlpack_import.py names each fault of a tensor.  Here they come in any combination, and at every door.
"""

import ctypes
import datetime
import gc
import pickle

import numpy as np
import pytest
from children import output_of
from dlpack_structs import CAPSULE_NAMES, READ_ONLY, Producer, capsule_name
from doors import doors
from hostile.cases import METAL, TAKEN, verdict
from hostile.faults import ROOM
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import tries

import metal_dlpack as md
import softmetal
from metal_dlpack import _core

int64s = st.integers(-(2**63), 2**63 - 1)
small = st.integers(0, 9)
extents = st.one_of(small, small, small, small, small, st.sampled_from([-1, 2**31, 2**62, 2**63 - 1, -(2**63)]), int64s)
steps = st.integers(-9, 9)
strides = st.one_of(steps, steps, steps, steps, steps, st.sampled_from([2**62, -(2**63), 2**63 - 1]), int64s)
offsets = st.one_of(
    st.sampled_from([0, 8, 64]), st.integers(0, 64), st.sampled_from([ROOM, ROOM - 4, 2**63 - 1, 2**63, 2**64 - 1])
)
dtypes = st.one_of(
    st.sampled_from([(0, 32, 1), (2, 32, 1), (2, 64, 1), (1, 8, 1), (4, 16, 1), (5, 64, 1), (6, 8, 1), (17, 4, 1)]),
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 65535)),
)


@st.composite
def tensors(draw):
    ndim = draw(st.integers(0, 4))
    has_shape = draw(st.integers(0, 9)) > 0
    has_strides = draw(st.booleans())
    versioned = draw(st.booleans())
    return {
        "versioned": versioned,
        "shape": tuple(draw(extents) for _ in range(ndim)) if has_shape else None,
        "strides": tuple(draw(strides) for _ in range(ndim)) if has_strides else None,
        "ndim": draw(st.one_of(st.just(ndim), st.just(ndim), st.sampled_from([-1, 65, 2**31 - 1, -(2**31)]))),
        "byte_offset": draw(offsets),
        "dtype": draw(dtypes),
        **({"flags": draw(st.sampled_from([0, READ_ONLY, 2, 4, 2**64 - 1]))} if versioned else {}),
    }


def let_go():
    gc.collect(0)
    md.from_dlpack(md.zeros(1))


@settings(max_examples=tries(400))
@given(tensors(), st.sampled_from([None, True, False]))
@pytest.mark.rule("import-overflow", "import-bounds")
def test_any_metal_tensor_is_taken_within_its_buffer_or_refused(fields, copy):
    """Taken and let go once, or never touched."""
    buffer = md.Buffer(ROOM)
    producer = Producer(data=buffer.handle, device=METAL, **fields)
    capsule = producer.capsule()
    array = None
    try:
        array = md.from_dlpack(capsule, copy=copy)
    except BufferError as error:
        assert str(error)
    is_taken = array is not None
    assert is_taken == (verdict(fields, METAL, ROOM) == TAKEN)
    assert is_taken == (capsule_name(capsule) != producer.name)
    del array
    let_go()
    assert producer.deletions == is_taken
    Producer._kept.clear()


# ---- every door ----


class Raises:
    """Whatever it is asked, it raises."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __index__(self):
        raise ZeroDivisionError("__index__")

    def __len__(self):
        raise ZeroDivisionError("__len__")

    def __iter__(self):
        raise ZeroDivisionError("__iter__")


class Liar:
    """Says that it is a sequence of a length that it has not."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index:
            raise IndexError(index)
        return 1


def recursive():
    items = []
    items.append(items)
    return items


RUBBISH = {
    "None": None,
    "an object": object(),
    "text": "rubbish",
    "text with a nul": "float32\0",
    "surrogates": "\ud800",
    "bytes": b"\xff" * 3,
    "a huge int": 2**200,
    "a huge negative int": -(2**200),
    "the largest size": 2**63 - 1,
    "the smallest size": -(2**63),
    "a float": 1.5,
    "not a number": float("nan"),
    "a bool": True,
    "a set": {1, 2},
    "a dict": {"a": 1},
    "a tuple of rubbish": ("!", None),
    "65 extents": (1,) * 65,
    "huge extents": (2**31, 2**31, 2**31),
    "negative extents": (-3, 2),
    "a recursive list": recursive(),
    "ragged": [[1], [2, 3]],
    "a slice": slice("!", None),
    "a slice of step 0": slice(None, None, 0),
    "two ellipses": (..., ...),
    "a class": int,
    "an Array class": md.Array,
    "what raises": Raises(),
    "what lies": Liar(),
    "objects in NumPy": np.array([object()]),
    "a structured NumPy array": np.zeros(2, "i4,f4"),
    "dates": np.zeros(2, "M8[s]"),
    "other bytes": np.zeros(2, ">f4"),
    "a datetime capsule": datetime.datetime_CAPI,
}

#: What bad input may raise.  SystemError and KeyError, say, would be our own faults.
ALLOWED = (
    TypeError,
    ValueError,
    BufferError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    ZeroDivisionError,
    md.MetalError,
    RecursionError,
    FileNotFoundError,
    NotImplementedError,  # an IOSurface, without Metal
)


#: Doors that take whatever there is.
TAKE_ANYTHING = {"Buffer.from_handle(owner)", "explain(x)", "StridedLayout(divide_strides)"}
TAKE_ANYTHING |= {"StridedLayout.repacked(keep_dim)", "Buffer.array(padded)"}


def test_rubbish_is_refused_in_words_at_every_door(live_buffers, subtests):
    tried = doors()
    assert len(tried) >= 145
    for door, call in tried.items():
        with subtests.test(door):
            for name, rubbish in RUBBISH.items():
                try:
                    call(rubbish)
                except ALLOWED as error:
                    assert str(error).strip(), (name, type(error))
                else:  # some rubbish is good input at some doors
                    assert name != "an object" or door in TAKE_ANYTHING
    del tried, call


#: The parameters that take texts: right ones, and what a text is refused by at which C would stop reading too early.
TEXTS = {
    "storage": (["shared", "private", ""], ValueError, r"\\x00"),
    "device": (["metal:0", "metal", "cpu", ""], ValueError, r"\\x00"),
    "dtype": (["float32", "<f4", "torch.float32"], TypeError, r"\\x00"),
    "label": (["a"], ValueError, "null character"),
    "order": (["C", "F"], ValueError, None),
    "stride_order": (["C"], ValueError, None),
    "path": (["b.npy"], ValueError, None),
    "mode": (["r"], ValueError, None),
    "consumer": (["torch"], ValueError, None),
}


def test_a_text_with_a_null_character_is_refused_wherever_a_text_is_taken(subtests):
    for door, call in doors().items():
        right, error, words = TEXTS.get(door.partition("(")[2].removesuffix(")"), ((), None, None))
        for text in [text + tail for text in right for tail in ("\0", "\0x")]:
            with subtests.test(door, text=text), pytest.raises(error, match=words):
                call(text)


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("take", [softmetal.live_objects, softmetal.reports])
def test_a_name_of_the_software_metal_has_no_null_character(take):
    with pytest.raises(ValueError, match="null character"):
        take("MTLBuffer\0x")


def test_there_is_one_exception_and_it_has_no_strange_context(live_buffers):
    memory = np.zeros(6, np.float32)
    for fields in ({"dtype": (99, 1, 1)}, {"shape": (-1,)}, {"version": (9, 0)}, {"ndim": -1}):
        with pytest.raises(BufferError) as caught:
            md.from_dlpack(Producer(data=memory.ctypes.data, **fields))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


# ---- hostile objects ----


@pytest.mark.rule("import-once")
def test_a_producer_that_consumes_while_it_is_asked(live_buffers):
    """Its __dlpack__ imports the very capsule that it then returns."""
    memory = np.zeros(6, np.float32)
    inner = Producer(data=memory.ctypes.data)

    class Greedy:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            capsule = inner.capsule()
            md.from_dlpack(capsule)
            return capsule

    with pytest.raises(BufferError, match="consumed"):
        md.from_dlpack(Greedy())
    let_go()
    assert inner.deletions == 1


def test_a_sequence_that_shrinks_while_it_is_read(live_buffers):
    class Shrinking(list):
        def __init__(self):
            super().__init__([2, 3, 4])

        def __getitem__(self, index):
            self.clear()
            return 2

    class Eater:
        def __init__(self, target):
            self.target = target

        def __index__(self):
            self.target.clear()
            return 2

    shape = [2, 3, 4]
    shape[0] = Eater(shape)
    for bad in (Shrinking(), shape):
        try:
            md.zeros(bad)
        except (TypeError, ValueError, IndexError) as error:
            assert str(error)


def test_an_owner_that_dies_badly_does_not_disturb(live_buffers):
    class Bad:
        def __del__(self):
            md.zeros(3).tolist()

    backing = md.Buffer(64)
    wrapped = md.Buffer.from_handle(backing.handle, owner=Bad())
    wrapped.close()
    assert wrapped.is_closed


def test_no_type_can_be_made_or_changed_from_outside(subtests):
    for cls in (md.Array, md.Device, md.HostView):
        with pytest.raises(TypeError):
            cls()
        with pytest.raises(TypeError):
            object.__new__(cls)
    for cls in _core._types():
        with subtests.test(cls=cls), pytest.raises(TypeError):
            cls.shape = 3
        with subtests.test(cls=cls), pytest.raises(TypeError):
            type("Sub", (cls,), {})
    for value in (md.float32, md.StridedLayout((2, 3), None, 4), md.zeros(3), md.default_device()):
        for name in [*dir(value), "other"]:
            with subtests.test(value=value, name=name), pytest.raises((AttributeError, TypeError)):
                setattr(value, name, 1)


def test_pickles_of_rubbish_are_refused():
    for cls in (md.dtype, md.Device):
        thing = md.float32 if cls is md.dtype else md.default_device()
        text = pickle.dumps(thing, 2)
        assert pickle.loads(text) is thing
        for cut in range(1, len(text)):
            try:
                pickle.loads(text[:cut])
            except Exception as error:
                assert not isinstance(error, SystemError)


@pytest.mark.rule("import-once")
def test_names_of_capsules_are_compared_whole():
    memory = np.zeros(6, np.float32)
    producer = Producer(data=memory.ctypes.data)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    for name in (b"dltensor_", b"dltensor_versione", b"DLTENSOR", b"", b"used_dltensor", b"used_dltensor_versioned"):
        assert name not in CAPSULE_NAMES
        capsule = new(ctypes.c_void_p(ctypes.addressof(producer.struct)), ctypes.c_char_p(name), None)
        with pytest.raises(BufferError):
            md.from_dlpack(capsule)
    assert producer.deletions == 0


# ---- the environment ----


@pytest.mark.parametrize("value", ["sharedx", "é" * 10_000])
def test_a_bad_storage_mode_is_one_warning_and_the_default(value):
    code = """
        import warnings
        import metal_dlpack as md

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            modes = {md.get_storage_mode() for _ in range(3)} | {md.zeros(3).storage}
        assert len(caught) == 1, caught
        assert caught[0].category is RuntimeWarning
        assert len(str(caught[0].message)) < 400
        assert modes == {"shared"}
        print(caught[0].message)
    """
    assert f"'{value[:7]}" in output_of(code, METAL_DLPACK_STORAGE_MODE=value)


@pytest.mark.needs_softmetal
def test_without_a_device_everything_says_so():
    code = """
        import metal_dlpack as md

        assert md.devices() == ()
        for call in (md.default_device, lambda: md.zeros(3), lambda: md.asarray([1]), lambda: md.Buffer(4)):
            try:
                call()
            except md.MetalError as error:
                assert "device" in str(error)
            else:
                raise AssertionError(call)
        md.get_storage_mode()
    """
    output_of(code, SOFTMETAL_DEVICES="none")
