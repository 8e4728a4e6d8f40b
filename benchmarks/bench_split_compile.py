"""What it takes to read and split a kernel, beside the same build without: for each build of a run of pytest.

    PYTHONPATH=benchmarks python -m pytest -n 0 -s -p bench_split_compile tests/kernels/test_real_kernels_{ggml,mlx}.py

The cache must know none of the kernels: XDG_CACHE_HOME in an empty folder, but for `metal_dlpack/tests`.  Printed at
the end: the median and the greatest ratio of processor time, and that of all.
"""

import atexit
import resource
import statistics
from pathlib import Path
from unittest import mock

from softmetal.msl import compiler

BUILD = compiler.Compiler.build
PAIRS: list[tuple[float, float]] = []


def spent() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def build(self, cpp_text: str, out: Path, **how) -> None:
    begin = spent()
    BUILD(self, cpp_text, out, **how)
    middle = spent()
    if compiler.WAITING in cpp_text and not how.get("checked") and not how.get("counting"):
        other = out.with_suffix(".unsplit")
        with mock.patch.object(compiler, "WAITING", "nothing has this"):
            BUILD(self, cpp_text, other, **how)
        PAIRS.append((middle - begin, spent() - middle))
        other.unlink()


@atexit.register
def tell() -> None:
    if ratios := [split / plain for split, plain in PAIRS]:
        sums = [sum(one) for one in zip(*PAIRS, strict=True)]
        median = statistics.median(ratios)
        print(f"\n{len(ratios)} builds: median {median:.2f}, most {max(ratios):.2f}, all {sums[0] / sums[1]:.2f}")


compiler.Compiler.build = build
