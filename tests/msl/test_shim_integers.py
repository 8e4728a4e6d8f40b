"""The shim's functions of integers, beside Python's own, which have no width."""

import numpy as np
import pytest
from kernel_images import quickly

pytestmark = pytest.mark.needs_numpy

TYPES = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}


class Width:
    """Python integers as those of one type."""

    def __init__(self, dtype):
        limits = np.iinfo(dtype)
        self.bits, self.least, self.most = limits.bits, int(limits.min), int(limits.max)
        self.is_signed = self.least < 0

    def wrap(self, x):
        x &= (1 << self.bits) - 1
        return x - (1 << self.bits) if x > self.most else x

    def saturate(self, x):
        return max(self.least, min(self.most, x))

    def low24(self, x):
        x &= 0xFFFFFF
        return x - (1 << 24) if self.is_signed and x >> 23 else x

    def pattern(self, x):
        return x & ((1 << self.bits) - 1)


def trailing_zeros(width, x):
    return (x & -x).bit_length() - 1 if x else width.bits


def reverse_bits(width, x):
    return int(f"{width.pattern(x):0{width.bits}b}"[::-1], 2)


def rotate(width, x, by):
    by = width.pattern(by) % width.bits
    x = width.pattern(x)
    return x << by | x >> (width.bits - by)


#: Name: the result in Python, of x, y and z, wrapped to the type afterwards.
FUNCTIONS = {
    "abs(x)": lambda w, x, y, z: abs(x),
    "absdiff(x, y)": lambda w, x, y, z: abs(x - y),
    "addsat(x, y)": lambda w, x, y, z: w.saturate(x + y),
    "subsat(x, y)": lambda w, x, y, z: w.saturate(x - y),
    "hadd(x, y)": lambda w, x, y, z: (x + y) >> 1,
    "rhadd(x, y)": lambda w, x, y, z: (x + y + 1) >> 1,
    "mulhi(x, y)": lambda w, x, y, z: x * y >> w.bits,
    "madhi(x, y, z)": lambda w, x, y, z: (x * y >> w.bits) + z,
    "madsat(x, y, z)": lambda w, x, y, z: w.saturate(x * y + z),
    "clz(x)": lambda w, x, y, z: w.bits - w.pattern(x).bit_length(),
    "ctz(x)": lambda w, x, y, z: trailing_zeros(w, w.pattern(x)),
    "popcount(x)": lambda w, x, y, z: w.pattern(x).bit_count(),
    "reverse_bits(x)": lambda w, x, y, z: reverse_bits(w, x),
    "rotate(x, y)": lambda w, x, y, z: rotate(w, x, y),
    "max(x, y)": lambda w, x, y, z: max(x, y),
    "min(x, y)": lambda w, x, y, z: min(x, y),
    "max3(x, y, z)": lambda w, x, y, z: max(x, y, z),
    "min3(x, y, z)": lambda w, x, y, z: min(x, y, z),
    "median3(x, y, z)": lambda w, x, y, z: sorted([x, y, z])[1],
    "clamp(x, min(y, z), max(y, z))": lambda w, x, y, z: max(min(y, z), min(max(y, z), x)),
    "x + y": lambda w, x, y, z: x + y,
    "x * y": lambda w, x, y, z: x * y,
}


def numbers(dtype, seed):
    """Three columns: every mixture of edges, then bits at random."""
    limits = np.iinfo(dtype)
    edges = [limits.min, limits.max, 0, 1, 2, limits.max - 1, limits.max // 3]
    edges += [-1, limits.min + 1] if limits.min else []
    edges = np.array(edges, dtype)
    mixed = np.array(np.meshgrid(edges, edges, edges)).reshape(3, -1)
    random = np.random.default_rng(seed).integers(limits.min, limits.max, (3, 500), dtype=dtype, endpoint=True)
    return np.concatenate([mixed, random], axis=1)


@pytest.mark.parametrize("kind", quickly("char", "uint", of=TYPES))
def test_functions_of_integers(shim, kind):
    dtype = TYPES[kind]
    width, columns = Width(dtype), numbers(dtype, 3)
    inputs = {name: (kind, column) for name, column in zip("xyz", columns, strict=True)}
    got = shim.evaluate({text: f"{kind}({text})" for text in FUNCTIONS}, kind, dtype, **inputs)
    rows = [tuple(map(int, row)) for row in columns.T]
    for text, function in FUNCTIONS.items():
        exact = [width.wrap(function(width, *row)) for row in rows]
        wrong = [(row, int(g), e) for row, g, e in zip(rows, got[text], exact, strict=True) if int(g) != e]
        assert not wrong, f"{text}: {wrong[:3]}"


@pytest.mark.parametrize("kind", ["int", "uint"])
def test_products_of_24_bits(shim, kind):
    dtype = TYPES[kind]
    width = Width(dtype)
    x, y, z = numbers(dtype, 4)
    inputs = {"x": (kind, x), "y": (kind, y), "z": (kind, z)}
    products = [width.low24(int(a)) * width.low24(int(b)) for a, b in zip(x, y, strict=True)]
    sums = [product + int(c) for product, c in zip(products, z, strict=True)]
    exact = {"mul24(x, y)": list(map(width.wrap, products)), "mad24(x, y, z)": list(map(width.wrap, sums))}
    shim.check_values(exact, kind, dtype, **inputs)


@pytest.mark.parametrize("kind", quickly("char", "uint", of=TYPES))
def test_bits_taken_out_and_put_in(shim, kind):
    dtype = TYPES[kind]
    width = Width(dtype)
    places = [(o, b) for o in range(width.bits + 1) for b in range(width.bits - o + 1)]
    offset, bits = np.array(places, np.uint32).T
    x, y, _ = (np.resize(column, len(places)) for column in numbers(dtype, 5))
    inputs = {"x": (kind, x), "y": (kind, y), "offset": ("uint", offset), "bits": ("uint", bits)}
    expressions = {"out": "extract_bits(x, offset, bits)", "into": "insert_bits(x, y, offset, bits)"}
    got = shim.evaluate(expressions, kind, dtype, **inputs)
    for k, (o, b) in enumerate(places):
        mask = (1 << b) - 1
        taken = width.pattern(int(x[k])) >> o & mask
        if width.is_signed and b and taken >> (b - 1):
            taken -= 1 << b
        assert int(got["out"][k]) == taken, (x[k], o, b)
        put = width.pattern(int(x[k])) & ~(mask << o) | (int(y[k]) & mask) << o
        assert int(got["into"][k]) == width.wrap(put), (x[k], y[k], o, b)


def test_vectors_of_integers_go_by_component(shim):
    x = np.random.default_rng(1).integers(0, 2**32, (50, 4), dtype=np.uint32)
    exact = {
        "clz(x)": [[32 - int(v).bit_length() for v in row] for row in x],
        "rotate(x, uint4(5))": x << 5 | x >> 27,
        "max(x, 7u)": np.maximum(x, 7),
        "extract_bits(x, 4, 9)": x >> 4 & 0x1FF,
    }
    shim.check_values(exact, "uint4", (np.uint32, 4), x=("uint4", x))
