"""What a producer promises of element types, and of what DLPack cannot describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from .items import KINDS, STANDARD
from .libraries import Library
from .producer_cases import expect, latest, newest, refusal
from .rules import DLPACK, HEADER, INTERCHANGE, MUST, SHOULD, Absent, Broken, Rules
from .taken import take

RULES = Rules("producer")


def made(library: Library, kind: str) -> Any:
    """The type's sample as an array; Absent if the library has no such type, in whatever way it says so."""
    try:
        return library.make(list(KINDS[kind].sample), kind)
    except Absent:
        raise
    except Exception as error:
        raise Absent(refusal(error)) from None


def check_kind(library: Library, kind: str) -> None:
    """Absent if the library does not have or export the type."""
    entry = KINDS[kind]
    array = made(library, kind)
    try:
        taken = take(array, **newest(array))
    except Exception as error:  # rule "types-all" asks what may be refused
        raise Absent(refusal(error)) from None
    expect((taken.tensor.code, taken.tensor.bits), (entry.code, entry.bits), "code and bits")
    expect(taken.items(), list(entry.sample), "items")
    taken.delete()


def each_kind(kinds: Iterable[str], check: Callable[[str], object]) -> str:
    """The types that `check` finds kept.  Broken if it finds one broken, Absent if all are absent."""
    good: list[str] = []
    said: dict[type, list[str]] = {Broken: [], Absent: []}
    for kind in kinds:
        try:
            check(kind)
            good.append(kind)
        except (Broken, Absent) as found:
            said[type(found)].append(f"{kind}: {found}")
    if said[Broken]:
        raise Broken("; ".join(said[Broken]))
    if not good:
        raise Absent("; ".join(said[Absent]))
    return ", ".join(good)


def check_kinds(library: Library, kinds: Iterable[str]) -> str:
    return each_kind(kinds, partial(check_kind, library))


@RULES.add(MUST, "The array API's types have DLPack's code and bits; bool is code 6 with 8 bits.", HEADER("DLDataType"))
def types(library: Library) -> str:
    return check_kinds(library, (kind.name for kind in STANDARD))


@RULES.add(SHOULD, "All data types of the array API standard can be exported.", INTERCHANGE("point 2"))
def types_all(library: Library) -> str:
    missing = []
    for kind in STANDARD:
        try:
            array = made(library, kind.name)
        except Absent:
            continue
        try:
            take(array, **latest(array)).delete()
        except Exception as error:
            missing.append(f"{kind.name}: {refusal(error)}")
    if missing:
        raise Broken("; ".join(missing))
    return "those that it has"


@RULES.add(MUST, "float16 is code 2, bfloat16 code 4, with 16 bits.", HEADER("DLDataTypeCode"))
def types_16(library: Library) -> str:
    return check_kinds(library, ["float16", "bfloat16"])


@RULES.add(MUST, "8-bit floats have the code of their format.", HEADER("DLDataTypeCode"))
def types_8(library: Library) -> str:
    return check_kinds(library, ["float8_e4m3fn", "float8_e5m2"])


@RULES.add(
    MUST,
    "Items smaller than a byte are packed from the lowest bit on, unless the flag says padded.",
    HEADER("DLDataType, IS_SUBBYTE_TYPE_PADDED"),
)
def types_packed(library: Library) -> str:
    return check_kinds(library, ["int4", "float4_e2m1fn"])


@RULES.add(SHOULD, "What DLPack cannot describe is a BufferError.", DLPACK("Raises"))
def unexportable(library: Library) -> str:
    arrays = {name: array for name, array in library.refused().items() if hasattr(array, "__dlpack__")}
    if not arrays:
        raise Absent("DLPack can describe all its arrays that have __dlpack__")
    return each_refused(arrays, lambda array: array.__dlpack__(**latest(array)))


def each_refused(arrays: Mapping[str, Any], export: Callable[[Any], object]) -> str:
    """Broken where the export of one is no BufferError."""
    for name, array in arrays.items():
        try:
            export(array)
        except BufferError:
            continue
        except Exception as error:
            raise Broken(f"{name}: {refusal(error)}") from None
        raise Broken(f"{name}: exported")
    return f"BufferError for {', '.join(arrays)}"


@RULES.add(SHOULD, "Items of the other byte order are refused with a clear message.", HEADER("DLDataType"))
def byte_order(library: Library) -> str:
    array = library.swapped()
    try:
        array.__dlpack__(**latest(array))
    except Exception as error:
        return refusal(error)
    raise Broken("exported without a word")
