"""The C exchange API: our table, called as the kit of conformance calls everybody's."""

import ctypes
import re
import sys

import numpy as np
import pytest
from dlpack_structs import IS_COPIED, READ_ONLY, SET_ERROR, Tensor, delete

import metal_dlpack as md
from dlpack_conformance.exchange_table import ALLOCATE, allocate, borrow, object_from, table_of, tensor_from

TABLE = table_of(md.Array)


def end(managed):
    delete(ctypes.addressof(managed))


@pytest.mark.rule("exchange-table")
def test_the_table_is_version_1_3_and_whole():
    assert (tuple(TABLE.header.version), TABLE.header.prev_api) == ((1, 3), None)
    assert all(getattr(TABLE, name) for name in ("allocate", "from_object", "to_object", "borrow", "stream"))
    assert ctypes.sizeof(TABLE) == 56


@pytest.mark.rule("exchange-owned", "exchange-borrowed")
def test_owned_and_borrowed_tensors_carry_handle_offset_and_flags(live_buffers):
    array = md.zeros((4, 6), "int16")[1:, 2:]
    readonly = array.as_readonly()
    owned = tensor_from(TABLE, readonly)
    assert owned.flags == READ_ONLY
    for tensor in (owned.tensor, borrow(TABLE, array)):
        assert (tensor.data, tensor.byte_offset) == (array.buffer.handle, 16)
        assert (tensor.shape[:2], tensor.strides[:2]) == ([3, 4], [6, 1])
    with pytest.raises(BufferError, match="read-only"):
        borrow(TABLE, readonly)
    del array, readonly
    assert live_buffers() == 1
    end(owned)
    assert live_buffers() == 0


@pytest.mark.rule("exchange-owned")
@pytest.mark.needs_softmetal
def test_negative_strides_are_copied_for_an_owned_tensor_and_refused_for_a_borrowed_one(settings):
    array = md.asarray(np.arange(3.0), copy=True)[::-1]
    owned = tensor_from(TABLE, array)
    assert (owned.tensor.strides[0], owned.flags) == (1, IS_COPIED)
    end(owned)
    with pytest.raises(BufferError, match=r"negative.*owned"):
        borrow(TABLE, array)
    settings(fail="buffer@1+")
    md.empty_cache()
    with pytest.raises(MemoryError):
        tensor_from(TABLE, array)
    assert isinstance(md.last_refusal(), MemoryError)


@pytest.mark.rule("exchange-steals")
def test_a_tensor_becomes_an_array_and_is_stolen(live_buffers):
    array = md.full(3, 2.0)
    again = object_from(TABLE, tensor_from(TABLE, array))
    assert again.buffer.handle == array.buffer.handle
    faulty = tensor_from(TABLE, array)
    faulty.tensor.bits = 33
    with pytest.raises(BufferError, match="bits 33"):
        object_from(TABLE, faulty)
    del array, again
    assert live_buffers() == 0


@pytest.mark.rule("exchange-allocator")
def test_the_allocator_makes_what_the_prototype_says(live_buffers):
    owned = tensor_from(TABLE, md.zeros((2, 5), "int8"))
    _, made, told = allocate(TABLE, owned.tensor)
    assert (made.tensor.shape[:2], made.tensor.strides[:2], made.tensor.device[0], told) == ([2, 5], [5, 1], 8, [])
    end(made)
    owned.tensor.device[0] = 2
    status, made, ((kind, message),) = allocate(TABLE, owned.tensor)
    assert (status, made, kind) == (-1, None, "BufferError")
    assert "(2, 0)" in message
    end(owned)


@pytest.mark.rule("exchange-allocator")
@pytest.mark.parametrize(
    ("device", "code", "message"),
    [((1, 0), 2, r"not on \(1, 0\)"), ((8, 1), 2, r"not on \(8, 1\)"), ((8, 0), 99, "code 99")],
)
def test_an_allocator_without_a_function_for_errors_says_no_and_keeps_the_sentence(device, code, message, live_buffers):
    """tvm-ffi passes NULL for it."""
    shape, out = (ctypes.c_int64 * 1)(3), ctypes.c_void_p(1)
    prototype = Tensor(device=device, code=code, bits=32, lanes=1, ndim=1, shape=shape)
    nothing = ctypes.cast(None, SET_ERROR)
    assert ALLOCATE(TABLE.allocate)(ctypes.byref(prototype), ctypes.byref(out), None, nothing) == -1
    assert out.value is None
    assert isinstance(md.last_refusal(), BufferError)
    assert re.search(message, str(md.last_refusal()))


@pytest.mark.rule("exchange-table")
def test_a_tensor_is_deleted_where_the_module_is_not_imported(live_buffers, monkeypatch):
    owned = tensor_from(TABLE, md.full(3, 2.0))
    monkeypatch.delitem(sys.modules, "metal_dlpack._core")
    with pytest.raises(ImportError, match="not imported in this interpreter"):
        object_from(TABLE, owned)
    assert live_buffers() == 0
