"""mlx-lm's fused losses: a SIMD-group writes its sums while another has still to read the maxima there.

The gradients of the installed mlx-lm's kl_div_loss, by its own kernel, and as the difference of two softmaxes.
"""

import importlib.util
from pathlib import Path
from typing import Any

import softmetal

softmetal.mlx_kernels()
import mlx.core as mx  # noqa: E402 -- behind mlx_kernels

FOUND = importlib.util.find_spec("mlx_lm")
assert FOUND and FOUND.submodule_search_locations, "pip install mlx-lm"
LOSSES = Path(FOUND.submodule_search_locations[0], "tuner", "losses.py").read_text()
PLACE = "// Share the sum_exp across"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"


def error(text: str) -> float:
    """The largest error of a gradient, beside the largest number of all."""
    names: dict[str, Any] = {}
    exec(text.replace("from ..utils import can_run_metal", "can_run_metal = lambda: True"), names)
    mx.random.seed(7)
    q, p = mx.random.normal((1, 5000)), mx.random.normal((1, 5000))
    right = mx.softmax(q) - mx.softmax(p)
    gradient = mx.grad(lambda q: names["kl_div_loss"](q, p).sum())(q)
    return float(mx.abs(gradient - right).max() / mx.abs(right).max())


softmetal.configure(seed="last")
mended = error(LOSSES.replace(PLACE, BARRIER + PLACE))
print(f"error of the gradient: published {error(LOSSES):.3f}, right {0:.3f}, mended {mended:.3f}")
