"""What a call leaves each time it is made: Python's blocks and references, Metal's objects, malloc's bytes."""

import ctypes
import gc
import sys

import metal_dlpack as md
import softmetal
from metal_dlpack import _core


class Mallinfo(ctypes.Structure):
    """glibc's; `uordblks` are in use, `hblkhd` have pages of their own."""

    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in names]


class Mstats(ctypes.Structure):
    """Apple's."""

    names = ("bytes_total", "chunks_used", "bytes_used", "chunks_free", "bytes_free")
    _fields_ = [(name, ctypes.c_size_t) for name in names]


libc = ctypes.CDLL(None)
_ask = libc.mallinfo2 if hasattr(libc, "mallinfo2") else getattr(libc, "mstats", None)
if _ask is not None:
    _ask.restype = Mallinfo if hasattr(libc, "mallinfo2") else Mstats


def malloc_bytes():
    if _ask is None:
        return 0
    told = _ask()
    return told.bytes_used if isinstance(told, Mstats) else told.uordblks + told.hblkhd


def totals(kept):
    gc.collect()
    if softmetal.is_present():
        softmetal.wait_idle()
    md.empty_cache()
    live = softmetal.live_objects(None) if softmetal.is_present() else 0
    references = sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0
    # malloc gives no less than 24 bytes
    counts = [sys.getallocatedblocks(), references, live, malloc_bytes() // 24]
    return counts, [sys.getrefcount(thing) for thing in kept]


def growth(call, kept, warm_up, trips):
    for _ in range(warm_up):
        call()
    counts, references = totals(kept)
    for _ in range(trips):
        call()
    counts_after, references_after = totals(kept)
    grown = [after - before for before, after in zip(counts, counts_after, strict=True)]
    return grown, [after - before for before, after in zip(references, references_after, strict=True)]


def left_by(call, kept=(), *, warm_up=50, trips=400):
    """By how much the totals and the references to `kept`, our types and the constants grew; None if not each time."""
    kept = (*kept, *_core._types(), None, NotImplemented, False, True)
    for _ in range(3):  # again where it grew: a cache may have filled, also malloc's for a thread
        grown, references = growth(call, kept, warm_up, trips)
        if max(*grown, *map(abs, references)) <= trips // 2:
            return None
    return grown, references
