"""Torch's queue on the software Metal: what must be waited for is waited for, and what is missing is seen."""

import numpy as np
import pytest
from children import run_child
from places import SUPPORT

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


@pytest.fixture
def latency(late):
    late(20_000)


# ---- programs ----


@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.long)])
def test_random_programs_equal_their_sequential_result(first):
    """`make streams` runs 10,000."""
    count = 1000 if first else 30
    done = run_child(SUPPORT / "torch_programs.py", count, first, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"{count} programs equal their sequential result; the validator is silent")


# ---- races ----

#: Each lacks an order: what is done, then what else is done to the same bytes.
RACES = {
    "the CPU reads what torch writes": "t.add_(1); a.tolist()",
    "a view of the CPU's is made of what torch writes": "t.add_(1); np.from_dlpack(a.host)",
    "the CPU writes what torch writes": "t.add_(1); a[0] = 3",
    "the CPU writes what torch reads": "u = t + 1; a[0] = 3",
    "the CPU writes what torch reads among many": "u = torch.cat([ones] * 40 + [t]); a[0] = 3",
    "a stream reads what torch writes": "t.add_(1); a.copy(stream=s)",
    "a stream writes what torch reads": "u = t * 2; a.fill(1, stream=s)",
    "torch writes what a stream reads": "b = a.copy(stream=s); t.add_(1)",
    "torch writes what a stream writes": "a.fill(1, stream=s); t.add_(1)",
    "torch reads what a stream writes": "a.fill(1, stream=s); u = t + 1",
    "torch writes what a kernel writes": "add(a, n=1000, stream=s); t.add_(1)",
    "a kernel writes what torch writes": "t.add_(1); add(a, n=1000, stream=s)",
    "an import that says it is ordered": "t.add_(1); md.from_dlpack(t, stream=-1).tolist()",
    "an operator that gives several": "torch.split_with_sizes_copy(ones, [500, 500], out=(t[:500], t[500:])); a.tolist()",
    "the CPU reads what torch's kernel writes": "lib.twice(t); a.tolist()",
    "the CPU writes what torch's kernel reads": "lib.copy(ones, t); a[0] = 3",
    "torch's kernel writes what a stream writes": "a.fill(1, stream=s); lib.twice(t)",
    "a slice": "t[10:20].add_(1); a[19:30].tolist()",
    "an event of what came before": "e.record(); t.add_(1); e.synchronize(); a.tolist()",
}

#: The same with an order, and what is no use of the same bytes.
NO_RACES = {
    "torch.mps.synchronize": "t.add_(1); torch.mps.synchronize(); a.tolist()",
    "from_dlpack": "t.add_(1); md.from_dlpack(t).tolist()",
    "from_dlpack on a stream": "t.add_(1); md.from_dlpack(t, stream=s).copy(stream=s).tolist()",
    "a number": "t.add_(1); t[0].item(); a.tolist()",
    "a number, and a write": "t.sum().item(); t.tolist(); a[0] = 3",
    "a copy for the CPU": "t.add_(1); t.cpu(); a[0] = 3",
    "text": "t.add_(1); str(t[:2]); a[0] = 3",
    "an event": "t.add_(1); e.record(); e.synchronize(); a.tolist()",
    "torch waits": "a.fill(1, stream=s); a.to(torch).add_(1); torch.mps.synchronize(); a.tolist()",
    "torch gets it": "a.fill(1, stream=s); torch.from_dlpack(a).add_(1); torch.mps.synchronize(); a.tolist()",
    "a kernel on a tensor": "t.add_(1); add(t, n=1000, stream=s); t.add_(1); t.tolist(); a.tolist()",
    "torch's kernels, operators and a wait": "lib.twice(t); t.add_(1); lib.copy(t, ones); torch.mps.synchronize(); a[0] = 3",
    "other bytes": "t[:500].add_(1); a[500:] = 3",
    "views are made": "a.fill(1, stream=s); t[3:7].view(2, 2); t.t(); t.unbind(); s.synchronize()",
    "what the pool gives again": """
t, a = torch.zeros(77_000, device="mps"), None
torch.mps.synchronize()
for _ in range(100): t.add_(1)
torch.mps.commit() if hasattr(torch.mps, "commit") else ones.add_(0)
assert softmetal.wait_idle()
del t
a = md.zeros(77_000)
a[...] = 2.0
""",
}


@pytest.mark.parametrize("latency_us", [0, 5_000])
@pytest.mark.some(1)
def test_a_missing_order_is_reported_whatever_the_timing(latency_us):
    """Also where the GPU has long ended: each case is tried with pauses at every place."""
    done = run_child(
        f"""
        import itertools, time
        import numpy as np, torch, metal_dlpack as md
        import softmetal
        softmetal.torch_mps()
        softmetal.configure(validation=1, validation_mode="log", latency_us={latency_us})
        add = md.kernel("kernel void add(device float *x, uint i [[thread_position_in_grid]]) {{ x[i] += 1; }}")
        lib = torch.mps.compile_shader('''
            kernel void twice(device float *x, uint i [[thread_position_in_grid]]) {{ x[i] *= 2; }}
            kernel void copy(device float *to, device const float *from, uint i [[thread_position_in_grid]]) {{ to[i] = from[i]; }}
        ''')

        s = md.Stream()
        def reports(code):
            a, e, ones = md.zeros(1000), torch.mps.Event(), torch.ones(1000, device="mps")
            names = dict(globals(), a=a, t=torch.from_dlpack(a), e=e, ones=ones)
            torch.mps.synchronize()
            before = softmetal.reports("race")
            exec(code, names)
            torch.mps.synchronize()
            md.default_device().synchronize()
            return softmetal.reports("race") - before

        for name, code in {RACES!r}.items():
            pause = "; time.sleep({0.005 + latency_us / 1e6}); "
            for text in (code, code.replace("; ", pause)):
                if not reports(text):
                    print("not reported:", name, text)
        for name, code in {NO_RACES!r}.items():
            for text in (code, code.replace("; ", pause)):
                if reports(text):
                    print("reported:", name, text, softmetal.last_report())
        print("done")
        """,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr[-2000:]


# ---- what is in flight is not there ----


@pytest.fixture
def unwatched(settings):
    settings(races=0)


def test_who_does_not_wait_reads_old_bytes(torch, latency, unwatched):
    a = md.zeros(4)
    t, seen = torch.from_dlpack(a), np.from_dlpack(a.host)
    t.add_(1)
    assert a.tolist() == seen.tolist() == md.from_dlpack(t, stream=-1).tolist() == [0] * 4
    t.mul_(5)
    assert a.copy(stream=md.Stream()).tolist() == [0] * 4
    torch.mps.synchronize()
    assert a.tolist() == seen.tolist() == [5] * 4


@pytest.mark.rule("import-sync")
@pytest.mark.parametrize(
    "wait",
    ["t.cpu()", "t[0].item()", "str(t)", "t.tolist()", "bool(t[0])", "torch.equal(t, t)", "t.numpy(force=True)",
     "torch.mps.synchronize()", "md.from_dlpack(t)", "e.record(); e.synchronize()", "copy.copy_(t)"],
)  # fmt: skip
def test_after_these_the_bytes_are_there(torch, latency, wait):
    a, e, copy = md.zeros(4), torch.mps.Event(), torch.zeros(4)
    t, seen = torch.from_dlpack(a), np.from_dlpack(a.host)
    t.add_(1)
    assert seen.tolist() == [0] * 4
    exec(wait, {"t": t, "e": e, "torch": torch, "md": md, "copy": copy})
    assert seen.tolist() == [1] * 4


def test_the_cpu_s_writes_to_other_bytes_are_not_lost(torch, latency):
    a = md.zeros(8)
    t, seen = torch.from_dlpack(a), np.from_dlpack(a.host)
    t[:4].add_(1)
    seen[6] = 5
    t[4:].add_(1)
    assert t.tolist() == [1, 1, 1, 1, 1, 1, 6, 1]
    torch.mps.synchronize()
    assert seen.tolist() == [1, 1, 1, 1, 1, 1, 6, 1]


def test_an_operator_that_raises_leaves_no_copy_behind(torch, latency):
    a = md.zeros(8)
    t = torch.from_dlpack(a)
    with pytest.raises(RuntimeError, match="size of tensor"):
        t.add_(torch.ones(3, device="mps"))
    a[...] = 7.0
    assert t.tolist() == [7] * 8


def test_all_of_a_memory_that_becomes_another_arrives(torch, latency):
    t = torch.arange(4.0, device="mps")
    part = t[:2]
    t.resize_(6)
    t[4:] = 0
    assert t.tolist() == [0, 1, 2, 3, 0, 0]
    assert part.tolist() == [0, 1]
    several = torch.split_with_sizes_copy(torch.arange(5.0, device="mps"), [2, 3])
    torch.mps.synchronize()
    assert [md.from_dlpack(x, stream=-1).tolist() for x in several] == [[0, 1], [2, 3, 4]]


def test_an_order_that_is_committed_already_holds_the_next_operator(torch, latency):
    a, event = md.zeros(4), torch.mps.Event()
    a.fill(1, stream=md.Stream())
    t = a.to(torch)
    event.record()
    t.add_(1)
    assert t.tolist() == [2] * 4


def test_latency_that_ends_amid_work_loses_nothing(torch, late):
    t = torch.zeros(4, device="mps")
    late(20_000)
    t.add_(1)
    late(0)
    t.add_(1)
    assert t.tolist() == [2] * 4


def test_work_behind_a_wait_of_torch_s_is_there_for_who_comes_later(torch, settings):
    """Where a wait holds back its own command buffer alone, and what is committed last runs first."""
    settings(latency_us=3000, wait_scope="commands", seed="last", races=0)
    for _ in range(8):
        event, stream = torch.mps.Event(), md.Stream()
        t, other = torch.zeros(1 << 20, device="mps"), torch.zeros(4, device="mps")
        torch.mps.synchronize()
        event.wait()
        for _ in range(10):
            t.add_(1)
        taken = md.from_dlpack(t, stream=stream)
        md.from_dlpack(other, stream=stream)
        assert np.asarray(taken.copy(stream=stream))[-1] == 10
        torch.mps.synchronize()


# ---- threads that are held amid what they do ----

HELD = """
import faulthandler, os, signal
import numpy as np, torch, metal_dlpack as md
import softmetal
softmetal.torch_mps()
event = torch.mps.Event()
torch.zeros(1, device="mps").cpu()  # the GPU has its thread
"""


def run_held(code, latency_us):
    done = run_child(HELD + code, SOFTMETAL_LATENCY_US=latency_us, SOFTMETAL_VALIDATION="0")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_bytes_that_arrive_while_it_is_asked_what_is_late_are_not_covered():
    """Between two of the questions a signal holds the thread, and a hundred frames that its handler writes down."""
    run_held(
        """
def play():
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    for _ in range(500):
        t = torch.zeros(8, device="mps")
        for _ in range(20):
            t.add_(1)
        event.record()
        seen = torch.stack([t.clone() for _ in range(12)]).tolist()
        assert seen == [[20] * 8] * 12, seen

def go_deep(frames):
    return go_deep(frames - 1) if frames else play()

faulthandler.register(signal.SIGALRM, file=open(os.devnull, "w"), all_threads=False)
go_deep(100)
os._exit(0)  # whatever signal is on its way
""",
        latency_us="20",
    )


@pytest.mark.long
def test_bytes_that_are_here_are_not_laid_over_what_the_cpu_writes_then():
    """An event tells the CPU of them before the GPU tells torch that the command buffer is complete.

    Both threads have one core, and the GPU's gives way: it is held as soon as the event wakes the CPU.
    """
    run_held(
        """
os.sched_setaffinity(0, {os.sched_getaffinity(0).pop()})
for thread in map(int, os.listdir("/proc/self/task")):
    os.sched_setaffinity(thread, os.sched_getaffinity(0))
    if thread != os.getpid():
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
a = md.zeros(8)
t, view = torch.from_dlpack(a), np.from_dlpack(a.host)
for number in range(10):
    t.add_(1)
    event.record()
    event.synchronize()
    view[0] = 100 * number
    seen = t[:1].clone().item()
    assert seen == 100 * number, (seen, number)
""",
        latency_us="50",
    )
