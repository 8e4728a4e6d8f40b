"""Who lies where on which memory: the model of the pictures that show() prints and notebooks draw.

A Lane is the bytes of one array, a Memory what some lanes share.  Nothing is copied and nothing is waited for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from metal_dlpack import _core
from metal_dlpack.sync import package_of

Thing = TypeVar("Thing")
METAL = 8
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
#: Characters of a name that are printed: a file's tensors are named by whoever wrote it.
MAX_NAME = 40
#: Pieces of bytes without a gap, at most; where there are more, one stands for all.
MAX_RUNS = 64
#: What is said of GPU work on a buffer.
WORK = {
    "idle": "idle",
    "reads": "GPU reads in flight",
    "writes": "GPU writes in flight",
    "failed": "GPU work failed",
}


@dataclass(frozen=True)
class Lane:
    """Where one array lies."""

    name: str
    kind: str  #: its type, shape, element type
    runs: tuple[tuple[int, int], ...]  #: begins and ends of its bytes, in its space, in order
    is_dense: bool  #: every byte between the first and the last is an item's
    strides: tuple[int, ...] | None
    space: object  #: what bytes are counted in: a private buffer's handle, or None for CPU addresses
    region: tuple[int, int]  #: the whole MTLBuffer; the items, if the memory is foreign
    handle: int | None  #: the id<MTLBuffer>; None, if the memory is foreign, or no bytes
    storage: str
    work: str  #: of the GPU on the buffer, in words
    owner: str | None  #: the type of the Python object that owns the memory, if there is one

    @property
    def begin(self) -> int:
        return self.runs[0][0]

    @property
    def end(self) -> int:
        return self.runs[-1][1]


@dataclass(frozen=True)
class Memory:
    """One memory, and the arrays on it."""

    title: str
    begin: int  #: of the memory, in the space of its lanes
    lanes: tuple[Lane, ...]

    @cached_property
    def span(self) -> tuple[int, int]:
        """First byte and end of all lanes."""
        return min(lane.begin for lane in self.lanes), max(lane.end for lane in self.lanes)

    def fraction(self, byte: int) -> float:
        """Where a byte is, if the span runs from 0 to 1."""
        low, high = self.span
        return (byte - low) / max(high - low, 1)

    def bytes_text(self, lane: Lane) -> str:
        """The lane's first byte and end, counted from the memory's first."""
        return (
            "no bytes" if lane.begin == lane.end else f"bytes {lane.begin - self.begin:,} to {lane.end - self.begin:,}"
        )

    def range_text(self, lane: Lane) -> str:
        """The same, and whether there are gaps between."""
        return self.bytes_text(lane) + ("" if lane.is_dense else ", with gaps")


def place(name: str, array: Any) -> Lane:
    """The lane of an array of any framework.

    Raises what from_dlpack(array, copy=False) raises, and AttributeError for what is no array.
    """
    if isinstance(array, _core.Array):
        return lane_of_array(name, array)
    ours = _core.from_dlpack(array, copy=False, stream=-1)
    is_metal = array.__dlpack_device__()[0] == METAL
    kind = type_text(array).removeprefix("metal_dlpack.")
    return lane_of_array(name, ours, kind, is_foreign=not is_metal)


def lane_of_array(name: str, array: _core.Array, kind: str = "Array", *, is_foreign: bool = False) -> Lane:
    """The lane of an Array; is_foreign: of the CPU memory that it stands for."""
    item_bits = array.dtype.bits * array.dtype.lanes
    if array.padded or item_bits % 8 == 0:
        item_bits = array.itemsize * 8
    runs, is_dense = byte_runs(array.shape, array.strides, item_bits) if array.size else ([(0, 0)], True)
    text = f"{kind} {array.shape} {array.dtype.name}{', read-only' if array.readonly else ''}"
    runs = [(array.byte_offset + begin, array.byte_offset + end) for begin, end in runs]
    return _lane(name, text, array.buffer, runs, is_dense, array.strides, is_foreign)


def lane_of_buffer(name: str, buffer: _core.Buffer) -> Lane:
    """The lane of an open Buffer's usable bytes."""
    runs = [(buffer.offset, buffer.size)]
    return _lane(name, f"{buffer.size - buffer.offset:,} bytes", buffer, runs, True, None, False)


def _lane(
    name: str,
    kind: str,
    buffer: _core.Buffer,
    runs: Sequence[tuple[int, int]],
    is_dense: bool,
    strides: tuple[int, ...] | None,
    is_foreign: bool,
) -> Lane:
    work, handle, _, _ = _core._buffer_work(buffer)
    base = buffer.address or 0
    runs = tuple((base + begin, base + end) for begin, end in runs)
    return Lane(
        name=name,
        kind=kind,
        runs=runs,
        is_dense=is_dense,
        strides=strides,
        space=handle if buffer.address is None else None,
        region=(runs[0][0], runs[-1][1]) if is_foreign else (base, base + buffer.size),
        handle=None if is_foreign else handle or None,
        storage=buffer.storage,
        work=WORK[work],
        owner=owner_text(buffer),
    )


def owner_text(buffer: _core.Buffer) -> str | None:
    """The type of the Python object that owns the memory; None: there is none."""
    owner = buffer.owner
    return None if owner is None else type_text(owner)


def type_text(x: object) -> str:
    """The type's name, behind the package that it is from, or None where it does not say."""
    return f"{package_of(type(x)) or None}.{type(x).__name__}"


def byte_runs(shape: Sequence[int], strides: Sequence[int], item_bits: int) -> tuple[list[tuple[int, int]], bool]:
    """The bytes of a layout's items from its element 0: the pieces without a gap, and whether there is only one.

    More than MAX_RUNS pieces come as one, from the first byte to the last; no extent may be 0.
    """
    axes = sorted((abs(stride), extent) for extent, stride in zip(shape, strides, strict=True) if extent > 1)
    low = sum(min(stride * (extent - 1), 0) for extent, stride in zip(shape, strides, strict=True))
    length = 1
    outer: list[range] = []  # of the axes that leave gaps: where their items begin
    for stride, extent in axes:
        if not outer and stride <= length:
            length += stride * (extent - 1)
        else:
            outer.append(range(0, stride * extent, stride))
    if math.prod(map(len, outer)) > MAX_RUNS:
        length += sum(steps[-1] for steps in outer)
        return [_bytes_of(low, low + length, item_bits)], False
    runs: list[tuple[int, int]] = []
    for steps in sorted(map(sum, itertools.product(*outer))):
        begin, end = _bytes_of(low + steps, low + steps + length, item_bits)
        if runs and begin <= runs[-1][1]:
            begin, last = runs.pop()
            end = max(end, last)
        runs.append((begin, end))
    return runs, len(runs) == 1


def _bytes_of(begin: int, end: int, item_bits: int) -> tuple[int, int]:
    return begin * item_bits // 8, -(-end * item_bits // 8)


# ---- lanes that share memory ----


def memories_of(lanes: Iterable[Lane]) -> tuple[Memory, ...]:
    """Lanes whose regions meet in one space, together; in the order of their first ones."""
    return tuple(map(_memory, joined_groups(lanes, _meet)))


def joined_groups(things: Iterable[Thing], meet: Callable[[Thing, Thing], bool]) -> list[list[Thing]]:
    """Whatever meets is in one group, directly or through others; groups and members in the order given."""
    groups: list[list[tuple[int, Thing]]] = []
    for place, thing in enumerate(things):
        met = [group for group in groups if any(meet(thing, other) for _, other in group)]
        groups = [group for group in groups if group not in met]
        groups.append([*(member for group in met for member in group), (place, thing)])
    ordered = sorted(sorted(group, key=lambda member: member[0]) for group in groups)
    return [[thing for _, thing in group] for group in ordered]


def _meet(a: Lane, b: Lane) -> bool:
    is_same_buffer = a.handle is not None and a.handle == b.handle
    is_same_space = a.space == b.space
    return is_same_buffer or (is_same_space and a.region[0] < b.region[1] and b.region[0] < a.region[1])


def _memory(lanes: list[Lane]) -> Memory:
    begin = min(lane.region[0] for lane in lanes)
    end = max(lane.region[1] for lane in lanes)
    handles = sorted({lane.handle for lane in lanes if lane.handle is not None})
    if handles:
        what = "MTLBuffer " + " and ".join(f"{handle:#x}" for handle in handles) + f" ({lanes[0].storage})"
    else:
        what = f"CPU memory at {begin:#x}" if begin else "no memory"
    work = next((f", {lane.work}" for lane in lanes if lane.work != WORK["idle"]), "")
    return Memory(f"{what}, {nbytes_text(end - begin)}{work}", begin, tuple(lanes))


def nbytes_text(nbytes: int) -> str:
    """A number of bytes as people say it: '24 bytes', '1.5 MiB'."""
    value, unit = float(nbytes), 0
    while value >= 1024:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} bytes" if unit == 0 else f"{value:.4g} {UNITS[unit]}"


def shown_name(name: str) -> str:
    """On one line, without what a terminal obeys, and with its middle left out if it is long."""
    half = (MAX_NAME - 1) // 2
    name = name if len(name) <= MAX_NAME else f"{name[:half]}…{name[-half:]}"
    return name if name.isprintable() else repr(name)[1:-1]
