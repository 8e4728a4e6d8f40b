"""DLPack 1.3's table of C functions, `__dlpack_c_exchange_api__`, in ctypes: found, walked, called."""

from __future__ import annotations

import ctypes
from typing import Any

from .dlpack_structs import Tensor, Versioned, capsule_name, capsule_pointer, new_capsule
from .rules import Absent, Broken

ATTRIBUTE = "__dlpack_c_exchange_api__"
TABLE_NAME = b"dlpack_exchange_api"
Pointer = ctypes.c_void_p
SET_ERROR = ctypes.CFUNCTYPE(None, Pointer, ctypes.c_char_p, ctypes.c_char_p)


class Header(ctypes.Structure):
    """SPEC dlpack.h DLPackExchangeAPIHeader."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("prev_api", Pointer)]


class Table(ctypes.Structure):
    """SPEC dlpack.h DLPackExchangeAPI."""

    _fields_ = [
        ("header", Header),
        ("allocate", Pointer),
        ("from_object", Pointer),
        ("to_object", Pointer),
        ("borrow", Pointer),
        ("stream", Pointer),
    ]


#: The functions' types; calls through these keep the GIL, and raise what the function left as an exception.
ALLOCATE = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(Pointer), Pointer, SET_ERROR)
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Pointer))
TO_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, Pointer, ctypes.POINTER(ctypes.py_object))
BORROW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(Pointer))


def header_of(kind: type) -> Header:
    """The header that a type offers; Absent if it offers none."""
    capsule = getattr(kind, ATTRIBUTE, None)
    if capsule is None:
        raise Absent(f"{kind.__name__} has no {ATTRIBUTE}")
    if type(capsule).__name__ != "PyCapsule":
        raise Broken(f"{ATTRIBUTE} is a {type(capsule).__name__}, not a PyCapsule")
    if capsule_name(capsule) != TABLE_NAME:
        raise Broken(f"the capsule's name is {capsule_name(capsule)!r}, not {TABLE_NAME!r}")
    return Header.from_address(capsule_pointer(capsule, TABLE_NAME))


def table_of(kind: type) -> Table:
    """The table of major version 1, from the chain."""
    header, seen = header_of(kind), 0
    while header.version[0] != 1:
        if not header.prev_api or seen > 16:
            raise Absent("its chain has no table of major version 1")
        header, seen = Header.from_address(header.prev_api), seen + 1
    return Table.from_address(ctypes.addressof(header))


def call(function: Any, address: int | None, *arguments: Any) -> int:
    """What a function of the table returns; its exception is raised."""
    if not address:
        raise Absent("the function is NULL")  # which rule "table-functions" counts
    status: int = function(address)(*arguments)
    return status


def tensor_from(table: Table, array: Any) -> Versioned:
    """The owned tensor that the table makes of an array."""
    out = Pointer()
    status = call(FROM_OBJECT, table.from_object, array, ctypes.byref(out))
    if status != 0 or not out.value:
        raise Broken(f"managed_tensor_from_py_object_no_sync returned {status} with {out.value}, and no exception")
    return Versioned.from_address(out.value)


def object_from(table: Table, managed: Any) -> Any:
    """The array that the table makes of a managed tensor, which it steals."""
    out = ctypes.py_object()
    status = call(TO_OBJECT, table.to_object, ctypes.addressof(managed), ctypes.byref(out))
    if status != 0:
        raise Broken(f"managed_tensor_to_py_object_no_sync returned {status} without an exception")
    made = out.value
    _decref(made)  # the function gave its reference, and `made` has one of its own
    return made


_decref = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def borrow(table: Table, array: Any) -> Tensor | None:
    """The tensor that the table lends; None if it lends none."""
    if not table.borrow:
        return None
    out = Tensor()
    status = call(BORROW, table.borrow, array, ctypes.byref(out))
    if status != 0:
        raise Broken(f"dltensor_from_py_object_no_sync returned {status} without an exception")
    return out


def allocate(table: Table, prototype: Tensor) -> tuple[int, Versioned | None, list[tuple[str, str]]]:
    """(what the allocator returned, the tensor, what it told SetError)."""
    out, told = Pointer(), []

    def set_error(_context: int, kind: bytes, message: bytes) -> None:
        told.append(((kind or b"").decode(), (message or b"").decode()))

    status = call(ALLOCATE, table.allocate, ctypes.byref(prototype), ctypes.byref(out), None, SET_ERROR(set_error))
    return status, Versioned.from_address(out.value) if out.value and status == 0 else None, told


def stream_of(table: Table, device: tuple[int, int]) -> tuple[int, int | None]:
    out = Pointer()
    return call(STREAM, table.stream, *device, ctypes.byref(out)), out.value


def capsule_of(header: Header | Table) -> object:
    """A capsule as a type offers it; the struct must outlive it."""
    capsule: object = new_capsule(ctypes.addressof(header), TABLE_NAME, None)
    return capsule
