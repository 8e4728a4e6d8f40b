"""Kernels as users write them, a thread an item: each beside NumPy, on a Mac and without one.

Integers are equal.  Floats are equal where each operation rounds once: `contract(off)` forbids Metal to join a
product and a sum.
"""

import zlib

import numpy as np
from own_kernels import METAL, Kernels, on_metal, random

import metal_dlpack as md

kernels = Kernels()


# ---- numbers ----


@kernels.case("""kernel void saxpy(device const float *x, device float *y, constant float &a, uint i [[thread_position_in_grid]]) {
    y[i] = a * x[i] + y[i];
}""")
def test_saxpy_in_place(saxpy):
    x, y = random().standard_normal((2, 4097), dtype="float32")
    result = on_metal(y)
    saxpy(on_metal(x), result, 1.5, threads=x.size)
    np.testing.assert_array_equal(np.asarray(result), np.float32(1.5) * x + y)


# ---- what a kernel is given ----


@kernels.case("""constant uint TABLE[16] = {
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


@kernels.case("""struct Particle {
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


# ---- small programs ----


@kernels.case("""kernel void life(device const uchar *now, device uchar *next, uint2 p [[thread_position_in_grid]],
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
