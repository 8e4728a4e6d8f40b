"""Tests of real kernels, each run again without one barrier of its kernel.

As a program, for the tests that look for reports:

    python barrier_kernels.py NAME        # JSON: the reports as it is, then those without each barrier in turn
"""

import json
import re
import runpy
import sys
from dataclasses import dataclass, field

from places import TESTS

import metal_dlpack as md
import softmetal
from metal_dlpack import kernel_source

BARRIER = re.compile(r"(?:::metal::)?\b(?:threadgroup|simdgroup)_barrier\([^)]*\);")


@dataclass(frozen=True)
class Case:
    """A test of tests/kernels/test_real_kernels_{file}.py; the barriers that count stand from `start` to `end`."""

    file: str
    test: str
    start: str
    end: str = ""  # "": the end of the source
    arguments: dict[str, object] = field(default_factory=dict)

    def barriers(self, source: str) -> list[re.Match[str]]:
        if self.start not in source:  # another kernel of the same test
            return []
        start = source.index(self.start)
        return list(BARRIER.finditer(source, start, source.index(self.end, start) if self.end else len(source)))

    def run_without(self, barrier: int | None) -> tuple[list[str], int]:
        """The last report if there is one, and how many barriers there are.

        Without a barrier, wrong results and a launch that the checker stops are no matter here.
        """
        count, make, before = 0, md.Library, softmetal.reports()

        def make_changed(source: str, include=None, **options: object) -> md.Library:
            nonlocal count
            source = kernel_source.compose(source, (None, None, include, "safe"))
            found = self.barriers(source)
            count = max(count, len(found))
            if found and barrier is not None:
                source = source[: found[barrier].start()] + ";" + source[found[barrier].end() :]
            return make(source, **options)

        module = runpy.run_path(str(TESTS / "kernels" / f"test_real_kernels_{self.file}.py"))
        if own := module.get("kernels"):  # the others need not be compiled
            own.sources = {name: text for name, text in own.sources.items() if self.start in text}
        try:
            md.Library = make_changed
            module[self.test](**self.arguments)
        except (AssertionError, md.MetalError):
            if barrier is None:
                raise
        finally:
            md.Library = make
        softmetal.wait_idle()
        return [softmetal.last_report()] if softmetal.reports() > before else [], count


OWN = ("tree_sum", "tiled_matmul", "bitonic_sort")
CASES = {name: Case("groups", f"test_{name}", f"kernel void {name}(") for name in OWN} | {
    "mlx_softmax": Case("mlx", "test_softmax_of_a_row", "softmax_single_row", "softmax_looped"),
    "mlx_scan": Case("mlx", "test_scans_along_rows", "void contiguous_scan", "void strided_scan"),
    "mlx_sort": Case("mlx", "test_sorts_in_a_block", "struct BlockMergeSort", "void block_sort_nc"),
    "ggml_softmax": Case("ggml", "test_softmax_with_a_mask", "void kernel_soft_max(", "void kernel_soft_max_4("),
    "ggml_norm": Case("ggml", "test_norms_with_a_weight", "void kernel_norm_fuse_impl(", "kernel_norm_fuse_t;", {"kind": "norm"}),
    "ggml_argsort": Case("ggml", "test_argsort_and_argmax", "void kernel_argsort_f32_i32(", "kernel_argsort_f32_i32_asc"),
    "ggml_matmul": Case("ggml", "test_a_product_of_matrices", "#else\n\ntemplate<\n    typename S0,", "#endif // GGML_METAL_HAS_TENSOR",
                        {"kind": "f32", "dtype": "f4", "m": 72, "n": 30, "k": 64}),
}  # fmt: skip


def main() -> None:
    case = CASES[sys.argv[1]]
    whole, count = case.run_without(None)
    print(json.dumps([whole, *(case.run_without(barrier)[0] for barrier in range(count))]))


if __name__ == "__main__":
    main()
