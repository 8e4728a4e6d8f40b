"""What a kernel does to memory: `Kernel.count`, and every kernel of a program.

    count = k.count(x, y, n=1000)      # a KernelCount; print(count) shows the source beside it
    assert count.lines_per_access <= 1.1

    with counting.install() as counted:
        program()
    counted.counts                     # a KernelCount for each kernel

docs/counting.md says what is counted, and what the numbers cannot tell.
"""

from __future__ import annotations

from .kernel_count import KernelCount
from .launching import Counted, install
from .values import AccessCount, ArgumentCount, BranchCount, LineCount, Traffic

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
