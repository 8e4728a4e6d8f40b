"""fork() beside other threads: Python warns of it, and it is what some tests are about."""

import os
import warnings


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()
