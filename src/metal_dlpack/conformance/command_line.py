"""How the two programs end, `python -m metal_dlpack` and the kit: by signals, and with an output that takes no more."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

#: Exit codes.  SPEC sysexits.h EX_IOERR: what was to be printed is lost.
OUTPUT_LOST, INTERRUPTED = 74, 130
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
    except OSError as error:
        if error.errno not in LOST or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # takes what Python still has to write at its end
        print(f"{name}: the output cannot be written: {os.strerror(error.errno)}.", file=sys.stderr)
        status = OUTPUT_LOST
    sys.exit(status)
