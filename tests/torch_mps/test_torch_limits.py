"""Torch's mps device at its limits: what is dropped comes back, what fails is said, and all goes on after it."""

import pytest
from children import run_child

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]

#: A child that has torch's mps, so that settings, limits and growth are its own.
BEGIN = """
import ctypes, gc, os, resource, sys, threading, time
import torch, metal_dlpack as md
import softmetal
softmetal.torch_mps()

def works(t=None):
    t = torch.ones(4, device="mps") if t is None else t
    assert (t + 1).tolist() == [2] * 4
"""


def run(code, printed="done\n", **settings):
    environment = {name if "_MPS_" in name else f"SOFTMETAL_{name}": str(value) for name, value in settings.items()}
    done = run_child(BEGIN + code, timeout=600, **environment)
    assert (done.returncode, done.stdout) == (0, printed), done.stdout + done.stderr[-3000:]
    return done.stderr


# ---- leaks ----

LEAKS = """
from concurrent.futures import ThreadPoolExecutor

def step(number):
    t = torch.ones(100 + number % 7 * 1000, device="mps", requires_grad=True)
    u = (t[10:20].view(2, 5) * 2).sum()
    u.backward()
    t.grad.add_(1)
    torch.mul(t.detach()[1::2], 3, out=torch.empty(0, device="mps"))
    event = torch.mps.Event()
    event.record()
    generator = torch.Generator(device="mps")
    a = md.from_dlpack(t.detach(), stream=-1)
    b = torch.from_dlpack(md.zeros(10 + number % 5 * 5000))
    b.add_(1)
    try:
        b[:3].add_(t)
    except RuntimeError:
        pass

def play(steps):
    def some(_):
        for number in range(steps // 10):
            step(number)

    for number in range(steps):
        step(number)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(some, range(3)))

def count():
    torch.mps.synchronize()
    gc.collect()
    assert softmetal.wait_idle()
    stats = md.memory_stats()
    assert torch.mps.current_allocated_memory() == stats["live"], (torch.mps.current_allocated_memory(), stats)
    objects = [softmetal.live_objects(name) for name in ("MTLCommandBuffer", "MTLSharedEvent")]
    return stats["live_buffers"], stats["live"], objects

def resident():
    ctypes.CDLL(None).malloc_trim(0)  # what is free, and the C library keeps for later: with latency much is in flight at once
    return int(open("/proc/self/statm").read().split()[1]) * 4096

play({warm})
before, grown = count(), resident()
play({steps})
assert count() == before, (count(), before)
assert resident() - grown < {growth} << 20, (resident() - grown) / 2**20
torch.mps.empty_cache()
assert md.memory_stats()["cached_buffers"] == 0
print("done")
"""


@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        (300, {"LATENCY_US": 50, "VALIDATION": 0}),
        (300, {"VALIDATION": 1}),
        pytest.param(10_000, {"VALIDATION": 0}, marks=pytest.mark.long),  # of ten tensors each at least
        pytest.param(10_000, {"VALIDATION": 1}, marks=pytest.mark.long),
        pytest.param(10_000, {"LATENCY_US": 50, "VALIDATION": 0}, marks=pytest.mark.long),
        pytest.param(10_000, {"LATENCY_US": 50, "VALIDATION": 1}, marks=pytest.mark.long),
    ],
)
def test_what_is_dropped_comes_back(steps, settings):
    run(LEAKS.format(steps=steps, warm=300, growth=16), **settings)


# ---- limits and failures ----


@pytest.mark.parametrize("latency", [0, 500])
@pytest.mark.parametrize(
    ("limit", "unlimit"),
    [
        ('softmetal.configure(memory_limit="8M")', "softmetal.configure(memory_limit=None)"),
        ("md.set_memory_limit(8 << 20)", "md.set_memory_limit(None)"),
        (
            "torch.mps.set_per_process_memory_fraction((8 << 20) / torch.mps.recommended_max_memory())",
            "torch.mps.set_per_process_memory_fraction(0.0)",
        ),
    ],
    ids=["device", "ours", "torch's"],
)
@pytest.mark.some(1)
def test_where_there_is_no_room_torch_says_so_and_goes_on(limit, unlimit, latency):
    """What only work in flight keeps is waited for: a loop of new tensors needs no more room than two."""
    run(
        f"""
kept = torch.ones(4, device="mps")
{limit}
def out_of_memory(make):
    try:
        make()
    except torch.OutOfMemoryError as error:
        assert "MPS backend out of memory" in str(error), error
        return True
half = 1 << 20
x = torch.zeros(half, device="mps")
for _ in range(50):
    x = x[:1000] + 1
    x = torch.zeros(half, device="mps")
del x
assert out_of_memory(lambda: torch.zeros(half * 3, device="mps"))
assert out_of_memory(lambda: [torch.ones(half, device="mps") + i for i in range(9)])
assert out_of_memory(lambda: kept.expand(half, 4).contiguous())
gc.collect()
works(), works(kept)
{unlimit}
assert torch.zeros(half * 3, device="mps").sum().item() == 0
print("done")
""",
        LATENCY_US=latency,
    )


def test_torchs_own_limit_is_a_number_from_0_to_2_and_small_ones_hold():
    run(
        """
for wrong in (float("nan"), "x"):
    try:
        torch.mps.set_per_process_memory_fraction(wrong)
    except (RuntimeError, TypeError) as error:
        print(error)
torch.mps.set_per_process_memory_fraction(1e-300)
try:
    torch.ones(1, device="mps")
except torch.OutOfMemoryError as error:
    assert "max allowed: 0 MiB" in str(error) and "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0" in str(error), error
    torch.mps.set_per_process_memory_fraction(0.0)
    works()
    print("done")
""",
        printed="invalid high watermark ratio nan\nInvalid type for fraction argument, must be `float`\ndone\n",
    )


@pytest.mark.parametrize("latency", [0, 500])
@pytest.mark.long
def test_the_high_watermark_of_the_environment_is_the_limit(latency):
    ratio = (8 << 20) / md.default_device().recommended_max_working_set_size
    run(
        """
try:
    kept = [torch.ones(1 << 20, device="mps") + i for i in range(9)]
except torch.OutOfMemoryError as error:
    assert "max allowed: 8 MiB" in str(error), error
    works()
    print("done")
""",
        LATENCY_US=latency,
        PYTORCH_MPS_HIGH_WATERMARK_RATIO=ratio,
    )


@pytest.mark.parametrize("ratio", ["3", "-1", "nan", "half"])
@pytest.mark.some(1)
def test_a_high_watermark_that_is_none_is_refused(ratio):
    done = run_child(BEGIN, PYTORCH_MPS_HIGH_WATERMARK_RATIO=ratio)
    assert f"PYTORCH_MPS_HIGH_WATERMARK_RATIO is '{ratio}'; torch takes a number from 0" in done.stderr


@pytest.mark.parametrize("kind", ["buffer", "commandBuffer", "encoder", "event", "queue", "pipeline", "commit"])
@pytest.mark.some(1)
def test_what_metal_does_not_give_is_an_error_and_all_goes_on(kind):
    """Whichever call fails, first or last; a command buffer that fails loses its work, and nobody waits for ever."""
    run(
        f"""
def use():
    t = torch.ones(1000, device="mps")
    t.add_(1)
    event = torch.mps.Event()
    event.record()
    event.synchronize()
    u = t.cpu()
    a = md.from_dlpack(t * 2)
    torch.mps.synchronize()
    return u.sum().item()

failures = 0
for count in range(1, 12):
    softmetal.configure(fail=f"{kind}@{{count}}")
    try:
        use()
    except (RuntimeError, md.MetalError, torch.OutOfMemoryError) as error:
        failures += 1
    softmetal.configure(fail=None)
    gc.collect()
    works()
    assert use() == 2000
md.empty_cache()
softmetal.configure(fail="{kind}@1+")
for _ in range(3):
    try:
        use()
    except (RuntimeError, md.MetalError, torch.OutOfMemoryError):
        failures += 1
softmetal.configure(fail=None)
works()
assert failures > 0 or {kind!r} in ("commit", "queue", "pipeline"), failures
print("done")
""",
        LATENCY_US=200,
    )


def test_a_full_queue_holds_torch_up_and_no_more():
    run(
        """
t = torch.zeros(4, device="mps")
for _ in range(300):
    t.add_(1)
    event = torch.mps.Event()
    event.record()
assert t.tolist() == [300] * 4
print("done")
""",
        LATENCY_US=1000,
        QUEUE_DEPTH=2,
    )


# ---- processes and threads ----


@pytest.mark.parametrize("latency", [0, 20_000])
@pytest.mark.some(1)
def test_a_forked_child_is_told_and_lets_go_of_everything(latency):
    """With work in flight and threads that use torch at the moment of the fork."""
    run(
        """
import warnings
warnings.simplefilter("ignore")
t = torch.ones(1000, device="mps")
ends = threading.Event()
def spin():
    x = torch.ones(10, device="mps")
    while not ends.is_set():
        x = x + 1
        torch.ones(10)
threads = [threading.Thread(target=spin) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(10):
    t.add_(1)
    child = os.fork()
    if child == 0:
        told = 0
        for use in (lambda: t + 1, lambda: torch.ones(3, device="mps"), torch.mps.synchronize, lambda: t.cpu(), t.tolist,
                    lambda: torch.mps.Event().record(), lambda: torch.ones(3).to("mps"), torch.accelerator.synchronize):
            try:
                use()
            except RuntimeError as error:
                told += str(error).startswith("Cannot re-initialize MPS in forked subprocess")
        del t
        gc.collect()
        torch.manual_seed(3)  # leaves mps alone
        told += torch.mps._is_in_bad_fork() and (torch.ones(1000) + 1)[0].item() == 2
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
ends.set()
for thread in threads:
    thread.join()
assert t[0].item() == 11
print("done")
""",
        LATENCY_US=latency,
    )


@pytest.mark.parametrize("end", ["", "os._exit(0)", "raise SystemExit(0)"])
@pytest.mark.some(1)
def test_a_process_may_end_with_work_in_flight(end):
    run(
        f"""
t = torch.ones(1000, device="mps")
event = torch.mps.Event()
for _ in range(200):
    t.add_(1)
event.record()
for _ in range(200):
    t.add_(1)
print("done", flush=True)
{end}
""",
        LATENCY_US=30_000,
    )


@pytest.mark.parametrize(("end", "latency_us"), [("", 0), ("raise SystemExit(0)", 20_000)])
@pytest.mark.some(1)
def test_a_process_may_end_behind_backward(end, latency_us):
    """Autograd's thread drops the last graph's Python objects when it likes: unless it is waited for, half of these abort."""
    for _ in range(4):
        run(
            f"""
x = torch.ones(4, device="mps", requires_grad=True)
y = (x * 2).sum()
print("done", flush=True)
sys.setswitchinterval(1000)  # who has the GIL keeps it to the end
y.backward()
{end}
""",
            LATENCY_US=latency_us,
        )


@pytest.mark.long
def test_threads_that_end_leave_their_work_to_the_queue():
    run(
        """
t = torch.zeros(4, device="mps")
for _ in range(20):
    thread = threading.Thread(target=lambda: t.add_(1))
    thread.start()
    thread.join()
assert t.tolist() == [20] * 4
made = []
thread = threading.Thread(target=lambda: made.append(torch.ones(4, device="mps") * 3))
thread.start()
thread.join()
assert md.from_dlpack(made[0]).tolist() == [3] * 4
print("done")
""",
        LATENCY_US=1000,
    )
