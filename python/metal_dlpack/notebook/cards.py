"""What a notebook shows of each type: a line of facts, a drawing of the shape and of the memory, the items."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from metal_dlpack import _core
from metal_dlpack.looking.memory_lanes import (
    WORK,
    Memory,
    byte_runs,
    lane_of_array,
    lane_of_buffer,
    memories_of,
    nbytes_text,
    owner_text,
)
from metal_dlpack.looking.text import items_text
from metal_dlpack.pages.markup import Markup, element, shortened
from metal_dlpack.pages.style import STYLE_SHEET
from metal_dlpack.timelines.lanes import time_text
from metal_dlpack.timelines.records import Event
from metal_dlpack.timelines.summary import Summary
from metal_dlpack.timelines.time_drawing import draw_times

from .lane_drawing import Row, draw_memory, draw_rows, row_of
from .thumbnail import thumbnail

#: Tensors of a file, and kernels of a library, that are listed; characters of a parameter's name.
MAX_TENSORS, MAX_KERNELS, MAX_PARAMETER = 20, 20, 30
#: Characters of a line of items: a summarised row of float32 fits.
MAX_LINE = 100
#: Memories that are drawn, and as many reasons why something is not; characters of a reason.
MAX_GROUPS, MAX_REASON = 20, 400
#: What is said of a layout that is so.
LAYOUT_WORDS = {"is_contiguous_c": "C order", "is_contiguous_f": "F order", "is_dense": "dense", "is_unique": "unique"}


class OpenFile(Protocol):
    """What is asked of an ArrayFile, whose module imports this one."""

    @property
    def path(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def mode(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def is_mapped(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    def info(self, name: str) -> Any: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...


class ShardedOpenFile(OpenFile, Protocol):
    @property
    def shards(self) -> dict[str, int | None]: ...


class SharingPicture(Protocol):
    """What is asked of a Picture of show()'s."""

    @property
    def memories(self) -> tuple[Memory, ...]: ...
    @property
    def refusals(self) -> tuple[tuple[str, str], ...]: ...


class RecordedTimeline(Protocol):
    """What is asked of a Timeline."""

    @property
    def events(self) -> list[Event]: ...
    @property
    def seconds(self) -> float: ...
    @property
    def lost(self) -> int: ...
    def summary(self) -> Summary: ...


def array_card(array: _core.Array) -> Markup:
    head = headline(
        "Array",
        f"{array.shape} {array.dtype.name}",
        nbytes_text(array.nbytes),
        array.storage,
        str(array.device),
        "padded" if array.padded else "",
        "read-only" if array.readonly else "",
    )
    view = view_drawing(array)
    name, *state = buffer_facts(array.buffer, own_views=1)
    return card(
        beside(
            thumbnail(array.shape, array.strides),
            head,
            quiet_line(f"{'all' if view is None else 'part'} of {name}", *state),
        ),
        view,
        element("pre", items_text(array, width=MAX_LINE)),
    )


def view_drawing(array: _core.Array) -> Markup | None:
    """Which bytes of its buffer an array sees; None: every one that there is to see."""
    lane = lane_of_array("its bytes", array)
    buffer = lane_of_buffer("buffer", array.buffer)
    if array.size == 0 or lane.runs == buffer.runs:
        return None
    (memory,) = memories_of([lane, buffer])
    return draw_rows([row_of(memory, lane, memory.bytes_text(lane))], memory.title)


def buffer_card(buffer: _core.Buffer) -> Markup:
    if buffer.is_closed:
        return card(headline("Buffer", "closed"))
    nbytes = buffer.size - buffer.offset
    label = f"'{shortened(buffer.label)}'" if buffer.label else ""
    head = headline("Buffer", label, nbytes_text(nbytes), buffer.storage, str(buffer.device))
    pieces = [(buffer.offset / buffer.size, 1.0)] if nbytes else []
    row = Row("usable", pieces, f"bytes {buffer.offset:,} to {buffer.size:,}")
    lines = beside(None, head, quiet_line(*buffer_facts(buffer)))
    return card(lines, draw_rows([row], "bytes of the MTLBuffer"))


def device_card(device: _core.Device) -> Markup:
    head = headline(
        "Device",
        str(device),
        shortened(device.name),
        "software" if device.is_software else "",
        "unified memory" if device.has_unified_memory else "discrete memory",
    )
    most = max(device.recommended_max_working_set_size, 1)
    lines = quiet_line(
        f"recommended working set {nbytes_text(most)}", f"buffers up to {nbytes_text(device.max_buffer_length)}"
    )
    stats = _core.memory_stats(device=device)
    sizes = [
        ("live", stats["live"], f"in {stats['live_buffers']:,} buffers"),
        ("cached", stats["cached"], f"in {stats['cached_buffers']:,} buffers of the pool"),
    ]
    with contextlib.suppress(_core.MetalError):  # in a forked child
        sizes.append(("of the process", device.current_allocated_size, "as Metal counts"))
    rows = [
        Row(name, [(0.0, min(nbytes / most, 1.0))], f"{nbytes_text(nbytes)} {what}") for name, nbytes, what in sizes
    ]
    return card(beside(None, head, lines), draw_rows(rows, "memory, of the recommended working set"))


def stream_card(stream: _core.Stream) -> Markup:
    submitted, completed, has_failed = _core._stream_work(stream)
    label = f"'{shortened(stream.label)}'" if stream.label else ""
    waiting = submitted - completed
    work = f"{waiting:,} of {submitted:,} pieces of work in flight" if waiting else "idle"
    head = headline("Stream", label, str(stream.device), work)
    failure = "failed: the next wait raises the reason" if has_failed else ""
    return card(beside(None, head, quiet_line(f"MTLCommandQueue {stream.handle:#x}", failure)))


#: What a kernel does with the memory of an argument.
ACCESS = {"read": "read", "write": "written", "read_write": "read and written"}


def kernel_card(kernel: _core.Kernel) -> Markup:
    """How to call it: what each parameter takes, and how many threads may work together."""
    own = kernel.threadgroup_memory
    facts = quiet_line(
        f"SIMD-groups of {kernel.thread_execution_width:,} threads",
        f"at most {kernel.max_total_threads:,} threads in a threadgroup",
        f"{nbytes_text(own)} of threadgroup memory" if own else "",
    )
    head = headline("Kernel", shortened(kernel.name), str(kernel.device))
    arguments = kernel.arguments
    return card(beside(None, head, facts), element("pre", _parameters_text(arguments)) if arguments else None)


def _parameters_text(arguments: Sequence[_core.Argument]) -> str:
    """A line for each: its name, its element type, what becomes of it."""
    names = [shortened(argument.name, MAX_PARAMETER) for argument in arguments]
    lines = [(name, *_uses(name, argument)) for name, argument in zip(names, arguments, strict=True)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _uses(name: str, argument: _core.Argument) -> tuple[str, str]:
    """Its element type, or else its size; and what the kernel does with it, or how its size is given."""
    if argument.kind == "threadgroup":
        return "", f"threadgroup_memory={{'{name}': nbytes}}"
    size = f"{argument.nbytes:,} bytes" if argument.nbytes else "any type"
    return argument.dtype.name if argument.dtype else size, ACCESS[argument.access]


def library_card(library: _core.Library) -> Markup:
    names = library.kernels
    shown = "\n".join(map(shortened, names[:MAX_KERNELS]))
    hidden = len(names) - MAX_KERNELS
    count = counted(len(names), "kernel") or "no kernels"
    head = headline("Library", f"'{shortened(library.name)}'", count, str(library.device))
    more = quiet_line(f"and {hidden:,} more") if hidden > 0 else None
    return card(head, element("pre", shown) if names else None, more)


def layout_card(layout: _core.StridedLayout) -> Markup:
    said = [word for name, word in LAYOUT_WORDS.items() if getattr(layout, name)]
    head = headline("StridedLayout", f"{layout.shape}, {layout.itemsize} bytes each", ", ".join(said))
    strides = layout.strides
    facts = [f"strides {strides} items" if strides is not None else "implicit strides"]
    facts.append(f"offset {layout.slice_offset} items" if layout.slice_offset else "")
    drawing = None
    if layout.volume:
        axes = ((layout.volume,), (1,)) if strides is None else (layout.shape, strides)
        runs, is_dense = byte_runs(*axes, 8 * layout.itemsize)
        low, high = runs[0][0], runs[-1][1]
        pieces = [((begin - low) / (high - low), (end - low) / (high - low)) for begin, end in runs]
        drawing = draw_rows([Row("", pieces, nbytes_text(high - low), is_dense=is_dense)], "bytes of the items")
    return card(beside(thumbnail(layout.shape, strides), head, quiet_line(*facts), drawing))


def file_card(file: OpenFile) -> Markup:
    nbytes = file.nbytes
    head = _headline_of_file(file, nbytes)
    if file.is_closed:
        return card(head, quiet_line("closed"))
    rows = [_row_of_tensor(file, name, nbytes) for name in islice(file, MAX_TENSORS)]
    state = quiet_line("mapped" if file.is_mapped else "read when touched")
    return card(beside(None, head, state), draw_rows(rows, "tensors by their place in the file", len(file)))


def sharded_file_card(file: ShardedOpenFile) -> Markup:
    """Opens none of the shards."""
    shards = file.shards
    nbytes = sum(length or 0 for length in shards.values())  # of one look: files come and go
    head = _headline_of_file(file, nbytes)
    if file.is_closed:
        return card(head, quiet_line("closed"))
    state = quiet_line(f"{len(shards):,} files, each opened when a tensor of it is asked for")
    rows = _rows_of_shards(shards, nbytes)[:MAX_TENSORS]
    return card(beside(None, head, state), draw_rows(rows, "files by their share of all bytes", len(shards)))


def _headline_of_file(file: OpenFile, nbytes: int) -> Markup:
    count = f"{len(file):,} tensors"
    return headline("ArrayFile", shortened(file.path), file.format, count, nbytes_text(nbytes), f"mode {file.mode}")


def _rows_of_shards(shards: dict[str, int | None], nbytes: int) -> list[Row]:
    rows, begin = [], 0
    for name, length in shards.items():
        end = begin + (length or 0)
        note = "not there" if length is None else nbytes_text(length)
        rows.append(Row(name, [(begin / nbytes, end / nbytes)] if length else [], note, f"{shortened(name)}: {note}"))
        begin = end
    return rows


def _row_of_tensor(file: OpenFile, name: str, nbytes: int) -> Row:
    try:
        info = file.info(name)
    except ValueError as error:
        return Row(name, [], "not readable", str(error))
    begin, end = info.offset / nbytes, (info.offset + info.nbytes) / nbytes
    note = f"{info.shape} {info.type} {nbytes_text(info.nbytes)}"
    return Row(
        name, [(begin, end)] if info.nbytes else [], note, f"{shortened(name)}\nfrom byte {info.offset:,}: {note}"
    )


def picture_card(picture: SharingPicture) -> Markup:
    memories, refusals = picture.memories[:MAX_GROUPS], picture.refusals[:MAX_GROUPS]
    drawn = [element("div", quiet_line(memory.title), draw_memory(memory)) for memory in memories]
    refused = [
        element("div", element("b", shortened(name)), ": ", shortened(why, MAX_REASON)) for name, why in refusals
    ]
    more = [
        f"and {count:,} more {what}" if count else ""
        for count, what in (
            (len(picture.memories) - len(memories), "memories"),
            (len(picture.refusals) - len(refusals), "that could not be placed"),
        )
    ]
    return card(*drawn, *refused, quiet_line(*more) if any(more) else None)


def timeline_card(timeline: RecordedTimeline) -> Markup:
    events = timeline.events
    advice = [element("div", one.text) for one in timeline.summary().advice]
    lost = f"{timeline.lost:,} earlier records were lost" if timeline.lost else ""
    facts = [f"{len(events):,} records", time_text(timeline.seconds), lost]
    return card(headline("Timeline", *facts), draw_times(events, timeline.seconds), *advice)


# ---- parts of a card ----


def card(*content: object) -> Markup:
    """One output.  Its style sheet comes with it, for it may be shown alone."""
    return element("div", STYLE_SHEET, *content, class_="mdl")


def headline(name: str, *facts: str) -> Markup:
    return element("div", element("b", name), " ", " · ".join(filter(None, facts)))


def quiet_line(*facts: str) -> Markup:
    return element("div", " · ".join(filter(None, facts)), class_="mdl-quiet")


def beside(drawing: Markup | None, *lines: object) -> Markup:
    """Lines, and a drawing before them if there is one."""
    return element("div", drawing, element("div", *lines), class_="mdl-head")


def buffer_facts(buffer: _core.Buffer, own_views: int = 0) -> list[str]:
    """Its name, what the GPU does with it, who owns its memory, and who else holds it."""
    work, handle, views, references = _core._buffer_work(buffer)
    owner = owner_text(buffer)
    size = nbytes_text(buffer.size - buffer.offset) + (" usable" if buffer.offset else "")
    return [
        f"MTLBuffer {handle:#x} ({size})" if handle else "an empty buffer",
        WORK[work],
        f"owned by {shortened(owner)}" if owner else "",
        counted(views - own_views, "other view" if own_views else "view"),
        counted(references, "export")
        if work == "idle"
        else f"{counted(references, 'reference')} by exports and GPU work",
    ]


def counted(count: int, what: str) -> str:
    """'1 export', '2 exports'; nothing of none."""
    return f"{count:,} {what}{'s' if count > 1 else ''}" if count > 0 else ""
