"""Kernels of the user's on this machine's compiler and GPU: what md.kernel takes, refuses and computes."""

import warnings

import numpy as np
import pytest
from proof import attempt

import metal_dlpack as md

pytestmark = [pytest.mark.mac, pytest.mark.needs_kernels]

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
COUNT = 1000


def numbers(dtype="float32"):
    return np.linspace(-3, 3, COUNT, dtype=dtype)


@pytest.mark.parametrize("mode", ["shared", "private"])
def test_work_in_flight_comes_first_and_the_cpu_waits_for_a_kernel(mode):
    kernel = md.kernel(
        HEAD
        + """
        kernel void more(device float *x, uint i [[thread_position_in_grid]]) { x[i] = x[i] * 2 + 1; }"""
    )
    x, stream = md.zeros(1 << 20, storage=mode), md.Stream()
    for _ in range(5):
        kernel(x, n=x.size)
        kernel(x, n=x.size, stream=stream)
    assert set(np.asarray(x.copy(storage="shared"))[:: 1 << 12].tolist()) == {2**10 - 1}
    attempt("seconds of the GPU's for 4 MiB", lambda: kernel.time(x, n=x.size))


@pytest.mark.parametrize("math", ["safe", "relaxed", "fast"])
def test_what_each_math_mode_makes_of_sums_nans_and_functions(math):
    """For a person to judge, but for "safe"."""
    source = (
        HEAD
        + """
        kernel void compute(device const float *x, device float *fused, device float *apart, device float *sine,
            device uint *is_nan, uint i [[thread_position_in_grid]])
        {
            fused[i] = x[i] * x[i] - 1.0f / 3.0f;
            float product = x[i] * x[i];
            apart[i] = product - 1.0f / 3.0f;
            sine[i] = exp(x[i]);
            is_nan[i] = isnan(sqrt(x[i]));
        }"""
    )
    with warnings.catch_warnings(action="ignore"):  # that "fast" and isnan do not go together
        kernel = md.kernel(source, math=math)
    x = numbers()
    fused, apart, sine = (md.zeros(COUNT) for _ in range(3))
    is_nan = md.zeros(COUNT, "uint32")
    kernel(md.asarray(x), fused, apart, sine, is_nan, n=COUNT)
    third = np.float32(1) / np.float32(3)
    exact = (x.astype("float64") * x - third).astype("float32")
    rounded = x * x - third
    print("fused in one statement:", int((np.asarray(fused) == exact).sum()), "of", COUNT, "as if fused;",
          int((np.asarray(fused) == rounded).sum()), "as if rounded twice")  # fmt: skip
    print("fused across two:      ", int((np.asarray(apart) == exact).sum()), "of", COUNT)
    off = np.abs(np.asarray(sine) / np.exp(x.astype("float64")) - 1).max()
    print(f"exp is off by {off / 2**-23:.1f} units in the last place at most")
    nans = int(np.asarray(is_nan).sum())
    print("isnan(sqrt(x)) finds", nans, "of", int((x < 0).sum()))
    assert math != "safe" or nans == (x < 0).sum()
    assert math != "safe" or off < 4 * 2**-23


REACHED = (
    HEAD
    + """
struct Args { device float *x%s; const device float *y%s; array<device float *, 2> more%s; uint n; };
kernel void reach(constant Args &a, uint i [[thread_position_in_grid]])
{ if (i < a.n) { a.x[i] += a.y[i]; a.more[1][i] = a.more[0][i]; } }"""
)


@pytest.mark.parametrize(
    "ids", [("", "", ""), (" [[id(0)]]", " [[id(1)]]", " [[id(2)]]"), (" [[id(5)]]", " [[id(0)]]", " [[id(1)]]")]
)
@pytest.mark.parametrize("way", ["value", "buffer"])
def test_pointers_lead_to_what_is_resident(ids, way):
    """Members lie as in C, whatever their ids; work on what is reached is ordered, on two streams and on one."""
    kernel = md.kernel(REACHED % ids)
    print(*kernel.arguments, sep="\n")
    x, y, z, w = (md.full(COUNT + 4, float(value))[4:] for value in range(4))
    dtype = np.dtype([("x", "u8"), ("y", "u8"), ("more", "u8", (2,)), ("n", "u4")], align=True)
    place = [array.buffer.gpu_address + array.byte_offset for array in (x, y, z, w)]
    args = np.array([(place[0], place[1], tuple(place[2:]), COUNT)], dtype)
    given = args[0] if way == "value" else md.asarray(args.view("u1"))
    stream = md.Stream()
    for _ in range(3):
        kernel(given, n=COUNT, resources=[x, y.as_readonly(), z, w])
        kernel(given, n=COUNT, resources=[x, y.as_readonly(), z, w], stream=stream)
        kernel(given, n=COUNT, resources=[x, y.as_readonly(), z, w], stream=stream)
    assert set(x.tolist()) == {9.0} and set(w.tolist()) == {2.0}


@pytest.mark.parametrize(
    "parameter",
    ["device float *device *p", "device float *constant *p", "device float *device &p", "constant ulong *p"],
)
def test_which_tables_of_pointers_the_compiler_takes(parameter):
    """For a person to judge: a pointer to pointers, which pages do not speak of."""
    use = "((device float *)p[0])[i]" if "ulong" in parameter else "p[i]" if "&" in parameter else "p[0][i]"
    source = f"{HEAD}kernel void table({parameter}, device float *out, uint i [[thread_position_in_grid]]) {{ out[i] = {use}; }}"
    attempt(parameter, lambda: md.kernel(source).arguments)


def test_whether_the_constant_address_space_takes_an_offset_of_two_bytes():
    """For a person to judge: the package refuses it, but for a typedef that hides the space."""
    kernel = md.kernel(HEAD + """
        typedef constant half *halves;
        kernel void read(halves x [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]])
        { out[i] = x[i]; }""")  # fmt: skip
    x, out = md.asarray(np.arange(32, dtype="float16"), copy=True), md.zeros(16)

    def read():
        kernel(x[1:], out, n=16)
        return "reads " + ("right" if out.tolist() == list(range(1, 17)) else "WRONG")

    attempt("a constant half * at byte 2", read)
