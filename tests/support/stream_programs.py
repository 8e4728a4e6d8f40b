"""Random programs over streams, threads and buffers, and what they must come to: each step after the one before.

    python tests/support/stream_programs.py [COUNT] [FIRST]     programs FIRST, FIRST + 1, ...; make streams runs 10,000

A program is a number: it seeds the steps and the order in which the software Metal does what Metal leaves open.  Its
steps are taken in turn by several threads, on several streams or none; the GPU does them when it likes.
"""

import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("SOFTMETAL_VALIDATION", "1")

import numpy as np

import metal_dlpack as md
import softmetal

LENGTHS = (1, 3, 8, 64, 257, 1024, 4096)
MODES = ("shared", "shared", "private", "managed")


class Program:
    """The arrays, and beside each what it must hold."""

    def __init__(self, number: int, steps: int = 30, threads: int = 3):
        self.random = random.Random(number)
        self.steps = steps
        self.threads = threads
        self.streams = [md.Stream() for _ in range(self.random.randint(1, 4))]
        self.arrays, self.wanted = [], []
        for _ in range(self.random.randint(2, 5)):
            self.add_array()
        self.kept = []

    def add_array(self):
        dtype = self.random.choice(("uint8", "int16", "float32", "float64"))
        shape = (self.random.choice(LENGTHS),) if self.random.random() < 0.7 else (self.random.randint(1, 9), 16)
        self.arrays.append(md.zeros(shape, dtype, storage=self.random.choice(MODES)))
        self.wanted.append(np.zeros(shape, dtype))

    def pick_index(self):
        return self.random.randrange(len(self.arrays))

    def pick(self):
        index = self.pick_index()
        return self.arrays[index], self.wanted[index]

    def pick_stream(self):
        return None if self.random.random() < 0.2 else self.random.choice(self.streams)

    # ---- the steps ----

    def copy(self):
        """Part of one array into part of another of the same type."""
        (dst, dst_wanted), (src, src_wanted) = self.pick(), self.pick()
        if dst.dtype is not src.dtype or dst.ndim != src.ndim:
            self.fill()
            return
        count = self.random.randint(1, min(dst.shape[0], src.shape[0]))
        to, start = (self.random.randint(0, array.shape[0] - count) for array in (dst, src))
        if self.random.random() < 0.5:  # whole words, which the GPU can copy
            count, to, start = max(1, count // 8 * 8), to // 8 * 8, start // 8 * 8
        if dst.ndim == 2:
            width = self.random.choice((4, 8, 16))
            there, here = (slice(to, to + count), slice(0, width)), (slice(start, start + count), slice(0, width))
        else:
            there, here = slice(to, to + count), slice(start, start + count)
        taken = src_wanted[here].copy()
        if taken.shape != dst_wanted[there].shape:
            self.fill()
            return
        stream = self.pick_stream()
        if self.random.random() < 0.5:
            dst[there].copy_from(src[here], stream=stream)
        else:
            src[here].copy_to(dst[there], stream=stream)
        dst_wanted[there] = taken

    def fill(self):
        array, wanted = self.pick()
        value = self.random.randint(0, 100)
        with self.random.choice(self.streams):
            array.fill(value)
        wanted[...] = value

    def upload(self):
        """CPU memory that is changed as soon as the call returns."""
        array, wanted = self.pick()
        memory = np.array(
            np.random.default_rng(self.random.randrange(2**32)).integers(0, 100, wanted.shape), wanted.dtype
        )
        wanted[...] = memory
        array.copy_from(memory, stream=self.pick_stream())
        memory[...] = 255

    def write(self):
        array, wanted = self.pick()
        index = self.random.randrange(array.shape[0])
        array[index] = wanted[index] = self.random.randint(0, 100)

    def write_through_a_view(self):
        """A view that stays out: the package is not told when something is written through it."""
        array, wanted = self.pick()
        if array.storage == "private":
            self.write()
            return
        view = np.asarray(array)
        self.kept.append(view)
        view[-1] = wanted[-1] = self.random.randint(0, 100)

    def look(self):
        array, wanted = self.pick()
        assert np.array_equal(np.asarray(array), wanted)

    def export(self):
        array, wanted = self.pick()
        stream = self.random.choice((None, self.random.choice(self.streams)))
        again = md.from_dlpack(array.__dlpack__(stream=stream), stream=stream)
        again.fill(3, stream=stream)
        wanted[...] = 3

    def copied(self):
        """A fresh array, of which the old one may be dropped at once."""
        index = self.pick_index()
        mode = self.random.choice(MODES)
        self.arrays[index] = self.arrays[index].copy(storage=mode, stream=self.pick_stream())

    def wait(self):
        one, two = self.random.choice(self.streams), self.random.choice(self.streams)
        what = self.random.choice((one, self.pick()[0], one.record()))
        two.wait(what)

    def renew(self):
        """Whatever is in flight, the old array goes."""
        index = self.random.randrange(len(self.arrays))
        del self.arrays[index], self.wanted[index]
        self.add_array()

    # ---- running ----

    def table(self):
        table = [self.copy] * 8 + [self.fill, self.upload] * 2 + [self.write, self.look, self.export, self.copied]
        table += [self.write_through_a_view]
        return [*table, self.wait, self.renew]

    def settle(self):
        """Before the end: nobody else works on the arrays."""

    def take_steps(self):
        table = self.table()
        for _ in range(self.steps):
            yield self.random.choice(table)

    def run(self):
        steps = self.take_steps()
        turns = threading.Lock()

        def work(_):
            while True:
                with turns:
                    step = next(steps, None)
                    if step is None:
                        return
                    try:
                        step()
                    except BaseException:
                        steps.close()  # for the other threads, too
                        raise

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(work, range(self.threads)))
        self.settle()
        for array, wanted in zip(self.arrays, self.wanted, strict=True):
            assert np.array_equal(np.asarray(array), wanted), (array, wanted)


def run(number: int, kind: type[Program] = Program) -> None:
    """One program, under the orders that its number stands for."""
    choice = random.Random(~number)
    softmetal.configure(
        seed=choice.choice((0, number + 1, "last")),
        wait_scope=choice.choice(("queue", "commands")),
        latency_us=choice.choice((0, 0, 50, 300)),
        jitter_us=choice.choice((0, 50)),
    )
    try:
        kind(number).run()
    except BaseException as failure:
        raise AssertionError(f"program {number}") from failure
    finally:
        softmetal.configure(seed=None, latency_us=None, jitter_us=None, wait_scope=None)


def main(kind: type[Program] = Program):
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for number in range(first, first + count):
        run(number, kind)
        if softmetal.reports():
            sys.exit(f"program {number}: {softmetal.last_report()}")
    print(f"{count} programs equal their sequential result; the validator is silent")


if __name__ == "__main__":
    main()
