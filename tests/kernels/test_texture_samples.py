"""Samples of textures in kernels against a plain reference in NumPy: filters, address modes, levels, cubes, gathers."""

import itertools

import numpy as np
import pytest
from machine import IS_MAC
from own_kernels import METAL, rng_for

import metal_dlpack as md

#: Metal's filters have eight bits of a pixel's fraction.
ATOL = 0.02 if IS_MAC else 2e-5
COUNT = 96

#: kind: the shape before the channels; the axes of a coordinate, last first; how a thread samples at `p`, `k` its slice.
KINDS = {
    "1d": ((7,), 1, "t.sample(s, p.x)"),
    "1d_array": ((3, 7), 1, "t.sample(s, p.x, k)"),
    "2d": ((5, 7), 2, "t.sample(s, p.xy)"),
    "2d_array": ((3, 5, 7), 2, "t.sample(s, p.xy, k)"),
    "3d": ((4, 5, 7), 3, "t.sample(s, p)"),
}
MODES = ("clamp_to_edge", "repeat", "mirrored_repeat", "clamp_to_zero", "clamp_to_border")
SOURCE = """{before}
kernel void f(texture{kind}<float> t, {sampler} device const packed_float3 *at, device float4 *out,
              uint i [[thread_position_in_grid]]) {{
    {constexpr} float3 p = at[i]; uint k = i % 4; out[i] = {call};
}}"""


def sampled(kind, values, at, call, sampler, before="", **more):
    """What a kernel samples: a constexpr sampler's words, or a Sampler."""
    is_given = not isinstance(sampler, str)
    source = SOURCE.format(
        before=before, kind=kind, call=call, sampler="sampler s," if is_given else "",
        constexpr="" if is_given else f"constexpr sampler s({sampler});",
    )  # fmt: skip
    out = md.zeros((len(at), 4))
    texture = md.texture(md.asarray(values), kind=kind, copy=True, **more)
    md.kernel(METAL + source, "f")(texture, *([sampler] if is_given else []), md.asarray(at), out, threads=len(at))
    return np.asarray(out)


# ---- the reference ----


def wrapped(at, side, mode):
    """A pixel's place along one axis; None: the border."""
    if mode == "repeat":
        return at % side
    if mode == "mirrored_repeat":
        at %= 2 * side
        return min(at, 2 * side - 1 - at)
    if mode == "clamp_to_edge":
        return min(max(at, 0), side - 1)
    return at if 0 <= at < side else None


def pixel(image, place, modes, border):
    """place: x, y, z; image: (z, y, x, channels)."""
    found = [wrapped(at, side, mode) for at, side, mode in zip(place, image.shape[-2::-1], modes, strict=True)]
    return border if None in found else image[tuple(found[::-1])].astype(np.float64)


def corners(image, u):
    """What a linear filter takes: (place, weight)."""
    low = [int(np.floor(x - 0.5)) for x in u]
    part = [x - 0.5 - begin for x, begin in zip(u, low, strict=True)]
    for up in itertools.product((0, 1), repeat=len(u)):
        weight = np.prod([f if one else 1 - f for one, f in zip(up, part, strict=True)])
        yield tuple(begin + one for begin, one in zip(low, up, strict=True)), weight


def reference(image, p, is_linear, modes, border=(0, 0, 0, 0), is_pixel=False):
    u = [float(x) * (1 if is_pixel else side) for x, side in zip(p, image.shape[-2::-1], strict=False)]
    if not is_linear:
        return pixel(image, [int(np.floor(x)) for x in u], modes, np.array(border))
    return sum(weight * pixel(image, place, modes, np.array(border)) for place, weight in corners(image, u))


def slices(kind, values):
    return values if kind.endswith("_array") else values[None]


def far_from_edges(at, shape, axes):
    """Nearest pixels are told apart only where no rounding can decide."""
    sides = np.array(shape[::-1][:axes])
    u = at[:, :axes] * sides
    near = np.abs(u - np.round(u)) < 1e-2
    at[:, :axes] += np.where(near, 0.03 / sides, 0).astype(np.float32)
    return at


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("by", ["nearest", "linear"])
@pytest.mark.some(10)
def test_a_sample_is_the_reference(kind, mode, by):
    shape, axes, call = KINDS[kind]
    rng = rng_for(kind, mode, by)
    values = rng.random((*shape, 4)).astype(np.float32)
    at = far_from_edges(rng.uniform(-2.5, 3.5, (COUNT, 3)).astype(np.float32), shape, axes)
    border = (1, 1, 1, 1) if mode == "clamp_to_border" else (0, 0, 0, 0)
    found = sampled(kind, values, at, call, md.sampler(by, address=mode, border="opaque_white"))
    every = slices(kind, values)
    for i, p in enumerate(at):
        image = every[min(i % 4, len(every) - 1)]
        expected = reference(image, p[:axes], by == "linear", [mode] * axes, border)
        np.testing.assert_allclose(found[i], expected, atol=ATOL, err_msg=str(p))


@pytest.mark.parametrize("mode", ["clamp_to_edge", "clamp_to_zero"])
@pytest.mark.parametrize("by", ["nearest", "linear"])
def test_coordinates_in_pixels_and_an_address_for_each_axis(mode, by):
    rng = rng_for("pixels", mode, by)
    values = rng.random((5, 7, 4)).astype(np.float32)
    at = rng.uniform(-3, 9, (COUNT, 3)).astype(np.float32)
    found = sampled("2d", values, at, "t.sample(s, p.xy)", f"coord::pixel, filter::{by}, t_address::{mode}")
    for i, p in enumerate(at):
        expected = reference(values, p[:2], by == "linear", ["clamp_to_edge", mode], is_pixel=True)
        np.testing.assert_allclose(found[i], expected, atol=ATOL)


@pytest.mark.parametrize("by", ["nearest", "linear"])
def test_a_sampler_that_is_given_does_as_one_in_the_source(by):
    rng = rng_for("given", by)
    values = rng.random((5, 7, 4)).astype(np.float32)
    at = far_from_edges(rng.uniform(-2, 3, (COUNT, 3)).astype(np.float32), (5, 7), 2)
    for mode in ("clamp_to_edge", "repeat", "mirrored_repeat"):
        given = sampled("2d", values, at, "t.sample(s, p.xy)", md.sampler(by, address=mode))
        written = sampled("2d", values, at, "t.sample(s, p.xy)", f"filter::{by}, address::{mode}")
        np.testing.assert_allclose(given, written, atol=1e-6)


def test_what_a_format_lacks_is_opaque_at_the_border_too():
    values = np.full((2, 2), 0.5, np.float32)
    at = np.array([[0.5, 0.5, 0], [3, 3, 0]], np.float32)
    found = sampled("2d", values, at, "t.sample(s, p.xy)", "address::clamp_to_zero")
    assert found.tolist() == [[0.5, 0, 0, 1], [0, 0, 0, 1]]


def test_offsets_move_by_whole_pixels():
    rng = rng_for("offset")
    values = rng.random((5, 7, 4)).astype(np.float32)
    at = rng.uniform(0, 1, (COUNT, 3)).astype(np.float32)
    plain = sampled("2d", values, at, "t.sample(s, p.xy, int2(-3, 2))", "filter::linear, address::repeat")
    for i, p in enumerate(at):
        moved = (p[0] - 3 / 7, p[1] + 2 / 5)
        np.testing.assert_allclose(plain[i], reference(values, moved, True, ["repeat"] * 2), atol=ATOL)


def test_least_and_greatest_of_the_pixels_around():
    rng = rng_for("reduction")
    values = rng.random((5, 7, 4)).astype(np.float32)
    at = rng.uniform(0.1, 0.9, (COUNT, 3)).astype(np.float32)
    for word, by in (("minimum", np.min), ("maximum", np.max)):
        found = sampled("2d", values, at, "t.sample(s, p.xy)", f"filter::linear, reduction::{word}")
        for i, p in enumerate(at):
            around = [pixel(values, q, ["clamp_to_edge"] * 2, None) for q, _ in corners(values, p[:2] * (7, 5))]
            np.testing.assert_allclose(found[i], by(around, axis=0), atol=1e-6)


# ---- gathers and comparisons ----

GATHERED = (1, 3, 2, 0)  #: of corners(): (x0, y1), (x1, y1), (x1, y0), (x0, y0)


@pytest.mark.parametrize("component", range(4))
def test_a_gather_has_the_four_pixels_in_its_order(component):
    rng = rng_for("gather", str(component))
    values = rng.random((5, 7, 4)).astype(np.float32)
    at = rng.uniform(-1, 2, (COUNT, 3)).astype(np.float32)
    call = f"t.gather(s, p.xy, int2(0), component::{'xyzw'[component]})"
    found = sampled("2d", values, at, call, "address::repeat")
    for i, p in enumerate(at):
        around = [pixel(values, q, ["repeat"] * 2, None)[component] for q, _ in corners(values, p[:2] * (7, 5))]
        np.testing.assert_allclose(found[i], [around[k] for k in GATHERED], atol=1e-6)


COMPARISONS = {
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "equal": np.equal, "not_equal": np.not_equal, "never": lambda a, b: False, "always": lambda a, b: True,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
def test_depths_are_compared_before_they_are_filtered(name):
    rng = rng_for("compare", name)
    values = rng.integers(0, 4, (5, 7)).astype(np.float32) / 4
    at = rng.uniform(0, 1, (COUNT, 3)).astype(np.float32)
    at[:, 2] = rng.integers(0, 4, COUNT) / 4
    source = f"""kernel void f(depth2d<float> t, device const packed_float3 *at, device float4 *out, device float4 *all,
                               uint i [[thread_position_in_grid]]) {{
        constexpr sampler s(compare_func::{name}, filter::linear);
        constexpr sampler n(compare_func::{name});
        float3 p = at[i];
        out[i] = float4(t.sample_compare(s, p.xy, p.z), t.sample_compare(n, p.xy, p.z, level(0)), t.sample(s, p.xy), t.read(uint2(1, 2)));
        all[i] = t.gather_compare(s, p.xy, p.z);
    }}"""
    out, every = md.zeros((COUNT, 4)), md.zeros((COUNT, 4))
    texture = md.texture(md.asarray(values), "depth32Float", copy=True)
    md.kernel(METAL + source, "f")(texture, md.asarray(at), out, every, threads=COUNT)
    edge, compare = ["clamp_to_edge"] * 2, COMPARISONS[name]
    for i, p in enumerate(at):
        taken = [
            (float(compare(p[2], pixel(values[..., None], q, edge, None)[0])), w)
            for q, w in corners(values[..., None], p[:2] * (7, 5))
        ]
        near = compare(p[2], reference(values[..., None], p[:2], False, edge)[0])
        depth = reference(values[..., None], p[:2], True, edge)[0]
        np.testing.assert_allclose(
            np.asarray(out)[i], [sum(v * w for v, w in taken), near, depth, values[2, 1]], atol=ATOL
        )
        assert np.asarray(every)[i].tolist() == [taken[k][0] for k in GATHERED]


# ---- cubes ----


def face_and_place(direction):
    """SPEC Metal: the face of the greatest coordinate, and where in it."""
    x, y, z = direction
    axis = int(np.argmax(np.abs(direction)))
    far = abs(direction[axis])
    right, down = [(-z, -y) if x > 0 else (z, -y), (x, z) if y > 0 else (x, -z), (x, -y) if z > 0 else (-x, -y)][axis]
    return 2 * axis + (direction[axis] < 0), (right / far + 1) / 2, (down / far + 1) / 2


def test_a_cube_is_sampled_by_a_direction():
    rng = rng_for("cube")
    values = rng.random((6, 4, 4, 4)).astype(np.float32)
    at = rng.normal(size=(400, 3)).astype(np.float32)
    near = sampled("cube", values, at, "t.sample(s, p)", md.sampler())
    smooth = sampled("cube", values, at, "t.sample(s, p)", "filter::linear")
    for i, p in enumerate(at):
        face, u, v = face_and_place(p.astype(np.float64))
        if all(abs(x * 4 - round(x * 4)) > 1e-3 for x in (u, v)):
            np.testing.assert_array_equal(near[i], values[face, int(v * 4), int(u * 4)])
        if all(0.5 < x * 4 < 3.5 for x in (u, v)):
            np.testing.assert_allclose(smooth[i], reference(values[face], (u, v), True, ["repeat"] * 2), atol=ATOL)


def test_a_cube_has_no_edges():
    """Pixels that are a smooth function of their direction are so across the edges, too; and on an edge both faces agree."""
    side = 64
    directions = np.zeros((6, side, side, 3))
    c = (2 * np.arange(side) + 1) / side - 1
    right, down = np.meshgrid(c, c)
    one = np.ones_like(right)
    for face, place in enumerate(
        [(one, -down, -right), (-one, -down, right), (right, one, down), (right, -one, -down), (right, -down, one),
         (-right, -down, -one)]
    ):  # fmt: skip
        directions[face] = np.stack(place, axis=-1)
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    values = np.concatenate([directions, np.ones((6, side, side, 1))], axis=-1).astype(np.float32)
    rng = rng_for("edges")
    at = rng.choice([-1.0, 1.0], (300, 3))
    at[np.arange(300), rng.integers(0, 3, 300)] = rng.uniform(-1, 1, 300)  # on an edge
    at[:20] = rng.choice([-1.0, 1.0], (20, 3))  # in a corner
    found = sampled("cube", values, at.astype(np.float32), "t.sample(s, p)", "filter::linear")
    expected = at / np.linalg.norm(at, axis=-1, keepdims=True)
    np.testing.assert_allclose(found[:, :3], expected, atol=1.5 / side)
    np.testing.assert_allclose(found[:, 3], 1, atol=1e-5)


def test_in_a_corner_of_a_cube_three_faces_share():
    values = np.repeat(10.0 ** np.arange(6), 16).reshape(6, 4, 4).astype(np.float32)
    at = np.array([[1, 1, 1], [-1, 1, -1]], np.float32)
    found = sampled("cube", values, at, "t.sample(s, p)", "filter::linear")[:, 0]
    np.testing.assert_allclose(found, [(1 + 100 + 10_000) / 3, (10 + 100 + 100_000) / 3], rtol=1e-5)


def test_slices_of_arrays_of_cubes():
    values = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 6, 2, 2)
    at = np.array([[3, 1, 1], [-1, -3, 1]] * 2, np.float32)
    found = sampled("cube_array", values, at, "t.sample(s, p, i / 2)", md.sampler())[:, 0]
    faces = [face_and_place(p) for p in at]
    assert found.tolist() == [values[i // 2, f, int(v * 2), int(u * 2)] for i, (f, u, v) in enumerate(faces)]


# ---- levels ----

#: kind: the shape before the channels; the axes of a coordinate; how a thread samples at `p`, `k` its slice; its gradient.
LEVELED = {
    "2d": ((5, 11), 2, "t.sample(s, p.xy, {})", "gradient2d(g.xy, h.xy)"),
    "2d_array": ((3, 12, 7), 2, "t.sample(s, p.xy, k, {})", "gradient2d(g.xy, h.xy)"),
    "3d": ((4, 5, 9), 3, "t.sample(s, p, {})", "gradient3d(g, h)"),
    "cube": ((6, 9, 9), 3, "t.sample(s, p, {})", None),
    "cube_array": ((2, 6, 8, 8), 3, "t.sample(s, p, k, {})", None),
}
SEVERAL = """kernel void f(texture{kind}<float> t, {sampler} device const packed_float3 *in, device float4 *out,
                        uint i [[thread_position_in_grid]]) {{
    {constexpr} float3 p = in[4 * i], g = in[4 * i + 1], h = in[4 * i + 2], l = in[4 * i + 3];
    uint k = i % 3; (void)g; (void)h; (void)k; out[i] = {call};
}}"""


def at_level(lod, sampler, count):
    """(level, weight), and is it magnified?"""
    lod, is_magnified = min(max(lod, 0), count - 1), lod <= 0
    if sampler["mip_filter"] != "linear":
        return [(0 if sampler["mip_filter"] == "none" else int(lod + 0.5), 1)], is_magnified
    return [(int(lod), 1 - lod % 1), (min(int(lod) + 1, count - 1), lod % 1)], is_magnified


def on_level(values, kind, i, p, axes, by, modes):
    """A sample of one level, as one of a texture that has no other."""
    if not kind.startswith("cube"):
        images = slices(kind, values)
        return reference(images[min(i % 3, len(images) - 1)], p[:axes], by == "linear", modes)
    face, u, v = face_and_place(p.astype(np.float64))
    cubes = values if kind == "cube_array" else values[None]
    side = values.shape[-2]
    return cubes[min(i % 3, len(cubes) - 1), face, min(int(v * side), side - 1), min(int(u * side), side - 1)]


def test_no_level_is_calculated_in_a_kernel():
    """What that gives is undefined outside of fragment functions.  SPEC Metal Shading Language Specification 3.2, 6.12"""
    for name in ("calculate_clamped_lod", "calculate_unclamped_lod"):
        source = f"kernel void f(texture2d<float> t, sampler s, device float *x) {{ x[0] = t.{name}(s, float2(0)); }}"
        with pytest.raises(md.CompileError, match="only a fragment function may ask for it; choose a level yourself"):
            md.kernel(METAL + source, "f")


@pytest.mark.parametrize("kind", LEVELED)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.some(8)
def test_samples_of_levels_are_the_reference(kind, seed):
    shape, axes, call, gradient = LEVELED[kind]
    rng = rng_for("leveled", kind, str(seed))
    count = int(rng.integers(1, max(shape[-2:]).bit_length() + 1))
    first = 0 if kind == "3d" else len(shape) - 2
    shapes = [(*shape[:first], *(max(side >> level, 1) for side in shape[first:]), 4) for level in range(count)]
    levels = [rng.random(one).astype(np.float32) for one in shapes]
    filters, mode = ["nearest", "linear"], str(rng.choice(MODES[:3]))
    least, most = [(0.0, 99.0), np.sort(np.round(rng.uniform(0, 4, 2), 1)) + 0.02][seed % 2]
    sampler = {
        "min_filter": "nearest" if gradient is None else str(rng.choice(filters)),
        "mag_filter": "nearest" if gradient is None else str(rng.choice(filters)),
        "mip_filter": str(rng.choice(["none", "nearest", "linear"])),
        "address": mode,
    }
    given = rng.uniform(-1, 2, (COUNT, 4, 3)).astype(np.float32)
    given[:, 3] = (np.round(rng.uniform(-2, 5, (COUNT, 3)), 1) + 0.03).astype(np.float32)
    given[:, 1:3] *= 10 ** rng.uniform(-2, 0, (COUNT, 2, 1)).astype(np.float32)
    options = {
        "level(l.x)": given[:, 3, 0],
        "bias(l.x), min_lod_clamp(l.y)": given[:, 3, :2].max(axis=1),
        "min_lod_clamp(l.y)": np.maximum(0, given[:, 3, 1]),
    }
    if gradient is not None:
        sides = np.array((shape[-1], shape[-2], shape[0])[:axes])
        options[gradient] = np.log2(np.linalg.norm(given[:, 1:3, :axes] * sides, axis=-1).max(axis=1))
    words = str(rng.choice(list(options)))
    lods = np.clip(options[words].astype(float), least, most)
    is_given = seed % 3 != 0
    constexpr = ", ".join(f"{name}::{value}" for name, value in sampler.items()) + f", lod_clamp({least}f, {most}f)"
    source = SEVERAL.format(
        kind=kind, call=call.format(words), sampler="sampler s," if is_given else "",
        constexpr="" if is_given else f"constexpr sampler s({constexpr});",
    )  # fmt: skip
    samplers = [md.sampler(**sampler, lod=(float(least), float(most)))] if is_given else []
    texture, out = md.texture([md.asarray(one) for one in levels], kind=kind, copy=True), md.zeros((COUNT, 4))
    md.kernel(METAL + source, "f")(texture, *samplers, md.asarray(given.reshape(-1, 3)), out, threads=COUNT)
    for i, lod in enumerate(lods):
        around, is_magnified = at_level(lod, sampler, count)
        by = sampler["mag_filter" if is_magnified else "min_filter"]
        expected = sum(w * on_level(levels[k], kind, i, given[i, 0], axes, by, [mode] * axes) for k, w in around if w)
        np.testing.assert_allclose(np.asarray(out)[i], expected, atol=max(ATOL, 5e-4), err_msg=str((i, lod, sampler)))
