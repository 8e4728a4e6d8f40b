"""What the variables of a frame call the buffers and queues of a timeline."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from metal_dlpack import _core
from metal_dlpack.language.literals import cells_of_a_notebook

from .records import Names

#: Variables that are looked at, at most.
MOST = 2000


def names_in(frame: FrameType | None) -> Names:
    """Names for what the frame's variables hold; a label of a queue comes first."""
    buffers: dict[int, str] = {}
    told = _core._timeline_queues()
    queues = {serial: label for serial, _, label in told if label}
    events = {event: serial for serial, event, _ in told}
    for name, value in itertools.islice(variables(frame), MOST):
        if isinstance(value, _core.Stream):
            queues.setdefault(_core._timeline_stream(value), name)
        elif handle := handle_of(value):
            buffers.setdefault(handle, name)
    threads = {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}
    cells = cells_of_a_notebook()
    places = {number: f"{cells.get(file, file)}:{line}" for number, file, line, _ in _core._timeline_places()}
    births = {handle: _core._timeline_birth(handle) for handle in buffers}
    return Names(queues, buffers, threads, places, events, births)


def name_default_streams(names: Names) -> Names:
    """The same, and the default streams."""
    queues = {_core._timeline_stream(device.default_stream): "default stream" for device in _core.devices()}
    return replace(names, queues=queues | dict(names.queues))


def variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Yield the variables of the function, of its `self` and of the module."""
    if frame is None:
        return
    inner = dict(frame.f_locals)
    yield from inner.items()
    yield from dict(getattr(inner.get("self"), "__dict__", {})).items()
    if frame.f_globals is not frame.f_locals:
        yield from dict(frame.f_globals).items()


def handle_of(value: Any) -> int:
    """The id<MTLBuffer> of an Array, a Buffer or a torch tensor on mps; 0: there is none."""
    torch = sys.modules.get("torch")
    try:
        if isinstance(value, _core.Array):
            return _handle_of_buffer(value.buffer)
        if isinstance(value, _core.Buffer):
            return _handle_of_buffer(value)
        if torch is not None and isinstance(value, torch.Tensor) and value.device.type == "mps":
            return int(value.untyped_storage().data_ptr())
    except Exception:  # a name is not worth an error: a closed Buffer, a torch subclass
        return 0
    return 0


def _handle_of_buffer(buffer: _core.Buffer) -> int:
    # not buffer.handle: that gives it away, and from then on more has to wait
    return _core._buffer_work(buffer)[1]
