"""Kernels on the software Metal beside the same kernels on pocl, the OpenCL of processors; in one run, in turns.

    apt-get install pocl-opencl-icd
    pip install --group pocl
    taskset -c 1 python benchmarks/bench_beside_pocl.py [--check] [NAME ...]

One text is both: its macros are Metal's words, or OpenCL's.  Printed for each kernel: the least time of either, and the
median of the ratios of pairs, beside what it may be.  The results are compared.  One processor, so that threads do not
count.  --check fails where a ratio is above its bound.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import metal_dlpack as md

os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")
import pyopencl as cl  # it reads the variable when it is imported

PAIRS = 15
METAL = """#include <metal_stdlib>
using namespace metal;
#define IN(T) device const T *
#define OUT(T) device T *
#define KERNEL(...) kernel void f(__VA_ARGS__, uint2 at [[thread_position_in_grid]], \\
    uint2 in [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]])
#define X at.x
#define Y at.y
#define LX in.x
#define LY in.y
#define GX group.x
#define GY group.y
#define LOCAL threadgroup
#define BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
#define COUNTERS(T) device atomic_##T *
#define LOCAL_COUNTERS(n) threadgroup atomic_uint counters[n]
#define SET(p) atomic_store_explicit(p, 0, memory_order_relaxed)
#define ADD(p, n) atomic_fetch_add_explicit(p, n, memory_order_relaxed)
#define READ(p) atomic_load_explicit(p, memory_order_relaxed)
"""
OPENCL = """#define IN(T) __global const T *
#define OUT(T) __global T *
#define KERNEL(...) __kernel void f(__VA_ARGS__)
#define X (uint)get_global_id(0)
#define Y (uint)get_global_id(1)
#define LX (uint)get_local_id(0)
#define LY (uint)get_local_id(1)
#define GX (uint)get_group_id(0)
#define GY (uint)get_group_id(1)
#define LOCAL __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define COUNTERS(T) volatile __global T *
#define LOCAL_COUNTERS(n) __local uint counters[n]
#define SET(p) *(p) = 0
#define ADD(p, n) atomic_add(p, n)
#define READ(p) *(p)
"""
#: A threadgroup of 256 joins what its threads have in v, in t[0].
TREE = """t[LX] = v; BARRIER;
    for (uint n = 128; n > 0; n /= 2) { if (LX < n) t[LX] = JOINED(t[LX], t[LX + n]); BARRIER; }"""


def row_kernel(start: str, joined: str, second: str, last: str) -> str:
    """A threadgroup for each row of 1,024: joins its items in m, sums `second` of them in s, and writes `last`."""
    each = "for (uint k = LX; k < 1024; k += 256) { float one = x[GX * 1024 + k]; %s }"
    return f"""
#define JOINED(a, b) {joined}
KERNEL(IN(float) x, OUT(float) o) {{ LOCAL float t[256]; float v = {start};
    {each % "v = JOINED(v, one);"}
    {TREE} float m = t[0]; BARRIER; v = 0;
#undef JOINED
#define JOINED(a, b) (a + b)
    {each % f"v += {second};"}
    {TREE} float s = t[0];
    {each % f"o[GX * 1024 + k] = {last};"} }}"""


@dataclass
class Case:
    source: str
    arguments: Callable[[], list[np.ndarray]]  # the last one is the result
    threads: tuple[int, ...]
    group: tuple[int, ...]
    bound: float = 1.0
    metal: str = ""  # where Metal's own way is another


drawn = np.random.default_rng(0)
MANY, SIDE, MATRIX = 1 << 22, 2048, 512


def floats(*shape: int) -> np.ndarray:
    return drawn.random(shape, dtype="f4")


def image() -> list[np.ndarray]:
    return [floats(SIDE, SIDE), np.zeros((SIDE, SIDE), "f4")]


def matrices() -> list[np.ndarray]:
    return [floats(MATRIX, MATRIX), floats(MATRIX, MATRIX), np.zeros((MATRIX, MATRIX), "f4")]


def rows() -> list[np.ndarray]:
    return [floats(4096, 1024), np.zeros((4096, 1024), "f4")]


def counted() -> list[np.ndarray]:
    return [drawn.integers(0, 256, MANY, dtype="u4"), np.zeros(256, "u4")]


SQUARE, PRODUCT, LINE = ((SIDE, SIDE), (16, 16)), ((MATRIX, MATRIX), (16, 16)), ((MANY,), (256,))
ROWS = ((4096 * 256,), (256,))
TILED = """KERNEL(IN(float) a, IN(float) b, OUT(float) c) { LOCAL float A[16][16], B[16][16]; float s = 0;
    for (int k = 0; k < 512; k += 16) {
        A[LY][LX] = a[Y * 512 + k + LX]; B[LY][LX] = b[(k + LY) * 512 + X]; BARRIER;
        for (int q = 0; q < 16; q++) s += A[LY][q] * B[q][LX];
        BARRIER; }
    c[Y * 512 + X] = s; }"""
SUMS = f"""
#define JOINED(a, b) (a + b)
KERNEL(IN(float) x, OUT(float) o) {{ LOCAL float t[256]; float v = x[X]; {TREE} if (LX == 0) o[GX] = t[0]; }}"""
BY_LANES = """KERNEL(IN(float) x, OUT(float) o) { threadgroup float t[8]; float s = simd_sum(x[X]);
    if (LX % 32 == 0) t[LX / 32] = s;
    BARRIER;
    if (LX == 0) { s = 0; for (uint k = 0; k < 8; k++) s += t[k]; o[GX] = s; } }"""
CASES = {
    "add": Case(
        "KERNEL(IN(float) x, IN(float) y, OUT(float) o) { o[X] = x[X] + y[X]; }",
        lambda: [floats(MANY), floats(MANY), floats(MANY)],
        *LINE,
    ),
    "exp and sin": Case(
        "KERNEL(IN(float) x, OUT(float) o) { o[X] = exp(x[X]) * sin(x[X]); }",
        lambda: [floats(MANY), floats(MANY)],
        *LINE,
    ),
    "transpose, naive": Case(
        "KERNEL(IN(float) x, OUT(float) o) { o[X * 2048 + Y] = x[Y * 2048 + X]; }", image, *SQUARE, 0.5
    ),
    "transpose, tiled": Case(
        "KERNEL(IN(float) x, OUT(float) o) { LOCAL float t[16][17]; t[LY][LX] = x[Y * 2048 + X]; BARRIER;\n"
        "    o[(GX * 16 + LY) * 2048 + GY * 16 + LX] = t[LX][LY]; }",
        image,
        *SQUARE,
        0.5,
    ),
    "reduction, tree": Case(SUMS, lambda: [floats(MANY), np.zeros(MANY // 256, "f4")], *LINE, 0.5),
    "reduction, lanes": Case(SUMS, lambda: [floats(MANY), np.zeros(MANY // 256, "f4")], *LINE, metal=BY_LANES),
    "product, naive": Case(
        "KERNEL(IN(float) a, IN(float) b, OUT(float) c) { float s = 0;\n"
        "    for (int k = 0; k < 512; k++) s += a[Y * 512 + k] * b[k * 512 + X];\n    c[Y * 512 + X] = s; }",
        matrices,
        *PRODUCT,
    ),
    "product, tiled": Case(TILED, matrices, *PRODUCT, 0.5),
    "histogram, device": Case("KERNEL(IN(uint) x, COUNTERS(uint) o) { ADD(&o[x[X]], 1u); }", counted, *LINE),
    "histogram, threadgroup": Case(
        "KERNEL(IN(uint) x, COUNTERS(uint) o) { LOCAL_COUNTERS(256); SET(&counters[LX]); BARRIER;\n"
        "    ADD(&counters[x[X]], 1u); BARRIER; ADD(&o[LX], READ(&counters[LX])); }",
        counted,
        *LINE,
    ),
    "gather": Case(
        "KERNEL(IN(float) x, IN(uint) j, OUT(float) o) { o[X] = x[j[X]]; }",
        lambda: [floats(MANY), drawn.integers(0, MANY, MANY, dtype="u4"), floats(MANY)],
        *LINE,
    ),
    "stencil": Case(
        "KERNEL(IN(float) x, OUT(float) o) { if (X == 0 || Y == 0 || X == 2047 || Y == 2047) return;\n"
        "    uint i = Y * 2048 + X; o[i] = .2f * (x[i] + x[i - 1] + x[i + 1] + x[i - 2048] + x[i + 2048]); }",
        image,
        *SQUARE,
    ),
    "mandelbrot": Case(
        "KERNEL(OUT(uint) o) { float cx = X / 1024.0f * 3 - 2.2f, cy = Y / 1024.0f * 3 - 1.5f, x = 0, y = 0;\n"
        "    uint n = 0;\n"
        "    while (n < 64 && x * x + y * y < 4) { float t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; n++; }\n"
        "    o[Y * 1024 + X] = n; }",
        lambda: [np.zeros((1024, 1024), "u4")],
        (1024, 1024),
        (16, 16),
    ),
    "softmax": Case(row_kernel("-INFINITY", "fmax(a, b)", "exp(one - m)", "exp(one - m) / s"), rows, *ROWS),
    "layer norm": Case(
        row_kernel("0", "(a + b)", "(one - m / 1024) * (one - m / 1024)", "(one - m / 1024) * rsqrt(s / 1024 + 1e-5f)"),
        rows,
        *ROWS,
    ),
}


def measure(case: Case, queue: cl.CommandQueue) -> tuple[float, float, float]:
    """Seconds of ours, of pocl's, and the median of the ratios."""
    arguments = case.arguments()
    kernel, arrays = md.kernel(METAL + (case.metal or case.source)), [md.asarray(one, copy=True) for one in arguments]
    peer = cl.Program(queue.context, OPENCL + case.source).build().f
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(queue.context, flags, hostbuf=one) for one in arguments]

    def ours() -> None:
        kernel(*arrays, threads=case.threads, group=case.group)
        md.default_device().synchronize()

    def theirs() -> None:
        peer(queue, case.threads, case.group, *buffers)
        queue.finish()

    def seconds(work: Callable[[], None]) -> float:
        begin = time.process_time()  # of all threads: what else runs on the machine does not count
        work()
        return time.process_time() - begin

    seconds(ours), seconds(theirs)
    made = np.empty_like(arguments[-1])
    cl.enqueue_copy(queue, made, buffers[-1])
    differs = ~np.isclose(np.asarray(arrays[-1]), made, rtol=1e-3, atol=1e-3)
    if differs.mean() > 1e-3:  # mandelbrot: a product and a sum are one operation here
        sys.exit(f"{differs.sum()} of {made.size} results differ")
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(PAIRS)]
    least = [min(pair[which] for pair in pairs) for which in (0, 1)]
    return least[0], least[1], statistics.median(one / other for one, other in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*", choices=[*CASES, []], metavar="NAME")
    options = parser.parse_args()
    queue = cl.CommandQueue(cl.Context(cl.get_platforms()[0].get_devices()))
    slow = []
    print(f"{'':24}{'ours':>10}{'pocl':>11}{'ratio':>8}{'bound':>7}")
    for name in options.names or CASES:
        one, other, ratio = measure(CASES[name], queue)
        print(f"{name:24}{one * 1e3:7.2f} ms{other * 1e3:8.2f} ms{ratio:8.2f}{CASES[name].bound:7.2f}", flush=True)
        slow += [name] if ratio > CASES[name].bound else []
    if slow:
        print("above the bound:", ", ".join(slow))
    if options.check and slow:
        sys.exit(1)


if __name__ == "__main__":
    main()
