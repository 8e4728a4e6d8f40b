"""Hand-made tensors whose arrays end at pages that fault, and whose deleters are C."""

import ctypes
import mmap
import os

from dlpack_structs import CAPSULE_NAMES, Legacy, Versioned, new_capsule, signed, write_fields

PAGE = mmap.PAGESIZE
PROT_NONE, PROT_RW = 0, mmap.PROT_READ | mmap.PROT_WRITE
MAP_PRIVATE_ANONYMOUS = 0x02 | (0x1000 if os.uname().sysname == "Darwin" else 0x20)

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

deleters = ctypes.PyDLL(os.environ["HOSTILE_DELETERS"]) if "HOSTILE_DELETERS" in os.environ else None


def map_pages(count, protection=PROT_RW):
    address = libc.mmap(None, count * PAGE, protection, MAP_PRIVATE_ANONYMOUS, -1, 0)
    assert address not in (None, 2**64 - 1)
    return address


#: A read here kills the process.
FAULTING = map_pages(256, PROT_NONE)


class Context(ctypes.Structure):
    _fields_ = [
        ("deletions", ctypes.c_int64),
        ("tensor", ctypes.c_void_p),
        ("tensor_nbytes", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("data_nbytes", ctypes.c_size_t),
        ("seen", ctypes.c_void_p),
        ("manner", ctypes.c_int64),
    ]


def address_of(name):
    return ctypes.cast(getattr(deleters, name), ctypes.c_void_p).value


class Tensor:
    """One managed tensor: page of the struct, guard, page that ends with the shape, guard, strides, guard."""

    NPAGES = 6
    #: A deleter may be called whenever it likes: what it writes to lives on.
    contexts: list = []

    def __init__(self, *, versioned=True, deleter="C", context="C", dies=None, shift=0, **fields):
        self.versioned, self.shift = versioned, shift
        self.base = map_pages(self.NPAGES)
        for guard in (1, 3, 5):
            libc.mprotect(self.base + guard * PAGE, PAGE, PROT_NONE)
        self.context = Context(0, self.base, self.NPAGES * PAGE, *(dies or (None, 0)), None)
        Tensor.contexts.append(self.context)
        kind = Versioned if versioned else Legacy
        self.struct = kind.from_address(self.base)
        if deleter == "C":
            deleter = address_of("delete_versioned" if versioned else "delete_legacy")
        self.struct.deleter = deleter
        self.struct.context = ctypes.addressof(self.context) if context == "C" else context
        write_fields(self.struct, self.put_array, **{"data": FAULTING, **fields})

    def put_array(self, name, values):
        """The values end where a page ends, and the next one faults; `shift` bytes before where it is given."""
        address = self.base + {"shape": 3, "strides": 5}[name] * PAGE - 8 * len(values) - self.shift
        (ctypes.c_int64 * len(values)).from_address(address)[:] = [signed(value) for value in values]
        return ctypes.cast(address, ctypes.POINTER(ctypes.c_int64))

    @property
    def name(self):
        return CAPSULE_NAMES[self.versioned]

    @property
    def deletions(self):
        return self.context.deletions

    def capsule(self, destructor=None):
        return new_capsule(self.base, self.name, destructor)

    def free(self):
        libc.munmap(self.base, self.NPAGES * PAGE)
