"""mx.fast.metal_kernel on Linux: calls, values, errors and transformations are as on a Mac."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from children import output_of

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

mark = pytest.mark
pytestmark = [mark.needs_softmetal, mark.needs_kernels, mark.needs_mlx, mark.needs_no_sanitizer]

HERE = "uint i = thread_position_in_grid.x;\n"
COPY = HERE + "out[i] = a[i];"
DTYPES = [
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "complex64"),
]


# ---- values in and out ----


@pytest.mark.parametrize("count", [5, 1000], ids=["constant", "device"])
@pytest.mark.long
def test_every_type_comes_and_goes(mx, run, count):
    for name in DTYPES:
        dtype = getattr(mx, name)
        x = (mx.random.uniform(shape=(count,)) * 100).astype(dtype)
        (out,) = run(COPY, [x], (count,), dtypes=[dtype], grid=count, threadgroup=32)
        assert mx.array_equal(out, x) and out.dtype == dtype, name


def test_scalars_are_references_and_python_numbers_are_inputs(mx, run):
    (out,) = run("out[0] = a + b + c + d;", [1, 2.5, True, mx.array(4, mx.int8)], (1,))
    assert out.tolist() == [8.5]


def test_several_outputs_have_their_own_shapes_and_types(mx, run):
    source = "out0[0] = a[1]; out1[0] = a_shape[0]; out1[1] = a_ndim; out2[0] = grid_size.x;"
    outs = run(source, [mx.array([7.5, 8.5])], (), (2, 1), (1,), dtypes=[mx.float16, mx.int32, mx.bool_])
    assert [out.tolist() for out in outs] == [8.5, [[2], [1]], [True]]
    assert [out.dtype for out in outs] == [mx.float16, mx.int32, mx.bool_]


def test_inputs_and_outputs_without_items(mx, run):
    empty, one = run("out1[grid_size.x - 1] = a_shape[1];", [mx.zeros((0, 3))], (0, 4), (1,))
    assert empty.shape == (0, 4) and one.tolist() == [3]
    assert run("out[0] = 1;", [], (1,), grid=(0, 1, 1), init_value=5)[0].tolist() == [5]


@pytest.mark.parametrize(
    ("dtype", "value", "begins"),
    [("float32", 0.5, 0.5), ("int32", -2.7, -2), ("bool_", 3, True), ("bfloat16", 0.1, 0.10009765625), ("uint8", 0, 0)],
)
@pytest.mark.some(1)
def test_init_value_is_converted_as_mlx_converts(mx, run, dtype, value, begins):
    (out,) = run("if (false) { out[0] = 0; }", [], (2, 3), dtypes=[getattr(mx, dtype)], init_value=value)
    assert out.tolist() == [[begins] * 3] * 2


def test_what_is_not_written_shows(mx, run):
    outs = run(
        "if (false) { out0[0] = 0; }", [], (1,), (1,), (1,), (1,), dtypes=[mx.float16, mx.int8, mx.uint64, mx.bool_]
    )
    assert np.isnan(outs[0].item()) and [out.item() for out in outs[1:]] == [127, 2**64 - 1, True]


def test_atomic_outputs(mx, run):
    source = "atomic_fetch_add_explicit(&out[thread_position_in_grid.x % 3], a[0], memory_order_relaxed);"
    made = {"atomic_outputs": True}
    for dtype in (mx.float32, mx.int32, mx.uint32):
        x = mx.array([2], dtype)
        (out,) = run(source, [x], (3,), dtypes=[dtype], grid=300, threadgroup=64, init_value=1, made=made)
        assert out.tolist() == [201] * 3


def test_inputs_are_shared(mx, run):
    x = mx.zeros((1 << 22,))
    mx.eval(x)
    usual = md.set_memory_limit(md.memory_stats()["live"] + (1 << 20))
    try:
        (out,) = run("out[0] = a[a_shape[0] - 1];", [x], (1,))
    finally:
        md.set_memory_limit(usual)
    assert out.tolist() == [0]


@pytest.mark.parametrize("checked", [0, 1])
def test_vectors_lie_as_on_a_mac(mx, run, settings, checked):
    """MLX's memory begins 8 bytes behind a multiple of 16 on the CPU, and on a page on a Mac."""
    settings(kernel_check=checked)
    x = mx.arange(32).astype(mx.float32)
    source = HERE + "float4 v = ((const device float4 *)a)[i]; out[i] = v.x + v.w;"
    assert run(source, [x], (8,), grid=8, threadgroup=8)[0].tolist() == [8 * i + 3 for i in range(8)]


# ---- strides ----


VIEWS = {
    "turned": lambda x: x.transpose(2, 0, 1),
    "every other": lambda x: x[::2, :, 1::3],
    "backwards": lambda x: x[::-1, :, ::-2],
    "one of one": lambda x: x[:, 2:3, 3:],
}


@pytest.mark.parametrize("checked", [0, 1])
@pytest.mark.some(1)
def test_strides_are_those_of_the_array_or_of_its_copy(mx, run, settings, checked):
    settings(kernel_check=checked)
    here = np.arange(120, dtype="float32").reshape(4, 5, 6)
    cases = [(view(mx.array(here)), view(here)) for view in VIEWS.values()]
    cases.append((mx.broadcast_to(mx.array(here[:, :1]), here.shape), np.broadcast_to(here[:, :1], here.shape)))
    for is_contiguous in (True, False):
        for x, expected in cases:
            place = "i" if is_contiguous else "elem_to_loc(int64_t(i), a_shape, a_strides, a_ndim)"
            made = {"ensure_row_contiguous": is_contiguous}
            (out,) = run(f"{HERE} out[i] = a[{place}];", [x], x.shape, grid=x.size, threadgroup=8, made=made)
            assert np.array_equal(out, expected)
            source = HERE + "out[i] = a_shape[i] == 1 ? 0 : a_strides[i];"
            (strides,) = run(source, [x], (3,), dtypes=[mx.int64], grid=3, made=made)
            real = np.ascontiguousarray(expected) if is_contiguous else expected
            assert strides.tolist() == [0 if n == 1 else s // 4 for n, s in zip(real.shape, real.strides, strict=True)]


def test_a_small_input_at_an_odd_place_is_constant(mx, run):
    x = mx.arange(100).astype(mx.float16)[3:6]
    assert run(COPY, [x], (3,), dtypes=[mx.float16], grid=3)[0].tolist() == [3, 4, 5]


# ---- the launch ----


def test_a_threadgroup_larger_than_the_grid_is_clipped(run):
    source = "out[0] = threads_per_threadgroup.x; out[1] = threads_per_threadgroup.y; out[2] = threads_per_grid.y;"
    assert run(source, [], (3,), grid=(5, 2, 1), threadgroup=(256, 1, 4))[0].tolist() == [5, 1, 2]


def test_a_grid_that_is_no_multiple_of_its_threadgroup(mx, run):
    (out,) = run(HERE + "out[i] = thread_position_in_threadgroup.x;", [], (10,), grid=10, threadgroup=4)
    assert out.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_template_arguments_and_a_header(mx, run):
    header = "template <typename U> U twice(U x) { return x + x; }"
    source = "out[0] = twice(T(a)) * N; out[1] = is_on;"
    template = [("T", mx.int32), ("N", -3), ("is_on", True)]
    assert run(source, [2.9], (2,), template=template, made={"header": header})[0].tolist() == [-12, 1]
    assert run(source, [2.5], (2,), template=[("T", mx.float32), ("N", 2), ("is_on", False)], made={"header": header})[
        0
    ].tolist() == [10, 0]


def test_verbose_shows_the_generated_source(run, capsys):
    run("out[0] = a;", [1.0], (1,), verbose=True)
    shown = capsys.readouterr().out
    assert shown.startswith(
        "Generated source code for `tried`:\n```\n[[kernel]] void custom_kernel_tried_floats_float(\n"
    )
    assert "out[0] = a;\n}\n\n```\n" in shown


def test_streams_of_the_gpu_are_taken(mx, run):
    for stream in (None, mx.gpu, mx.default_device(), mx.new_stream(mx.gpu), mx.default_stream(mx.gpu)):
        assert run("out[0] = 1;", [], (1,), stream=stream)[0].tolist() == [1]
    with pytest.raises(ValueError, match="Only supports the GPU"):
        run("out[0] = 1;", [], (1,), stream=mx.cpu)


def test_threads_call_one_kernel(mx):
    kernel = mx.fast.metal_kernel(
        name="twice", input_names=["a"], output_names=["out"], source=HERE + "out[i] = 2 * a[i];"
    )

    def call(number):
        (out,) = kernel(
            inputs=[mx.full((100,), float(number))],
            output_shapes=[(100,)],
            output_dtypes=[mx.float32],
            grid=(100, 1, 1),
            threadgroup=(10, 1, 1),
        )
        return np.array(out).tolist() == [2.0 * number] * 100

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(100)))


# ---- errors ----


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"inputs": []}, ValueError, "Expected `inputs` to have size 1 but got size 0"),
        ({"output_shapes": [(1,), (1,)]}, ValueError, "Expected `output_shapes` to have size 1 but got size 2"),
        ({"output_dtypes": []}, ValueError, "Expected `output_dtypes` to have size 1 but got size 0"),
        ({"template": [("T", 1.5)]}, ValueError, "Invalid template argument"),
        ({"template": [("N", 2**40)]}, ValueError, "Invalid template argument"),
        ({"grid": (1, 1)}, TypeError, "incompatible function arguments"),
        ({"threadgroup": (1.5, 1, 1)}, TypeError, "incompatible function arguments"),
        ({"threadgroup": (64, 32, 1)}, ValueError, r"Thread group size \(2048\) is greater than  the maximum allowed"),
        ({"init_value": "a"}, TypeError, "incompatible function arguments"),
        ({"stream": "gpu"}, TypeError, "incompatible function arguments"),
        ({"nothing": 1}, TypeError, "nothing"),
    ],
)
def test_wrong_arguments_are_refused_in_mlx_s_words(mx, asked, error, words):
    kernel = mx.fast.metal_kernel(name="refuses", input_names=["a"], output_names=["out"], source="out[0] = a;")
    right = {"inputs": [1.0], "output_shapes": [(1,)], "output_dtypes": [mx.float32], "grid": (1, 1, 1)}
    with pytest.raises(error, match=words):
        kernel(**{**right, "threadgroup": (1, 1, 1), **asked})
    with pytest.raises(TypeError, match="positional"):
        kernel([1.0])


def test_a_wrong_kernel_is_refused_in_mlx_s_words(mx):
    right = {"name": "n", "input_names": [], "source": ""}
    with pytest.raises(ValueError, match="Must specify at least one output"):
        mx.fast.metal_kernel(**right, output_names=[])
    with pytest.raises(ValueError, match="Unknown compile option `mode`"):
        mx.fast.metal_kernel(**right, output_names=["out"], compile_options={"mode": "fast"})
    assert (
        repr(mx.fast.metal_kernel(**right, output_names=["out"])) == "<mx.fast.metal_kernel 'n' on the software Metal>"
    )


MISSING = """
    out[0] = 1;
    out[0] = missing;
"""
GONE = "int f() { return gone; }"


def line_of(name):
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith(f"{name} = "))


def test_a_source_that_does_not_compile_names_the_line_in_the_user_s_file(run):
    with pytest.raises(RuntimeError, match="undeclared identifier 'missing'") as caught:
        run(MISSING, [], (1,))
    assert isinstance(caught.value, md.CompileError)
    assert (caught.value.filename, caught.value.lineno) == (__file__, line_of("MISSING") + 2)
    with pytest.raises(RuntimeError, match="'gone'") as caught:
        run("out[0] = 1;", [], (1,), made={"header": GONE})
    assert (caught.value.filename, caught.value.lineno) == (__file__, line_of("GONE"))


def test_a_source_that_stands_in_no_file_has_lines_of_its_own(run):
    with pytest.raises(RuntimeError) as caught:
        run("\n".join(["out[0] = 1;", f"out[{0}] = mis" + "placed;"]), [], (1,))
    assert (caught.value.filename, caught.value.lineno) == ("kernel tried", 2)
    with pytest.raises(RuntimeError) as caught:
        run("out[0] = 1;", [], (1,), made={"header": "\n".join(["", "int", "f() { return " + "away; }"])})
    assert (caught.value.filename, caught.value.lineno) == ("kernel tried (header)", 3)


@pytest.mark.parametrize(
    ("source", "header", "file", "words"),
    [
        ("out0[0] = 1; {", "", "kernel tried", "a bracket has no partner"),
        ("out0[0] = 1;", "int f() { return 0; ", "kernel tried (header)", "a bracket has no partner"),
        ("out0[0] = 1; out1[0] = a_ndim;", "", "kernel tried (generated)", "ends the signature before its last output"),
    ],
)
@pytest.mark.some(1)
def test_a_bracket_without_a_partner_is_told_of_the_user_s_text(mx, run, source, header, file, words):
    with pytest.raises(RuntimeError, match=words) as caught:
        run(source, [mx.zeros(3)], (1,), (1,), made={"header": header})
    assert caught.value.filename == file


PAST_THE_END = """
    uint i = thread_position_in_grid.x;
    out[i] = a[i + 1];
"""


def test_a_finding_of_the_checker_names_the_line_in_the_user_s_file(mx, run, settings, request):
    settings(kernel_check=1)
    place = f"{Path(__file__).name}:{line_of('PAST_THE_END') + 2}:"
    with pytest.raises(md.MetalError, match=rf"custom_kernel_tried_float_float: .*buffer 0 \(a\).*{place}"):
        run(PAST_THE_END, [mx.zeros((100,))], (100,), grid=100, threadgroup=100)
    request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them
    assert run(PAST_THE_END, [mx.zeros((100,))], (99,), grid=99, threadgroup=99)[0].shape == (99,)


def test_fast_math_is_known_to_the_source(run):
    source = "#if defined(__FAST_MATH__)\nout[0] = 1;\n#else\nout[0] = 0;\n#endif"
    made = ({"compile_options": {"math_mode": mode}} for mode in ("safe", "relaxed", "fast"))
    assert [run(source, [], (1,), made=one)[0].item() for one in made] == [0, 0, 1]


# ---- transformations ----


@pytest.fixture
def double(mx, run):
    return lambda x: run(HERE + "out[i] = 2 * a[i];", [x], x.shape, grid=x.size, threadgroup=16)[0]


def test_a_compiled_function_calls_it_with_other_values_each_time(mx, double):
    compiled = mx.compile(lambda x: double(x + 1) + 1)
    assert [compiled(mx.full((3,), v)).tolist() for v in (1.0, 2.0)] == [[5] * 3, [7] * 3]
    mx.enable_compile()
    assert compiled(mx.full((3,), 3.0)).tolist() == [9] * 3


def test_gradients_are_refused_and_given_by_a_custom_function(mx, double):
    x = mx.array([1.0, 2.0])
    with pytest.raises(ValueError, match=r"\[Primitive::vjp\] Not implemented for CustomKernel"):
        mx.grad(lambda x: double(x * 3).sum())(x)
    with pytest.raises(ValueError, match=r"\[Primitive::jvp\] Not implemented for CustomKernel"):
        mx.jvp(lambda x: double(x), [x], [x])
    # what does not reach the kernel has its gradient, as on a Mac
    assert mx.grad(lambda x: (x * double(mx.array([3.0, 4.0]))).sum())(x).tolist() == [6, 8]

    own = mx.custom_function(double)
    own.vjp(lambda primals, cotangent, output: 2 * cotangent)
    value, gradient = mx.value_and_grad(lambda x: (own(x * 3) ** 2).sum())(x)
    assert (value.item(), gradient.tolist()) == (180, [72, 144])
    assert mx.grad(mx.checkpoint(lambda x: own(x).sum()))(x).tolist() == [2, 2]


def test_vmap_is_refused_and_takes_what_does_not_reach_the_kernel(mx, double):
    x = mx.arange(6).astype(mx.float32).reshape(2, 3)
    with pytest.raises(ValueError, match=r"\[Primitive::vmap\] Not implemented for CustomKernel"):
        mx.vmap(double)(x)
    own = mx.custom_function(double)
    own.vmap(lambda x, axis: (2 * x, axis))
    with pytest.raises(
        ValueError, match=r"\[Primitive::vmap\] Not implemented"
    ):  # MLX looks at the kernel all the same
        mx.vmap(own)(x)
    assert mx.vmap(lambda row: row * double(x[0]))(x).tolist() == (x * 2 * x[0]).tolist()


def test_inputs_that_were_not_evaluated_are(mx, double):
    assert double(mx.arange(4).astype(mx.float32) + 1).tolist() == [2, 4, 6, 8]


def test_an_exported_function_has_the_kernel_in_its_graph(mx, double, tmp_path):
    mx.export_function(str(tmp_path / "f"), double, mx.zeros(4))
    assert b"custom_kernel_tried_floatc_float" in (tmp_path / "f").read_bytes()


# ---- what MLX answers, and afterwards ----


def test_what_packages_ask_is_answered_as_on_a_mac(mx):
    assert mx.metal.is_available() and mx.is_available(mx.gpu) and mx.device_count(mx.gpu) == 1
    assert mx.default_device() == mx.gpu
    assert mx.default_device() != mx.cpu and repr(mx.default_device()) == "Device(gpu, 0)"
    assert mx.default_device().type == mx.DeviceType.gpu
    facts = {"device_name", "architecture", "max_buffer_length", "max_recommended_working_set_size", "memory_size"}
    assert facts < set(mx.device_info()) == set(mx.metal.device_info()) == set(mx.device_info(mx.gpu))
    assert mx.device_info(mx.cpu)["architecture"] != mx.device_info()["architecture"]


def test_the_default_device_is_the_cpu_where_the_program_says_so(mx):
    with mx.stream(mx.cpu):
        assert mx.default_device() == mx.cpu and mx.default_device() != mx.gpu
        with mx.stream(mx.gpu):
            assert mx.default_device() == mx.gpu
            with mx.stream(mx.new_stream(mx.gpu)):
                assert mx.default_device() == mx.gpu
        assert mx.default_device() == mx.cpu
    mx.set_default_device(mx.cpu)
    assert mx.default_device() == mx.cpu
    mx.set_default_device(mx.gpu)
    assert mx.default_device() == mx.gpu


def test_operations_run_where_they_are_told(mx):
    x = mx.ones(3)
    assert mx.add(x, x, stream=mx.gpu).tolist() == mx.add(x, x, stream=mx.new_stream(mx.gpu)).tolist() == [2] * 3
    mx.synchronize(mx.default_stream(mx.gpu))


def test_at_the_end_mlx_is_as_it_was():
    import mlx.core as mx

    modules = (mx, mx.fast, mx.metal)
    before = [dict(vars(module)) for module in modules]
    with softmetal.mlx_kernels(), softmetal.mlx_kernels() as inner:
        inner.__exit__(None, None, None)
        assert mx.metal.is_available()
    assert [dict(vars(module)) for module in modules] == before
    assert not mx.metal.is_available() and mx.default_device() == mx.cpu
    runs = []
    compiled = mx.compile(lambda x: (runs.append(0), x)[1])
    compiled(mx.array(1)), compiled(mx.array(2))
    assert len(runs) == 1


def test_compile_stays_off_for_who_switched_it_off(mx):
    output_of("""
        import mlx.core as mx
        import softmetal
        mx.disable_compile()
        with softmetal.mlx_kernels():
            pass
        runs = []
        compiled = mx.compile(lambda x: (runs.append(0), x)[1])
        compiled(mx.array(1)), compiled(mx.array(2))
        assert len(runs) == 2
    """)


def test_nothing_is_imported_or_patched_unless_it_is_asked_for():
    output_of("""
        import sys
        import mlx.core as mx
        usual = mx.fast.metal_kernel
        import metal_dlpack
        import softmetal
        assert mx.fast.metal_kernel is usual and not any("mlx_kernels" in name for name in sys.modules)
    """)
    output_of("""
        import sys
        import softmetal
        assert "mlx" not in sys.modules
    """)
