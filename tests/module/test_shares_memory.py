"""shares_memory: exact, for any two strided views, whoever made them."""

import itertools
import signal
import sys
import time

import numpy as np
import pytest
from dlpack_structs import IS_COPIED, Producer, capsule_name
from eventually import PATIENCE
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import tries

import metal_dlpack as md

as_strided = np.lib.stride_tricks.as_strided

ROOM = 4096


def addresses(shape, strides, offset, itemsize):
    """The bytes of a layout, one by one."""
    found = set()
    for index in itertools.product(*map(range, shape)):
        first = (offset + sum(i * step for i, step in zip(index, strides, strict=True))) * itemsize
        found.update(range(first, first + itemsize))
    return found


@st.composite
def views(draw):
    """Shape, strides, offset and itemsize of a view that fits ROOM bytes around the middle."""
    ndim, largest_step = draw(st.integers(0, 4)), draw(st.sampled_from([7, 40, 200]))
    shape = tuple(draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 4)) for _ in range(ndim))
    strides = tuple(draw(st.integers(-largest_step, largest_step)) for _ in range(ndim))
    itemsize = draw(st.sampled_from([1, 2, 4, 8]))
    reach = sum((extent - 1) * abs(step) for extent, step in zip(shape, strides, strict=True) if extent > 1)
    low, high = reach, ROOM // itemsize - reach - 1
    offset = draw(st.integers(min(low, high), max(low, high))) if reach * 2 < ROOM // itemsize else None
    return shape, strides, offset, itemsize


def fits(view):
    shape, _, offset, _ = view
    if offset is None or 0 in shape:
        return offset is not None
    found = addresses(*view)
    return min(found) >= 0 and max(found) < ROOM


DTYPES = {1: "uint8", 2: "uint16", 4: "float32", 8: "float64"}
BUFFER = md.Buffer(ROOM)
MEMORY = np.zeros(ROOM, np.uint8)


def array_of(view):
    shape, strides, offset, itemsize = view
    layout = md.StridedLayout(shape, strides, itemsize)
    return BUFFER.array(layout, DTYPES[itemsize], offset * itemsize)


def ndarray_of(view):
    shape, strides, offset, itemsize = view
    base = MEMORY.view(DTYPES[itemsize])[offset:] if offset else MEMORY.view(DTYPES[itemsize])
    return as_strided(base, shape, [step * itemsize for step in strides])


@settings(max_examples=tries(400))
@given(views(), views())
@pytest.mark.rule("shares-memory")
def test_the_answer_is_that_of_the_sets_of_bytes(one, other):
    if not fits(one) or not fits(other):
        return
    expected = bool(addresses(*one) & addresses(*other))
    assert md.shares_memory(array_of(one), array_of(other)) is expected
    assert md.shares_memory(ndarray_of(other), ndarray_of(one)) is expected
    assert md.shares_memory(ndarray_of(one), ndarray_of(other)) is expected


@settings(max_examples=tries(300))
@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 10**5),
    st.integers(1, 10**5),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_long_one_dimensional_views_are_answered_without_a_walk(
    step, other_step, count, other_count, start, other_start
):
    memory = md.Buffer(1 << 20)
    first = memory.array((1 << 20,), "uint8")[start::step][:count]
    second = memory.array((1 << 20,), "uint8")[other_start::other_step][:other_count]
    lows = range(start, 1 << 20, step)[:count]
    highs = range(other_start, 1 << 20, other_step)[:other_count]
    assert md.shares_memory(first, second) is bool(set(lows) & set(highs))


def test_what_has_no_items_shares_nothing():
    array = md.zeros((4, 4))
    for empty in (array[2:2], md.zeros(0), np.zeros((0, 3)), md.Buffer(0)):
        assert not md.shares_memory(empty, array)
        assert not md.shares_memory(empty, empty)


def test_private_buffers_are_compared_by_their_handle():
    array = md.zeros(10, storage="private")
    assert md.shares_memory(array[:6], array[5:])
    assert not md.shares_memory(array[:5], array[5:])
    assert md.shares_memory(array.buffer, array[9])
    for storage in ("private", "shared"):
        assert not md.shares_memory(array, md.zeros(10, storage=storage))


def test_two_metal_buffers_over_one_numpy_array_share_it():
    source = np.arange(10_000.0)
    first, second = md.from_dlpack(source), md.asarray(source)
    assert first.buffer.handle != second.buffer.handle
    assert md.shares_memory(first, second)
    assert md.shares_memory(first[::2], source)
    assert not md.shares_memory(first[::2], second[1::2])
    assert not md.shares_memory(md.from_dlpack(source[:100]), md.from_dlpack(source[100:])), "they lie on the same page"


def test_any_kind_of_object_is_compared_where_it_lies():
    array = md.zeros(64, "uint8")
    for thing in (array.host, array.buffer, memoryview(array), np.asarray(array), array.__dlpack__()):
        assert md.shares_memory(array, thing)
        assert md.shares_memory(thing, array[63])
    assert not md.shares_memory(array, bytearray(64))
    text = bytearray(100)
    assert md.shares_memory(text, memoryview(text)[99:])
    assert not md.shares_memory(memoryview(text)[::2], memoryview(text)[1::2])


def test_elements_that_dlpack_has_not_are_compared_too():
    dates = np.zeros(8, "M8[s]")
    assert md.shares_memory(dates, dates[7:])
    assert not md.shares_memory(dates[::2], dates[1::2])
    records = np.zeros(8, [("a", "f4"), ("b", "i2"), ("c", "U3")])
    assert not md.shares_memory(records["a"], records["b"])
    assert md.shares_memory(records["c"], records)
    swapped = np.zeros(8, ">f4")
    assert md.shares_memory(swapped, swapped.view("<f4")[7:])


def test_a_given_capsule_stays_unconsumed_and_a_copy_is_not_the_array():
    array = md.zeros(4)
    capsule = array.__dlpack__()
    assert md.shares_memory(capsule, array)
    assert capsule_name(capsule) == b"dltensor"
    assert md.from_dlpack(capsule).buffer.handle == array.buffer.handle
    with pytest.raises(BufferError, match="consumed"):
        md.shares_memory(capsule, array)
    memory = np.zeros(6, np.float32)
    flagged = Producer(data=memory.ctypes.data, flags=IS_COPIED)
    assert not md.shares_memory(flagged, memory)
    assert flagged.deletions == 0


def test_nothing_is_held_after_the_answer(live_buffers):
    source = np.zeros(64)
    array = md.zeros(64)
    text = bytearray(64)
    counts = [sys.getrefcount(thing) for thing in (source, array, text)]
    for one, other in itertools.product((source, array, text, array.__dlpack__()), repeat=2):
        md.shares_memory(one, other)
    del one, other
    assert [sys.getrefcount(thing) for thing in (source, array, text)] == counts
    text.append(1)  # refused while a buffer is held


@pytest.mark.parametrize("thing", [5, "text", [1.0], None, object()])
def test_what_has_no_memory_is_named(thing):
    array = md.zeros(3)
    with pytest.raises(TypeError, match=type(thing).__name__):
        md.shares_memory(thing, array)
    with pytest.raises(TypeError, match=type(thing).__name__):
        md.shares_memory(array, thing)


def test_faulty_tensors_are_refused_and_left_alone():
    array = md.zeros(3)
    for fields in (
        {"shape": (-1,)},
        {"data": None},
        {"device": (2, 0), "data": 16},
        {"device": (8, 0), "data": 16},
        {"dtype": (99, 1, 1)},
        {"version": (2, 0)},
        {"data": 16, "shape": (3,), "strides": (-(2**60),)},
        {"data": 2**63 + 16},
    ):
        producer = Producer(**fields)
        with pytest.raises(BufferError, match="shares_memory"):
            md.shares_memory(producer, array)
        assert producer.deletions == 0
    with pytest.raises(TypeError):
        md.shares_memory(array)


def test_views_with_unrelated_strides_are_answered_within_the_bound():
    """More search than its limit: counted out, or searched to the end; NumPy needs minutes for some."""
    rng = np.random.default_rng(7)
    memory = np.zeros(8, np.uint8)  # nothing is read
    for _ in range(4):
        made = [
            as_strided(memory[rng.integers(0, 8) :], rng.integers(2, 30, 4), rng.integers(1, 200_000, 4))
            for _ in range(2)
        ]
        begun = time.monotonic()
        answer = md.shares_memory(*made)
        assert time.monotonic() - begun < PATIENCE
        assert answer is md.shares_memory(*made[::-1])


def test_what_is_counted_out_is_what_numpy_adds_up():
    """Many axes of two steps: more sums than the search has steps, and no divisor tells them apart."""
    rng = np.random.default_rng(22)
    steps = rng.integers(2 * 10**7, 3 * 10**7, 22)
    halves = [
        np.array([sum(part) for part in itertools.product(*((0, step) for step in half))])
        for half in (steps[:11], steps[11:])
    ]
    memory = np.zeros(8, np.uint8)  # nothing is read
    items = as_strided(memory, (2,) * len(steps), steps)
    middle = int(steps.sum()) // 2
    reached = [int(steps[rng.permutation(22)[:11]].sum()) for _ in range(3)]
    for place in [*reached, *(int(place) for place in rng.integers(middle - 10**6, middle + 10**6, 3))]:
        byte = as_strided(memory, (2,), (place,))[1:]
        assert md.shares_memory(items, byte) is bool(np.isin(place - halves[0], halves[1]).any()), place


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_ctrl_c_ends_a_search_that_has_no_bound():
    rng = np.random.default_rng(3)
    memory = np.zeros(8, np.uint8)
    views_ = [as_strided(memory[i:], (14,) * 7, rng.integers(2**36, 2**38, 7)) for i in range(2)]

    def interrupt(_signal, _frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            md.shares_memory(*views_)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- frameworks ----


@pytest.mark.parametrize(
    ("module", "shown"),
    [
        pytest.param("torch", lambda a: a, marks=pytest.mark.needs_torch),
        pytest.param("torch", lambda a: a.host, marks=pytest.mark.needs_torch),
        pytest.param("tvm_ffi", lambda a: a, marks=pytest.mark.needs_tvm),
        pytest.param("jax.numpy", lambda a: a.host, marks=pytest.mark.needs_jax),
    ],
)
@pytest.mark.rule("shares-memory")
def test_tensors_of_frameworks_are_compared_where_they_lie(module, shown):
    take = pytest.importorskip(module).from_dlpack
    array = md.zeros((16, 16))
    part = take(shown(array))
    assert md.shares_memory(part, array[15, 15])
    assert md.shares_memory(array[15, 15], part)
    assert not md.shares_memory(part, md.zeros(3))
    if module != "jax.numpy":  # which takes whole arrays
        assert not md.shares_memory(take(shown(array[:, ::2])), array[:, 1::2])


@pytest.mark.rule("shares-memory")
def test_torch_s_refusals_are_raised(torch):
    assert not md.shares_memory(torch.zeros(3), torch.zeros(3))
    with pytest.raises((BufferError, RuntimeError), match="grad"):
        md.shares_memory(torch.zeros(3, requires_grad=True), md.zeros(3))


@pytest.mark.rule("shares-memory")
def test_mlx_arrays_are_compared(mx):
    array = mx.zeros(8)
    assert md.shares_memory(array, md.from_dlpack(array))
    assert not md.shares_memory(array, mx.zeros(8))


def test_an_array_interface_of_none_leaves_dlpack():
    class Tensor:
        __array_interface__ = None

        def __dlpack__(self, **keywords):
            return array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return array.__dlpack_device__()

    array = md.zeros(4)
    assert md.shares_memory(Tensor(), array)
