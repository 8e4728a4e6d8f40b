"""What a consumer promises of the tensors that it was given: each is deleted once, and not before its time."""

from __future__ import annotations

import ctypes
import gc
import time
from typing import Any

from . import exchange_table
from .consumer_cases import check_items, flavours, need_versioned, read
from .dlpack_structs import VERSIONED_NAME, Versioned, capsule_name
from .exchange_table import Table
from .libraries import Library
from .offers import PAGE, Handed, Memory, Offer
from .producer_cases import expect, refusal
from .rules import HEADER, MUST, PYTHON, Absent, Broken, Rules

RULES = Rules("consumer")
#: A library may delete on a thread of its own.
PATIENCE_S = 2.0


def wait_for_deletions(offer: Offer) -> list[int]:
    """How often each tensor was deleted, once all were or time is up, and a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    gc.collect()
    while not all(offer.settle()) and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    return offer.settle()


def check_deletions(offer: Offer, what: str = "deletions") -> list[int]:
    """Broken if a tensor was not deleted once."""
    found = wait_for_deletions(offer)
    expect(found, [1] * len(found), what)
    return found


@RULES.add(MUST, "A capsule whose tensor was taken is renamed to used_...", PYTHON("Implementation"))
def capsule_renamed(library: Library) -> str:
    for flavour in flavours(library):
        offer = Offer(flavour=flavour)
        array = library.from_dlpack(offer)
        handed = offer.handed[-1]
        expect(capsule_name(handed.capsule), b"used_" + handed.name, "its name")
        del array
    return handed.name.decode()


@RULES.add(MUST, "The deleter is called once, when the array has gone.", HEADER("deleter"))
def deleter_once(library: Library) -> str:
    for flavour in flavours(library):
        offer = Offer(flavour=flavour)
        array = library.from_dlpack(offer)
        del array
        check_deletions(offer)
    return "once for each tensor"


@RULES.add(MUST, "The memory is used only until the deleter was called.", HEADER("DLManagedTensor"))
def deleter_late(library: Library) -> str:
    offer = Offer()
    array = library.from_dlpack(offer)
    gc.collect()
    when = "before" if any(handed.deletions for handed in offer.handed) else "after"
    expect(read(library, array), list(offer.kind.sample), "items, when the memory of deleted tensors was spoilt")
    return f"it was called {when} the array had gone"


@RULES.add(MUST, "A deleter may be NULL.", HEADER("deleter"))
def deleter_null(library: Library) -> str:
    for flavour in flavours(library):
        array = check_items(library, Offer(has_deleter=False, flavour=flavour))
        del array
        gc.collect()
    return "nothing is called"


@RULES.add(MUST, "A tensor that is refused is deleted once, by the consumer or its capsule.", PYTHON("Implementation"))
def refusal_frees(library: Library) -> str:
    library.from_dlpack(Offer())
    tried = []
    for what, fields in (("type", {"dtype": (77, 32, 1)}), ("device", {"device": (9, 0)})):
        offer = Offer(**fields)
        try:
            library.from_dlpack(offer)
        except Exception:
            tried += [what] if check_deletions(offer, f"refused for its {what}, deletions") else []
    if not tried:
        raise Absent("it refuses nothing that it was given")
    return f"refused for its {' and its '.join(tried)}"


class LaterMajor(Offer):
    """A tensor of version 2.0, behind whose flags the memory cannot be read."""

    def hand(self, max_version: tuple[int, int] | None = None, **keywords: bool) -> Handed:
        if max_version is None or max_version[0] < 1:
            return super().hand(max_version, **keywords)
        memory = Memory(2 * PAGE)
        struct = Versioned.from_address(memory.address + PAGE - Versioned.tensor.offset)
        struct.version = (2, 0)
        struct.flags = 0
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.address + PAGE), ctypes.c_size_t(PAGE), 0):
            raise Absent("the memory cannot be protected here")
        handed = Handed(struct, VERSIONED_NAME, None, has_deleter=True)
        self.handed.append(handed)
        return handed


@RULES.add(
    MUST,
    "A tensor of another major version is deleted, and nothing behind the deleter is read.",
    HEADER("DLPackVersion"),
)
def major_later(library: Library) -> str:
    need_versioned(library)
    offer = LaterMajor()
    try:
        library.from_dlpack(offer)
    except Exception as error:
        said = refusal(error)
    else:
        raise Broken("a tensor of version 2.0 was taken")
    check_deletions(offer, "it was refused, deletions")
    return said


# ---- the table of C functions ----


class WithTable(Offer):
    """A producer whose type has the table; its objects count how often the table made a tensor."""

    exports = 0


def kind_with_table(version: tuple[int, int], function: int | None = None) -> type[WithTable]:
    """A type with a table of this version; its functions are real ones, or all lie at this address."""

    def from_object(offer: WithTable, out: Any) -> int:
        offer.exports += 1
        out[0] = ctypes.addressof(offer.hand((1, 3)).struct)
        return 0

    def stream(_kind: int, _index: int, out: Any) -> int:
        out[0] = None
        return 0

    def fail(*_arguments: Any) -> int:
        return -1

    table = Table()
    table.header.version = version
    made = {
        "allocate": exchange_table.ALLOCATE(fail),
        "from_object": exchange_table.FROM_OBJECT(from_object),
        "to_object": exchange_table.TO_OBJECT(fail),
        "stream": exchange_table.STREAM(stream),
    }
    for name, callback in made.items():
        address = ctypes.cast(callback, ctypes.c_void_p).value if function is None else function
        setattr(table, name, address)
    kind = type(
        "WithTable",
        (WithTable,),
        {exchange_table.ATTRIBUTE: exchange_table.capsule_of(table), "kept": (table, made)},
    )
    _kinds.append(kind)  # a consumer may remember a type's table
    return kind


_kinds: list[type] = []


@RULES.add(
    MUST,
    "A tensor of the type's table is taken; dltensor_from_py_object_no_sync may be NULL.",
    HEADER("DLPackExchangeAPI"),
)
def table_taken(library: Library) -> str:
    offer = kind_with_table((1, 3))()
    array = check_items(library, offer)
    if not offer.exports:
        raise Absent("it does not use the table")
    del array
    check_deletions(offer)
    return "it takes the tensor that the caller owns"


@RULES.add(MUST, "A table of another major version is not used.", HEADER("DLPackExchangeAPIHeader.version"))
def table_major(library: Library) -> str:
    offer = kind_with_table((1, 3))()
    library.from_dlpack(offer)
    if not offer.exports:
        raise Absent("it does not use the table")
    try:
        check_items(library, kind_with_table((2, 0), function=16)())
    except Broken:
        raise
    except Exception as error:
        return refusal(error)
    return "it asks __dlpack__ instead"
