"""The structs and the table of metal_dlpack.h, for ctypes; test_c_api.py compares them with the header."""

import ctypes

from metal_dlpack import _core


class Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class View(ctypes.Structure):
    _fields_ = [
        ("handle", ctypes.c_void_p),
        ("address", ctypes.c_void_p),
        ("byte_offset", ctypes.c_int64),
        ("nbytes", ctypes.c_int64),
        ("nitems", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("ndim", ctypes.c_int32),
        ("storage", ctypes.c_int32),
        ("is_readonly", ctypes.c_int32),
        ("dtype", Dtype),
        ("is_padded", ctypes.c_int32),
    ]


class Access(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("reserved", ctypes.c_void_p * 5)]


INT, INT64, POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
INT64S, OBJECT = ctypes.POINTER(INT64), ctypes.py_object


class Api(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("array_check", ctypes.PYFUNCTYPE(INT, OBJECT)),
        ("array_get", ctypes.PYFUNCTYPE(INT, OBJECT, ctypes.POINTER(View))),
        ("array_new", ctypes.PYFUNCTYPE(OBJECT, INT, INT64S, Dtype, INT)),
        ("buffer_wrap", ctypes.PYFUNCTYPE(OBJECT, POINTER, ctypes.c_size_t, POINTER)),
        ("buffer_array", ctypes.PYFUNCTYPE(OBJECT, OBJECT, INT, INT64S, INT64S, Dtype, INT64)),
        ("array_from_dlpack", ctypes.PYFUNCTYPE(OBJECT, POINTER, INT)),
        ("array_to_dlpack", ctypes.PYFUNCTYPE(POINTER, OBJECT, INT)),
        ("array_begin", ctypes.PYFUNCTYPE(INT, OBJECT, INT, ctypes.POINTER(Access))),
        ("array_end", ctypes.PYFUNCTYPE(INT, OBJECT, ctypes.POINTER(Access), INT)),
    ]


def table():
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Api.from_address(get(_core._C_API, b"metal_dlpack._core._C_API"))
