"""DLPack 1.3's structs in ctypes: to read capsules, and to make good and bad ones by hand.

Source: dlpack.h.  Sizes and offsets are checked against the compiled header by test_dlpack_structs.
"""

import ctypes
import itertools

CAPSULE_NAMES = (b"dltensor", b"dltensor_versioned")
READ_ONLY, IS_COPIED, IS_PADDED = 1, 2, 4


class Device(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [
        ("dl_tensor", Tensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("version", Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", Tensor),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_api = ctypes.pythonapi
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.restype = ctypes.c_int
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

#: Names must outlive the capsules that point at them.
USED_NAMES = {name: ctypes.c_char_p(b"used_" + name) for name in CAPSULE_NAMES}


class Opened:
    """A capsule's tensor, read in place; `take` does what a consumer does."""

    def __init__(self, capsule):
        self.capsule = capsule
        self.name = _api.PyCapsule_GetName(capsule)
        self.address = _api.PyCapsule_GetPointer(capsule, self.name)
        struct = Versioned if self.name == CAPSULE_NAMES[1] else Managed
        self.managed = struct.from_address(self.address)
        self.tensor = self.managed.dl_tensor
        self.tensor.capsule = capsule  # the memory under the struct
        self.version = getattr(self.managed, "version", None)
        self.flags = getattr(self.managed, "flags", 0)

    @property
    def is_copied(self):
        return bool(self.flags & IS_COPIED)

    @property
    def is_readonly(self):
        return bool(self.flags & READ_ONLY)

    def take(self):
        _api.PyCapsule_SetName(self.capsule, USED_NAMES[self.name])


def open_capsule(capsule):
    return Opened(capsule)


def capsule_name(capsule):
    return _api.PyCapsule_GetName(capsule)


class Producer:
    """A hand-made tensor: every field can be set, deletions are counted.

    The struct lives as long as this object; `capsules()` shows it to a consumer.
    """

    #: Keeps producers alive whose deleter can still be called.
    _kept: list = []

    def __init__(
        self,
        *,
        versioned=True,
        shape=(2, 3),
        strides="C",
        data=0,
        byte_offset=0,
        dtype=(2, 32, 1),
        device=(1, 0),
        version=(1, 3),
        flags=0,
        ndim=None,
        has_deleter=True,
    ):
        self.deletions = 0
        self.versioned = versioned
        self._deleter = DELETER(self._count)
        self.struct = (Versioned if versioned else Managed)()
        self.struct.deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value if has_deleter else None
        if versioned:
            self.struct.version = Version(*version)
            self.struct.flags = flags
        tensor = self.struct.dl_tensor
        tensor.data = data
        tensor.device = Device(*device)
        tensor.dtype = DataType(*dtype)
        tensor.byte_offset = byte_offset
        tensor.ndim = len(shape) if ndim is None and shape is not None else (ndim or 0)
        self._shape = None if shape is None else (ctypes.c_int64 * max(len(shape), 1))(*shape)
        if strides == "C":
            sizes = [max(extent, 1) for extent in shape or ()]
            strides = list(itertools.accumulate([1, *sizes[:0:-1]], lambda a, b: a * b))[::-1] if sizes else []
        self._strides = None if strides is None else (ctypes.c_int64 * max(len(strides), 1))(*strides)
        if self._shape is not None:
            tensor.shape = self._shape
        if self._strides is not None:
            tensor.strides = self._strides
        Producer._kept.append(self)

    def _count(self, _address):
        self.deletions += 1

    @property
    def name(self):
        return CAPSULE_NAMES[self.versioned]

    def capsule(self):
        """A capsule without a destructor: dropping it must change nothing."""
        return _api.PyCapsule_New(ctypes.addressof(self.struct), self.name, None)

    def __dlpack_device__(self):
        device = self.struct.dl_tensor.device
        return (device.device_type, device.device_id)

    def __dlpack__(self, **_keywords):
        return self.capsule()


# ---- the exchange API ----


class Header(ctypes.Structure):
    _fields_ = [("version", Version), ("prev_api", ctypes.c_void_p)]


SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)


class Table(ctypes.Structure):
    _fields_ = [
        ("header", Header),
        (
            "allocator",
            ctypes.PYFUNCTYPE(
                ctypes.c_int, ctypes.POINTER(Tensor), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, SET_ERROR
            ),
        ),
        ("from_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))),
        ("borrow", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))),
        ("stream", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))),
    ]


def table_of(kind):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Table.from_address(get(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


def tensor_of(array):
    """The address of the owned tensor that the table of the array's type makes of it."""
    out = ctypes.c_void_p()
    assert table_of(type(array)).from_object(array, ctypes.byref(out)) == 0
    return out.value


def delete(address):
    """What a consumer does with a tensor that it has taken."""
    deleter = Versioned.from_address(address).deleter
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(address)


def capsule_of_table(header):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(header), b"dlpack_exchange_api", None)


def kind_with_table(table, *, has_method=True):
    """A type with this table whose objects are the numbers 0, 1, 2."""

    def numbers(_self, **keywords):
        import numpy as np

        return np.arange(3.0).__dlpack__(**keywords)

    methods = {"__dlpack_device__": lambda _self: (1, 0), "__dlpack__": numbers}
    return type("Kind", (), {"__dlpack_c_exchange_api__": capsule_of_table(table), **(methods if has_method else {})})
