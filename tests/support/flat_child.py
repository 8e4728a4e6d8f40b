"""Every public call many times over: what it leaves of Python's blocks and references, and of Metal's objects.

Prints a line for each call that leaves something each time; else "flat", and how many calls were made.
"""

import gc
import sys

import fault_calls

import metal_dlpack as md
from metal_dlpack import _core, softmetal

TYPES = tuple(_core._types())
WARM_UP, TRIPS = 50, 400
#: A leak is one each time; caches and lists of free blocks that fill are less.
SLACK = TRIPS // 2


def totals():
    """Blocks of Python's allocators, all references where this Python counts them, of ours those to each type."""
    gc.collect()
    softmetal.wait_idle()
    md.empty_cache()
    references = sys.gettotalrefcount() if hasattr(sys, "gettotalrefcount") else 0
    return [sys.getallocatedblocks(), references, softmetal.live_objects(None), *map(sys.getrefcount, TYPES)]


def growth(call):
    """By how much each total grew."""
    for _ in range(WARM_UP):
        call()
    before = totals()
    for _ in range(TRIPS):
        call()
    return [after - old for old, after in zip(before, totals(), strict=True)]


def main():
    gc.collect()
    gc.freeze()
    ncalls, lines = 0, []
    for name, calls in fault_calls.CALLS.items():
        for call in calls:
            ncalls += 1
            grown = growth(call)
            if max(grown) > SLACK:
                grown = growth(call)  # once more: a cache may have filled
            if max(grown) > SLACK:
                lines.append(f"{name}: {grown}")
    print("\n".join(lines) or f"flat, {ncalls} calls")


main()
