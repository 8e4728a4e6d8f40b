"""What a consumer makes of layouts and element types: the right items, or a refusal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .consumer_cases import check_items, flavours, need_versioned, read
from .dlpack_structs import IS_PADDED
from .items import KINDS, STANDARD
from .libraries import Library
from .offers import Offer
from .producer_cases import expect, refusal
from .producer_types import each_kind
from .rules import HEADER, INTERCHANGE, MUST, PYTHON, SHOULD, Absent, Broken, Rules

RULES = Rules("consumer")


def right_or_refused(library: Library, offer: Offer, expected: Any = None) -> str:
    """Absent if the consumer refuses the tensor, Broken if it takes it for another."""
    library.from_dlpack(Offer())  # an ordinary one is taken
    try:
        array = library.from_dlpack(offer)
    except Exception as error:
        raise Absent(f"refused, {refusal(error)}") from None
    expect(read(library, array), list(offer.kind.sample) if expected is None else expected, "items")
    return "the items are right"


# ---- layouts ----


@RULES.add(MUST, "Strides that are NULL mean rows one after the other.", PYTHON("Implementation"))
def strides_null(library: Library) -> str:
    for flavour in flavours(library):
        check_items(library, Offer(flavour=flavour, version=(1, 1), strides=None))
    return "in dltensor and in version 1.1, where they are taken"


@RULES.add(MUST, "Strides count items; the array has the items where they say.", HEADER("DLTensor.strides"))
def strides(library: Library) -> str:
    right_or_refused(library, Offer(strides=(1, 2)), [0.0, 2.0, 4.0, 1.0, 3.0, 5.0])
    return right_or_refused(library, Offer(shape=(3,), strides=(2,)), [0.0, 2.0, 4.0])


@RULES.add(MUST, "The stride of an axis of one item has no effect.", HEADER("DLTensor.strides"))
def strides_unit(library: Library) -> str:
    return right_or_refused(library, Offer(shape=(1, 6), strides=(77, 1)))


@RULES.add(MUST, "Negative strides lead backwards, or are refused.", HEADER("DLTensor.strides"))
def strides_negative(library: Library) -> str:
    return right_or_refused(library, Offer(shape=(6,), strides=(-1,), first=5), [5.0, 4.0, 3.0, 2.0, 1.0, 0.0])


@RULES.add(MUST, "Items may share memory, or are refused.", HEADER("DLTensor.strides"))
def strides_zero(library: Library) -> str:
    right_or_refused(library, Offer(shape=(2, 3), strides=(0, 1)), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0])
    return right_or_refused(library, Offer(shape=(3, 2), strides=(1, 1)), [0.0, 1.0, 1.0, 2.0, 2.0, 3.0])


@RULES.add(MUST, "The items begin byte_offset bytes after data.", HEADER("DLTensor.byte_offset"))
def byte_offset(library: Library) -> str:
    check_items(library, Offer(byte_offset=64))
    check_items(library, Offer(byte_offset=16384))
    return "64 bytes and 16 KiB"


@RULES.add(SHOULD, "It does not rely on the alignment of data.", HEADER("DLTensor.data"))
def unaligned(library: Library) -> str:
    offer = Offer(shape=(5,), first=1)
    check_items(library, offer, [1.0, 2.0, 3.0, 4.0, 5.0])
    return "data at a multiple of 4 bytes"


@RULES.add(MUST, "With ndim 0 there is one item; shape and strides may be NULL.", HEADER("DLTensor.shape"))
def zero_dimensions(library: Library) -> str:
    check_items(library, Offer(shape=(), strides=None, has_shape=False, values=[7.0]), [7.0])
    return "one item"


@RULES.add(MUST, "A tensor of size zero has NULL for data.", HEADER("DLTensor.data"))
def empty(library: Library) -> str:
    check_items(library, Offer(shape=(0,), data="null", values=[]), [])
    check_items(library, Offer(shape=(0, 3), data="null", values=[]), [])
    return "shapes (0,) and (0, 3)"


# ---- element types ----


def has(library: Library, kind: str) -> bool:
    try:
        library.make(list(KINDS[kind].sample), kind)
    except Exception:  # Absent, or the library's own word for it
        return False
    return True


def check_kinds(library: Library, kinds: Iterable[str]) -> str:
    return each_kind(kinds, lambda kind: right_or_refused(library, Offer(kind)))


@RULES.add(MUST, "The array API's types have the items of their code and bits.", HEADER("DLDataType"))
def types(library: Library) -> str:
    return check_kinds(library, (kind.name for kind in STANDARD))


@RULES.add(SHOULD, "All data types of the array API standard can be imported.", INTERCHANGE("point 2"))
def types_all(library: Library) -> str:
    library.from_dlpack(Offer())
    missing = []
    for kind in STANDARD:
        if has(library, kind.name):
            try:
                library.from_dlpack(Offer(kind.name))
            except Exception as error:
                missing.append(f"{kind.name}: {refusal(error)}")
    if missing:
        raise Broken("; ".join(missing))
    return "those that it has"


@RULES.add(MUST, "Code 2 with 16 bits is float16, code 4 bfloat16.", HEADER("DLDataTypeCode"))
def types_16(library: Library) -> str:
    return check_kinds(library, ["float16", "bfloat16"])


@RULES.add(MUST, "8-bit floats have the format of their code.", HEADER("DLDataTypeCode"))
def types_8(library: Library) -> str:
    return check_kinds(library, ["float8_e4m3fn", "float8_e5m2"])


@RULES.add(MUST, "Items smaller than a byte are packed from the lowest bit on.", HEADER("DLDataType"))
def types_packed(library: Library) -> str:
    return check_kinds(library, ["int4", "float4_e2m1fn"])


@RULES.add(MUST, "With the flag SUBBYTE_TYPE_PADDED each has a byte.", HEADER("IS_SUBBYTE_TYPE_PADDED"))
def types_padded(library: Library) -> str:
    need_versioned(library)
    return right_or_refused(library, Offer("float4_e2m1fn", flags=IS_PADDED, item_bits=8))


@RULES.add(MUST, "6-bit and 4-bit floats with another number of bits are refused.", HEADER("DLDataTypeCode"))
def types_bits(library: Library) -> str:
    return _refused(library, {"fp4 with 8 bits": (17, 8, 1), "fp6 with 8 bits": (15, 8, 1)})


@RULES.add(SHOULD, "A type that it does not know is refused.", HEADER("DLPackVersion"))
def types_unknown(library: Library) -> str:
    return _refused(library, {"code 77": (77, 32, 1), "a float of 24 bits": (2, 24, 1)})


def _refused(library: Library, dtypes: dict[str, tuple[int, int, int]]) -> str:
    library.from_dlpack(Offer())
    for name, dtype in dtypes.items():
        try:
            library.from_dlpack(Offer(dtype=dtype))
        except Exception:
            continue
        raise Broken(f"{name} was taken")
    return f"{' and '.join(dtypes)} are refused"


@RULES.add(MUST, "An item of several lanes has so many numbers, or is refused.", HEADER("DLDataType.lanes"))
def lanes(library: Library) -> str:
    return right_or_refused(library, Offer(shape=(3,), dtype=(2, 32, 2)))
