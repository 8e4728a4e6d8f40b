"""What the checker says of pixels: outside, unbound, races, unwritten ones, no fence; and of right kernels nothing."""

import re

import numpy as np
import pytest
from own_kernels import METAL

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

AT = "uint2 i [[thread_position_in_grid]]"
BOTH = f"kernel void f(texture2d<float> t, texture2d<float, access::write> u, {AT})"
ONE = f"kernel void f(texture2d<float, access::read_write> t, {AT}, uint2 g [[threads_per_grid]])"
COUNTS = f"kernel void f(texture2d<uint, access::read_write> t, {AT})"
BARRIER = "threadgroup_barrier(mem_flags::mem_texture);"
#: Each writes its own pixel and then, behind @, reads the next one's.
NEIGHBOUR = "t.write(float4(i.x), i); @ if (t.read((i + 1) % g).x < 0) t.write(0, i);"
SIDES = (8, 4)  # columns, rows

#: what is wrong: (kernel, what is said)
WRONG = {
    "a write outside": (
        f"{BOTH} {{ u.write(t.read(i), i + uint2(1, 0)); }}",
        r"a thread writes outside of texture 1 \(u\): pixel \(8,0,0\) of level 0, which is 8 by 4 by 1 there; the write is dropped",
    ),
    "a write to no level": (f"{BOTH} {{ u.write(t.read(i), i, 2); }}", "of level 2, which has no such level"),
    "one pixel of all": (f"{BOTH} {{ u.write(t.read(i), uint2(0)); u.write(t.read(i), uint2(0)); }}", "two threads write byte"),
    "a neighbour's pixel": (f"{ONE} {{ t.write(t.read((i + 1) % g), i); }}", r"one thread writes and another reads byte \d+ of texture 0 \(t\)"),
    "a barrier for other memory": (
        f"{ONE} {{ {NEIGHBOUR.replace('@', 'threadgroup_barrier(mem_flags::mem_device);')} }}",
        "one thread writes and another reads",
    ),
    "no fence": (
        f"{ONE} {{ t.write(t.read(i) + 1, i); t.write(t.read(i) * 2, i); }}",
        r"a thread reads byte 0 of texture 0 \(t\), which it has written with no fence\(\) between: program_source:3:\d+, .*program_source:3:",
    ),
    "a sample of what others write": (
        f"{BOTH} {{ constexpr sampler s(filter::linear); u.write(t.sample(s, float2(i) / 8), i); }}",
        "one thread writes and another reads",
    ),
    "an atomic and a plain write": (f"{COUNTS} {{ t.atomic_fetch_add(uint2(0), 1u); if (i.x == 3) t.write(1, uint2(0)); }}", "only one of them is atomic"),
}  # fmt: skip
RIGHT = {
    "pixels of a byte": f"{ONE} {{ t.write(t.read(i) + 1, i); }}",
    "a copy": f"{BOTH} {{ u.write(t.read(i), i); }}",
    "samples outside": f"{BOTH} {{ constexpr sampler s(filter::linear, address::clamp_to_zero); u.write(t.sample(s, float2(i) - 3), i); }}",
    "reads outside, which are advice": f"{BOTH} {{ u.write(t.read(i + 1), i); }}",
    "its own pixel": f"{ONE} {{ t.write(t.read(i) + 1, i); t.fence(); t.write(t.read(i) * 2, i); }}",
    "a barrier": f"{ONE} {{ float4 v = t.read((i + 1) % g); {BARRIER} t.write(v, i); {BARRIER} v = t.read((i + 3) % g); {BARRIER} t.write(v, i); }}",
    "a neighbour's pixel behind a barrier": f"{ONE} {{ {NEIGHBOUR.replace('@', BARRIER)} }}",
    "atomics": f"{COUNTS} {{ t.atomic_fetch_add(uint2(i.x % 2, 0), 1u); t.atomic_fetch_max(uint2(0), i.x); }}",
    "sizes": f"{BOTH} {{ if (i.x < u.get_width() && i.y < u.get_height()) u.write(float4(t.get_num_mip_levels()), i); }}",
    "gathers": f"{BOTH} {{ constexpr sampler s; u.write(t.gather(s, float2(i) / 8), i); }}",
}  # fmt: skip


@pytest.fixture(autouse=True)
def settings(metal_settings):
    metal_settings(kernel_check=1, validation_mode="log", kernel_timeout=5)
    return metal_settings


@pytest.fixture
def said(request):
    """What the checker says of a launch, or None; the launch fails exactly if it says something."""

    def run(source, what):
        shape = SIDES[::-1]
        values = np.ones(shape, np.uint32) if source.startswith(COUNTS) else np.ones((*shape, 4), np.float32)
        if what == "pixels of a byte":
            values = values[..., 0].astype(np.uint8)
        first = md.texture(md.asarray(values), "r8Unorm" if values.dtype == np.uint8 else None, copy=True)
        second = first if what.startswith("a sample of") else md.texture(md.asarray(values), copy=True)
        kernel = md.kernel(METAL + source, "f")
        given = [first, second][: len(kernel.arguments)]
        try:
            kernel(*given, threads=SIDES, group=SIDES)
            np.asarray(first.array), np.asarray(second.array)
        except md.MetalError as error:
            request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them
            return str(error)
        return None

    return run


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told(said, what):
    source, words = WRONG[what]
    told = said(source, what)
    assert told and re.search(words, told), told
    assert "program_source:3:" in told


@pytest.mark.parametrize("what", RIGHT)
def test_of_right_kernels_nothing_is_told(said, what):
    assert said(RIGHT[what], what) is None


# ---- handles in structures ----

SCENE = """struct scene {{ float before; texture2d<float, access::{access}> image; device float *out; }};
kernel void f(constant scene &s, texture2d<float> other, uint i [[thread_position_in_grid]]) {{
    constexpr sampler how;
    s.out[i] = other.read(uint2(0)).x; {what};
}}"""
#: access: what a kernel does by a handle.
USES = {
    "a read": ("read", "s.out[i] += s.image.read(uint2(i, 0)).x"),
    "a write": ("write", "s.image.write(float4(1), uint2(i, 0))"),
    "a sample": ("sample", "s.out[i] = s.image.sample(how, float2(0)).x"),
    "a gradient": ("sample", "s.out[i] = s.image.sample(how, float2(0), gradient2d(float2(1), float2(1))).x"),
    "a size": ("read", "s.out[i] = s.image.get_width()"),
    "levels": ("read", "s.out[i] = s.image.get_num_mip_levels()"),
}


def by_handle(use, handle, out, resources):
    access, what = USES[use]
    scene = np.array([(1, handle, out.buffer.gpu_address)], dtype=[("before", "f8"), ("image", "u8"), ("out", "u8")])
    kernel = md.kernel(METAL + SCENE.format(access=access, what=what), "f")
    kernel(scene[0], md.texture(md.zeros((4, 4))), n=4, resources=[out, *resources])
    return np.asarray(out)


@pytest.mark.parametrize("use", USES)
def test_a_handle_that_no_texture_of_the_launch_has_is_told_with_its_place(use, request):
    texture, out = md.texture(md.ones((4, 8))), md.zeros(4)
    by_handle(use, texture.gpu_resource_id, out, [texture])
    does = "writes" if use == "a write" else "reads"
    for handle in (texture.gpu_resource_id, 12345, out.buffer.gpu_address, (1 << 64) - 1):
        with pytest.raises(md.MetalError, match=f"a thread {does} a texture by the handle 0x") as told:
            by_handle(use, handle, md.zeros(4), [])
        assert f"0x{handle:x}, which is none of those that the launch was given" in str(told.value)
        assert "it is at byte 8 of buffer 0 (s): program_source:6:" in str(told.value)
    if use not in {"a size", "levels"}:  # which are 0
        with pytest.raises(md.MetalError, match=r"by the handle 0x0, which is none.*useResource: program_source:6:"):
            by_handle(use, 0, md.zeros(4), [])
    request.node.stash[plugin._reports_before] = softmetal.reports()


def test_a_texture_of_resources_is_none_of_the_arguments(request):
    texture, out = md.texture(md.ones((4, 8)).as_readonly()), md.zeros(4)
    with pytest.raises(md.MetalError, match="a thread writes resource 1, which it was given to read only"):
        by_handle("a write", texture.gpu_resource_id, out, [texture])
    request.node.stash[plugin._reports_before] = softmetal.reports()
