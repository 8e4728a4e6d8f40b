"""Allocation and transfers beside NumPy and torch, in one process.

    taskset -c 1 python benchmarks/bench_memory.py [--rounds N] [--word WORD] [--check]

Ours and the peer take turns; each turn repeats the operation for about a millisecond.  Printed:
the least time of each, the loop's cost included, and the ratio of the two (below 1: ours is
faster).  Both of a row make or fill the same thing.  Wall-clock time: transfers to private
storage are done by the GPU's threads, and are waited for.

`empty` is warm: the pool has a buffer of the size, as NumPy's and malloc's caches have.
--check fails where a ratio is above the row's limit.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import numpy as np
import torch

import metal_dlpack as md

MIB = 1 << 20
Action = Callable[[], object]


class Row(NamedTuple):
    name: str
    ours: Action
    peer: Action
    limit: float  # of the ratio; the promise that --check holds
    around: tuple[Callable[[], AbstractContextManager[object]], ...] = (nullcontext, nullcontext)  # ours and the peer's


def allocations() -> list[Row]:
    f4 = np.float32
    return [
        Row("empty((4, 4))            np.empty", lambda: md.empty((4, 4)), lambda: np.empty((4, 4), f4), 1.2),
        Row("empty(16)                np.empty", lambda: md.empty(16), lambda: np.empty(16, f4), 1.2),
        Row("empty((32, 32))          np.empty", lambda: md.empty((32, 32)), lambda: np.empty((32, 32), f4), 1.2),
        Row("empty((4, 4))            torch.empty", lambda: md.empty((4, 4)), lambda: torch.empty((4, 4)), 1),
        Row("empty, 16 MiB            np.empty", lambda: md.empty(4 * MIB), lambda: np.empty(4 * MIB, f4), 1),
        Row("empty, 16 MiB            torch.empty", lambda: md.empty(4 * MIB), lambda: torch.empty(4 * MIB), 1),
    ]


def transfers() -> list[Row]:
    source = np.arange(MIB // 4, dtype=np.float32)
    target = np.empty_like(source)
    shared, private = (md.empty(source.shape, storage=mode) for mode in ("shared", "private"))
    large = np.ones(64 * MIB, np.uint8)

    def peer() -> None:
        np.copyto(target, source)

    def back() -> None:
        private.copy_to(target)

    return [
        Row("1 MiB into shared        np.copyto", lambda: shared.copy_from(source), peer, 1.3),
        Row("1 MiB into private       np.copyto", lambda: private.copy_from(source), peer, 3),
        Row("1 MiB out of private     np.copyto", back, peer, 3),
        Row("1 MiB, a copy made       ndarray.copy", lambda: md.asarray(source, copy=True), source.copy, 1.3),
        Row(
            "64 MiB shared, no copy   torch.from_numpy",
            lambda: md.from_dlpack(large, copy=False),
            lambda: torch.from_numpy(large),
            20,
        ),
    ]


def numpy_allocations() -> list[Row]:
    """NumPy beside itself: with our handler, and with its own."""

    def row(name: str, action: Action, limit: float) -> Row:
        return Row(f"{name} in numpy_memory()", action, action, limit, (md.numpy_memory, nullcontext))

    return [
        row("np.empty(16)    ", lambda: np.empty(16), 1.1),
        row("np.zeros(16)    ", lambda: np.zeros(16), 1.1),
        row("np.empty, 8 KiB ", lambda: np.empty(1024), 1.1),
        row("np.empty, 1 MiB ", lambda: np.empty(MIB // 8), 2),
        row("np.ones, 16 MiB ", lambda: np.ones(2 * MIB), 1.1),
    ]


def time_of(action: Action, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        action()
    return (time.perf_counter() - begin) / repeats


def repeats_for_a_millisecond(action: Action) -> int:
    for _ in range(20):
        action()
    return max(1, int(1e-3 / time_of(action, 20)))


def measure(row: Row, rounds: int) -> tuple[float, float]:
    repeats = [repeats_for_a_millisecond(action) for action in (row.ours, row.peer)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        with row.around[0]():
            times[0].append(time_of(row.ours, repeats[0]))
        with row.around[1]():
            times[1].append(time_of(row.peer, repeats[1]))
    return min(times[0]), min(times[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--word", default="", help="only rows that contain this word")
    parser.add_argument("--check", action="store_true", help="fail where a ratio passes its limit")
    options = parser.parse_args()
    torch.set_num_threads(1)
    too_slow = []
    for row in (
        row for make in (allocations, numpy_allocations, transfers) for row in make() if options.word in row.name
    ):
        ours, peer = measure(row, options.rounds)
        ratio = ours / peer
        mark = " *" if ratio > row.limit else ""
        print(f"{row.name:44s} {ours * 1e6:9.3f} us {peer * 1e6:9.3f} us {ratio:6.2f} of at most {row.limit:g}{mark}")
        if mark:
            too_slow.append(row.name)
    if options.check and too_slow:
        sys.exit(f"{len(too_slow)} rows are slower than they may be")


if __name__ == "__main__":
    main()
