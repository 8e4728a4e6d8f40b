"""What the tests of MLX's custom kernels share."""

import pytest


@pytest.fixture
def mx():
    """mlx.core with its kernels switched on, for one test."""
    import mlx.core

    import softmetal

    with softmetal.mlx_kernels():
        yield mlx.core


@pytest.fixture
def run(mx):
    """Make a kernel of one source and call it: run(source, inputs, shapes...) gives its outputs."""

    def run(source, inputs, *shapes, dtypes=None, grid=1, threadgroup=1, made=None, **asked):
        count = len(inputs)
        kernel = mx.fast.metal_kernel(
            name="tried",
            input_names=[*"abcdefgh"[:count]],
            output_names=[f"out{i}" for i in range(len(shapes))] if len(shapes) > 1 else ["out"],
            source=source,
            **(made or {}),
        )
        return kernel(
            inputs=inputs,
            output_shapes=shapes,
            output_dtypes=dtypes or [mx.float32] * len(shapes),
            grid=(grid, 1, 1) if isinstance(grid, int) else grid,
            threadgroup=(threadgroup, 1, 1) if isinstance(threadgroup, int) else threadgroup,
            **asked,
        )

    return run
