"""DLPack's structs and capsules in ctypes: to make tensors by hand, and to read those of others.

Nothing here looks at what a capsule holds: the caller says which struct it is.
"""

from __future__ import annotations

import ctypes
from typing import Any


class Tensor(ctypes.Structure):
    """SPEC dlpack.h DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Legacy(ctypes.Structure):
    """SPEC dlpack.h DLManagedTensor."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    """SPEC dlpack.h DLManagedTensorVersioned."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


#: DLPACK_FLAG_BITMASK_...
READ_ONLY, IS_COPIED, IS_PADDED = 1, 2, 4

#: A capsule points at its name and does not copy it: these live as long as the process.
LEGACY_NAME, VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
_USED = {name: b"used_" + name for name in (LEGACY_NAME, VERSIONED_NAME)}


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


#: new_capsule(pointer, name, destructor or None)
new_capsule = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
capsule_name = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
capsule_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
capsule_destructor = _function("PyCapsule_GetDestructor", ctypes.c_void_p, ctypes.py_object)
_set_name = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


def rename_capsule(capsule: object) -> None:
    """What a consumer does that has taken the tensor."""
    _set_name(capsule, _USED[capsule_name(capsule)])
