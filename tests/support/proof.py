"""Proof that memory is shared, and what a process says and holds: for the questions of tests/mac."""

import ctypes
import os
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from machine import IS_MAC


def prove_shared(what, write, read):
    """A write on one side is seen on the other, twice: whatever was there before is told from it."""
    for value in (5, 7):
        write(value)
        seen = read()
        assert seen == value, f"{what}: {value} was written, and the other side reads {seen}: not the same memory"
    print(f"{what}: shared, a write is seen on the other side", flush=True)


def attempt(what, call):
    """Print what came of it, for a person to judge.  It proves nothing."""
    try:
        print(f"{what}: {call()}", flush=True)
    except Exception as error:
        print(f"{what}: {type(error).__name__}: {error}", flush=True)


@contextmanager
def stderr_lines():
    """A list that has, after the block, all that this process wrote to its stderr: the runtime's words too."""
    lines = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()


def missing_pools(lines):
    return [line for line in lines if "MISSING POOLS" in line]


def leaks_counted(text):
    """How many Apple's `leaks` has found.  None: it could not look, as into a process that is signed as hardened."""
    found = re.search(r"^Process \d+: (\d+) leaks? for \d+ total leaked bytes", text, re.MULTILINE)
    return found and int(found[1])


def footprint():
    """The bytes of memory that this process has, as Activity Monitor counts them."""
    if not IS_MAC:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    usage = (ctypes.c_uint64 * 64)()  # SPEC sys/resource.h rusage_info_v0: ri_phys_footprint is its tenth word
    assert ctypes.CDLL(None).proc_pid_rusage(os.getpid(), 0, usage) == 0
    return usage[9]
