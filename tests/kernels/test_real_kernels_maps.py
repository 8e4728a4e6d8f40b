"""Kernels as users write them, a thread an item: each beside NumPy, on a Mac and without one.

Integers are equal.  Floats are equal where each operation rounds once: `contract(off)` forbids Metal to join a
product and a sum.  Elsewhere they are within 4 ulp, or the test says why not.
"""

import zlib

import numpy as np
import pytest

import metal_dlpack as md

EXACT = "#pragma METAL fp contract(off)\n"
METAL = "#include <metal_stdlib>\nusing namespace metal;\n"


def on_metal(items):
    return md.asarray(np.ascontiguousarray(items), copy=True)


def random(seed=0):
    return np.random.default_rng(seed)


# ---- numbers ----


def test_a_square():
    square = md.kernel(
        METAL
        + """kernel void square(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    y[i] = x[i] * x[i];
}"""
    )
    x = random().standard_normal(100_003, dtype="float32")
    y = md.zeros(x.size, dtype="float32")
    square(on_metal(x), y, threads=x.size)
    np.testing.assert_array_equal(np.asarray(y), x * x)


def test_saxpy_in_place():
    saxpy = md.kernel(
        METAL
        + EXACT
        + """kernel void saxpy(device const float *x, device float *y, constant float &a, uint i [[thread_position_in_grid]]) {
    y[i] = a * x[i] + y[i];
}"""
    )
    x, y = random().standard_normal((2, 4097), dtype="float32")
    result = on_metal(y)
    saxpy(on_metal(x), result, 1.5, threads=x.size)
    np.testing.assert_array_equal(np.asarray(result), np.float32(1.5) * x + y)


def test_fma_rounds_once():
    fused = md.kernel(
        METAL
        + """kernel void fused(device const float *x, device const float *y, device const float *z, device float *out,
                  uint i [[thread_position_in_grid]]) {
    out[i] = fma(x[i], y[i], z[i]);
}"""
    )
    x, y, z = random().standard_normal((3, 5000)).astype("float32")
    z[:2500] = -x[:2500] * y[:2500]  # what is left is the product's error
    out = md.zeros(x.size, dtype="float32")
    fused(on_metal(x), on_metal(y), on_metal(z), out, threads=x.size)
    exact = x.astype("longdouble") * y + z  # 48 bits and a sum: no second rounding that float32 would see
    np.testing.assert_array_equal(np.asarray(out), exact.astype("float32"))


#: Function: (range of its argument, how many ulp Metal grants without fast math: its specification, "Numerical
#: Compliance").
FUNCTIONS = {
    "exp": (-80, 80, 4),
    "exp2": (-100, 100, 4),
    "log": (1e-6, 1e6, 4),
    "log2": (1e-6, 1e6, 4),
    "log10": (1e-6, 1e6, 4),
    "sin": (-100, 100, 4),
    "cos": (-100, 100, 4),
    "tan": (-1.5, 1.5, 6),
    "asin": (-1, 1, 5),
    "acos": (-1, 1, 5),
    "atan": (-50, 50, 5),
    "sinh": (-40, 40, 4),
    "cosh": (-40, 40, 4),
    "tanh": (-10, 10, 5),
    "asinh": (-1000, 1000, 5),
    "acosh": (1, 1000, 4),
    "atanh": (-0.99, 0.99, 5),
    "sqrt": (0, 1e6, 0),
    "floor": (-1000, 1000, 0),
    "rint": (-1000, 1000, 0),
    "trunc": (-1000, 1000, 0),
    "fabs": (-1000, 1000, 0),
}


def test_functions_of_one_number():
    text = "".join(
        f"""kernel void use_{name}(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {{
    y[i] = precise::{name}(x[i]);
}}
"""
        for name in FUNCTIONS
    )
    library = md.Library(METAL + text, math="safe")
    for name, (low, high, ulp) in FUNCTIONS.items():
        x = np.linspace(low, high, 3001, dtype="float32")
        y = md.zeros(x.size, dtype="float32")
        library[f"use_{name}"](on_metal(x), y, threads=x.size)
        spelled = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
        exact = getattr(np, spelled.get(name, "arctanh" if name == "atanh" else name))(x.astype("float64"))
        if name in ("sin", "cos", "tan", "log", "log2", "log10"):  # near a zero the error is absolute
            np.testing.assert_allclose(np.asarray(y), exact, rtol=ulp * 1.2e-7, atol=2e-7, err_msg=name)
        else:
            np.testing.assert_array_max_ulp(np.asarray(y), exact.astype("float32"), max(ulp, 1))


def test_functions_of_two_numbers():
    library = md.Library(
        METAL
        + """#define KERNEL(NAME)                                                                        \\
    kernel void use_##NAME(device const float *x, device const float *y, device float *out,                \\
                           uint i [[thread_position_in_grid]]) {                                           \\
        out[i] = precise::NAME(x[i], y[i]);                                                                \\
    }
KERNEL(pow) KERNEL(atan2) KERNEL(fmod) KERNEL(fmin) KERNEL(fmax) KERNEL(copysign)
""",
        math="safe",
    )
    x, y = random().uniform(0.1, 9, (2, 2000)).astype("float32")
    wide = x.astype("float64"), y.astype("float64")
    cases = {"pow": (np.power, 16), "atan2": (np.arctan2, 6), "fmod": (np.fmod, 0)}
    cases |= {"fmin": (np.fmin, 0), "fmax": (np.fmax, 0), "copysign": (np.copysign, 0)}
    for name, (function, ulp) in cases.items():
        out = md.zeros(x.size, dtype="float32")
        library[f"use_{name}"](on_metal(x), on_metal(y), out, threads=x.size)
        np.testing.assert_array_max_ulp(np.asarray(out), function(*wide).astype("float32"), ulp)


def test_half_rounds_after_each_operation():
    axpy = md.kernel(
        METAL
        + EXACT
        + """kernel void axpy(device const half *x, device half *y, constant half &a, uint i [[thread_position_in_grid]]) {
    y[i] = a * x[i] - y[i] / (x[i] + 2.5h);
}"""
    )
    x, y = random().uniform(0.5, 4, (2, 3000)).astype("float16")
    result = on_metal(y)
    axpy(on_metal(x), result, 0.75, threads=x.size)
    np.testing.assert_array_equal(np.asarray(result), np.float16(0.75) * x - y / (x + np.float16(2.5)))


@pytest.mark.needs_ml_dtypes
def test_bfloat_to_float_and_back():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    scale = md.kernel(
        METAL
        + """kernel void scale(device const bfloat *x, device bfloat *y, constant float &a, uint i [[thread_position_in_grid]]) {
    y[i] = bfloat(float(x[i]) * a);
}"""
    )
    x = random().standard_normal(2000).astype(ml_dtypes.bfloat16)
    y = md.zeros(x.size, dtype="bfloat16")
    scale(on_metal(x), y, 1.7, threads=x.size)
    expected = (x.astype("float32") * np.float32(1.7)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.asarray(y).view("uint16"), expected.view("uint16"))


def test_integers_of_64_bits():
    mix = md.kernel(
        METAL
        + """kernel void mix64(device const ulong *x, device ulong *y, uint i [[thread_position_in_grid]]) {
    ulong z = x[i] + 0x9E3779B97F4A7C15UL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9UL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBUL;
    y[i] = z ^ (z >> 31);
}"""
    )
    x = random().integers(0, 2**64, 1000, dtype="uint64")
    y = md.zeros(x.size, dtype="uint64")
    mix(on_metal(x), y, threads=x.size)
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    np.testing.assert_array_equal(np.asarray(y), z ^ (z >> np.uint64(31)))


def test_integer_functions():
    count = md.kernel(
        METAL
        + """kernel void bits(device const uint *x, device const uint *y, device uint *out, uint i [[thread_position_in_grid]]) {
    uint a = x[i], b = y[i];
    device uint *to = out + 8 * i;
    to[0] = popcount(a);
    to[1] = clz(a);
    to[2] = ctz(a);
    to[3] = reverse_bits(a);
    to[4] = rotate(a, b & 31);
    to[5] = mulhi(a, b);
    to[6] = absdiff(a, b);
    to[7] = addsat(a, b);
}"""
    )
    x, y = random().integers(0, 2**32, (2, 500), dtype="uint32")
    x[:3] = 0, 1, 0xFFFFFFFF
    out = md.zeros((x.size, 8), dtype="uint32")
    count(on_metal(x), on_metal(y), out, threads=x.size)

    def expected(a, b):
        turn = b & 31
        yield a.bit_count()
        yield 32 - a.bit_length()
        yield (a & -a).bit_length() - 1 if a else 32
        yield int(f"{a:032b}"[::-1], 2)
        yield (a << turn | a >> (32 - turn)) & 0xFFFFFFFF
        yield a * b >> 32
        yield abs(a - b)
        yield min(a + b, 0xFFFFFFFF)

    np.testing.assert_array_equal(
        np.asarray(out), [list(expected(a, b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    )


def test_integers_of_8_bits_give_a_dot_product():
    dots = md.kernel(
        METAL
        + """kernel void dots(device const char4 *x, device const char4 *y, device int *out, constant uint &n,
                 uint row [[thread_position_in_grid]]) {
    int sum = 0;
    for (uint i = 0; i < n; i++) {
        char4 a = x[row * n + i], b = y[row * n + i];
        sum += int(a.x) * b.x + int(a.y) * b.y + int(a.z) * b.z + int(a.w) * b.w;
    }
    out[row] = sum;
}"""
    )
    x, y = random().integers(-128, 128, (2, 37, 64), dtype="int8")
    out = md.zeros(37, dtype="int32")
    dots(on_metal(x), on_metal(y), out, 16, threads=37)
    np.testing.assert_array_equal(np.asarray(out), (x.astype("int32") * y).sum(axis=1))


def test_bits_of_a_float_give_its_inverse_root():
    root = md.kernel(
        METAL
        + EXACT
        + """kernel void inverse_root(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    float guess = as_type<float>(0x5f3759dfu - (as_type<uint>(x[i]) >> 1));
    y[i] = guess * (1.5f - 0.5f * x[i] * guess * guess);
}"""
    )
    x = random().uniform(1e-3, 1e3, 1000).astype("float32")
    y = md.zeros(x.size, dtype="float32")
    root(on_metal(x), y, threads=x.size)
    guess = (np.uint32(0x5F3759DF) - (x.view("uint32") >> 1)).view("float32")
    np.testing.assert_array_equal(np.asarray(y), guess * (np.float32(1.5) - np.float32(0.5) * x * guess * guess))


def test_colours_packed_into_words():
    to_linear = md.kernel(
        METAL
        + """kernel void halve(device const uint *pixels, device uint *out, device float4 *colours, uint i [[thread_position_in_grid]]) {
    float4 colour = unpack_unorm4x8_to_float(pixels[i]);
    colours[i] = colour;
    out[i] = pack_float_to_unorm4x8(colour.bgra);
}"""
    )
    pixels = random().integers(0, 2**32, 700, dtype="uint32")
    out, colours = md.zeros(pixels.size, dtype="uint32"), md.zeros((pixels.size, 4), dtype="float32")
    to_linear(on_metal(pixels), out, colours, threads=pixels.size)
    channels = pixels.view("uint8").reshape(-1, 4)
    np.testing.assert_array_equal(np.asarray(out).view("uint8").reshape(-1, 4), channels[:, [2, 1, 0, 3]])
    np.testing.assert_array_max_ulp(np.asarray(colours), channels / np.float32(255), 1)


# ---- what a kernel is given ----


def test_a_table_of_constants():
    """CRC-32 by nibbles, a message a thread."""
    table = [0] * 16
    for i in range(16):
        for _ in range(4):
            i_ = table[i] if _ else i
            table[i] = (i_ >> 1) ^ (0xEDB88320 if i_ & 1 else 0)
    checksum = md.kernel(
        METAL
        + f"constant uint TABLE[16] = {{{', '.join(f'{item}u' for item in table)}}};\n"
        + """kernel void crc(device const uchar *bytes, device uint *out, constant uint &n, uint row [[thread_position_in_grid]]) {
    uint crc = ~0u;
    for (uint i = 0; i < n; i++) {
        crc ^= bytes[row * n + i];
        crc = TABLE[crc & 15] ^ (crc >> 4);
        crc = TABLE[crc & 15] ^ (crc >> 4);
    }
    out[row] = ~crc;
}"""
    )
    messages = random().integers(0, 256, (50, 77), dtype="uint8")
    out = md.zeros(50, dtype="uint32")
    checksum(on_metal(messages), out, 77, threads=50)
    assert np.asarray(out).tolist() == [zlib.crc32(message.tobytes()) for message in messages]


def test_a_struct_by_reference_and_structs_in_a_buffer():
    move = md.kernel(
        METAL
        + EXACT
        + """struct Particle {
    packed_float3 position;
    float mass;
    packed_float3 velocity;
    uint steps;
};
struct World {
    float3 gravity;
    float step;
    uint count;
};
kernel void move(device Particle *particles, constant World &world, uint i [[thread_position_in_grid]]) {
    if (i >= world.count) return;
    device Particle &p = particles[i];
    p.velocity += world.gravity * world.step;
    p.position += p.velocity * world.step;
    p.steps++;
}"""
    )
    particle = np.dtype([("position", "f4", 3), ("mass", "f4"), ("velocity", "f4", 3), ("steps", "u4")])
    world_type = np.dtype(
        {
            "names": ["gravity", "step", "count"],
            "formats": [("f4", 3), "f4", "u4"],
            "offsets": [0, 16, 20],
            "itemsize": 32,
        }
    )
    particles = np.zeros(300, particle)
    particles["position"], particles["velocity"] = random().standard_normal((2, 300, 3))
    world = np.zeros((), world_type)
    world["gravity"], world["step"], world["count"] = (0, -9.81, 0.5), 0.25, 299
    out = on_metal(particles.view("uint8"))
    move(out, world[()], threads=320)
    expected = particles.copy()
    expected["velocity"][:299] += world["gravity"] * world["step"]
    expected["position"][:299] += expected["velocity"][:299] * world["step"]
    expected["steps"][:299] += 1
    np.testing.assert_array_equal(np.asarray(out), expected.view("uint8"))


def test_function_constants_choose_the_code():
    library = md.Library(
        METAL
        + """constant bool is_relu [[function_constant(0)]];
constant float slope [[function_constant(1)]];
constant float leak = is_function_constant_defined(slope) ? slope : 0.0f;
kernel void activate(device const float *x, device float *y, device const float *bias [[function_constant(is_relu)]],
                     uint i [[thread_position_in_grid]]) {
    y[i] = x[i];
    if (is_relu) {
        float biased = x[i] + bias[i];
        y[i] = biased > 0 ? biased : leak * biased;
    }
}"""
    )
    x, bias = random().standard_normal((2, 400), dtype="float32")
    y = md.zeros(x.size, dtype="float32")
    library.kernel("activate", constants={"is_relu": False})(on_metal(x), y, threads=x.size)
    np.testing.assert_array_equal(np.asarray(y), x)
    for slope in (None, 0.25):
        constants = {"is_relu": True} | ({} if slope is None else {"slope": slope})
        library.kernel("activate", constants=constants)(on_metal(x), y, on_metal(bias), threads=x.size)
        biased = x + bias
        np.testing.assert_array_equal(np.asarray(y), np.where(biased > 0, biased, biased * np.float32(slope or 0)))


def test_a_template_with_host_names():
    library = md.Library(
        METAL
        + """template <typename T, int N>
[[kernel]] void power(device const T *x, device T *y, uint i [[thread_position_in_grid]]) {
    T result = 1;
    for (int n = 0; n < N; n++) result *= x[i];
    y[i] = result;
}
template [[host_name("cube_f32")]] [[kernel]] void power<float, 3>(device const float *, device float *, uint);
template [[host_name("cube_f16")]] [[kernel]] void power<half, 3>(device const half *, device half *, uint);
template [[host_name("fifth_i32")]] [[kernel]] decltype(power<int, 5>) power<int, 5>;
"""
    )
    for name, dtype, power in (("cube_f32", "f4", 3), ("cube_f16", "f2", 3), ("fifth_i32", "i4", 5)):
        x = random().integers(-9, 10, 333).astype(dtype)
        y = md.zeros(x.size, dtype=x.dtype)
        library[name](on_metal(x), y, threads=x.size)
        np.testing.assert_array_equal(np.asarray(y), np.prod([x] * power, axis=0, dtype=dtype))


def test_matrices_of_4_by_4_move_points():
    transform = md.kernel(
        METAL
        + """kernel void transform(device const float4 *points, constant float4x4 &m, device float4 *out,
                      uint i [[thread_position_in_grid]]) {
    out[i] = m * points[i];
}"""
    )
    matrix, points = random().standard_normal((4, 4)).astype("f4"), random(1).standard_normal((500, 4)).astype("f4")
    out = md.zeros((500, 4), dtype="float32")
    transform(on_metal(points), on_metal(matrix.T), out, threads=500)  # Metal's matrices are columns
    exact = points.astype("f8") @ matrix.T.astype("f8")
    # A sum of four products: terms of about 3 may cancel.
    np.testing.assert_allclose(np.asarray(out), exact, rtol=5e-7, atol=2e-6)


def test_geometry_of_vectors():
    reflect = md.kernel(
        METAL
        + """kernel void geometry(device const packed_float3 *x, device const packed_float3 *y, device packed_float3 *crossed,
                     device float *numbers, uint i [[thread_position_in_grid]]) {
    float3 a = x[i], b = y[i];
    crossed[i] = cross(a, b);
    numbers[4 * i] = dot(a, b);
    numbers[4 * i + 1] = length(a);
    numbers[4 * i + 2] = distance(a, b);
    numbers[4 * i + 3] = dot(normalize(a), normalize(a));
}""",
        math="safe",
    )
    x, y = random().uniform(1, 2, (2, 400, 3)).astype("f4")
    crossed, numbers = md.zeros((400, 3), dtype="float32"), md.zeros((400, 4), dtype="float32")
    reflect(on_metal(x), on_metal(y), crossed, numbers, threads=400)
    wide_x, wide_y = x.astype("f8"), y.astype("f8")
    # Differences of products of 1 to 4: what cancels leaves an absolute error of half an ulp of 4.
    np.testing.assert_allclose(np.asarray(crossed), np.cross(wide_x, wide_y), atol=1e-6)
    got = np.asarray(numbers)
    np.testing.assert_array_max_ulp(got[:, 0], (wide_x * wide_y).sum(1).astype("f4"), 4)
    np.testing.assert_array_max_ulp(got[:, 1], np.linalg.norm(wide_x, axis=1).astype("f4"), 4)
    np.testing.assert_array_max_ulp(got[:, 2], np.linalg.norm(wide_x - wide_y, axis=1).astype("f4"), 4)
    # Three divisions, each half an ulp off, of a length that is 4: twice that in the square.
    np.testing.assert_array_max_ulp(got[:, 3], np.ones(400, "f4"), 10)


def test_a_grid_of_three_dimensions_with_odd_edges():
    where = md.kernel(
        METAL
        + """kernel void where(device uint *out, uint3 p [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                  uint3 group [[threads_per_threadgroup]], uint3 in_group [[thread_position_in_threadgroup]]) {
    device uint *to = out + 3 * ((p.z * size.y + p.y) * size.x + p.x);
    to[0] = p.x + 100 * p.y + 10000 * p.z;
    to[1] = group.x + 100 * group.y + 10000 * group.z;
    to[2] = in_group.x + 100 * in_group.y + 10000 * in_group.z;
}"""
    )
    size, group = (13, 7, 5), (4, 3, 2)
    out = md.zeros((5, 7, 13, 3), dtype="uint32")
    where(out, threads=size, group=group)
    z, y, x = np.meshgrid(np.arange(5), np.arange(7), np.arange(13), indexing="ij")
    position = x + 100 * y + 10000 * z
    edges = [np.minimum(group[axis], size[axis] - p // group[axis] * group[axis]) for axis, p in enumerate((x, y, z))]
    inside = x % 4 + 100 * (y % 3) + 10000 * (z % 2)
    expected = np.stack([position, edges[0] + 100 * edges[1] + 10000 * edges[2], inside], axis=-1)
    np.testing.assert_array_equal(np.asarray(out), expected)


def test_a_launch_of_whole_groups():
    number = md.kernel(
        METAL
        + """kernel void number(device uint *out, uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
                   uint i [[thread_index_in_threadgroup]], uint2 width [[threads_per_threadgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    uint n = group.y * groups.x + group.x;
    out[n * width.x * width.y + i] = n * 10000 + simd * 100 + lane;
}"""
    )
    out = md.zeros((15, 96), dtype="uint32")
    number(out, groups=(5, 3), group=(16, 6))
    i = np.arange(96)
    np.testing.assert_array_equal(np.asarray(out), np.arange(15)[:, None] * 10000 + i // 32 * 100 + i % 32)


def test_an_array_begins_at_its_first_item():
    add = md.kernel(
        METAL
        + """kernel void add_one(device int *x, uint i [[thread_position_in_grid]]) {
    x[i] += 1;
}"""
    )
    whole = on_metal(np.arange(100, dtype="int32"))
    add(whole[30:60], threads=30)
    expected = np.arange(100)
    expected[30:60] += 1
    np.testing.assert_array_equal(np.asarray(whole), expected)


# ---- small programs ----


def test_mandelbrot():
    escape = md.kernel(
        METAL
        + EXACT
        + """kernel void mandelbrot(device ushort *out, constant float4 &view, uint2 p [[thread_position_in_grid]],
                       uint2 size [[threads_per_grid]]) {
    float2 c = view.xy + view.zw * float2(p);
    float2 z = 0;
    ushort n = 0;
    while (n < 200 && z.x * z.x + z.y * z.y <= 4) {
        z = float2(z.x * z.x - z.y * z.y + c.x, 2 * z.x * z.y + c.y);
        n++;
    }
    out[p.y * size.x + p.x] = n;
}""",
        math="safe",
    )
    width, height = 120, 80
    view = np.array([-2.2, -1.2, 0.025, 0.03], "f4")
    out = md.zeros((height, width), dtype="uint16")
    escape(out, on_metal(view), threads=(width, height))
    real = view[0] + view[2] * np.arange(width, dtype="f4")[None, :] + np.zeros((height, 1), "f4")
    imaginary = view[1] + view[3] * np.arange(height, dtype="f4")[:, None] + np.zeros((1, width), "f4")
    x, y, expected = np.zeros_like(real), np.zeros_like(real), np.zeros(real.shape, "uint16")
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(200):
            inside = x * x + y * y <= 4
            expected += inside
            x, y = (
                np.where(inside, x * x - y * y + real, x),
                np.where(inside, np.float32(2) * x * y + imaginary, y),
            )
    np.testing.assert_array_equal(np.asarray(out), expected)


def test_game_of_life():
    step = md.kernel(
        METAL
        + """kernel void life(device const uchar *now, device uchar *next, uint2 p [[thread_position_in_grid]],
                 uint2 size [[threads_per_grid]]) {
    uint alive = 0;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            uint2 q = (p + size + uint2(dx, dy)) % size;
            alive += (dx != 0 || dy != 0) ? now[q.y * size.x + q.x] : 0;
        }
    }
    next[p.y * size.x + p.x] = alive == 3 || (alive == 2 && now[p.y * size.x + p.x]);
}"""
    )
    world = random().integers(0, 2, (45, 61), dtype="uint8")
    now, following = on_metal(world), md.zeros(world.shape, dtype="uint8")
    for _ in range(10):
        step(now, following, threads=world.shape[::-1])
        now, following = following, now
        around = sum(np.roll(world, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - world
        world = ((around == 3) | ((around == 2) & (world == 1))).astype("uint8")
    np.testing.assert_array_equal(np.asarray(now), world)


def test_a_stencil_of_heat():
    step = md.kernel(
        METAL
        + EXACT
        + """kernel void heat(device const float *now, device float *next, constant float &rate, uint2 p [[thread_position_in_grid]],
                 uint2 size [[threads_per_grid]]) {
    uint i = p.y * size.x + p.x;
    if (p.x == 0 || p.y == 0 || p.x == size.x - 1 || p.y == size.y - 1) {
        next[i] = now[i];
        return;
    }
    float around = now[i - 1] + now[i + 1] + now[i - size.x] + now[i + size.x];
    next[i] = now[i] + rate * (around - 4 * now[i]);
}"""
    )
    field = random().uniform(0, 100, (51, 77)).astype("f4")
    now, following = on_metal(field), md.zeros(field.shape, dtype="float32")
    for _ in range(6):
        step(now, following, 0.2, threads=field.shape[::-1])
        now, following = following, now
        inner = field[1:-1, 1:-1]
        around = field[1:-1, :-2] + field[1:-1, 2:] + field[:-2, 1:-1] + field[2:, 1:-1]
        field = field.copy()
        field[1:-1, 1:-1] = inner + np.float32(0.2) * (around - np.float32(4) * inner)
    np.testing.assert_array_equal(np.asarray(now), field)


def test_a_convolution_with_a_border():
    blur = md.kernel(
        METAL
        + """kernel void convolve(device const float *image, constant float *weights, device float *out, constant int &radius,
                     uint2 p [[thread_position_in_grid]], uint2 size [[threads_per_grid]]) {
    float sum = 0;
    int2 last = int2(size) - 1;
    for (int dy = -radius; dy <= radius; dy++) {
        for (int dx = -radius; dx <= radius; dx++) {
            int2 q = clamp(int2(p) + int2(dx, dy), int2(0), last);
            sum = fma(weights[(dy + radius) * (2 * radius + 1) + dx + radius], image[q.y * int(size.x) + q.x], sum);
        }
    }
    out[p.y * size.x + p.x] = sum;
}"""
    )
    image, weights = random().uniform(0, 1, (40, 33)).astype("f4"), random(1).uniform(0, 0.1, (5, 5)).astype("f4")
    out = md.zeros(image.shape, dtype="float32")
    blur(on_metal(image), on_metal(weights), out, 2, threads=image.shape[::-1])
    padded = np.pad(image.astype("f8"), 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    exact = np.einsum("yxij,ij->yx", windows, weights)
    # 25 terms of one sign, each rounded once: 25 ulp would be the bound, its root is what random signs leave.
    np.testing.assert_array_max_ulp(np.asarray(out), exact.astype("f4"), 8)


def test_n_bodies():
    pull = md.kernel(
        METAL
        + """kernel void pull(device const float4 *bodies, device float4 *forces, constant uint &n, uint i [[thread_position_in_grid]]) {
    float3 me = bodies[i].xyz, force = 0;
    for (uint j = 0; j < n; j++) {
        float3 way = bodies[j].xyz - me;
        float distance = precise::rsqrt(dot(way, way) + 1e-3f);
        force += bodies[j].w * distance * distance * distance * way;
    }
    forces[i] = float4(force, 0);
}""",
        math="safe",
    )
    bodies = random().uniform(-1, 1, (200, 4)).astype("f4")
    forces = md.zeros((200, 4), dtype="float32")
    pull(on_metal(bodies), forces, 200, threads=200)
    wide = bodies.astype("f8")
    way = wide[None, :, :3] - wide[:, None, :3]
    terms = wide[None, :, 3:] * way * ((way**2).sum(-1, keepdims=True) + 1e-3) ** -1.5
    # 200 terms of either sign, each within some 6 ulp: the error follows the sum of their magnitudes.
    error = np.abs(np.asarray(forces)[:, :3] - terms.sum(1))
    assert (error < 1e-6 * np.abs(terms).sum(1)).all()


def test_a_counter_gives_random_numbers():
    """Philox with four words and ten rounds: "Parallel random numbers: as easy as 1, 2, 3", 2011."""
    philox = md.kernel(
        METAL
        + """kernel void philox(device uint4 *out, constant uint2 &seed, uint i [[thread_position_in_grid]]) {
    uint4 c = uint4(i, 0, 0, 0);
    uint2 key = seed;
    for (int round = 0; round < 10; round++) {
        uint high_a = mulhi(0xD2511F53u, c.x), low_a = 0xD2511F53u * c.x;
        uint high_b = mulhi(0xCD9E8D57u, c.z), low_b = 0xCD9E8D57u * c.z;
        c = uint4(high_b ^ c.y ^ key.x, low_b, high_a ^ c.w ^ key.y, low_a);
        key += uint2(0x9E3779B9u, 0xBB67AE85u);
    }
    out[i] = c;
}"""
    )
    out = md.zeros((100, 4), dtype="uint32")
    philox(out, on_metal(np.array([7, 11], "u4")), threads=100)

    def expected(counter, key, word=0xFFFFFFFF):
        a, b, c, d = counter, 0, 0, 0
        for _ in range(10):
            first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = second >> 32 ^ b ^ key[0], second & word, first >> 32 ^ d ^ key[1], first & word
            key = ((key[0] + 0x9E3779B9) & word, (key[1] + 0xBB67AE85) & word)
        return [a, b, c, d]

    np.testing.assert_array_equal(np.asarray(out), [expected(i, (7, 11)) for i in range(100)])


def test_a_fourier_transform_by_its_sum():
    transform = md.kernel(
        METAL
        + """float2 times(float2 a, float2 b) {
    return float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
kernel void dft(device const float2 *x, device float2 *out, constant uint &n, uint k [[thread_position_in_grid]]) {
    float2 sum = 0;
    for (uint i = 0; i < n; i++) {
        float angle = -2.0f * M_PI_F * float((i * k) % n) / float(n);
        sum += times(x[i], float2(precise::cos(angle), precise::sin(angle)));
    }
    out[k] = sum;
}""",
        math="safe",
    )
    x = (random().standard_normal(128) + 1j * random(1).standard_normal(128)).astype("complex64")
    out = md.zeros(128, dtype="complex64")
    transform(on_metal(x), out, 128, threads=128)
    # 128 terms, each with an angle of up to 6.3 in float32.
    np.testing.assert_allclose(np.asarray(out), np.fft.fft(x.astype("complex128")), atol=2e-5)


# ---- random numbers ----

#: Threefry2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3), as counters i and i + n.
THREEFRY = """
kernel void threefry(device uint *out, constant uint2 &key, uint i [[thread_position_in_grid]],
                     uint n [[threads_per_grid]]) {
    const uint keys[] = {key.x, key.y, key.x ^ key.y ^ 0x1BD11BDA};
    const uint turns[] = {13, 15, 26, 6, 17, 29, 16, 24};
    uint2 x = key + uint2(i, i + n);
    for (uint turn = 0, group = 0; turn < 20; turn++) {
        x.x += x.y;
        x.y = rotate(x.y, turns[turn % 8]) ^ x.x;
        if (turn % 4 == 3) {
            group++;
            x += uint2(keys[group % 3], keys[(group + 1) % 3] + group);
        }
    }
    out[i] = x.x;
    out[i + n] = x.y;
}
"""


@pytest.mark.needs_mlx
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_threefry_is_mlxs(count):
    """MLX's own kernel is in no package: its bits on the CPU are the reference, which `split` gives as they are."""
    import mlx.core as mx

    kernel = md.kernel(METAL + THREEFRY)
    for seed in (0, 7, 2**40 + 3):
        key, out = mx.random.key(seed), md.zeros(2 * count, dtype="uint32")
        kernel(out, tuple(np.array(key).tolist()), n=count)
        np.testing.assert_array_equal(np.asarray(out), np.array(mx.random.split(key, count)).reshape(-1))
