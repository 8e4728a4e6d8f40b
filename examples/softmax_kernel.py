"""Softmax as a Metal kernel of your own, over a torch tensor on MPS; MLX and NumPy see the same buffer.

On a Mac Metal compiles it and the GPU runs it; elsewhere clang compiles the same text for the CPU, and torch carries
the tensor.
"""

import importlib.util
from typing import Any

import numpy as np

import metal_dlpack as md

SOURCE = """
#include <metal_stdlib>
using namespace metal;

/// A threadgroup a row.  `parts` has room for one number of each SIMD-group.
kernel void softmax(device const float *x,
                    device float *y,
                    constant uint &width,
                    threadgroup float *parts,
                    uint row [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_position_in_threadgroup]],
                    uint threads [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[simdgroup_index_in_threadgroup]],
                    uint groups [[simdgroups_per_threadgroup]])
{
    x += row * width;
    y += row * width;

    float largest = -INFINITY;
    for (uint i = thread_index; i < width; i += threads) {
        largest = max(largest, x[i]);
    }
    largest = simd_max(largest);
    if (lane == 0) {
        parts[group] = largest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    largest = simd_max(lane < groups ? parts[lane] : -INFINITY);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float sum = 0;
    for (uint i = thread_index; i < width; i += threads) {
        sum += exp(x[i] - largest);
    }
    sum = simd_sum(sum);
    if (lane == 0) {
        parts[group] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(lane < groups ? parts[lane] : 0);

    for (uint i = thread_index; i < width; i += threads) {
        y[i] = exp(x[i] - largest) / sum;
    }
}
"""

ROWS, WIDTH, THREADS = 4, 1000, 256


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def main() -> None:
    try:
        softmax = md.kernel(SOURCE)
    except md.MetalError as error:
        print(error)  # there is no compiler here, and this is how to get one
        return
    print(f"{softmax} by {md.default_device().name}")

    numbers = np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype="float32")
    x, y = md.asarray(numbers, copy=True), md.zeros((ROWS, WIDTH))
    views: dict[str, object] = {"NumPy": np.asarray(y)}
    arguments: list[Any] = [x, y]
    if has("torch"):
        import torch

        arguments = [torch.from_dlpack(x), torch.from_dlpack(y)]  # tensors on MPS, over the same two buffers
        print(f"torch tensors on {torch.from_dlpack(x).device}")

    softmax(*arguments, WIDTH, groups=ROWS, group=THREADS, threadgroup_memory={"parts": THREADS // 32 * 4})

    if has("mlx"):
        import mlx.core as mx

        views["MLX"] = y.to(mx)
    views["metal_dlpack"] = md.from_dlpack(arguments[1])  # waits for the kernel
    powers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    for name, view in views.items():
        row = [float(view[1, i]) for i in range(4)]  # type: ignore[index]
        print(f"  {name:<14}{[round(number, 6) for number in row]}")
        assert np.allclose(row, expected[1, :4], rtol=1e-5), name
    assert np.allclose(np.asarray(y), expected, rtol=1e-5)
    seconds = softmax.time(x, y, WIDTH, groups=ROWS, group=THREADS, threadgroup_memory={"parts": THREADS // 32 * 4})
    print(f"{ROWS} rows of {WIDTH} in {seconds * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
