"""Hand-made tensors and tables for the tests, of the kit's structs; and capsules, read in place."""

import ctypes
import itertools

import metal_dlpack as md
from dlpack_conformance.dlpack_structs import (  # noqa: F401  # the tests take them from here
    IS_COPIED,
    IS_PADDED,
    LEGACY_NAME,
    READ_ONLY,
    VERSIONED_NAME,
    Legacy,
    Tensor,
    Versioned,
    capsule_name,
    capsule_pointer,
    new_capsule,
    rename_capsule,
)
from dlpack_conformance.exchange_table import (  # noqa: F401
    FROM_OBJECT,
    SET_ERROR,
    Header,
    Table,
    borrow,
    capsule_of,
    object_from,
    table_of,
    tensor_from,
)

CAPSULE_NAMES = (LEGACY_NAME, VERSIONED_NAME)
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Opened:
    """A capsule's tensor, read in place; `take` does what a consumer does."""

    def __init__(self, capsule):
        self.capsule = capsule
        self.name = capsule_name(capsule)
        self.address = capsule_pointer(capsule, self.name)
        struct = Versioned if self.name == VERSIONED_NAME else Legacy
        self.managed = struct.from_address(self.address)
        self.tensor = self.managed.tensor
        self.tensor.capsule = capsule  # the memory under the struct
        self.version = getattr(self.managed, "version", None)
        self.flags = getattr(self.managed, "flags", 0)

    @property
    def is_readonly(self):
        return bool(self.flags & READ_ONLY)

    def take(self):
        rename_capsule(self.capsule)


def open_capsule(capsule):
    return Opened(capsule)


def delete_on_raw_threads(tensors):
    """What a consumer does with tensors that it has taken: each on a thread of its own, without thread state or GIL.

    The GIL is held here all the while: our deleter that wanted it would never return.
    """
    libc, threads = ctypes.PyDLL(None), []
    for opened in tensors:
        opened.take()
        threads.append(ctypes.c_void_p())
        deleter, address = ctypes.c_void_p(opened.managed.deleter), ctypes.c_void_p(opened.address)
        assert libc.pthread_create(ctypes.byref(threads[-1]), None, deleter, address) == 0
    for thread in threads:
        assert libc.pthread_join(thread, None) == 0


def signed(value):
    return (value + 2**63) % 2**64 - 2**63


def c_strides(shape):
    sizes = [max(extent, 1) for extent in shape]
    products = itertools.accumulate([1, *sizes[:0:-1]], lambda a, b: a * b)
    return [signed(step) for step in products][::-1] if sizes else []


def write_fields(
    struct,
    place,
    *,
    shape=(2, 3),
    strides="C",
    ndim=None,
    data=0,
    byte_offset=0,
    dtype=(2, 32, 1),
    device=(1, 0),
    version=(1, 3),
    flags=0,
):
    """Make a managed tensor say this; `place(name, values)` puts an array somewhere and gives a pointer to it."""
    if isinstance(struct, Versioned):
        struct.version, struct.flags = version, flags
    tensor = struct.tensor
    tensor.data, tensor.byte_offset, tensor.device = data, byte_offset, device
    tensor.code, tensor.bits, tensor.lanes = dtype
    tensor.ndim = len(shape or ()) if ndim is None else ndim
    if strides == "C":
        strides = shape and c_strides(shape)
    for name, values in {"shape": shape, "strides": strides}.items():
        if values is not None:
            setattr(tensor, name, place(name, values))


class Producer:
    """A hand-made tensor: every field can be set, deletions are counted.

    The struct lives as long as this object; `capsules()` shows it to a consumer.
    """

    #: Keeps producers alive whose deleter can still be called.
    _kept: list = []

    def __init__(self, *, versioned=True, has_deleter=True, **fields):
        self.deletions = 0
        self.versioned = versioned
        self._deleter = DELETER(self._count)
        self.struct = (Versioned if versioned else Legacy)()
        self.struct.deleter = ctypes.cast(self._deleter, ctypes.c_void_p).value if has_deleter else None
        write_fields(self.struct, lambda _, values: (ctypes.c_int64 * max(len(values), 1))(*values), **fields)
        Producer._kept.append(self)

    def _count(self, _address):
        self.deletions += 1

    @property
    def name(self):
        return CAPSULE_NAMES[self.versioned]

    def capsule(self):
        """A capsule without a destructor: dropping it must change nothing."""
        return new_capsule(ctypes.addressof(self.struct), self.name, None)

    def __dlpack_device__(self):
        return tuple(self.struct.tensor.device)

    def __dlpack__(self, **_keywords):
        return self.capsule()


class Handing:
    """An object that hands out one capsule."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_keywords):
        return self.capsule


# ---- the exchange API ----


#: The functions that tests put in a table.
KINDS = {
    "from_object": FROM_OBJECT,
    "to_object": ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)),
}


def table_with(**functions):
    """The table of Array, with Python functions in the place of some."""
    table = Table.from_buffer_copy(table_of(md.Array))
    table.kept = [KINDS[name](function) if function else None for name, function in functions.items()]
    for name, function in zip(functions, table.kept, strict=True):
        setattr(table, name, ctypes.cast(function, ctypes.c_void_p))
    return table


def delete(address):
    """What a consumer does with a tensor that it has taken."""
    DELETER(Versioned.from_address(address).deleter)(address)


def kind_with_table(table, *, has_method=True):
    """A type with this table, or with what is none, whose objects are the numbers 0, 1, 2."""

    def numbers(_self, **keywords):
        import numpy as np

        return np.arange(3.0).__dlpack__(**keywords)

    methods = {"__dlpack_device__": lambda _self: (1, 0), "__dlpack__": numbers}
    capsule = capsule_of(table) if isinstance(table, ctypes.Structure) else table
    return type("Kind", (), {"kept": table, "__dlpack_c_exchange_api__": capsule, **(methods if has_method else {})})
