"""What torch's mps device on the software Metal costs beside torch's CPU, in one run, in turns, on one core.

    taskset -c 1 python benchmarks/bench_torch_mps.py

Printed for each operator: the median of the differences of pairs for small tensors, and of their ratios for 16 MiB;
then how long softmetal.torch_mps() takes in fresh processes where the library lies in the cache.
"""

import statistics
import subprocess
import sys
import time

import torch

import softmetal

SMALL, LARGE = 16, 4 << 20  # float32 numbers
PAIRS = 41

OPERATORS = {
    "x.add_(1)": lambda x, y: x.add_(1),
    "x + y": lambda x, y: x + y,
    "torch.mul(x, y, out=y)": lambda x, y: torch.mul(x, y, out=y),
    "x.exp()": lambda x, y: x.exp(),
    "x.sum()": lambda x, y: x.sum(),
    "x.clone()": lambda x, y: x.clone(),
}


def seconds(work, tensors, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        work(*tensors)
    return (time.perf_counter() - begin) / calls


def pairs(work, size, calls):
    """Of each pair the time on mps and on the CPU; which one comes first takes turns."""
    on = {device: [torch.ones(size, device=device) for _ in range(2)] for device in ("mps", "cpu")}
    for turn in range(PAIRS + 3):
        order = ("mps", "cpu") if turn % 2 else ("cpu", "mps")
        took = {device: seconds(work, on[device], calls) for device in order}
        if turn >= 3:
            yield took["mps"], took["cpu"]


def switched_on():
    code = (
        "import torch, time; import softmetal as s; begin = time.perf_counter(); "
        "s.torch_mps(); print(time.perf_counter() - begin)"
    )
    return statistics.median(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5))


def main():
    softmetal.torch_mps()
    torch.set_num_threads(1)
    print(f"{'':24} {'16 numbers: more than the CPU':>30}  {'16 MiB: times the CPU':>22}")
    for name, work in OPERATORS.items():
        small = statistics.median(mps - cpu for mps, cpu in pairs(work, SMALL, 300))
        large = statistics.median(mps / cpu for mps, cpu in pairs(work, LARGE, 2))
        print(f"{name:24} {small * 1e6:27.1f} us  {large:22.2f}")
    view = statistics.median(mps - cpu for mps, cpu in pairs(lambda x, y: x[1:], SMALL, 300))
    print(f"{'x[1:]':24} {view * 1e6:27.1f} us")
    print(f"softmetal.torch_mps() in a fresh process, from the cache: {switched_on() * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
