"""keep_resident(): memory that stays wired for the GPU, so that work after a pause does not wire it anew."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from threading import Event, Lock, Thread
from typing import Any

from . import _core
from .files.array_file import ArrayFile

#: Seconds between two requests.  Since macOS 26 wiring lapses when the GPU has been idle for a second.
#: Source: llama.cpp, pull request 17766.
INTERVAL = 0.5


class Residency:
    """What `keep_resident` gives: the memory is wired until close(), or until this is collected."""

    def __init__(self, device: _core.Device, buffers: tuple[_core.Buffer, ...], nbytes: int) -> None:
        self._nbytes = nbytes
        self._lock, self._stop = Lock(), Event()
        self._set = _core._residency_begin(device, buffers)
        self._is_supported = self._set is not None
        if self._is_supported:
            # Metal keeps what a set held wired for ever in a process whose GPU has done nothing: llama.cpp issue 25937
            _core.Buffer(4, device=device, storage="private").fill(0)
            Thread(target=request_again, args=(weakref.ref(self), self._stop), daemon=True).start()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self._nbytes

    @property
    def is_supported(self) -> bool:
        """False before macOS 15, which brought residency sets: nothing is wired then, and results are the same."""
        return self._is_supported

    @property
    def is_closed(self) -> bool:
        """True after close()."""
        return self._stop.is_set()

    def close(self) -> None:
        """Let the system take the memory where it needs it.  Closing twice is allowed; any thread may."""
        self._stop.set()
        with self._lock:
            if self._set is not None:
                _core._residency_end(self._set)
                self._set = None

    def __enter__(self) -> Residency:
        if self.is_closed:
            raise ValueError("keep_resident: it was closed; call keep_resident again.")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open" if self._is_supported else "not supported before macOS 15"
        return f"<metal_dlpack.Residency of {self._nbytes} bytes, {state}>"

    def _request(self) -> None:
        with self._lock:
            if self._set is not None:
                _core._residency_request(self._set)


def request_again(residency: weakref.ref[Residency], stop: Event) -> None:
    """The thread of a Residency, which it does not keep."""
    while not stop.wait(INTERVAL):
        found = residency()
        if found is None:
            return
        found._request()
        del found


def keep_resident(
    *objects: _core.Array | _core.Buffer | ArrayFile | Mapping[Any, Any] | list[Any] | tuple[Any, ...],
) -> Residency:
    """Keep memory wired for the GPU while a ``with`` block runs, or until `close()`.

    Metal wires memory when work that uses it begins, and lets go when the GPU has been idle for about a second; a
    large model is wired anew after each pause, which takes from a tenth of a second to several.  This keeps it wired by
    an ``MTLResidencySet`` that is requested every half second.  torch's, MLX's and hand-written work gain too.

    Parameters
    ----------
    *objects : Array, Buffer, ArrayFile, or mappings, lists and tuples of them
        What `open` and `load` give, for example.  All on one device.  A file that is mapped is wired whole, which
        reads it from the disk.  Open it with mode ``'r'``: pages of a private map (``'c'``) become copies.

    Returns
    -------
    Residency
        A context manager with `nbytes`, `is_supported`, `is_closed` and `close()`.  It keeps the memory.  On macOS 14,
        which has no residency sets, it does nothing and `is_supported` is False.

    Raises
    ------
    TypeError
        An object is of none of these types.
    ValueError
        Nothing was given, the objects are on several devices, or together they are larger than the device's
        ``recommended_max_working_set_size``: a Mac that wires more stands still.
    MetalError
        Metal makes no set; this is a forked child.

    Threads: any.  Source: MTLResidencySet; llama.cpp, pull requests 11427 and 17766.
    """
    buffers = {id(buffer): buffer for given in objects for buffer in buffers_of(given)}
    if not objects:
        raise ValueError("keep_resident: give it what is to stay wired, such as a file that metal_dlpack.open opened.")
    found = {str(buffer.device): buffer.device for buffer in buffers.values()}
    if len(found) > 1:
        raise ValueError(f"keep_resident: the memory is on {' and '.join(found)}; call it once for each device.")
    device = next(iter(found.values()), None) or _core.default_device()
    nbytes = sum(buffer.size for buffer in buffers.values())
    most = device.recommended_max_working_set_size
    if nbytes > most:
        raise ValueError(
            f"keep_resident: {nbytes} bytes are more than the {most} of the device's "
            "recommended_max_working_set_size, and a Mac that wires more stands still; give it fewer tensors."
        )
    return Residency(device, tuple(buffers.values()), nbytes)


def buffers_of(given: Any) -> Iterator[_core.Buffer]:
    """Yield the Buffers behind an argument, with repeats."""
    if isinstance(given, _core.Buffer):
        yield given
    elif isinstance(given, _core.Array):
        yield given.buffer
    elif isinstance(given, ArrayFile):
        yield from given._buffers()
    elif isinstance(given, Mapping):
        for value in given.values():
            yield from buffers_of(value)
    elif isinstance(given, (list, tuple)):
        for value in given:
            yield from buffers_of(value)
    else:
        raise TypeError(
            f"keep_resident: {type(given).__name__} is no Array, Buffer or file of metal_dlpack.open; pass "
            "metal_dlpack.asarray(x) for an object of another library."
        )
