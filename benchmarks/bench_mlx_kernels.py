"""What a call of mx.fast.metal_kernel costs beside the launch of the same compiled kernel, in one run, in turns.

    taskset -c 1 python benchmarks/bench_mlx_kernels.py

Printed for each kernel: the median of the differences of pairs, with the kernel compiled and its arrays evaluated.
"""

import statistics
import time

import mlx.core as mx

import metal_dlpack as md
import softmetal

PAIRS, CALLS = 41, 200
COUNT = 64

COPY = "uint i = thread_position_in_grid.x; out[i] = a[i];"
#: name: (source, number of inputs, template arguments)
KERNELS = {
    "one input": (COPY, 1, []),
    "four inputs": (COPY.replace("a[i]", "a[i] + b[i] + c[i] + d[i]"), 4, []),
    "its shape and strides": ("uint i = thread_position_in_grid.x; out[i] = a[i] * a_shape[0] * a_strides[0];", 1, []),
    "three template arguments": (
        COPY.replace("a[i]", "T(a[i]) * N * on"),
        1,
        [("T", mx.float32), ("N", 2), ("on", True)],
    ),
}


def seconds(work):
    begin = time.process_time()  # of all threads: what else runs on the machine does not count
    for _ in range(CALLS):
        work()
    return (time.process_time() - begin) / CALLS


def both(source, count, template):
    """Calls of MLX's entry point, and of the kernel that it compiled."""
    inputs = [mx.ones(COUNT) for _ in range(count)]
    mx.eval(inputs)
    kernel = mx.fast.metal_kernel(name="measured", input_names=[*"abcd"[:count]], output_names=["out"], source=source)
    group, stream = (32, 1, 1), md.Stream()

    def call():
        kernel(
            inputs=inputs,
            template=template,
            output_shapes=[(COUNT,)],
            output_dtypes=[mx.float32],
            grid=(COUNT, 1, 1),
            threadgroup=group,
        )

    call()
    (compiled,) = kernel._compiled.values()
    values = [md.from_dlpack(x) for x in inputs]
    if len(compiled.arguments) > count + 1:
        values += [md.asarray([COUNT], dtype="int32"), md.asarray([1], dtype="int64")]
    values.append(md.empty(COUNT))

    def launch():
        compiled(*values, threads=(COUNT, 1, 1), group=group, stream=stream)
        stream.synchronize()

    return call, launch


def main():
    with softmetal.mlx_kernels():
        for name, made in KERNELS.items():
            works = both(*made)
            took = []
            for turn in range(PAIRS):
                pair = {work: seconds(work) for work in (works if turn % 2 else works[::-1])}
                took.append(pair[works[0]] - pair[works[1]])
            print(f"{name:26} {1e6 * statistics.median(took):6.1f} µs more than the launch")


if __name__ == "__main__":
    main()
