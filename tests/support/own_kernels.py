"""Kernels that stand beside the test that runs them, and what such tests share."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

import metal_dlpack as md

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
#: Each operation rounds once: Metal may not join a product and a sum.
EXACT = "#pragma METAL fp contract(off)\n"


def on_metal(items, dtype=None):
    return md.asarray(np.array(items, dtype, order="C"), copy=True)


def random(seed=0):
    return np.random.default_rng(seed)


def rng_for(*words):
    return np.random.default_rng(list(" ".join(words).encode()))


@dataclass
class Kernels:
    """The kernels of one file: the compiler reads them once."""

    sources: dict[str, str] = field(default_factory=dict)

    @cached_property
    def library(self) -> md.Library:
        return md.Library(METAL + EXACT + "\n".join(self.sources.values()))

    def case(self, source: str):
        """The function below becomes a test of this kernel, which it gets."""
        name = re.search(r"kernel void (\w+)", source)[1]
        self.sources[name] = source

        def make_test(run: Callable[[md.Kernel], None]):
            def test():
                run(self.library[name])

            return test

        return make_test
