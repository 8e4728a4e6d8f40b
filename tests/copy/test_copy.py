"""The copy engine against NumPy and against a plain loop, through libraries made of the copy files alone."""

import ctypes
import functools
import itertools
import math
import os
import random
import shutil
import subprocess

import pytest
from copy_library import compile_copy, needs_compiler
from forking import fork
from machine import can_sanitize
from places import C_FILES

np = pytest.importorskip("numpy")

MAX_NDIM = 64
ITEMSIZES = [1, 2, 4, 8, 16, 1, 2, 4, 8, 3, 5, 6, 7, 9, 12, 13, 24, 31, 40]
CASES = 100_000
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


@pytest.fixture(scope="module", params=[False, True], ids=["this machine's caches", "small caches"])
def engine(request, tmp_path_factory):
    library = tmp_path_factory.mktemp("copy") / "libcopy.so"
    compile_copy(library, "-O2", "-shared", "-fPIC", small_caches=request.param)
    return Engine(library, large=1 << 18 if request.param else 18 << 20)


@pytest.fixture
def threads(engine):
    """Sets the number of threads; the default is back after the test."""
    yield engine.lib.copy_set_threads
    engine.lib.copy_set_threads(0)


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


#: The first seed and a quarter of the copies find most of it.
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4))])
def test_random_copies_equal_numpy(engine, seed):
    share = 1 if seed else 4
    run_cases(engine, seed, CASES // 4 // share, arena_size=6000, limit=600)
    run_cases(engine, 100 + seed, 500 // share, arena_size=300_000, limit=30_000)


# ---- the roads a copy can take ----


@functools.cache
def pool():
    return np.frombuffer(random.Random(1).randbytes(48 << 20), np.uint8)


def noise(shape, itemsize):
    """Items of `itemsize` bytes, each byte random; read-only."""
    return pool()[: math.prod(shape) * itemsize].view(f"V{itemsize}").reshape(shape)


def same(a, b):
    return a.tobytes() == b.tobytes()


def is_blank(part):
    return not part.tobytes().strip(b"\0")


def check_turned(engine, source, order=(1, 0)):
    """Copy `source`, its axes in another order, into a dense array."""
    turned = source.transpose(order)
    engine.check(np.zeros(turned.shape, source.dtype), turned)


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


# ---- nothing to copy, and memory shared by both sides ----


def test_an_empty_copy_touches_no_address(engine):
    for shape in [(0,), (3, 0), (0, 2**62), (2, 0, 5)]:
        empty = make_layout(shape, [2**62] * len(shape), 8)
        assert engine.strided(empty, None, empty, None)


def test_an_array_of_no_dimensions_is_one_item(engine):
    for itemsize in ITEMSIZES:
        source, result = noise((), itemsize), np.zeros((), f"V{itemsize}")
        engine.copy(result, source)
        assert same(result, source)


def test_the_strides_of_axes_of_extent_one_mean_nothing(engine):
    source, result = noise((5,), 4), np.zeros(5, "V4")
    wild = 2**63 - 1
    dst = make_layout([1, 5, 1], [wild, 1, -wild], 4)
    src = make_layout([1, 5, 1], [-wild, 1, wild], 4)
    assert engine.strided(dst, result.ctypes.data, src, source.ctypes.data)
    assert same(result, source)


#: Slices of one array: destination and source.
SHARED = [
    (np.s_[1:], np.s_[:-1]),
    (np.s_[:-1], np.s_[1:]),
    (np.s_[::-1], np.s_[:]),
    (np.s_[:, 1:], np.s_[:, :-1]),
    (np.s_[:-1, :-1], np.s_[1:, 1:]),
    (np.s_[:, ::2], np.s_[:, 1::2]),
    (np.s_[:, :20], np.s_[:, 20:]),
    (np.s_[:], np.s_[:]),
    (np.s_[:], np.s_[:1]),
]


def test_a_copy_within_one_array_reads_all_before_it_writes(engine):
    for (dst, src), itemsize in itertools.product(SHARED, [1, 3, 8]):
        memory, expected = noise((40, 40), itemsize).copy(), noise((40, 40), itemsize).copy()
        expected[dst] = memory[src].copy()
        engine.copy(memory[dst], np.broadcast_to(memory[src], memory[dst].shape))
        assert same(memory, expected), (dst, src, itemsize)
    memory = noise((50, 50), 4).copy()
    engine.copy(memory, memory.T)
    assert same(memory, noise((50, 50), 4).T)


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
    child = fork()
    if child == 0:
        result = np.zeros_like(source)
        engine.copy(result, source.T)
        os._exit(0 if same(result, source.T) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- the same under sanitizers, memory allocated to the byte ----

LONG = pytest.mark.long
#: How the program is built, and how many cases a run takes in which nothing is expected.
FUZZED = {
    "address,undefined": (["-O1"], 30_000),
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
        flags = [*flags, "-g", f"-fsanitize={kinds}", "-fno-sanitize-recover=all"]
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
