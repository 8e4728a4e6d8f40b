"""The items that a text of an Array shows: read without touching the others, without a long wait, without an error."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from operator import gt
from typing import TYPE_CHECKING, Any

from metal_dlpack import _core

if TYPE_CHECKING:
    from metal_dlpack._core import Array

#: No text has more items than this, if the user does not ask for more: 6 at four axes each.
MAX_ITEMS = 6**4
#: Items of more lanes are not printed.
MAX_LANES = 8
#: How long a text waits for GPU work, in seconds.
PATIENCE = 0.2


@dataclass(frozen=True)
class ShownItems:
    """Items of an Array, row after row."""

    values: list[Any]  #: empty: there are none, or only more than fit
    shape: tuple[int, ...]  #: of `values`
    is_cut: tuple[bool, ...]  #: the axes of which only both ends are shown, each `shape[axis] // 2` long


def read_items(array: Array, threshold: int, edge: int) -> ShownItems | str:
    """What a text shows of the array, or a reason why it can show nothing.

    threshold: up to so many items all are shown; edge: of more, so many at both ends of each axis.
    """
    if array.dtype.lanes > MAX_LANES:
        return "items of many lanes"
    shape = array.shape
    if array.size > threshold:
        edge = _fitting_edge(shape, max(threshold, MAX_ITEMS), edge)
        shape = tuple(min(extent, 2 * edge) for extent in shape)
    is_cut = tuple(map(gt, array.shape, shape))
    if 0 in shape:
        return ShownItems([], shape, is_cut)
    try:
        return _wait(array) or ShownItems(_values(array, shape), shape, is_cut)
    except (_core.MetalError, MemoryError) as error:
        return str(error)


def _fitting_edge(shape: tuple[int, ...], limit: int, edge: int) -> int:
    while edge > 0 and math.prod(min(extent, 2 * edge) for extent in shape) > limit:
        edge -= 1
    return edge


def _wait(array: Array) -> str:
    """Wait a moment for GPU work that writes the items; why they cannot be read then, or ""."""
    deadline = time.monotonic() + PATIENCE
    while True:
        work = _core._buffer_work(array.buffer)[0]
        if work == "failed":
            return "GPU work on the buffer failed; the next read or synchronize() raises the reason"
        submitted, completed, has_failed = _queue_work(array)
        if has_failed:
            return "earlier GPU work on the current stream failed; the next read or synchronize() raises the reason"
        if work != "writes" and submitted == completed:
            return ""
        if time.monotonic() > deadline:
            return "GPU work in flight"
        time.sleep(0.001)


def _queue_work(array: Array) -> tuple[int, int, bool]:
    """_stream_work of the stream that copies what is not shared: the copy waits behind it, and takes its failure."""
    return (0, 0, False) if array.storage != "private" else _core._stream_work(_core.current_stream(array.device))


def _values(array: Array, shape: tuple[int, ...]) -> list[Any]:
    """The items at the ends of the axes that are longer than in `shape`, row after row."""
    is_whole = array.shape == shape
    is_shared = array.storage != "private"
    has_bits = array.dtype.bits * array.dtype.lanes % 8 != 0
    if has_bits and not (is_whole and (is_shared or array.layout.is_dense)):
        return _one_by_one(array, shape)  # a view of packed items begins on a byte only
    if not is_shared and not (is_whole and array.layout.is_dense):
        array = _shared_copy(array, shape)  # else the bytes between the items would come as well
    values = [_nested(array, shape)]
    for _ in shape:
        values = [item for row in values for item in row]
    return values


def _one_by_one(array: Array, shape: tuple[int, ...]) -> list[Any]:
    ends = [
        [i for _, piece in _pieces(*extents) for i in range(extents[0])[piece]]
        for extents in zip(array.shape, shape, strict=True)
    ]
    return [array.item(*index) for index in itertools.product(*ends)]


def _shared_copy(array: Array, shape: tuple[int, ...]) -> Array:
    shown = _core.empty(shape, array.dtype, device=array.device, storage="shared")
    for pieces in itertools.product(*map(_pieces, array.shape, shape)):
        shown[tuple(to for to, _ in pieces)] = array[tuple(source for _, source in pieces)]
    return shown


def _nested(array: Array, shape: tuple[int, ...]) -> Any:
    if array.shape == shape:
        return array.tolist()
    rows: list[Any] = []
    for _, piece in _pieces(array.shape[0], shape[0]):
        rows += [_nested(row, shape[1:]) for row in array[piece]] if len(shape) > 1 else array[piece].tolist()
    return rows


def _pieces(extent: int, count: int) -> list[tuple[slice, slice]]:
    """An axis cut to `count` items: where its ends lie in the cut one, and in the whole."""
    if extent == count:
        return [(slice(None), slice(None))]
    edge = count // 2
    return [(slice(edge), slice(edge)), (slice(edge, None), slice(extent - edge, None))]
