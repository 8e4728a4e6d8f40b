"""Kernels without a Mac: from a source to an image that is loaded, each time in a new process.

    python benchmarks/bench_kernel_compile.py [--rounds N] [--check]

"first" has an empty cache: the shim is compiled too, which is done once for each compiler and set of flags.
"compiled" has a source that the cache does not know; "cached" one that it knows.  All three begin with
`import softmetal.msl` and end with the image loaded.  In turn with them, `import numpy` in a new process: the scale.

Printed: the least time that passed, the least time that the processors worked (the process and its compiler; what else
runs on the machine does not count), and the median of that beside numpy's in the same turn.  --check holds the second
against 1 s compiled and 50 ms cached.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from metal_dlpack.language.errors import CompilerError
from softmetal.msl import compiler

MOST_COMPILED_MS, MOST_CACHED_MS = 1000, 50

CHILD = """
import json, os, resource, sys, time
def spent():
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.perf_counter(), sum(use.ru_utime + use.ru_stime for use in uses)
before = spent()
if len(sys.argv) > 1:
    from softmetal import msl
    library = msl.open_library(open(sys.argv[1]).read())
    path = library.compile(next(iter(library.functions)), {})
    import ctypes
    ctypes.CDLL(path)
else:
    import numpy
print(json.dumps([(end - begin) * 1e3 for begin, end in zip(before, spent())]))
"""

SOURCES = {
    "add": """
kernel void add(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] += x[i]; }
""",
    "softmax": """
kernel void softmax(device const float *x, device float *y, constant uint &n, uint t [[thread_position_in_threadgroup]],
                    uint row [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]]) {
    threadgroup float shared[256];
    float most = -INFINITY, sum = 0;
    for (uint i = t; i < n; i += size) most = max(most, x[row * n + i]);
    most = simd_max(most);
    for (uint i = t; i < n; i += size) sum += exp(x[row * n + i] - most);
    shared[t] = sum;
    for (uint s = size / 2; s > 0; s /= 2) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t < s) shared[t] += shared[t + s];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = t; i < n; i += size) y[row * n + i] = exp(x[row * n + i] - most) / shared[0];
}
""",
    "tiled matmul": """
kernel void matmul(device const half *a, device const half *b, device float *c, constant uint3 &size,
                   uint2 at [[thread_position_in_grid]], uint2 in_group [[thread_position_in_threadgroup]]) {
    threadgroup half4 left[8][8], right[8][8];
    float4 sum = 0;
    for (uint k = 0; k < size.z; k += 8) {
        left[in_group.y][in_group.x] = half4(a[at.y * size.z + k + in_group.x]);
        right[in_group.y][in_group.x] = *(device const half4 *)(b + (k + in_group.y) * size.x + 4 * at.x);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < 8; ++i) sum = fma(float4(left[in_group.y][i]), float4(right[i][in_group.x]), sum);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    *(device float4 *)(c + at.y * size.x + 4 * at.x) = sum;
}
""",
}


def run(environment: dict[str, str], *arguments: str) -> tuple[float, float]:
    """Milliseconds that passed, and that the processors worked."""
    command = [sys.executable, "-c", CHILD, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    wall, worked = json.loads(done.stdout)
    return wall, worked


def compilers() -> dict[str, str]:
    found = {}
    for command in compiler.candidates(os.environ["PATH"]):
        try:
            found[f"clang {compiler.known(command).version} ({Path(command[0]).name})"] = shlex.join(command)
        except CompilerError as error:
            print(error)
    return found


def measure(folder: Path, name: str, rounds: int, environment: dict[str, str]) -> bool:
    """Print a line for each state of the cache; True if none is too slow."""
    source = folder / "source.metal"
    is_first = not (folder / "cache").exists()
    times: dict[str, list[tuple[float, float, float]]] = {"first": [], "compiled": [], "cached": []}
    for turn in range(rounds + is_first):
        source.write_text(f"#include <metal_stdlib>\nusing namespace metal;\n// {turn}\n{SOURCES[name]}")
        for state in ("compiled", "cached") if turn or not is_first else ("first",):
            _, scale = run(environment)
            times[state].append((*run(environment, str(source)), scale))
    is_fine = True
    for state, most in (("first", None), ("compiled", MOST_COMPILED_MS), ("cached", MOST_CACHED_MS)):
        if not times[state]:
            continue
        wall, worked = min(t[0] for t in times[state]), min(t[1] for t in times[state])
        ratio = statistics.median(t[1] / t[2] for t in times[state])
        is_slow = most is not None and worked > most
        is_fine &= not is_slow
        said = "" if most is None else f"   of {most}" + (" SLOW" if is_slow else "")
        print(f"  {name:14} {state:9} {wall:8.1f} ms  {worked:8.1f} ms  {ratio:6.2f} of numpy{said}", flush=True)
    return is_fine


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--check", action="store_true", help="fail if a line is slow")
    asked = options.parse_args()
    is_fine = True
    for label, command in compilers().items():
        for kind in ("0", "1"):
            print(f"{label}, {'checked' if kind == '1' else 'plain'}: {'passed':>24} {'worked':>10}")
            with tempfile.TemporaryDirectory() as folder:
                environment = {
                    "SOFTMETAL_CXX": command,
                    "SOFTMETAL_KERNEL_CHECK": kind,
                    "SOFTMETAL_CACHE": f"{folder}/cache",
                }
                for name in SOURCES:
                    is_fine &= measure(Path(folder), name, asked.rounds, environment)
    return int(asked.check and not is_fine)


if __name__ == "__main__":
    sys.exit(main())
