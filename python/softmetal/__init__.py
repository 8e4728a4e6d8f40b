"""Metal without a Mac: the software Metal's controls, torch's mps device, MLX's kernels, and what kernels do wrong.

    softmetal --check script.py    # or python -m softmetal

metal_dlpack uses the software Metal where there is no Metal.  On a Mac is_present() is False, torch_mps() and
mlx_kernels() do nothing, and every other function here raises SoftwareMetalMissing.
PYTEST_DONT_REWRITE: `python -m softmetal -m pytest` imports it first, and pytest would warn.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING

from metal_dlpack import _core

from . import controls
from .controls import (
    SoftwareMetalMissing,
    configure,
    is_present,
    last_report,
    live_objects,
    reports,
    wait_idle,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from .counting import KernelCount

__all__ = [
    "SoftwareMetalMissing",
    "configure",
    "is_present",
    "last_report",
    "live_objects",
    "mlx_kernels",
    "reports",
    "torch_mps",
    "wait_idle",
]


def torch_mps(*, float64: bool = False) -> bool:
    """Make torch's mps device compute where there is no Mac: on the CPU, in MTLBuffers of the software Metal.

    Torch's operators, autograd, modules and optimisers run on ``mps`` from now on, and kernels of
    torch.mps.compile_shader; ``md.from_dlpack(t)``, an Array's ``host`` and md.kernel use the same bytes.  Results are
    those of torch's CPU build.  Before or after ``import torch``, which this does; for the life of the process, and
    once.  ``python -m softmetal script.py`` runs a program with it, the pytest plugin's
    ``--softmetal-torch`` tests; so does ``SOFTMETAL_TORCH=1`` in the environment of any Python that imports torch.

    Each operator is work on a queue of torch's own.  With ``SOFTMETAL_LATENCY_US`` its bytes arrive later, as on a Mac:
    a missing ``torch.mps.synchronize()`` shows.  With validation on, races with other queues are reported.

    Parameters
    ----------
    float64 : bool, default False
        Take float64 and complex128, which MPS refuses with a TypeError.

    Returns
    -------
    bool
        True; False on a Mac, where this does nothing and says so by a RuntimeWarning.

    Raises
    ------
    ImportError
        torch is not installed.
    RuntimeError
        There is no C++ compiler, or this torch has headers that the device cannot be compiled with; or this is a
        sub-interpreter, which torch does not know.  The first call for a torch takes some 15 seconds and says so on
        stderr; what it makes is kept beside compiled kernels.
    """
    if sys.platform == "darwin":
        return _does_nothing("softmetal.torch_mps() does nothing on a Mac: torch's mps device is Metal's.")
    if _core._softmetal_torch is None:  # where torch crashes or hangs
        raise RuntimeError(
            "softmetal.torch_mps: torch works in the main interpreter of a process alone, and this is another one: "
            "call this there."
        )
    from . import torch as device

    return device.switch_on(float64=float64)


def mlx_kernels() -> AbstractContextManager[object]:
    """Run MLX's custom kernels where there is no Mac: mx.fast.metal_kernel makes kernels for the software Metal.

    The source is generated as MLX does, in front of it MLX's headers from the installed wheel; the CPU runs it, and the
    checker looks at it where that is on.  ``mx.metal.is_available()``, ``mx.default_device()``, ``mx.gpu`` and
    ``mx.device_info()`` answer as on a Mac; MLX's own operations run on its CPU.  Switch it on before a package that
    asks them is imported.

    Inputs are evaluated at the call, not later as on a Mac, and shared; for a source with vectors they are copied:
    MLX aligns its memory on the CPU to 8 bytes.  Outputs are copied once.  ``mx.compile`` gives functions that run
    as they are.  ``mx.grad`` and ``mx.vmap`` of a kernel are refused as on a Mac; ``mx.custom_function`` gives it a
    ``vjp`` or a ``jvp``.  ``SOFTMETAL_MLX=1`` in the environment switches it on where a Python imports mlx.core.

    Returns
    -------
    a context manager
        At the end of its ``with`` all patches are taken back; kernels that were made meanwhile still run.  Without
        ``with`` they stay for the life of the process.  Not for use by several threads at once.  On a Mac nothing is
        patched, and a RuntimeWarning says so.

    Raises
    ------
    ImportError
        mlx is not installed: ``pip install mlx mlx-cpu``.
    """
    if sys.platform == "darwin":
        _does_nothing("softmetal.mlx_kernels() does nothing on a Mac: MLX's kernels run on Metal.")
        return contextlib.nullcontext()
    from . import mlx as kernels

    return kernels.switch_on(controls.checks_kernels)


def _count(kernel: _core.Kernel, given: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> KernelCount:
    """Kernel.count, as C calls it; `given`: what the kernel was made of, and the arguments of the call."""
    controls.demand("Kernel.count")
    from .counting.launching import count_once

    return count_once(kernel, *given)


def _does_nothing(why: str) -> bool:
    """False, with a warning at the line of the caller's caller."""
    warnings.warn(why, RuntimeWarning, stacklevel=3)
    return False
