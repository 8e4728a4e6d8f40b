"""fork() beside other threads: Python warns of it, and it is what some tests are about."""

import os
import warnings

from machine import HAS_SOFTMETAL, SANITIZER

from metal_dlpack import softmetal


def fork() -> int:
    """With AddressSanitizer, only once the software Metal has nothing to do.

    The runtime of gcc 12 does not hold its allocator's locks over fork(): one that a worker has at that moment stays
    taken in the child, whose next malloc() waits for ever.
    """
    if HAS_SOFTMETAL and "address" in SANITIZER:
        softmetal.wait_idle()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()
