"""torch.mps.compile_shader: what a call binds by torch's rules, what is refused, when the result is there."""

import importlib
import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

pytestmark = [
    pytest.mark.needs_softmetal,
    pytest.mark.needs_torch,
    pytest.mark.needs_kernels,
    pytest.mark.needs_no_sanitizer,
]

# ---- a call, against a plain model of torch's rules ----

OUT, ROW, PLACES = 4, 64, 9  # where the kernel writes, bytes a row, arguments before the one that counts

#: The first bytes of each argument, as many as the last one says, and the shape of the launch.
DUMP = """kernel void {name}({parameters}, device uchar *out [[buffer(4)]], constant long *counts [[buffer(9)]],
        uint3 grid [[threads_per_grid]], uint3 group [[dispatch_threads_per_threadgroup]],
        uint3 i [[thread_position_in_grid]]) {{
    if (i.x + i.y + i.z != 0) return;
    {body}  // softmetal: benign it reads what lies between a tensor's items too
    device uint *shape = (device uint *)(out + 64 * 9);
    for (uint axis = 0; axis < 3; axis++) {{ shape[axis] = grid[axis]; shape[3 + axis] = group[axis]; }}
}}
"""


def dump(name, space):
    places = [place for place in range(PLACES) if place != OUT]
    body = [f"for (long n = 0; n < counts[{place}]; n++) out[64 * {place} + n] = a{place}[n];" for place in places]
    parameters = ", ".join(f"{space} *a{place} [[buffer({place})]]" for place in places)
    return DUMP.format(name=name, parameters=parameters, body=" ".join(body))


#: A kernel that may write takes values too: on a Mac what it writes there is lost.
SOURCE = dump("reads", "device const uchar") + dump("writes", "device uchar")
WHOLE = {"int32": 4, "int16": 2, "int8": 1, "uint8": 1}


def narrow(number, cast, is_float):
    """The bytes of a number: as C++ casts it."""
    if cast == "fp16":
        return struct.pack("<e", number)
    if cast == "bf16":
        bits = struct.unpack("<I", struct.pack("<f", number))[0]
        return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    if cast:
        return (int(number) % 256 ** WHOLE[cast]).to_bytes(WHOLE[cast], "little")
    return struct.pack("<f" if is_float else "<q", number)


def make_value(choose, cast):
    """A number or several, and their bytes."""
    is_float = choose.random() < 0.5
    numbers = [0.5, -3.0, 100.25, 1e4] if is_float else [0, 1, -1, 77, -20000]
    count = choose.choice([None, 1, 2, 3, 4])
    values = [choose.choice(numbers) for _ in range(count or 1)]
    if is_float and len(values) > 1:
        values[1] = 3  # the first says of which kind all are
    if not is_float and count is None:
        values[0] = choose.choice([values[0], True])
    wanted = b"".join(narrow(one, cast, is_float) for one in values)
    return (values[0] if count is None else choose.choice([list, tuple])(values)), wanted


KINDS = {"float32": "f4", "float16": "f2", "int64": "i8", "uint8": "u1", "bool": "?", "complex64": "c8"}


def make_tensor(torch, choose):
    """A view on mps, its bytes from its first item on whatever the strides, and its items; or a CPU number."""
    kind = choose.choice(list(KINDS))
    if choose.random() < 0.2:
        kind = choose.choice([kind, "float64"])
        return torch.tensor(3, dtype=getattr(torch, kind)), np.array(3, KINDS.get(kind, "f4")).tobytes(), 1
    whole = (np.arange(24) % 2).astype(KINDS[kind]).reshape(4, 6)
    view = torch.from_numpy(whole).to("mps")[choose.randrange(4) :, choose.randrange(6) :: choose.choice([1, 2])]
    if choose.random() < 0.3:
        view = view.t()
    reach = 1 + sum((size - 1) * step for size, step in zip(view.shape, view.stride(), strict=True))
    return view, whole.ravel()[view.storage_offset() :][:reach].tobytes()[:ROW], view.numel()


def make_launch(choose, numel):
    """Keywords, and the sizes of the grid and of a threadgroup that follow."""
    axes = choose.choice([0, 1, 2, 3])
    extents = [choose.randint(1, 9) for _ in range(axes)]
    launch = {"threads": extents[0] if axes == 1 and choose.random() < 0.5 else tuple(extents)} if axes else {}
    grid = ([*extents, 1, 1] if axes else [numel, 1, 1])[:3]
    group = [min(grid[0], 1024) if axes < 2 else 1024]
    if choose.random() < 0.5:
        group = [choose.randint(1, 4) for _ in range(max(axes, 1))]
        launch["group_size"] = group[0] if len(group) == 1 and choose.random() < 0.5 else list(group)
    return launch, [*grid, *([*group, 1, 1])[:3]]


def check_call(torch, library, choose):
    one = choose.choice(["fp16", "int32"])
    some = {place: choose.choice(["fp16", "bf16", *WHOLE]) for place in (0, 3, 5, 8)}
    casts, cast_of = choose.choice([(None, {}.get), (one, lambda _, __: one), (some, some.get)])
    out = torch.zeros(ROW * (PLACES + 1), dtype=torch.uint8, device="mps")
    args, wanted, numel = [], {}, None
    for place in range(PLACES):
        items = None
        if place == OUT:
            value, items = out, out.numel()
        elif choose.random() < 0.5:
            value, wanted[place], items = make_tensor(torch, choose)
        else:
            value, wanted[place] = make_value(choose, cast_of(place, ""))
        numel = items if numel is None else numel
        args.append(value)
    counts = torch.tensor([len(wanted.get(place, b"")) for place in range(PLACES)], device="mps")
    launch, shape = make_launch(choose, numel)
    getattr(library, choose.choice(["reads", "writes"]))(*args, counts, arg_casts=casts, **launch)
    rows = out.cpu().numpy()
    for place, given in wanted.items():
        assert rows[ROW * place :][: len(given)].tobytes() == given, (place, args[place], casts)
    assert rows[ROW * PLACES :][:24].view("uint32").tolist() == shape, launch


@pytest.mark.parametrize(
    ("checked", "count"), [(0, 100), (1, 20), pytest.param(0, 3000, marks=pytest.mark.long)]
)  # fmt: skip
def test_random_calls_bind_what_torch_binds(torch, settings, checked, count):
    settings(kernel_check=checked)
    library = torch.mps.compile_shader(SOURCE)
    before = softmetal.reports()
    for seed in range(count):
        check_call(torch, library, random.Random(seed))
    assert softmetal.reports() == before


LISTS = """#include <metal_stdlib>
struct Inputs { metal::array<device float *, 40> at; };
kernel void total(device float *out, constant Inputs &inputs, constant uint &count, uint i [[thread_position_in_grid]])
{
    for (uint k = 0; k < count; k++) { out[i] += inputs.at[k][i]; inputs.at[k][i] = k; }
}
kernel void first(device float *out, device Inputs &inputs, uint i [[thread_position_in_grid]]) { out[i] = inputs.at[0][i]; }
"""


@pytest.mark.parametrize("checked", [0, 1])
def test_a_list_of_tensors_is_a_table_of_their_addresses(torch, settings, checked):
    """Read and written where they begin; what was dropped lives on, and the launch's own rules hold."""
    settings(kernel_check=checked, latency_us=20_000)
    library = torch.mps.compile_shader(LISTS)
    whole = torch.rand(40, 8, device="mps")
    before, out = whole.cpu(), torch.zeros(8, device="mps")
    library.total(out, list(whole.unbind(0)), 40)
    library.total(out, tuple(torch.ones(8, device="mps") for _ in range(40)), 40)
    torch.testing.assert_close(out.cpu(), before.sum(0) + 40)
    assert torch.equal(whole.cpu(), torch.arange(40.0)[:, None].expand(40, 8))
    library.first(out, [whole[3], torch.empty(0, device="mps")] + [out] * 38)
    assert out.tolist() == [3.0] * 8


def test_past_a_tensor_of_a_list_is_outside(torch, settings, request):
    settings(kernel_check=1, validation_mode="log")
    library = torch.mps.compile_shader(LISTS.replace("inputs.at[0][i]", "inputs.at[1][i + 1]"))
    out = torch.zeros(8, device="mps")
    with pytest.raises(
        RuntimeError, match=r"reads outside its memory: bytes 32 to 35 of resource 1, which has 32 bytes"
    ):
        library.first(out, [out] + [torch.zeros(8, device="mps") for _ in range(39)])
        torch.mps.synchronize()
    request.node.stash[plugin._reports_before] = softmetal.reports()


# ---- what is refused ----

PAIR = "kernel void f(device float *x, constant float &y, uint i [[thread_position_in_grid]]) { x[i] = y; }"

REFUSED = [
    ("f(cpu, 1.0)", RuntimeError, "Passed CPU tensor to MPS op"),
    ("f(x, cpu)", RuntimeError, "argument 1 of f has 1 axes"),
    ("f(torch.empty(2, device='meta'), 1.0)", RuntimeError, "is a tensor on meta"),
    ("f(x.to_sparse(), 1.0)", RuntimeError, "layout Sparse"),
    ("f(x)", RuntimeError, "nothing is given for 'y', the buffer 1"),
    ("f(1, 2.0)", RuntimeError, "Number of threads is undefined"),
    ("f(x, None)", RuntimeError, "Unsupported argument type NoneType"),
    ("f(x, np.float32(1))", RuntimeError, "Unsupported argument type float32"),
    ("f(x, 'a')", RuntimeError, "Unsupported argument type str"),
    ("f(x, [])", RuntimeError, "Empty list/tuple"),
    ("f(x, [1, 2.5])", RuntimeError, "Unable to cast 2.5"),
    ("f(x, ['a'])", RuntimeError, "Unexpected argument types"),
    ("f(x, [x, 1])", RuntimeError, "A list of tensors has tensors alone"),
    ("f(x, [1, x])", RuntimeError, "Unable to cast"),
    ("f(x, [x, cpu])", RuntimeError, "argument 1 of f is a tensor on cpu"),
    ("f(x, [x] * 513)", RuntimeError, "has 4104 bytes"),
    ("f(x, 2**63)", RuntimeError, "to 64 bits"),
    ("f(x, [1.0] * 1025)", RuntimeError, "has 4100 bytes"),
    ("f(x, 1.0, *[1] * 30)", RuntimeError, "32 arguments are given"),
    ("f(x, 1.0, arg_casts='half')", RuntimeError, "Unsupported cast instruction half"),
    ("f(x, 1.0, arg_casts=1)", RuntimeError, "Unexpected caster arg type int"),
    ("f(x, 1.0, arg_casts={1: 2})", RuntimeError, "is no str"),
    ("f(x, float('nan'), arg_casts='int32')", RuntimeError, "no whole number"),
    ("f(x, 1.0, threads=[])", RuntimeError, "one to three"),
    ("f(x, 1.0, threads=[1] * 4)", RuntimeError, "one to three"),
    ("f(x, 1.0, threads=-1)", RuntimeError, "-1 is not a number"),
    ("f(x, 1.0, threads=2.0)", RuntimeError, "threads: 2.0"),
    ("f(x, 1.0, threads=(2, 2), group_size=2)", RuntimeError, "as many dimensions"),
    ("f(x, 1.0, group_size=1025)", ValueError, "Threadgroup size exceeds 1024 limit"),
    ("f(x, 1.0, group_size=0)", ValueError, "or is 0"),
    ("f(x, 1.0, stream=0)", TypeError, "unexpected keyword"),
    ("lib.g", RuntimeError, "Failed to create function state object for: g; the kernels are f"),
    ("hasattr(lib, 'g')", RuntimeError, "Failed to create"),
    ("compile('constant int n [[function_constant(0)]]; kernel void k(device int *x) { *x = n; }').k", RuntimeError, "'n'"),
    ("compile('kernel void k(device int *x, threadgroup int *y) { *y = *x; *x = *y; }').k", RuntimeError, "threadgroup"),
    ("compile('kernel void k(device float4 *x) { *x = 0; }').k(whole[1:5])", RuntimeError, "begins at byte 4 of its buffer"),
    ("torch._C._mps_loadMetalllib(b'')", RuntimeError, "Apple's GPUs"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "error", "words"), REFUSED)
@pytest.mark.some(12)
def test_what_a_mac_refuses_or_leaves_undefined_is_refused(torch, code, error, words):
    lib, whole = torch.mps.compile_shader(PAIR), torch.zeros(8, device="mps")
    names = {"lib": lib, "f": lib.f, "x": whole[:4], "whole": whole, "cpu": torch.zeros(2), "torch": torch, "np": np}
    with pytest.raises(error, match=re.escape(words)):
        eval(code, names | {"compile": torch.mps.compile_shader})
    lib.f(whole, 1.0)  # nothing is left behind
    assert whole.tolist() == [1.0] * 8


def test_a_library_has_its_kernels_and_a_kernel_its_figures(torch):
    lib = torch.mps.compile_shader(PAIR + "kernel void a(device int *x) { threadgroup int y[8]; y[0] = 1; *x = y[0]; }")
    assert dir(lib) == ["a", "f"]
    assert type(lib).__name__ == "_mps_ShaderLibrary"
    assert isinstance(lib.f, torch._C._mps_MetalKernel)
    assert (lib.a.max_threads_per_threadgroup, lib.a.thread_execution_width) == (1024, 32)
    assert (lib.a.static_thread_group_memory_length, lib.f.static_thread_group_memory_length) == (32, 0)


def test_nothing_is_launched_for_a_tensor_without_items(torch):
    lib, x = torch.mps.compile_shader(PAIR), torch.zeros(4, device="mps")
    lib.f(x[:0], 1.0)
    lib.f(x, 1.0, threads=(4, 0))
    assert x.tolist() == [0] * 4
    copy = torch.mps.compile_shader(PAIR.replace("constant float &y", "device const float *y").replace("= y", "+= 1")).f
    copy(x, x[:0])
    assert x.tolist() == [1] * 4


def test_an_error_of_the_compiler_s_names_the_line_here(torch):
    with pytest.raises(SyntaxError) as told:
        torch.mps.compile_shader("""
            kernel void f(device float *x) {
                x[0] = not_declared_anywhere;
            }
            kernel void g(device float *x) { x[0] = neither; }
        """)
    words = str(told.value)
    assert "error: use of undeclared identifier 'not_declared_anywhere'" in words and "'neither'" in words
    assert told.value.filename == __file__
    with open(__file__) as file:
        assert "= not_declared_anywhere" in file.readlines()[told.value.lineno - 1]


def test_extensions_in_objective_c_are_refused(torch):
    cpp_extension = importlib.import_module("torch.utils.cpp_extension")
    for call in (
        lambda: cpp_extension.load("x", ["a.cpp", "b.mm"]),
        lambda: cpp_extension.load("x", "b.mm"),
        lambda: cpp_extension.load_inline("x", "#import <Foundation/Foundation.h>\nint f();"),
        lambda: cpp_extension.load_inline("x", ["int g();", "#include <Metal/Metal.h>"], functions=["f"]),
    ):
        with pytest.raises(RuntimeError, match="is Objective-C"):
            call()


# ---- torch's headers ----


def test_torch_s_headers_are_found_and_what_kernels_report_is_raised(torch):
    if not (Path(torch.__file__).parent / "include/c10/metal/error.h").exists():
        pytest.skip("torch 2.9 has no error buffer")
    check = torch.mps.compile_shader("""
        #include <c10/metal/error.h>
        kernel void check(device float *x, constant int &limit, device c10::metal::ErrorMessages *errors,
                          uint i [[thread_position_in_grid]]) {
            if (int(i) >= limit) { TORCH_REPORT_ERROR(errors, "Index ", i, " exceeds limit ", limit); return; }
            x[i] = i;
        }
    """).check
    x = torch.zeros(6, device="mps")
    check(x, 9, error_buf_idx=2)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    for wait in (torch.mps.synchronize, x.cpu):
        check(x, 5, error_buf_idx=2)
        with pytest.raises(RuntimeError, match="Index 5 exceeds limit 5"):
            wait()
        wait()  # once


# ---- the kernel is work on torch's stream ----

DOUBLE = "kernel void twice(device float *x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }"


def test_operators_and_kernels_come_in_their_order_and_late(torch, settings, late):
    settings(races=0)
    twice = torch.mps.compile_shader(DOUBLE).twice
    a = md.zeros(4)
    t, seen = torch.from_dlpack(a), np.from_dlpack(a.host)
    late(20_000)
    t.add_(3)
    twice(t)
    assert seen.tolist() == [0] * 4
    u = t + 1
    twice(t)
    assert seen.tolist() == [6] * 4  # an operator waits for the kernels before it
    assert (t.tolist(), u.tolist()) == ([12] * 4, [7] * 4)
    assert seen.tolist() == [12] * 4


def test_what_is_freed_is_not_given_again_before_the_kernel_has_run(torch, late):
    twice = torch.mps.compile_shader(DOUBLE).twice
    late(20_000)
    for _ in range(3):
        x = torch.ones(1000, device="mps")
        twice(x)
        kept = x[:1].clone()
        del x
        others = [torch.full((1000,), 5.0, device="mps") for _ in range(4)]
        assert kept.item() == 2
        assert all(bool((one == 5).all()) for one in others)


def test_a_finding_of_the_checker_is_raised_by_the_next_wait(request, torch, settings):
    settings(kernel_check=1, validation_mode="log")
    f = torch.mps.compile_shader("""
        kernel void beyond(device float *x, uint i [[thread_position_in_grid]]) {
            x[i + 1] = 0;  // of the last thread
        }
    """).beyond
    x, before = torch.ones(8, device="mps"), softmetal.reports("kernel")
    f(x)
    with pytest.raises(RuntimeError, match=r"beyond: .* writes") as told:
        torch.mps.synchronize()
    request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them
    assert softmetal.reports("kernel") == before + 1
    assert "test_compile_shader.py" in str(told.value)
    torch.mps.synchronize()  # once
    f(x, threads=7)
    torch.mps.synchronize()


@pytest.mark.parametrize(
    ("kind", "value", "cast", "found"),
    [
        ("int4", [1], None, None),
        ("long", 1, "int32", None),
        ("float3", [1.0, 2.0], None, None),
        ("float4", [1.0, 2.0, 3.0], None, None),
        ("float3", [1.0, 2.0, 3.0], None, 3),
        ("long", 7, None, 7),
        ("int", 7, None, 7),
        ("float", 7.0, None, 7),
    ],
)
@pytest.mark.some(2)
def test_a_value_shorter_than_its_type_is_refused_and_three_items_make_a_vector(torch, kind, value, cast, found):
    last = f"v[{int(kind[-1]) - 1}]" if kind[-1].isdigit() else "v"
    library = torch.mps.compile_shader(f"kernel void f(device float *x, constant {kind} &v) {{ x[0] = {last}; }}")
    x = torch.zeros(1, device="mps")
    if found is None:
        with pytest.raises(RuntimeError, match=r"argument 1 of f has \d+ bytes, and the kernel reads \d+"):
            library.f(x, value, threads=1, arg_casts=cast)
    else:
        library.f(x, value, threads=1, arg_casts=cast)
        assert x.item() == found
