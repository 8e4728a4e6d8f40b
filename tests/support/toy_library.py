"""A small array library on ctypes that keeps every rule of DLPack, and breaks one if it is asked to.

`Toy()` keeps all; `Toy("producer", "copy-flag")` breaks that one.
"""

import ctypes
import itertools
import math

from dlpack_conformance import Library, exchange_table
from dlpack_conformance.dlpack_structs import (
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
from dlpack_conformance.exchange_table import Table
from dlpack_conformance.items import KINDS, kind_of
from dlpack_conformance.offers import Memory, compact
from dlpack_conformance.taken import address_of, items_of, strides_of

#: The type of a managed tensor's deleter, and of a capsule's destructor.
DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
clear_destructor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetDestructor", ctypes.pythonapi)
)
set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
USED = b"used_dltensor"
#: Exported tensors that nobody has deleted: address -> (struct, who keeps the memory, the array's exports).
exported = {}
kept = []


@DELETER
def delete(address):
    _, array, exports = exported.pop(address, (None, None, set()))
    exports.discard(address)
    if array is not None and exports and array.breaks("array-goes-on"):
        array.memory.spoil()


def destructor_of(*prefixes):
    """Deletes the tensor if the capsule's name is a tensor's behind one of these."""

    @DELETER
    def destroy(capsule):
        for name, kind in ((LEGACY_NAME, Legacy), (VERSIONED_NAME, Versioned)):
            for found in (prefix + name for prefix in prefixes if is_named(capsule, prefix + name)):
                managed = kind.from_address(pointer_of(capsule, found))
                DELETER(managed.deleter)(ctypes.addressof(managed))

    return destroy


DESTRUCTORS = {"capsule-taken": destructor_of(b"", b"used_"), "capsule-dropped": destructor_of()}
DESTROY = destructor_of(b"")


def managed_of(capsule):
    """What it points to: a versioned tensor, unless its name is an unversioned one's."""
    name = capsule_name(capsule)
    return (Legacy if name == LEGACY_NAME else Versioned).from_address(capsule_pointer(capsule, name))


class Array:
    """Items on memory of the kit's own making; `kind` None stands for what DLPack cannot describe."""

    def __init__(self, toy, kind, shape, strides, memory, offset=0, *, is_read_only=False):
        self.toy, self.kind, self.shape, self.strides = toy, kind, tuple(shape), tuple(strides)
        self.memory, self.offset, self.is_read_only = memory, offset, is_read_only
        self.exports, self.has_dlpacked = set(), False

    def breaks(self, rule):
        return self.toy.broken == ("producer", rule)

    def __del__(self):
        if self.breaks("lifetime") and self.has_dlpacked:
            self.memory.spoil()

    def __dlpack_device__(self):
        return [1, 0] if self.breaks("device-pair") else (1, self.toy.device_id)

    def __dlpack__(self, *positional, stream=None, max_version=None, dl_device=None, copy=None):
        self.toy.calls += 1
        if positional and not self.breaks("keywords"):
            raise TypeError("keywords only")
        if stream is not None and not self.breaks("stream-cpu"):
            raise ValueError("the CPU has no streams")
        if dl_device not in (None, (1, 0)) and not self.breaks("device-unknown"):
            raise BufferError("the CPU only")
        if dl_device and self.breaks("device-cpu"):
            raise BufferError("not for this device")
        if max_version and max_version[0] > 1 and self.breaks("version-later"):
            raise BufferError("not so new")
        if self.kind is None:
            raise (TypeError if self.breaks("unexportable") else BufferError)("no numbers")
        is_versioned = bool(max_version) and tuple(max_version) >= (1, 3 if self.breaks("version-asked") else 0)
        is_versioned = is_versioned or (max_version == (0, 8) and self.breaks("version-none"))
        self.has_dlpacked = True
        copies = copy is True and not self.breaks("copy-true")
        copies = copies or (copy is None and self.breaks("copy-none")) or (copy is False and self.breaks("copy-false"))
        managed = self.export(is_versioned, copies)
        if dl_device is None and self.breaks("device-agrees"):
            managed.tensor.device = (3, 0)
        name = VERSIONED_NAME if is_versioned else LEGACY_NAME
        if self.breaks("capsule-name"):
            name = b"tensor"
        end = DESTRUCTORS.get(self.toy.broken[1], DESTROY)
        capsule = new_capsule(ctypes.addressof(managed), name, ctypes.cast(end, ctypes.c_void_p))
        circle = [self, capsule]  # both go when the garbage is collected, and not before
        circle.append(circle)
        return capsule

    def export(self, is_versioned, copies=False):
        """A managed tensor, owned by who asks."""
        managed = Versioned() if is_versioned else Legacy()
        source = self
        if copies:
            source = self.toy.array(items_of(self.tensor()), self.kind.name, self.shape)
        if is_versioned:
            managed.version = (1, 2) if self.breaks("strides-given") else self.toy.version_of_tensors
            is_flagged = copies and not self.breaks("copy-flag")
            is_flagged = is_flagged or (not copies and self.breaks("shared-flag"))
            managed.flags = IS_COPIED * is_flagged | 32 * self.breaks("flags")
            managed.flags |= READ_ONLY * (self.is_read_only and not self.breaks("read-only"))
        source.tensor(managed.tensor)
        if is_versioned and self.breaks("strides-given") and self.strides == compact(self.shape):
            managed.tensor.strides = None
        clear = ctypes.cast(ctypes.pythonapi.PyErr_Clear, ctypes.c_void_p)  # needs the GIL, and asks for none
        deleter = clear if self.breaks("deleter-thread") else ctypes.cast(delete, ctypes.c_void_p)
        managed.deleter = deleter.value
        owner = None if self.breaks("lifetime") and not copies else source
        exported[ctypes.addressof(managed)] = (managed, owner or (self.memory and _Keeper(source)), self.exports)
        self.exports.add(ctypes.addressof(managed))
        kept.append(managed)  # for faults that delete twice
        return managed

    def tensor(self, tensor=None):
        tensor = Tensor() if tensor is None else tensor
        is_view = self.strides != compact(self.shape)
        tensor.data = self.memory.address + self.offset if self.size or self.breaks("empty") else None
        tensor.device = (1, self.toy.device_id)
        tensor.code, tensor.bits, tensor.lanes = self.told_type()
        shape, strides = self.shape, self.strides
        if self.breaks("zero-dimensions") and not shape:
            shape, strides = (1,), (1,)
        if self.breaks("views") and is_view:
            strides = tuple(stride * self.kind.bits // 8 for stride in strides)
        tensor.ndim = len(shape)
        tensor.shape = (ctypes.c_int64 * len(shape))(*shape)
        tensor.strides = (ctypes.c_int64 * len(shape))(*strides)
        if self.breaks("items") and self.size == 6 and self.kind.name == "float32":
            tensor.byte_offset = 4
        return tensor

    def told_type(self):
        wrong = {("types", "int8"): (1, 8), ("types-16", "bfloat16"): (2, 16), ("types-8", "float8_e5m2"): (10, 8)}
        code, bits = wrong.get((self.toy.broken[1], self.kind.name), (self.kind.code, self.kind.bits))
        if self.kind.name == "complex128" and self.breaks("types-all"):
            raise BufferError("not so long")
        return code, bits, 1

    @property
    def size(self):
        return math.prod(self.shape)


class _Keeper:
    """Keeps the memory of an array, and not the array."""

    def __init__(self, array):
        self.memory, self.breaks = array.memory, lambda _rule: False


class Imported:
    """A foreign tensor, or a copy of its items."""

    def __init__(self, managed, items, is_read_only, deletes):
        self.managed, self.items, self.is_read_only, self.deletes = managed, items, is_read_only, deletes

    def __del__(self):
        for _ in range(self.deletes):
            if self.managed.deleter:
                DELETER(self.managed.deleter)(ctypes.addressof(self.managed))


class Toy(Library):
    """The library; `broken` is (side, rule)."""

    name = "Toy"
    distribution = ""
    has_read_only = True
    Array = Array
    version_of_tensors = asked_version = (1, 3)
    has_table = True
    has_later_table = False  #: whether the type offers a table of major version 2, and behind it its own
    lends = True
    kind_for_others = None  #: what the allocator takes for an element type that is none
    calls = 0  #: of __dlpack__ and from_dlpack

    def __init__(self, side="", rule=""):
        self.broken = (side, rule)
        self.device_id = int(self.broken == ("producer", "device-id"))
        self.type = toy_type(self) if self.has_table else self.Array
        self.nameless = nameless_type(self)

    def breaks(self, rule):
        return self.broken == ("consumer", rule)

    # ---- as a producer ----

    def array(self, values, kind, shape):
        data = KINDS[kind].pack(values)
        if kind == "int4" and self.broken == ("producer", "types-packed"):
            data = bytes((byte >> 4 | byte << 4) & 255 for byte in data)
        offset = 64 * (self.broken == ("producer", "alignment"))
        memory = Memory(len(data) + offset)
        memory.write(data, offset)
        return self.type(self, KINDS[kind], shape, compact(shape), memory, offset)

    def make(self, values, kind):
        shape, rest = [], values
        while isinstance(rest, list):
            shape.append(len(rest))
            rest = rest[0] if rest else 0.0
        while isinstance(values, list) and values and isinstance(values[0], list):
            values = list(itertools.chain(*values))
        return self.array(values if isinstance(values, list) else [values], kind, shape)

    def views(self, array):
        def view(shape, strides, first=0):
            return self.type(self, array.kind, shape, strides, array.memory, array.offset + 4 * first)

        return {"transposed": view((4, 3), (1, 4)), "part": view((2, 2), (4, 2), 4), "reversed": view((3,), (-4,), 8)}

    def read_only(self):
        array = self.make([0.0, 1.0], "float32")
        array.is_read_only = True
        return array

    def refused(self):
        return {"text": self.nameless(self, None, (), (), None)}

    def swapped(self):
        return self.make([0], "int32") if self.broken == ("producer", "byte-order") else self.refused()["text"]

    # ---- as a consumer ----

    def tolist(self, array):
        if isinstance(array, Imported):
            return array.items() if callable(array.items) else array.items
        if self.broken[0] != "producer":
            return items_of(array.tensor())
        honest = Array(Toy(), array.kind, array.shape, array.strides, array.memory, array.offset)
        return items_of(honest.tensor())  # what it holds, whatever its own tensors say

    def is_writable(self, array):
        return not array.is_read_only

    def from_dlpack(self, producer, *, device=None, copy=None):
        self.calls += 1
        if device is not None and self.breaks("device-cpu"):
            raise ValueError("no device")
        table = self.table_of(producer)
        if table is not None:
            return self.take(exchange_table.tensor_from(table, producer), True, copy)
        try:
            kind = producer.__dlpack_device__()[0]
            if kind != 1:
                return self.refuse_device(producer)
            capsule = self.ask(producer, copy)
        except AttributeError:
            raise (TypeError if self.breaks("no-producer") else AttributeError)("no DLPack") from None
        except RuntimeError as error:
            if self.breaks("errors") and not producer.calls:  # it is __dlpack_device__'s
                raise ValueError("no") from error
            raise
        name = capsule_name(capsule)
        is_versioned = name == VERSIONED_NAME
        is_known = is_versioned or (name == LEGACY_NAME and not self.breaks("unversioned"))
        if not is_known and not self.breaks("capsule-other"):
            raise ValueError("not a tensor")
        is_versioned = is_versioned or not is_known
        managed = (Versioned if is_versioned else Legacy).from_address(capsule_pointer(capsule, name))
        try:
            self.check(managed, is_versioned)
        except BufferError:
            if self.breaks("refusal-frees") and not (is_versioned and managed.version[0] > 1):
                rename_capsule(capsule)
            raise
        if not is_known or self.breaks("capsule-renamed"):
            clear_destructor(capsule, None)
            set_name(capsule, USED)  # right for an unversioned tensor only
        else:
            rename_capsule(capsule)
        return self.take(managed, is_versioned, copy)

    def refuse_device(self, producer):
        if self.breaks("device-other"):
            raise RuntimeError("which device?")
        raise BufferError("the CPU only")

    def table_of(self, producer):
        if self.broken[0] == "consumer" and self.broken[1] == "errors":
            return None
        try:
            header = exchange_table.header_of(type(producer))
        except Exception:
            return None
        if tuple(header.version) != (1, 3) and not self.breaks("table-major"):
            return None
        table = Table.from_address(ctypes.addressof(header))
        if self.breaks("table-taken"):
            exchange_table.BORROW(table.borrow or 0)(producer, Tensor())
        return table

    def ask(self, producer, copy):
        keywords = {"max_version": self.asked_version}
        if self.breaks("asks-version"):
            keywords = {}
        if self.breaks("asks-stream"):
            keywords["stream"] = 1
        if copy is not None:
            keywords["copy"] = copy
        if self.breaks("asks-in-form"):
            keywords["more"] = 1
        while True:
            try:
                return producer.__dlpack__(**keywords)
            except TypeError:
                if not keywords or self.breaks("asks-again"):
                    raise
                keywords.popitem()

    def check(self, managed, is_versioned):
        flags = managed.flags if is_versioned else 0
        if is_versioned and managed.version[0] != 1 and not self.breaks("major-later"):
            raise BufferError("another major version")
        tensor = managed.tensor
        is_unknown = kind_of(tensor.code, tensor.bits) is None
        if is_unknown and not self.breaks("types-bits" if tensor.code in (15, 17) else "types-unknown"):
            raise BufferError("a type that is not known")
        refused_by_fault = {
            "minor-later": is_versioned and managed.version[1] > 3,
            "read-only-taken": flags & READ_ONLY,
            "types-all": (tensor.code, tensor.bits) == (5, 128),
            "unaligned": (tensor.data or 0) % 64,
            "zero-dimensions": not tensor.ndim,
            "empty": not tensor.data,
        }
        if self.broken[0] == "consumer" and refused_by_fault.get(self.broken[1]):
            raise BufferError(self.broken[1])

    def take(self, managed, is_versioned, copy):
        flags = managed.flags if is_versioned else 0
        is_read_only = bool(flags & READ_ONLY) and not self.breaks("read-only-kept")
        tensor = managed.tensor
        items = self.reader(tensor, flags)
        copies = copy is True and not self.breaks("copy-true") and not flags & IS_COPIED
        copies = copies or (copy is None and self.breaks("copy-none")) or (copy is False and self.breaks("copy-false"))
        deletes = 2 if self.breaks("deleter-once") and not is_versioned else 1
        if self.breaks("deleter-late"):
            DELETER(managed.deleter)(ctypes.addressof(managed))
            deletes = 0
        if self.breaks("deleter-null") and not managed.deleter:
            ctypes.string_at(0)
        return Imported(managed, items() if copies else items, is_read_only, deletes)

    def reader(self, tensor, flags):
        """A function that reads the items now."""
        seen = Tensor()
        ctypes.pointer(seen)[0] = tensor
        shape, strides = tensor.shape[: tensor.ndim] if tensor.ndim else [], strides_of(tensor)
        if self.breaks("strides-null") and not tensor.strides:
            strides = compact(shape[::-1])[::-1]
        if self.breaks("strides") and len(set(strides)) == len(strides) and all(s > 0 for s in strides):
            strides = compact(shape)
        if self.breaks("strides-zero") and (0 in strides or len(set(strides)) < len(strides)):
            strides = compact(shape)
        if self.breaks("strides-negative"):
            strides = [abs(stride) for stride in strides]
        if self.breaks("strides-unit") and any(e == 1 and s > 6 for e, s in zip(shape, strides, strict=True)):
            seen.data += 4
        seen.strides = (ctypes.c_int64 * len(shape))(*strides)
        if self.breaks("byte-offset"):
            seen.byte_offset = 0
        if self.breaks("taken"):
            seen.data = (seen.data or 0) + 4
        lies = {"types": ((0, 8), (1, 8)), "types-16": ((4, 16), (2, 16)), "types-8": ((12, 8), (10, 8))}
        told, read_as = lies.get(self.broken[1] if self.broken[0] == "consumer" else "", (None, None))
        if (tensor.code, tensor.bits) == told:
            seen.code, seen.bits = read_as
        if kind_of(seen.code, seen.bits) is None:
            seen.code, seen.bits = 2, 32
        if self.breaks("lanes"):
            seen.lanes = 1
        padded = bool(flags & IS_PADDED) and not self.breaks("types-padded")

        def read():
            items = items_of(seen, padded=padded)
            if self.breaks("types-packed") and seen.bits == 4 and not padded:
                items[::2], items[1::2] = items[1::2], items[::2]
            return items

        return read


# ---- the table of C functions ----


def toy_type(toy):
    """A subclass of Array with a table of its own."""

    def breaks(rule):
        return toy.broken == ("producer", rule)

    def allocate(prototype, out, context, set_error):
        tensor = prototype[0]
        kind = kind_of(tensor.code, tensor.bits) or toy.kind_for_others
        if kind is None:
            if not breaks("table-allocate-error"):
                set_error(context, b"BufferError", b"no such type")
            return -1
        shape = tensor.shape[: tensor.ndim]
        array = toy.array([0.0] * 6, kind.name, shape[::-1] if breaks("table-allocate") else shape)
        out[0] = ctypes.addressof(array.export(True))
        return 0

    def from_object(array, out):
        managed = array.export(True)
        if breaks("table-export"):
            managed.version = (2, 0)
        out[0] = ctypes.addressof(managed)
        return 0

    def to_object(address, out):
        managed = Versioned.from_address(address)
        memory = Memory(64)
        ctypes.memmove(memory.address, address_of(managed.tensor), 24)
        made = kind(toy, KINDS["float32"], (6,), (1,), memory)
        if not breaks("table-import"):
            DELETER(managed.deleter)(address)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = id(made)
        return 0

    def borrow(array, out):
        tensor = array.tensor(out[0])
        kept.append(tensor)
        if breaks("table-borrow"):
            tensor.strides = (ctypes.c_int64 * 1)(4)
        return 0

    def stream(_kind, _index, out):
        out[0] = None
        return -1 if breaks("table-stream") else 0

    def table():
        new = Table()
        new.header.version = (1, 3)
        if breaks("table-chain"):
            new.header.prev_api = ctypes.addressof(new)
        functions = {
            "allocate": exchange_table.ALLOCATE(allocate),
            "from_object": exchange_table.FROM_OBJECT(from_object),
            "to_object": exchange_table.TO_OBJECT(to_object),
            "borrow": exchange_table.BORROW(borrow),
            "stream": exchange_table.STREAM(stream),
        }
        kept.append((new, functions))
        for name, function in functions.items():
            setattr(new, name, ctypes.cast(function, ctypes.c_void_p).value)
        if breaks("table-functions"):
            new.stream = None
        if not toy.lends:
            new.borrow = None
        if toy.has_later_table:
            later = Table()
            later.header.version = (2, 0)
            later.header.prev_api = ctypes.addressof(later if breaks("table-chain") else new)
            kept.append(later)
            return later
        return new

    class Meta(type):
        @property
        def __dlpack_c_exchange_api__(cls):
            return exchange_table.capsule_of(table() if breaks("table-on-type") else cls.table)

    kind = Meta("ToyArray", (toy.Array,), {"table": table()})
    return kind


def nameless_type(toy):
    """A type with a table, whose arrays DLPack cannot describe.

    Python code cannot leave an exception behind in a C function's place.  So the table has a CPython function, which
    asks __bool__, and ends as the table's function should: with -1 and the exception.
    """

    def fail(_array, _out):
        return -1  # and no exception

    functions = exchange_table.FROM_OBJECT(fail), ctypes.pythonapi.PyObject_IsTrue
    table = Table()
    table.header.version = (1, 3)
    is_broken = toy.broken == ("producer", "table-error")
    table.from_object = ctypes.cast(functions[not is_broken], ctypes.c_void_p).value
    kept.append((table, functions))

    def refuse(_array):
        raise BufferError("no numbers")

    return type("Nameless", (Array,), {"__bool__": refuse, exchange_table.ATTRIBUTE: exchange_table.capsule_of(table)})
