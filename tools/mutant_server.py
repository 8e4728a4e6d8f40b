"""pytest, imported once and forked for each run: it begins in a tenth of a second instead of in several.

    mutant_server.py         reads requests, a line of JSON each; answers each with a line of JSON

The module under test is not imported before the fork, so each run loads the one that lies there then.
"""

import contextlib
import json
import os
import signal
import sys
import time
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
    names = request["tests"]
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not long"]
    code = 3
    try:
        code = pytest.main([*options, *files], plugins=[Pick(set(names))])
        sys.stdout.flush()
    finally:
        os._exit(code)


def wait_for(child: int, seconds: float) -> int | None:
    """How it ended, as os.waitstatus_to_exitcode has it; None: not in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def serve(request: dict) -> int | None:
    child = os.fork()
    if child == 0:
        os.setsid()
        run_tests(request)
    code = wait_for(child, request["seconds"])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with what a test left behind
    if code is None:
        os.waitpid(child, 0)
    return code


def main() -> None:
    load()
    for line in sys.stdin:
        request = json.loads(line)
        Path(request["output"]).unlink(missing_ok=True)
        print(json.dumps(serve(request)), flush=True)


if __name__ == "__main__":
    main()
