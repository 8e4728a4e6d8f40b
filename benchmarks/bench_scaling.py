"""What a call costs, by the number of axes, the size, the Arrays that live and the threads: a table and a picture.

    python benchmarks/bench_scaling.py [--rounds N] [--passes N] [--quick] [--out FOLDER] [--draw]

Writes costs.json and costs.svg into FOLDER (build).  docs/inside/costs.md shows those of --out docs/inside; --draw
makes the picture again from a costs.json that is there.  --quick stops at 16 MiB and 10,000 Arrays.

Every figure is the fastest of N turns; a turn repeats the call for about a millisecond, and one that takes longer is
done once.  All times are CPU time, so that other processes do not count.  On Linux the process keeps to one core, but
for the threads, which have all.  What is small where another thing grows: 2 axes, 64 float32 items, 1 Array, 1 thread.

- Sizes are uint8 in one axis.  Only copies touch the bytes: a buffer of 10 GiB is mapped and takes no memory.  Copies
  stop at 1 GiB, on one thread, into memory that the pool had.
- Arrays that live have a buffer each: a million take 4 GB.  Apple's Metal is asked for a hundred thousand.
- Of threads that call at once, the figure is the time of the process, by the calls that all of them made.
"""

import argparse
import gc
import json
import os
import platform
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import metal_dlpack as md

sys.path.insert(0, str(Path(__file__).resolve().parent))
from cost_picture import draw, table

#: Name of a call, and the call.
CALLS = {
    "from_dlpack": "from_dlpack(tensor)",
    "__dlpack__": "array.__dlpack__()",
    "np.asarray": "asarray(array)",
    "view": "array[...]",
    "copy": "array.copy()",
}
SHARING = [name for name in CALLS if name != "copy"]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
AXES = [0, 1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]
SIZES = [1, 16, 256, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB, 4 * GIB, 10 * GIB]
LIVE = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000]
THREADS = [1, 2, 3, 4, 5, 6, 7, 8]
MOST_COPIED = GIB
TURN_S = 1e-3
AT_ONCE_S = 50e-3  # ten times the interval in which the interpreter changes threads

Points = dict[str, list[tuple[int, float]]]


def names_of(array: md.Array) -> dict[str, object]:
    """What the calls name.  The tensor is torch's, on MPS, over the same buffer."""
    tensor = torch.from_dlpack(array)
    return {"array": array, "tensor": tensor, "asarray": np.asarray, "from_dlpack": md.from_dlpack}


def cost(name: str, array: md.Array, rounds: int) -> float:
    """The least nanoseconds of one call, to the tenth."""
    timer = timeit.Timer(CALLS[name], timer=time.thread_time, globals=names_of(array))
    once = timer.timeit(1)
    count = max(int(TURN_S / max(timer.timeit(1), 1e-7)), 1)
    turns = rounds if once < 0.1 else 3
    return round(min(timer.timeit(count) for _ in range(turns)) / count * 1e9, 1)


def small(ndim: int = 2) -> md.Array:
    """64 items in `ndim` axes; 1 in none."""
    return md.zeros(() if ndim == 0 else (1,) * (ndim - 2) + (8, 8) if ndim > 1 else (64,))


def by_axes(rounds: int, quick: bool) -> Points:
    return {name: [(ndim, cost(name, small(ndim), rounds)) for ndim in AXES] for name in CALLS}


def by_size(rounds: int, quick: bool) -> Points:
    points: Points = {name: [] for name in CALLS}
    for nbytes in SIZES:
        if nbytes > (16 * MIB if quick else md.default_device().max_buffer_length):
            break
        array = md.empty(nbytes, "uint8")
        for name in SHARING:
            points[name].append((nbytes, cost(name, array, rounds)))
        if nbytes <= MOST_COPIED:
            points["copy"].append((nbytes, cost("copy", array.fill(1) or array, rounds)))
        del array
        md.empty_cache()
    return points


def by_live(rounds: int, quick: bool) -> Points:
    points: Points = {name: [] for name in CALLS}
    held: list[md.Array] = []
    for count in LIVE:
        if count > (10_000 if quick else most_live()):
            break
        held += [small() for _ in range(count - len(held))]
        for name in CALLS:
            points[name].append((count, cost(name, held[count // 2], rounds)))
    return points


def most_live() -> int:
    """A buffer of Apple's Metal takes a page of 16 KiB or more."""
    return 1_000_000 if md.default_device().is_software else 100_000


def by_threads(rounds: int, quick: bool) -> Points:
    return {name: [(count, cost_at_once(name, count, rounds)) for count in THREADS] for name in CALLS}


def cost_at_once(name: str, threads: int, rounds: int) -> float:
    """Nanoseconds of the process for each of all calls, on Arrays of their own."""
    repeat = max(int(AT_ONCE_S / threads / (cost(name, small(), 3) * 1e-9)), 1)
    timers = [timeit.Timer(CALLS[name], globals=names_of(small())) for _ in range(threads)]

    def turn() -> float:
        start = threading.Barrier(threads)

        def work(timer: timeit.Timer) -> None:
            start.wait()
            timer.timeit(repeat)

        workers = [threading.Thread(target=work, args=(timer,)) for timer in timers]
        begun = time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return (time.process_time() - begun) / repeat / threads * 1e9

    return round(min(turn() for _ in range(max(rounds // 6, 3))), 1)


PARTS: dict[str, Callable[[int, bool], Points]] = {
    "axes": by_axes,
    "bytes": by_size,
    "live": by_live,
    "threads": by_threads,
}


def cores(wanted: set[int] | None) -> set[int]:
    """Keep this process to `wanted`, where the system can; the cores that it had."""
    if not hasattr(os, "sched_setaffinity"):
        return set()
    had = os.sched_getaffinity(0)
    if wanted:
        os.sched_setaffinity(0, wanted)
    return had


def measure(rounds: int, passes: int, quick: bool) -> dict[str, Points]:
    """The least of all passes, point by point: what disturbs the machine lasts for seconds."""
    found = measure_once(rounds, quick)
    for _ in range(passes - 1):
        again = measure_once(rounds, quick)
        for part, points in found.items():
            for name, series in points.items():
                pairs = zip(series, again[part][name], strict=True)
                points[name] = [(value, min(time, other)) for (value, time), (_, other) in pairs]
    return found


def measure_once(rounds: int, quick: bool) -> dict[str, Points]:
    torch.set_num_threads(1)
    md.set_num_threads(1)
    found = {}
    all_cores = cores(None)
    for part, points in PARTS.items():
        cores(all_cores if part == "threads" else {max(all_cores, default=0)})
        found[part] = points(rounds, quick)
        gc.collect()
        md.empty_cache()
    md.set_num_threads(None)
    return found


def machine() -> str:
    names = [line.partition(":")[2].strip() for line in cpu_lines() if line.startswith("model name")]
    metal = "software Metal" if md.default_device().is_software else md.default_device().name
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {platform.system()}, {metal}"


def cpu_lines() -> Iterator[str]:
    path = Path("/proc/cpuinfo")
    return iter(path.read_text().splitlines() if path.exists() else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--passes", type=int, default=1, help="measure all again, and keep the least")
    parser.add_argument("--quick", action="store_true", help="small sizes and few Arrays")
    parser.add_argument("--out", type=Path, default=Path("build"), help="where costs.json and costs.svg go")
    parser.add_argument("--draw", action="store_true", help="only the picture, from the costs.json there")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    data = options.out / "costs.json"
    if not options.draw:
        costs = measure(options.rounds, options.passes, options.quick)
        measured = {"machine": machine(), "rounds": options.rounds, "passes": options.passes, "costs": costs}
        data.write_text(json.dumps(measured).replace("]], ", "]],\n") + "\n")  # a line for each call
    found = json.loads(data.read_text())
    (options.out / "costs.svg").write_text(draw(found["costs"], found["machine"]))
    print(found["machine"])
    print(table(found["costs"]))
    print(f"{options.out / 'costs.svg'} has the picture.")


if __name__ == "__main__":
    main()
