"""The report of a program: begun before it runs, printed and written when its process ends, however that is.

It is made behind the program's own exit handlers.  A process that is killed, or ends by a fault, makes none; what was
found stands on stderr since it was found.  The processes that it starts leave theirs to it; a forked child has none:
kernels do not run there.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import sys
import threading

from metal_dlpack import _core
from softmetal import controls, report
from softmetal.report import files, processes, silences

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

#: So long the end waits for kernels that still run.
IDLE_MS = 10_000


class Ending:
    """What is done when this process ends, once."""

    def __init__(self) -> None:
        self.status = 0  # the program's own
        self._process = os.getpid()
        self._has_ended = self._has_finished = False

    def begin(self) -> None:
        """Call it before the program registers exit handlers: they run before.

        Also where the process is told to end, by whoever limits its time or by a pool of multiprocessing.
        """
        atexit.register(self._at_exit)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)
        leave = os._exit

        def end_at_once(status: int) -> NoReturn:
            found = self.end()
            leave(status or found)

        os._exit = end_at_once
        for name in ("execv", "execve"):  # all others call one of these
            setattr(os, name, functools.partial(self._exec, getattr(os, name)))

    def _exec(self, usual: Callable[..., NoReturn], *arguments: Any) -> NoReturn:
        if not self._has_ended and os.getpid() == self._process:
            self.before_exec(*arguments)
        usual(*arguments)

    def _at_exit(self) -> None:
        status = self.end()
        if status and not self.status:
            _core._softmetal_exit_with(status)

    def end(self, idle_ms: int = IDLE_MS) -> int:
        """The status that the process ends with, if its own is 0."""
        if self._has_ended or os.getpid() != self._process:
            return 0
        self._has_ended = True
        try:
            return self.finish(controls.wait_idle(idle_ms / 1000))
        finally:
            self._has_finished = True

    def finish(self, is_idle: bool) -> int:
        """What is done; not `is_idle`: kernels still run."""
        raise NotImplementedError

    def before_exec(self, path: Any, words: Any, environment: Any = None) -> None:
        """Another program is to take the place of this one; if it cannot, this one goes on."""
        raise NotImplementedError

    def _terminate(self, number: int, _: object) -> None:
        if self._has_ended and not self._has_finished:  # a pool tells a worker that ends already, and does so twice
            return
        self.end(idle_ms=100)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class Reporting(Ending):
    """Print and write the report of this process and of those that it starts; there is one."""

    def __init__(self, paths: Iterable[str], is_strict: bool = False) -> None:
        super().__init__()
        self.is_strict = is_strict  # a run without a kernel has failed
        self.paths = [os.path.abspath(path) for path in paths]  # the program may go to another folder

    def begin(self) -> None:
        """From now on what runs is recorded."""
        report.start()
        self._gathering = processes.Gathering()
        super().begin()

    def finish(self, is_idle: bool) -> int:
        """1 if something was found, was not looked at, or could not be written; 2 if there was nothing to look at."""
        whole = self._gathering.end()
        words, is_bad = report.ended(whole, self.paths)
        words = self._gathering.killed_words() + words
        if not is_idle:
            words = "softmetal: kernels still ran at the end; what they did is not in this report.\n" + words
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):  # there is none, or it is closed
                stream.flush()  # what the program printed stands above
        # Also where the program has replaced sys.stderr.
        with contextlib.suppress(OSError), open(2, "wb", closefd=False) as stderr:
            stderr.write(words.encode(errors="backslashreplace"))
        if is_bad or not is_idle:
            return 1
        return 2 if self.is_strict and not whole["kernels"] else 0

    def before_exec(self, path: Any, words: Any, environment: Any = None) -> NoReturn:
        """Let it run as a child, whose findings count, and end as it does."""
        path = f"/proc/self/fd/{path}" if isinstance(path, int) else path
        process = os.posix_spawn(path, words, os.environ if environment is None else environment)
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
            signal.signal(signal.SIGTERM, lambda number, _: os.kill(process, number))
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        os._exit(status if status >= 0 else 128 - status)


class Child(Ending):
    """Leave the report of this process to the one that gathers."""

    def finish(self, is_idle: bool) -> int:
        """0: the other says what was found."""
        processes.leave()
        return 0

    def before_exec(self, path: Any, words: Any, environment: Any = None) -> None:
        controls.wait_idle(IDLE_MS / 1000)
        processes.leave_so_far()


def begin_as_child() -> None:
    """In a process that has processes.VARIABLE."""
    is_main = _core._softmetal_torch is not None  # of a sub-interpreter the main one's report has all
    if is_main and processes.begin():
        Child().begin()


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
