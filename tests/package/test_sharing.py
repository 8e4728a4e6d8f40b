"""show(): the picture against shares_memory and against what the arrays say of themselves."""

import itertools
import random

import pytest

import metal_dlpack as md
from metal_dlpack.sharing import FULL, GAPS, NONE, WIDTH

np = pytest.importorskip("numpy")


def group_of(picture, name):
    (group,) = [group for group in picture.groups if any(part.name == name for part in group.parts)]
    return group


def part_of(picture, name):
    return next(part for part in group_of(picture, name).parts if part.name == name)


def test_an_array_its_views_and_its_buffer_stand_together(live_buffers):
    a = md.zeros((4, 6))
    picture = md.show(a, a[1:, ::2], np.asarray(a), other=md.zeros(3))
    assert [[part.name for part in group.parts] for group in picture.groups] == [["0", "1", "2"], ["other"]]
    assert f"MTLBuffer {a.buffer.handle:#x} (shared), 96 bytes" in str(picture)
    assert "1  " + NONE * 12 + GAPS * 34 + NONE * 2 + "  bytes 24 to 92, with gaps: Array (3, 3) float32" in str(
        picture
    )
    assert FULL * WIDTH + "  bytes 0 to 96: numpy.ndarray (4, 6) float32" in str(picture)


def test_memory_of_numpy_s_is_cpu_memory_until_it_is_wrapped(live_buffers):
    x, y = np.zeros(5000), np.zeros(5000)
    picture = md.show(x=x, half=x[2500:], y=y)
    assert len(picture.groups) == 2
    assert group_of(picture, "x").title == f"CPU memory at {x.ctypes.data:#x}, 39.06 KiB"
    assert group_of(md.show(x=x, a=md.from_dlpack(x)), "x").title.startswith("MTLBuffer")


def test_private_memory_is_told_apart_by_handle(live_buffers):
    a, b = md.zeros(100, storage="private"), md.zeros(100, storage="private")
    picture = md.show(a, b, a[50:])
    assert [[part.name for part in group.parts] for group in picture.groups] == [["1"], ["0", "2"]]


@pytest.mark.needs_torch
def test_tensors_of_torch_are_placed_by_their_buffer(live_buffers):
    import torch

    a = md.zeros((4, 6))
    picture = md.show(a=a, t=torch.from_dlpack(a))
    assert part_of(picture, "t").handle == a.buffer.handle
    assert "torch.Tensor (4, 6) float32" in str(picture)


def test_what_cannot_be_placed_says_why(live_buffers):
    picture = md.show("text", readonly=np.zeros(3, "M8[s]"))
    assert picture.groups == ()
    assert [name for name, _ in picture.refusals] == ["0", "readonly"]
    assert "0: from_dlpack: str has no __dlpack__" in str(picture)


@pytest.mark.parametrize("seed", range(20))
def test_arrays_that_share_bytes_stand_in_one_group(seed, live_buffers):
    chance = random.Random(seed)
    memories = [np.zeros(256, np.uint8), md.zeros(256, "uint8"), md.zeros(256, "uint8", storage="private")]
    arrays = []
    for _ in range(8):
        memory = chance.choice(memories)
        first = chance.randrange(256)
        arrays.append(memory[first : chance.randrange(first, 257) : chance.choice([1, 2, 3])])
    picture = md.show(*arrays)
    assert not picture.refusals
    for (i, a), (j, b) in itertools.combinations(enumerate(arrays), 2):
        if md.shares_memory(a, b):
            assert group_of(picture, str(i)) is group_of(picture, str(j))
        if isinstance(a, md.Array) and isinstance(b, md.Array) and a.size and b.size:
            is_same = group_of(picture, str(i)) is group_of(picture, str(j))
            assert is_same == (a.buffer.handle == b.buffer.handle)
    for group in picture.groups:
        for part in group.parts:
            bar = group.bar(part)
            assert len(bar) == WIDTH
            assert (FULL in bar or GAPS in bar) == (part.end > part.begin)


def test_the_notebook_gets_the_same_names_and_titles(live_buffers):
    a = md.zeros(4)
    html = md.show(**{"<a>": a})._repr_html_()
    assert "&lt;a&gt;" in html
    assert "<a>" not in html
    assert f"{a.buffer.handle:#x}" in html
