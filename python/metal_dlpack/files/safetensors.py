"""The header of a .safetensors file: eight bytes of length, then JSON.

As strict as the `safetensors` package, whose own reader copies or wants a framework.  Stricter: a name that stands
twice is refused, and what docs/inside/files.md lists.

Source: the format's description in the README of the safetensors project; its `SafeTensors::read_metadata`.
"""

from __future__ import annotations

import json
import math
from typing import Any

from metal_dlpack import _core

from .contents import Contents, TensorInfo, make_info
from .source import Source, shortened

#: The longest header that the format allows, in bytes.
MAX_HEADER = 100_000_000
LENGTH_BYTES = 8
#: The types of what `is_numbers` takes: not bool.
NUMBERS = frozenset({int})
#: The longest run of digits that is shown: 2**64 has 20.
MAX_DIGITS = 20

DTYPES = {
    "BOOL": _core.bool,
    "F4": _core.float4_e2m1fn,
    "F6_E2M3": _core.float6_e2m3fn,
    "F6_E3M2": _core.float6_e3m2fn,
    "U8": _core.uint8,
    "I8": _core.int8,
    "F8_E5M2": _core.float8_e5m2,
    "F8_E4M3": _core.float8_e4m3fn,
    "F8_E5M2FNUZ": _core.float8_e5m2fnuz,
    "F8_E4M3FNUZ": _core.float8_e4m3fnuz,
    "F8_E8M0": _core.float8_e8m0fnu,
    "I16": _core.int16,
    "U16": _core.uint16,
    "F16": _core.float16,
    "BF16": _core.bfloat16,
    "I32": _core.int32,
    "U32": _core.uint32,
    "F32": _core.float32,
    "C64": _core.complex64,
    "F64": _core.float64,
    "I64": _core.int64,
    "U64": _core.uint64,
}


def read_contents(source: Source) -> Contents:
    """The tensors in the order of their bytes, and ``__metadata__``."""
    header, data_start = read_header(source)
    metadata = header.pop("__metadata__", None)
    infos = [read_tensor(source, name, facts, data_start) for name, facts in header.items()]
    infos.sort(key=lambda info: (info.offset, info.nbytes))
    check_no_holes(source, infos, data_start)
    return Contents(infos, check_metadata(source, metadata))


def read_header(source: Source) -> tuple[dict[str, Any], int]:
    head = source.read_up_to(0, LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        source.refuse(f"it has {len(head)} bytes, and a .safetensors file begins with 8 that hold the header's length.")
    length = int.from_bytes(head, "little")
    if length > MAX_HEADER:
        source.refuse(f"its header would have {length} bytes, more than the {MAX_HEADER} that the format allows.")
    if LENGTH_BYTES + length > source.size:
        source.refuse(f"its header would have {length} bytes, but only {source.size - LENGTH_BYTES} follow.")
    text = source.read_up_to(LENGTH_BYTES, length)
    return read_object(source, text, f"its header ({length} bytes)"), LENGTH_BYTES + length


def read_object(source: Source, data: bytes, what: str) -> dict[str, Any]:
    """The JSON object that `what` of the file is."""
    try:
        made = parse_json(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        source.refuse(f"{what} is not valid JSON: {str(error)[:200]}.", cause=error)
    if not isinstance(made, dict):
        source.refuse(f"{what} is a JSON {type(made).__name__}, not an object.")
    return made


def parse_json(text: str) -> Any:
    header = json.loads(
        text,
        object_pairs_hook=unique_pairs,
        parse_int=int if "-" not in text else whole_number,  # `int` costs no call of Python for each number
        parse_float=finite_number,
        parse_constant=no_constant,
    )
    if "\\u" in text:  # half a surrogate pair is no text; UnicodeEncodeError is a ValueError
        json.dumps(header, ensure_ascii=False).encode("utf-8")
    return header


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"{shortened(twice)} occurs twice")
    return made


def whole_number(digits: str) -> int | float:
    """Negative ones are no lengths, and matter nowhere: as floats they are refused where a length belongs."""
    return finite_number(digits) if digits[0] == "-" else int(digits)


def finite_number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:MAX_DIGITS]} is out of range")
    return number


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def read_tensor(source: Source, name: str, facts: Any, data_start: int) -> TensorInfo:
    try:
        kind, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
    except (KeyError, TypeError):  # TypeError: no object
        source.refuse("its entry lacks dtype, shape or data_offsets.", name)
    dtype = DTYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        source.refuse(f"its dtype ({str(kind)[:80]!r}) is none of {', '.join(DTYPES)}.", name)
    if not is_numbers(shape):
        source.refuse(f"its shape ({str(shape)[:200]}) is not a list of whole numbers.", name)
    if not is_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        source.refuse(f"its data_offsets ({str(offsets)[:200]}) are not a first byte and an end.", name)
    info = make_info(source, name, kind, dtype, tuple(shape), data_start + offsets[0])
    if info.nbytes != offsets[1] - offsets[0]:
        source.refuse(
            f"its data_offsets ({offsets[0]}, {offsets[1]}) hold {offsets[1] - offsets[0]} bytes, and {kind} of shape "
            f"{info.shape} has {info.nbytes}.",
            name,
        )
    if dtype.bits % 8 != 0 and not is_whole_bytes(info):
        source.refuse(f"{kind} of shape {info.shape} does not fill whole bytes.", name)
    return info


def is_numbers(value: Any) -> bool:
    return isinstance(value, list) and NUMBERS.issuperset(map(type, value))


def is_whole_bytes(info: TensorInfo) -> bool:
    bits = info.dtype.bits
    for extent in info.shape:
        bits *= extent
    return bits % 8 == 0


def check_no_holes(source: Source, infos: list[TensorInfo], data_start: int) -> None:
    """Each tensor begins where the one before ends, and the last ends with the file."""
    end = data_start
    for info in infos:
        if info.offset != end:
            source.refuse(
                f"its data_offsets begin at {info.offset - data_start}, and the tensor before it ends at "
                f"{end - data_start}: tensors must follow each other without overlaps and holes.",
                info.name,
            )
        end = info.offset + info.nbytes
    if end != source.size:
        source.refuse(f"its tensors end at byte {end}, and the file has {source.size}.")


def check_metadata(source: Source, metadata: Any) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        source.refuse("its __metadata__ is not an object of strings.")
    return metadata
