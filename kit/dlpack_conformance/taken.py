"""What a consumer does, by hand: open a capsule, read the tensor, rename, delete."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Iterator
from typing import Any

from .dlpack_structs import (
    IS_PADDED,
    LEGACY_NAME,
    VERSIONED_NAME,
    Legacy,
    Tensor,
    Versioned,
    capsule_name,
    capsule_pointer,
    rename_capsule,
)
from .items import kind_of
from .rules import Broken

CPU = (1, 0)
#: Device types whose memory the CPU reads: CPU, CUDAHost, ROCMHost, CUDAManaged.
HOST_KINDS = (1, 3, 11, 13)
#: More than any array that a case makes.
MOST_DIMENSIONS, MOST_ITEMS = 64, 1 << 16
#: void (*deleter)(self), made or called with the GIL, as most consumers call it.
DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
#: Callbacks that native code may still call.
_kept: list[Any] = []


def take(array: Any, **keywords: object) -> Taken:
    """The tensor of array.__dlpack__(**keywords), taken out of its capsule."""
    taken = Taken(array.__dlpack__(**keywords))
    taken.use()
    return taken


class Taken:
    """The managed tensor of a capsule; it stays the capsule's until `use`."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule
        if type(capsule).__name__ != "PyCapsule":
            raise Broken(f"__dlpack__ returned a {type(capsule).__name__}, not a PyCapsule")
        self.name: bytes = capsule_name(capsule)
        if self.name not in (LEGACY_NAME, VERSIONED_NAME):
            raise Broken(f"the capsule's name is {self.name!r}")
        self.is_versioned = self.name == VERSIONED_NAME
        self.address: int = capsule_pointer(capsule, self.name)
        self.managed: Any = (Versioned if self.is_versioned else Legacy).from_address(self.address)
        self.version: tuple[int, ...] = tuple(self.managed.version) if self.is_versioned else (0, 0)
        if self.version[0] > 1:
            raise Broken(f"the tensor's version is {self.version[0]}.{self.version[1]}, which no text defines yet")
        self.flags: int = self.managed.flags if self.is_versioned else 0
        self.tensor: Tensor = self.managed.tensor
        self.device: tuple[int, int] = tuple(self.tensor.device)
        self.deletions = 0

    def watch(self) -> None:
        """From here on count how often the deleter is called."""
        original = self.managed.deleter

        def count(address: int) -> None:
            self.deletions += 1
            self.managed.deleter = original
            if original:
                DELETER(original)(address)

        watcher = DELETER(count)
        _kept.append(watcher)
        self.managed.deleter = ctypes.cast(watcher, ctypes.c_void_p).value

    def use(self) -> None:
        rename_capsule(self.capsule)

    def delete(self) -> None:
        if self.managed.deleter:
            DELETER(self.managed.deleter)(self.address)

    def items(self) -> list[Any]:
        return items_of(self.tensor, padded=bool(self.flags & IS_PADDED))

    @property
    def pointer(self) -> int:
        return address_of(self.tensor)


def address_of(tensor: Tensor) -> int:
    """Where item 0 lies."""
    return int(tensor.data or 0) + int(tensor.byte_offset)


def shape_of(tensor: Tensor) -> list[int]:
    """Broken where no array of the kit's can have this shape: to follow it could take all memory."""
    if not 0 <= tensor.ndim <= MOST_DIMENSIONS:
        raise Broken(f"the tensor's ndim is {tensor.ndim}")
    if tensor.ndim and not tensor.shape:
        raise Broken("the tensor's shape is NULL")
    shape = list(tensor.shape[: tensor.ndim]) if tensor.ndim else []
    if min(shape, default=0) < 0 or math.prod(shape) > MOST_ITEMS:
        raise Broken(f"the tensor's shape is {shape}")
    return shape


def strides_of(tensor: Tensor) -> list[int]:
    """In items; of a tensor without strides those of rows one after the other."""
    shape = shape_of(tensor)
    if tensor.strides:
        return list(tensor.strides[: tensor.ndim])
    return [*itertools.accumulate([1, *shape[:0:-1]], lambda a, b: a * b)][::-1] if shape else []


def items_of(tensor: Tensor, *, padded: bool = False) -> list[Any]:
    """The items of a tensor in the CPU's memory, in row-major order, and the lanes of each."""
    kind = kind_of(tensor.code, tensor.bits)
    if kind is None:
        raise Broken(f"the tensor's type is code {tensor.code} with {tensor.bits} bits")
    width = -(-kind.bits // 8) * 8 if padded else kind.bits
    if tensor.device[0] not in HOST_KINDS:
        raise Broken(f"the tensor is on device {tuple(tensor.device)}, which the CPU cannot read")
    lanes, shape, strides, address = tensor.lanes, shape_of(tensor), strides_of(tensor), address_of(tensor)
    if math.prod(shape) and not tensor.data:
        raise Broken("the tensor's data is NULL")
    places = (place * lanes + lane for place in _places(shape, strides) for lane in range(lanes))
    return [kind.value(_bits_at(address, place * width, kind.bits)) for place in places]


def _places(shape: list[int], strides: list[int]) -> Iterator[int]:
    for index in itertools.product(*map(range, shape)):
        yield sum(i * stride for i, stride in zip(index, strides, strict=True))


def _bits_at(address: int, bit: int, count: int) -> int:
    first, shift = divmod(bit, 8)
    data = ctypes.string_at(address + first, (shift + count + 7) // 8)
    return int.from_bytes(data, "little") >> shift & ((1 << count) - 1)
