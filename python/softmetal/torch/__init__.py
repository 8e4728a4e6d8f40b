"""PyTorch's mps device without a Mac: its operators are those of the CPU, its memory lies in MTLBuffers.

The device itself is C++ against the headers of the torch that is installed, compiled when it is first asked for; the
C core knows nothing about torch.  torch_mps.h says what each part does.
"""

from __future__ import annotations

import ctypes
import os
import threading

from metal_dlpack import _core, torch_facts

TYPE_CHECKING = False  # typing costs as much to import as the rest of the package
if TYPE_CHECKING:
    from typing import Any

_lock = threading.Lock()
_library: ctypes.PyDLL | None = None  # once it is installed, for the life of the process


def switch_on(*, float64: bool = False) -> bool:
    """See softmetal.torch_mps."""
    global _library
    import torch

    with _lock:
        if _library is None:
            ratio = high_watermark_ratio()
            _library = _installed(torch)
            torch_facts.software_library = str(_library._name)
            _core._forget_types()
            if ratio is not None:
                torch._C._mps_setMemoryFraction(ratio)
    _library.torch_mps_allow_float64(float64)
    _library.torch_mps_allow_fallback(os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") not in ("", "0"))
    return True


def high_watermark_ratio() -> float | None:
    """What torch reads from the environment, once, on a Mac too.  RuntimeError if it is no such number."""
    written = os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO") or None
    try:
        ratio = None if written is None else float(written)
    except ValueError:
        ratio = -1
    if ratio is not None and not 0 <= ratio <= 2:
        raise RuntimeError(
            f"softmetal.torch_mps: PYTORCH_MPS_HIGH_WATERMARK_RATIO is {written!r}; torch takes a number from 0, for "
            "no limit, to 2, for twice what the device recommends. Set it so, or unset it."
        )
    return ratio


def commit() -> None:
    """Begin what torch was asked for so far, as torch.mps.synchronize() does; nothing where mps is not switched on."""
    if _library is not None:
        _library.torch_mps_commit()


def _installed(torch: Any) -> ctypes.PyDLL:
    from .building import library
    from .like_a_mac import answer_if_asked
    from .python_side import complete

    if torch._C._has_mps:
        raise RuntimeError(f"softmetal.torch_mps: torch {torch.__version__} has an mps device already.")
    loaded = ctypes.PyDLL(str(library(torch)))
    loaded.torch_mps_install.argtypes = [ctypes.py_object, ctypes.py_object]
    loaded.torch_mps_install(torch._C, _core._softmetal_torch)
    complete(torch, str(loaded._name))
    answer_if_asked()
    return loaded
