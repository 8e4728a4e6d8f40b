"""Eight threads, four streams, the same buffers: no report, no deadlock, no leak, and never half a fill.

`make streams` runs it for a minute on a build with ThreadSanitizer.
"""

import gc
import os
import random
import threading
import time

import numpy as np
import pytest
from machine import SANITIZER

import metal_dlpack as md

pytestmark = pytest.mark.needs_softmetal
SECONDS = float(os.environ.get("METAL_DLPACK_SECONDS", "1" if SANITIZER else "0.5"))
THREADS, STREAMS, ITEMS = 8, 4, 2048
#: The fewest steps of each thread, however busy the machine is.
FEWEST_STEPS = 12


class Workers:
    """The shared arrays hold one value in all items whenever one looks: every write is a whole one, in some order."""

    def __init__(self):
        self.streams = [md.Stream() for _ in range(STREAMS)]
        modes = ("shared", "private", "shared", "managed", "private")
        self.shared = [md.zeros(ITEMS, storage=mode) for mode in modes]
        self.failures = []
        self.steps = [0] * THREADS
        self.end = time.monotonic() + SECONDS

    def step(self, choice, own):
        stream, array = choice.choice(self.streams), choice.choice(self.shared)
        what = choice.randrange(10)
        if what < 3:
            array.fill(choice.randint(0, 9), stream=stream)
        elif what < 5:
            other = choice.choice(self.shared)
            if other is not array:
                array.copy_from(other, stream=stream)
        elif what < 7:
            own.copy_from(array, stream=stream)
            seen = np.array(own)
            assert (seen == seen[0]).all(), seen
        elif what == 7:
            stream.wait(choice.choice((array, choice.choice(self.streams), stream.record())))
        elif what == 8:
            again = md.from_dlpack(array.__dlpack__(stream=stream), stream=stream)
            again.copy(stream=stream)
        else:
            choice.choice((stream.record().query, stream.synchronize, md.Stream().record, array.__metal_stream__))()

    def work(self, number):
        choice = random.Random(number)
        own = md.zeros(ITEMS)
        try:
            while (time.monotonic() < self.end or self.steps[number] < FEWEST_STEPS) and not self.failures:
                self.step(choice, own)
                self.steps[number] += 1
        except BaseException as failure:
            self.failures.append(failure)

    def run(self):
        threads = [threading.Thread(target=self.work, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS * 10 + 60)
            assert not thread.is_alive(), "a deadlock"
        if self.failures:
            raise self.failures[0]


@pytest.mark.parametrize("settings", [{}, {"seed": 7, "jitter_us": 100, "latency_us": 100}], ids=["plain", "shuffled"])
def test_threads_streams_and_shared_buffers(settings, live_buffers, metal_settings):
    metal_settings(**settings)
    workers = Workers()
    workers.run()
    assert min(workers.steps) >= FEWEST_STEPS, workers.steps
    for array in workers.shared:
        seen = np.array(array)
        assert (seen == seen[0]).all()
    del workers, array
    gc.collect()
    md.default_device().synchronize()
