"""The library's locks in C: a child that fork() makes at any moment finds them free.

That the thread that took a lock drops it is ThreadSanitizer's to say (make tsan).
"""

import os

import pytest
from children import output_of
from machine import SANITIZER

#: A fork is slow where each byte of memory has a shadow.
NFORKS = 100 if SANITIZER else 200
FORKS = """
import os
import signal
import sys
import threading
import warnings

import metal_dlpack as md

warnings.simplefilter("ignore")  # Python 3.12 and later say that threads are running: they are
is_over = threading.Event()


def work(stream):
    while not is_over.is_set():
        array = md.full(4096, 1.0)
        array.fill(2, stream=stream)
        md.from_dlpack(array, stream=stream)
        array.copy()
        array.__dlpack__()
        md.Stream()


def allocate():
    # Nothing fits beside what is cached: each allocation looks for the oldest, which takes long, under the lock.
    while not is_over.is_set():
        for size in range(100_000, 200_000, 20_000):
            md.Buffer(size)


def child(kept):
    signal.alarm(20)  # a lock that is never free ends the child
    kept.clear()
    try:
        md.zeros(4)
    except md.MetalError:
        os._exit(0)
    os._exit(1)


streams = [md.Stream() for _ in range(3)]
kept = [md.zeros(4096), md.Stream(), md.full(8, 1.0).__dlpack__()]
md.set_memory_limit(1_000_000)
threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
threads += [threading.Thread(target=allocate) for _ in range(3)]
for thread in threads:
    thread.start()
results = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        child(kept)
    results.append(os.waitpid(pid, 0)[1])
    if results[-1] != 0:
        break
is_over.set()
for thread in threads:
    thread.join()
assert not any(results), results
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.skipif("address" in SANITIZER, reason="AddressSanitizer's own locks stay taken in the child: forking.py")
def test_children_forked_while_other_threads_hold_locks_let_go_of_what_they_inherit():
    output_of(FORKS, NFORKS)
