"""Random programs of streams beside a model of who waits for whom: each wait that it predicts is recorded, and no other.

The GPU is held back while a program is submitted, so that nothing is finished early and every wait is one.
"""

import random

import pytest
from held_work import held

import metal_dlpack as md
from metal_dlpack.timelines.records import Wait, Work

pytestmark = pytest.mark.needs_softmetal
SOURCE = """
kernel void add(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] += x[i]; }
"""
LENGTHS = (1, 7, 64, 1000)


class Model:
    """Keeps each array's last piece that writes it and the reads since, as (stream, its piece); each piece's waits."""

    def __init__(self, arrays, streams):
        self.write = dict.fromkeys(range(arrays))
        self.reads = {array: {} for array in range(arrays)}
        self.done = dict.fromkeys(range(streams), 0)  # pieces of each stream so far
        self.waits = {}  # piece -> what it waits for
        self.moved = 0
        self.kinds = {}

    def marks(self, array, stream, is_written):
        found = [self.write[array]] if self.write[array] else []
        found += self.reads[array].values() if is_written else []
        return {piece for piece in found if piece[0] != stream}

    def piece(self, kind, stream, reads=(), writes=(), also=()):
        waits = set(also)
        for array in (*reads, *writes):
            waits |= self.marks(array, stream, array in writes)
        self.done[stream] += 1
        piece = (stream, self.done[stream])
        self.waits[piece], self.kinds[piece] = waits, kind
        for array in reads:
            self.reads[array][stream] = piece
        for array in writes:
            self.write[array], self.reads[array] = piece, {}
        return piece


class Program:
    def __init__(self, number):
        self.random = random.Random(number)
        self.streams = [md.Stream(label=f"q{index}") for index in range(self.random.randint(1, 4))]
        self.length = self.random.choice(LENGTHS)
        count = self.random.randint(1, 5)
        modes = ("shared", "shared", "private", "managed")
        self.arrays = [md.zeros(self.length, storage=self.random.choice(modes)) for _ in range(count)]
        self.add = md.kernel(SOURCE)
        md.default_device().synchronize()
        self.model = Model(count, len(self.streams))

    def run(self, steps):
        choose, model = self.random, self.model
        for index in range(len(self.streams)):  # the gate's own piece of `held`
            model.piece("wait", index)
        for _ in range(steps):
            stream = choose.randrange(len(self.streams))
            one, two = choose.randrange(len(self.arrays)), choose.randrange(len(self.arrays))
            queue, target, source = self.streams[stream], self.arrays[one], self.arrays[two]
            step = choose.choice(("copy", "copy", "fill", "kernel", "kernel", "array", "stream", "record"))
            if step == "copy" and one != two:
                target.copy_from(source, stream=queue)
                model.piece("copy", stream, [two], [one])
                model.moved += target.nbytes
            elif step == "fill":
                target.fill(choose.randint(0, 9), stream=queue)
                model.piece("fill", stream, [], [one])
                model.moved += target.nbytes
            elif step == "kernel" and one != two:
                self.add(source, target, n=self.length, stream=queue)
                model.piece("kernel", stream, [two], [one])
            elif step == "array":
                queue.wait(target)
                if model.marks(one, stream, True):
                    model.piece("wait", stream, [], [one])
            elif step == "stream":
                other = choose.randrange(len(self.streams))
                queue.wait(self.streams[other])
                if other != stream:
                    model.piece("wait", stream, also=[model.piece("mark", other)])
            elif step == "record":
                queue.record()
                model.piece("mark", stream)


def numbered(timeline):
    """Number each queue's pieces: (queue, n) of the model."""
    pieces, counts = {}, {}
    for work in sorted(timeline.work, key=lambda work: work.number):
        if work.queue:
            counts[work.queue] = counts.get(work.queue, 0) + 1
            pieces[work.number] = (int(work.queue[1:]), counts[work.queue])
    return pieces


def check(number, steps):
    program = Program(number)
    with md.timeline() as timeline:
        with held(*program.streams):
            program.run(steps)
        for stream in program.streams:
            stream.synchronize()
    model, pieces = program.model, numbered(timeline)
    found = {piece: set() for piece in model.waits}
    works = {pieces[work.number]: work for work in timeline.work if work.queue}
    for wait in timeline.waits:
        if wait.waiter is not None and wait.awaited is not None:
            found[pieces[wait.waiter.number]].add(pieces[wait.awaited.number])
    assert found == model.waits
    assert {piece: works[piece].kind for piece in model.kinds} == model.kinds
    assert sum(work.nbytes for work in timeline.work) == model.moved
    check_order(model, works)
    check_waits(timeline)
    assert timeline.lost == 0


def check_order(model, works):
    """Whatever a piece waits for has ended before it starts; pieces of one queue are in order."""
    for piece, waits in model.waits.items():
        stream, place = piece
        before = [(stream, place - 1)] if place > 1 else []
        for earlier in (*waits, *before):
            assert works[earlier].ended <= works[piece].started, (earlier, piece)
        assert works[piece].submitted <= works[piece].started <= works[piece].ended


def check_waits(timeline):
    for wait in timeline.waits:
        assert isinstance(wait, Wait)
        assert wait.ended >= wait.started
        if wait.awaited is not None:
            assert isinstance(wait.awaited, Work)
            assert wait.ended >= wait.awaited.ended or wait.waiter is None


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.long)])
def test_the_waits_and_their_order_are_the_models(first, settings):
    for number in range(first, first + (100 if first == 0 else 900)):
        chosen = random.Random(~number)
        settings(wait_scope=chosen.choice(("queue", "commands")), seed=chosen.choice((0, number + 1)))
        try:
            check(number, steps=20)
        except BaseException as failure:
            raise AssertionError(f"program {number}") from failure
