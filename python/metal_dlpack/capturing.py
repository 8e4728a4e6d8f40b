"""capture(): what the GPU does in a piece of the program, as a trace that Xcode opens."""

from __future__ import annotations

import os
from types import TracebackType

from . import _core, torch_facts

SUFFIX = ".gputrace"


class Capture:
    """What `capture` gives: Metal writes between the begin and the end of its `with` block, once."""

    def __init__(self, path: str, device: _core.Device) -> None:
        self._path, self._device = path, device
        self._began = self._is_on = False

    def __enter__(self) -> Capture:
        if self._began:
            raise RuntimeError("capture: it was begun already; write `with md.capture(path):` for another one.")
        self._wait()
        if os.path.lexists(self._path):
            raise FileExistsError(f"capture: {self._path} is there, and Metal writes over no trace; give another path.")
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"capture: {folder} is no folder; make it first.")
        _core._capture_begin(self._device, self._path)
        self._began = self._is_on = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._is_on:
            what = "it was ended already" if self._began else "it was never begun"
            raise RuntimeError(f"capture: {what}; write `with md.capture(path):`, which begins and ends it once.")
        self._is_on = False
        try:
            self._wait()
        finally:
            _core._capture_end()

    def _wait(self) -> None:
        """For what is in flight, and for the operators that torch keeps back."""
        torch = torch_facts.with_mps()
        if torch is not None:
            torch.mps.synchronize()
        self._device.synchronize()


def capture(
    path: str | bytes | os.PathLike[str] | os.PathLike[bytes], *, device: _core.Device | str | None = None
) -> Capture:
    """Write what the GPU does in a ``with`` block into a GPU trace, which Xcode opens.

    Parameters
    ----------
    path : str, bytes or path-like
        Where the trace is to be; it ends in ``.gputrace``, and nothing is there yet.
    device : Device or str, optional
        Default: the default device.

    Returns
    -------
    Capture
        A context manager, for one ``with`` block.  It waits for the work in flight when it begins and when it ends,
        torch's too.  All command buffers of the device between are in the trace, also torch's and MLX's.  Kernels
        have their names there, copies and fills are ``metal_dlpack copy`` and ``metal_dlpack fill``.

    Raises
    ------
    ValueError
        The path does not end in ``.gputrace``.
    FileExistsError, FileNotFoundError
        Something is at the path; its folder is not there.
    MetalError
        Python was started without ``METAL_CAPTURE_ENABLED=1`` in the environment; another capture is on, this
        package's or another's; Metal does not begin.  Raised when the block begins.

    The software Metal writes a folder with the names of command buffers and encoders, in order: ``commands.txt``.
    """
    found = _core.empty(0, device=device).device
    text = os.path.abspath(os.fsdecode(path))
    if not text.endswith(SUFFIX):
        raise ValueError(
            f"capture: the path ({os.fsdecode(path)!r}) must end in {SUFFIX!r}, or Xcode does not open it."
        )
    return Capture(text, found)
