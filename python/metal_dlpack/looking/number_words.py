"""Numbers as words in columns, as NumPy prints them by default: for where NumPy is not imported.

A float has the fewest digits that read back as the same float of its type, and at most PRECISION after the point.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Digits after the point, at most.
PRECISION = 8


@dataclass(frozen=True)
class FloatType:
    """How finely a floating-point type tells numbers apart."""

    bits: int  #: of the significand, with the hidden one
    least: int  #: exponent of the smallest number above zero
    digits: int  #: any decimal number of so many digits survives the type

    def reads_back(self, text: str, value: float) -> bool:
        """Is `value` the number of this type that is nearest to what the text says?"""
        said = float(text)
        if said == value or self is FLOAT64:
            return said == value
        fraction, exponent = math.frexp(abs(value))
        step = math.ldexp(1.0, max(exponent - self.bits, self.least))
        is_narrow = fraction == 0.5 and exponent - self.bits > self.least and abs(said) < abs(value)
        room = step / 4 if is_narrow else step / 2
        distance = abs(said - value)
        return distance < room or (distance == room and math.fmod(value / step, 2) == 0)

    def shortest(self, value: float) -> str:
        """The finite value as d.ddde+xx, with the fewest digits that read back."""
        is_power_of_two = math.frexp(abs(value))[0] == 0.5
        for places in range(16):
            text = f"{value:.{places}e}"
            if self.reads_back(text, value):
                return text
            # there is twice as much room above it as below
            if is_power_of_two and self.reads_back(above := _next_digit(text), value):
                return above
        return f"{value:.16e}"

    def rounded(self, value: float) -> float:
        """The value with the bits of the type."""
        fraction, exponent = math.frexp(value)
        return math.ldexp(round(math.ldexp(fraction, self.bits)), exponent - self.bits)


FLOAT16 = FloatType(11, -24, 3)
FLOAT32 = FloatType(24, -149, 6)
FLOAT64 = FloatType(53, -1074, 15)
#: The types of floats, and of the parts of complex numbers.
FLOATS = {
    "float16": FLOAT16,
    "bfloat16": FloatType(8, -133, 2),
    "float32": FLOAT32,
    "float64": FLOAT64,
    "complex32": FLOAT16,
    "complex64": FLOAT32,
    "complex128": FLOAT64,
}


def float_type(name: str) -> FloatType:
    """The FloatType of a dtype's name; that of float8_e4m3fn and its kind is read from it."""
    name = re.sub(r"(?<=\d)x\d+$", "", name)  # float32x4: its lanes are of one type; complex64 has none
    small = re.search(r"_e\dm(\d)", name)
    if small is not None:
        return FloatType(int(small[1]) + 1, -1074, 1)
    return FLOATS.get(name, FLOAT64)


class FloatColumn:
    """What prints each of some floats in the same width."""

    def __init__(self, values: Sequence[float], kind: FloatType, sign: str = ""):
        finite = [value for value in values if math.isfinite(value)]
        self.kind = kind
        self.sign = sign
        self.is_scientific = _is_scientific(finite, kind)
        parts = [self._parts(value, PRECISION) for value in finite]
        left = max((len(whole) for whole, _, _ in parts), default=0)
        self.places = right = max((len(fraction.rstrip("0")) for _, fraction, _ in parts), default=0)
        self.exponent_digits = max((len(exponent) - 1 for _, _, exponent in parts), default=0)
        if self.is_scientific:
            right += len("e+") + self.exponent_digits
        if len(finite) != len(values):
            has_sign = bool(sign) or -math.inf in values
            left = max(left, len("inf") + has_sign - right - 1)
        self.width = left + 1 + right

    def _parts(self, value: float, most: int) -> tuple[str, str, str]:
        """The digits before and after the point, at most so many of these, and the exponent if there is one."""
        text = self.kind.shortest(value)
        mantissa, _, exponent = text.partition("e")
        places = len(mantissa.partition(".")[2]) - (0 if self.is_scientific else int(exponent))
        form = "e" if self.is_scientific else "f"
        said = float(text) if 0 <= places <= most else value
        number, _, exponent = f"{said:{self.sign}.{min(max(places, 0), most)}{form}}".partition("e")
        whole, _, fraction = number.partition(".")
        return whole, fraction, exponent

    def __call__(self, value: float) -> str:
        if not math.isfinite(value):
            return f"{value:{self.sign}}".rjust(self.width)
        whole, fraction, exponent = self._parts(value, self.places)
        if not self.is_scientific:
            return f"{whole}.{fraction.rstrip('0').ljust(self.places)}".rjust(self.width)
        if len(fraction) < self.places:
            mantissa, _, exponent = f"{value:{self.sign}.{self.places}e}".partition("e")
        else:
            mantissa = f"{whole}.{fraction}"
        return f"{mantissa}e{int(exponent):+0{self.exponent_digits + 1}d}".rjust(self.width)


def _next_digit(text: str) -> str:
    """d.ddde+xx with the last digit one further from zero."""
    mantissa, _, exponent = text.partition("e")
    places = len(mantissa.partition(".")[2])
    unit = math.copysign(10.0 ** (int(exponent) - places), float(text))
    return f"{float(text) + unit:.{places}e}"


def _is_scientific(finite: Sequence[float], kind: FloatType) -> bool:
    sizes = [abs(value) for value in finite if value]
    if not sizes:
        return False
    low, high = min(sizes), max(sizes)
    is_large = high >= 10.0 ** min(PRECISION, kind.digits)
    return is_large or low < kind.rounded(0.0001) or kind.rounded(high / low) > 1000


def words_of(values: Sequence[Any], dtype_name: str) -> list[str]:
    """One word a value, all of one width: of bools, ints, floats, complex numbers, or tuples of them."""
    first = values[0] if values else 0
    kind = float_type(dtype_name)
    if isinstance(first, tuple):
        lanes = iter(words_of([lane for value in values for lane in value], dtype_name))
        return ["(" + ", ".join(next(lanes) for _ in value) + ")" for value in values]
    if isinstance(first, complex):
        real = FloatColumn([value.real for value in values], kind)
        imag = FloatColumn([value.imag for value in values], kind, sign="+")
        return [real(value.real) + _with_j(imag(value.imag)) for value in values]
    if isinstance(first, float):
        word = FloatColumn(values, kind)
        return [word(value) for value in values]
    words = [str(value) for value in values]
    width = max(map(len, [*words, "False"] if isinstance(first, bool) else words), default=0)
    return [word.rjust(width) for word in words]


def _with_j(word: str) -> str:
    number = word.rstrip()
    return f"{number}j{word[len(number) :]}"
