"""The source round a kernel is MLX's own, letter by letter: MLX writes it too, while a function is exported."""

import contextlib
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softmetal.mlx.generated import ATTRIBUTES, FEWEST_IN_DEVICE, Input, generated, written

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_mlx, pytest.mark.needs_no_sanitizer]

DTYPES = [
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "complex64"),
]
NAMES = ("a", "ab", "a_shape", "x1")
#: Words of a source: names of attributes, parts of them, and what is asked of inputs.
WORDS = [
    *ATTRIBUTES,
    "thread_position",
    "threads_per",
    *(f"{n}_{w}" for n in NAMES for w in ("shape", "strides", "ndim")),
]

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
dtypes = st.sampled_from(DTYPES)
template_values = st.one_of(st.booleans(), st.integers(-(2**31), 2**31 - 1), dtypes)


@st.composite
def kernels(draw):
    inputs = draw(st.lists(st.tuples(shapes, dtypes), max_size=4))
    return {
        "inputs": inputs,
        "outputs": draw(st.lists(st.tuples(shapes, dtypes), min_size=1, max_size=3)),
        "source": " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=4))),
        "header": draw(st.sampled_from(["", "// no end", "struct s {};\n"])),
        "is_atomic": draw(st.booleans()),
        "template": draw(st.lists(st.tuples(st.sampled_from(["T", "N", "flag"]), template_values), max_size=3)),
    }


def as_mlx_writes_it(mx, capfd, path, one, template):
    kernel = mx.fast.metal_kernel(
        name="tried",
        input_names=NAMES[: len(one["inputs"])],
        output_names=[f"out{i}" for i in range(len(one["outputs"]))],
        source=one["source"],
        header=one["header"],
        atomic_outputs=one["is_atomic"],
    )

    def call(*arrays):
        return kernel(
            inputs=arrays,
            output_shapes=[shape for shape, _ in one["outputs"]],
            output_dtypes=[getattr(mx, dtype) for _, dtype in one["outputs"]],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            template=template,
            verbose=True,
        )

    capfd.readouterr()
    with contextlib.suppress(RuntimeError):  # some are not written to the file, after they were shown
        mx.export_function(str(path), call, *(mx.zeros(shape, getattr(mx, dtype)) for shape, dtype in one["inputs"]))
    return re.fullmatch(r"Generated source code for `tried`:\n```\n(.*)\n```\n", capfd.readouterr().out, re.DOTALL)[1]


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(one=kernels())
def test_every_letter_is_as_mlx_writes_it(capfd, tmp_path, one):
    import mlx.core as mx

    template = [(name, getattr(mx, value) if isinstance(value, str) else value) for name, value in one["template"]]
    parts = written(
        "tried",
        NAMES[: len(one["inputs"])],
        [f"out{i}" for i in range(len(one["outputs"]))],
        one["source"],
        one["header"],
        one["is_atomic"],
    )
    sizes = [(mx.zeros(shape).size, shape, getattr(mx, dtype)) for shape, dtype in one["inputs"]]
    inputs = [Input(dtype, shape == (), size < FEWEST_IN_DEVICE) for size, shape, dtype in sizes]
    ours = generated(parts, inputs, [getattr(mx, dtype) for _, dtype in one["outputs"]], template)
    assert ours.text == as_mlx_writes_it(mx, capfd, tmp_path / "function", one, template)
