"""Pixels of textures in kernels, against NumPy: each format read and written, atomics, sizes, what lies outside."""

import numpy as np
import pytest
from own_kernels import METAL, rng_for

import metal_dlpack as md

SIDES = (5, 7)  # rows, columns

#: format: (item, channels, kind)
FORMATS = {
    **{f"r{bits}{kind}": (bits, 1, kind) for bits in (8, 16) for kind in ("Unorm", "Snorm", "Uint", "Sint")},
    **{f"rg{bits}{kind}": (bits, 2, kind) for bits in (8, 16) for kind in ("Unorm", "Snorm", "Uint", "Sint")},
    **{f"rgba{bits}{kind}": (bits, 4, kind) for bits in (8, 16) for kind in ("Unorm", "Snorm", "Uint", "Sint")},
    **{f"{name}32{kind}": (32, n, kind) for name, n in (("r", 1), ("rg", 2), ("rgba", 4)) for kind in ("Uint", "Sint")},
    **{f"{name}{bits}Float": (bits, n, "Float") for name, n in (("r", 1), ("rg", 2), ("rgba", 4)) for bits in (16, 32)},
    "rgba8Unorm_srgb": (8, 4, "Srgb"),
    "bgra8Unorm": (8, 4, "Unorm"),
    "bgra8Unorm_srgb": (8, 4, "Srgb"),
}
ITEMS = {"Unorm": "uint", "Srgb": "uint", "Uint": "uint", "Snorm": "int", "Sint": "int", "Float": "float"}
#: What a kernel sees, and how NumPy calls it.
SEEN = {"Uint": ("uint", np.uint32), "Sint": ("int", np.int32)}


def seen_of(kind):
    return SEEN.get(kind, ("float", np.float32))


def decoded(items, name):
    """What a kernel reads, (rows, columns, 4)."""
    bits, channels, kind = FORMATS[name]
    full = np.zeros((*items.shape[:2], 4), seen_of(kind)[1])
    full[..., 3] = 1
    wide = items.astype(np.float64)
    if kind in {"Unorm", "Srgb"}:
        wide /= 2**bits - 1
    elif kind == "Snorm":
        wide = np.maximum(wide / (2 ** (bits - 1) - 1), -1)
    if kind == "Srgb":
        wide[..., :3] = np.where(
            wide[..., :3] <= 0.04045, wide[..., :3] / 12.92, ((wide[..., :3] + 0.055) / 1.055) ** 2.4
        )
    full[..., :channels] = items if kind in SEEN else wide
    return full[..., [2, 1, 0, 3]] if name.startswith("bgra") else full


def encoded(values, name, dtype):
    """What lies in memory after a kernel wrote `values`."""
    bits, channels, kind = FORMATS[name]
    wide = (values[..., [2, 1, 0, 3]] if name.startswith("bgra") else values)[..., :channels].astype(np.float64)
    if kind == "Float":
        return wide.astype(dtype)
    if kind in SEEN:
        return np.clip(wide, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    low = -1 if kind == "Snorm" else 0
    wide = np.clip(np.nan_to_num(wide, nan=0, posinf=2, neginf=-2), low, 1)
    if kind == "Srgb":
        linear = wide[..., :3]
        wide[..., :3] = np.where(linear < 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(wide * (2 ** (bits - (kind == "Snorm")) - 1)).astype(dtype)


def texture(items, name, **more):
    return md.texture(md.asarray(items if items.shape[-1] != 1 else items[..., 0]), name, copy=True, **more)


def items_of(of, like):
    return np.asarray(of.array).reshape(like.shape)


def kernel(source, name="f"):
    return md.kernel(METAL + source, name)


READ = """kernel void f(texture2d<{0}, access::read> t [[texture(0)]], device {0}4 *out [[buffer(0)]],
                        uint2 i [[thread_position_in_grid]]) {{ out[i.y * t.get_width() + i.x] = t.read(i); }}"""
WRITE = """kernel void f(texture2d<{0}, access::write> t [[texture(0)]], device const {0}4 *in [[buffer(0)]],
                         uint2 i [[thread_position_in_grid]]) {{ t.write(in[i.y * t.get_width() + i.x], ushort2(i)); }}"""
BACK = """kernel void f(texture2d<{0}, access::read> t [[texture(0)]], texture2d<{0}, access::write> u [[texture(1)]],
                        uint2 i [[thread_position_in_grid]]) {{ u.write(t.read(i), i); }}"""


def random_items(rng, name):
    bits, channels, kind = FORMATS[name]
    shape = (*SIDES, channels)
    if kind == "Float":
        return rng.normal(size=shape).astype(f"float{bits}")
    dtype = np.dtype(f"{ITEMS[kind]}{bits}")
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.some(10)
def test_a_read_gives_what_lies_there(name):
    items = random_items(rng_for("read", name), name)
    kind, dtype = seen_of(FORMATS[name][2])
    out = md.zeros((*SIDES, 4), dtype)
    kernel(READ.format(kind))(texture(items, name), out, threads=SIDES[::-1])
    np.testing.assert_allclose(np.asarray(out), decoded(items, name), rtol=3e-6, atol=0)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.some(10)
def test_a_write_leaves_the_nearest_that_the_format_has(name):
    rng = rng_for("write", name)
    kind, dtype = seen_of(FORMATS[name][2])
    values = rng.normal(size=(*SIDES, 4)).astype(np.float32)
    if dtype is not np.float32:
        values = rng.integers(-70_000, 70_000, (*SIDES, 4)).astype(dtype)
    else:
        values[0, 0], values[0, 1] = (np.nan, np.inf, -np.inf, 0.5) if FORMATS[name][2] != "Float" else 1, 0.5
    items = random_items(rng, name)
    of = texture(items, name)
    kernel(WRITE.format(kind))(of, md.asarray(values), threads=SIDES[::-1])
    np.testing.assert_allclose(
        items_of(of, items).astype(np.float64),
        encoded(values, name, items.dtype).astype(np.float64),
        atol=1 if FORMATS[name][2] == "Srgb" else 0,
    )


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.some(10)
def test_what_is_read_and_written_back_is_the_same(name):
    items = random_items(rng_for("back", name), name)
    of = texture(np.zeros_like(items), name)
    kernel(BACK.format(seen_of(FORMATS[name][2])[0]))(texture(items, name), of, threads=SIDES[::-1])
    same = items
    if FORMATS[name][2] == "Snorm":  # the least number is -1 twice
        same = np.maximum(items, -np.iinfo(items.dtype).max)
    np.testing.assert_array_equal(items_of(of, items), same)


def test_halves_and_shorts_are_the_same_pixels_in_16_bits():
    values = rng_for("short").normal(size=(*SIDES, 4)).astype(np.float32)
    out, into = md.zeros((*SIDES, 4), "float16"), texture(np.zeros((*SIDES, 4), np.int8), "rgba8Sint")
    kernel(READ.format("half"))(texture(values, "rgba32Float"), out, threads=SIDES[::-1])
    np.testing.assert_array_equal(np.asarray(out), values.astype(np.float16))
    shorts = rng_for("short").integers(-300, 300, (*SIDES, 4)).astype(np.int16)
    kernel(WRITE.format("short"))(into, md.asarray(shorts), threads=SIDES[::-1])
    np.testing.assert_array_equal(np.asarray(into.array), np.clip(shorts, -128, 127))


#: kind: shape before the channels, the type, how `i`, the number of a pixel, names it.
KINDS = {
    "1d": ((6,), "texture1d", "i"),
    "1d_array": ((3, 6), "texture1d_array", "i % 6, i / 6"),
    "2d": ((4, 6), "texture2d", "uint2(i % 6, i / 6)"),
    "2d_array": ((3, 4, 6), "texture2d_array", "uint2(i % 6, i / 6 % 4), i / 24"),
    "3d": ((3, 4, 6), "texture3d", "ushort3(i % 6, i / 6 % 4, i / 24)"),
    "cube": ((6, 4, 4), "texturecube", "uint2(i % 4, i / 4 % 4), i / 16"),
    "cube_array": ((2, 6, 4, 4), "texturecube_array", "uint2(i % 4, i / 4 % 4), i / 16 % 6, i / 96"),
    "buffer": ((6,), "texture_buffer", "i"),
}


@pytest.mark.parametrize(("kind", "copy"), [*((kind, True) for kind in KINDS), ("buffer", False)])
def test_each_kind_is_read_and_written_by_its_coordinates(kind, copy):
    shape, name, place = KINDS[kind]
    add = kernel(
        f"""kernel void f({name}<uint, access::read> t [[texture(0)]], {name}<uint, access::write> u [[texture(1)]],
        uint i [[thread_position_in_grid]]) {{ u.write(t.read({place}) + i, {place}); }}"""
    )
    numbers = np.arange(np.prod(shape)).reshape(*shape, 1)
    for channels in (1, 2, 4):
        values = rng_for(kind).integers(0, 1 << 30, (*shape, channels)).astype(np.uint32)
        into = md.texture(md.zeros(values.shape, "uint32"), kind=kind, copy=copy)
        of = md.texture(md.asarray(values), kind=kind, copy=copy)
        add(of, into, threads=numbers.size)
        np.testing.assert_array_equal(np.asarray(of.array), values)
        np.testing.assert_array_equal(np.asarray(into.array), values + numbers)


#: kind: what a kernel asks, and what it is told.
SIZES = {
    "1d": ("t.get_width(), 0, t.get_num_mip_levels(), 0", (6, 0, 0, 0)),
    "1d_array": ("t.get_width(), 0, t.get_num_mip_levels(), t.get_array_size()", (6, 0, 0, 3)),
    "2d": ("t.get_width(), t.get_height(), t.get_num_mip_levels(), is_null_texture(t)", (6, 4, 1, 0)),
    "2d_array": ("t.get_width(0), t.get_height(0), 0, t.get_array_size()", (6, 4, 0, 3)),
    "3d": ("t.get_width(), t.get_height(), t.get_depth(), 0", (6, 4, 3, 0)),
    "cube": ("t.get_width(), t.get_height(), 0, 0", (4, 4, 0, 0)),
    "cube_array": ("t.get_width(), t.get_height(), 0, t.get_array_size()", (4, 4, 0, 2)),
    "buffer": ("t.get_width(), 0, 0, 0", (6, 0, 0, 0)),
}


@pytest.mark.parametrize("kind", SIZES)
def test_a_texture_knows_its_sizes(kind):
    (shape, name, _), (asked, told) = KINDS[kind], SIZES[kind]
    source = f"kernel void f({name}<float, access::read> t, device uint4 *out) {{ *out = uint4({asked}); }}"
    out = md.zeros((4,), "uint32")
    kernel(source)(md.texture(md.zeros(shape, "float32"), kind=kind, copy=kind != "buffer"), out, threads=1)
    assert tuple(np.asarray(out)) == told


ATOMICS = """kernel void f(texture2d<{0}, access::read_write> t [[texture(0)]], device const {0} *x, device {0} *before,
    uint i [[thread_position_in_grid]]) {{
    before[i] = t.atomic_fetch_{1}(uint2(i % 3, 0), x[i]).x;
}}"""


@pytest.mark.parametrize("kind", ["int", "uint"])
@pytest.mark.parametrize(
    ("name", "operation"),
    [("add", np.add), ("sub", np.subtract), ("and", np.bitwise_and), ("or", np.bitwise_or),
     ("xor", np.bitwise_xor), ("min", np.minimum), ("max", np.maximum)],
)  # fmt: skip
def test_atomics_of_pixels(kind, name, operation):
    rng = rng_for(name, kind)
    dtype = np.dtype(kind.replace("int", "int32"))
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 96, dtype)
    start = rng.integers(0, 1 << 30, (1, 3)).astype(dtype)
    of, before = texture(start[..., None], "r32Uint" if kind == "uint" else "r32Sint"), md.zeros((96,), dtype)
    kernel(ATOMICS.format(kind, name))(of, md.asarray(x), before, threads=96)
    expected = start.copy()
    with np.errstate(over="ignore"):
        for i, value in enumerate(x):
            expected[0, i % 3] = operation(expected[0, i % 3], value)
    np.testing.assert_array_equal(np.asarray(of.array), expected)
    assert all(start[0, k] in np.asarray(before)[k::3] for k in range(3))


def test_exchanges_of_pixels():
    source = """kernel void f(texture2d<uint, access::read_write> t, device uint *out, uint i [[thread_position_in_grid]]) {
        uint2 p(1, 0);
        uint4 expected = t.atomic_load(p);
        while (!t.atomic_compare_exchange_weak(p, &expected, expected + 3)) {}
        if (i == 0) { out[0] = t.atomic_exchange(uint2(0), 8).x; t.atomic_store(uint4(9), ushort2(2, 0)); }
    }"""
    of = texture(np.array([[[1], [2], [3]]], np.uint32), "r32Uint")
    out = md.zeros((1,), "uint32")
    kernel(source)(of, out, threads=64)
    assert np.asarray(of.array).tolist() == [[8, 2 + 3 * 64, 9]] and np.asarray(out).tolist() == [1]


def test_numbers_of_64_bits():
    source = """kernel void f(texture2d<ulong, access::read_write> u, uint i [[thread_position_in_grid]]) {
        u.atomic_max(uint2(1, 0), ulong(i) << 33);
        u.atomic_min(uint2(0), (ulong(i) << 33) + 5);
    }"""
    wide = texture(np.array([[[7, 7], [0, 0]]], np.uint32), "rg32Uint")
    kernel(source)(wide, threads=64)
    assert np.asarray(wide.array).tolist() == [[[5, 0], [0, 63 << 1]]]


def test_what_lies_outside_is_zero_and_is_not_written():
    source = """kernel void f(texture2d<float, access::read> t, texture2d<float, access::write> u, device float4 *out,
                              uint i [[thread_position_in_grid]]) {
        out[i] = t.read(uint2(i, 1)) + t.read(uint2(0, 9 + i)) + t.read(uint2(0), 3) + t.read(uint2(~0u - i, ~0u));
        u.write(float4(5), uint2(i + 3, 0)); u.write(float4(5), uint2(1, 2 + i)); u.write(float4(5), uint2(0), 1);
    }"""
    values = np.ones((2, 3, 4), np.float32)
    of, into, out = texture(values, "rgba32Float"), texture(values, "rgba32Float"), md.zeros((8, 4))
    kernel(source)(of, into, out, threads=8)
    assert np.asarray(out)[:3].all() and not np.asarray(out)[3:].any()
    np.testing.assert_array_equal(np.asarray(into.array), values)
    kernel(source)(texture(values[..., :2], "rg32Float"), into, out, threads=8)
    assert np.asarray(out).tolist() == [[1, 1, 0, 4]] * 3 + [[0, 0, 0, 4]] * 5  # what the format lacks is opaque


@pytest.mark.parametrize("kind", ["2d", "2d_array", "3d", "cube", "cube_array"])
def test_levels_are_read_and_written(kind):
    """Each pixel of each level; what lies beyond the last one, or beyond its sides, is dropped."""
    shape, name, place = KINDS[kind]
    texture = md.texture(md.zeros((*shape, 1), "float32"), kind=kind, copy=True, mip_levels="all")
    width, height = shape[-1], shape[-2]
    double = kernel(
        f"""kernel void f({name}<float, access::read> t [[texture(0)]], {name}<float, access::write> u [[texture(1)]],
        uint i [[thread_position_in_grid]]) {{
            for (uint k = 0; k <= t.get_num_mip_levels(); k++) u.write(t.read({place}, k) * 2 + float(i + 1000 * k + t.get_width(k)), {place}, k);
        }}"""
    )
    for _ in range(2):
        double(texture, texture, threads=int(np.prod(shape)))
    for level, found in enumerate(texture.arrays):
        i = np.arange(np.prod(shape)).reshape(shape)
        i = i[: max(shape[0] >> level, 1)] if kind == "3d" else i
        i = i[..., : max(height >> level, 1), : max(width >> level, 1)]
        np.testing.assert_array_equal(np.asarray(found)[..., 0], 3 * (i + 1000 * level + i.shape[-1]))


def test_arrays_of_textures_and_function_constants():
    source = """constant bool has [[function_constant(0)]]; constant bool lacks [[function_constant(1)]];
    float sum(const array_ref<texture2d<float>> all, uint2 p) {
        float s = 0;
        for (uint k = 0; k < all.size(); k++) s += all[k].read(p).x;
        return s;
    }
    kernel void f(array<texture2d<float>, 3> many [[texture(1)]], texture2d<float> a [[texture(0), function_constant(has)]],
                  texture2d<float> b [[texture(0), function_constant(lacks)]], device float *out,
                  uint2 i [[thread_position_in_grid]]) {
        out[i.x] = sum(many, i) + (has ? a.read(i).x : 0) + (lacks ? b.read(i).x : 0);
    }"""
    values = [np.full((1, 4), 10.0**k, np.float32) for k in range(4)]
    out = md.zeros((4,))
    of = [md.texture(md.asarray(one), copy=True) for one in values]
    md.kernel(METAL + source, "f", constants={0: True, 1: False})(of[1:], of[0], out, threads=(4, 1))
    assert np.asarray(out).tolist() == [1111.0] * 4
