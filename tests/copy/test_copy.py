"""The copy engine against NumPy and against a plain loop, through libraries made of the copy files alone."""

import ctypes
import itertools
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

FUZZER = C_FILES / "fuzz_copy.c"

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
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.copy_strided.restype = ctypes.c_bool
        self.lib.copy_strided.argtypes = [ctypes.c_void_p, ctypes.c_void_p] * 2
        self.lib.copy_fill.restype = None
        self.lib.copy_fill.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]

    def strided(self, dst, dst_base, src, src_base):
        return self.lib.copy_strided(ctypes.addressof(dst), dst_base, ctypes.addressof(src), src_base)

    def copy(self, dst, src):
        """Copy one NumPy array into another of the same shape and item size."""
        assert self.strided(layout_of(dst), dst.ctypes.data, layout_of(src), src.ctypes.data)

    def fill(self, dst, item):
        layout = layout_of(dst)
        self.lib.copy_fill(ctypes.addressof(layout), dst.ctypes.data, item)


@pytest.fixture(scope="module", params=[False, True], ids=["this machine's caches", "small caches"])
def engine(request, tmp_path_factory):
    library = tmp_path_factory.mktemp("copy") / "libcopy.so"
    return Engine(compile_copy(library, "-O2", "-shared", "-fPIC", small_caches=request.param))


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


#: The first seed finds most of it.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_small_copies_equal_numpy(engine, seed):
    run_cases(engine, seed, CASES // 4 - 500, arena_size=6000, limit=600)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_large_copies_equal_numpy(engine, seed):
    run_cases(engine, 100 + seed, 500, arena_size=300_000, limit=30_000)


# ---- the roads a copy can take ----


def noise(shape, itemsize):
    """Items of `itemsize` bytes, each byte random."""
    count = int(np.prod(shape, dtype=np.int64))
    data = np.random.default_rng(count).integers(0, 256, count * itemsize, dtype=np.uint8)
    return data.view(f"V{itemsize}").reshape(shape)


def same(a, b):
    return a.tobytes() == b.tobytes()


def check_turned(engine, source, order):
    """Copy `source`, its axes in another order, into a dense array."""
    turned = source.transpose(order)
    result = np.zeros(turned.shape, source.dtype)
    engine.copy(result, turned)
    assert same(result, turned)


@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 8, 12, 16, 24])
def test_matrices_of_every_small_size_are_transposed(engine, itemsize):
    for rows, columns in itertools.product([*range(1, 20), 31, 32, 33, 65], repeat=2):
        check_turned(engine, noise((rows, columns), itemsize), (1, 0))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("side", [127, 129, 255, 257, 511, 512, 513, 1023, 1024])
def test_matrices_larger_than_a_tile_are_transposed(engine, itemsize, side):
    check_turned(engine, noise((side, 200), itemsize), (1, 0))
    check_turned(engine, noise((200, side), itemsize), (1, 0))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shift", [0, 1, 16])
@pytest.mark.parametrize("extra", [0, 3])
def test_matrices_larger_than_the_caches_are_transposed(engine, itemsize, shift, extra):
    rows, columns = 2048, (18 << 20) // 2048 // itemsize // 64 * 64 + extra
    source = noise((rows, columns), itemsize)
    memory = np.zeros(source.nbytes + 64 + shift, np.uint8)
    start = -memory.ctypes.data % 64 + shift * itemsize % 64
    result = memory[start : start + source.nbytes].view(source.dtype).reshape(columns, rows)
    engine.copy(result, source.T)
    assert same(result, source.T)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("rows", [9, 64, 65, 256, 300, 1001, 1031])
def test_large_matrices_with_rows_anywhere_on_their_lines_are_transposed(engine, itemsize, rows):
    columns = (7 << 20) // rows // itemsize + 5
    check_turned(engine, noise((rows, columns), itemsize), (1, 0))
    padded = np.zeros((columns, rows + 3), f"V{itemsize}")
    source = noise((rows, columns), itemsize)
    engine.copy(padded[:, 1:-2], source.T)
    assert same(padded[:, 1:-2], source.T)
    assert not padded[:, 0].tobytes().strip(b"\0")
    assert not padded[:, -2:].tobytes().strip(b"\0")


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_channels_go_to_planes_and_back(engine, itemsize, channels):
    for pixels in [*range(1, 70), 1000]:
        check_turned(engine, noise((pixels, channels), itemsize), (1, 0))
        check_turned(engine, noise((2, channels, pixels), itemsize), (0, 2, 1))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shape", [(3, 5, 4, 6, 7), (4, 8, 4, 8, 16), (2, 16, 3, 4, 33)])
def test_axes_are_permuted_in_every_order(engine, itemsize, shape):
    source = noise(shape, itemsize)
    for order in itertools.permutations(range(5)):
        check_turned(engine, source, order)


@pytest.mark.parametrize("itemsize", [1, 2, 4])
@pytest.mark.parametrize("order", [(3, 0, 1, 2), (3, 2, 1, 0), (1, 3, 2, 0), (0, 3, 2, 1)])
def test_bands_larger_than_the_caches_are_permuted(engine, itemsize, order):
    check_turned(engine, noise((16 // itemsize, 32 * itemsize, 48, 768), itemsize), order)


@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 7, 8, 12, 16, 20, 32, 33, 100])
def test_slices_equal_numpy_s(engine, itemsize):
    source = noise((70, 90), itemsize)
    for key in itertools.product([np.s_[:], np.s_[::2], np.s_[::-1], np.s_[3:-4], np.s_[::-3], np.s_[5:6]], repeat=2):
        part = source[key]
        result = np.zeros(part.shape, source.dtype)
        engine.copy(result, part)
        assert same(result, part)
        spread = np.zeros_like(source)
        engine.copy(spread[key], part)
        expected = np.zeros_like(source)
        expected[key] = part
        assert same(spread, expected)


def test_long_rows_of_a_large_copy_equal_numpy_s(engine):
    source = noise((1024, 60_000), 1)
    result = np.zeros((1024, 59_990), source.dtype)
    engine.copy(result, source[:, 7:-3])
    assert same(result, source[:, 7:-3])


@pytest.mark.parametrize("run", [511, 513, 2048, 4000, 4096, 8172, 12288, 16344, 3 << 20])
@pytest.mark.parametrize("shift", [0, 5])
def test_long_runs_of_a_large_copy_equal_numpy_s(engine, run, shift):
    count = max(2, (7 << 20) // run)
    source = noise((count, run + 9), 1)
    result = np.zeros((count, run + 11), source.dtype)
    engine.copy(result[:, shift : shift + run], source[:, 3 : run + 3])
    assert same(result[:, shift : shift + run], source[:, 3 : run + 3])
    assert not result[:, :shift].tobytes().strip(b"\0")
    assert not result[:, shift + run :].tobytes().strip(b"\0")


@pytest.mark.parametrize("nbytes", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (9 << 20) + 77])
@pytest.mark.parametrize("shift", [0, 1, 63, 64])
def test_one_long_run_equals_memcpy_s(engine, nbytes, shift):
    source, memory = noise((nbytes,), 1), np.zeros(nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 64 + shift
    engine.copy(memory[start : start + nbytes].view(source.dtype), source)
    assert same(memory[start : start + nbytes], source)
    assert not memory[:start].any()
    assert not memory[start + nbytes :].any()


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_columns_of_rows_that_share_a_set_of_the_cache_are_copied(engine, itemsize):
    source = noise((700, 4096), 1)
    for width in (1, 3, 7):
        part = np.ndarray((700, width), f"V{itemsize}", source, 40, (4096, itemsize))
        result = np.zeros(part.shape, part.dtype)
        engine.copy(result, part)
        assert same(result, source[:, 40 : 40 + width * itemsize])


@pytest.mark.parametrize("row", [100, 1000, 2048, 2064, 4000, 8190, 8192, 40_000, 300_000])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 12, 16, 500, 4000])
def test_a_row_and_a_column_are_repeated(engine, row, itemsize):
    count = max(2, row // itemsize)
    one = noise((1, count), itemsize)
    result = np.zeros((7, count), one.dtype)
    engine.copy(result, np.broadcast_to(one, result.shape))
    assert same(result, np.broadcast_to(one, result.shape))
    column = noise((7, 1), itemsize)
    engine.copy(result, np.broadcast_to(column, result.shape))
    assert same(result, np.broadcast_to(column, result.shape))


@pytest.mark.parametrize("itemsize", [1, 4, 12, 600])
def test_a_row_is_repeated_in_an_array_larger_than_the_caches(engine, itemsize):
    one = noise((1, 12_345 // itemsize), itemsize)
    result = np.zeros((2100, one.shape[1]), one.dtype)
    engine.copy(result, np.broadcast_to(one, result.shape))
    assert same(result, np.broadcast_to(one, result.shape))


@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 8, 12, 16, 20, 300])
@pytest.mark.parametrize("count", [1, 2, 5, 16, 17, 100, 5000])
def test_one_item_fills_an_array(engine, itemsize, count):
    for item in (noise((1,), itemsize).tobytes(), bytes(itemsize), b"\x55" * itemsize):
        memory = np.zeros((3, count + 1), f"V{itemsize}")
        expected = memory.copy()
        expected[:, :count] = np.frombuffer(item, memory.dtype)
        engine.fill(memory[:, :count], item)
        assert same(memory, expected)


def test_a_large_array_is_filled(engine):
    memory = np.zeros(13_000_001, np.float32)
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


@pytest.mark.parametrize(
    ("dst", "src"),
    [
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[:, 1:], np.s_[:, :-1]),
        (np.s_[:-1, :-1], np.s_[1:, 1:]),
        (np.s_[:, ::2], np.s_[:, 1::2]),
        (np.s_[:, :20], np.s_[:, 20:]),
        (np.s_[:], np.s_[:]),
        (np.s_[:], np.s_[:1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("itemsize", [1, 3, 8])
def test_a_copy_within_one_array_reads_all_before_it_writes(engine, dst, src, itemsize):
    memory = noise((40, 40), itemsize)
    expected = memory.copy()
    expected[dst] = memory[src].copy()
    engine.copy(memory[dst], np.broadcast_to(memory[src], memory[dst].shape))
    assert same(memory, expected)


def test_a_matrix_is_transposed_in_place(engine):
    memory = noise((50, 50), 4)
    expected = memory.T.copy()
    engine.copy(memory, memory.T)
    assert same(memory, expected)


# ---- threads ----


def test_the_number_of_threads_is_kept_within_bounds(engine, threads):
    default = engine.lib.copy_get_threads()
    assert 1 <= default <= 4
    for asked, given in [(1, 1), (3, 3), (MAX_THREADS, MAX_THREADS), (1000, MAX_THREADS), (0, default), (-5, default)]:
        threads(asked)
        assert engine.lib.copy_get_threads() == given


@pytest.mark.parametrize("count", [1, 2, 3, 7, MAX_THREADS])
def test_any_number_of_threads_gives_the_same_copy(engine, threads, count):
    threads(count)
    flat = noise((40_000_001,), 1)
    engine.copy(result := np.zeros_like(flat), flat)
    assert same(result, flat)
    check_turned(engine, noise((1500, 1100), 8), (1, 0))
    check_turned(engine, noise((3, 1_000_003), 4), (1, 0))
    check_turned(engine, noise((1_000_003, 3), 4), (1, 0))
    check_turned(engine, noise((2, 3, 5, 7, 50_000), 2), (3, 1, 4, 0, 2))
    engine.fill(result[::3], b"\x07")
    assert (result[::3].view(np.uint8) == 7).all()
    assert same(result[1::3], flat[1::3])


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


@pytest.mark.parametrize(
    ("kinds", "flags", "cases"),
    [
        ("address,undefined", ["-O1"], 30_000),
        ("address,undefined", ["-O1", "-DCOPY_MOST_CALLS=23"], 4_000),  # no grid is large enough
        ("thread", ["-O1"], 8_000),
        ("", ["-O3", "-fwrapv"], 100_000),
    ],
    ids=["address,undefined", "address,undefined, small grids", "thread", "none"],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "small_caches",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["this machine's caches", "small caches"],
)
def test_random_copies_equal_a_plain_loop_and_stay_in_bounds(tmp_path, kinds, flags, cases, seed, small_caches):
    if seed == 0:
        cases //= 10  # enough to see that the program finds no fault at once
    if kinds:
        flags = [*flags, "-g", f"-fsanitize={kinds}", "-fno-sanitize-recover=all"]
        if not can_sanitize(kinds):
            pytest.skip(f"the compiler has no -fsanitize={kinds}")
    flags = [*flags, "-Dmalloc=test_malloc", str(FUZZER)]
    program = compile_copy(tmp_path / "fuzz_copy", *flags, small_caches=small_caches)
    command = [str(program), str(seed), str(cases)]
    if kinds == "thread" and shutil.which("setarch"):
        command = ["setarch", os.uname().machine, "-R", *command]  # old runtimes fear young kernels' addresses
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases" in done.stdout
