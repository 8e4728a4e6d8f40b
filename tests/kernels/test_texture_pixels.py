"""Pixels of textures in kernels, against NumPy: each format read and written, atomics, sizes, what lies outside."""

import numpy as np
import pytest
from seeded import rng_for

import metal_dlpack as md

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
SIDES = (5, 7)  # rows, columns

#: format: (item, channels, kind)
FORMATS = {
    **{f"r{bits}{kind}": (bits, 1, kind) for bits in (8, 16) for kind in ("Unorm", "Snorm", "Uint", "Sint")},
    **{f"rg{bits}{kind}": (bits, 2, kind) for bits in (8, 16) for kind in ("Unorm", "Snorm", "Uint", "Sint")},
    **{f"rgba{bits}{kind}": (bits, 4, kind) for bits in (8, 16) for kind in ("Unorm", "Snorm", "Uint", "Sint")},
    **{f"{name}{kind}": (32, n, kind) for name, n in (("r", 1), ("rg", 2), ("rgba", 4)) for kind in ("Uint", "Sint")},
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
    array = md.asarray(items if items.shape[-1] != 1 else items[..., 0])
    return array, md.texture(array, name, copy=True, **more)


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
    kernel(READ.format(kind))(texture(items, name)[1], out, threads=SIDES[::-1])
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
    into, of = texture(items, name)
    kernel(WRITE.format(kind))(of, md.asarray(values), threads=SIDES[::-1])
    found = pixels(of, into)
    np.testing.assert_allclose(
        found.reshape(items.shape).astype(np.float64),
        encoded(values, name, items.dtype).astype(np.float64),
        atol=1 if FORMATS[name][2] == "Srgb" else 0,
    )


def pixels(of, into):
    """The texture's own bytes, by way of the array that it was made of."""
    of.copy_to(into) if hasattr(of, "copy_to") else None
    return np.asarray(into)
