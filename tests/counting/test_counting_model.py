"""Random accesses, counted and worked out in NumPy, one lane after the other."""

import random
from collections import defaultdict

import numpy as np
import pytest

import metal_dlpack as md

pytestmark = [
    pytest.mark.needs_kernels,
    pytest.mark.needs_softmetal,
]

TYPES = {"uchar": 1, "ushort": 2, "float": 4, "uint2": 8, "float4": 16}
ITEMS = 512
GROUPS = (1, 7, 32, 33, 96, 250)


def expression(chance, depth=2):
    """Make an expression of i, the thread, l, its place in the threadgroup, and j, the loop's round; C and Python read it."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(["i", "l", "j", str(chance.randrange(40))])
    left, right = expression(chance, depth - 1), expression(chance, depth - 1)
    operator = chance.choice(["+", "*", "-", "^", "&", "%", ">>"])
    if operator in {"%", ">>"}:
        right = str(chance.randrange(1, 9))
    return f"(({left} {operator} {right}) & 65535)"


class Access:
    """In a loop whose rounds the lane decides, or in none, behind a condition: it reads, or writes, in one kind of memory."""

    def __init__(self, chance, number, memory):
        self.memory, self.number = memory, number
        self.type = chance.choice(["float", "float4"] if memory == "t" else list(TYPES))
        self.is_store = chance.random() < 0.5
        self.index, self.condition, self.rounds = expression(chance), expression(chance), expression(chance, 1)
        self.most_rounds = chance.choice([1, 4])
        self.modulus = 256 // TYPES[self.type] * 4 if memory == "t" else ITEMS
        self.shift = chance.randrange(3)

    def text(self):
        place = f"{self.memory}{self.number}[(({self.index}) % {self.modulus})]"
        does = (
            f"{place} = {self.type}(j);" if self.is_store else f"sum += uint({place}{'.x' if self.is_vector else ''});"
        )
        if self.is_vector and not self.is_store:
            does = f"{{ {self.type} v = {place}; sum += uint(v.x); }}"
        loop = f"for (uint j = 0; j < 1 + (({self.rounds}) % 4); j++) {{" if self.most_rounds > 1 else "{ uint j = 0;"
        return f"{loop}\nif ((({self.condition}) & {self.shift}) == 0)\n#line {1000 + self.number}\n{does}\n}}"

    @property
    def is_vector(self):
        return self.type[-1] in "24"

    def lanes(self, i, place):
        """(n, index) of each access of a thread: the n-th time is what counts, not the round."""
        n = 0
        for j in range(self.most_rounds + 1):
            known = {"i": i, "l": place, "j": j}
            if j >= 1 + eval(self.rounds, known) % self.most_rounds:
                return
            if eval(self.condition, known) & self.shift == 0:
                yield n, eval(self.index, known) % self.modulus
                n += 1


def worked_out(access, threads, group):
    """What the count of this access must be."""
    nbytes = TYPES[access.type]
    sums = defaultdict(int)
    touched = set()
    for begin in range(0, threads, group):
        size = min(group, threads - begin)
        for first in range(0, size, 32):
            width = min(32, size - first)
            together = defaultdict(list)
            for lane in range(first, first + width):
                for n, index in access.lanes(begin + lane, lane):
                    together[n].append(index * nbytes)
            for addresses in together.values():
                every = {at + byte for at in addresses for byte in range(nbytes)}
                touched |= every
                sums["accesses"] += 1
                sums["lanes"] += len(addresses)
                sums["lanes_possible"] += width
                if access.memory == "t":
                    words = {byte // 4 for byte in every}
                    sums["rounds"] += int(np.bincount([word % 32 for word in words]).max())
                    sums["least_rounds"] += -(-len(words) // 32)
                else:
                    sums["lines"] += len({byte // 128 for byte in every})
                    sums["least_lines"] += -(-len(every) // 128)
    return sums, len(touched)


def source_of(accesses):
    shared = [one for one in accesses if one.memory == "t"]
    buffers = [one for one in accesses if one.memory == "b"]
    parameters = "".join(f"device {one.type} *b{one.number}, " for one in buffers)
    variables = "\n".join(f"threadgroup {one.type} t{one.number}[{one.modulus}];" for one in shared)
    body = "\n".join(one.text() for one in accesses)
    return (
        "#include <metal_stdlib>\nusing namespace metal;\n"
        f"kernel void k({parameters}device uint *out, uint i [[thread_position_in_grid]], "
        "uint l [[thread_index_in_threadgroup]]) {\n"
        f"{variables}\nuint sum = 0;\n{body}\nout[i] = sum;\n}}"
    )


@pytest.mark.parametrize("seed", [*range(3), *range(100, 140)])
@pytest.mark.some(1)
def test_random_accesses_count_what_numpy_works_out(seed):
    chance = random.Random(seed)
    accesses = [Access(chance, number, "t" if number % 4 == 3 else "b") for number in range(8)]
    kernel = md.kernel(source_of(accesses))
    threads, group = chance.randrange(1, 300), chance.choice(GROUPS)
    given = [md.Buffer(ITEMS * TYPES[one.type]) for one in accesses if one.memory == "b"]
    count = kernel.count(*given, md.zeros(threads, "uint32"), n=threads, group=group)
    for one in accesses:
        sums, distinct = worked_out(one, threads, group)
        found = [each for each in count.accesses if each.line == 1000 + one.number]
        assert len(found) <= 1
        names = ("accesses", "lanes", "lanes_possible", "lines", "least_lines", "rounds", "least_rounds")
        counted = {name: getattr(found[0], name) if found else 0 for name in names}
        assert counted == {name: sums[name] for name in names}, f"seed {seed}, access {one.number}"
        if one.memory == "b":
            argument = count[f"b{one.number}"]
            assert (argument.distinct_written if one.is_store else argument.distinct_read) == distinct


@pytest.mark.parametrize(("threads", "group"), [(1000, 96), (3000, 1024), (700, 50)])
@pytest.mark.parametrize("period", [1, 16, 32, 96, 128, 320])
def test_neighbours_are_counted_in_the_argument_where_they_are(period, threads, group):
    """Along each other for some SIMD-groups, and then in another argument, or at its end."""
    kernel = md.kernel(
        "kernel void k(device float *x, device float *y, constant uint &period, constant uint &n,"
        "uint i [[thread_position_in_grid]]) { (i / period % 2 ? y : x)[i < n / 2 ? i : n - 1 - i] = 1; }"
    )
    count = kernel.count(md.zeros(threads), md.zeros(threads), period, threads, n=threads, group=group)
    i = np.arange(threads)
    place = np.where(i < threads // 2, i, threads - 1 - i)
    simdgroup = i // group * 1024 + i % group // 32
    for number, argument in enumerate([count["x"], count["y"]]):
        here = i // period % 2 == number
        found = (argument.stores, argument.accesses, argument.lines, argument.distinct_written)
        lines = {*zip(simdgroup[here], place[here] // 32, strict=True)}
        assert found == (here.sum(), len({*simdgroup[here]}), len(lines), 4 * len({*place[here]}))
