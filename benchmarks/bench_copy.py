"""Copies between Arrays beside NumPy and torch, one thread each, in one process.

    taskset -c 1 python benchmarks/bench_copy.py [--group WORD] [--rounds N] [--threads N] [--check]

Every line is one copy, `to.copy_from(source)` (or `to[...] = source`, where the line says so), over the memory that
the peers use too.  The contenders take turns; each turn repeats the copy for about a millisecond.  Printed: our
time per copy, and the median over the turns of our time divided by the peer's (below 1: ours is faster).  A star marks
a line above its group's target, the number in the group's last line; --check fails where a group's median is above it.
"""

import argparse
import ctypes
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import metal_dlpack as md

try:
    import torch
except ImportError:
    torch = None

PAGE = 16384
CLOCK = time.thread_time  # time that other processes take does not count
SHIFT = 0  # bytes by which every array misses its page


# ---- the copies ----


def filled(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that begins a page, as a Metal buffer does."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.resize(np.arange(251, dtype=np.uint8), nbytes + 2 * PAGE)  # no two items alike
    start = -memory.ctypes.data % PAGE + SHIFT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def repeated(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    view = np.broadcast_to(array, shape)
    return np.lib.stride_tricks.as_strided(array, shape, view.strides)  # torch wants it writable


Case = tuple[str, np.ndarray, np.ndarray]  # name, destination, source


def contiguous() -> Iterator[Case]:
    for nbytes in (4096, 32768, 1 << 20, 64 << 20):
        yield f"contiguous {nbytes}", filled((nbytes,), "u1"), filled((nbytes,), "u1")


def transposes() -> Iterator[Case]:
    for dtype, sides in {
        "u1": (128, 1000, 1024, 8192),
        "u2": (128, 1000, 1024, 4096),
        "f4": (96, 500, 512, 1023, 4096),
        "f8": (64, 500, 512, 4096),
        "c16": (64, 500, 2048),
    }.items():
        for side in sides:
            a = filled((side, side), dtype)
            yield f"transpose {dtype} {side}x{side}", filled((side, side), dtype), a.T
    a = filled((300, 7000), "f4")
    yield "transpose f4 300x7000", filled((7000, 300), "f4"), a.T
    a = filled((16, 256, 256), "f4")
    yield "transpose f4 16 x 256x256", filled((16, 256, 256), "f4"), a.transpose(0, 2, 1)


def images() -> Iterator[Case]:
    for dtype in ("u1", "u2", "f4"):
        for shape in ((224, 224, 3), (224, 224, 4), (1080, 1920, 3), (1080, 1920, 4)):
            a = filled(shape, dtype)
            height, width, channels = shape
            turned = (channels, height, width)
            yield f"HWC>CHW {dtype} {shape}", filled(turned, dtype), a.transpose(2, 0, 1)
            b = filled(turned, dtype)
            yield f"CHW>HWC {dtype} {shape}", filled(shape, dtype), b.transpose(1, 2, 0)
    for dtype in ("u1", "f4", "f8"):
        for shape in ((1, 56, 56, 64), (8, 56, 56, 64), (8, 224, 224, 3), (8, 14, 14, 512)):
            a = filled(shape, dtype)
            count, height, width, channels = shape
            turned = (count, channels, height, width)
            yield f"NHWC>NCHW {dtype} {shape}", filled(turned, dtype), a.transpose(0, 3, 1, 2)
            b = filled(turned, dtype)
            yield f"NCHW>NHWC {dtype} {shape}", filled(shape, dtype), b.transpose(0, 2, 3, 1)


def slices() -> Iterator[Case]:
    for dtype in ("u1", "u2", "f4", "f8", "c16"):
        for side in (100, 1000, 4096):
            a = filled((side, side), dtype)
            for name, part in {
                "a[::2]": a[::2],
                "a[5:-5]": a[5:-5],
                "a[:, 5:-5]": a[:, 5:-5],
                "a[:, ::2]": a[:, ::2],
                "a[:, ::3]": a[:, ::3],
                "a[::2, ::2]": a[::2, ::2],
                "a[:, ::-1]": a[:, ::-1],
                "a[:, :3]": a[:, :3],
                "a[:, 7]": a[:, 7],
            }.items():
                yield f"{name} {dtype} {side}", filled(part.shape, dtype), part
            half = filled((side, side // 2), dtype)
            yield f"b[:, ::2] = {dtype} {side}", a[:, ::2], half
            yield f"b[:, 5:5+n/2] = {dtype} {side}", a[:, 5 : 5 + side // 2], half
            row = filled((side,), dtype)
            yield f"row repeated {dtype} {side}", a, repeated(row, a.shape)
            yield f"column repeated {dtype} {side}", a, repeated(row[:, None], a.shape)
    a = filled((2048, 2048), "f4")
    for first in (0, 1, 24):  # rows of a few KiB
        part = a[:, first : first + 1000]
        yield f"a[:, {first}:{first + 1000}] f4 2048", filled(part.shape, "f4"), part


def permutes() -> Iterator[Case]:
    orders = [(4, 3, 2, 1, 0), (0, 2, 1, 3, 4), (1, 0, 2, 4, 3), (2, 4, 1, 0, 3), (0, 3, 2, 4, 1)]
    for dtype in ("u1", "u2", "f4", "f8", "c16"):
        for shape in ((4, 6, 8, 5, 7), (8, 16, 8, 16, 32), (16, 32, 16, 32, 32)):
            a = filled(shape, dtype)
            for order in orders:
                part = a.transpose(order)
                yield f"permute {dtype} {shape} {order}", filled(part.shape, dtype), part


def tiny() -> Iterator[Case]:
    for dtype in ("u1", "f4", "f8"):
        a = filled((4, 4), dtype)
        yield f"tiny 4x4 {dtype}", filled((4, 4), dtype), a
        yield f"tiny 4x4 {dtype} a[...] = b", filled((4, 4), dtype), a
        yield f"tiny 4x4 {dtype} turned", filled((4, 4), dtype), a.T
        wide = filled((8, 8), dtype)
        yield f"tiny 4x4 {dtype} sliced", filled((4, 4), dtype), wide[::2, ::2]


#: What may be at most our time by that of the best peer; contiguous copies are held against memcpy.
TARGETS = {contiguous: 1.1, transposes: 0.7, images: 0.9, slices: 1.25, permutes: 1.0, tiny: 1.0}


# ---- timing ----

Timer = Callable[[int], None]


def our_timer(name: str, dst: np.ndarray, src: np.ndarray) -> Timer:
    to, source = md.asarray(dst, copy=False), md.asarray(src, copy=False)

    def copy(n: int) -> None:
        for _ in range(n):
            to.copy_from(source)

    def assign(n: int) -> None:
        for _ in range(n):
            to[...] = source

    return assign if "[...]" in name else copy


def peer_timers(dst: np.ndarray, src: np.ndarray) -> dict[str, Timer]:
    def numpy_run(n: int) -> None:
        for _ in range(n):
            np.copyto(dst, src)

    addresses = dst.ctypes.data, src.ctypes.data, dst.nbytes

    def memcpy_run(n: int) -> None:
        for _ in range(n):
            ctypes.memmove(*addresses)

    timers: dict[str, Timer] = {"numpy": numpy_run}
    if torch is not None and min((*src.strides, *dst.strides)) >= 0:
        to, source = torch.from_numpy(dst), torch.from_numpy(src)

        def torch_run(n: int) -> None:
            for _ in range(n):
                to.copy_(source)

        timers["torch"] = torch_run
    if dst.ndim == 1 and dst.flags.c_contiguous and src.flags.c_contiguous:
        timers["memcpy"] = memcpy_run
    return timers


def time_once(timer: Timer, n: int) -> float:
    start = CLOCK()
    timer(n)
    return (CLOCK() - start) / n


def repeats_for(timer: Timer, budget: float) -> int:
    timer(1)
    return max(1, min(100_000, int(budget / max(time_once(timer, 3), 1e-8))))


def measure(timers: dict[str, Timer], rounds: int) -> dict[str, list[float]]:
    repeats = {name: repeats_for(timer, 1e-3) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, timer in timers.items():
            times[name].append(time_once(timer, repeats[name]))
    return times


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def report(name: str, times: dict[str, list[float]], target: float) -> float:
    """Our time by that of the peer that counts."""
    ours = times.pop("ours")
    ratios = {peer: median_ratio(ours, theirs) for peer, theirs in times.items()}
    counts = ratios["memcpy"] if "memcpy" in ratios else max(ratios.values())
    columns = "  ".join(f"{peer} {ratio:5.2f}" for peer, ratio in ratios.items())
    mark = " *" if counts > target else ""
    print(f"{name:44s} {statistics.median(ours) * 1e6:10.2f} us   {columns}{mark}", flush=True)
    return counts


def run_group(group: Callable[[], Iterator[Case]], target: float, word: str, rounds: int) -> bool:
    """Whether the group's median meets its target."""
    counts = []
    for name, dst, src in group():
        if word in name or word in group.__name__:
            timers = {"ours": our_timer(name, dst, src), **peer_timers(dst, src)}
            counts.append(report(name, measure(timers, rounds), target))
    if not counts:
        return True
    median, misses = statistics.median(counts), sum(count > target for count in counts)
    print(
        f"  {group.__name__}: median {median:.2f} of the best peer, worst {max(counts):.2f}, "
        f"{misses} of {len(counts)} above {target}"
    )
    return median <= target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", default="", help="only lines that contain this word")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="ours; peers take one")
    parser.add_argument("--shift", type=int, default=0, help="bytes past a page's beginning")
    parser.add_argument("--check", action="store_true", help="fail where a group misses its target")
    options = parser.parse_args()
    global SHIFT, CLOCK
    SHIFT = options.shift
    if options.threads > 1:
        CLOCK = time.perf_counter
    md.set_num_threads(options.threads)
    if torch is not None:
        torch.set_num_threads(1)
    print(f"python {sys.version.split()[0]}, numpy {np.__version__}, ", end="")
    print(f"torch {torch.__version__ if torch is not None else 'absent'}; our time / peer time")
    met = [run_group(group, target, options.group, options.rounds) for group, target in TARGETS.items()]
    sys.exit(1 if options.check and not all(met) else 0)


if __name__ == "__main__":
    main()
