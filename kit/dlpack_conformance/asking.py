"""A library is asked in a child process, which answers in lines of JSON: what ends or hangs the child costs one answer.

The parent has a `Child`; the child's `main` prints with what `take_stdout` returns.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import Any, TextIO

from .tied_process import TiedProcess, watch

#: A library may be imported for the first time, on a slow disk.
IMPORT_TIMEOUT_S = 240.0
#: What a child answers: a name and what belongs to it.
Answer = list[Any]


class Child:
    """A process that runs `main` of a module; it imports what this process would.  On leaving the context it is ended,
    with all that it started."""

    def __init__(self, module: str, *arguments: str) -> None:
        code = f"import sys; from {module} import main; main(*sys.argv[1:])"
        if sys.platform != "linux":
            code = f"from {watch.__module__} import watch; watch({os.getpid()}); {code}"
        paths = [path or os.getcwd() for path in sys.path]
        self.end = ""  #: how it ended, once there is no answer
        self._rest = b""
        with ExitStack() as opened:  # closed at once if no process can be started
            self._errors = opened.enter_context(tempfile.TemporaryFile())
            self._process = TiedProcess(
                [sys.executable, "-c", code, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={"JAX_PLATFORMS": "cpu", **os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
            opened.pop_all()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.end()
        self._errors.close()

    def answer(self, patience_s: float | None = None) -> Answer | None:
        """The next answer; None if there is none for too long, or the child has ended: then `end` says which."""
        patience_s = IMPORT_TIMEOUT_S if patience_s is None else patience_s
        while True:
            line, newline, rest = self._rest.partition(b"\n")
            if not newline:
                if not self._read(patience_s):
                    return None
                continue
            self._rest = rest
            if answer := read_answer(line):
                return answer

    def last_words(self) -> str:
        """The last line of what it printed on stderr."""
        self._errors.seek(0)
        return (self._errors.read().decode(errors="replace").strip().splitlines() or [""])[-1]

    def _read(self, patience_s: float) -> bool:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            is_ready = bool(selector.select(patience_s))
        piece = os.read(self._process.stdout.fileno(), 1 << 16) if is_ready else b""
        self._rest += piece
        if piece:
            return True
        try:  # a process that closes its stdout may live on, and others may hold it when it has ended
            self.end = how_it_ended(self._process.wait(patience_s if is_ready else 0))
        except subprocess.TimeoutExpired:
            self.end = f"no answer within {patience_s:g} s"
        return False


def read_answer(line: bytes) -> Answer | None:
    """None for what was printed while Python started."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, list) and answer and isinstance(answer[0], str) else None


def how_it_ended(status: int) -> str:
    if status >= 0:
        return f"the process ended with code {status}"
    try:
        return f"the process died of {signal.Signals(-status).name}"
    except ValueError:
        return f"the process died of {-status}"


# ---- in the child ----


def take_stdout() -> TextIO:
    """In the child: a file for the answers.  From here on, what a framework prints goes to stderr.

    Processes that the framework starts do not inherit the file, so the parent sees the end when the child ends.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def print_answer(answers: TextIO, *answer: Any) -> None:
    print(json.dumps(answer), file=answers, flush=True)
