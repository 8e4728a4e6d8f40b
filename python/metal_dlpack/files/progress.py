"""What load() tells while it reads: a callable of the user's, a bar of tqdm, or a line on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

#: Called with the bytes that are done, and all.
Progress: TypeAlias = Callable[[int, int], object]
#: The least time between two calls, in seconds; the first and the last always come.
INTERVAL = 0.05


@contextmanager
def following(progress: Progress | bool | None, path: str, total: int) -> Iterator[Callable[[int], None]]:
    """What to call with the bytes that are done."""
    if callable(progress):
        yield at_intervals(progress, total)
    elif progress is True:
        with bar(os.path.basename(path), total) as show:
            yield at_intervals(show, total)
    elif progress is None or progress is False:
        yield lambda done: None
    else:
        raise TypeError(f"load: progress ({progress!r}) must be True, None or a callable of (done, total).")


def at_intervals(progress: Progress, total: int) -> Callable[[int], None]:
    told = time.monotonic()
    progress(0, total)

    def tell(done: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done == total or now - told >= INTERVAL:
            told = now
            progress(done, total)

    return tell


@contextmanager
def bar(name: str, total: int) -> Iterator[Progress]:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        try:
            yield lambda done, total: print_line(f"\r{name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", end="")
        finally:
            print_line()
    else:
        with tqdm(total=total, desc=name, unit="B", unit_scale=True) as shown:
            yield lambda done, total: shown.update(done - shown.n)


def print_line(text: str = "", end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
