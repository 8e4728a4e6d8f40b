"""Kernels with barriers, and each of them once without one of its barriers.

`CASES[name]()` is a kernel of group_kernels.py, of MLX or of llama.cpp.  As a program, for the tests that look for reports:

    python barrier_kernels.py NAME        # JSON: the reports as it is, then those without each barrier in turn
"""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ggml_arguments
import group_kernels
import kernel_sources
import numpy as np
from group_kernels import on_metal, random

import metal_dlpack as md

BARRIER = re.compile(r"(?:::metal::)?\b(?:threadgroup|simdgroup)_barrier\([^)]*\);")


@dataclass(frozen=True)
class Case:
    source: str
    run: Callable[[md.Kernel], None]
    name: str | None = None
    part: str = ""  # whose barriers count; "": the source's
    include: tuple[Path, ...] = ()
    constants: dict[str, object] = field(default_factory=dict)

    def barriers(self) -> list[re.Match[str]]:
        start = self.source.index(self.part)
        return list(BARRIER.finditer(self.source, start, start + len(self.part) or len(self.source)))

    def try_without(self, barrier: int | None) -> None:
        """Run it; wrong results and a launch that the checker stops are no matter here."""
        source = self.source
        if barrier is not None:
            match = self.barriers()[barrier]
            source = source[: match.start()] + ";" + source[match.end() :]
        kernel = md.kernel(source, self.name, include=self.include, constants=self.constants, math="safe")
        try:
            self.run(kernel)
        except (AssertionError, md.MetalError):
            if barrier is None:
                raise


CASES: dict[str, Callable[[], Case]] = {
    name: lambda name=name: Case(group_kernels.KERNELS[name].source, group_kernels.KERNELS[name].run)
    for name in (
        "tree_sum",
        "arg_max",
        "softmax",
        "scan_by_tree",
        "transpose",
        "tiled_matmul",
        "bitonic_sort",
        "radix_pass",
    )
}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def of_mlx(header: str, instance: str) -> tuple[str, str]:
    """The source with the header in place of its #include, and the header."""
    folder = kernel_sources.mlx() / "mlx" / "backend" / "metal" / "kernels"
    text = (folder / header).read_text()
    head = "#include <metal_stdlib>\n#include <metal_simdgroup>\nusing namespace metal;\n"
    includes = "".join(f'#include "mlx/backend/metal/kernels/{name}.h"\n' for name in ("utils", "defines"))
    return f"{head}{includes}{text}\ninstantiate_kernel({instance})\n", text


@case
def mlx_softmax() -> Case:
    source, text = of_mlx("softmax.h", '"rows", softmax_single_row, float, float, SOFTMAX_N_READS')
    part = text[text.index("softmax_single_row") : text.index("softmax_looped")]

    def run(kernel):
        x, y = random().standard_normal((2, 250), dtype="float32"), md.zeros((2, 250), dtype="float32")
        kernel(on_metal(x), y, 250, groups=2, group=64)
        exact = np.exp(x.astype("f8") - x.max(1, keepdims=True))
        np.testing.assert_allclose(np.asarray(y), exact / exact.sum(1, keepdims=True), rtol=1e-5)

    return Case(source, run, "rows", part, (kernel_sources.mlx(),))


@case
def mlx_scan() -> Case:
    source, text = of_mlx("scan.h", '"rows", contiguous_scan, int, int, CumSum<int>, 4, true, false')
    part = text[text.index("void contiguous_scan") : text.index("void strided_scan")]

    def run(kernel):  # 1024 threads, as MLX: the first SIMD-group reads a sum of each of 32
        x, y = random().integers(-9, 9, (1, 5000), dtype="int32"), md.zeros((1, 5000), dtype="int32")
        kernel(on_metal(x), y, 5000, groups=(1, 1), group=1024)
        np.testing.assert_array_equal(np.asarray(y), x.cumsum(1))

    return Case(source, run, "rows", part, (kernel_sources.mlx(),))


@case
def mlx_sort() -> Case:
    source, text = of_mlx("sort.h", '"rows", block_sort, float, float, false, 32, 4')
    part = text[: text.index("void block_sort_nc")]

    def run(kernel):
        x, y = random().standard_normal((2, 120), dtype="float32"), md.zeros((2, 120), dtype="float32")
        kernel(on_metal(x), y, 120, 1, 1, 120, 120, groups=(1, 2), group=32)
        np.testing.assert_array_equal(np.asarray(y), np.sort(x, 1))

    return Case(source, run, "rows", part, (kernel_sources.mlx(),))


def of_ggml(file: str, start: str, end: str) -> tuple[str, str, tuple[Path, ...]]:
    folders = kernel_sources.ggml_folders()
    source = (folders[0] / file).read_text()
    return source, source[source.index(start) : source.index(end)], folders


@case
def ggml_softmax() -> Case:
    source, part, folders = of_ggml("softmax.metal", "void kernel_soft_max(", "void kernel_soft_max_4(")

    def run(kernel):
        x, out = random().standard_normal((3, 100), dtype="float32"), md.zeros((3, 100), dtype="float32")
        layouts = ggml_arguments.layout(x, "0"), ggml_arguments.layout(x, "1"), ggml_arguments.layout(x, "")
        args = ggml_arguments.struct("soft_max", *layouts, scale=1, m0=1, m1=1, n_head_log2=1)
        rows = on_metal(x).view("int8")
        kernel(args, rows, rows, rows, out.view("int8"), groups=3, group=96, threadgroup_memory={"buf": 128})
        exact = np.exp(x.astype("f8") - x.max(1, keepdims=True))
        np.testing.assert_allclose(np.asarray(out), exact / exact.sum(1, keepdims=True), rtol=3e-6)

    return Case(source, run, "kernel_soft_max_f32", part, folders)


@case
def ggml_l2_norm() -> Case:
    source, part, folders = of_ggml("norm.metal", "void kernel_l2_norm_impl(", "kernel_l2_norm_t;")

    def run(kernel):
        x, out = random().standard_normal((3, 100), dtype="float32"), md.zeros((3, 100), dtype="float32")
        args = ggml_arguments.struct("l2_norm", ggml_arguments.layout(x, "0"), ggml_arguments.layout(x, ""), eps=1e-6)
        memory = {"shmem_f32": 128}
        kernel(args, on_metal(x).view("int8"), out.view("int8"), groups=3, group=64, threadgroup_memory=memory)
        np.testing.assert_allclose(np.asarray(out), x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-6)

    return Case(source, run, "kernel_l2_norm_f32_f32", part, folders)


@case
def ggml_argsort() -> Case:
    source, part, folders = of_ggml(
        "argsort.metal", "kernel void kernel_argsort_f32_i32(", "kernel_argsort_f32_i32_asc"
    )

    def run(kernel):
        x, out = random().permutation(120).astype("f4").reshape(2, 60), md.zeros((2, 60), dtype="int32")
        layouts = ggml_arguments.layout(x, "0"), ggml_arguments.layout(x, "")
        args, memory = ggml_arguments.struct("argsort", *layouts, top_k=60), {"shmem_i32": 256}
        kernel(args, on_metal(x).view("int8"), out, groups=2, group=64, threadgroup_memory=memory)
        np.testing.assert_array_equal(np.asarray(out), np.argsort(x, 1))

    return Case(source, run, "kernel_argsort_f32_i32_asc", part, folders)


@case
def ggml_matmul() -> Case:
    source, part, folders = of_ggml("mul_mm.metal", "#else", "#endif // GGML_METAL_HAS_TENSOR")
    is_edge = {"FC_mul_mm_bc_inp": False, "FC_mul_mm_bc_out": True}

    def run(kernel):
        a, b = random().integers(-4, 5, (56, 64)).astype("f4"), random(1).integers(-4, 5, (30, 64)).astype("f4")
        out = md.zeros((30, 56), dtype="float32")
        layouts = ggml_arguments.layout(a, "0"), ggml_arguments.layout(b, "1")
        args, memory = ggml_arguments.struct("mul_mm", *layouts, ne0=56, ne1=30, r2=1, r3=1), {"shmem": 8192}
        sides = on_metal(a).view("int8"), on_metal(b).view("int8"), out.view("int8")
        kernel(args, *sides, groups=(1, 1, 1), group=128, threadgroup_memory=memory)
        np.testing.assert_array_equal(np.asarray(out), b @ a.T)

    constants = {**is_edge, "FC_mul_mm_ne12": 1, "FC_mul_mm_r2": 1, "FC_mul_mm_r3": 1}
    return Case(source, run, "kernel_mul_mm_f32_f32", part, folders, constants)


def reports_of(case: Case, barrier: int | None) -> list[str]:
    from metal_dlpack import softmetal

    before = softmetal.reports()
    case.try_without(barrier)
    softmetal.wait_idle()
    return [softmetal.last_report()] if softmetal.reports() > before else []


def main() -> None:
    case = CASES[sys.argv[1]]()
    tried = [None, *range(len(case.barriers()))]
    lines = [None, *(case.source.count("\n", 0, match.start()) + 1 for match in case.barriers())]
    found = [{"line": line, "reports": reports_of(case, barrier)} for barrier, line in zip(tried, lines, strict=True)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
