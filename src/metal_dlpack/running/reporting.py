"""The report of a program: begun before it runs, printed and written when its process ends, however that is.

It is made behind the program's own exit handlers.  A process that is killed, or ends by a fault, makes none; what was
found stands on stderr since it was found.  A forked child makes none either: kernels do not run there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from metal_dlpack import _core, report
from metal_dlpack.report import files, silences

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

#: So long the end waits for kernels that still run.
IDLE_MS = 10_000


class Reporting:
    """Of this process; there is one."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = [os.path.abspath(path) for path in paths]  # the program may go to another folder
        self.status = 0  # the program's own
        self._process = os.getpid()
        self._has_ended = False

    def begin(self) -> None:
        """From now on what runs is recorded.  Call it before the program registers exit handlers: they run before."""
        report.start()
        atexit.register(self._at_exit)
        leave = os._exit

        def end_at_once(status: int) -> NoReturn:
            found = self.end()
            leave(status or found)

        os._exit = end_at_once

    def _at_exit(self) -> None:
        status = self.end()
        if status and not self.status:
            _core._softmetal_exit_with(status)

    def end(self) -> int:
        """Print and write the report, once; 1 if something was found, or it could not be written."""
        if self._has_ended or os.getpid() != self._process:
            return 0
        self._has_ended = True
        _core._softmetal_wait_idle(IDLE_MS)
        words, is_bad = report.ended(report.end(), self.paths)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):  # there is none, or it is closed
                stream.flush()  # what the program printed stands above
        # Also where the program has replaced sys.stderr.
        with contextlib.suppress(OSError), open(2, "wb", closefd=False) as stderr:
            stderr.write(words.encode(errors="backslashreplace"))
        return int(is_bad)


def refusal(paths: Iterable[str], benign: Iterable[str]) -> str | None:
    """Why these options cannot be carried out; None: they can, and the lists of silences are read."""
    for path in paths:
        if (why := files.refusal(path)) is not None:
            return f"--report: {why}"
    for path in benign:
        try:
            with open(path, encoding="utf-8") as file:
                silences.read(file.read(), path)
        except (OSError, UnicodeDecodeError) as error:
            return f"--benign: {path} cannot be read: {getattr(error, 'strerror', None) or error}."
        except ValueError as error:
            return f"--benign: {error}"
    return None
