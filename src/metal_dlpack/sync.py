"""What to run before the Metal tensor of another framework is read.

No framework waits in its DLPack export on Metal, except MLX, and none reads `stream` there.  So from_dlpack runs the
framework's own synchronisation first.  The table below says which; users extend it with register_sync.

Source: PyTorch's MPS export does not synchronise (torch/_tensor.py, Tensor.__dlpack__); MLX
evaluates and waits in its own.
"""

from __future__ import annotations

import os
import sys

from . import _core
from ._core import _forget_types

TYPE_CHECKING = False  # typing costs as much to import as the rest of the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")
    Sync = Callable[[Any], object]

_registered: dict[type, Sync] = {}


def register_sync(kind: type[T], function: Callable[[T], object] | None, /) -> None:
    """Run `function(x)` before from_dlpack reads a Metal tensor of an `x` of this type.

    Parameters
    ----------
    kind : type
        Instances of subclasses count too.  A second call for a type replaces the first.
    function : callable or None
        Called with the object, with the GIL held, on the thread that calls from_dlpack.  It returns when the GPU work
        that writes the tensor is complete; or it returns at once, with an Event or an object that has
        __metal_stream__, which says when that is: then a stream given to from_dlpack waits for it on the GPU.  What
        it raises, from_dlpack raises.  Not called for tensors on the CPU, nor with stream=-1.  None removes
        what was registered for the type.

    Raises
    ------
    TypeError
        `kind` is not a type, or `function` is neither None nor callable.
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_sync: {kind!r} is not a type; give the class of the objects.")
    if function is None:
        _registered.pop(kind, None)
    elif callable(function):
        _registered[kind] = function
    else:
        raise TypeError(f"register_sync: {function!r} is not callable.")
    _forget_types()


def hook_for(kind: type) -> Sync | None:
    """The function for a type: a registered one, else the framework's own; None where there is nothing to wait for."""
    for base in kind.__mro__:
        if base in _registered:
            return _registered[base]
    if hasattr(kind, "__metal_stream__"):
        return None  # its objects say themselves what to wait for
    for base in kind.__mro__:
        find = FRAMEWORKS.get(base.__module__.partition(".")[0])
        if find is not None:
            return find()
    return None


def consumer_hook_for(kind: type) -> Sync | None:
    """What lets a framework's queue wait, on the GPU, for an Array that goes there; None: the CPU waits."""
    return _torch_consumer_hook() if kind.__module__.partition(".")[0] == "torch" else None


# ---- torch ----


def torch_with_mps() -> Any:
    """The module; None where it is not imported, or is a build that runs nothing on Metal."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.backends.mps.is_available() else None


def torch_library(torch: Any) -> str:
    """The library that has torch's functions for its queue on MPS."""
    return os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.dylib")


def _torch_hook() -> Sync | None:
    torch = torch_with_mps()
    if torch is None:
        return None
    if _core._torch_open(torch_library(torch)):
        return lambda _tensor: _core._torch_signal()
    return lambda _tensor: torch.mps.synchronize()


def _torch_consumer_hook() -> Sync | None:
    torch = torch_with_mps()
    return _core._torch_wait if torch is not None and _core._torch_open(torch_library(torch)) else None


# ---- TVM ----


def _tvm_hook() -> Sync | None:
    tvm = sys.modules.get("tvm")  # tvm_ffi alone runs nothing
    if tvm is None:
        return None
    return lambda _tensor: tvm.metal().sync()


# ---- the table ----

#: The first part of a type's module, and how its framework waits.  MLX is missing: its export waits itself.
FRAMEWORKS: dict[str, Callable[[], Sync | None]] = {
    "torch": _torch_hook,
    "tvm": _tvm_hook,
    "tvm_ffi": _tvm_hook,
}
