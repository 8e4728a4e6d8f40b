"""Whether torch takes the `data` of a Metal tensor for what DLPack means by it: the MTLBuffer.

torch names its memory on MPS by the MTLBuffer, as DLPack does, and takes `data` as it comes.  A torch that names memory
by its address would read and write at the address of our MTLBuffer object.  The two are told apart without a command
on the GPU: does torch hold memory of ours as it holds its own?  C asks here before an export to torch, until the
answer is known (exchange/torch_export.h).

Source: torch 2.9 to 2.15, c10::DataPtr on MPS; pytorch#190373 would make it the address.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from . import _core, sync

__all__ = ["check_asker", "check_type"]


def check_type(kind: type) -> bool:
    """Before Array.to(kind).  True: torch takes our memory rightly.  False: not known.  BufferError: it does not."""
    return any(base.__module__.partition(".")[0] == "torch" for base in kind.__mro__) and check("Array.to")


def check_asker() -> bool:
    """Before Array.__dlpack__ answers torch.from_dlpack, as above."""
    return check("Array.__dlpack__")


def check(function: str) -> bool:
    torch = sync.torch_with_mps()
    if torch is None:
        return "torch" in sys.modules  # a build without MPS runs nothing on the memory
    try:
        is_right = takes_buffers(torch)
    except RuntimeError:
        return False  # torch gives no memory on MPS now, as in a forked child, and runs nothing on ours either
    if not is_right:
        raise BufferError(
            f"{function}: torch {torch.__version__} reads the data of a Metal tensor as an address, but DLPack says "
            "that it is the MTLBuffer: torch would read and write other memory.  Pass x.host, for a tensor on the CPU."
        )
    return True


@cache
def takes_buffers(torch: Any) -> bool:
    """Does torch hold our memory as it holds its own: both by the MTLBuffer, or both by the address?"""
    return is_buffer(own_pointer(torch)) == is_buffer(our_pointer(torch))


def own_pointer(torch: Any) -> int:
    return int(torch.empty(1, device="mps").data_ptr())


def our_pointer(torch: Any) -> int:
    """How torch holds an Array's memory; with a capsule of its own, nobody asks who takes it."""
    return int(torch.from_dlpack(_core.zeros(1).__dlpack__(stream=-1)).data_ptr())


def is_buffer(pointer: int) -> bool:
    try:
        _core.Buffer.from_handle(pointer)
    except ValueError:
        return False
    return True
