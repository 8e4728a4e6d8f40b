"""One report of a program and of the processes that it starts.

The first process names a folder in the environment, and writes there what the others must know.  Each of them that
imports metal_dlpack leaves its report in it: when it ends, and before that as it runs, so that of one that is killed
there is what it had left, and that it was.  Files are replaced whole.  A process that ends after the first one leaves
nothing more.  One that gathers for itself has its folder in that of the one above: if it is killed, that reads both.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import threading
import time

from . import building, files, recording, silences

#: The environment variable that names the folder.
VARIABLE = "METAL_DLPACK_REPORTS"
_FACTS = "facts"
_PREFIX = "metal_dlpack-reports-"
#: How the file is called whose process has not left its report for the last time.
_BEGUN = ".begun"
#: A report is written again after so many times what writing it took; the second number, if a finding is new.
_PATIENCE, _PATIENCE_FOR_NEWS = 20, 1


class Gathering:
    """The reports of the processes that this one starts from now on."""

    def __init__(self) -> None:
        self._killed: list[int] = []
        self._running: list[int] = []
        self._above = os.environ.get(VARIABLE)
        above = self._above if _leaving is not None and os.path.isdir(self._above or "") else None
        self._folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=above)
        with open(os.path.join(self._folder, _FACTS), "w", encoding="utf-8") as file:
            json.dump([building.root(), silences.lists()], file)
        os.environ[VARIABLE] = self._folder

    def end(self) -> building.Report:
        """One report, of this process, which records nothing more, and of those that have left one."""
        whole = building.merged([_own(), *self._left()])
        self._killed = self._ended_too_early()
        self._running = self._still_running()
        self.close()
        if _leaving is not None:
            _leaving.leave(whole)
        return whole

    def killed_words(self) -> str:
        """After `end`: lines about processes whose last launches may be missing; "" for none."""
        words = (
            (self._killed, "ended by a signal", "what they launched last may not be in this report"),
            (self._running, "still ran at the end", "what they launch later is not in this report"),
        )
        return "".join(
            f"softmetal: {len(which)} of the program's processes {what} ({', '.join(map(str, which[:8]))}); {so}.\n"
            for which, what, so in words
            if which
        )

    def close(self) -> None:
        """Gather no more."""
        if os.environ.get(VARIABLE) == self._folder:
            os.environ.pop(VARIABLE)
            if self._above is not None:
                os.environ[VARIABLE] = self._above
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            path = os.path.join(self._folder, name)
            if not name.startswith(_PREFIX):
                with contextlib.suppress(FileNotFoundError):  # its process has ended now
                    os.unlink(path)
            elif _has_ended(_process_of(name.removeprefix(_PREFIX))):
                shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # a process that gathers below, or above, goes on
            os.rmdir(self._folder)
            if os.path.dirname(self._folder) == self._above:
                os.rmdir(self._above)

    def _ended_too_early(self) -> list[int]:
        ended = [path for path in self._files(_BEGUN) if _has_ended(_process_of(path))]
        # again: one may have left its report in the meantime
        return sorted({_process_of(path) for path in ended if os.path.exists(path)})

    def _still_running(self) -> list[int]:
        """Processes that have launched something, and go on."""
        begun = [path for path in self._files(_BEGUN) if os.path.exists(path.removesuffix(_BEGUN))]
        return sorted({_process_of(path) for path in begun} - set(self._killed))

    def _left(self) -> list[building.Report]:
        left = []
        for path in self._files(".json"):
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                left.append(json.load(file))  # of one that gathers in a folder below, and ends now, there is its own
        return left

    def _files(self, suffix: str) -> list[str]:
        """Also those that a process below gathers."""
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self._folder) for name in names)
        return sorted(path for path in found if path.endswith(suffix))


class _Leaving:
    """The report of this process, for the one that gathers."""

    def __init__(self, folder: str) -> None:
        with open(os.path.join(folder, _FACTS), encoding="utf-8") as file:
            root, lists = json.load(file)
        building.name_files_from(root)
        for text, where in lists:
            silences.read(text, where)
        self._path = os.path.join(folder, f"{os.getpid()}-{time.time_ns()}.json")
        self._begun = self._path + _BEGUN
        with open(self._begun, "x"):
            pass
        self._process = os.getpid()
        self._turn = threading.RLock()  # a signal's handler may leave it while it is left
        self._written, self._took = 0.0, 0.0  # when, and how long that took
        self._later: threading.Timer | None = None
        self._has_left = False

    def leave(self, whole: building.Report | None = None) -> None:
        """For the last time: this report, or the one of this process."""
        with self._turn:
            if not self._has_left and os.getpid() == self._process:
                self._write(whole or _own())
                self._has_left = True
                self.is_to_end()

    def is_to_end(self) -> None:
        """What it will have left then is whole."""
        with contextlib.suppress(OSError):  # who gathered has ended
            os.unlink(self._begun)

    def leave_at_times(self, is_news: bool) -> None:
        """While it runs.  recording.py calls it after each launch."""
        patience = _PATIENCE_FOR_NEWS if is_news else _PATIENCE
        too_early = self._written + patience * self._took - time.monotonic()
        if too_early > 0 or not self._turn.acquire(blocking=False):
            self._leave_later(max(too_early, self._took))
            return
        try:
            self.leave_so_far()
        finally:
            self._turn.release()

    def _leave_later(self, seconds: float) -> None:
        """No launch may follow: the process may wait, and be killed."""
        if self._later is None and os.getpid() == self._process:
            self._later = threading.Timer(seconds, self._leave_now)
            self._later.daemon = True
            with contextlib.suppress(RuntimeError):  # Python ends
                self._later.start()

    def _leave_now(self) -> None:
        with self._turn:
            self._later = None
            if not self._has_left:
                self.leave_so_far()

    def leave_so_far(self) -> None:
        with self._turn:
            begin = time.monotonic()
            self._write(building.build(recording.read()))
            self._written = time.monotonic()
            self._took = self._written - begin

    def _write(self, report: building.Report) -> None:
        if report["kernels"] or report["findings"]:
            try:
                os.stat(os.path.join(os.path.dirname(self._path), _FACTS))
                files.write(report, self._path)
            except OSError:
                self._has_left = True  # who gathered has ended, or the disk is full


_leaving: _Leaving | None = None


def begin() -> bool:
    """Leave the report of this process where the environment says; False: nobody gathers there."""
    global _leaving
    try:
        _leaving = _Leaving(os.environ[VARIABLE])
    except (OSError, ValueError):
        return False
    recording.start()
    recording.after_launch = _leaving.leave_at_times
    return True


def leave() -> None:
    """Leave the report of this process, if somebody gathers it, and record nothing more."""
    if _leaving is not None:
        _leaving.leave()


def leave_so_far() -> None:
    """The same before another program takes the place of this one, and go on recording: it may fail."""
    if _leaving is not None:
        _leaving.leave_so_far()
        _leaving.is_to_end()


def _process_of(path: str) -> int:
    return int(os.path.basename(path).split("-")[0])


def _has_ended(process: int) -> bool:
    """Also if nobody has waited for it."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2].startswith(("Z", "X"))
    except OSError:
        return True


def _own() -> building.Report:
    recording.stop()
    return building.build(recording.read())
