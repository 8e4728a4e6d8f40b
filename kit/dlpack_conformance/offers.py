"""What a producer does, by hand: tensors with any field set, whose deletions are counted.

The memory of an offer is the kit's own, begins on a page, and is spoilt once all its tensors are deleted: a consumer
that deletes too early reads other numbers.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any, Literal

from .dlpack_structs import (
    IS_COPIED,
    LEGACY_NAME,
    VERSIONED_NAME,
    Legacy,
    Tensor,
    Versioned,
    capsule_destructor,
    capsule_name,
    new_capsule,
)
from .items import KINDS
from .taken import CPU, DELETER

Flavour = Literal["asked", "legacy", "versioned"]
#: What __dlpack__ takes since 2023.12.
KEYWORDS = ("stream", "max_version", "dl_device", "copy")
#: The longest page there is; MLX takes memory of whole pages only.
PAGE = 16384
SPOILT = 0xA5
#: A destructor that does nothing: it reads a field of the capsule.
HARMLESS = ctypes.cast(ctypes.pythonapi.PyCapsule_GetContext, ctypes.c_void_p)
#: A consumer may call a deleter at any time: what it needs lives as long as the process.
_kept: list[Any] = []


def compact(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in items, of rows one after the other."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Memory:
    """Bytes that begin on a page, and are never given back."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = -(-max(nbytes, 1) // PAGE) * PAGE
        pages = mmap.mmap(-1, self.nbytes + PAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self.address = -(-begin // PAGE) * PAGE
        _kept.append(pages)

    def write(self, data: bytes, offset: int = 0) -> None:
        ctypes.memmove(self.address + offset, data, len(data))

    def spoil(self) -> None:
        ctypes.memset(self.address, SPOILT, self.nbytes)


class Handed:
    """One managed tensor in its capsule, and how often its deleter was called.

    The kit keeps the capsule, and `settle` does the destructor's work, unless a consumer took the destructor away.
    Python code could not run in one: the capsule may go while a consumer's exception is set.
    """

    def __init__(self, struct: Legacy | Versioned, name: bytes, memory: Memory | None, has_deleter: bool) -> None:
        self.struct, self.name, self.memory = struct, name, memory
        self.deletions = 0
        self._delete = DELETER(self._deleted)
        struct.deleter = ctypes.cast(self._delete, ctypes.c_void_p).value if has_deleter else None
        self.capsule: object = None
        _kept.append(self)

    def offer(self, name: bytes | None = None) -> object:
        """The capsule, under its own or another name."""
        self.capsule = new_capsule(ctypes.addressof(self.struct), name or self.name, HARMLESS)
        return self.capsule

    def settle(self) -> None:
        """Let the capsule go: if nobody took the tensor, it is deleted."""
        if self.capsule is not None and capsule_name(self.capsule) == self.name and capsule_destructor(self.capsule):
            self._deleted(ctypes.addressof(self.struct))
        self.capsule = None

    def _deleted(self, _address: int) -> None:
        self.deletions += 1
        if self.memory is not None:
            self.memory.spoil()


class Offer:
    """A producer of hand-made tensors.

    Parameters
    ----------
    kind : str
        An element type of items.KINDS; `dtype` (code, bits, lanes) takes its place in the struct.
    shape, strides, byte_offset
        As in DLTensor; strides None is NULL.
    values
        The items in the order of memory, from `byte_offset` on; by default the kind's sample.
    first
        Where item 0 lies among them.
    flavour
        "asked": versioned if max_version is 1.0 or later.
    knows
        The keywords of its __dlpack__; others are a TypeError, as with producers older than the keyword.
    fails
        Raised by __dlpack__; `device_fails` by __dlpack_device__.
    """

    def __init__(
        self,
        kind: str = "float32",
        *,
        shape: Sequence[int] = (2, 3),
        strides: Sequence[int] | Literal["compact"] | None = "compact",
        byte_offset: int = 0,
        values: Sequence[Any] | None = None,
        first: int = 0,
        dtype: tuple[int, int, int] | None = None,
        item_bits: int | None = None,
        flavour: Flavour = "asked",
        version: tuple[int, int] = (1, 3),
        flags: int = 0,
        device: tuple[int, int] = CPU,
        data: Literal["memory", "null"] = "memory",
        has_shape: bool = True,
        has_deleter: bool = True,
        knows: Sequence[str] = KEYWORDS,
        fails: Exception | None = None,
        device_fails: Exception | None = None,
        capsule_name: bytes | None = None,
    ) -> None:
        self.kind = KINDS[kind]
        self.shape, self.byte_offset = tuple(shape), byte_offset
        self.strides = compact(shape) if strides == "compact" else strides
        self.dtype = dtype or (self.kind.code, self.kind.bits, 1)
        self.flavour, self.version, self.flags = flavour, version, flags
        self.device, self.data = device, data
        self.has_shape, self.has_deleter = has_shape, has_deleter
        self.knows, self.fails, self.device_fails = tuple(knows), fails, device_fails
        self.capsule_name = capsule_name
        self.first_bytes = first * self.kind.bits // 8
        self.bytes = self.kind.pack(self.kind.sample if values is None else values, item_bits)
        self.memory = Memory(byte_offset + len(self.bytes))
        self.handed: list[Handed] = []
        self.calls: list[dict[str, Any]] = []

    # ---- the protocol ----

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device_fails is not None:
            raise self.device_fails
        return self.device

    def __dlpack__(self, **keywords: Any) -> object:
        self.calls.append(keywords)
        unknown = [name for name in keywords if name not in self.knows]
        if unknown:
            raise TypeError(f"__dlpack__() got an unexpected keyword argument {unknown[0]!r}")
        if self.fails is not None:
            raise self.fails
        handed = self.hand(keywords.get("max_version"), is_copy=keywords.get("copy") is True)
        return handed.offer(self.capsule_name)

    # ---- what it is made of ----

    def hand(self, max_version: tuple[int, int] | None = None, *, is_copy: bool = False) -> Handed:
        """A new managed tensor, on the offer's memory or on a copy of it."""
        memory = Memory(self.memory.nbytes) if is_copy else self.memory
        memory.write(self.bytes, self.byte_offset)
        is_legacy = self.flavour == "legacy" or (
            self.flavour == "asked" and (max_version is None or max_version[0] < 1)
        )
        struct = Legacy() if is_legacy else Versioned()
        if isinstance(struct, Versioned):
            struct.version = self.version
            struct.flags = self.flags | (IS_COPIED if is_copy else 0)
        self.fill(struct.tensor, memory)
        handed = Handed(struct, LEGACY_NAME if is_legacy else VERSIONED_NAME, memory, self.has_deleter)
        self.handed.append(handed)
        return handed

    def fill(self, tensor: Tensor, memory: Memory) -> None:
        tensor.data = None if self.data == "null" else memory.address + self.first_bytes
        tensor.device = self.device
        tensor.code, tensor.bits, tensor.lanes = self.dtype
        tensor.ndim = len(self.shape)
        tensor.byte_offset = self.byte_offset
        if self.has_shape:
            tensor.shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        if self.strides is not None:
            tensor.strides = (ctypes.c_int64 * len(self.shape))(*self.strides)

    def rewrite(self, values: Sequence[Any]) -> None:
        """Write other items where the first are."""
        self.memory.write(self.kind.pack(values), self.byte_offset)

    def settle(self) -> list[int]:
        """Let all capsules go; how often each tensor was deleted."""
        for handed in self.handed:
            handed.settle()
        return [handed.deletions for handed in self.handed]

    @property
    def last_keywords(self) -> dict[str, Any]:
        return self.calls[-1] if self.calls else {}
