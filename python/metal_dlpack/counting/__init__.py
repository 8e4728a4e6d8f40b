"""What a kernel does to memory: `Kernel.count`, and every kernel of a program.

    count = k.count(x, y, n=1000)      # a KernelCount; print(count) shows the source beside it
    assert count.lines_per_access <= 1.1

    with counting.install() as counted:
        program()
    counted.counts                     # a KernelCount for each kernel

docs/counting.md says what is counted, and what the numbers cannot tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .kernel_count import KernelCount
from .launching import Counted, install
from .values import AccessCount, ArgumentCount, BranchCount, LineCount, Traffic

if TYPE_CHECKING:
    from metal_dlpack import _core

__all__ = [
    "AccessCount",
    "ArgumentCount",
    "BranchCount",
    "Counted",
    "KernelCount",
    "LineCount",
    "Traffic",
    "install",
]


def count(kernel: _core.Kernel, given: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> KernelCount:
    """What Kernel.count returns; `given`: what the kernel was made of, and the arguments of the call."""
    from .launching import count_once

    return count_once(kernel, *given)
