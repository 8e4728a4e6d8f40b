"""pytest, imported once and forked for each run: it begins in a tenth of a second instead of in several.

It reads requests from stdin, a line of JSON each, and answers how the run ended: the exit code, minus the signal, or
null where nothing was written for too long.  The module under test is not imported before the fork, so each run loads
the one that lies there then.
"""

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path


def load() -> None:
    """What the tests import, but for the module that is tested and what starts threads."""
    import _pytest.assertion.rewrite  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import pytest  # noqa: F401

    with contextlib.suppress(ImportError):
        import torch  # noqa: F401


class Pick:
    """A plugin: of what is collected, the tests that are asked for."""

    def __init__(self, names: set[str]):
        self.names = names

    def pytest_collection_modifyitems(self, config, items):
        items[:] = [item for item in items if item.nodeid in self.names]


def run_tests(request: dict) -> None:
    """In the child: never returns."""
    import pytest

    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    sys.path.insert(0, os.getcwd())  # as `python -m pytest` does: children that tests spawn import them
    names = request["tests"]
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long", *request["options"]]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what load() has imported
    code = 3
    try:
        code = pytest.main([*options, *files], plugins=[Pick(set(names))])
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def wait_for(child: int, output: Path, seconds: float) -> int | None:
    """How it ended, as os.waitstatus_to_exitcode has it; None: it wrote nothing for so long."""
    written, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        size = output.stat().st_size if output.exists() else 0
        if size != written:
            written, deadline = size, time.monotonic() + seconds
        time.sleep(0.01)
    return None


def serve(request: dict) -> int | None:
    output = Path(request["output"])
    output.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        run_tests(request)
    code = wait_for(child, output, request["seconds"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with what a test left behind
    if code is None:
        os.waitpid(child, 0)
    return code


def main() -> None:
    load()
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
