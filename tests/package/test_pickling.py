"""Arrays through pickle, copy, processes and clusters: what is kept, and what is not copied."""

import contextlib
import copy
import itertools
import multiprocessing
import os
import pickle
import re
import sys
import tracemalloc

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from children import output_of
from file_cases import bytes_of
from machine import tries

import metal_dlpack as md
from metal_dlpack import pickling

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
NAMES = sorted(name for name in vars(md) if isinstance(getattr(md, name), md.dtype))
STORAGES = ["shared", "managed", "private"]


@pytest.fixture(autouse=True)
def without_joblib(monkeypatch):
    """Where another test imported it, Arrays go another way: test_joblib.py."""
    monkeypatch.delitem(sys.modules, "joblib", raising=False)


def filled(shape, dtype="float32", storage="shared") -> md.Array:
    array = md.empty(shape, dtype, storage=storage)
    if array.nbytes:
        array.buffer.copy_from(np.random.default_rng(3).integers(0, 2, array.nbytes, dtype="u1"))
    return array


def same(found: md.Array, wanted: md.Array) -> bool:
    facts = ("shape", "dtype", "storage", "readonly", "padded", "device")
    assert [getattr(found, name) for name in facts] == [getattr(wanted, name) for name in facts]
    return bytes_of(found) == bytes_of(wanted)


def out_of_band(array):
    buffers = []
    data = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
    return data, buffers


# ---- what is kept ----


@st.composite
def any_arrays(draw):
    """Make an Array of any type and storage, and any view of it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    dtype = md.dtype(draw(st.sampled_from(NAMES)) + draw(st.sampled_from(["", "", "x2"])))
    if dtype.bits * dtype.lanes % 8:  # views begin on a byte
        array = filled((*shape, 8), dtype, draw(st.sampled_from(STORAGES)))
        return array.copy(padded=dtype.lanes == 1 and draw(st.booleans()))
    array = filled(shape, dtype, draw(st.sampled_from(STORAGES)))
    array = array.permute(draw(st.permutations(range(len(shape))))) if shape else array
    steps = st.tuples(st.sampled_from([None, 0, 1]), st.sampled_from([1, 1, 2, -1]))
    view = array[(..., *(slice(first, None, step) for first, step in draw(st.tuples(*[steps] * len(shape)))))]
    view = draw(st.sampled_from([view, view.broadcast_to((2, *view.shape))]))
    return draw(st.sampled_from([view, view.as_readonly()]))


@pytest.mark.parametrize("has_joblib", [False, True])
@hypothesis.settings(max_examples=tries(200))
@hypothesis.given(any_arrays(), st.sampled_from(PROTOCOLS), st.booleans())
@pytest.mark.some(1)
def test_any_array_is_kept(has_joblib, array, protocol, is_out_of_band):
    """And nothing goes of what a view leaves out."""
    if has_joblib:
        pytest.importorskip("joblib")
    with pytest.MonkeyPatch.context() as patch:
        if not has_joblib:
            patch.delitem(sys.modules, "joblib", raising=False)
        data, buffers = out_of_band(array) if is_out_of_band else (pickle.dumps(array, protocol), None)
        assert len(data) + sum(b.raw().nbytes for b in buffers or ()) < array.nbytes + 1000
        assert same(pickle.loads(data, buffers=buffers), array)


PICKLED = [lambda x, p=p: pickle.loads(pickle.dumps(x, p)) for p in PROTOCOLS]
VIEWS = {
    "whole": lambda a: a,
    "T": lambda a: a.T,
    "permuted": lambda a: a.permute((1, 2, 0)),
    "rows": lambda a: a[1:],
}


def test_a_copy_keeps_type_and_storage_and_has_writable_memory_of_its_own(subtests):
    for storage in STORAGES:
        for make in [copy.copy, copy.deepcopy, *PICKLED]:
            with subtests.test(make=make, storage=storage):
                array = filled((3, 4), "bfloat16", storage)
                again = make(array)
                assert same(again, array)
                again[0, 0] = 7.5
                assert again[0, 0].item() == 7.5 != array[0, 0].item()
                is_copied = make in (copy.copy, copy.deepcopy)  # such is the caller's to write, as with NumPy
                assert make(array.as_readonly()).readonly != is_copied


def test_what_is_one_object_stays_one():
    array = md.zeros(3)
    for first, second in (copy.deepcopy([array, array]), pickle.loads(pickle.dumps([array, array]))):
        assert first is second


# ---- what is not copied ----


def test_out_of_band_the_memory_itself_is_handed_over_and_taken(live_buffers, subtests):
    for view in VIEWS:
        with subtests.test(view):
            array = VIEWS[view](filled((2, 3, 4)))
            data, (buffer,) = out_of_band(array)
            there = np.frombuffer(buffer.raw(), "u1").__array_interface__["data"][0]
            assert there == array.buffer.address + array.byte_offset
            again = pickle.loads(data, buffers=[buffer])
            assert md.shares_memory(array, again)
            assert again.strides == array.strides
            buffer.release()
            del array, again


@pytest.mark.needs_no_sanitizer  # which sees tracemalloc's own records as leaks
def test_protocol_5_allocates_nothing_of_the_array_s_size_and_older_ones_copy_once(subtests):
    for protocol, least, most in [(2, 1, 1.1), (3, 1, 1.1), (4, 1, 1.1), (5, 0, 0.02)]:
        with subtests.test(str(protocol)):
            array = filled(1 << 20)
            tracemalloc.start()
            parts = array.__reduce_ex__(protocol)
            if protocol == 5:
                data, buffers = out_of_band(array)
                pickle.loads(data, buffers=buffers)
                assert len(data) < 500
            seen = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert least * array.nbytes <= seen < most * array.nbytes
            del parts


ARRIVED = {"bytes": bytes, "writable": bytearray, "read-only": lambda raw: memoryview(bytearray(raw)).toreadonly()}


def test_what_arrives_is_shared_and_writable_where_its_memory_and_the_array_were(subtests):
    """As NumPy's is."""
    names = ("float32", "bfloat16", "int4")
    for (kind, arrive), name, is_readonly in itertools.product(ARRIVED.items(), names, (False, True)):
        with subtests.test(kind=kind, is_readonly=is_readonly, name=name):
            array = filled((4, 4), name)
            data, (buffer,) = out_of_band(array.as_readonly() if is_readonly else array)
            arrived = arrive(buffer.raw())
            again = pickle.loads(data, buffers=[arrived])
            assert md.shares_memory(again, np.frombuffer(arrived, "u1"))
            assert bytes_of(again) == bytes_of(array)
            assert again.readonly == (is_readonly or kind != "writable")
            with pytest.raises(ValueError, match="read-only") if again.readonly else contextlib.nullcontext():
                again.fill(0)
                assert not any(arrived)


def test_a_frame_of_bytes_that_cannot_be_shared_is_copied_and_writable(subtests):
    for storage in ["managed", "private"]:
        with subtests.test(str(storage)):
            array = filled((4, 4), storage=storage)
            data, (buffer,) = out_of_band(array)
            again = pickle.loads(data, buffers=[bytes(buffer.raw())])
            assert same(again, array)
            again.fill(0)


def test_what_an_older_version_pickled_is_read():
    """It said no more than this about the bytes of an older protocol, which are copied."""
    array = filled((4, 4))
    restore, arguments = array.__reduce_ex__(4)
    again = restore(*arguments[:-1])
    assert same(again, array)


def test_what_arrives_off_its_alignment_is_copied():
    array = filled((4, 4))
    data, (buffer,) = out_of_band(array)
    arrived = memoryview(bytearray(1 + array.nbytes))[1:]
    arrived[:] = buffer.raw()
    assert same(pickle.loads(data, buffers=[arrived]), array)


def test_a_host_view_is_pickled_as_that_of_an_equal_array(subtests):
    for storage in ["shared", "managed"]:
        for protocol in PROTOCOLS:
            with subtests.test(protocol=protocol, storage=storage):
                array = filled((5, 6), "int16", storage)[::2, 1:]
                found = pickle.loads(pickle.dumps(array.host, protocol))
                assert type(found) is type(array.host)
                assert same(found.array, array)
                data, buffers = out_of_band(filled(100_000).host)
                assert len(buffers) == 1
                assert len(data) < 1000
                assert np.array_equal(np.asarray(pickle.loads(data, buffers=buffers)), np.asarray(filled(100_000)))


def test_a_copied_host_view_is_of_the_same_memory_and_a_deep_copy_is_not():
    array = filled(10)
    host = array.host
    assert copy.copy(host).array is array
    assert not md.shares_memory(copy.deepcopy(host).array, array)
    assert same(copy.deepcopy(host).array, array)
    one, other = copy.deepcopy([array, host])
    assert other.array is one


def test_a_buffer_is_neither_pickled_nor_copied_and_says_what_is(subtests):
    for act in [copy.copy, copy.deepcopy, *(lambda x, p=p: pickle.dumps(x, p) for p in PROTOCOLS)]:
        with subtests.test(str(act)):
            source = bytearray(b"abcdef")
            for buffer in (md.Buffer(6), md.Buffer.from_host(source)):
                buffer.copy_from(b"uvwxyz")
                with pytest.raises(TypeError, match=r"buffer\.array\(buffer\.size - buffer\.offset, 'uint8'\)"):
                    act(buffer)
                its_bytes = buffer.array(buffer.size - buffer.offset, "uint8")
                assert bytes(pickle.loads(pickle.dumps(its_bytes)).tolist()) == b"uvwxyz"


def test_a_device_that_is_not_there_becomes_the_default():
    restore, parts = md.zeros(3).__reduce_ex__(5)
    data, dtype, shape, strides, storage, _, *flags = parts
    assert restore(data, dtype, shape, strides, storage, 7, *flags).device == md.default_device()


def test_a_pickle_that_lies_is_refused():
    restore, (data, dtype, _, strides, *rest) = md.zeros(3).__reduce_ex__(5)
    with pytest.raises(ValueError, match="past the Buffer"):
        restore(data, dtype, (10**6,), strides, *rest)


# ---- processes ----


def echoed(array):
    """In another process: what arrived, and its items doubled."""
    facts = (array.shape, array.dtype.name, array.storage, array.readonly)
    return facts, md.asarray(np.asarray(array.copy(storage="shared")) * 2)


@pytest.mark.needs_no_sanitizer
def test_arrays_go_to_spawned_processes_and_come_back():
    arrays = [filled((3, 4), storage=storage) for storage in STORAGES]
    arrays += [filled((2, 2)).as_readonly(), filled((2, 3)).T]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(echoed, arrays)
    for array, (facts, doubled) in zip(arrays, found, strict=True):
        assert facts == (array.shape, "float32", array.storage, array.readonly)
        assert np.array_equal(np.asarray(doubled), np.asarray(array.copy(storage="shared")) * 2)


#: What starts processes by fork() and sends them tasks; `answer(call, array)` is a call's result, or raises its exception.
FORKING = {
    "Pool": """
        with multiprocessing.get_context("fork").Pool(1) as pool:
            tell(lambda call, array: pool.apply_async(call, (array,)).get(60))
    """,
    "ProcessPoolExecutor": """
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            tell(lambda call, array: pool.submit(call, array).result(60))
    """,
    "joblib": """
        import joblib
        multiprocessing.set_start_method("fork")
        with joblib.Parallel(2, "multiprocessing", max_nbytes=16, timeout=60) as pool:
            tell(lambda call, array: pool([joblib.delayed(call)(array)])[0])
    """,
}
FORKED = """
import multiprocessing, operator, warnings
from concurrent.futures import ProcessPoolExecutor
import numpy as np
import metal_dlpack as md
warnings.simplefilter("ignore")


def tell(answer):
    array = md.asarray([1.0, 2.0, 3.0])
    for call, given in [(np.sum, array), (len, array), (np.sum, array.host)]:
        try:
            print(answer(call, given))
        except md.MetalError as error:
            print(error)
    print(*(answer(operator.itemgetter(0), [given]) for given in (array.as_readonly(), array.host)))


if True:"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("way", FORKING)
def test_a_task_says_that_its_forked_worker_cannot_use_the_array_and_nobody_waits_for_ever(way):
    if way == "joblib":
        pytest.importorskip("joblib")
    refused = (
        "Array: an Array of shape (3,) and dtype float32 came from another process. "
        "Metal cannot be used in a forked child; start it with 'spawn' instead."
    )
    array = md.asarray([1.0, 2.0, 3.0])
    passed_on = f"{array.as_readonly()!r} {array.host!r}"  # by a task that does not look at it
    assert output_of(FORKED + FORKING[way]) == "\n".join([refused] * 3 + [passed_on, ""])


def test_an_array_without_metal_raises_whatever_is_asked_of_it(monkeypatch, subtests):
    monkeypatch.setattr(pickling, "rebuild", lambda *parts: raise_metal_error())
    monkeypatch.setattr(pickling, "is_worker", lambda: True)
    there = pickle.loads(pickle.dumps(md.zeros((2, 3))))
    assert repr(there) == f"<{sentence()}>"
    for name in set(dir(md.Array)) - {*dir(object), "__module__", "host", "__dlpack_c_exchange_api__"}:
        with subtests.test(name), pytest.raises(md.MetalError, match=re.escape(sentence())):
            in_type = getattr(type(there), name, None)
            in_type(there) if in_type else getattr(there, name)
    for use in (np.asarray, list, len, lambda a: isinstance(a, md.Array), lambda a: a == 1, md.from_dlpack, md.asarray):
        with subtests.test(str(use)), pytest.raises(md.MetalError, match=re.escape(sentence())):
            use(there)


def sentence():
    return "Array: an Array of shape (2, 3) and dtype float32 came from another process. There is no Metal."


def raise_metal_error():
    raise md.MetalError("Buffer: There is no Metal.")


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("storage", ["shared", "private"])
def test_a_pickler_that_tries_again_sends_an_error_and_not_what_failed_gpu_work_left(storage, settings):
    stream = md.Stream()
    settings(fail="commit=Internal")
    array = md.ones((2, 3), storage=storage).copy(stream=stream)
    settings(fail=None)
    with pytest.raises(md.MetalError, match="Internal") as first:
        pickle.dumps(array)
    try:
        raise first.value
    except md.MetalError:
        again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps([array, md.ones(2)]))))
    assert again[1].tolist() == [1.0, 1.0]
    text = r"an Array of shape \(2, 3\) and dtype float32 could not be sent: .*MTLCommandBufferErrorInternal"
    with pytest.raises(md.MetalError, match=text):
        np.asarray(again[0])
    array.fill(3)
    assert pickle.loads(pickle.dumps(array)).tolist() == [[3.0] * 3] * 2
