"""What to run before the Metal tensor of another framework is read.

No framework waits in its DLPack export on Metal, except MLX, and none reads `stream` there.  So from_dlpack runs the
framework's own synchronisation first, or what users register.

Source: PyTorch's MPS export does not synchronise (torch/_tensor.py, Tensor.__dlpack__); MLX
evaluates and waits in its own.
"""

from __future__ import annotations

import sys

from . import torch_facts
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


def ways_of(kind: type) -> tuple[Sync | None, Sync | None, str | None]:
    """What C asks once about a type: the function registered for it; its framework's own synchronisation; of torch's
    types the library that has torch's queue, "" where torch runs nothing on Metal."""
    registered = next((_registered[base] for base in kind.__mro__ if base in _registered), None)
    roots = {package_of(base) for base in kind.__mro__}
    if "torch" in roots:
        torch = torch_facts.with_mps()
        return (registered, None, "") if torch is None else (registered, torch_facts.wait, torch_facts.library(torch))
    if hasattr(kind, "__metal_stream__") or not roots & {"tvm", "tvm_ffi"}:
        return registered, None, None  # its objects say themselves what to wait for, or there is nothing
    return registered, _tvm_wait(), None


def package_of(kind: type) -> str:
    """The package that a type is from; "" where it does not say: a type made where no __name__ is has no __module__."""
    module = getattr(kind, "__module__", "")
    return module.partition(".")[0] if isinstance(module, str) else ""


def _tvm_wait() -> Sync | None:
    tvm = sys.modules.get("tvm")  # tvm_ffi alone runs nothing
    return None if tvm is None else lambda _tensor: tvm.metal().sync()
