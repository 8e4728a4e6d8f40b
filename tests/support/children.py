"""A Python of its own for a test, which imports what tests/support has."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from places import python_path


def run_child(what, *arguments, options=(), cwd=None, timeout=240, check=False, **environment):
    """Run code (a text), a file (a Path) or words such as ["-m", "module"].

    Keywords are variables of the environment; None takes one away.
    """
    if isinstance(what, str):
        what = ["-c", textwrap.dedent(what)]
    program = [what] if isinstance(what, Path) else what
    given = {**os.environ, "PYTHONPATH": python_path(), **environment}
    return subprocess.run(
        [sys.executable, *options, *program, *map(str, arguments)],
        env={name: text for name, text in given.items() if text is not None},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=check,
    )


#: What the first program of a machine says that uses torch's mps; which of the tests that is depends on their order.
COMPILING = re.compile(r"metal_dlpack: compiling torch's mps device .*, once\nmetal_dlpack: done in \d+ s\n")


def output_of(what, *arguments, **keywords):
    """What it prints; it must end well, and say nothing on stderr."""
    done = run_child(what, *arguments, **keywords)
    assert (done.returncode, COMPILING.sub("", done.stderr)) == (0, ""), done.stdout + done.stderr
    return done.stdout


def is_running(pid):
    """Whether a process of Linux is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
