"""What a producer promises of copy=, and of the flags that say what became of the memory."""

from __future__ import annotations

from .dlpack_structs import IS_COPIED, IS_PADDED, READ_ONLY
from .libraries import Library
from .producer_cases import NEWEST, SAMPLE, array_of, expect, latest, need, newest, readable, refusal, versioned
from .rules import DLPACK, HEADER, MUST, SHOULD, Absent, Broken, Rules
from .taken import take

RULES = Rules("producer")


@RULES.add(MUST, "copy=None reuses the memory where that is possible.", DLPACK("copy"))
def copy_none(library: Library) -> str:
    array = array_of(library)
    first, second = take(array, **latest(array)), take(array, **latest(array))
    if first.pointer != second.pointer:
        raise Broken("two tensors of one array of rows lie on different memory")
    first.delete()
    second.delete()
    return "two tensors of one array have one address"


@RULES.add(MUST, "copy=False never copies.", DLPACK("copy"))
def copy_false(library: Library) -> str:
    array = array_of(library, "copy")
    try:
        first, second = (take(array, copy=False, **latest(array)) for _ in range(2))
    except BufferError as error:
        return refusal(error)
    except Exception as error:
        raise Broken(f"no BufferError: {refusal(error)}") from None
    if first.pointer != second.pointer:
        raise Broken("two tensors of one array lie on different memory")
    first.delete()
    second.delete()
    return "the memory is the array's"


@RULES.add(MUST, "copy=True always copies.", DLPACK("copy"))
def copy_true(library: Library) -> str:
    array = array_of(library, "copy")
    asked = newest(array)
    try:
        copied = take(array, copy=True, **asked)
    except Exception as error:
        raise Broken(f"refused, {refusal(error)}") from None
    plain, again = take(array, **asked), take(array, copy=True, **asked)
    if len({copied.pointer, plain.pointer, again.pointer}) < 3:
        raise Broken("the tensor lies on the memory of another")
    expect(copied.items(), SAMPLE, "the items of the copy")
    for taken in (copied, plain, again):
        taken.delete()
    return "the tensor has memory of its own"


@RULES.add(MUST, "A copy has the flag IS_COPIED.", DLPACK("copy"))
def copy_flag(library: Library) -> str:
    array = array_of(library, "copy")
    plain = versioned(array)
    try:
        copied = versioned(array, copy=True)
    except BufferError:
        raise Absent("it refuses copy=True") from None
    if copied.pointer == plain.pointer:
        raise Absent("it does not copy")
    if not copied.flags & IS_COPIED:
        raise Broken(f"the flags of a copy are {copied.flags:#x}")
    plain.delete()
    copied.delete()
    return "it is set"


@RULES.add(MUST, "Memory that is shared has not the flag IS_COPIED.", HEADER("IS_COPIED"))
def shared_flag(library: Library) -> str:
    array = array_of(library)
    first, second = versioned(array), versioned(array)
    if first.pointer != second.pointer:
        raise Absent("it shares no memory")
    if first.flags & IS_COPIED:
        raise Broken("two tensors on the same memory are both flagged as copies")
    first.delete()
    second.delete()
    return "it is not set"


@RULES.add(SHOULD, "Flags that DLPack does not define are 0.", HEADER("DLManagedTensorVersioned.flags"))
def flags(library: Library) -> str:
    taken = versioned(array_of(library))
    unknown = taken.flags & ~(READ_ONLY | IS_COPIED | IS_PADDED)
    if unknown:
        raise Broken(f"the flags are {taken.flags:#x}")
    taken.delete()
    return f"the flags are {taken.flags:#x}"


@RULES.add(MUST, "The tensor of an array that may not be written has the flag READ_ONLY.", HEADER("READ_ONLY"))
def read_only(library: Library) -> str:
    array = library.read_only()
    need(array, "max_version")
    try:
        taken = take(array, max_version=NEWEST, **readable(array))
    except BufferError as error:
        return refusal(error)
    if not taken.is_versioned:
        raise Absent("it makes no versioned tensors")
    if not taken.flags & (READ_ONLY | IS_COPIED):
        raise Broken(f"the flags are {taken.flags:#x}")
    taken.delete()
    return "it is set"
