"""What becomes true a moment later: another thread, the system or another process lets go after the work is over."""

import time
from collections.abc import Callable

#: Seconds, which pass only in a test that fails: AddressSanitizer with long call stacks makes a compile ten times slower.
PATIENCE = 120


def until(holds: Callable[[], object], patience: float = PATIENCE) -> None:
    """Wait until it holds, and fail if it never does."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"not true within {patience} s"
        time.sleep(0.002)
