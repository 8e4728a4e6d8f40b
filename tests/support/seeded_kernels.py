"""Ten right kernels, and small defects to put into them: where a report must find each.

A defect changes one piece of a kernel's text.  A line is named by a piece of it, as it stands after the change.
"""

from dataclasses import dataclass, field

import numpy as np

import metal_dlpack as md

RACE, GROUPS, UNWRITTEN = "race", "race-of-threadgroups", "unwritten-threadgroup-memory"
OUTSIDE, CONST, MISALIGNED = "out-of-bounds", "write-to-const", "misaligned"
BARRIER, LANES = "barrier-divergence", "simdgroup-divergence"
ARRAY, DIVISION, SHIFT = "array-index", "division-by-zero", "shift-amount"

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
WAIT = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@dataclass(frozen=True)
class Defect:
    """`old`, once in the kernel's text, becomes `new`; then there is a finding for each (kind, lines)."""

    old: str
    new: str
    kind: str
    lines: tuple


def array(dtype, shape):
    """0, 1, 2, ..."""
    return md.asarray(np.arange(np.prod(shape)).reshape(shape).astype(dtype))


@dataclass(frozen=True)
class Seeded:
    """A kernel, how it is launched, and what can be wrong in it."""

    text: str
    arguments: tuple  # (dtype, shape) of each array, or a number
    launch: dict
    defects: tuple
    name: str = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "name", self.text.partition("kernel void ")[2].partition("(")[0])

    def source(self, defect=None):
        if defect is None:
            return METAL + self.text
        assert self.text.count(defect.old) == 1, (defect, self.text.count(defect.old))
        return METAL + self.text.replace(defect.old, defect.new)

    def run(self, source, times=1):
        """Launch it; an access outside of a buffer ends a launch."""
        kernel = md.kernel(source)
        for _ in range(times):
            given = [one if isinstance(one, int) else array(*one) for one in self.arguments]
            try:
                kernel(*given, **self.launch)
                given[0].device.synchronize()
            except md.MetalError as error:
                assert "a thread" in str(error) or "threads" in str(error)


SEEDED = (
    Seeded(
        """
kernel void total(device const float *x, device float *out, uint i [[thread_position_in_grid]],
                  uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]])
{
    threadgroup float part[64];
    part[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_count = 32; half_count > 0; half_count /= 2) {
        if (t < half_count) {
            part[t] += part[t + half_count];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup); // of the loop
    }
    if (t == 0) {
        out[g] = part[0];
    }
}
""",
        (("float32", 256), ("float32", 4)),
        {"threads": 256, "group": 64},
        (
            Defect("        threadgroup_barrier(mem_flags::mem_threadgroup); // of the loop", "", RACE, ("part[t + half_count]",)),
            Defect(f"part[t] = x[i];\n    {WAIT}", "part[t] = x[i];\n", RACE, ("part[t] = x[i]", "part[t + half_count]")),
            Defect("if (t < half_count)", "if (t <= half_count && t < 32)", RACE, ("part[t + half_count]",)),
            Defect("out[g]", "out[g + 1]", OUTSIDE, ("out[g + 1]",)),
            Defect("= x[i];", "= x[i + 1];", OUTSIDE, ("x[i + 1]",)),
            Defect("part[t] = x[i];", "if (t != 17) part[t] = x[i];", UNWRITTEN, ("part[t + half_count]",)),
            Defect("out[g]", "out[g / 2]", GROUPS, ("out[g / 2]",)),
        ),
    ),
    Seeded(
        """
kernel void running_sum(device float *x, uint t [[thread_index_in_threadgroup]])
{
    threadgroup float a[128];
    threadgroup float b[128];
    a[t] = x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = 1; step < 128; step *= 2) {
        b[t] = t >= step ? a[t] + a[t - step] : a[t];
        threadgroup_barrier(mem_flags::mem_threadgroup); // b is whole
        a[t] = b[t];
        threadgroup_barrier(mem_flags::mem_threadgroup); // a is whole
    }
    x[t] = a[t];
}
""",
        (("float32", 128),),
        {"threads": 128, "group": 128},
        (
            Defect("        threadgroup_barrier(mem_flags::mem_threadgroup); // b is whole", "", RACE, ("a[t - step]", "a[t] = b[t]")),
            Defect("        threadgroup_barrier(mem_flags::mem_threadgroup); // a is whole", "", RACE, ("a[t - step]", "a[t] = b[t]")),
            Defect("threadgroup_barrier(mem_flags::mem_threadgroup); // a is whole", "threadgroup_barrier(mem_flags::mem_none);", RACE, ("a[t - step]", "a[t] = b[t]")),
            Defect("t >= step ?", "t + 1 >= step ?", ARRAY, ("a[t - step]",)),
        ),
    ),
    Seeded(
        """
kernel void transposed(device const float *x, device float *y, constant uint &n, uint2 at [[thread_position_in_threadgroup]],
                       uint2 tile_at [[threadgroup_position_in_grid]])
{
    threadgroup float tile[16][17];
    uint2 from = tile_at * 16 + at;
    tile[at.y][at.x] = x[from.y * n + from.x];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint2 to = tile_at.yx * 16 + at;
    y[to.y * n + to.x] = tile[at.x][at.y];
}
""",
        (("float32", (32, 32)), ("float32", (32, 32)), 32),
        {"threads": (32, 32), "group": (16, 16)},
        (
            Defect(f"    {WAIT}\n", "\n", RACE, ("tile[at.y][at.x]", "tile[at.x][at.y]")),
            Defect("tile_at.yx * 16", "tile_at.yy * 16", GROUPS, ("y[to.y",)),
            Defect("x[from.y * n + from.x]", "x[from.y * n + from.x + 1]", OUTSIDE, ("x[from.y",)),
            Defect("tile[at.y][at.x] =", "tile[at.y][at.x * 2] =", ARRAY, ("tile[at.y][at.x * 2]",)),
        ),
    ),
    Seeded(
        """
kernel void histogram(device const uchar *x, device atomic_uint *bins, uint i [[thread_position_in_grid]],
                      uint t [[thread_index_in_threadgroup]])
{
    threadgroup atomic_uint own[64];
    if (t < 64) {
        atomic_store_explicit(&own[t], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint bin = x[i] / 4;
    atomic_fetch_add_explicit(&own[bin], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup); // counted
    if (t < 64) {
        uint count = atomic_load_explicit(&own[t], memory_order_relaxed);
        atomic_fetch_add_explicit(&bins[t], count, memory_order_relaxed);
    }
}
""",
        (("uint8", 256), ("uint32", 64)),
        {"threads": 256, "group": 128},
        (
            Defect("if (t < 64) {\n        atomic_store", "if (t < 63) {\n        atomic_store", UNWRITTEN, ("&own[bin]",)),
            Defect("atomic_fetch_add_explicit(&own[bin], 1u, memory_order_relaxed);", "((threadgroup uint *)own)[bin / 2] += 1u;", RACE, ("own)[bin",)),
            Defect("x[i] / 4", "x[i] / 2", OUTSIDE, ("&own[bin]",)),
            Defect("&bins[t], count", "&bins[t + 1], count", OUTSIDE, ("&bins[t + 1]",)),
        ),
    ),
    Seeded(
        """
kernel void blurred(device const float *x, device float *y, constant uint &n, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]])
{
    threadgroup float near[66];
    near[t + 1] = x[i];
    if (t == 0) {
        near[0] = i > 0 ? x[i - 1] : 0;
    }
    if (t == 63) {
        near[65] = i + 1 < n ? x[i + 1] : 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = (near[t] + near[t + 1] + near[t + 2]) / 3;
}
""",
        (("float32", 256), ("float32", 256), 256),
        {"threads": 256, "group": 64},
        (
            Defect("i + 1 < n ? x[i + 1] : 0", "x[i + 1]", OUTSIDE, ("near[65]",)),
            Defect("i > 0 ? x[i - 1] : 0", "x[int(i) - 1]", OUTSIDE, ("near[0]",)),
            Defect("if (t == 63)", "if (t == 64)", UNWRITTEN, ("y[i] =",)),
            Defect("near[66]", "near[65]", ARRAY, ("near[65] = i + 1",)),
            Defect("    threadgroup_barrier(mem_flags::mem_threadgroup);", "", RACE, ("near[t + 1] = x[i]", "y[i] =")),
        ),
    ),
    Seeded(
        """
kernel void product(device const float *a, device const float *b, device float *c, constant uint &n,
                    uint2 at [[thread_position_in_threadgroup]], uint2 tile [[threadgroup_position_in_grid]])
{
    threadgroup float left[8][8];
    threadgroup float right[8][8];
    float sum = 0;
    uint row = tile.y * 8 + at.y, column = tile.x * 8 + at.x;
    for (uint k = 0; k < n; k += 8) {
        left[at.y][at.x] = a[row * n + k + at.x];
        right[at.y][at.x] = b[(k + at.y) * n + column];
        threadgroup_barrier(mem_flags::mem_threadgroup); // loaded
        for (uint j = 0; j < 8; j++) {
            sum += left[at.y][j] * right[j][at.x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup); // used
    }
    c[row * n + column] = sum;
}
""",
        (("float32", (16, 16)), ("float32", (16, 16)), ("float32", (16, 16)), 16),
        {"threads": (16, 16), "group": (8, 8)},
        (
            Defect("        threadgroup_barrier(mem_flags::mem_threadgroup); // used", "", RACE, ("left[at.y][at.x] =", "sum +=")),
            Defect("        threadgroup_barrier(mem_flags::mem_threadgroup); // loaded", "", RACE, ("left[at.y][at.x] =", "sum +=")),
            Defect("k < n;", "k <= n;", OUTSIDE, ("right[at.y][at.x] =",)),
            Defect("j < 8", "j <= 8", ARRAY, ("sum +=",)),
            Defect("tile.y * 8 + at.y, column", "tile.x * 8 + at.y, column", GROUPS, ("c[row",)),
        ),
    ),
    Seeded(
        """
kernel void softmax(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                    uint simd [[simdgroup_index_in_threadgroup]])
{
    threadgroup float shared[2];
    float largest = simd_max(x[i]);
    if (lane == 0) {
        shared[simd] = largest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    largest = max(shared[0], shared[1]);
    threadgroup_barrier(mem_flags::mem_threadgroup); // all have read it
    float e = exp(x[i] - largest);
    float sum = simd_sum(e);
    if (lane == 0) {
        shared[simd] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup); // both sums are there
    y[i] = e / (shared[0] + shared[1]);
}
""",
        (("float32", 128), ("float32", 128)),
        {"threads": 128, "group": 64},
        (
            Defect("    threadgroup_barrier(mem_flags::mem_threadgroup); // all have read it", "", RACE, ("shared[simd] = sum", "max(shared")),
            Defect("    threadgroup_barrier(mem_flags::mem_threadgroup); // both", "    if (lane > 4) threadgroup_barrier(mem_flags::mem_threadgroup); // both", BARRIER, ("if (lane > 4)",)),
            Defect("shared[simd] = sum", "shared[simd + 1] = sum", ARRAY, ("shared[simd + 1]",)),
            Defect("    threadgroup_barrier(mem_flags::mem_threadgroup); // both", "    if (lane > 4) return;\n    threadgroup_barrier(mem_flags::mem_threadgroup); // both", BARRIER, ("// both",)),
        ),
    ),
    Seeded(
        """
kernel void gathered(device const float4 *rows, device const int *which, device float4 *out, constant uint &n,
                     uint i [[thread_position_in_grid]])
{
    int row = which[i];
    if (row < 0 || row >= int(n)) {
        return;
    }
    out[i] = rows[row];
}
""",
        (("float32", (32, 4)), ("int32", 32), ("float32", (32, 4)), 32),
        {"threads": 32, "group": 32},
        (
            Defect("    out[i] = rows[row];", "    out[i] = rows[row + 1];", OUTSIDE, ("rows[row + 1]",)),
            Defect("    out[i] = rows[row];", "    *(device float4 *)((device float *)out + row) = rows[row];", MISALIGNED, ("*(device float4 *)",)),
            Defect("    out[i] = rows[row];", "    ((device float4 *)rows)[row] = out[i];", CONST, (")rows)[row] = out",)),
        ),
    ),
    Seeded(
        """
kernel void packed_bits(device const uint *x, device uint *y, constant uint &width, uint i [[thread_position_in_grid]])
{
    uint per = 32 / width;
    uint shift = (i % per) * width;
    y[i] = (x[i / per] >> shift) & ((1u << width) - 1);
}
""",
        (("uint32", 32), ("uint32", 128), 8),
        {"threads": 128, "group": 32},
        (
            Defect("32 / width", "32 / (width - 8)", DIVISION, ("32 / (width",)),
            Defect("(i % per) * width", "(i % per + 1) * width", SHIFT, ("y[i] =",)),
            Defect("x[i / per]", "x[i]", OUTSIDE, ("y[i] =",)),
            Defect("y[i] =", "y[i + 8] =", OUTSIDE, ("y[i + 8] =",)),
        ),
    ),
    Seeded(
        """
kernel void rotated(device const float *x, device float *y, uint i [[thread_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]])
{
    threadgroup float s[64];
    s[t] = x[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    y[i] = s[t / 32 * 32 + (lane + 1) % 32];
}
""",
        (("float32", 128), ("float32", 128)),
        {"threads": 128, "group": 64},
        (
            Defect("s[t / 32 * 32 + (lane + 1) % 32]", "s[(t + 1) % 64]", RACE, ("s[t] = x[i]", "s[(t + 1) % 64]")),
            Defect("    simdgroup_barrier(mem_flags::mem_threadgroup);", "", RACE, ("s[t] = x[i]", "y[i] =")),
            Defect("    simdgroup_barrier", "    if (lane < 31) simdgroup_barrier", LANES, ("if (lane < 31)",)),
        ),
    ),
)  # fmt: skip

#: (kernel, defect), and what tests are called.
ALL = [(seeded, defect) for seeded in SEEDED for defect in seeded.defects]
