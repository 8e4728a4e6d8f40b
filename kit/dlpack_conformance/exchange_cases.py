"""What a type promises that offers DLPack 1.3's table of C functions."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

from . import exchange_table
from .dlpack_structs import Tensor, Versioned
from .exchange_table import ATTRIBUTE, header_of, table_of
from .libraries import Library
from .lifetime_cases import check_deletions
from .offers import Offer
from .producer_cases import SAMPLE, array_of, device_of, expect, flat, refusal
from .producer_types import each_refused
from .rules import HEADER, MUST, SHOULD, Absent, Broken, Rules
from .taken import DELETER, HOST_KINDS, address_of, items_of, shape_of, strides_of

RULES = Rules("producer")


def delete(managed: Versioned) -> None:
    if managed.deleter:
        DELETER(managed.deleter)(ctypes.addressof(managed))


@RULES.add(
    MUST, "The type has a capsule named dlpack_exchange_api, the same table each time.", HEADER("DLPackExchangeAPI")
)
def table_on_type(library: Library) -> str:
    kind = type(array_of(library))
    first, second = header_of(kind), header_of(kind)
    expect(ctypes.addressof(second), ctypes.addressof(first), "the address of the table, asked again")
    return f"version {first.version[0]}.{first.version[1]}"


@RULES.add(MUST, "prev_api leads to older versions and ends with NULL.", HEADER("DLPackExchangeAPIHeader.prev_api"))
def table_chain(library: Library) -> str:
    header = header_of(type(array_of(library)))
    versions = [tuple(header.version)]
    while header.prev_api:
        header = exchange_table.Header.from_address(header.prev_api)
        if tuple(header.version) >= versions[-1]:
            raise Broken(f"version {versions[-1]} is followed by {tuple(header.version)}")
        versions.append(tuple(header.version))
    return " → ".join(f"{major}.{minor}" for major, minor in versions)


@RULES.add(
    MUST, "No function of the table is NULL, but dltensor_from_py_object_no_sync may be.", HEADER("DLPackExchangeAPI")
)
def table_functions(library: Library) -> str:
    table = table_of(type(array_of(library)))
    missing = [name for name in ("allocate", "from_object", "to_object", "stream") if not getattr(table, name)]
    if missing:
        raise Broken(f"NULL: {', '.join(missing)}")
    return "all four are there"


@RULES.add(
    MUST,
    "managed_tensor_from_py_object_no_sync gives a tensor of version 1 that the caller owns.",
    HEADER("DLPackManagedTensorFromPyObjectNoSync"),
)
def table_export(library: Library) -> str:
    array = array_of(library)
    managed = exchange_table.tensor_from(table_of(type(array)), array)
    expect(managed.version[0], 1, "the tensor's major version")
    expect(tuple(managed.tensor.device), device_of(array), "the tensor's device")
    del array
    gc.collect()
    if managed.tensor.device[0] in HOST_KINDS:
        expect(items_of(managed.tensor), SAMPLE, "items")
    delete(managed)
    return "the tensor outlives the array"


@RULES.add(
    MUST,
    "managed_tensor_to_py_object_no_sync steals the tensor and makes an array of the library's.",
    HEADER("DLPackManagedTensorToPyObjectNoSync"),
)
def table_import(library: Library) -> str:
    kind = type(array_of(library))
    table = table_of(kind)
    offer = Offer(values=SAMPLE, shape=(6,))
    handed = offer.hand((1, 3))
    try:
        array = exchange_table.object_from(table, handed.struct)
    except Broken:
        raise
    except Exception as error:
        raise Absent(f"it does not take memory of the CPU: {refusal(error)}") from None
    if not isinstance(array, kind):
        raise Broken(f"it made a {type(array).__name__}, not a {kind.__name__}")
    expect(flat(library.tolist(array)), SAMPLE, "items")
    del array
    gc.collect()
    check_deletions(offer, "deletions, when the array had gone")
    return "the deleter was called once"


@RULES.add(
    MUST,
    "dltensor_from_py_object_no_sync, if there, lends what the owned tensor has.",
    HEADER("DLPackDLTensorFromPyObjectNoSync"),
)
def table_borrow(library: Library) -> str:
    array = array_of(library)
    table = table_of(type(array))
    lent = exchange_table.borrow(table, array)
    if lent is None:
        raise Absent("it is NULL")
    owned = exchange_table.tensor_from(table, array)
    expect(_told(lent), _told(owned.tensor), "address, device, type, shape and strides")
    delete(owned)
    return "both say the same"


def _told(tensor: Tensor) -> tuple[Any, ...]:
    dtype = tensor.code, tensor.bits, tensor.lanes
    return address_of(tensor), tuple(tensor.device), dtype, shape_of(tensor), strides_of(tensor)


def prototype(device: tuple[int, int], dtype: tuple[int, int, int] = (2, 32, 1)) -> Tensor:
    tensor = Tensor(ndim=2, shape=(ctypes.c_int64 * 2)(2, 3))
    tensor.device = device
    tensor.code, tensor.bits, tensor.lanes = dtype
    return tensor


@RULES.add(
    MUST,
    "managed_tensor_allocator makes a tensor with the prototype's type, shape and device.",
    HEADER("DLPackManagedTensorAllocator"),
)
def table_allocate(library: Library) -> str:
    array = array_of(library)
    device = device_of(array)
    wanted = prototype(device)
    status, managed, told = exchange_table.allocate(table_of(type(array)), wanted)
    if managed is None or told:
        raise Broken(f"it returned {status} and told SetError {told}")
    tensor = managed.tensor
    found = (tuple(tensor.device), (tensor.code, tensor.bits, tensor.lanes), shape_of(tensor))
    expect(found, (device, (2, 32, 1), [2, 3]), "device, type and shape")
    if tensor.device[0] in HOST_KINDS:
        ctypes.memset(address_of(tensor), 0, 24)
    delete(managed)
    return "2x3 float32"


@RULES.add(MUST, "An allocator that fails tells SetError, and only then.", HEADER("DLPackManagedTensorAllocator"))
def table_allocate_error(library: Library) -> str:
    array = array_of(library)
    device = device_of(array)
    table, wanted = table_of(type(array)), prototype(device, dtype=(77, 7, 1))
    try:
        status, managed, told = exchange_table.allocate(table, wanted)
    except Exception as error:
        raise Broken(f"an element type that is none left a Python exception: {refusal(error)}") from None
    if managed is not None:
        raise Absent("it allocates items of any type")
    if len(told) != 1:
        raise Broken(f"it returned {status} and called SetError {len(told)} times")
    return f"{told[0][0]}: {' '.join(told[0][1].split())[:80]}"


@RULES.add(MUST, "current_work_stream returns 0 for the array's device.", HEADER("DLPackCurrentWorkStream"))
def table_stream(library: Library) -> str:
    array = array_of(library)
    device = device_of(array)
    status, stream = exchange_table.stream_of(table_of(type(array)), device)
    expect(status, 0, "status")
    return "NULL" if stream is None else f"{stream:#x}"


@RULES.add(
    SHOULD, "What DLPack cannot describe is a BufferError here too.", HEADER("DLPackManagedTensorFromPyObjectNoSync")
)
def table_error(library: Library) -> str:
    arrays = {name: array for name, array in library.refused().items() if hasattr(type(array), ATTRIBUTE)}
    if not arrays:
        raise Absent("DLPack can describe all arrays of types that have a table")
    return each_refused(arrays, lambda array: exchange_table.tensor_from(table_of(type(array)), array))
