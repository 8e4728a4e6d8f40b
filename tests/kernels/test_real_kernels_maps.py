"""Kernels as users write them, a thread an item: each beside NumPy, on a Mac and without one.

Integers are equal.  Floats are equal where each operation rounds once: `contract(off)` forbids Metal to join a
product and a sum.  Elsewhere they are within 4 ulp, or the test says why not.
"""

import re
import zlib
from functools import cache, partial

import numpy as np
import pytest
from group_kernels import METAL, on_metal, random

import metal_dlpack as md

EXACT = "#pragma METAL fp contract(off)\n"


SOURCES = {"fast": [], "safe": []}


@cache
def library(math):
    """Of all kernels of this file: the compiler reads them once."""
    return md.Library(METAL + EXACT + "\n".join(SOURCES[math]), math=math)


def case(source, math="fast"):
    """The function below is a test of this kernel, which it gets."""
    SOURCES[math].append(source)
    name = re.search(r"kernel void (\w+)", source)[1]

    def make_test(run):
        def test():
            run(library(math)[name])

        return test

    return make_test


safe = partial(case, math="safe")


# ---- numbers ----


@case("""kernel void saxpy(device const float *x, device float *y, constant float &a, uint i [[thread_position_in_grid]]) {
    y[i] = a * x[i] + y[i];
}""")
def test_saxpy_in_place(saxpy):
    x, y = random().standard_normal((2, 4097), dtype="float32")
    result = on_metal(y)
    saxpy(on_metal(x), result, 1.5, threads=x.size)
    np.testing.assert_array_equal(np.asarray(result), np.float32(1.5) * x + y)


@case("""kernel void fused(device const float *x, device const float *y, device const float *z, device float *out,
                  uint i [[thread_position_in_grid]]) {
    out[i] = fma(x[i], y[i], z[i]);
}""")
def test_fma_rounds_once(fused):
    x, y, z = random().standard_normal((3, 5000)).astype("float32")
    z[:2500] = -x[:2500] * y[:2500]  # what is left is the product's error
    out = md.zeros(x.size, dtype="float32")
    fused(on_metal(x), on_metal(y), on_metal(z), out, threads=x.size)
    exact = x.astype("longdouble") * y + z  # 48 bits and a sum: no second rounding that float32 would see
    np.testing.assert_array_equal(np.asarray(out), exact.astype("float32"))


@case("""kernel void dots(device const char4 *x, device const char4 *y, device int *out, constant uint &n,
                 uint row [[thread_position_in_grid]]) {
    int sum = 0;
    for (uint i = 0; i < n; i++) {
        char4 a = x[row * n + i], b = y[row * n + i];
        sum += int(a.x) * b.x + int(a.y) * b.y + int(a.z) * b.z + int(a.w) * b.w;
    }
    out[row] = sum;
}""")
def test_integers_of_8_bits_give_a_dot_product(dots):
    x, y = random().integers(-128, 128, (2, 37, 64), dtype="int8")
    out = md.zeros(37, dtype="int32")
    dots(on_metal(x), on_metal(y), out, 16, threads=37)
    np.testing.assert_array_equal(np.asarray(out), (x.astype("int32") * y).sum(axis=1))


@case("""kernel void halve(device const uint *pixels, device uint *out, device float4 *colours, uint i [[thread_position_in_grid]]) {
    float4 colour = unpack_unorm4x8_to_float(pixels[i]);
    colours[i] = colour;
    out[i] = pack_float_to_unorm4x8(colour.bgra);
}""")
def test_colours_packed_into_words(to_linear):
    pixels = random().integers(0, 2**32, 700, dtype="uint32")
    out, colours = md.zeros(pixels.size, dtype="uint32"), md.zeros((pixels.size, 4), dtype="float32")
    to_linear(on_metal(pixels), out, colours, threads=pixels.size)
    channels = pixels.view("uint8").reshape(-1, 4)
    np.testing.assert_array_equal(np.asarray(out).view("uint8").reshape(-1, 4), channels[:, [2, 1, 0, 3]])
    np.testing.assert_array_max_ulp(np.asarray(colours), channels / np.float32(255), 1)


#: By NumPy's names: from where to where, and how many ulp Metal's specification allows.
FUNCTIONS = {
    "exp exp2": (-80, 80, 4), "log log2 log10": (1e-6, 1e6, 4), "sin cos": (-100, 100, 4), "tan": (-1.5, 1.5, 6),
    "arcsin arccos": (-1, 1, 5), "arctan": (-50, 50, 5), "sinh cosh": (-40, 40, 4), "tanh": (-10, 10, 5),
    "arcsinh": (-1000, 1000, 5), "arccosh": (1, 1000, 4), "arctanh": (-0.99, 0.99, 5), "sqrt": (0, 1e6, 1),
    "floor rint trunc fabs": (-1000, 1000, 0),
}  # fmt: skip
ROWS = [(name, *how) for names, how in FUNCTIONS.items() for name in names.split()]
CALLS = [f"case {row}: y[i] = precise::{name.replace('arc', 'a')}(x[i]); break;" for row, (name, *_) in enumerate(ROWS)]


@safe(f"""kernel void functions(device const float *x, device float *y, uint2 p [[thread_position_in_grid]],
                      uint2 size [[threads_per_grid]]) {{
    uint i = p.y * size.x + p.x;
    switch (p.y) {{ {" ".join(CALLS)} }}
}}""")
def test_functions_of_one_number(functions):
    x = np.array([np.linspace(low, high, 1001, dtype="float32") for _, low, high, _ in ROWS])
    y = md.zeros(x.shape, dtype="float32")
    functions(on_metal(x), y, threads=x.shape[::-1])
    for (name, *_, ulp), taken, given in zip(ROWS, x, np.asarray(y), strict=True):
        exact = getattr(np, name)(taken.astype("float64"))
        near_zero = 2e-7 if name in {"sin", "cos", "tan", "log", "log2", "log10"} else 0  # there the error is absolute
        np.testing.assert_allclose(given, exact.astype("float32"), rtol=ulp * 1.2e-7, atol=near_zero, err_msg=name)


@case("""kernel void bits(device const uint *x, device const uint *y, device uint *out, uint i [[thread_position_in_grid]]) {
    uint a = x[i], b = y[i];
    const uint got[] = {popcount(a), clz(a), ctz(a), reverse_bits(a), rotate(a, b & 31), mulhi(a, b), absdiff(a, b),
                        addsat(a, b)};
    for (uint k = 0; k < 8; k++) out[8 * i + k] = got[k];
}""")
def test_functions_of_integers(bits):
    x, y = random().integers(0, 2**32, (2, 500), dtype="uint32")
    x[:3] = 0, 1, 0xFFFFFFFF
    out = md.zeros((x.size, 8), dtype="uint32")
    bits(on_metal(x), on_metal(y), out, threads=x.size)
    for a, b, got in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        turned = (a << (b & 31) | a >> (32 - (b & 31))) & 0xFFFFFFFF
        counts = [a.bit_count(), 32 - a.bit_length(), (a & -a).bit_length() - 1 if a else 32]
        assert got == [*counts, int(f"{a:032b}"[::-1], 2), turned, a * b >> 32, abs(a - b), min(a + b, 2**32 - 1)]


# ---- what a kernel is given ----


@case("""constant uint TABLE[16] = {
    0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
    0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};
kernel void crc(device const uchar *bytes, device uint *out, constant uint &n, uint row [[thread_position_in_grid]]) {
    uint crc = ~0u;
    for (uint i = 0; i < n; i++) {
        crc ^= bytes[row * n + i];
        crc = TABLE[crc & 15] ^ (crc >> 4);
        crc = TABLE[crc & 15] ^ (crc >> 4);
    }
    out[row] = ~crc;
}""")
def test_a_table_of_constants(checksum):
    """CRC-32 by nibbles, a message a thread."""
    messages = random().integers(0, 256, (50, 77), dtype="uint8")
    out = md.zeros(50, dtype="uint32")
    checksum(on_metal(messages), out, 77, threads=50)
    assert np.asarray(out).tolist() == [zlib.crc32(message.tobytes()) for message in messages]


@case("""struct Particle {
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
}""")
def test_a_struct_by_reference_and_structs_in_a_buffer(move):
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


@case("""kernel void transform(device const float4 *points, constant float4x4 &m, device float4 *out,
                      uint i [[thread_position_in_grid]]) {
    out[i] = m * points[i];
}""")
def test_matrices_of_4_by_4_move_points(transform):
    matrix, points = random().standard_normal((4, 4)).astype("f4"), random(1).standard_normal((500, 4)).astype("f4")
    out = md.zeros((500, 4), dtype="float32")
    transform(on_metal(points), on_metal(matrix.T), out, threads=500)  # Metal's matrices are columns
    exact = points.astype("f8") @ matrix.T.astype("f8")
    # A sum of four products: terms of about 3 may cancel.
    np.testing.assert_allclose(np.asarray(out), exact, rtol=5e-7, atol=2e-6)


@case("""kernel void where(device uint *out, uint3 p [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                  uint3 group [[threads_per_threadgroup]], uint3 in_group [[thread_position_in_threadgroup]]) {
    device uint *to = out + 3 * ((p.z * size.y + p.y) * size.x + p.x);
    to[0] = p.x + 100 * p.y + 10000 * p.z;
    to[1] = group.x + 100 * group.y + 10000 * group.z;
    to[2] = in_group.x + 100 * in_group.y + 10000 * in_group.z;
}""")
def test_a_grid_of_three_dimensions_with_odd_edges(where):
    size, group = (13, 7, 5), (4, 3, 2)
    out = md.zeros((5, 7, 13, 3), dtype="uint32")
    where(out, threads=size, group=group)
    z, y, x = np.meshgrid(np.arange(5), np.arange(7), np.arange(13), indexing="ij")
    position = x + 100 * y + 10000 * z
    edges = [np.minimum(group[axis], size[axis] - p // group[axis] * group[axis]) for axis, p in enumerate((x, y, z))]
    inside = x % 4 + 100 * (y % 3) + 10000 * (z % 2)
    expected = np.stack([position, edges[0] + 100 * edges[1] + 10000 * edges[2], inside], axis=-1)
    np.testing.assert_array_equal(np.asarray(out), expected)


@case("""kernel void number(device uint *out, uint2 group [[threadgroup_position_in_grid]], uint2 groups [[threadgroups_per_grid]],
                   uint i [[thread_index_in_threadgroup]], uint2 width [[threads_per_threadgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    uint n = group.y * groups.x + group.x;
    out[n * width.x * width.y + i] = n * 10000 + simd * 100 + lane;
}""")
def test_a_launch_of_whole_groups(number):
    out = md.zeros((15, 96), dtype="uint32")
    number(out, groups=(5, 3), group=(16, 6))
    i = np.arange(96)
    np.testing.assert_array_equal(np.asarray(out), np.arange(15)[:, None] * 10000 + i // 32 * 100 + i % 32)


# ---- small programs ----


@safe("""kernel void mandelbrot(device ushort *out, constant float4 &view, uint2 p [[thread_position_in_grid]],
                       uint2 size [[threads_per_grid]]) {
    float2 c = view.xy + view.zw * float2(p);
    float2 z = 0;
    ushort n = 0;
    while (n < 200 && z.x * z.x + z.y * z.y <= 4) {
        z = float2(z.x * z.x - z.y * z.y + c.x, 2 * z.x * z.y + c.y);
        n++;
    }
    out[p.y * size.x + p.x] = n;
}""")
def test_mandelbrot(escape):
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


@case("""kernel void life(device const uchar *now, device uchar *next, uint2 p [[thread_position_in_grid]],
                 uint2 size [[threads_per_grid]]) {
    uint alive = 0;
    for (int dy = -1; dy <= 1; dy++) {
        for (int dx = -1; dx <= 1; dx++) {
            uint2 q = (p + size + uint2(dx, dy)) % size;
            alive += (dx != 0 || dy != 0) ? now[q.y * size.x + q.x] : 0;
        }
    }
    next[p.y * size.x + p.x] = alive == 3 || (alive == 2 && now[p.y * size.x + p.x]);
}""")
def test_game_of_life(step):
    world = random().integers(0, 2, (45, 61), dtype="uint8")
    now, following = on_metal(world), md.zeros(world.shape, dtype="uint8")
    for _ in range(10):
        step(now, following, threads=world.shape[::-1])
        now, following = following, now
        around = sum(np.roll(world, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) - world
        world = ((around == 3) | ((around == 2) & (world == 1))).astype("uint8")
    np.testing.assert_array_equal(np.asarray(now), world)


@case("""kernel void convolve(device const float *image, constant float *weights, device float *out, constant int &radius,
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
}""")
def test_a_convolution_with_a_border(blur):
    image, weights = random().uniform(0, 1, (40, 33)).astype("f4"), random(1).uniform(0, 0.1, (5, 5)).astype("f4")
    out = md.zeros(image.shape, dtype="float32")
    blur(on_metal(image), on_metal(weights), out, 2, threads=image.shape[::-1])
    padded = np.pad(image.astype("f8"), 2, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5))
    exact = np.einsum("yxij,ij->yx", windows, weights)
    # 25 terms of one sign, each rounded once: 25 ulp would be the bound, its root is what random signs leave.
    np.testing.assert_array_max_ulp(np.asarray(out), exact.astype("f4"), 8)


@safe("""kernel void pull(device const float4 *bodies, device float4 *forces, constant uint &n, uint i [[thread_position_in_grid]]) {
    float3 me = bodies[i].xyz, force = 0;
    for (uint j = 0; j < n; j++) {
        float3 way = bodies[j].xyz - me;
        float distance = precise::rsqrt(dot(way, way) + 1e-3f);
        force += bodies[j].w * distance * distance * distance * way;
    }
    forces[i] = float4(force, 0);
}""")
def test_n_bodies(pull):
    bodies = random().uniform(-1, 1, (200, 4)).astype("f4")
    forces = md.zeros((200, 4), dtype="float32")
    pull(on_metal(bodies), forces, 200, threads=200)
    wide = bodies.astype("f8")
    way = wide[None, :, :3] - wide[:, None, :3]
    terms = wide[None, :, 3:] * way * ((way**2).sum(-1, keepdims=True) + 1e-3) ** -1.5
    # 200 terms of either sign, each within some 6 ulp: the error follows the sum of their magnitudes.
    error = np.abs(np.asarray(forces)[:, :3] - terms.sum(1))
    assert (error < 1e-6 * np.abs(terms).sum(1)).all()


# ---- random numbers ----


@pytest.mark.needs_mlx
@case("""kernel void threefry(device uint *out, constant uint2 &key, uint i [[thread_position_in_grid]],
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
}""")
def test_threefry_is_mlxs(kernel):
    """Threefry2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3), counters i and i + n.

    MLX's own kernel is in no package: its bits on the CPU are the reference, which `split` gives as they are.
    """
    import mlx.core as mx

    for seed, count in ((0, 1), (7, 5), (2**40 + 3, 1000)):
        key, out = mx.random.key(seed), md.zeros(2 * count, dtype="uint32")
        kernel(out, tuple(np.array(key).tolist()), n=count)
        np.testing.assert_array_equal(np.asarray(out), np.array(mx.random.split(key, count)).reshape(-1))
