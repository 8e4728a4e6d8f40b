"""Element types as numbers and bits: what the kit writes into its own tensors and reads out of others'.

Small floats know only the values that the kit uses; other bits come back as text, which equals no number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Bits of values that an 8-bit or 4-bit float has; sources: OCP's formats, as dlpack.h names them.
_E4M3 = {0.0: 0x00, 0.5: 0x30, 1.0: 0x38, 2.0: 0x40, -2.0: 0xC0}
_E5M2 = {0.0: 0x00, 0.5: 0x38, 1.0: 0x3C, 2.0: 0x40, -2.0: 0xC0}
_E2M1 = {0.0: 0x0, 0.5: 0x1, 1.0: 0x2, 2.0: 0x4, -2.0: 0xC}
#: By code: values that another code with as many bits would not give.
_SAMPLES = {
    0: (0, 1, 2, 3, -4, 5),
    1: (0, 1, 2, 3, 4, 250),
    2: (0.0, 1.0, 2.0, 3.0, 4.0, 5.0),
    4: (0.0, 1.0, 2.0, 3.0, -4.0, 0.5),
    5: (0j, 1 + 0j, 2 + 0j, 3 + 0j, -4 + 0j, 1 + 2j),
    6: (False, True, True, False, True, False),
}
_SIX_SMALL = (0.0, 0.5, 1.0, 2.0, -2.0, 1.0)


@dataclass(frozen=True)
class Kind:
    """One element type: DLPack's code and bits, Python's `struct` format or a table of values, and six sample items."""

    name: str
    code: int
    bits: int
    form: str = ""
    table: tuple[tuple[float, int], ...] = ()
    sample: tuple[Any, ...] = ()

    def raw(self, value: Any) -> int:
        """The bits of a value, as a number."""
        if self.table:
            return dict(self.table)[value]
        if not self.form:  # int4
            return int(value) & ((1 << self.bits) - 1)
        parts = (value.real, value.imag) if self.code == 5 else (value,)
        data = struct.pack(f"<{self.form}", *parts)
        return int.from_bytes(data[2:] if self.name == "bfloat16" else data, "little")

    def value(self, raw: int) -> Any:
        if self.table:
            return {bits: value for value, bits in self.table}.get(raw, f"bits {raw:#x}")
        if not self.form:
            return raw - (1 << self.bits) if raw >> (self.bits - 1) else raw
        data = raw.to_bytes(self.bits // 8, "little")
        if self.name == "bfloat16":
            data = b"\0\0" + data
        parts = struct.unpack(f"<{self.form}", data)
        return complex(*parts) if self.code == 5 else parts[0]

    def pack(self, values: Sequence[Any], bits: int | None = None) -> bytes:
        """The items one after the other, each in so many bits (default: its own; more pads it with zeros)."""
        width = bits or self.bits
        if len(self.form) == 1 and self.name != "bfloat16" and width == self.bits:  # all at once: an array may be long
            return struct.pack(f"<{len(values)}{self.form}", *values)
        if width % 8 == 0:
            return b"".join(self.raw(value).to_bytes(width // 8, "little") for value in values)
        number = sum(self.raw(value) << place * width for place, value in enumerate(values))
        return number.to_bytes((len(values) * width + 7) // 8, "little")


def _kind(name: str, code: int, bits: int, form: str) -> Kind:
    return Kind(name, code, bits, form, sample=_SAMPLES[code])


#: The data types of the array API standard.
STANDARD = tuple(
    _kind(*row)
    for row in (
        ("bool", 6, 8, "?"),
        ("int8", 0, 8, "b"),
        ("int16", 0, 16, "h"),
        ("int32", 0, 32, "i"),
        ("int64", 0, 64, "q"),
        ("uint8", 1, 8, "B"),
        ("uint16", 1, 16, "H"),
        ("uint32", 1, 32, "I"),
        ("uint64", 1, 64, "Q"),
        ("float32", 2, 32, "f"),
        ("float64", 2, 64, "d"),
        ("complex64", 5, 64, "ff"),
        ("complex128", 5, 128, "dd"),
    )
)
KINDS = {kind.name: kind for kind in STANDARD} | {
    kind.name: kind
    for kind in (
        _kind("float16", 2, 16, "e"),
        _kind("bfloat16", 4, 16, "f"),
        Kind("float8_e4m3fn", 10, 8, table=tuple(_E4M3.items()), sample=_SIX_SMALL),
        Kind("float8_e5m2", 12, 8, table=tuple(_E5M2.items()), sample=_SIX_SMALL),
        Kind("int4", 0, 4, sample=(0, 1, 2, -1, -8, 7)),
        Kind("float4_e2m1fn", 17, 4, table=tuple(_E2M1.items()), sample=_SIX_SMALL),
    )
}


def kind_of(code: int, bits: int) -> Kind | None:
    """The kind with these fields, if the kit knows it."""
    return next((kind for kind in KINDS.values() if (kind.code, kind.bits) == (code, bits)), None)
