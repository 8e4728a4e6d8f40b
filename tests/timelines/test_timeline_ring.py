"""What timeline.c keeps: records, queues and the caller's notes, however timelines open, close and fill up."""

import itertools
import random
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from eventually import PATIENCE
from held_work import held

import metal_dlpack as md
from metal_dlpack import _core, timing
from metal_dlpack.timelines import records
from metal_dlpack.timelines.records import Wait, Work

pytestmark = pytest.mark.needs_softmetal


class Opened:
    """One opening: its numbers, as they should be, and what `_core` gave."""

    def __init__(self, made, core):
        self.first, self.end, self.core = made, None, core


class Model:
    """A list of what is kept, the oldest first.  A ring keeps at least as many as the longest that was asked for."""

    def __init__(self):
        self.capacity, self.kept, self.made, self.opened = 0, [], 0, []

    def open(self, capacity):
        self.capacity = max(self.capacity, capacity)
        self.opened.append(Opened(self.made, _core._timeline_open(capacity, ())))

    def record(self, is_dropped):
        if any(one.end is None for one in self.opened):
            self.kept = [*self.kept, None if is_dropped else self.made][-self.capacity :]
            self.made += 1

    def forget(self, one):
        self.opened.remove(one)
        if not self.opened:
            self.capacity, self.kept = 0, []

    def seen(self, one):
        """The numbers, and how many are lost."""
        end = self.made if one.end is None else one.end
        oldest = self.made - len(self.kept)
        numbers = [number for number in self.kept if number is not None and one.first <= number < end]
        return numbers, max(0, min(end, oldest) - one.first)


def run(choose, settings, array, stream):
    model, offset = Model(), None

    def check(one):
        nonlocal offset
        found, lost = _core._timeline_read(one.core)
        numbers, expected_lost = model.seen(one)
        found = [records.raw_of(fields).number for fields in found]
        if offset is None and found:
            offset = found[0] - numbers[0]
        assert ([number - offset for number in found], lost) == (numbers, expected_lost)

    for _ in range(40):
        step = choose.choice(("open", "work", "work", "work", "drop", "close", "forget", "check"))
        one = choose.choice(model.opened) if model.opened else None
        if step == "open" and len(model.opened) < 4:
            model.open(choose.choice((1, 2, 3, 5, 8, 13)))
        elif step == "work":
            for _ in range(choose.randint(1, 4)):
                array.fill(1, stream=stream)
                model.record(False)
        elif step == "drop":
            settings(fail="encoder@1")
            with pytest.raises(md.MetalError):
                array.fill(1, stream=stream)
            model.record(True)
        elif step == "close" and one is not None:
            assert _core._timeline_close(one.core) == (one.end is None)  # once more changes nothing
            one.end = model.made if one.end is None else one.end
        elif step == "forget" and one is not None:  # also while it is open
            model.forget(one)
            del one.core
        elif step == "check":
            for one in model.opened:
                check(one)
    for one in model.opened:
        check(one)


def test_what_is_kept_and_lost_is_the_models(settings):
    array, stream = md.zeros(10), md.Stream()
    for number in range(200):
        try:
            run(random.Random(number), settings, array, stream)
        except BaseException as failure:
            raise AssertionError(f"program {number}") from failure


@pytest.mark.needs_glibc
@pytest.mark.needs_no_sanitizer
def test_rings_are_freed():
    def nbytes():  # of addresses: a ring that nobody writes has no memory
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    before = nbytes()
    # The longer one takes the place of the shorter one; both are dropped while they record.
    opened = [_core._timeline_open(capacity, ()) for capacity in (1 << 20, 1 << 21)]
    del opened
    assert nbytes() - before < 100 << 20  # each has more


def test_a_timeline_that_is_closed_learns_no_more_lines():
    array = md.zeros(10)
    with md.timeline() as t:
        array.copy()
    places = _core._timeline_places()
    array.copy()
    assert _core._timeline_places() == places
    assert len(t.work) == 1


def test_what_began_in_another_timeline_is_not_in_it():
    long, is_over = md.zeros(1 << 20), threading.Event()
    made = []
    copies = threading.Thread(target=lambda: [made.append(long.copy() is None) for _ in iter(is_over.is_set, True)])
    copies.start()
    begins, crossed, end = [], 0, time.monotonic() + PATIENCE
    while not (begins and crossed) and time.monotonic() < end:
        with md.timeline():  # a copy begins here, and ends in the next one
            time.sleep(0.005)
        with md.timeline() as t:
            enough = len(made) + 2  # one of them begins here and ends here
            while len(made) < enough:
                time.sleep(0.001)
        kept, _ = _core._timeline_read(t._opening)
        crossed += sum(records.raw_of(fields).submitted < t._began for fields in kept)
        begins += [event.started for event in t.events]
    is_over.set()
    copies.join()
    assert begins
    assert crossed
    assert min(begins) >= 0


def test_work_that_ends_later_touches_no_record_but_its_own(scale, monkeypatch):
    monkeypatch.setattr(timing, "PATIENCE", 0)
    one, two, array = md.Stream(), md.Stream(), md.zeros(10)
    with held(two):
        with held(one):
            with md.timeline(capacity=1) as gone:
                array.fill(1, stream=one)
            del gone  # its ring is freed, and the next one's only place is that of the fill
            with md.timeline(capacity=1) as t:
                scale(md.zeros(10), 2.0, n=10, stream=two)
        one.synchronize()
        assert [(work.kind, work.ended) for work in t.work] == [("kernel", None)]
    two.synchronize()
    assert [work.seconds > 0 for work in t.work] == [True]


def test_more_queues_than_labels_are_kept_for():
    array = md.zeros(10)
    with md.timeline() as t:
        streams = [md.Stream(label=f"q{number}") for number in range(260)]
        for stream in streams[:1] * 300 + streams * 2:
            array.fill(1, stream=stream)
    queues = [work.queue for work in sorted(t.work, key=lambda work: work.number)][300:]
    assert queues[:256] == [f"q{number}" for number in range(256)]
    assert queues[260:] == queues[:260]
    assert len(set(queues)) == 260


def test_a_long_name_ends_where_there_is_no_more_room():
    name = "k" * 40 + "end"
    kernel = md.kernel(f"kernel void {name}(device float *x, uint i [[thread_position_in_grid]]) {{ x[i] = 1; }}")
    with md.timeline() as t:
        kernel(md.zeros(10), n=10)
        md.zeros(10).copy()
    assert {work.name for work in t.work} == {"k" * 40, "Array.copy"}


def test_threads_that_open_close_and_work_leave_each_piece_its_own_queue_line_and_name(scale):
    """Or no line or name, if the call began before.  No thread's work is touched."""
    end, seen, given = time.monotonic() + 0.5, set(), md.full(64, 7.0)

    def fills(stream, array):
        array.fill(1, stream=stream)

    def copies(stream, array):
        array.copy_from(given, stream=stream)
        assert array.tolist() == [7.0] * 64

    def kernels(stream, array):
        scale(array, 1.0, n=64, stream=stream)
        stream.record()

    def work(step):
        stream, array = md.Stream(label=step.__name__), md.zeros(64)
        while time.monotonic() < end:
            step(stream, array)

    def look():
        while time.monotonic() < end:
            with md.timeline(capacity=64) as t:
                time.sleep(0.001)
            seen.update((piece.queue, piece.kind, piece.name, piece.place) for piece in t.work)
            assert {type(event) for event in t.events} <= {Work, Wait}
            str(t), t.summary()

    pieces = {(fills, 1, "fill", "Array.fill"), (copies, 1, "copy", "Array.copy_from")}
    pieces |= {(kernels, 1, "kernel", "scale"), (kernels, 2, "mark", "")}
    allowed = set()
    for step, below, kind, name in pieces:
        places = ("", f"{__file__}:{step.__code__.co_firstlineno + below}")
        allowed |= {(step.__name__, kind, *noted) for noted in itertools.product((name, ""), places)}
    with ThreadPoolExecutor(6) as pool:
        running = [pool.submit(work, step) for step in (fills, copies, kernels)] + [pool.submit(look) for _ in range(3)]
        for one in running:
            one.result()
    assert {step for step, *_ in seen} == {"fills", "copies", "kernels"}
    assert seen <= allowed, seen - allowed


def test_a_call_that_fails_leaves_nothing_for_the_next_record(scale, settings):
    stream, array, private = md.Stream(), md.ones(1 << 16), md.ones(1 << 16, storage="private")
    with md.timeline() as t:
        settings(fail="commandBuffer@1")
        with pytest.raises(md.MetalError):
            scale(array, 2.0, n=1, stream=stream)
        stream.record()
        md.empty_cache()
        settings(fail="buffer@1+")
        with pytest.raises(MemoryError):
            np.asarray(private)
        array.fill(1, stream=stream)
    mark, fill = t.work
    assert (mark.name, fill.name, fill.reason) == ("", "Array.fill", "")
