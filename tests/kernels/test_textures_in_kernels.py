"""Textures and samplers as arguments of kernels: what is read and written, in which order, and what is refused."""

import gc
import itertools

import numpy as np
import pytest
from children import output_of
from held_work import held
from own_kernels import METAL

import metal_dlpack as md
import softmetal

pytestmark = pytest.mark.needs_kernels

COPY = """
kernel void copy_{kind}_{scalar}(texture{kind}<{scalar}, access::read> from [[texture(0)]],
                                 texture{kind}<{scalar}, access::write> to [[texture(1)]],
                                 {at} at [[thread_position_in_grid]])
{{
    to.write(from.read(at) + 1, at);
}}
"""
OTHERS = """
kernel void advance(texture2d<int, access::read_write> image [[texture(0)]], constant int &value [[buffer(0)]],
                    uint2 at [[thread_position_in_grid]])
{
    image.write(3 * image.read(at) + value, at);
}
kernel void add_up(array<texture2d<float, access::read>, 3> all [[texture(2)]], device float *out [[buffer(0)]],
                   uint2 at [[thread_position_in_grid]])
{
    out[at.y * all[0].get_width() + at.x] = all[0].read(at).x + 10 * all[1].read(at).x + 100 * all[2].read(at).x;
}
kernel void double_it(device float *x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2; }
kernel void half_size(texture2d<float, access::sample> from [[texture(0)]],
                      texture2d<float, access::write> to [[texture(1)]], sampler how [[sampler(0)]],
                      uint2 at [[thread_position_in_grid]])
{
    float2 size = float2(to.get_width(), to.get_height());
    to.write(from.sample(how, (float2(at) + 0.5f) / size), at);
}
kernel void nearer(depth2d<float, access::sample> depths [[texture(0)]], sampler how [[sampler(0)]],
                   device float *out [[buffer(0)]], uint i [[thread_position_in_grid]])
{
    out[i] = depths.sample_compare(how, float2((i + 0.5f) / 4, 0.5f), 0.5f);
}
struct scene {
    texture2d<float, access::read> image;
    device float *out;
};
kernel void by_scene(constant scene &scene [[buffer(0)]], uint i [[thread_position_in_grid]])
{
    scene.out[i] = scene.image.read(uint2(i, 0)).x;
}
"""
SCALARS = {
    "float": "float32",
    "half": "float16",
    "uint": "uint32",
    "int": "int32",
    "ushort": "uint16",
    "short": "int16",
}


@pytest.fixture(scope="module")
def library():
    copies = [COPY.format(kind="2d", scalar=scalar, at="uint2") for scalar in SCALARS]
    return md.Library(METAL + "".join(copies) + COPY.format(kind="1d", scalar="float", at="uint") + OTHERS)


def pixels(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).integers(0, 60, shape).astype(dtype)


# ---- what is read and written ----


@pytest.mark.parametrize("scalar", SCALARS)
def test_each_component_is_its_formats(library, scalar):
    """Into an Array's own bytes, a part of a wider one: what lies beside it stays."""
    copy = library[f"copy_2d_{scalar}"]
    for channels in (1, 4):
        wide = pixels((5, 32, channels), SCALARS[scalar])
        out = md.asarray(pixels((5, 32, channels), SCALARS[scalar], 1), copy=True)
        before = np.array(out)
        a, to = md.asarray(wide, copy=True)[:, 8:15], md.texture(out[:, 16:23])
        copy(md.texture(a), to, threads=(7, 5))
        before[:, 16:23] = wide[:, 8:15] + 1
        assert np.array_equal(np.asarray(out), before) and to.array.buffer.handle == out.buffer.handle


def test_depths_are_compared(library):
    depths = md.texture(md.asarray([[0.1, 0.5, 0.6, 0.9]], dtype="float32"), "depth32Float", copy=True)
    out = md.zeros(4)
    library["nearer"](depths, md.sampler(compare="less"), out, n=4)
    assert out.tolist() == [0, 0, 1, 1]


def test_an_array_of_textures_takes_a_tuple(library):
    x = [pixels((4, 8), seed=seed) for seed in range(3)]
    out = md.zeros((4, 8))
    textures = [md.texture(md.asarray(one, copy=True)) for one in x]
    for given in (textures, tuple(textures)):
        library["add_up"](given, out, threads=(8, 4))
        assert np.array_equal(np.asarray(out), x[0] + 10 * x[1] + 100 * x[2])


@pytest.mark.needs_softmetal
def test_an_array_of_samplers_takes_a_tuple():
    """As many as there is room for: up to the next sampler."""
    kernel = md.kernel(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void f(texture1d<float> from [[texture(0)]], array<sampler, 2> s [[sampler(3)]], sampler t [[sampler(5)]],"
        " device float *out [[buffer(0)]], uint i [[thread_position_in_grid]])\n"
        "{ out[i] = from.sample(i < 4 ? s[i % 2] : t, (i % 4 + 1) / 4.0f).x; }"
    )
    x, out = md.texture(md.asarray([0.0, 4, 8, 12]), kind="1d", copy=True), md.zeros(8)
    linear, nearest = md.sampler("linear"), md.sampler()
    for _ in range(2):
        kernel(x, (linear, nearest), linear, out, n=8)
        assert out.tolist() == [2, 8, 10, 12, 2, 6, 10, 12]
    for given, error, words in (
        ((), ValueError, "'s': 0 samplers are given, and there is room for 2"),
        ((linear,) * 3, ValueError, "'s': 3 samplers are given"),
        ((linear, x), TypeError, "'s' is a sampler, and an object of type metal_dlpack.Texture is none"),
    ):
        with pytest.raises(error, match=words):
            kernel(x, given, linear, out, n=8)


@pytest.mark.needs_softmetal
def test_counts_name_textures():
    kernel = md.kernel(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void f(texture2d<uint, access::read_write> sums [[texture(3)]], uint i [[thread_position_in_grid]])\n"
        "{ sums.atomic_fetch_add(uint2(i % 2, 0), 1u); }"
    )
    counted = kernel.count(md.texture(md.zeros((1, 4), "uint32")), n=8)
    assert [(one.name, one.index, one.atomics) for one in counted.arguments] == [("sums", 3, 8)]


def test_a_texture_in_a_structure_is_among_the_resources(library):
    x, out = pixels((2, 8)), md.zeros(8)
    texture = md.texture(md.asarray(x, copy=True))
    scene = np.array([(texture.gpu_resource_id, out.buffer.gpu_address)], dtype=[("image", "u8"), ("out", "u8")])
    library["by_scene"](scene[0], n=8, resources=[texture, out])
    assert np.array_equal(np.asarray(out), x[0])


def test_arguments_tell_of_textures(library):
    assert [(one.name, one.kind, one.access) for one in library["half_size"].arguments] == [
        ("from", "texture", "read"),
        ("to", "texture", "write"),
        ("how", "sampler", "read"),
    ]
    image = library["advance"].arguments[0]
    assert (image.kind, image.dtype, image.access) == ("texture", md.int32, "read_write")


# ---- order and life ----


@pytest.mark.needs_softmetal
def test_kernels_copies_and_the_cpu_keep_their_order(library, slow):
    """Several streams, textures over the bytes and with a copy, fills and looks: as if one came after the other."""
    rng = np.random.default_rng(5)
    advance, streams = library["advance"], [md.Stream() for _ in range(3)]
    advance(md.texture(md.zeros((2, 4), "int32")), 0, threads=(4, 2))
    softmetal.configure(latency_us=2000)
    for _ in range(20):
        want, a = np.zeros((2, 4), "int32"), md.zeros((2, 4), "int32")
        linear, own = md.texture(a), md.texture(a, copy=True)
        own_want = want.copy()
        for stream, what, value in zip(
            rng.choice(streams, 12), rng.integers(0, 4, 12), rng.integers(0, 9, 12), strict=True
        ):
            if what == 0:
                advance(linear, int(value), threads=(4, 2), stream=stream)
                want = 3 * want + value
            elif what == 1:
                advance(own, int(value), threads=(4, 2), stream=stream)
                own_want = 3 * own_want + value
            elif what == 2:
                a.fill(int(value), stream=stream)
                want = np.full_like(want, value)
            else:
                own, own_want = md.texture(a, copy=True, stream=stream), want.copy()
        assert np.array_equal(np.asarray(a), want)
        assert np.array_equal(np.asarray(own.array), own_want)


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("copy", [False, True])
def test_work_keeps_what_everybody_has_dropped(library, slow, copy, live_buffers):
    advance = library["advance"]
    with held(md.current_stream()):
        a = md.full((2, 4), 5, "int32")
        texture = md.texture(a, copy=copy)
        advance(texture, 1, threads=(4, 2))
        back = texture.array
        del texture
        if not copy:
            a = None
        gc.collect()
        assert softmetal.live_objects("SoftMetalTexture") == 1
    assert back.tolist() == [[16] * 4] * 2
    md.default_device().synchronize()
    del back, a
    md.empty_cache()
    assert softmetal.live_objects("SoftMetalTexture") == 0 and live_buffers() == 0


@pytest.mark.needs_softmetal
def test_a_buffer_and_a_texture_over_it_are_one(library, slow):
    a = md.ones((2, 4))
    out = md.zeros((2, 4))
    with held(md.current_stream()):
        library["double_it"](a, n=8, stream=md.Stream())
        library["copy_2d_float"](md.texture(a), md.texture(out), threads=(4, 2), stream=md.Stream())
        library["double_it"](out, n=8, stream=md.Stream())
    assert out.tolist() == [[6] * 4] * 2


# ---- what is refused ----


def image(dtype="float32", **keywords):
    return md.texture(md.zeros((4, 8), dtype), **keywords)


FLAT = {"threads": (8, 4)}
REFUSED = [
    ("copy_2d_float", lambda: (md.zeros((4, 8)), image()), TypeError, r"'from' is a texture2d<float>.*give md\.texture\(array\)"),
    ("copy_2d_float", lambda: (np.zeros((4, 8)), image()), TypeError, r"md\.texture\(md\.asarray\(x\)\)"),
    ("copy_2d_float", lambda: (image("uint32"), image()), TypeError, "texture of r32Uint gives uint"),
    ("copy_2d_uint", lambda: (image(), image("uint32")), TypeError, "texture2d<uint>, and a texture of r32Float gives float"),
    ("copy_2d_uint", lambda: (image("int32"), image("uint32")), TypeError, "r32Sint gives int"),
    ("copy_1d_float", lambda: (image(), image()), TypeError, "texture1d<float>.*kind '2d'.*kind='1d'"),
    (
        "copy_2d_float",
        lambda: (image(), md.texture(md.zeros((4, 8)).as_readonly())),
        ValueError,
        "'to': the texture lies over a read-only array",
    ),
    (
        "copy_2d_float",
        lambda: (image(), image(format="depth32Float", copy=True)),
        ValueError,
        "no kernel writes to a texture of depths",
    ),
    (
        "advance",
        lambda: (md.texture(md.zeros((4, 8, 2), "int32")), 1),
        TypeError,
        "access::read_write.*rg32Sint",
    ),
    ("nearer", lambda: (image(), md.sampler(), md.zeros(4)), TypeError, "depth2d<float>.*r32Float.*depth32Float"),
    ("nearer", lambda: (image(format="depth32Float", copy=True), 3, md.zeros(4)), TypeError, r"'how' is a sampler.*md\.sampler"),
    ("add_up", lambda: (image(), md.zeros(32)), TypeError, "array of 3 textures"),
    ("add_up", lambda: ([image()] * 2, md.zeros(32)), ValueError, "3 textures, and 2 are given"),
    ("add_up", lambda: ([image(), image(), 3], md.zeros(32)), TypeError, "texture2d<float>, and an object of type int"),
    ("double_it", lambda: (image(),), TypeError, "this one is a buffer; give an Array"),
    ("copy_2d_float", lambda: (image(),), TypeError, r"missing 'to' of \(from, to\)"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_what_is_refused_names_the_parameter(library, at):
    name, arguments, error, words = REFUSED[at]
    with pytest.raises(error, match=words) as told:
        library[name](*arguments(), **FLAT)
    assert str(told.value).startswith(name)


def test_a_read_only_array_is_read(library):
    out = md.zeros((4, 8))
    library["copy_2d_float"](md.texture(md.ones((4, 8)).as_readonly()), md.texture(out), **FLAT)
    assert np.asarray(out).tolist() == [[2] * 8] * 4


OTHER_DEVICE = """
import metal_dlpack as md
here, there = md.texture(md.zeros((4, 8))), md.texture(md.zeros((4, 8), device="metal:1"))
k = md.kernel("#include <metal_stdlib>\\nusing namespace metal; kernel void f(texture2d<float> x [[texture(0)]], "
              "sampler s [[sampler(0)]], device float *out [[buffer(0)]]) { out[0] = x.sample(s, float2(0)).x; }")
out = md.zeros(4)
for arguments in ((there, md.sampler()), (here, md.sampler(device="metal:1"))):
    for resources in (None, [there]):
        try:
            k(*arguments, out, n=1, resources=resources)
        except ValueError as error:
            print(error)
try:
    k(here, md.sampler(), out, n=1, resources=[there])
except ValueError as error:
    print(error)
try:
    md.texture([md.zeros((4, 8)), md.zeros((2, 4), device="metal:1")], copy=True)
except ValueError as error:
    print(error)
try:
    md.texture(md.zeros((4, 8)), copy=True, stream=md.Stream("metal:1"))
except ValueError as error:
    print(error)
"""


@pytest.mark.needs_softmetal
def test_another_devices_texture_and_sampler_are_refused():
    said = output_of(OTHER_DEVICE, SOFTMETAL_DEVICES="unified,unified").splitlines()
    assert [line.partition(";")[0] for line in said] == [
        *["f: argument 'x': the texture is on metal:1, the kernel on metal:0"] * 2,
        *["f: argument 's': the sampler is on metal:1, the kernel on metal:0"] * 2,
        "f: resources[0] is on metal:1, the kernel on metal:0",
        "texture: level 1 has items of float32 on metal:1, and level 0 of float32 on metal:0",
        "texture: the stream is on metal:1, the array on metal:0",
    ]


def test_out_makes_arrays_for_buffers_alone(library):
    out = library["add_up"]([md.texture(md.ones((4, 8)))] * 3, **FLAT, out=((4, 8), "float32"))
    assert np.asarray(out).tolist() == [[111] * 8] * 4
    with pytest.raises(TypeError, match="out asks for more Arrays"):
        library["copy_2d_float"](image(), **FLAT, out=((4, 8), "float32"))


@pytest.mark.needs_softmetal
def test_the_most_textures_and_samplers_that_a_kernel_takes():
    count = 100
    kernel = md.kernel(
        METAL
        + f"kernel void most(array<texture2d<float, access::read>, {count}> all [[texture(28)]], "
        + ", ".join(f"sampler s{i} [[sampler({i})]]" for i in range(16))
        + ", device float *out [[buffer(30)]], uint i [[thread_position_in_grid]])\n"
        "{ out[i] = all[i].read(uint2(0, 0)).x; }"
    )
    textures = [md.texture(md.full((1, 4), float(i))) for i in range(count)]
    out = md.zeros(count)
    kernel(textures, *itertools.repeat(md.sampler(), 16), out, n=count)
    assert out.tolist() == list(range(count))
