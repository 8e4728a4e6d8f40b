"""What a timeline records, what it says of it, and that the work goes on as if there were none."""

import contextlib
import gc
import html
import itertools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import numpy as np
import pytest
from children import output_of, run_child
from forking import exit_code_of_child
from held_work import held

import metal_dlpack as md
from metal_dlpack.timelines import records
from metal_dlpack.timelines.lanes import Lane
from metal_dlpack.timelines.records import Wait, Work
from metal_dlpack.timelines.time_drawing import bars_of

pytestmark = pytest.mark.needs_softmetal


def only(found):
    (one,) = found
    return one


# ---- what is recorded ----


def test_the_example_of_the_page(scale, settings):
    s1, s2 = md.Stream(), md.Stream(label="second")
    a = md.ones(1 << 16)
    settings(latency_us=50_000)  # nothing is done when the next call comes
    with md.timeline() as t:
        b = a.copy(stream=s1)
        scale(b, 2.0, n=b.size, stream=s2)
        x = np.asarray(b)
    assert x[0] == 2.0
    copy, kernel = (only(work for work in t.work if work.kind == kind) for kind in ("copy", "kernel"))
    assert (copy.queue, copy.nbytes, copy.source.name, copy.target.name) == ("s1", a.nbytes, "a", "b")
    assert (kernel.queue, kernel.name, kernel.target.name, kernel.nbytes) == ("second", "scale", "b", 0)
    assert copy.ended <= kernel.started
    for work in t.work:
        assert work.place.startswith(__file__ + ":")
        assert 0 <= work.submitted <= work.started <= work.ended
        assert (0 < work.launch < 1) == (work.queue != "")
        assert work.scheduled is not None and work.submitted <= work.scheduled <= work.started
    gpu = only(wait for wait in t.waits if wait.waiter is kernel)
    assert (gpu.awaited, gpu.memory, gpu.kind) == (copy, "b", "gpu wait")
    cpu = only(wait for wait in t.waits if wait.waiter is None)
    assert (cpu.awaited, cpu.memory, cpu.thread, cpu.kind) == (kernel, "b", "MainThread", "cpu wait")
    assert t.events == sorted(t.events, key=records.when)


def test_why_it_was_copied(scale):
    p = md.ones(1000, storage="private")
    aligned = np.zeros(4001, "uint8")
    with md.timeline() as t:
        np.asarray(p)
        float(p[3])
        md.asarray(aligned[1:4001].view("float32") if aligned.ctypes.data % 4 == 0 else aligned)
        torch_like = md.from_dlpack(p[::-1].__dlpack__(max_version=(1, 3)))
        p.copy(storage="shared")
    assert torch_like.shape == (1000,)
    reasons = {(work.name, work.reason) for work in t.work if work.kind == "copy"}
    assert ("Array.__array__", "private") in reasons
    assert any(reason == "staged" for _, reason in reasons)
    assert any(reason == "COPY_MISALIGNED" for _, reason in reasons)
    assert any(reason == "COPY_NEGATIVE" for _, reason in reasons)
    assert ("Array.copy", "") in reasons
    needless = sum(work.nbytes for work in t.work if work.reason)
    assert t.summary().needless_nbytes == needless >= 3 * p.nbytes


def test_each_thread_and_its_line_are_named():
    arrays = [md.zeros(1000) for _ in range(3)]

    def work(array):
        for _ in range(5):
            array.copy()

    with md.timeline() as t:
        threads = [threading.Thread(target=work, args=(array,), name=f"t{i}") for i, array in enumerate(arrays)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(t.work) == 15
    assert all(work.queue == "" and work.place.startswith(__file__) for work in t.work)
    assert all(0 <= work.submitted == work.started <= work.ended and work.scheduled is None for work in t.work)


def test_private_work_of_the_packages_python_has_the_users_line():
    a = md.ones((4, 4))
    with md.timeline() as t:
        md.asarray([[1.0, 2.0]], dtype="float32").copy_to(np.empty((1, 2), "float32"))
        a.copy()
    assert {work.place.rpartition(":")[0] for work in t.work} == {__file__}


# ---- bounds ----


def test_memory_at_a_used_address_has_its_own_name():
    stream = md.Stream()
    with md.timeline() as t:
        gone = md.zeros(1 << 14)
        handle = gone.buffer.handle
        gone.fill(1, stream=stream)
        stream.synchronize()
        del gone
        again = md.zeros(1 << 14)
        again.fill(1, stream=stream)
    assert again.buffer.handle == handle  # the pool gave it out again
    assert [work.target.name for work in t.work if work.kind == "fill"] == [f"{handle:#x}", "again"]


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import metal_dlpack as md", store_history=True)
shell.run_cell("with md.timeline() as t:\\n    md.zeros(9).copy()", store_history=True)
print([work.place for work in shell.user_ns["t"].work])
"""


def test_the_cells_of_a_notebook_have_their_numbers(tmp_path):
    done = run_child(CELLS, IPYTHONDIR=str(tmp_path))
    assert done.stdout.splitlines()[-1:] == ["['In [2]:2']"], done.stderr


def test_work_that_failed_says_so(settings):
    stream, a = md.Stream(label="s"), md.zeros(1000)
    settings(fail="commit@1=8")
    with md.timeline() as t:
        a.copy(stream=stream)
        with pytest.raises(md.MetalError):
            stream.synchronize()
        a.fill(1, stream=stream)
    assert [(work.kind, work.has_failed) for work in t.work] == [("copy", True), ("mark", False), ("fill", False)]
    assert str(t).count("failed") == 1 and "failed" in t._repr_html_()


def test_the_oldest_are_lost_first_and_counted():
    a = md.ones(10)
    with md.timeline(capacity=8) as t:
        for i in range(100):
            a[:] = md.full(10, float(i))
    assert len(t.events) == 8
    numbers = [event.number for event in t.work]
    assert numbers == list(range(numbers[0], numbers[0] + 8))
    assert t.lost == 92
    assert "92 earlier records were lost" in str(t)


def test_nothing_is_recorded_while_none_is_open():
    a = md.ones(10)
    with md.timeline() as t:
        pass
    a.copy()
    assert t.events == []
    assert "no work" in str(t)
    with md.timeline() as again:
        a.copy()
    assert len(again.events) == 1
    assert t.events == []


def misuse(t, how):
    if how != "never opened":
        t.__enter__()
    if how == "cycle":
        t.itself = t
    elif how == "opened twice":
        t.__enter__()
    elif how == "closed by eight":
        with ThreadPoolExecutor(8) as pool:
            closed = [pool.submit(t.__exit__, None, None, None) for _ in range(8)]
        errors = [error for error in (one.exception() for one in closed) if error is not None]
        assert len(errors) == 7
        raise errors[0]
    elif how != "dropped":
        t.__exit__(None, None, None)
        if how == "closed twice":
            t.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("dropped", None),
        ("cycle", None),
        ("closed twice", "closed already"),
        ("closed by eight", "closed already"),
        ("never opened", "never opened"),
        ("opened twice", "opened already"),
    ],
)
def test_a_timeline_that_is_used_wrongly_leaves_the_others_right(how, error):
    with pytest.raises(RuntimeError, match=error) if error else contextlib.nullcontext():
        misuse(md.timeline(), how)
    for _ in range(2):
        gc.collect()
        md.ones(10).copy()  # divides by the ring's length, if it thinks that it has one
        with md.timeline() as t:
            md.ones(10).copy()
        assert len(t.events) == 1


def test_exit_handlers_compute_while_a_timeline_is_open():
    program = """
import atexit
import metal_dlpack as md
atexit.register(lambda: print(t.__exit__(None, None, None), len(t.events)))
t = md.timeline()
t.__enter__()
atexit.register(lambda: print(md.ones(4).copy().tolist()))
"""
    assert output_of(program) == "[1.0, 1.0, 1.0, 1.0]\nNone 1\n"


def test_an_exception_goes_through_and_the_records_stay():
    a = md.ones(10)
    with pytest.raises(KeyError), md.timeline() as t:
        a.copy()
        raise KeyError
    assert len(t.events) == 1
    with pytest.raises(RuntimeError, match="opened already"), t:
        pass


@pytest.mark.parametrize("capacity", [0, -1, "many", None, 1.5])
def test_a_capacity_is_a_number(capacity):
    with pytest.raises(ValueError, match="capacity"):
        md.timeline(capacity)


@pytest.mark.parametrize("capacity", [1 << 60, 1 << 63])
def test_no_memory_for_the_ring_is_an_error_and_nothing_stays(capacity):
    t = md.timeline(capacity)
    with pytest.raises(MemoryError, match=rf"no memory for {capacity} records.*smaller capacity"):
        t.__enter__()
    with pytest.raises(RuntimeError, match="never opened"):
        t.__exit__(None, None, None)
    with md.timeline() as t:
        md.ones(10).copy()
    assert len(t.events) == 1


def test_a_look_inside_of_the_block(scale):
    s = md.Stream()
    a = md.ones(100)
    with md.timeline() as t:
        with held(s):
            scale(a, 2.0, n=100, stream=s)
            kernel = only(work for work in t.work if work.kind == "kernel")
            assert (kernel.ended, kernel.target.name, kernel.queue) == (None, "a", "s")
            assert "in flight" in str(t)
        s.synchronize()
        assert only(work for work in t.work if work.kind == "kernel").ended is not None


def test_the_first_look_waits_for_work_in_flight(scale, settings):
    a = md.ones(100)
    s = md.Stream()
    settings(latency_us=50_000)
    with md.timeline() as t:
        scale(a, 2.0, n=100, stream=s)
    assert only(t.work).seconds > 0.04


def test_a_forked_child_reads_what_there_was():
    a = md.ones(10)
    with md.timeline() as t:
        a.copy()

        def child():
            assert len(t.events) == 1
            with md.timeline() as own:
                np.asarray(a)
            assert own.events == []

        assert exit_code_of_child(child) == 0
    assert len(t.events) == 1


# ---- the five mistakes, and the same work without them ----


def host_read(scale, is_mended):
    x = md.ones(1 << 14)
    for _ in range(6):
        scale(x, 1.5, n=x.size)
        if not is_mended:
            yield float(x[0])
    yield float(x[0])


def stream_for_each_call(scale, is_mended):
    x, s = md.ones(100), md.Stream()
    for _ in range(6):
        scale(x, 1.5, n=100, stream=s if is_mended else md.Stream())
    yield x


def private_round_trips(_scale, is_mended):
    x = md.ones(1000, storage="shared" if is_mended else "private")
    for i in range(6):
        x[i] = 2.0
        yield float(x[i])


def synchronise_in_a_loop(scale, is_mended):
    x, s = md.ones(1 << 14), md.Stream()
    for _ in range(6):
        scale(x, 1.5, n=x.size, stream=s)
        if not is_mended:
            s.synchronize()
    scale(x, 1.5, n=x.size, stream=s)
    s.synchronize()
    yield x


def small_kernels(scale, is_mended):
    x, s = md.ones(100), md.Stream()
    for i in range(1 if is_mended else 100):
        scale(x[i:], 1.5, n=100 if is_mended else 1, stream=s)
    yield x


MISTAKES = [host_read, stream_for_each_call, private_round_trips, synchronise_in_a_loop, small_kernels]


@pytest.mark.parametrize("program", MISTAKES)
def test_advice_is_exactly_where_it_belongs(program, scale, tmp_path, settings):
    settings(latency_us=300 if program is not small_kernels else None)  # a read comes too early
    for is_mended, wanted in ((False, [program.__name__.replace("_", " ")]), (True, [])):
        with md.timeline() as t:
            list(program(scale, is_mended))
        advice = t.summary().advice
        assert [one.mistake for one in advice] == wanted, str(t.summary())
        if wanted:
            file, _, line = only(advice).place.rpartition(":")
            first = program.__code__.co_firstlineno
            assert file == __file__
            assert first < int(line) < first + 9
            assert only(advice).text in str(t.summary())
            t.save(tmp_path / "t.html")
            assert html.unescape((tmp_path / "t.html").read_text()).count(only(advice).text) == 1


def test_kernels_that_take_longer_than_their_launch_are_not_small(scale, settings):
    settings(latency_us=2000)
    with md.timeline() as t:
        list(small_kernels(scale, False))
    assert t.summary().advice == ()


# ---- sums ----


def test_sums_agree_with_the_events(scale):
    a, b, s1, s2 = md.ones(1 << 12), md.ones(1 << 12), md.Stream(), md.Stream()
    with md.timeline() as t:
        with held(s1, s2):
            for _ in range(5):
                scale(a, 2.0, n=a.size, stream=s1)
                b.copy_from(a, stream=s2)
        float(b[0])
    summary = t.summary()
    assert sum(total.count for total in summary.by_kind) == len(t.events)
    assert sum(total.seconds for total in summary.by_kind) == pytest.approx(sum(event.seconds for event in t.events))
    assert [(total.name, total.count) for total in summary.by_kernel] == [("scale", 5)]
    first, *chain = summary.chain
    assert first.kind == "wait"  # the gate's: the kernel waited for it, and the copy for its own, which may open later
    assert [work.kind for work in chain] in (["kernel", "copy"] * 5, (["kernel", "copy"] * 5)[1:])
    assert all(one.ended <= two.started for one, two in itertools.pairwise(chain))
    assert summary.idle_seconds <= sum(wait.seconds for wait in t.waits if wait.waiter is None)


# ---- what is drawn ----


def recorded(count, scale):
    a, c = md.ones(256), md.zeros(256)
    s1, s2 = md.Stream(label="</title><script>"), md.Stream(label="x" * 500)
    with md.timeline() as t:
        for i in range(count // 2):
            scale(a, 1.0, n=1, stream=s1)
            c.copy_from(a, stream=s2)
            if i % 50 == 49:
                float(c[0])
    return t


def test_pieces_that_overlap_are_as_few_bars_as_pieces_that_do_not():
    def made(i, length):
        work = ("copy", "", "q", "main", "", i, None, i, i + length, 0.0, 4, None, None, "", False)
        wait = (None, "main", "", "", None, "", i, i + length)
        return Work(i, *work), Wait(*wait)

    for length in (0.1, 1, 100, 2000):
        lane = Lane("q", True, [event for i in range(2000) for event in made(i, length)])
        bars = bars_of(lane, 4000.0, 400.0)
        assert len(bars) <= 4 * 200  # one begins in each two pixels: narrow or wide, of work and of waits
        assert sum(len(bar.events) for bar in bars) == 4000
        assert max(bar.end for bar in bars) == pytest.approx((1999 + length) / 10)


@pytest.mark.parametrize("count", [10, 1000, 10_000])
def test_a_picture_is_well_formed_and_bounded(count, scale):
    t = recorded(count, scale)
    assert len(t.work) >= count
    html = t._repr_html_()
    root = ElementTree.fromstring(html)
    assert len(html) < 200_000
    assert "script" not in {node.tag.rpartition("}")[2] for node in root.iter()}
    assert len(str(t).splitlines()) < 60
    said = "".join(node.text or "" for node in root.iter() if node.tag.endswith("title"))
    assert count < 1000 or " times " in said  # what repeats is drawn as one


def test_what_is_saved(tmp_path, scale):
    t = recorded(100, scale)
    t.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in trace if event["ph"] == "X"]
    assert len(slices) == len(t.events)
    assert sum(event["ph"] == "s" for event in trace) == sum(event["ph"] == "f" for event in trace)
    tracks = {}
    for event in slices:  # slices of one track are apart, or one lies in the other
        tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], -event["dur"]))
    for spans in tracks.values():
        ends = []
        for begin, negative in sorted(spans):
            while ends and ends[-1] <= begin + 1e-6:
                ends.pop()
            assert not ends or begin - negative <= ends[-1] + 1e-6
            ends.append(begin - negative)
    t.save(str(tmp_path / "trace.html"))
    page = (tmp_path / "trace.html").read_text()
    assert "</title><script>" not in page.replace("</title><style>", "")
    with pytest.raises(ValueError, match=r"'.*\.png' ends in '\.png'; write \.json for Perfetto or \.html"):
        t.save(tmp_path / "trace.png")
    with pytest.raises(OSError, match="No such file"):
        t.save(tmp_path / "missing" / "trace.json")
    assert os.listdir(tmp_path) != []
