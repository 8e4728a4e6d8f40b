"""The exchange beside its peers, one call a line, in one process.

    taskset -c 1 python benchmarks/bench_exchange.py [--rounds N] [--word WORD] [--check]

Ours and the peer's take turns; each turn repeats the call for about a millisecond.  Printed: both
times of one call, the loop's cost included, the ratio of the fastest turns, the median ratio of
neighbouring turns, and the target that the better of the two is held against: what disturbs a machine
makes both larger, at different times.  Arrays have two dimensions unless the line says otherwise.

`memoryview(m)` and `np.asarray(m)` of a memoryview that is there already ask nobody for a buffer.  Every other
object is asked, and CPython keeps its answer in an object of its own: array.array, about the quickest of those,
takes longer than m as well.  So the lines beside m have no target.  Arrays are held against a memoryview of NumPy's
memory made each time, and np.asarray(a) against array.array, which has one dimension less.

In "from_dlpack(torch MPS)" some 25 ns are torch's answer whether the tensor requires
grad, which torch's own __dlpack__ asks for as well, and 35 ns are the tensor's storage, which
is kept so that `x.data = y` takes no memory from an Array.  tvm_ffi does neither.

Above their peer, and why: an attribute of an Array is found as one of NumPy's is, and takes some 8 ns more.
`asarray(x)` makes an MTLBuffer over NumPy's memory, where torch notes an address.  `a[1, 2] = 3.0` makes the view of
the item, and asks whether a stream still reads it.  `np.add(a, a)` is NumPy's own work: it looks for __array_ufunc__,
and reads the buffers' formats; it takes nearly as long for memoryviews.  A Stream is a queue and an event of Metal's.

The last line is the time that `import metal_dlpack` takes in a process that has imported nothing
else, the fastest of several.  --check fails where a line is slow.
"""

import argparse
import array
import os
import statistics
import subprocess
import sys
import time
import timeit
from pathlib import Path

import numpy as np
import torch
import tvm_ffi

import metal_dlpack as md

CLOCK = time.thread_time  # time that other processes take does not count
MOST_IMPORT_MS = 20

#: Name, our call, the peer's, target of the ratio.
ROWS = [
    ("a.__dlpack__()", "a.__dlpack__()", "x.__dlpack__()", 1.0),
    ("a.__dlpack__(max_version=(1, 3))", "a.__dlpack__(max_version=v)", "x.__dlpack__(max_version=v)", 1.0),
    ("from_dlpack(Array)", "from_dlpack(a)", "np_from_dlpack(x)", 0.8),
    ("from_dlpack(torch MPS)", "from_dlpack(mps)", "tvm_from_dlpack(mps)", 1.25),
    ("from_dlpack(torch CPU, copy=False)", "from_dlpack(t, copy=False)", "np_from_dlpack(t)", 0.5),
    ("from_dlpack(ndarray, copy=False)", "from_dlpack(x, copy=False)", "torch_from_dlpack(x)", 0.8),
    ("a.to(torch.Tensor)", "a.to(Tensor)", "torch_from_dlpack(a)", 0.35),
    ("np.asarray(a)", "asarray(a)", "asarray(memoryview(x))", 1.0),
    ("np.asarray(a), beside asarray(m)", "asarray(a)", "asarray(m)", None),
    ("np.asarray(a), beside array.array", "asarray(a)", "asarray(stdlib)", 1.25),
    ("memoryview(a)", "memoryview(a)", "memoryview(x)", 1.0),
    ("memoryview(a), beside memoryview(m)", "memoryview(a)", "memoryview(m)", None),
    ("memoryview(a), beside array.array", "memoryview(a)", "memoryview(stdlib)", None),
    ("a[1:, 2]", "a[1:, 2]", "x[1:, 2]", 1.0),
    ("a.reshape(6, 4)", "a.reshape(6, 4)", "x.reshape(6, 4)", 1.0),
    ("a.reshape((6, 4))", "a.reshape((6, 4))", "x.reshape((6, 4))", 1.0),
    ("a.dtype", "a.dtype", "x.dtype", 1.4),
    ("a.shape", "a.shape", "x.shape", 1.1),
    ("a[1, 2] = 3.0", "a[1, 2] = 3.0", "x[1, 2] = 3.0", 2.2),
    ("for row in a", "for row in a: pass", "for row in x: pass", 1.0),
    ("asarray(list)", "md_asarray(rows)", "asarray(rows)", 1.0),
    ("asarray(list), beside torch.tensor", "md_asarray(rows)", "tensor(rows)", 0.35),
    ("asarray(ndarray)", "md_asarray(x)", "torch_asarray(x)", 2.0),
    ("np.add(a, a), beside memoryview(m)", "add(a, a)", "add(m, m)", 1.5),
    ("Stream()", "Stream()", "torch_stream('cpu')", None),
]


def namespace() -> dict[str, object]:
    x = np.arange(24, dtype="float32").reshape(4, 6)
    a = md.asarray(x, copy=True)
    return {
        "a": a,
        "x": x,
        "m": memoryview(x),
        "stdlib": array.array("f", range(24)),
        "t": torch.from_numpy(x.copy()),
        "mps": torch.from_dlpack(a),
        "v": (1, 3),
        "Tensor": torch.Tensor,
        "rows": x.tolist(),
        "asarray": np.asarray,
        "add": np.add,
        "md_asarray": md.asarray,
        "torch_asarray": torch.asarray,
        "tensor": torch.tensor,
        "Stream": md.Stream,
        "torch_stream": torch.Stream,
        "from_dlpack": md.from_dlpack,
        "np_from_dlpack": np.from_dlpack,
        "torch_from_dlpack": torch.from_dlpack,
        "tvm_from_dlpack": tvm_ffi.from_dlpack,
    }


def compare(ours: str, theirs: str, names: dict[str, object], rounds: int) -> tuple[float, float, float, float]:
    """Our time and the peer's in ns, the ratio of the fastest turns, the median ratio."""
    timers = [timeit.Timer(statement, timer=CLOCK, globals=names) for statement in (ours, theirs)]
    count = max(int(1e-3 / max(timers[1].timeit(1000) / 1000, 1e-9)), 100)
    pairs = []
    for turn in range(rounds):
        first, second = timers if turn % 2 else timers[::-1]
        times = first.timeit(count), second.timeit(count)
        pairs.append(times if turn % 2 else times[::-1])
    mine, others = (min(column) for column in zip(*pairs, strict=True))
    return mine / count * 1e9, others / count * 1e9, mine / others, statistics.median(a / b for a, b in pairs)


def import_ms(rounds: int) -> float:
    code = (
        "import sys, time; start = time.perf_counter(); import metal_dlpack; "
        "print(time.perf_counter() - start); assert 'numpy' not in sys.modules"
    )
    paths = os.pathsep.join([str(Path(md.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-S", "-c", code]  # -S: what site-packages' own files import does not count
    children = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(rounds)
    ]
    return min(float(child.stdout) for child in children) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=301)
    parser.add_argument("--word", default="", help="only lines whose name has it")
    parser.add_argument("--check", action="store_true", help="fail where a line is slow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names, slow = namespace(), []
    print(f"{'':36}    ours     peer  fastest  median  target")
    for name, ours, theirs, target in ROWS:
        if options.word in name:
            mine, others, fastest, median = compare(ours, theirs, names, options.rounds)
            mark = "" if target is None else "ok" if min(fastest, median) <= target else "slow"
            slow += [name] if mark == "slow" else []
            limit = "" if target is None else f"{target:.2f}  {mark}"
            print(f"{name:36} {mine:5.0f} ns {others:5.0f} ns  {fastest:7.2f} {median:7.2f}    {limit}")
    if options.word in "import metal_dlpack":
        taken = import_ms(7)
        mark = "ok" if taken < MOST_IMPORT_MS else "slow"
        slow += ["import"] if mark == "slow" else []
        print(f"{'import metal_dlpack':36} {taken:5.1f} ms {'':27} {MOST_IMPORT_MS} ms  {mark}")
    if options.check and slow:
        sys.exit(f"slow: {', '.join(slow)}")


if __name__ == "__main__":
    main()
