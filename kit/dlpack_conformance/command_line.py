"""How the two programs end, `python -m metal_dlpack` and the kit: by signals, and with an output that takes no more."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

#: Exit codes that are no verdict.  SPEC sysexits.h EX_SOFTWARE: it failed itself; EX_IOERR: what was printed is lost.
FAILED, OUTPUT_LOST, INTERRUPTED = 70, 74, 130
#: What a write raises.
LOST = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def run(main: Callable[[], int], name: str) -> NoReturn:
    """Exit with what `main` returns.  A reader who has seen enough (`| head`) is no error, a full disk a sentence."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the children too
    if sys.stdout is None:  # it is closed, and its number must not become that of another file
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:  # Python would exit with 1, which is a verdict
        status = failed(error, name)
    sys.exit(status)


def failed(error: Exception, name: str) -> int:
    """Say why on stderr, if that takes it; returns the exit code."""
    said, status = traceback.format_exc(), FAILED
    if isinstance(error, OSError) and error.errno in LOST and error.filename is None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes what Python still has to write at its end
        said, status = f"{name}: the output cannot be written: {os.strerror(error.errno)}.\n", OUTPUT_LOST
    with suppress(OSError):
        print(said, end="", file=sys.stderr, flush=True)
    return status
