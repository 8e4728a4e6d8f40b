"""Threads of a test's own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier


def in_threads(count: int, work: Callable[[int], object]) -> list:
    """What work(0), work(1), ... return, each on a thread of its own, at once; what one raises is raised."""
    begin = Barrier(count)

    def run(number: int) -> object:
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))
