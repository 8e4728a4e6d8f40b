"""One table of hostile.faults through one way into the package: a line for each case that goes wrong, then a count.

    python child.py TABLE STRUCT DEVICE ROUTE

Run in a process of its own, with HOSTILE_DELETERS naming the library made of deleters.c, and HOSTILE_TRACE an open
file that gets the name of each case: a crash is a finding.
"""

import ctypes
import gc
import itertools
import os
import sys

import metal_dlpack as md
from hostile import faults
from hostile.tensors import FAULTING, PAGE, Handing, Tensor, deleters, map_pages
from metal_dlpack import softmetal

CPU, METAL = (1, 0), (8, 0)
REFUSALS = (BufferError, ValueError)  # CopyRequiredError is both

#: The file that ends with the name of the case that a crash was in.
TRACE = int(os.environ["HOSTILE_TRACE"])
table_name, struct, device_name, route = sys.argv[1:]
versioned = struct == "versioned"
device = {"cpu": CPU, "metal": METAL}[device_name]


class Table(ctypes.Structure):
    """DLPackExchangeAPI, as far as it is used here."""

    _fields_ = [
        ("header", ctypes.c_void_p * 2),
        ("allocator", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))),
    ]


get_name = ctypes.pythonapi.PyCapsule_GetName
get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def table_of_array():
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Table.from_address(get(md.Array.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


class Case:
    """A tensor on its way in, and what became of it."""

    def __init__(self, fields, **more):
        given = {"device": device, "versioned": versioned, **more, **fields}
        self.tensor = Tensor(**given)
        self.is_counted = fields.get("deleter", "C") is not None
        self.is_contextless = fields.get("context", "C") is None
        self.contextless_before = contextless()
        self.capsule = None

    def take(self, copy=None):
        if route == "exchange":
            result = ctypes.c_void_p()
            assert table_of_array().to_object(self.tensor.base, ctypes.byref(result)) == 0  # else it has raised
            array = ctypes.cast(result, ctypes.py_object).value
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(array))  # the one that `result` has
            return array
        self.capsule = self.tensor.capsule(destructor=ctypes.cast(deleters.end_capsule, ctypes.c_void_p).value)
        if route == "capsule":
            return md.from_dlpack(self.capsule, copy=copy)
        at = self.tensor.struct.dl_tensor.device
        return md.from_dlpack(Handing(self.capsule, (at.device_type, at.device_id)), copy=copy)

    @property
    def is_consumed(self):
        return self.capsule is None or get_name(self.capsule).startswith(b"used_")

    @property
    def deletions(self):
        return contextless() - self.contextless_before if self.is_contextless else self.tensor.deletions

    def end(self):
        """Drop the capsule, whose destructor lets go of what nobody took."""
        self.capsule = None
        gc.collect(0)


def contextless():
    return ctypes.c_int64.in_dll(deleters, "contextless_deletions").value


def refused(fields):
    """'' if the case is refused by its metadata, and ends once; else what went wrong."""
    case = Case(fields)
    try:
        array = case.take()
    except REFUSALS as error:
        if len(str(error)) < 20 or not str(error).endswith("."):
            return f"says {error!r}"
    else:
        return f"was taken as {array.shape} {array.dtype}"
    if case.deletions != (case.is_consumed and case.is_counted):
        return f"deleted {case.deletions} times, consumed: {case.is_consumed}"
    case.end()
    return "" if case.deletions == case.is_counted else f"deleted {case.deletions} times in all"


def refused_and_deleted(fields):
    """The same for another major version, which must be deleted at once."""
    case = Case({**fields, "shape": None, "strides": None, "ndim": 2**31 - 1, "data": FAULTING})
    try:
        case.take()
    except REFUSALS:
        pass
    else:
        return "was taken"
    if not case.is_consumed or case.deletions != 1:
        return f"deleted {case.deletions} times, consumed: {case.is_consumed}"
    case.end()
    return "" if case.deletions == 1 else f"deleted {case.deletions} times in all"


def metal_refused(fields):
    """Wrong beside a real MTLBuffer."""
    return refused({"data": buffer_of_pattern().handle, **fields})


# ---- odd, but good ----


def buffer_of_pattern():
    if not BUFFERS:
        buffer = md.Buffer(faults.ROOM)
        buffer.copy_from(faults.PATTERN)
        BUFFERS.append(buffer)
    return BUFFERS[0]


BUFFERS: list = []


def memory_of_pattern():
    """Pages that die with the tensor that names them: who reads on afterwards dies too."""
    npages = -(-faults.ROOM // PAGE)
    address = map_pages(npages)
    ctypes.memmove(address, faults.PATTERN, faults.ROOM)
    return address, npages * PAGE


def taken(fields):
    """'' if each way to ask gives the right bytes, and the tensor ends once."""
    complaints = (taken_as(fields, copy) for copy in ((None,) if route == "exchange" else (None, True, False)))
    return next(filter(None, complaints), "")


def taken_as(fields, copy):
    dies = memory_of_pattern() if device == CPU else None
    data = dies[0] if dies else buffer_of_pattern().handle
    case = Case({"data": data, **fields}, dies=dies)
    try:
        array = case.take(copy)
    except md.CopyRequiredError:
        case.end()
        return "" if copy is False and case.deletions == int(case.is_counted) else f"copy={copy} needs a copy"
    expected = faults.bytes_of(fields, faults.PATTERN)
    found = array.copy()
    if bytes(memoryview(found.buffer))[: found.nbytes] != expected if found.nbytes else expected:
        return f"copy={copy}: other bytes"
    if array.shape != tuple(fields.get("shape", (2, 3)) or ()):
        return f"copy={copy}: shape {array.shape}"
    flags = fields.get("flags", 0)
    is_our_copy = copy is True and (device == CPU or not flags & 2)
    if array.readonly != (bool(flags & 1) and not is_our_copy):
        return f"copy={copy}: readonly is {array.readonly}"
    del array, found
    case.end()
    if case.deletions != int(case.is_counted):
        return f"copy={copy}: deleted {case.deletions} times"
    return ""


def empty(fields):
    case = Case({"data": FAULTING, **fields})
    array = case.take()
    shape = tuple(fields["shape"])
    if array.shape != shape or array.size != 0:
        return f"has the shape {array.shape}"
    del array
    case.end()
    return "" if case.deletions == 1 else f"deleted {case.deletions} times"


# ---- the tables ----


def faults_of(table):
    """Each row, and each two rows that do not contradict each other."""
    yield from table.items()
    yield from faults.pairs_of_faults(table)


def fitting(table):
    """The rows that this struct can say."""
    for name, fields in table.items():
        only_versioned = {"version", "flags"} & fields.keys()
        if fields.get("versioned", versioned) == versioned and (versioned or not only_versioned):
            yield name, {key: value for key, value in fields.items() if key != "versioned"}


CHOSEN_FAULTS = {**faults.FAULTS, **(faults.VERSIONED_FAULTS if versioned else {})}
TABLES = {
    "faults": (refused, lambda: faults_of(CHOSEN_FAULTS)),
    "faults-beside-odd": (refused, lambda: faults.pairs_of_fault_and_odd(CHOSEN_FAULTS, dict(fitting(faults.ODD)))),
    "majors": (refused_and_deleted, lambda: faults.OTHER_MAJORS.items()),
    "metal-faults": (metal_refused, lambda: faults_of(faults.METAL_FAULTS)),
    "odd": (taken, lambda: itertools.chain(fitting(faults.ODD), fitting(faults.PEERS))),
    "odd-pairs": (taken, lambda: faults.pairs_of_odd(dict(fitting(faults.ODD)))),
    "empty": (empty, lambda: fitting(faults.EMPTY)),
}


def main():
    check, cases = TABLES[table_name]
    count = 0
    for name, fields in cases():
        os.write(TRACE, f"{name}\n".encode())
        complaint = check(fields)
        count += 1
        if complaint:
            print(f"{name}: {complaint}")
    BUFFERS.clear()
    gc.collect()
    md.from_dlpack(md.zeros(1))  # what is left to let go is let go
    if softmetal.is_present() and softmetal.live_objects("MTLBuffer"):
        print(f"{softmetal.live_objects('MTLBuffer')} MTLBuffers are left")
    print(f"{count} cases")


if __name__ == "__main__":
    main()
