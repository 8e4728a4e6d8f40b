"""Random kernels that wait, each run as it is split into regions, and as threads that take turns on fibers.

    python region_kernels.py COUNT SEED     prints what differs; COUNT kernels, each over a grid of its own

No thread races with another: a threadgroup's memory is written by its owner, between two barriers that all meet.
Which lanes meet in a loop that only some go through is nobody's promise, so no lane waits for others there.
"""

import contextlib
import random
import sys
from collections.abc import Iterable, Iterator
from unittest import mock

import numpy as np

import metal_dlpack as md
import softmetal
from metal_dlpack.language.errors import CompilerError
from softmetal.msl import compiler, regions

HEAD = """#include <metal_stdlib>
using namespace metal;
static uint mixed(uint x) { return (x ^ x >> 7) * 0x9E3779B1u + 3; }
static uint through(threadgroup uint *t, uint l, uint n, uint v, uint by) {
    t[l] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint other = t[(l + by) % n];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return other;
}
static uint summed(uint v) { if (v % 3 == 1) v = simd_sum(v) * 5; return v + simd_prefix_exclusive_sum(v); }
__attribute__((noinline)) static uint turned(uint v, uint by) { return simd_shuffle_xor(v, ushort(by % 32)) + by; }
kernel void f(device const uint *x, device uint *out, constant uint *u, threadgroup uint *given,
              uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]], uint3 where [[thread_position_in_threadgroup]],
              uint l [[thread_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]],
              uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint t[1024], w[32];
    threadgroup atomic_uint c[8];
    const uint i = (at.z * grid.y + at.y) * grid.x + at.x, n = size.x * size.y * size.z;
    uint v[4] = {x[i], i, where.x + 3 * where.y, l};
    uint p[5] = {1, 2, 3, 4, 5};
    t[l] = 0; given[l] = l; if (lane == 0) w[sg] = sg;
    for (uint k = l; k < 8; k += n) atomic_store_explicit(&c[k], k * 0x01234567u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
"""

LANES = {
    "uint": "simd_sum simd_product simd_min simd_max simd_and simd_or simd_xor simd_prefix_inclusive_sum "
    "simd_prefix_exclusive_sum simd_prefix_inclusive_product simd_broadcast_first quad_sum quad_min quad_xor "
    "quad_prefix_inclusive_sum quad_broadcast_first",
    "place": "simd_shuffle simd_shuffle_xor simd_shuffle_up simd_shuffle_down simd_broadcast simd_shuffle_rotate_up "
    "simd_shuffle_rotate_down",
    "quad place": "quad_shuffle quad_shuffle_xor quad_shuffle_up quad_shuffle_down quad_broadcast",
}
GROUPS = "32 64 48 256 7 1024 8x8 16x3 16x16 32x4 40x2 4x4x4 64x2x2 5x3x2"
TYPES = ("uint", "ushort", "uchar", "uint2", "uint4", "ushort3", "float", "half")


class Program:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.loops = 0
        self.counts = rng.choice(["add", "sub", "and", "or", "xor", "min", "max"])  # in any order they come to the same

    def value(self) -> str:
        choose = self.rng.choice
        return choose(
            [f"v[{k}]" for k in range(4)]
            + [
                f"u[{self.rng.randrange(4)}]",
                f"{self.rng.randrange(100)}u",
                f"p[{self.rng.randrange(5)}]",
                "lane",
                "sg",
            ]
            + [f"k{k}" for k in range(self.loops)]
        )

    def expression(self) -> str:
        one, other = self.value(), self.value()
        forms = [
            "{a} + {b}",
            "{a} * {b}",
            "{a} ^ {b} << 3",
            "mixed({a} - {b})",
            "min({a}, {b})",
            "{a} > {b} ? {a} : 7u",
            "p[{a} % 5]",
        ]
        return self.rng.choice(forms).format(a=one, b=other)

    def condition(self, is_uniform: bool) -> str:
        if is_uniform:
            return f"u[{self.rng.randrange(4)}] % {self.rng.randrange(2, 4)} == 0"
        return self.rng.choice(
            [
                f"({self.value()} & {self.rng.choice([1, 3, 64])}) == 0",
                f"l < {self.rng.choice([5, 32, 40])}",
                f"lane % {self.rng.choice([2, 3])} == 1",
            ]
        )

    def of_lanes(self, target: str) -> str:
        kind = self.rng.choice([*LANES, "vote", "barrier", "fill", "odd", "call"])
        if kind == "barrier":
            return "simdgroup_barrier(mem_flags::mem_none);"
        if kind == "vote":
            name = self.rng.choice(["simd_all", "simd_any", "quad_all", "quad_any", "simd_is_first"])
            asked = "" if name == "simd_is_first" else self.condition(False)
            return f"{target} += {name}({asked}) ? 3u : 5u; {target} ^= uint(ulong(simd_vote::vote_t(simd_ballot({self.condition(False)}))));"
        if kind == "fill":
            return f"{target} ^= simd_shuffle_and_fill_{self.rng.choice(['up', 'down'])}({self.value()}, {self.value()}, ushort({self.rng.randrange(32)}));"
        if kind == "call":
            return f"{target} ^= {self.rng.choice(['summed({})', 'turned({}, 3)', 'turned({}, v[1])']).format(self.value())};"
        if kind == "odd":
            kind = self.rng.choice(TYPES)
            made = f"{kind}({self.value()} & 255)"
            taken = f"simd_shuffle_xor({made}, ushort({self.rng.randrange(32)}))"
            part = ".x" if kind[-1].isdigit() else ""
            return f"{target} += uint({taken}{part});"
        name = self.rng.choice(LANES[kind].split())
        width = 4 if kind == "quad place" else 32
        if kind == "uint":
            return f"{target} ^= {name}({self.value()});"
        by = self.rng.choice([str(self.rng.randrange(width)), f"ushort(({self.value()} & {width - 1}))"])
        if name.endswith("broadcast") or "xor" in name or "_up" in name or "_down" in name:
            by = str(self.rng.randrange(width))
        return f"{target} ^= {name}({self.value()}, ushort({by}));"

    def statements(self, depth: int, together: bool, loops_apart: bool) -> Iterator[str]:
        for _ in range(self.rng.randrange(1, 5)):
            yield from self.statement(depth, together, loops_apart)

    def statement(self, depth: int, together: bool, loops_apart: bool) -> Iterator[str]:
        target = f"v[{self.rng.randrange(4)}]"
        kind = self.rng.choice(
            [
                "set",
                "set",
                "set",
                "if",
                "if",
                "for",
                "lanes",
                "lanes",
                "barrier",
                "barrier",
                "leave",
                "private",
                "atomic",
            ]
        )
        if kind == "barrier" and together:
            memory = self.rng.choice(["t", "t", "given"])
            yield f"{target} ^= through({memory}, l, n, {self.value()}, {self.rng.randrange(1, 70)});"
        elif kind == "lanes" and not loops_apart:
            yield self.of_lanes(target)
        elif kind == "leave" and together and depth == 0:
            yield f"if ({self.rng.choice(['l % 5 == 3', 'l >= 40', 'l < 3', 'lane == 9', 'v[0] % 11 == 2'])}) {{ out[i] = {self.value()}; return; }}"
        elif kind == "atomic":
            yield f"atomic_fetch_{self.counts}_explicit(&c[{self.value()} % 8], {self.value()}, memory_order_relaxed);"
        elif kind == "private":
            yield f"p[{self.value()} % 5] {self.rng.choice(['=', '+='])} {self.expression()};"
        elif kind == "if" and depth < 3:
            is_uniform = self.rng.random() < 0.4
            yield f"if ({self.condition(is_uniform)}) {{"
            yield from self.statements(depth + 1, together and is_uniform, loops_apart)
            if self.rng.random() < 0.5:
                yield "} else {"
                yield from self.statements(depth + 1, together and is_uniform, loops_apart)
            yield "}"
        elif kind == "for" and depth < 3:
            is_uniform = self.rng.random() < 0.6
            name, bound = (
                f"k{self.loops}",
                self.rng.choice(["3", "u[1] % 5"]) if is_uniform else f"({self.value()} & 3)",
            )
            yield f"for (uint {name} = 0, end{self.loops} = {bound}; {name} < end{self.loops}; {name}++) {{"
            self.loops += 1
            yield from self.statements(depth + 1, together and is_uniform, loops_apart or not (together and is_uniform))
            if self.rng.random() < 0.3 and is_uniform:
                yield f"if ({self.condition(True)}) {self.rng.choice(['break', 'continue'])};"
            self.loops -= 1
            yield "}"
        else:
            yield f"{target} = {self.expression()};"

    def text(self) -> str:
        body = [line for _ in range(self.rng.randrange(2, 6)) for line in self.statement(0, True, False)]
        last = "threadgroup_barrier(mem_flags::mem_threadgroup); v[0] += atomic_load_explicit(&c[l % 8], memory_order_relaxed);\n"
        last += "    out[i] = v[0] ^ v[1] * 3 ^ v[2] * 5 ^ v[3] * 7 ^ p[0] ^ p[3] ^ w[sg];"
        return HEAD + "\n".join(f"    {line}" for line in [*body, last]) + "\n}\n"


def grid(rng: random.Random) -> dict[str, tuple[int, ...]]:
    group = tuple(int(size) for size in rng.choice(GROUPS.split()).split("x"))
    threads = tuple(side * rng.randrange(1, 3) + (rng.randrange(side) if rng.random() < 0.4 else 0) for side in group)
    return {"threads": threads, "group": group}


@contextlib.contextmanager
def told_of_splits() -> Iterator[list[str | None]]:
    """Beside the block, for each kernel: None if it was split, else why not.  What clang refuses of it is an error."""
    split, to_machine_code, said = regions.split_at_waits, compiler.Compiler._to_machine_code, []

    def listens(text: str) -> str:
        said.append("")
        try:
            made = split(text)
        except (regions.CannotSplit, regions.NoWaits) as error:
            said[-1] = repr(error)
            raise
        said[-1] = None
        return made

    def is_taken(*how) -> None:
        try:
            to_machine_code(*how)
        except CompilerError as error:
            raise AssertionError("clang refuses what regions.py made") from error

    with (
        mock.patch.object(regions, "split_at_waits", listens),
        mock.patch.object(compiler.Compiler, "_to_machine_code", is_taken),
    ):
        yield said


def outcome(way: str, text: str, launch: dict, values: np.ndarray, chosen: np.ndarray) -> list[int]:
    """What a kernel writes: in regions, on fibers, checked or counted."""
    out = md.zeros(len(values), "uint32")
    with contextlib.ExitStack() as block:
        if way == "on fibers":
            text += "// on fibers\n"
            refuses = mock.patch.object(regions, "split_at_waits", side_effect=regions.CannotSplit("asked for"))
            block.enter_context(refuses)
        elif way == "checked":
            softmetal.configure(kernel_check=True)
            block.callback(softmetal.configure, kernel_check=False)
        kernel = md.kernel(text)
        run = kernel.count if way == "counted" else kernel
        run(md.asarray(values), out, md.asarray(chosen), threadgroup_memory={"given": 4096}, **launch)
        md.default_device().synchronize()
    return out.tolist()


def differing(number: int) -> str:
    """Where a kernel does another thing in regions than on fibers; or nothing."""
    rng = random.Random(number)
    text, launch = Program(rng).text(), grid(rng)
    found = differing_in(text, launch, number)
    return f"seed {number}: {found}" if found else ""


def differing_in(text: str, launch: dict, seed: int, ways: Iterable[str] = ("on fibers",)) -> str:
    """The same of one kernel, whose arguments are drawn, and of these ways beside regions."""
    threads = int(np.prod(launch["threads"]))
    drawn = np.random.default_rng(seed)
    values, chosen = drawn.integers(0, 2**32, threads, dtype="uint32"), drawn.integers(0, 50, 4, dtype="uint32")
    with told_of_splits():
        made = outcome("in regions", text, launch, values, chosen)
    for way in ways:
        other = outcome(way, text, launch, values, chosen)
        if wrong := [at for at in range(threads) if made[at] != other[at]]:
            return f"{launch}, {way}: {len(wrong)} of {threads} differ, first at {wrong[0]}"
    return ""


def main(count: int, seed: int) -> None:
    found = [said for number in range(seed, seed + count) if (said := differing(number))]
    print(*found, f"{count} kernels, {len(found)} differ", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
