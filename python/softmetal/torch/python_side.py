"""What torch's Python lacks for mps where torch was built without it; functions.cpp has the functions of torch._C."""

from __future__ import annotations

import atexit
import ctypes
import importlib
import warnings
from pathlib import Path

from metal_dlpack import _core

from . import shaders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def complete(torch: Any, library: str) -> None:
    """Once a process."""
    torch._C._has_mps = True
    for answer in (torch.backends.mps.is_available, torch.backends.mps.is_macos_or_newer):
        getattr(answer, "cache_clear", lambda: None)()  # what torch was asked before, it remembers
    # Operators that torch 2.9 has in Python for a Mac: it registers them when it is imported, where it has mps by then.
    getattr(torch.backends.mps, "_init", lambda: None)()
    torch.mps._is_in_bad_fork = torch._C._mps_is_in_bad_fork  # torch.mps keeps what it found when it was imported
    torch._C._mps_maxBufferLength = lambda: _core.default_device().max_buffer_length
    torch._C._accelerator_emptyHostCache = lambda: None  # there is no such cache, and torch does not ask whether
    torch._C._mps_host_alias_storage = _host_alias
    shaders.install()
    _make_storages(torch)
    if hasattr(torch.mps, "Stream"):
        _make_streams(torch)
    _run_compiled_graphs_eagerly(torch)
    atexit.register(_let_autograd_finish, library)


def _let_autograd_finish(path: str) -> None:
    """Before the interpreter ends: autograd's thread for mps lets go of the Python objects of what it ran last.

    It drops a graph's after the caller of backward() was told that it is done, and takes the GIL for that.  CPython
    before 3.14 ends a thread that asks for the GIL too late, by an exception that torch's destructors let nobody
    through: std::terminate.
    """
    if any(_name_of(thread).startswith("pt_autograd_") for thread in Path("/proc/self/task").iterdir()):
        ctypes.CDLL(path).torch_mps_let_autograd_finish()  # CDLL: without the GIL


def _name_of(thread: Path) -> str:
    try:
        return (thread / "comm").read_text()
    except OSError:  # it has ended
        return ""


def _host_alias(storage: Any) -> Any:
    """torch.mps._host_alias_storage: the same bytes as a storage of the CPU's, which keeps this one."""
    import torch

    if storage.device.type != "mps":
        raise RuntimeError(f"_host_alias_storage: the storage is on {storage.device}, not on mps.")
    tensor = torch.empty(0, dtype=torch.uint8, device="mps").set_(storage)
    return torch.from_dlpack(_core.from_dlpack(tensor).host).untyped_storage()


def _make_storages(torch: Any) -> None:
    """torch.UntypedStorage(..., device="mps"), which torch.load and pickle use."""
    kind = torch.UntypedStorage
    usual = kind.__new__

    def new(cls: type, *args: Any, device: Any = None, **keywords: Any) -> Any:
        if device is None or torch.device(device).type != "mps":
            return usual(cls, *args, **keywords) if device is None else usual(cls, *args, device=device, **keywords)
        content = args[0] if args else keywords.get("size", 0)
        if isinstance(content, int):
            return torch.empty(content, dtype=torch.uint8, device="mps").untyped_storage()
        return torch.tensor(list(content), dtype=torch.uint8).to("mps").untyped_storage()

    kind.__new__ = new


def _make_streams(torch: Any) -> None:
    """torch.mps.Stream, which torch has from 2.15 on: its base, and the functions about the current one."""
    mps = torch.accelerator.current_stream().device_type

    class Base(torch.Stream):  # type: ignore[misc]
        def __new__(cls, *, stream_id: int | None = None) -> Any:
            if stream_id is None:
                return super().__new__(cls, device="mps")
            return super().__new__(cls, stream_id=stream_id, device_index=0, device_type=mps)

        def synchronize(self) -> None:
            torch._C._mps_synchronizeStream(super().stream_id)

    torch._C._MPSStreamBase = Base
    torch._C._mps_setStream = torch.accelerator.set_stream
    torch._C._mps_getCurrentStream = torch.accelerator.current_stream
    # The module defined its classes over a base that cannot be made; what torch.mps took from it, it takes again.
    for name in importlib.reload(torch.mps.streams).__all__:
        setattr(torch.mps, name, getattr(torch.mps.streams, name))


def _is_on_mps(value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(getattr(getattr(x, "device", None), "type", None) == "mps" for x in values)


def _run_compiled_graphs_eagerly(torch: Any) -> None:
    """torch.compile writes Metal kernels for mps: here a graph with tensors on mps runs as it is, and says so once."""
    wrapper = torch._TorchCompileInductorWrapper
    usual = wrapper.__call__

    def call(self: Any, graph: Any, inputs: Any) -> Any:
        if not any(_is_on_mps(node.meta.get("example_value")) for node in graph.graph.nodes):
            return usual(self, graph, inputs)
        warnings.warn(
            "torch.compile: on the software Metal's mps device a graph runs eagerly; nothing is compiled for it.",
            RuntimeWarning,
            stacklevel=2,
        )
        return graph.forward

    wrapper.__call__ = call
