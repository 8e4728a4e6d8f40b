"""Every public call, some hundred times: Python's blocks, references and Metal's objects are as many as before.

Run as a program, it prints a line for each call that leaves something each time; else "flat", and how many there are.
"""

import gc
import sys
from pathlib import Path

import pytest
from children import output_of

import metal_dlpack as md
from metal_dlpack import _core, softmetal

pytest.importorskip("_testbuffer", reason="needs CPython's _testbuffer")

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]

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
    import fault_calls

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


def test_no_public_call_leaves_anything():
    said = output_of(Path(__file__), timeout=600, SOFTMETAL_VALIDATION="0")
    assert said.startswith("flat, "), said
    assert int(said.split()[1]) > 300


if __name__ == "__main__":
    main()
