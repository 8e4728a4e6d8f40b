"""What threads tell each other: SIMD-groups, quad-groups, their matrices, and atomics, with the run time."""

import itertools

import numpy as np
import pytest
from kernel_images import quickly

pytestmark = pytest.mark.needs_numpy

LANES = 32
REDUCTIONS = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
#: The last SIMD-group of a threadgroup of 40 has 8 lanes.
GROUPS = [32, 64, 40]


def items(count=160):
    return np.random.default_rng(1).integers(-9, 10, count).astype(np.int32)


def lanes_of(count, group):
    """For each thread, which threads are in its SIMD-group, by their positions."""
    threads = np.arange(count)
    simdgroup = threads // group * 100 + threads % group // LANES
    return [np.flatnonzero(simdgroup == s) for s in simdgroup]


def test_what_lanes_can_exchange_is_a_question_of_types(shim):
    """By the name that real libraries ask: neither 64 bits nor bfloat."""
    kinds = {"float": 1, "half": 1, "uint": 1, "short4": 1, "char": 1, "long": 0, "ulong2": 0, "bfloat": 0, "bool": 0}
    shim.check(
        " ".join(f"static_assert(__is_valid_simdgroup_type<{kind}>::value == {it});" for kind, it in kinds.items())
    )


def quads_of(count, group):
    return [
        members[lane // 4 * 4 : lane // 4 * 4 + 4]
        for members, lane in zip(lanes_of(count, group), lane_of(count, group), strict=True)
    ]


def lane_of(count, group):
    return np.arange(count) % group % LANES


KINDS = ["float", "half", "bfloat", "short", "uchar", "ulong", "float4", "packed_float3"]
GROUPED = {"simd": lanes_of, "quad": quads_of}


@pytest.mark.parametrize("group", quickly(40, of=GROUPS))
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.some(1)
def test_reductions_and_scans(shim, kind, group):
    x = items()
    members, lane = GROUPED[kind](len(x), group), lane_of(len(x), group)
    place = lane if kind == "simd" else lane % 4
    exact = {}
    with np.errstate(over="ignore"):
        for name, function in REDUCTIONS.items():
            exact[f"{kind}_{name}(x)"] = [function.reduce(x[m], dtype=np.int32) for m in members]
        for (what, past), name in itertools.product({"inclusive": 1, "exclusive": 0}.items(), ("sum", "product")):
            before = [x[m][: p + past] for m, p in zip(members, place, strict=True)]
            exact[f"{kind}_prefix_{what}_{name}(x)"] = [REDUCTIONS[name].reduce(row, dtype=np.int32) for row in before]
    shim.check_values(exact, "int", np.int32, group=group, x=("int", x))


@pytest.mark.parametrize("kind", GROUPED)
def test_shuffles(shim, kind):
    """Each lane's source, by its place among the lanes that shuffle; -1 leaves the lane its own."""
    x, y = items(96), items(96) + 100
    width = LANES if kind == "simd" else 4
    p = np.arange(96) % width
    sources = {
        "shuffle(x, 3)": p * 0 + 3,
        f"shuffle(x, {width - 1} - ushort(i) % {width})": width - 1 - p,
        "broadcast(x, 1)": p * 0 + 1,
        "broadcast_first(x)": p * 0,
        "shuffle_xor(x, 2)": p ^ 2,
        "shuffle_up(x, 2)": np.where(p >= 2, p - 2, -1),
        "shuffle_down(x, 3)": np.where(p + 3 < width, p + 3, -1),
        "shuffle_rotate_up(x, 3)": (p - 3) % width,
        "shuffle_rotate_down(x, 3)": (p + 3) % width,
    }
    filled = {
        "shuffle_and_fill_up(x, y, 1)": (-1, width),
        "shuffle_and_fill_down(x, y, 2)": (2, width),
        "shuffle_and_fill_up(x, y, 1, 2)": (-1, 2),
        "shuffle_and_fill_down(x, y, 1, 2)": (1, 2),
    }
    i, first = np.arange(96), np.arange(96) - p
    exact = {f"{kind}_{text}": x[np.where(source < 0, i, first + source)] for text, source in sources.items()}
    for text, (by, modulo) in filled.items():
        q = i % modulo
        at = i - q + (q + by) % modulo
        exact[f"{kind}_{text}"] = np.where((q + by >= 0) & (q + by < modulo), x[at], y[at])
    shim.check_values(exact, "int", np.int32, group=96, x=("int", x), y=("int", y))


@pytest.mark.parametrize("lanes", [1, 28, 31])
def test_a_sum_that_fills_from_above_is_that_of_the_lanes_there_are(shim, lanes):
    x = items(lanes)
    before = """
    static int sum(int x) {
        for (ushort by = 16; by > 0; by /= 2) x += simd_shuffle_and_fill_down(x, 0, by);
        return simd_broadcast(x, 0);
    }
    """
    shim.check_values({"sum(x)": [x.sum()] * lanes}, "int", np.int32, group=32, before=before, x=("int", x))


@pytest.mark.parametrize("group", quickly(40, of=GROUPS))
def test_votes(shim, group):
    x = items()
    members, lane = lanes_of(len(x), group), lane_of(len(x), group)

    def mask(holds, among):
        return [sum(1 << k for k, m in enumerate(row) if holds[m]) for row in among]

    quads = quads_of(len(x), group)
    exact = {
        "simd_all(x > -9)": [(x[m] > -9).all() for m in members],
        "simd_any(x == 9)": [(x[m] == 9).any() for m in members],
        "simd_is_first()": lane == 0,
        "(simd_vote::vote_t)simd_ballot(x > 0)": mask(x > 0, members),
        "ulong(simd_active_threads_mask())": mask(x == x, members),
        "quad_all(x > -5)": [(x[m] > -5).all() for m in quads],
        "quad_any(x > 5)": [(x[m] > 5).any() for m in quads],
        "ushort(quad_ballot(x > 0))": mask(x > 0, quads),
        "quad_is_first()": lane % 4 == 0,
        "x > 0 ? ulong(quad_all(x > 0)) : 0": x > 0,
        "simd_ballot(true).all()": [len(m) == LANES for m in members],
        "simd_ballot(x > 7).any()": [(x[m] > 7).any() for m in members],
    }
    shim.check_values(exact, "ulong", np.uint64, group=group, x=("int", x))


def test_lanes_of_two_branches_do_not_meet(shim):
    """The compiler may neither merge the two calls nor move one out of its branch."""
    x = items(64)
    before = """
    static int both(int x, uint i) {
        int sum;
        if (i % 3 == 0) sum = simd_sum(x); else sum = simd_sum(x);
        return sum;
    }
    static int early(int x, uint i) { if (i % 32 > 20) return -1; return simd_sum(x); }
    static int loop(int x, uint i) {
        int sum = 0;
        for (uint k = 0; k < i % 5; k++) sum += simd_sum(1);
        return sum;
    }
    template <class T> static T twice(T x) { return simd_sum(x) + simd_max(x); }
    """
    rows, i = x.reshape(2, 32), np.arange(64).reshape(2, 32)

    def of_each_branch(function, chosen):
        pairs = zip(rows, chosen, strict=True)
        return np.concatenate([np.where(kept, function(row[kept]), function(row[~kept])) for row, kept in pairs])

    active = np.array([[(row > k).sum() for k in range(5)] for row in i % 5])
    exact = {
        "both(x, i)": of_each_branch(np.sum, i % 3 == 0),
        "i % 2 ? twice(x) : twice(x)": of_each_branch(lambda lanes: lanes.sum() + lanes.max(), i % 2 == 1),
        "early(x, i)": np.where(i % 32 > 20, -1, rows[:, :21].sum(axis=1, keepdims=True)).ravel(),
        "loop(x, i)": [active[k // 32][: k % 5].sum() for k in range(64)],
    }
    shim.check_values(exact, "int", np.int32, group=32, before=before, x=("int", x))


@pytest.mark.parametrize("kind", quickly("bfloat", "uchar", "packed_float3", of=KINDS))
def test_values_of_each_type_travel(shim, kind):
    texts = {"up": f"float(first(simd_shuffle_up({kind}(x), 1)))", "sum": f"float(first(simd_sum({kind}(x))))"}
    before = """
    template <class T> static auto first(T x) { if constexpr (is_vector_v<T>) return x[0]; else return x; }
    """
    x = np.arange(32, dtype=np.int32) % 7
    texts = texts if "packed" not in kind else {"up": texts["up"]}
    got = shim.evaluate(texts, "float", np.float32, before=before, x=("int", x))
    np.testing.assert_array_equal(got["up"], np.concatenate([x[:1], x[:-1]]))
    if "sum" in got:
        np.testing.assert_array_equal(got["sum"], np.full(32, x.sum()))


@pytest.mark.parametrize("kind", quickly("bfloat", of=["float", "half", "bfloat"]))
def test_matrices_of_a_simdgroup(shim, kind):
    a, b, c = np.random.default_rng(3).integers(-4, 5, (3, 16, 16)).astype(np.float32)
    matrix = f"simdgroup_matrix<{kind}, 8, 8>"
    before = f"""
    template <class F> static float made(threadgroup {kind} *memory, uint i, uint k, F multiply) {{
        {matrix} d = multiply();
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_store(d, memory, 8);
        simdgroup_barrier(mem_flags::mem_threadgroup);
        return float(memory[i % 32 * 2 + k]);
    }}
    static threadgroup {kind} *copied(threadgroup {kind} *memory, device const float *x, uint i) {{
        for (uint k = i % 32; k < 256; k += 32) memory[k] = {kind}(x[k]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        return memory;
    }}
    """
    load = f"[&] {{ {matrix} m; simdgroup_load(m, copied(memory[1], all_a, i), 16%s); return m; }}"
    product = f"""[&] {{
        {matrix} m, n, d({kind}(0)), e;
        simdgroup_load(m, copied(memory[1], all_a, i), 16);
        simdgroup_load(n, copied(memory[2], all_b, i), 16, ulong2(8, 8));
        simdgroup_load(e, copied(memory[3], all_c, i), 16, ulong2(0, 8));
        %s
        return d;
    }}"""
    made = {
        "load": (load % "", a[:8, :8]),
        "origin": (load % ", ulong2(3, 5)", a[5:13, 3:11]),
        "transposed": (load % ", ulong2(0, 0), true", a[:8, :8].T),
        "transposed origin": (load % ", ulong2(3, 5), true", a[5:13, 3:11].T),
        "diagonal": (f"[&] {{ return {matrix}({kind}(3)); }}", 3 * np.eye(8)),
        "filled": (f"[&] {{ return make_filled_simdgroup_matrix<{kind}, 8, 8>(2.0f); }}", np.full((8, 8), 2)),
        "multiply": (product % "simdgroup_multiply(d, m, n);", a[:8, :8] @ b[8:, 8:]),
        "accumulate": (product % "simdgroup_multiply_accumulate(d, m, n, e);", a[:8, :8] @ b[8:, 8:] + c[8:, :8]),
        "operator": (product % "d = m * n;", a[:8, :8] @ b[8:, 8:]),
    }
    texts = {(name, k): f"made(memory[0], i, {k}, {text})" for name, (text, _) in made.items() for k in (0, 1)}
    inputs = {letter: ("float", m.ravel()) for letter, m in zip("abc", (a, b, c), strict=True)}
    within = f"threadgroup {kind} memory[4][256];"
    got = shim.evaluate(texts, "float", np.float32, group=32, before=before, within=within, **inputs)
    for name, (_, exact) in made.items():
        both = np.stack([got[name, 0][:32], got[name, 1][:32]], axis=1).reshape(8, 8)
        np.testing.assert_array_equal(both, exact, name)


def test_the_lanes_of_a_matrix_hold_what_apples_hold(shim):
    """SPEC mlx/backend/metal/kernels/steel/gemm/mma.h get_coord: a kernel that knows the layout addresses by it."""
    x = np.arange(64, dtype=np.float32)
    texts = {
        k: f"[&] {{ simdgroup_float8x8 m; simdgroup_load(m, all_x, 8); return m.thread_elements()[{k}]; }}()"
        for k in (0, 1)
    }
    got = shim.evaluate(texts, "float", np.float32, group=32, x=("float", x))
    lane = np.arange(32)
    quad = lane // 4
    row, column = (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2
    np.testing.assert_array_equal(got[0][:32], row * 8 + column)
    np.testing.assert_array_equal(got[1][:32], row * 8 + column + 1)


ATOMICS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
}


def check_atomics(shim, exact, result, dtype, kind, x):
    """Each expression gives these values; `a` points to a variable in device memory, where a first result would lie."""
    within = f"device atomic_{kind} *a = (device atomic_{kind} *)(out + i);"
    texts = {"the variable": f"{result}(0)"} | {text: text for text in exact}
    got = shim.evaluate(texts, result, dtype, within=within, x=(kind, x))
    for text, values in exact.items():
        np.testing.assert_array_equal(got[text], values, text)


ATOMIC_TYPES = {"int": np.int32, "uint": np.uint32, "float": np.float32}


@pytest.mark.parametrize("kind", quickly("uint", "float", of=ATOMIC_TYPES))
def test_atomic_functions_return_what_was_there(shim, kind):
    dtype = ATOMIC_TYPES[kind]
    x = np.arange(40).astype(dtype)
    names = [name for name in ATOMICS if kind != "float" or name in {"add", "sub"}]
    call = "[&] {{ atomic_store_explicit(a, x, memory_order_relaxed); auto old = {do}; return {what}; }}()"
    wrap = (lambda v: v % 2 ** (8 * x.itemsize)) if kind == "uint" else (lambda v: v)
    exact = {call.format(do="atomic_exchange_explicit(a, 3, memory_order_relaxed)", what="old"): x}
    for name in names:
        do = f"atomic_fetch_{name}_explicit(a, 7, memory_order_relaxed)"
        exact[call.format(do=do, what="old")] = x
        after = [wrap(ATOMICS[name](v.item(), 7 if kind != "float" else 7.0)) for v in x]
        exact[call.format(do=do, what="atomic_load_explicit(a, memory_order_relaxed)")] = np.array(after, dtype)
    check_atomics(shim, exact, kind, dtype, kind, x)


def test_the_smallest_and_largest_ulong(shim):
    """No function reads an atomic_ulong: its bytes are read."""
    x = np.array([0, 5, 7, 9, 2**64 - 1], np.uint64)
    call = "[&] {{ device ulong *bytes = (device ulong *)a; *bytes = x; atomic_{}_explicit(a, 7ul, memory_order_relaxed); return *bytes; }}()"
    exact = {call.format("min"): np.minimum(x, np.uint64(7)), call.format("max"): np.maximum(x, np.uint64(7))}
    check_atomics(shim, exact, "ulong", np.uint64, "ulong", x)


def test_compare_and_exchange(shim):
    x = np.arange(6, dtype=np.int32)
    call = """[&] {
        int expected = 3;
        atomic_store_explicit(a, x, memory_order_relaxed);
        bool is_same = atomic_compare_exchange_weak_explicit(a, &expected, 9, memory_order_relaxed, memory_order_relaxed);
        return int3(is_same, expected, atomic_load_explicit(a, memory_order_relaxed));
    }()"""
    exact = {f"packed_int3({call})": [[v == 3, v if v != 3 else 3, 9 if v == 3 else v] for v in x]}
    check_atomics(shim, exact, "packed_int3", (np.int32, 3), "int", x)
