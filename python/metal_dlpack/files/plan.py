"""What load() reads: runs of bytes, each from one file into one buffer, and the Arrays over those buffers."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from metal_dlpack import _core

from .array_file import ArrayFile
from .contents import TensorInfo
from .single_file import array_over
from .source import Source

if TYPE_CHECKING:
    from metal_dlpack._core import _Device, _StorageMode

#: The longest run of several tensors, in bytes.  A larger tensor has a buffer of its own: it is freed alone, and lies
#: at the buffer's first byte, where torch before 2.10 and TVM's kernels look for it.
RUN = 1 << 20
#: Bytes between two tensors that a run has as well: what aligns the second.
GAP = 64
#: The types that are converted.  Smaller floating types are quantised: without their scales they mean nothing.
FLOATING = (_core.float16, _core.bfloat16, _core.float32, _core.float64)


class Run(NamedTuple):
    """Bytes of a file, and the items that they become."""

    source: Source
    offset: int
    nbytes: int
    #: The type of the items in the file.
    dtype: _core.dtype
    #: The items on one axis, of another type where they are converted.
    target: _core.Array

    @property
    def is_direct(self) -> bool:
        """The bytes go as they are to where the CPU can write."""
        return self.target.dtype == self.dtype and self.target.storage != "private"


class Plan(NamedTuple):
    """What is read from one file."""

    runs: list[Run]
    arrays: dict[str, _core.Array]


def plans_of(
    file: ArrayFile,
    names: list[str],
    dtype: _core.dtype | None,
    storage: _StorageMode | None,
    device: _Device | None,
) -> Iterator[Plan]:
    """File by file, allocate the buffers and make the Arrays; nothing is read."""

    def allocated(count: int, kind: _core.dtype) -> _core.Array:
        return _core.empty(count, kind, device=device, storage=storage)

    for source, infos in file._places(names):
        runs, made, plain = [], {}, []
        for info in infos:
            wanted = info if dtype is None or info.dtype not in FLOATING else info._replace(dtype=dtype)
            if info.nbytes == 0:
                made[info.name] = _core.empty(info.shape, wanted.dtype, device=device, storage=storage)
            elif wanted.dtype == info.dtype:
                plain.append(info)
            else:
                target = allocated(prod(info.shape), wanted.dtype)
                runs.append(Run(source, info.offset, info.nbytes, info.dtype, target))
                made[info.name] = array_over(target.buffer, 0, wanted)
        for together in gather(plain):
            begin, end = together[0].offset, together[-1].offset + together[-1].nbytes
            target = allocated(end - begin, _core.uint8)
            runs.append(Run(source, begin, end - begin, _core.uint8, target))
            made |= {info.name: array_over(target.buffer, info.offset - begin, info) for info in together}
        runs.sort(key=lambda run: run.offset)
        yield Plan(runs, made)


def gather(infos: list[TensorInfo]) -> list[list[TensorInfo]]:
    """Tensors that follow each other in the file, as far as one run takes them; all have bytes."""
    gathered: list[list[TensorInfo]] = []
    for info in sorted(infos, key=lambda info: info.offset):
        if gathered and joins(gathered[-1], info):
            gathered[-1].append(info)
        else:
            gathered.append([info])
    return gathered


def joins(infos: list[TensorInfo], info: TensorInfo) -> bool:
    """The tensor goes on where the run ends, is aligned there, and is not too much for it."""
    begin, end = infos[0].offset, infos[-1].offset + infos[-1].nbytes
    return (
        info.offset - end <= GAP
        and (info.offset - begin) % info.dtype.alignment == 0
        and info.offset + info.nbytes - begin <= RUN
    )
