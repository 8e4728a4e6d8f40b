"""The copy engine against NumPy, through a shared library made of the copy files alone."""

import ctypes
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

SRC = Path(__file__).resolve().parent.parent / "src"
SOURCES = sorted(SRC.glob("copy*.c"))
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SRC}"]

MAX_NDIM = 64
ITEMSIZES = [1, 2, 4, 8, 16, 1, 2, 4, 8, 3, 5, 6, 7, 9, 12, 13, 24, 31, 40]
CASES = 100_000


class Layout(ctypes.Structure):
    _fields_ = [
        ("ndim", ctypes.c_int),
        ("itemsize", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_NDIM),
        ("strides", ctypes.c_int64 * MAX_NDIM),
    ]


def make_layout(shape, strides, itemsize, offset=0):
    layout = Layout(len(shape), itemsize, offset)
    layout.shape[: len(shape)] = shape
    layout.strides[: len(shape)] = strides
    return layout


def layout_of(array):
    item = array.itemsize
    return make_layout(array.shape, [s // item for s in array.strides], item)


class Engine:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.copy_strided.restype = ctypes.c_bool
        self.lib.copy_strided.argtypes = [ctypes.c_void_p, ctypes.c_void_p] * 2
        self.lib.copy_fill.restype = None
        self.lib.copy_fill.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]

    def strided(self, dst, dst_base, src, src_base):
        return self.lib.copy_strided(
            ctypes.addressof(dst), dst_base, ctypes.addressof(src), src_base
        )

    def copy(self, dst, src):
        """Copy one NumPy array into another of the same shape and item size."""
        assert self.strided(layout_of(dst), dst.ctypes.data, layout_of(src), src.ctypes.data)

    def fill(self, dst, item):
        layout = layout_of(dst)
        self.lib.copy_fill(ctypes.addressof(layout), dst.ctypes.data, item)


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    path = tmp_path_factory.mktemp("copy") / "libcopy.so"
    command = ["gcc", "-O2", "-shared", "-fPIC", *FLAGS, *map(str, SOURCES), "-o", str(path)]
    subprocess.run(command, check=True)
    return Engine(path)


# ---- random layouts ----


def random_shape(rng, limit):
    ndim = rng.choice([0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5, 6])
    shape, volume = [], 1
    for _ in range(ndim):
        extent = rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64])
        if volume * extent > limit:
            extent = 1
        shape.append(extent)
        volume *= extent
    if ndim and rng.random() < 0.02:
        shape[rng.randrange(ndim)] = 0
    return shape


def random_distinct_strides(rng, shape):
    """Strides under which no two indices share an item; some backwards, some with gaps."""
    strides = [0] * len(shape)
    axes = list(range(len(shape)))
    if rng.random() < 0.5:
        rng.shuffle(axes)
    step = 1
    for axis in reversed(axes):
        step *= rng.choice([1, 1, 1, 1, 2, 3])
        strides[axis] = rng.choice([step, step, step, -step])
        step *= max(shape[axis], 1)
        step += rng.choice([0, 0, 0, 0, 1])
    return strides


def random_strides(rng, shape):
    """Strides of a source: it may repeat items and cross itself."""
    strides = random_distinct_strides(rng, shape)
    for axis in range(len(shape)):
        if rng.random() < 0.1:
            strides[axis] = rng.choice([0, 0, 1, -1, 2])
    return strides


def span(shape, strides, itemsize):
    """Bytes below the first item, and bytes from there to the end of the last."""
    if 0 in shape:
        return 0, 0
    reaches = [(extent - 1) * step * itemsize for extent, step in zip(shape, strides, strict=True)]
    return -sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0) + itemsize


def place(rng, shape, strides, itemsize, arena, near=None):
    """A byte position for item 0, inside the arena; None where it does not fit."""
    below, above = span(shape, strides, itemsize)
    if below + above > len(arena):
        return None
    low, high = below, len(arena) - above
    if near is not None and rng.random() < 0.5:
        return min(max(near + rng.randrange(-2, 3) * rng.choice([1, itemsize]), low), high)
    return rng.randint(low, high)


def view(arena, shape, strides, itemsize, position):
    if 0 in shape:
        position = 0
    byte_strides = [s * itemsize for s in strides]
    return np.ndarray(shape, f"V{itemsize}", arena, position, byte_strides)


def random_case(rng, arena, limit):
    while True:
        itemsize = rng.choice(ITEMSIZES)
        shape = random_shape(rng, limit)
        dst_strides = random_distinct_strides(rng, shape)
        src_strides = dst_strides if rng.random() < 0.1 else random_strides(rng, shape)
        dst_at = place(rng, shape, dst_strides, itemsize, arena)
        src_at = place(rng, shape, src_strides, itemsize, arena, near=dst_at)
        if dst_at is not None and src_at is not None:
            return itemsize, shape, dst_strides, dst_at, src_strides, src_at


def check_case(engine, rng, arena, limit):
    itemsize, shape, dst_strides, dst_at, src_strides, src_at = random_case(rng, arena, limit)
    expected = arena.copy()
    items = view(arena, shape, src_strides, itemsize, src_at).copy()
    view(expected, shape, dst_strides, itemsize, dst_at)[...] = items

    dst_offset, src_offset = rng.randint(-9, 9), rng.randint(-9, 9)
    base = arena.ctypes.data
    done = engine.strided(
        make_layout(shape, dst_strides, itemsize, dst_offset),
        base + dst_at - dst_offset * itemsize,
        make_layout(shape, src_strides, itemsize, src_offset),
        base + src_at - src_offset * itemsize,
    )
    assert done
    if not np.array_equal(arena, expected):
        wrong = np.flatnonzero(arena != expected)
        pytest.fail(
            f"itemsize {itemsize}, shape {shape}, destination {dst_strides} at {dst_at}, "
            f"source {src_strides} at {src_at}: bytes {wrong[:8]} differ"
        )


def run_cases(engine, seed, count, arena_size, limit):
    rng = random.Random(seed)
    noise = np.random.default_rng(seed).integers(0, 256, arena_size, dtype=np.uint8)
    arena = np.empty_like(noise)
    for _ in range(count):
        arena[:] = noise  # copies with repeats would wear it down to one value
        check_case(engine, rng, arena, limit)


@pytest.mark.parametrize("seed", range(4))
def test_random_small_copies_equal_numpy(engine, seed):
    run_cases(engine, seed, CASES // 4 - 500, arena_size=6000, limit=600)


@pytest.mark.parametrize("seed", range(4))
def test_random_large_copies_equal_numpy(engine, seed):
    run_cases(engine, 100 + seed, 500, arena_size=300_000, limit=30_000)
