"""Programs that were written for a Mac, run without one: the command line.

What a program asks for is switched on when it imports it: torch's mps device with torch, mx.fast.metal_kernel with
mlx.core.  _metal_dlpack_start does it, outside of the package.
"""

from __future__ import annotations

import os

from metal_dlpack import _core

#: The setting, for processes that the program starts too.
CHECK = "SOFTMETAL_KERNEL_CHECK"


def check_kernels() -> None:
    """Check the kernels that are made from now on, in this process and in those that it starts.

    A launch that can go on to its end does not fail for what is found: the program goes on too.
    """
    os.environ[CHECK] = "report"
    _core._softmetal_set(CHECK, "report")
