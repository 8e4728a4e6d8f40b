"""fork() beside other threads: Python warns of it, and it is what some tests are about."""

import os
import signal
import traceback
import warnings
from collections.abc import Callable

from machine import HAS_SOFTMETAL, SANITIZER

import softmetal


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


def exit_code_of_child(body: Callable[[], object]) -> int:
    """Run `body` in a child, and return 0, or 1 if it raised.  Whatever it does, the child never goes on as pytest."""
    if (child := fork()) == 0:
        signal.alarm(60)
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
