"""What torch is here, the one place in Python that asks it; exchange/torch.c judges and acts.

torch names its memory on MPS by the MTLBuffer, as DLPack does, and takes `data` as it comes.  A torch that names memory
by its address would read and write at the address of our MTLBuffer object.  The two are told apart without a command
on the GPU: does torch hold our memory as it holds its own?

Source: torch 2.9 to 2.15, c10::DataPtr on MPS; pytorch#190373 would make it the address.
"""

from __future__ import annotations

import os
import sys
import warnings

from . import _core

TYPE_CHECKING = False  # typing costs as much to import as the rest of the package
if TYPE_CHECKING:
    from typing import Any


#: Where there is no Metal: the library of torch_mps, which names itself here when it is switched on.
software_library = ""


def with_mps() -> Any:
    """The module; None where it is not imported, or is a build that runs nothing on Metal."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.backends.mps.is_available() else None


def library(torch: Any) -> str:
    """The library that has torch's functions for its queue on MPS; "" where none is known."""
    if sys.platform != "darwin":
        return software_library
    return os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.dylib")


def wait(_tensor: object) -> None:
    """For torch's work on MPS, on the CPU: where the library lacks the functions of its queue."""
    sys.modules["torch"].mps.synchronize()


def pointers() -> tuple[int, int, str] | bool:
    """How torch holds its own memory on MPS and ours, and its version.  True: it runs on neither.  False: not now."""
    torch = with_mps()
    if torch is None:
        if "torch" in sys.modules and sys.platform != "darwin":
            _warn_of_no_mps()
        return "torch" in sys.modules
    try:
        return own_pointer(torch), our_pointer(torch), torch.__version__
    except RuntimeError:
        return False  # torch gives no memory on MPS now, as in a forked child, and runs nothing on ours either


def _warn_of_no_mps() -> None:
    """Once, at the user's line: what torch says itself, of any operator and of print(), is a page that helps nobody."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith((__name__, "torch.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        "PyTorch has no mps here: it holds this Metal tensor, and fails to print it or to compute with it ('Could not "
        "run aten::...'). Call softmetal.torch_mps() before, or pass a.host, for a tensor on the CPU.",
        RuntimeWarning,
        stacklevel=level,
    )


def is_negated(tensor: object) -> bool:
    """Whether the negative bit is set of a tensor whose class forbids to ask, as torch's ReadOnlyTensorWrapper."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, getattr(torch, "Tensor", ())):
        return False
    with torch._C.DisableTorchFunctionSubclass():
        return bool(torch.Tensor.is_neg(tensor))


def own_pointer(torch: Any) -> int:
    return int(torch.empty(1, device="mps").data_ptr())


def our_pointer(torch: Any) -> int:
    """How torch holds an Array's memory; with a capsule of its own, nobody asks who takes it."""
    return int(torch.from_dlpack(_core.zeros(1).__dlpack__(stream=-1)).data_ptr())
