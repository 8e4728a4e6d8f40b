"""Programs that were written for a Mac, run without one: the command line, and what it shares with the pytest plugin.

What a program asks for is switched on when it imports it: torch's mps device with torch, mx.fast.metal_kernel with
mlx.core.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys

from metal_dlpack import _core

from .imports import when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["SWITCHES", "check_kernels", "switch_on_when_imported", "when_imported"]

#: The setting, for processes that the program starts too.
CHECK = "SOFTMETAL_KERNEL_CHECK"


def check_kernels() -> None:
    """Check the kernels that are made from now on, in this process and in those that it starts.

    A launch that can go on to its end does not fail for what is found: the program goes on too.
    """
    os.environ[CHECK] = "report"
    _core._softmetal_set(CHECK, "report")


def _switch_on_torch() -> None:
    from metal_dlpack import torch_mps

    torch_mps.switch_on()


def _switch_on_mlx() -> None:
    # By its name: softmetal is what runs this room as a program.
    importlib.import_module("metal_dlpack.softmetal").mlx_kernels()


#: By the module whose import shows that a program wants it.
SWITCHES = {"torch": _switch_on_torch, "mlx.core": _switch_on_mlx}


def switch_on_when_imported(
    modules: Iterable[str] = tuple(SWITCHES), around: Callable[[Callable[[], object]], object] | None = None
) -> Callable[[], None]:
    """Switch on what these modules have on a Mac, each when it is imported; the returned function takes that back.

    `around` is called with what switches on, and calls it.  On a Mac the modules have their own, and nothing is done.
    """
    if sys.platform == "darwin":
        return lambda: None
    call = around or (lambda switch_on: switch_on())
    forget = [when_imported(name, functools.partial(call, SWITCHES[name])) for name in modules]

    def forget_all() -> None:
        for one in forget:
            one()

    return forget_all
