"""A compiler as a child process: what it is given, how long it may take, and what this process lends it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator

from metal_dlpack.language.errors import CompilerError

from .flags import EMPTY

#: A template may ask for any amount of work.
SECONDS = 120


def run(command: list[str], text: str, *, seconds: float = SECONDS) -> tuple[int, str, str]:
    """Run a compiler on a text; return its exit code, output and errors.  Raises CompilerError if it cannot run.

    What it starts ends with it, also when it takes too long, or this process is interrupted or killed.
    """
    with started(command, text, seconds=seconds) as ended:
        return ended()


@contextlib.contextmanager
def started(command: list[str], text: str, *, seconds: float = SECONDS) -> Iterator[Callable[[], tuple[int, str, str]]]:
    """Run a compiler beside the block, which is given a call that waits for it and returns what `run` does."""
    from dlpack_conformance.tied_process import TiedProcess  # takes a while, and many a kernel is not compiled

    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape", newline="") as source:
        source.write(text)
        source.seek(0)
        try:
            child = TiedProcess(
                command,
                stdin=source,  # no pipe: the block need not feed it
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="surrogateescape",
                cwd=EMPTY,  # where a source in quotes is looked for: the user's folder has no part in it, as with Metal
                env=_environment(),
            )
        except OSError as error:
            raise CompilerError(f"{shlex.join(command[:1])} does not start: {error.strerror}.") from error

        def ended() -> tuple[int, str, str]:
            try:
                output, errors = child.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise CompilerError(
                    f"The kernel compiler ({shlex.join(command[:1])}) was stopped: it took longer than {seconds:g} s."
                ) from error
            return child.returncode, output, errors

        try:
            yield ended
        finally:
            child.end()


def _environment() -> dict[str, str]:
    """Nothing that changes what clang does (CPATH, LD_PRELOAD, CCC_OVERRIDE_OPTIONS); the language is English."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def loaded_libraries() -> list[str]:
    """Return the paths of the C library, of its mathematics, and of the compiler's own, if this process has them."""
    try:
        with open("/proc/self/maps", "rb") as file:
            text = os.fsdecode(file.read())  # paths of all that is loaded, some perhaps no UTF-8
    except OSError:
        return []
    names = r"(?:libm|libc|libgcc_s)[-.][\w.-]*|(?:ld-)?libc?-?musl[\w.-]*|ld-musl[\w.-]*"
    return list(dict.fromkeys(re.findall(rf" (/\S*/(?:{names}))$", text, re.MULTILINE)))
