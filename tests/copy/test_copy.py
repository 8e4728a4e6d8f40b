"""The copy engine: each of its roads against NumPy, and random copies against a plain loop (fuzz_copy.c).

The libraries are made of the copy files alone.
"""

import ctypes
import functools
import itertools
import math
import os
import random
import shutil
import subprocess

import numpy as np
import pytest
from copy_library import compile_copy, needs_compiler
from forking import exit_code_of_child
from machine import can_sanitize
from places import C_FILES

MAX_NDIM = 64
MAX_THREADS = 16

pytestmark = needs_compiler


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
    def __init__(self, path, large):
        self.lib = ctypes.CDLL(str(path))
        self.large = large  # bytes that no cache holds
        self.lib.copy_strided.restype = ctypes.c_bool
        self.lib.copy_strided.argtypes = [ctypes.c_void_p, ctypes.c_void_p] * 2
        self.lib.copy_fill.restype = None
        self.lib.copy_fill.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]

    def strided(self, dst, dst_base, src, src_base):
        return self.lib.copy_strided(ctypes.addressof(dst), dst_base, ctypes.addressof(src), src_base)

    def copy(self, dst, src):
        """Copy one NumPy array into another of the same shape and item size."""
        assert self.strided(layout_of(dst), dst.ctypes.data, layout_of(src), src.ctypes.data)

    def check(self, dst, src):
        self.copy(dst, src)
        assert same(dst, src), f"itemsize {src.itemsize}, shape {src.shape}, strides {dst.strides} and {src.strides}"

    def fill(self, dst, item):
        layout = layout_of(dst)
        self.lib.copy_fill(ctypes.addressof(layout), dst.ctypes.data, item)


@pytest.fixture(scope="module", params=[False, True], ids=["caches as they are", "small caches"])
def engine(request, tmp_path_factory):
    library = tmp_path_factory.mktemp("copy") / "libcopy.so"
    compile_copy(library, "-O2", "-shared", "-fPIC", small_caches=request.param)
    return Engine(library, large=1 << 18 if request.param else 18 << 20)


@pytest.fixture
def threads(engine):
    """Sets the number of threads; the default is back after the test."""
    yield engine.lib.copy_set_threads
    engine.lib.copy_set_threads(0)


# ---- the roads a copy can take ----


@functools.cache
def pool():
    return np.frombuffer(random.Random(1).randbytes(48 << 20), np.uint8)


#: Item sizes that NumPy moves without a call for each item.
QUICK = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}


def noise(shape, itemsize):
    """Items of `itemsize` bytes, each byte random; read-only."""
    return pool()[: math.prod(shape) * itemsize].view(QUICK.get(itemsize, f"V{itemsize}")).reshape(shape)


def same(a, b):
    return np.array_equal(a, b) if a.dtype.kind == b.dtype.kind == "u" else a.tobytes() == b.tobytes()


def is_blank(part):
    return not part.tobytes().strip(b"\0")


def check_turned(engine, source, order=(1, 0)):
    """Copy `source`, its axes in another order, into a dense array."""
    turned = source.transpose(order)
    engine.check(np.zeros(turned.shape, source.dtype), turned)


@pytest.mark.some(1)
def test_matrices_of_every_small_size_are_transposed(engine):
    for itemsize in (1, 2, 3, 4, 8, 12, 16, 24):
        for rows, columns in itertools.product([*range(1, 20), 31, 32, 33, 65], repeat=2):
            check_turned(engine, noise((rows, columns), itemsize))


def test_matrices_larger_than_a_tile_are_transposed(engine):
    for itemsize, side in itertools.product([1, 2, 4, 8, 16], [127, 129, 255, 257, 511, 512, 513, 1023, 1024]):
        check_turned(engine, noise((side, 200), itemsize))
        check_turned(engine, noise((200, side), itemsize))


def test_matrices_larger_than_the_caches_are_transposed(engine):
    for itemsize, (shift, extra) in itertools.product([1, 2, 4, 8, 16], [(0, 0), (1, 3), (16, 3), (16, 0)]):
        rows, columns = 2048, engine.large // 2048 // itemsize // 64 * 64 + extra
        if columns == 0:
            continue
        source = noise((rows, columns), itemsize)
        memory = np.zeros(source.nbytes + 64 + shift, np.uint8)
        start = -memory.ctypes.data % 64 + shift * itemsize % 64
        engine.check(memory[start : start + source.nbytes].view(source.dtype).reshape(columns, rows), source.T)


def test_large_matrices_with_rows_anywhere_on_their_lines_are_transposed(engine):
    for itemsize, rows in itertools.product([1, 2, 4, 8, 16], [9, 64, 65, 256, 300, 1001, 1031]):
        columns = engine.large // 3 // rows // itemsize + 5
        source = noise((rows, columns), itemsize)
        check_turned(engine, source)
        padded = np.zeros((columns, rows + 3), f"V{itemsize}")
        engine.check(padded[:, 1:-2], source.T)
        assert is_blank(padded[:, 0])
        assert is_blank(padded[:, -2:])


def test_channels_go_to_planes_and_back(engine):
    for itemsize, channels in itertools.product([1, 2, 4, 8, 16], [2, 3, 4, 5]):
        for pixels in [*range(1, 70), 1000]:
            check_turned(engine, noise((pixels, channels), itemsize))
            check_turned(engine, noise((2, channels, pixels), itemsize), (0, 2, 1))


def test_axes_are_permuted_in_every_order(engine):
    for shape in [(3, 5, 4, 6, 7), (4, 8, 4, 8, 16), (2, 16, 3, 4, 33)]:
        for itemsize, order in itertools.product([1, 2, 4, 8, 16], itertools.permutations(range(5))):
            check_turned(engine, noise(shape, itemsize), order)


def test_bands_larger_than_the_caches_are_permuted(engine):
    width = engine.large // 24576
    for itemsize, order in itertools.product([1, 2, 4], [(3, 0, 1, 2), (3, 2, 1, 0), (1, 3, 2, 0), (0, 3, 2, 1)]):
        check_turned(engine, noise((16 // itemsize, 32, 48, width), itemsize), order)


def test_long_rows_and_runs_of_a_large_copy_equal_numpy_s(engine):
    engine.check(np.zeros((1024, 32_990), "V1"), noise((1024, 33_000), 1)[:, 7:-3])
    for run, shift in itertools.product([511, 513, 2048, 4000, 4096, 8172, 12288, 16344, 3 << 20], [0, 5]):
        count = max(2, engine.large // 3 // run)
        source = noise((count, run + 9), 1)
        result = np.zeros((count, run + 11), source.dtype)
        engine.check(result[:, shift : shift + run], source[:, 3 : run + 3])
        assert is_blank(result[:, :shift])
        assert is_blank(result[:, shift + run :])


def test_one_long_run_equals_memcpy_s(engine):
    for nbytes, shift in itertools.product([(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (9 << 20) + 77], [0, 1, 63, 64]):
        memory = np.zeros(nbytes + 256, np.uint8)
        start = -memory.ctypes.data % 64 + shift
        engine.check(memory[start : start + nbytes].view("V1"), noise((nbytes,), 1))
        assert not memory[:start].any()
        assert not memory[start + nbytes :].any()


def test_a_row_and_a_column_are_repeated(engine):
    rows = [100, 1000, 2048, 2064, 4000, 8190, 8192, 40_000, 300_000]
    for row, itemsize in itertools.product(rows, [1, 2, 4, 8, 12, 16, 500, 4000]):
        count = max(2, row // itemsize)
        result = np.zeros((7, count), f"V{itemsize}")
        for one in (noise((1, count), itemsize), noise((7, 1), itemsize)):
            engine.check(result, np.broadcast_to(one, result.shape))


def test_a_row_is_repeated_in_an_array_larger_than_the_caches(engine):
    for itemsize in (1, 4, 12, 600):
        one = noise((1, 12_345 // itemsize), itemsize)
        result = np.zeros((engine.large // 9000, one.shape[1]), one.dtype)
        engine.check(result, np.broadcast_to(one, result.shape))


def test_one_item_fills_an_array(engine):
    for itemsize, count in itertools.product([1, 2, 3, 4, 8, 12, 16, 20, 300], [1, 2, 5, 16, 17, 100, 5000]):
        for item in (noise((1,), itemsize).tobytes(), bytes(itemsize), b"\x55" * itemsize):
            memory = np.zeros((3, count + 1), f"V{itemsize}")
            expected = memory.copy()
            expected[:, :count] = np.frombuffer(item, memory.dtype)
            engine.fill(memory[:, :count], item)
            assert same(memory, expected), (itemsize, count, item)


def test_a_large_array_is_filled(engine):
    memory = np.zeros(engine.large // 2 + 1, np.float32)
    engine.fill(memory[1:], np.float32(1.5).tobytes())
    assert memory[0] == 0
    assert (memory[1:] == 1.5).all()


# ---- threads ----


def test_the_number_of_threads_is_kept_within_bounds(engine, threads):
    default = engine.lib.copy_get_threads()
    assert 1 <= default <= 4
    for asked, given in [(1, 1), (3, 3), (MAX_THREADS, MAX_THREADS), (1000, MAX_THREADS), (0, default), (-5, default)]:
        threads(asked)
        assert engine.lib.copy_get_threads() == given


def test_any_number_of_threads_gives_the_same_copy(engine, threads):
    size = engine.large
    flat = noise((2 * size + 1,), 1)
    for count in (1, 2, 3, 7, MAX_THREADS):
        threads(count)
        engine.check(result := np.zeros_like(flat), flat)
        check_turned(engine, noise((1500, size // 12_000), 8))
        check_turned(engine, noise((3, size // 15), 4))
        check_turned(engine, noise((size // 15, 3), 4))
        check_turned(engine, noise((2, 3, 5, 7, size // 400), 2), (3, 1, 4, 0, 2))
        engine.fill(result[::3], b"\x07")
        assert (result[::3].view(np.uint8) == 7).all(), count
        assert same(result[1::3], flat[1::3]), count


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_child_made_by_fork_copies_with_threads(engine, threads):
    threads(4)
    check_turned(engine, source := noise((1200, 1200), 8), (1, 0))

    def copy_and_compare():
        result = np.zeros_like(source)
        engine.copy(result, source.T)
        assert same(result, source.T)

    assert exit_code_of_child(copy_and_compare) == 0


# ---- the same under sanitizers, memory allocated to the byte ----

LONG = pytest.mark.long
#: How the program is built, and how many cases a run takes in which nothing is expected.
FUZZED = {
    "address,undefined": (["-Og"], 30_000),
    "thread": (["-O1"], 8_000),
    "none": (["-O3", "-fwrapv"], 100_000),
}


@pytest.mark.parametrize(
    "kinds", ["address,undefined", *(pytest.param(kinds, marks=LONG) for kinds in ("thread", "none"))]
)
@pytest.mark.parametrize(
    ("is_whole", "small_caches"),
    [(False, True), pytest.param(True, True, marks=LONG), pytest.param(True, False, marks=LONG)],
)
def test_random_copies_equal_a_plain_loop_and_stay_in_bounds(tmp_path, kinds, is_whole, small_caches):
    flags, cases = FUZZED[kinds]
    if kinds != "none":
        flags = [*flags, "-g1", f"-fsanitize={kinds}", "-fno-sanitize-recover=all"]
        if not can_sanitize(kinds):
            pytest.skip(f"the compiler has no -fsanitize={kinds}")
    flags = [*flags, "-Dmalloc=test_malloc", str(C_FILES / "fuzz_copy.c"), str(C_FILES / "small_grids.c")]
    program = compile_copy(tmp_path / "fuzz_copy", *flags, small_caches=small_caches)
    for seed, count in [(1, cases), (2, cases)] if is_whole else [(0, cases // 10)]:
        command = [str(program), str(seed), str(count)]
        if kinds == "thread" and shutil.which("setarch"):
            command = ["setarch", os.uname().machine, "-R", *command]  # old runtimes fear young kernels' addresses
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{count} cases" in done.stdout
