"""What a call of torch.mps.compile_shader gives where the kernel's parameter says something else: for the checker.

Torch compares nothing, here and on a Mac: the kernel reads whatever bytes lie there.  What may be meant is not told:
another sign, parts of vectors, bytes (uint8, or `uchar *`), the bits of a half as ushort, numbers that fit, strides
that are given too.  softmetal's check_given.c tells the rest, where the kernel uses the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from metal_dlpack import _core

#: (how the finding ends, is it about strides, bytes of an item, (steps, bytes of a step) of each axis if it has gaps)
Note = tuple[str, bool, int, tuple[tuple[int, int], ...]]

#: By the names of md.dtype: what Metal's language calls it.
_NAMES = {kind: name for name, kind in _core._metal_scalars.items()}
_BYTES = {"int8", "uint8"}
#: A tensor of as many items may hold the strides of another.
_MOST_STRIDES = 16


class Parameter(NamedTuple):
    """What a kernel reads an argument at its index as."""

    dtype: str  # of a scalar
    bits: int
    lanes: int

    @property
    def name(self) -> str:
        """In Metal's language."""
        return _NAMES[self.dtype] + (str(self.lanes) if self.lanes > 1 else "")

    @property
    def is_float(self) -> bool:
        """Not a whole number."""
        return "float" in self.dtype

    def takes(self, dtype: str) -> bool:
        """May items of that type be read so?"""
        if self.dtype == dtype or "uint8" in (self.dtype, dtype) or self.dtype == "int8":
            return True
        if dtype in ("complex64", "complex32"):
            return self.dtype == ("float32" if dtype == "complex64" else "float16")
        if self.dtype == "bool":
            return dtype == "int8"
        bits, is_float = int("".join(filter(str.isdigit, dtype)) or 8), "float" in dtype
        return bits == self.bits and not (self.is_float and is_float) and (is_float == self.is_float or bits == 16)


class Parameters:
    """The parameters of one kernel."""

    __slots__ = ("_fine", "_known")

    def __init__(self, kernel: _core.Kernel) -> None:
        self._known: dict[int, Parameter] = {}  # by their indices, those whose type is known
        self._fine: set[tuple[object, ...]] = set()  # calls of which nothing is told, as of nearly all
        for one in kernel.arguments:
            if one.dtype is not None:
                scalar, _, lanes = one.dtype.name.partition("x")
                self._known[one.index] = Parameter(scalar, one.dtype.bits, int(lanes or 1))

    def notes(self, args: tuple[Any, ...], cast_of: Callable[[int], str]) -> list[Note | None] | None:
        """Return what is to be told about each argument; None: nothing about any."""
        keys = tuple(map(_key, args)) if cast_of is no_cast else (None,)
        if keys in self._fine:
            return None
        found = [_note(self._known.get(place), value, cast_of(place), place, args) for place, value in enumerate(args)]
        if any(found):
            return found
        if None not in keys and all(self._holds(place, key) for place, key in enumerate(keys)):
            self._fine.add(keys)
        return None

    def _holds(self, place: int, key: object) -> bool:
        """Return whether it holds for all values of the key."""
        known = self._known.get(place)
        return key is not int or known is None or known.bits * known.lanes >= 32


def no_cast(_place: int) -> str:
    """Without arg_casts=."""
    return ""


def _key(value: Any) -> object:
    """Values of one key are told alike; None: not, as they may be."""
    kind = type(value)
    if kind is torch.Tensor:
        return value.dtype if value.is_contiguous() and value.is_mps else None
    return kind if kind is float or (kind is int and 0 <= value < 1 << 31) else None


def _note(parameter: Parameter | None, value: Any, cast: str, place: int, args: tuple[Any, ...]) -> Note | None:
    if not isinstance(value, torch.Tensor):
        return None if parameter is None else _of_values(parameter, value, cast, place)
    if value.device.type == "cpu":  # without axes: its bytes are given, of float64 those of float32
        if parameter is None or value.dim() > 0:
            return None
        return _of_values(parameter, value.item(), _cast_of(value), place)
    if value.layout != torch.strided:
        return None  # it is refused
    note = None if parameter is None else _of_tensor(parameter, value)
    if note is not None or value.is_contiguous() or _is_memory(parameter, value):
        return note
    return _of_strides(value, place, args)


def _cast_of(number: torch.Tensor) -> str:
    name = _name(number)
    return {"float16": "fp16", "bfloat16": "bf16"}.get(name, "" if name in ("int64", "float32", "float64") else name)


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _of_tensor(parameter: Parameter, tensor: torch.Tensor) -> Note | None:
    dtype = _name(tensor)
    if parameter.takes(dtype):
        return None
    wanted = f"give one of {parameter.dtype} (.to(torch.{parameter.dtype}))"
    declare = f", or declare the parameter {_NAMES[dtype]}" if dtype in _NAMES else ""
    text = f"as {parameter.name}, and it was given a tensor of {dtype}: {wanted}{declare}"
    return text, False, tensor.itemsize, ()


# ---- strides ----


def _is_memory(parameter: Parameter | None, tensor: torch.Tensor) -> bool:
    """A pointer to bytes, where the items are wider."""
    return parameter is not None and parameter.dtype in _BYTES and tensor.itemsize > 1


def _of_strides(tensor: torch.Tensor, place: int, args: tuple[Any, ...]) -> Note | None:
    """Note the strides of a tensor on mps that is not contiguous."""
    itemsize = tensor.itemsize
    axes = sorted(
        (
            (step * itemsize, size)
            for size, step in zip(tensor.shape, tensor.stride(), strict=True)
            if size > 1 and step
        ),
        reverse=True,
    )
    inner = itemsize
    for step, size in reversed(axes):
        if step < inner:
            return None  # its items overlap
        inner = (size - 1) * step + inner
    given, layout = "the strided tensor that was given", f" (shape {tuple(tensor.shape)}, strides {tensor.stride()})"
    if tensor.numel() * itemsize < inner:
        steps = tuple((size, step) for step, size in axes)
        return f"between the items of {given}: give it .contiguous(){layout}", True, itemsize, steps
    if _is_layout_meant(tensor, place, args):
        return None
    text = f"in the order of memory, which is not that of {given}: give it .contiguous(), or its strides too{layout}"
    return text, True, itemsize, ()


def _is_layout_meant(tensor: torch.Tensor, place: int, args: tuple[Any, ...]) -> bool:
    """Without gaps, so that only the order differs."""
    if _is_channels_last(tensor):
        return True
    layout = tensor.shape, tensor.stride()
    numbers: list[int] = []
    has_others = False
    for other, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            if other != place and value.numel() <= _MOST_STRIDES and not value.is_floating_point():
                return True  # it may be they
            has_others |= value.numel() > 1 and (value.shape, value.stride()) != layout
        elif isinstance(value, list | tuple):
            numbers += [one for one in value if isinstance(one, int)]
        elif isinstance(value, int):
            numbers.append(value)
    strides = [step for size, step in zip(*layout, strict=True) if size > 1]
    return not has_others or set(strides if tensor.stride(-1) != 1 else strides[:-1]) <= set(numbers)


def _is_channels_last(tensor: torch.Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    wanted = formats.get(tensor.dim())
    return wanted is not None and tensor.is_contiguous(memory_format=wanted)


# ---- values ----

_CASTS = {"fp16": "float16", "bf16": "bfloat16"}


def _of_values(parameter: Parameter, value: Any, cast: str, place: int) -> Note | None:
    """Numbers by value, which torch makes int64 and float32, unless arg_casts= says another type."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    are_floats = isinstance(values[0], float)
    dtype = _CASTS.get(cast, cast) or ("float32" if are_floats else "int64")
    if parameter.takes(dtype) or not isinstance(values[0], int | float):
        return None
    is_whole = not (parameter.is_float or are_floats or cast in _CASTS)
    if is_whole and len(values) == 1 and _fits(parameter, int(values[0])):
        return None
    shown = repr(value) if len(repr(value)) <= 40 else f"{len(values)} numbers"
    way_out = _way_out(parameter, values, place)
    return f"as {parameter.name}, and it was given {shown}, which torch gives as {dtype}: {way_out}", False, 0, ()


def _fits(parameter: Parameter, value: int) -> bool:
    if parameter.dtype == "bool":
        return value in (0, 1)
    bits = parameter.bits * parameter.lanes
    return -(1 << (bits - 1)) <= value < 1 << bits


#: By the dtype of a parameter.
_ARG_CASTS = {"float16": "fp16", "bfloat16": "bf16"}
_ARG_CASTS |= {f"{sign}int{bits}": f"int{bits}" for sign in ("", "u") for bits in (16, 32)}


def _way_out(parameter: Parameter, values: list[Any], place: int) -> str:
    if parameter.dtype == "float32":
        return f"give {float(values[0])!r}" if len(values) == 1 else "give floats"
    if parameter.dtype in _ARG_CASTS and (parameter.is_float or len(values) > 1):
        return f'give arg_casts={{{place}: "{_ARG_CASTS[parameter.dtype]}"}}'
    return "give a whole number" if isinstance(values[0], float) else "give whole numbers that fit"
