"""__dlpack__: every combination of its keywords, for every kind of array, against an oracle written from the standard.

Then what becomes of a capsule, and what its copies wait for.
"""

import ctypes
import enum
import gc
import itertools

import numpy as np
import pytest
from dlpack_structs import IS_COPIED, IS_PADDED, READ_ONLY, open_capsule
from eventually import PATIENCE
from held_work import held
from machine import tries
from own_threads import in_threads

import metal_dlpack as md

CPU, METAL = (1, 0), (8, 0)
ABSENT = object()

#: Kind: (how it is made, why the memory itself cannot be handed out on the CPU, and on Metal).
KINDS = {
    "whole": (lambda: counted(24).reshape((4, 6)), False, False),
    "view": (lambda: counted(24).reshape((4, 6))[1:, 2:5], False, False),
    "transposed": (lambda: counted(24).reshape((4, 6)).T, False, False),
    "repeated": (lambda: counted(6).broadcast_to((4, 6)), False, False),
    "every second": (lambda: counted(24)[::2], False, False),
    "negative": (lambda: counted(24)[::-1], True, True),
    "an axis of one, negative": (lambda: counted(24).reshape((1, 24))[::-1], False, False),
    "within an item": (lambda: counted(24).buffer.array(4, "complex64", 4), False, True),
    "read-only": (lambda: counted(24).as_readonly(), False, False),
    "read-only, negative": (lambda: counted(24)[::-1].as_readonly(), True, True),
    "no items": (lambda: counted(24)[3:3], False, False),
    "no items, negative": (lambda: counted(24)[3:3][::-1], False, False),
    "no items, private": (lambda: counted(24).copy(storage="private")[3:3], False, False),
    "0-d": (lambda: counted(24)[7], False, False),
    "private": (lambda: counted(24).copy(storage="private"), True, False),
    "private view": (lambda: counted(24).copy(storage="private")[5:], True, False),
    "managed": (lambda: counted(24).copy(storage="managed"), False, False),
    "packed": (lambda: md.zeros((3, 5), "int4"), False, False),
    "packed, apart": (lambda: md.zeros((3, 6), "int4")[:, ::2], True, True),
    "padded": (lambda: md.zeros((3, 5), "int4").copy(padded=True), False, False),
}
#: Words for why a copy is needed, in the kinds and in the errors.
REASONS = ("negative", "item", "private", "packed", "padded")
STREAMS = (ABSENT, None, -1, "Stream", "handle", 5, "text")
VERSIONS = (ABSENT, None, (0, 8), (1, 0), (1, 99), (2, 0))
DEVICES = (ABSENT, None, METAL, CPU, (2, 0), (8, 1), (1, 1))
COPIES = (ABSENT, None, True, False)


def counted(size):
    """float32 from 0 on, in a buffer of its own."""
    return md.asarray([float(i) for i in range(size)], copy=True)


def refusals(array, kind, stream, version, device, copy):
    """The classes that may be raised; none: a capsule must come."""
    found = set()
    if stream == "text":
        found.add(TypeError)  # SPEC design: another type
    if stream == 5:
        found.add(BufferError)
    if device not in (ABSENT, None, METAL, CPU):
        found.add(BufferError)  # SPEC array API: an unsupported dl_device
        return found
    if copy is not True and array.readonly and not is_versioned(version):
        found.add(BufferError)  # NumPy's rule: a legacy tensor cannot say that it is read-only
    elif copy is False and needs_copy(array, kind, version, device):
        found.add(md.CopyRequiredError)  # SPEC array API: BufferError if a copy is needed
    return found


def is_versioned(version):
    return version not in (ABSENT, None) and version[0] >= 1


def needs_copy(array, kind, version, device):
    _, on_cpu, on_metal = KINDS[kind]
    if array.padded and not is_versioned(version):
        return True
    return on_cpu if device == CPU else on_metal


def check_capsule(array, kind, capsule, version, device, copy):
    opened = open_capsule(capsule)
    tensor = opened.tensor
    is_cpu, is_copied = device == CPU, copy is True or needs_copy(array, kind, version, device)
    assert opened.name == (b"dltensor_versioned" if is_versioned(version) else b"dltensor")
    if is_versioned(version):
        assert tuple(opened.version) == (1, 3)
        expected = IS_COPIED if is_copied else READ_ONLY * array.readonly
        assert opened.flags == expected | IS_PADDED * array.padded
    assert tuple(tensor.device) == (CPU if is_cpu else METAL)
    assert (tensor.code, tensor.bits, tensor.lanes) == (array.dtype.code, array.dtype.bits, 1)
    assert tuple(tensor.shape[: tensor.ndim]) == array.shape
    assert ctypes.cast(tensor.shape, ctypes.c_void_p).value
    assert ctypes.cast(tensor.strides, ctypes.c_void_p).value
    strides = tuple(tensor.strides[: tensor.ndim])
    if not array.size:
        assert (tensor.data, tensor.byte_offset) == (None, 0)
    elif is_copied:
        assert strides == array.copy().strides
        assert tensor.data not in (array.buffer.handle, address_of(array))
        assert tensor.byte_offset == 0
    else:
        assert strides == array.strides, "as they are, also along axes of one"
        assert (tensor.data, tensor.byte_offset) == (
            (address_of(array), 0) if is_cpu else (array.buffer.handle, array.byte_offset)
        )
    if is_cpu and array.dtype is md.float32 and array.size:
        assert items_at(tensor.data, array.shape, strides) == array.copy().flatten().tolist()


def address_of(array):
    return None if array.storage == "private" else array.buffer.address + array.byte_offset


def items_at(address, shape, strides):
    at = (
        sum(i * step for i, step in zip(index, strides, strict=True)) for index in itertools.product(*map(range, shape))
    )
    return [ctypes.c_float.from_address(address + 4 * item).value for item in at]


@pytest.mark.rule(
    "export-legacy",
    "export-versioned",
    "export-keywords",
    "export-device",
    "export-copy-true",
    "export-copy-false",
    "export-copy-none",
    "export-stream-other",
    "export-device-id",
    "export-strides",
    "export-strides-as-they-are",
    "export-readonly",
    "export-readonly-legacy",
    "export-subbyte",
    "export-empty",
    "export-negative",
    "export-offset-item",
    "export-private",
    "export-dropped",
)
def test_every_combination_of_keywords_does_what_the_standard_says(live_buffers, subtests):
    for kind in KINDS:
        with subtests.test(kind=kind):
            make, _, _ = KINDS[kind]
            array, stream = make(), md.Stream()
            streams = {"Stream": stream, "handle": stream.handle}
            combinations = list(itertools.product(STREAMS, VERSIONS, DEVICES, COPIES))
            assert len(combinations) == 1176
            for asked in combinations[:: 1176 // tries(1176)]:  # 1 or 5, which divides no list's length
                names = ("stream", "max_version", "dl_device", "copy")
                keywords = {n: v for n, v in zip(names, asked, strict=True) if v is not ABSENT}
                if keywords.get("stream") in streams:
                    keywords["stream"] = streams[keywords["stream"]]
                expected = refusals(array, kind, *asked)
                try:
                    capsule = array.__dlpack__(**keywords)
                except (BufferError, TypeError) as error:
                    assert type(error) in expected, (keywords, error)
                    assert str(error).startswith("Array.__dlpack__: "), error
                    if type(error) is md.CopyRequiredError:
                        assert any(word in kind and word in str(error) for word in REASONS), error
                else:
                    assert not expected, keywords
                    check_capsule(array, kind, capsule, *asked[1:])


@pytest.mark.rule("export-host-view")
def test_the_host_view_is_the_same_producer_on_the_cpu(live_buffers, subtests):
    for kind in KINDS:
        with subtests.test(kind=kind):
            make, _, _ = KINDS[kind]
            array = make()
            if array.storage == "private":
                with pytest.raises(BufferError, match="private"):
                    _ = array.host
                continue
            host = array.host
            assert (host.__dlpack_device__(), "host view" in repr(host)) == (CPU, True)
            for version, copy in itertools.product(VERSIONS, COPIES):
                keywords = {n: v for n, v in (("max_version", version), ("copy", copy)) if v is not ABSENT}
                expected = refusals(array, kind, None, version, CPU, copy)
                if expected:
                    with pytest.raises(tuple(expected)):
                        host.__dlpack__(**keywords)
                else:
                    check_capsule(array, kind, host.__dlpack__(**keywords), version, CPU, copy)


@pytest.mark.rule("export-keywords")
def test_bad_keywords_are_refused_by_name(live_buffers, subtests):
    for keywords, error in [
        ({"stream": 2**70}, BufferError),
        ({"stream": "0"}, TypeError),
        ({"stream": True}, TypeError),
        ({"dl_device": (2, 0)}, BufferError),
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


# ---- capsules ----


def test_export_and_deletion_from_many_threads_at_once(live_buffers):
    array = md.zeros(16)

    def work(_):
        for _ in range(2000):
            array.__dlpack__()
            array.__dlpack__(max_version=(1, 0), dl_device=(1, 0))

    in_threads(8, work)
    array = None
    gc.collect()
    assert live_buffers() == 0


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
    assert target.record().wait(PATIENCE)
    assert event.query()
    assert copy.tolist() == [3] * 64
