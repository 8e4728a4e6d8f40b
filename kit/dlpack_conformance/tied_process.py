"""A child process that ends with its parent, also when SIGKILL ends that one, and with all that it started itself.

On Linux the kernel sends the signal: the child inherits one end of a pipe, and its process group gets SIGKILL when
the other end, which this process alone has, is closed.  So it may be any program, and hang in any call.  Other systems
have no such signal: there a child that is a Python calls `watch`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

if sys.platform == "linux":
    import fcntl

LOOK_S = 1.0


class TiedProcess(subprocess.Popen[Any]):
    """A Popen in a session of its own, whose `end` must be called."""

    def __init__(self, command: list[str], **options: Any) -> None:
        inherited, self._held = os.pipe()
        try:
            super().__init__(command, pass_fds=[inherited], start_new_session=True, **options)
            if sys.platform == "linux":
                fcntl.fcntl(inherited, fcntl.F_SETOWN, -self.pid)
                fcntl.fcntl(inherited, fcntl.F_SETSIG, signal.SIGKILL)
                fcntl.fcntl(inherited, fcntl.F_SETFL, fcntl.fcntl(inherited, fcntl.F_GETFL) | os.O_ASYNC)
        except BaseException:
            os.close(self._held)
            raise
        finally:
            os.close(inherited)

    def end(self) -> None:
        """Kill what is left of it and of what it started, wait for it, and close what was between us."""
        with suppress(ProcessLookupError, PermissionError):  # a Mac forbids it where only zombies are left
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        os.close(self._held)
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


def watch(parent: int) -> None:
    """In a child that is a Python: end its process group soon after the parent has gone.

    It takes the GIL: a call that hangs with it puts the end off.
    """

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=look, daemon=True).start()
