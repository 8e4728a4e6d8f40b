"""The C exchange API: our table, called through ctypes."""

import ctypes
import re
import sys

import numpy as np
import pytest
from dlpack_structs import IS_COPIED, READ_ONLY, SET_ERROR, Table, Tensor, Versioned, delete, table_of, tensor_of

import metal_dlpack as md


@pytest.mark.rule("exchange-table")
def test_the_table_is_version_1_3_and_whole():
    table = table_of(md.Array)
    assert tuple(table.header.version) == (1, 3)
    assert table.header.prev_api is None
    for name in ("allocator", "from_object", "to_object", "borrow", "stream"):
        assert ctypes.cast(getattr(table, name), ctypes.c_void_p).value
    assert ctypes.sizeof(Table) == 56


@pytest.mark.rule("exchange-owned", "exchange-borrowed")
def test_owned_and_borrowed_tensors_carry_handle_offset_and_flags(live_buffers):
    array, borrowed = md.zeros((4, 6), "int16")[1:, 2:], Tensor()
    readonly = array.as_readonly()
    address = tensor_of(readonly)
    assert Versioned.from_address(address).flags == READ_ONLY
    assert table_of(md.Array).borrow(array, ctypes.byref(borrowed)) == 0
    for tensor in (Versioned.from_address(address).tensor, borrowed):
        assert (tensor.data, tensor.byte_offset) == (array.buffer.handle, 16)
        assert (tensor.shape[:2], tensor.strides[:2]) == ([3, 4], [6, 1])
    with pytest.raises(BufferError, match="read-only"):
        table_of(md.Array).borrow(readonly, ctypes.byref(borrowed))
    del array, readonly
    assert live_buffers() == 1
    delete(address)
    assert live_buffers() == 0


@pytest.mark.rule("exchange-owned")
def test_negative_strides_are_copied_for_an_owned_tensor_and_refused_for_a_borrowed_one():
    array = md.asarray(np.arange(3.0), copy=True)[::-1]
    address = tensor_of(array)
    assert Versioned.from_address(address).tensor.strides[0] == 1
    assert Versioned.from_address(address).flags == IS_COPIED
    delete(address)
    with pytest.raises(BufferError, match=r"negative.*owned"):
        table_of(md.Array).borrow(array, ctypes.byref(Tensor()))


@pytest.mark.rule("exchange-steals")
def test_a_tensor_becomes_an_array_and_is_stolen(live_buffers):
    array = md.full(3, 2.0)
    out = ctypes.c_void_p()
    assert table_of(md.Array).to_object(tensor_of(array), ctypes.byref(out)) == 0
    again = ctypes.cast(out, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(again))
    assert again.buffer.handle == array.buffer.handle
    address = tensor_of(array)
    Versioned.from_address(address).tensor.bits = 33
    with pytest.raises(BufferError, match="bits 33"):
        table_of(md.Array).to_object(address, ctypes.byref(out))
    del array, again
    assert live_buffers() == 0


@pytest.mark.rule("exchange-allocator")
def test_the_allocator_makes_what_the_prototype_says(live_buffers):
    errors = []
    on_error = SET_ERROR(lambda _context, kind, message: errors.append((kind, message)))
    address = tensor_of(md.zeros((2, 5), "int8"))
    prototype = Versioned.from_address(address).tensor
    out = ctypes.c_void_p()
    allocate = table_of(md.Array).allocator
    assert allocate(ctypes.byref(prototype), ctypes.byref(out), None, on_error) == 0
    made = Versioned.from_address(out.value).tensor
    assert (made.shape[:2], made.strides[:2], made.device[0]) == ([2, 5], [5, 1], 8)
    delete(out.value)
    prototype.device[0] = 2
    assert allocate(ctypes.byref(prototype), ctypes.byref(out), None, on_error) == -1
    assert out.value is None
    assert errors[0][0] == b"BufferError"
    assert b"(2, 0)" in errors[0][1]
    delete(address)


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
    assert table_of(md.Array).allocator(ctypes.byref(prototype), ctypes.byref(out), None, nothing) == -1
    assert out.value is None
    assert isinstance(md.last_refusal(), BufferError)
    assert re.search(message, str(md.last_refusal()))


@pytest.mark.rule("exchange-table")
def test_a_tensor_is_deleted_where_the_module_is_not_imported(live_buffers, monkeypatch):
    address, out = tensor_of(md.full(3, 2.0)), ctypes.c_void_p()
    monkeypatch.delitem(sys.modules, "metal_dlpack._core")
    with pytest.raises(ImportError, match="not imported in this interpreter"):
        table_of(md.Array).to_object(address, ctypes.byref(out))
    assert live_buffers() == 0
