"""What a header says: a name, a type, a shape and a place for each tensor; and what every format must keep to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any, Literal, NamedTuple

from metal_dlpack import _core

from .source import Source, shortened

#: SPEC array.h: an Array has at most 64 dimensions; int64 counts its bytes.
MAX_NDIM = 64
MAX_NBYTES = 2**63 - 1


class TensorInfo(NamedTuple):
    """One tensor of a file, as its header describes it."""

    name: str
    #: The format's own word: "BF16", "Q4_K", "<f4".
    type: str
    #: The element type of the Array; uint8 where no dtype stands for `type`.
    dtype: _core.dtype
    shape: tuple[int, ...]
    #: Where the first byte is in the file.
    offset: int
    nbytes: int
    order: Literal["C", "F"] = "C"


class Contents:
    """The tensors of a file by name, in the file's order."""

    def __init__(self, infos: Iterable[TensorInfo], metadata: Mapping[str, Any]):
        self.metadata = metadata
        self._infos = {info.name: info for info in infos}

    @property
    def names(self) -> Collection[str]:
        return self._infos.keys()

    def info(self, name: str) -> TensorInfo:
        return self._infos[name]

    def extents(self) -> list[tuple[int, int]]:
        """First byte and end of each tensor that has bytes, in any order."""
        return [(info.offset, info.offset + info.nbytes) for info in self._infos.values() if info.nbytes > 0]


def make_info(
    source: Source,
    name: str,
    kind: str,
    dtype: _core.dtype,
    shape: tuple[int, ...],
    offset: int,
    order: Literal["C", "F"] = "C",
) -> TensorInfo:
    """A TensorInfo whose shape can be an Array's, and whose bytes lie within the file."""
    if len(shape) > MAX_NDIM:
        source.refuse(f"it has {len(shape)} dimensions, more than {MAX_NDIM}.", name)
    nitems = prod(shape)
    nbytes = (nitems * dtype.bits * dtype.lanes + 7) // 8
    # Without an empty axis too: strides are products of the other extents.
    if (nitems or prod(extent or 1 for extent in shape)) * dtype.itemsize > MAX_NBYTES:
        source.refuse(f"its shape {shape_text(shape)} is 2**63 bytes or more, longer than any file.", name)
    if offset < 0 or offset + nbytes > source.size:
        source.refuse(f"its {nbytes} bytes from byte {offset} on pass the end of the file ({source.size} bytes).", name)
    return TensorInfo(name, kind, dtype, shape, offset, nbytes, order)


def check_extents(source: Source, extents: Iterable[tuple[int, int, str]]) -> None:
    """No byte belongs to two tensors: (first byte, end, name) each."""
    last_end, last_name = 0, ""
    for first, end, name in sorted(extents):
        if first < last_end:
            source.refuse(
                f"it begins at byte {first}, inside of tensor {shortened(last_name)}, which ends at {last_end}.", name
            )
        last_end, last_name = end, name


def shape_text(shape: tuple[int, ...]) -> str:
    text = str(shape)
    return text if len(text) <= 200 else text[:200] + "..."
