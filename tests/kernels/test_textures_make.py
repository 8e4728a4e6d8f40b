"""Textures and samplers as Python makes them: which pixels lie where, what is refused, what is let go."""

import ctypes
import gc
import itertools

import numpy as np
import pytest
from held_work import held
from machine import IS_MAC
from objc_messages import foreign_buffer, send

import metal_dlpack as md
import softmetal

#: Kind: a shape without channels.
KINDS = {
    "1d": (7,),
    "1d_array": (3, 7),
    "2d": (5, 7),
    "2d_array": (3, 5, 7),
    "3d": (4, 5, 7),
    "cube": (6, 5, 5),
    "cube_array": (2, 6, 3, 3),
    "buffer": (7,),
}
DTYPES = ["uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32"]
CHANNELS = {None: "r", 1: "r", 2: "rg", 4: "rgba"}


def pixels(shape, dtype, seed=0):
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


# ---- copies ----


@pytest.mark.parametrize("kind", KINDS)
def test_the_pixels_of_a_copy_come_back(kind):
    for dtype, channels in itertools.product(DTYPES, CHANNELS):
        x = pixels(KINDS[kind] + (() if channels is None else (channels,)), dtype)
        texture = md.texture(md.asarray(x, copy=True), kind=kind, copy=True)
        assert (texture.kind, texture.shape, texture.dtype) == (kind, x.shape, md.dtype(dtype))
        assert texture.format.startswith(CHANNELS[channels]) and texture.nbytes == x.nbytes
        assert not texture.is_linear and np.array_equal(np.asarray(texture.array), x)


@pytest.mark.parametrize("storage", ["shared", "managed", "private"])
def test_a_view_in_any_order_is_copied_as_numpy_sees_it(storage):
    x = pixels((9, 8, 4), "float32")
    a = md.asarray(x, copy=True).copy(storage=storage)
    for view in (np.s_[:], np.s_[1:, ::2], np.s_[::-1], np.s_[:, 1:, :2], np.s_[2:5, 3:4, 1], np.s_[:, :, 3]):
        texture = md.texture(a[view], copy=True)
        assert texture.array.buffer.storage == storage
        assert np.array_equal(texture.array.tolist(), x[view].tolist())
    assert np.array_equal(md.texture(a[..., 0].T, copy=True).array.tolist(), x[..., 0].T.tolist())


def test_a_copy_is_apart_from_its_array():
    a = md.zeros((4, 4))
    texture = md.texture(a, copy=True)
    a.fill(1)
    assert not np.asarray(texture.array).any()
    assert texture.array is not texture.array


@pytest.mark.needs_softmetal
def test_a_copy_waits_for_its_arrays_and_they_for_it(slow):
    x = [md.zeros((4, 4)), md.zeros((2, 2))]
    with held(md.current_stream()):
        for value, one in enumerate(x):
            one.fill(value + 1, stream=md.current_stream())
        given, made = md.texture(x, copy=True), md.texture(x[0], copy=True, mip_levels=3)
        back = given.arrays + made.arrays
        del given, made
    for one in x:
        one.fill(9)
    assert [np.unique(np.asarray(one)).tolist() for one in back] == [[1], [2], [1], [1], [1]]


# ---- levels ----

LEVELED = [kind for kind in KINDS if kind not in {"1d", "1d_array", "buffer"}]


def level_shapes(shape, kind):
    """All, before the channels."""
    first = 0 if kind == "3d" else len(shape) - 2
    most = max(shape[first:]).bit_length()
    return [shape[:first] + tuple(max(side >> level, 1) for side in shape[first:]) for level in range(most)]


@pytest.mark.parametrize("kind", LEVELED)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.some(8)
def test_the_levels_of_a_list_come_back(kind, dtype):
    rng = np.random.default_rng(len(kind))
    for channels in CHANNELS:
        all_shapes = level_shapes(KINDS[kind], kind)
        shapes = all_shapes[: rng.integers(1, len(all_shapes) + 1)]
        last = () if channels is None else (channels,)
        x = [pixels(shape + last, dtype, seed) for seed, shape in enumerate(shapes)]
        given = [md.asarray(np.repeat(one, 2, axis=-1), copy=True)[..., ::2] for one in x]
        texture = md.texture(given if rng.integers(2) else tuple(given), kind=kind, copy=True)
        assert texture.mip_levels == len(x) and texture.shape == x[0].shape
        assert texture.nbytes == sum(one.nbytes for one in x)
        assert send(texture.handle, "mipmapLevelCount", result=ctypes.c_ulong) == len(x)
        for one, back in zip(x, texture.arrays, strict=True):
            assert back.shape == one.shape and np.array_equal(np.asarray(back), one)
        assert np.array_equal(np.asarray(texture.array), x[0])


#: format: the items of a pixel, how many, and by how much they may differ.
GENERATED = {
    "rgba32Float": ("float32", 4, {"rtol": 1e-5}),
    "rg16Float": ("float16", 2, {"rtol": 1e-3}),
    "r8Unorm": ("uint8", 1, {"atol": 1}),
    "bgra8Unorm": ("uint8", 4, {"atol": 1}),
    "rg8Snorm": ("int8", 2, {"atol": 1}),
    "rgba16Unorm": ("uint16", 4, {"atol": 1}),
    "rgba8Unorm_srgb": ("uint8", 4, {"atol": 1}),
}


def light_of(x):
    """What sRGB's items mean; the fourth is no colour."""
    c = x[..., :3] / 255
    c = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return np.concatenate([255 * c, x[..., 3:]], axis=-1)


def srgb_of(light):
    c = light[..., :3] / 255
    c = np.where(c < 0.0031308, 12.92 * c, 1.055 * c ** (1 / 2.4) - 0.055)
    return np.concatenate([255 * c, light[..., 3:]], axis=-1)


def means(x, axis):
    """Halves of one axis, each item the mean of what it covers of it."""
    before, side = x.shape[axis], max(x.shape[axis] // 2, 1)
    edges = np.arange(side + 1) * before / side
    at = np.arange(before)
    part = np.clip(np.minimum(edges[1:, None], at + 1) - np.maximum(edges[:-1, None], at), 0, None) * side / before
    return np.moveaxis(np.tensordot(part, x, (1, axis)), 0, axis)


@pytest.mark.parametrize("kind", LEVELED)
@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.some(10)
def test_each_level_that_metal_makes_is_the_mean_of_the_one_before(kind, name):
    """Apple says nothing of the filter; here it is the mean of areas, also where a side is odd."""
    dtype, channels, near = GENERATED[name]
    to_light, back = (light_of, srgb_of) if name.endswith("srgb") else (np.asarray, np.asarray)
    rng = np.random.default_rng(len(kind + name))
    for sides in [[8, 8], [4, 16]] if IS_MAC else rng.integers(1, 20, (3, 2)).tolist():
        shape = KINDS[kind][:-2] + ((sides[0], sides[0]) if "cube" in kind else tuple(sides))
        x = rng.integers(0, 100, (*shape, channels)).astype(dtype)
        count = int(rng.integers(1, len(level_shapes(shape, kind)) + 1))
        texture = md.texture(md.asarray(x), name, kind=kind, copy=True, mip_levels=count)
        levels = [np.asarray(one) for one in texture.arrays]
        assert len(levels) == count == texture.mip_levels and np.array_equal(levels[0], x)
        for before, after in itertools.pairwise(levels):
            mean = to_light(before.astype(float))
            for axis in range(0 if kind == "3d" else len(shape) - 2, len(shape)):
                mean = means(mean, axis)
            np.testing.assert_allclose(after.astype(float), back(mean), **near)


def test_all_levels_end_with_one_pixel():
    texture = md.texture(md.zeros((5, 9, 4), "uint8"), "rgba8Unorm", copy=True, mip_levels="all")
    assert [one.shape for one in texture.arrays] == [(5, 9, 4), (2, 4, 4), (1, 2, 4), (1, 1, 4)]
    assert repr(texture) == "<metal_dlpack.Texture 2d rgba8Unorm of shape (5, 9, 4), 4 levels, on metal:0>"
    a = md.zeros((4, 8))
    assert all(md.texture(given, mip_levels=1).arrays == (a,) for given in (a, [a], (a,)))


# ---- an Array's own bytes ----


def is_linear(a, channels):
    """The rule of the documents, of an Array of 2 or 3 axes of several pixels."""
    itemsize = a.dtype.itemsize
    strides = [stride * itemsize for stride in a.strides]
    pixel = itemsize * channels
    is_whole = (a.ndim == 2 or channels == 1 or strides[2] == itemsize) and strides[1] == pixel
    return is_whole and strides[0] >= pixel * a.shape[1] and strides[0] % 16 == 0 and a.byte_offset % 16 == 0


def test_every_slice_is_linear_or_says_why_not():
    x = pixels((6, 16, 4), "uint8")
    a = md.asarray(x, copy=True)
    begins, ends, steps = (0, 1, 4), (9, 16), (1, 2)
    seen = set()
    for rows, begin, end, step, channels in itertools.product(
        (1, 2, -1), begins, ends, steps, (np.s_[:], np.s_[:2], np.s_[::2], 3)
    ):
        view = a[::rows, begin:end:step, channels]
        expected = is_linear(view, 1 if view.ndim == 2 else view.shape[2])
        try:
            texture = md.texture(view)
        except md.CopyRequiredError as error:
            assert not expected and "copy=True" in str(error)
        else:
            assert expected and texture.is_linear and texture.array is view
        seen.add(expected)
    assert seen == {True, False}


@pytest.mark.parametrize("storage", ["shared", "managed", "private"])
def test_a_linear_texture_has_its_arrays_storage(storage):
    a = md.zeros((4, 8, 4), "uint8", storage=storage)
    texture = md.texture(a, "rgba8Unorm_srgb", label="image")
    assert texture.is_linear and texture.label == "image" and texture.device == a.device
    assert (texture.width, texture.height, texture.depth, texture.nbytes) == (8, 4, 1, 128)
    assert repr(texture) == "<metal_dlpack.Texture 2d rgba8Unorm_srgb of shape (4, 8, 4), linear on metal:0>"
    assert texture.handle != 0 and texture.gpu_resource_id != 0 and md.texture(a).label is None


def test_memory_of_numpys_is_linear_where_it_lies_right():
    page = np.zeros(1 << 14, "float32")
    begin = -page.ctypes.data % 4096 // 4
    x = page[begin : begin + 64].reshape(8, 8)
    texture = md.texture(md.asarray(x, copy=False))
    assert texture.is_linear and not texture.readonly


def test_a_read_only_array_is_a_read_only_texture():
    assert md.texture(md.zeros((4, 8)).as_readonly()).readonly
    assert not md.texture(md.zeros((4, 8)).as_readonly(), copy=True).readonly


def test_rows_that_a_frame_has_are_linear():
    """As those of an IOSurface: bytes between the rows, and 0 to 255 as numbers from 0 to 1."""
    buffer = md.Buffer(5 * 64)
    frame = buffer.array(md.StridedLayout((5, 12, 4), (64, 4, 1), 1), "uint8")
    texture = md.texture(frame, "bgra8Unorm")
    assert texture.is_linear and texture.array is frame and (texture.width, texture.height) == (12, 5)


def test_a_buffer_of_mlx_has_textures_with_its_options():
    """MLX's buffers are untracked, and a texture's options are those of its buffer."""
    with foreign_buffer(4096, 1 << 8) as handle:  # MTLResourceHazardTrackingModeUntracked
        array = md.Buffer.from_handle(handle).array((32, 32), "float32")
        texture = md.texture(array)
        assert texture.is_linear and send(texture.handle, "resourceOptions", result=ctypes.c_ulong) == 1 << 8
        del array, texture


def test_atomics_are_asked_for_where_every_gpu_has_them():
    def usage(dtype, channels, **how):
        texture = md.texture(md.zeros((4, 4, channels), dtype=dtype), **how)
        return send(texture.handle, "usage", result=ctypes.c_ulong)

    assert usage("uint32", 1) == usage("int32", 1, copy=True) == 1 | 2 | 32
    assert usage("uint32", 2) == usage("float32", 1) == 1 | 2


def test_a_line_of_a_buffer_is_linear():
    a = md.zeros(100, "float32")
    assert md.texture(a[4:], kind="buffer").is_linear
    with pytest.raises(md.CopyRequiredError, match="begins at byte 4"):
        md.texture(a[1:], kind="buffer")


# ---- what is refused ----


def levels_of(first, *shapes, dtype="float32", **how):
    return md.texture([md.zeros(first, dtype), *map(md.zeros, shapes)], copy=True, **how)


REFUSED = [
    (lambda: md.texture(np.zeros((4, 4))), TypeError, r"give md\.asarray\(x\)"),
    (
        lambda: md.texture(md.zeros((4, 5))),
        md.CopyRequiredError,
        r"from row to row are 20 bytes.*multiple of 16.*8 pixels",
    ),
    (lambda: md.texture(md.zeros((4, 4, 3))), ValueError, r"3 channels.*b\[\.\.\., :3\] = a"),
    (lambda: md.texture(md.zeros((4, 4, 5))), ValueError, "5 channels, and a pixel has 1, 2 or 4"),
    (lambda: md.texture(md.zeros((4, 4), "float64")), TypeError, "no pixel format has items of float64"),
    (lambda: md.texture(md.zeros((4, 4), "bool")), TypeError, "no pixel format has items of bool"),
    (
        lambda: md.texture(md.zeros((4, 4)), "rgba8Unorm"),
        TypeError,
        "4 times uint8.*1 times float32.*r32Float, depth32Float",
    ),
    (lambda: md.texture(md.zeros((4, 4)), "red"), ValueError, "there is no format 'red'.*r32Float"),
    (lambda: md.texture(md.zeros((4, 4)), 3), TypeError, "format must be a str"),
    (lambda: md.texture(md.zeros((4, 4)), "depth32Float"), md.CopyRequiredError, "texture of depths"),
    (lambda: md.texture(md.zeros((4, 4)), kind="4d"), ValueError, "there is no kind '4d'"),
    (lambda: md.texture(md.zeros(4)), ValueError, r"has 1 axes.*\(height, width\)"),
    (lambda: md.texture(md.zeros((2, 4, 4)), kind="3d"), md.CopyRequiredError, "only textures of kind '2d'"),
    (lambda: md.texture(md.zeros((5, 4, 4)), kind="cube", copy=True), ValueError, "6 faces"),
    (lambda: md.texture(md.zeros((6, 4, 3)), kind="cube", copy=True), ValueError, "as high as wide"),
    (lambda: md.texture(md.zeros((0, 4)), copy=True), ValueError, "the height is 0.*give an array that has pixels"),
    (lambda: md.texture(md.zeros((1, 16385)), copy=True), ValueError, "1 to 16384"),
    (lambda: md.texture(md.zeros((2049, 1, 1)), kind="3d", copy=True), ValueError, "depth is 2049"),
    (lambda: md.texture(md.zeros((4, 4)), copy=1), TypeError, "copy"),
    (lambda: md.texture([]), ValueError, "the list has no Array"),
    (lambda: md.texture([md.zeros((4, 4)), 3], copy=True), TypeError, r"each level, not int.*asarray"),
    (lambda: md.texture([md.zeros((4, 4)), md.zeros((2, 2))]), md.CopyRequiredError, "has one level; give copy=True"),
    (lambda: md.texture(md.zeros((4, 4)), mip_levels=2), md.CopyRequiredError, "has one level; give copy=True"),
    (lambda: levels_of((5, 7), (3, 4)), ValueError, r"shape \(3, 4\), and behind level 0 it is \(2, 3\)"),
    (lambda: levels_of((5, 7, 1), (2, 3)), ValueError, r"level 1 has the shape \(2, 3\).* it is \(2, 3, 1\)"),
    (lambda: levels_of((2, 4, 4), (1, 2, 2), kind="2d_array"), ValueError, r"it is \(2, 2, 2\)"),
    (lambda: levels_of((2, 2), (1, 1), (1, 1)), ValueError, "3 levels are asked for, 3 Arrays.*at most 2 levels"),
    (lambda: levels_of((4,), (2,), kind="1d"), ValueError, "at most 1"),
    (lambda: levels_of((4, 4), (2, 2), mip_levels=3), ValueError, "3 levels are asked for, 2 Arrays are given"),
    (lambda: levels_of((4, 4), (2, 2), dtype="int32"), TypeError, "level 1 has items of float32.*level 0 of int32"),
    (lambda: levels_of((4, 4), mip_levels=0), ValueError, "0 levels are asked for"),
    (lambda: levels_of((4, 4), mip_levels="most"), TypeError, "mip_levels must be an int or 'all'"),
    (lambda: md.texture(md.zeros((4, 4), "uint32"), mip_levels=2, copy=True), ValueError, "not of r32Uint"),
    (lambda: md.Texture(), TypeError, r"call texture\(array\)"),
    (lambda: md.Sampler(), TypeError, r"call sampler\(\)"),
    (lambda: md.sampler("cubic"), ValueError, "nearest, linear, not 'cubic'"),
    (lambda: md.sampler(address=()), ValueError, "address"),
    (lambda: md.sampler(address=("repeat", "wrap")), ValueError, "mirrored_repeat"),
    (lambda: md.sampler(normalized=False, address="repeat"), ValueError, "normalized=False"),
    (lambda: md.sampler(normalized=False, mip_filter="linear"), ValueError, "normalized=False"),
    (lambda: md.sampler(lod=(2, 1)), ValueError, "lod"),
    (lambda: md.sampler(lod=2), TypeError, "lod"),
    (lambda: md.sampler(lod=(0, "all")), TypeError, "sampler: a level of lod must be a number, not str"),
    (lambda: md.sampler(lod=(10**400, None)), ValueError, "sampler: lod is the least and the most level"),
    (lambda: md.sampler(max_anisotropy=0), ValueError, "1 to 16"),
]


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_what_is_refused_says_the_way_out(at):
    call, error, words = REFUSED[at]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.needs_softmetal
@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("texture@1", lambda: md.texture(md.zeros((4, 4)))),
        ("texture@1", lambda: md.texture(md.zeros((4, 4)), copy=True)),
        ("commandBuffer@2", lambda: levels_of((4, 4), (2, 2))),
        ("commandBuffer@3", lambda: levels_of((4, 4), (2, 2)).arrays[0]),
        ("sampler@1", md.sampler),
        ("commandBuffer@1", lambda: md.texture(md.zeros((4, 4)), copy=True)),
        ("encoder@1", lambda: md.texture(md.zeros((4, 4)), copy=True).array),
    ],
)
def test_where_metal_gives_nothing_it_is_a_metal_error(rule, call):
    md.zeros((4, 4))
    softmetal.configure(fail=rule)
    try:
        with pytest.raises(md.MetalError):
            call()
    finally:
        softmetal.configure(fail=None)
    call()


# ---- samplers ----


def test_a_sampler_tells_what_it_was_made_with():
    sampler = md.sampler("linear", min_filter="nearest", mip_filter="linear", address=("repeat", "clamp_to_border"))
    assert (sampler.min_filter, sampler.mag_filter, sampler.mip_filter) == ("nearest", "linear", "linear")
    assert sampler.address == ("repeat", "clamp_to_border", "clamp_to_border") and sampler.normalized
    assert repr(sampler) == "<metal_dlpack.Sampler nearest and linear, repeat, on metal:0>"
    assert sampler.device == md.default_device() and sampler.handle != 0


def test_none_is_what_is_given_without_a_word():
    a = md.zeros((4, 4))
    assert md.texture(a, None, kind=None, copy=None, stream=None, label=None).array is a
    assert md.sampler(normalized=None, lod=None).gpu_resource_id == md.sampler().gpu_resource_id


@pytest.mark.needs_softmetal
def test_a_samplers_identifier_has_all_of_it():
    made = [
        md.sampler(**given).gpu_resource_id
        for given in (
            {}, {"min_filter": "linear"}, {"mag_filter": "linear"}, {"mip_filter": "linear"}, {"compare": "less"},
            {"address": "repeat"}, {"address": ("clamp_to_edge", "repeat", "clamp_to_edge")}, {"lod": (1, None)},
            {"address": ("clamp_to_edge", "clamp_to_edge", "repeat")}, {"normalized": False}, {"lod": (0, 1)},
            {"border": "opaque_white"}, {"max_anisotropy": 2}, {"mip_filter": "nearest"},
        )
    ]  # fmt: skip
    assert len(set(made)) == len(made)


# ---- what is let go ----


@pytest.mark.needs_softmetal
def test_a_texture_holds_its_array_and_lets_it_go(live_buffers):
    texture = md.texture(md.zeros((64, 64)))
    gc.collect()
    assert live_buffers() == 1 and softmetal.live_objects("SoftMetalTexture") == 1
    array = texture.array
    del texture
    assert softmetal.live_objects("SoftMetalTexture") == 0
    array.fill(1)
    del array
    md.empty_cache()
    assert live_buffers() == 0


@pytest.mark.needs_softmetal
def test_the_pool_keeps_no_texture(live_buffers):
    for width in (16, 64, 256, 1024, 4096, 16384):
        texture = md.texture(md.zeros(width), kind="1d", copy=True)
        md.default_device().synchronize()
        live = md.memory_stats()["private"]["live"]
        del texture
        gc.collect()
        assert softmetal.live_objects("SoftMetalTexture") == 0
        assert md.memory_stats()["private"]["live"] == live - 4 * width
    md.empty_cache()
    assert live_buffers() == 0


@pytest.mark.needs_softmetal
def test_a_buffer_goes_to_nobody_else_while_a_framework_has_its_texture():
    a = md.zeros((64, 64))
    texture, address = md.texture(a), a.buffer.address
    kept = texture.handle
    send(kept, "retain")
    del a, texture
    assert md.zeros((64, 64)).buffer.address != address
    send(kept, "release", result=None)
    assert softmetal.live_objects("SoftMetalTexture") == 0


def test_a_limit_counts_a_texture():
    md.empty_cache()
    a = md.zeros((256, 256))
    md.set_memory_limit(md.memory_stats()["live"] + 1000)
    try:
        with pytest.raises(MemoryError, match="texture"):
            md.texture(a, copy=True)
    finally:
        md.set_memory_limit(None)
