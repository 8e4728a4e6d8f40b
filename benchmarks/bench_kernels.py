"""What a kernel of one's own costs: to launch, to compile, to load again; and what the software Metal makes of it.

    python benchmarks/bench_kernels.py [--word WORD] [--check]

Each line is the smallest of several turns, its target beside it; ours and a peer's take turns.  On the software Metal
it is time of the processor, of children as well, so that what other processes take does not count; but two threads
beside one need two processors that are idle.  Targets: a launch from Python at most 5 us of the caller's time (torch's
and MLX's smallest operation on the CPU are there as a scale), a kernel compiled within 1 s and loaded from the cache
within 50 ms, in a process that has made none before; an addition of 10 million float32 at most twice NumPy's time on
one thread; a barrier at most 30 ns a thread; two threads at least 1.6 times as fast as one, where there are two
processors; the checker at most 20 times slower, for each kernel of checked.metal, where threads take turns without it
too: a kernel that waits is not split into regions for that (bench_beside_pocl.py has what those bring).

Barriers, two threads and the checker are the software Metal's and left out on a Mac.  --check fails where a line is
slow.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import metal_dlpack as md
import softmetal
from softmetal.msl import regions

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
ADD = (
    HEAD
    + """kernel void add(device const float *x, device const float *y, device float *out,
                uint i [[thread_position_in_grid]]) {
    out[i] = x[i] + y[i];
}"""
)
BARRIERS = (
    HEAD
    + """kernel void barriers(device uint *out, constant uint &n, uint i [[thread_position_in_grid]]) {
    for (uint round = 0; round < n; round++) threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = i;
}"""
)
MANDELBROT = (
    HEAD
    + """kernel void mandelbrot(device uint *out, constant uint &most, uint2 p [[thread_position_in_grid]],
                       uint2 size [[threads_per_grid]]) {
    float2 c = float2(p) / float2(size) * 3 - float2(2.2, 1.5), z = 0;
    uint count = 0;
    while (count < most && dot(z, z) < 4) {
        z = float2(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c;
        count++;
    }
    out[p.y * size.x + p.x] = count;
}"""
)


def processor_time() -> float:
    """Of all threads, and of children that have ended: compilers."""
    return sum(os.times()[:4])


#: os.times counts in hundredths: for what is compiled.
CLOCK = time.process_time if softmetal.is_present() else time.perf_counter
COMPILING = processor_time if softmetal.is_present() else time.perf_counter
#: Name, measured, unit, target, "most" or "least"; None: a scale beside the others.
Line = tuple[str, float, str, float | None, str]


def smallest(turns: int, *calls: Callable[[], object], clock: Callable[[], float] = CLOCK) -> list[float]:
    """Seconds of each call; they take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(turns):
        for n, call in enumerate(calls):
            start = clock()
            call()
            best[n] = min(best[n], clock() - start)
    return best


def launches() -> Iterator[Line]:
    kernel, count = md.kernel(ADD), 500
    x, y, out = (md.zeros(64) for _ in range(3))
    kernel(x, y, out, n=64)
    np.asarray(out)

    def ours() -> float:
        start = time.thread_time()
        for _ in range(count):
            kernel(x, y, out, n=64)
        taken = time.thread_time() - start
        np.asarray(out)
        return taken / count

    yield "launch, the caller's time", min(ours() for _ in range(15)) * 1e6, "us", 5, "most"

    def whole() -> None:
        kernel(x, y, out, n=64)
        np.asarray(out)

    yield "launch and wait", smallest(300, whole, clock=time.perf_counter)[0] * 1e6, "us", None, ""
    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
        a, b, c = (torch.zeros(64) for _ in range(3))
        (taken,) = smallest(15, lambda: [torch.add(a, b, out=c) for _ in range(count)])
        yield "torch.add on the CPU", taken / count * 1e6, "us", None, ""
    try:
        import mlx.core as mx
    except ImportError:
        pass
    else:
        mx.set_default_device(mx.cpu)
        left, right = mx.zeros(64), mx.zeros(64)
        (taken,) = smallest(15, lambda: [mx.eval(left + right) for _ in range(count)])
        yield "mx.eval(a + b) on the CPU", taken / count * 1e6, "us", None, ""


def compiling() -> Iterator[Line]:
    def fresh() -> None:
        kernel = md.kernel(
            f"constant uint UNIQUE = {time.time_ns() % 2**32}u;\n{BARRIERS.replace('= i', '= i + UNIQUE')}"
        )
        kernel(md.zeros(1, dtype="uint32"), 0, threads=1)

    yield "compile and launch", smallest(3, fresh, clock=COMPILING)[0], "s", 1, "most"
    md.kernel(BARRIERS)(md.zeros(1, dtype="uint32"), 0, threads=1)  # now it is in the cache
    code = (
        "import sys, time; import metal_dlpack as md; out = md.zeros(1, dtype='uint32'); start = time.process_time(); "
        "md.kernel(sys.argv[1])(out, 0, threads=1); out[0]; print(time.process_time() - start)"
    )
    paths = os.pathsep.join([str(Path(md.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    command, environment = [sys.executable, "-c", code, BARRIERS], {**os.environ, "PYTHONPATH": paths}
    taken = [float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout) for _ in range(5)]
    yield "load from the cache and launch", min(taken) * 1e3, "ms", 50, "most"


def additions() -> Iterator[Line]:
    size = 10_000_000
    x, y = np.random.default_rng(0).random((2, size), dtype="float32")
    mine, others = [md.asarray(x, copy=True), md.asarray(y, copy=True), md.zeros(size)], np.zeros(size, "float32")
    kernel = md.kernel(ADD)
    if softmetal.is_present():
        softmetal.configure(kernel_threads=1)

    def ours() -> None:
        kernel(*mine, n=size)
        mine[2][0].item()

    ours()
    taken, theirs = smallest(15, ours, lambda: np.add(x, y, out=others))
    assert (np.asarray(mine[2]) == others).all()
    yield "add of 10 M float32, beside NumPy", taken / theirs, "times", 2, "most"


def run(kernel: md.Kernel, *arguments: object, **launch: object) -> Callable[[], object]:
    """A call that waits for its first argument, which the kernel writes."""
    first = arguments[0]
    assert isinstance(first, md.Array)

    def call() -> None:
        kernel(*arguments, **launch)  # type: ignore[arg-type]
        first.reshape(-1)[0].item()

    call()
    return call


def waiting() -> Iterator[Line]:
    threads, rounds, kernel = 256 * 64, 64, md.kernel(BARRIERS)
    out = md.zeros(threads, dtype="uint32")
    softmetal.configure(kernel_threads=1)
    some, none = smallest(9, run(kernel, out, rounds, groups=64, group=256), run(kernel, out, 1, groups=64, group=256))
    yield "a barrier, a thread", (some - none) / threads / (rounds - 1) * 1e9, "ns", 30, "most"


def two_threads() -> Iterator[Line]:
    out, kernel = md.zeros((256, 256), dtype="uint32"), md.kernel(MANDELBROT)
    call = run(kernel, out, 300, threads=(256, 256))

    def with_threads(count: int) -> Callable[[], object]:
        def timed() -> None:
            softmetal.configure(kernel_threads=count)
            call()

        return timed

    one, two = smallest(101, with_threads(1), with_threads(2), clock=time.perf_counter)
    target = 1.6 if len(os.sched_getaffinity(0)) > 1 else None
    yield "two threads, beside one", one / two, "times", target, "least"


def checking() -> Iterator[Line]:
    """The kernels of checked.metal, each beside itself unchecked: the same arguments, its first one written."""

    rng, count, side, n = np.random.default_rng(0), 1 << 20, 1024, 96
    items, picture = {"threads": count, "group": 256}, {"threads": (side, side), "group": (16, 16)}
    x, y, out = (md.zeros(count) for _ in range(3))
    old, new = md.zeros((2, side, side))
    square = [md.zeros((n, n)) for _ in range(3)]
    halves, others = md.zeros((2, count), dtype="float16")
    texts = md.asarray(rng.integers(0, 256, count).astype("uint8"))
    bins = md.zeros(256, dtype="uint32")
    given: dict[str, tuple[list[object], dict[str, object]]] = {
        "add": ([out, x, y], items),
        "add_float4": ([out, x, y], {"threads": count // 4, "group": 256}),
        "copy_bytes": ([md.zeros(count, dtype="uint8"), texts], items),
        "saxpy_half": ([halves, others, 2.0], items),
        "stencil": ([new, old], picture),
        "transposition": ([new, old, side], picture),
        "histogram": ([bins, texts], {"threads": count // 16, "group": 256}),
        "histogram_in_device": ([bins, texts], items),
        "softmax": ([new, old, side], {"groups": side, "group": 256}),
        "reduction": ([md.zeros(count // 256), x], items),
        "sorted_16": ([out, md.asarray(rng.random(count, "float32"))], {"threads": count // 16, "group": 256}),
        "matmul": ([*square, n], {"threads": (n, n), "group": (16, 16)}),
    }
    source = f"{(Path(__file__).parent / 'checked.metal').read_text()}// on fibers\n"  # another entry of the cache
    softmetal.configure(kernel_threads=1)

    def launched(name: str, is_checked: bool) -> Callable[[], object]:
        softmetal.configure(kernel_check=is_checked)
        arguments, launch = given[name]
        call = run(md.kernel(source, name), *arguments, **launch)

        def timed() -> None:
            softmetal.configure(kernel_check=is_checked)
            call()

        return timed

    with mock.patch.object(regions, "split_at_waits", side_effect=regions.CannotSplit("asked for")):
        for name in given:
            plain, checked = smallest(20, launched(name, False), launched(name, True))
            yield f"{name}, checked beside not", checked / plain, "times", 20, "most"
    softmetal.configure(kernel_check=None)


PARTS = [launches, compiling, additions]
SOFTWARE = [waiting, two_threads, checking]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--word", default="", help="only the parts whose name has it: launches, compiling, ...")
    parser.add_argument("--check", action="store_true", help="fail where a line is slow")
    options = parser.parse_args()
    slow = []
    for part in PARTS + (SOFTWARE if softmetal.is_present() else []):
        if options.word not in part.__name__:
            continue
        for name, value, unit, target, side in part():
            is_slow = target is not None and (value > target if side == "most" else value < target)
            slow += [name] if is_slow else []
            wanted = "" if target is None else f"at {side} {target:g}  {'slow' if is_slow else 'ok'}"
            print(f"{name:40} {value:9.2f} {unit:6} {wanted}", flush=True)
        if softmetal.is_present():
            softmetal.configure(kernel_threads=None)
    if options.check and slow:
        sys.exit(f"slow: {', '.join(slow)}")


if __name__ == "__main__":
    main()
