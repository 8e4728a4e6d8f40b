"""Kernels of public repositories, unchanged and checked, beside NumPy: a row says which, how it is called, and what comes.

`make corpora` fetches the files.  In a row's arguments OUT is room for the next result, and Same(x) one that is there.
"""

import math
from dataclasses import dataclass
from functools import cache

import metal_corpora
import numpy as np
import pytest

import metal_dlpack as md

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal, pytest.mark.long]

OUT = object()


@dataclass
class Same:
    """An argument that is read, and then holds a result."""

    array: np.ndarray


@dataclass
class Texture:
    """The pixels of one that is read, or that lies there until it is written."""

    array: np.ndarray
    kind: str = "2d_array"
    is_result: bool = False


def ROOM(*shape, dtype="float16", kind="2d_array"):
    return Texture(np.zeros(shape, dtype), kind, True)


def f4(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype="float32")


def f2(*shape, seed=0):
    return f4(*shape, seed=seed).astype("float16")


def ints(*values):
    return np.array(values, "int32")


def mixed(*values):
    """Integers and floats of 32 bits, as a structure has them."""
    return np.array(
        [np.float32(value).view("int32") if isinstance(value, float) else value for value in values], "int32"
    )


def uints(*shape, below=1 << 32, seed=0):
    return np.random.default_rng([seed, *shape]).integers(0, below, shape, "uint32")


def wide(x):
    return x.astype("float64")


def softmax(x, axis):
    e = np.exp(wide(x) - wide(x).max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def windows(x, kernel, stride, pad):
    """The items of each window of the last axes (y, x, 4), NaN where it leaves the picture."""
    x = np.pad(wide(x), [(0, 0), (pad, pad), (pad, pad), (0, 0)], constant_values=np.nan)
    found = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
    return found.reshape(*found.shape[:4], -1)


def norm(x, eps=1e-5):
    x = wide(x)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def linear(x, places, axis):
    """x at places between two items."""
    low = np.floor(places).astype(int)
    part = (places - low).reshape([-1 if nth == axis else 1 for nth in range(x.ndim)])
    at = [np.take(wide(x), np.clip(low + more, 0, x.shape[axis] - 1), axis) for more in (0, 1)]
    return at[0] * (1 - part) + at[1] * part


@cache
def flock():
    """What one step of naga's boids makes of 1,500, and where they were."""
    where, speed = np.random.default_rng(3).uniform(-1, 1, (2, 1500, 2)).astype("float32")
    apart = where[None] - where[:, None]  # [me, other]
    far = np.sqrt((wide(apart) ** 2).sum(-1)) + np.diag(np.full(1500, np.inf))
    one, two, three = far < 0.1, far < 0.025, far < 0.05
    mass = np.where(one.any(1)[:, None], one @ wide(where) / np.maximum(one.sum(1), 1)[:, None] - where, 0)
    away = -(two[..., None] * wide(apart)).sum(1)
    along = three @ wide(speed) / np.maximum(three.sum(1), 1)[:, None]
    moved = speed + mass * 0.02 + away * 0.05 + along * 0.005
    length = np.sqrt((moved**2).sum(1, keepdims=True))
    moved = moved / length * np.clip(length, 0, 0.1)
    there = where + moved * 0.04
    there = np.where(there < -1, 1, np.where(there > 1, -1, there))
    return np.stack([where, speed], 1), np.stack([there, moved], 1)


def collatz(n):
    steps = 0
    while n > 1:
        n, steps = (3 * n + 1 if n % 2 else n // 2), steps + 1
    return steps


def histogram(keys, threads):
    """Of 256 bins, each with a place for each thread."""
    each = -(-len(keys) // threads)
    return np.stack([np.bincount(keys[t * each : (t + 1) * each] & 255, minlength=256) for t in range(threads)], 1)


X = f4(3, 7, 5)  # MNN: outside, axis, inside
IMAGE = f4(2, 9, 8, 4)  # slices of four channels
HALF = f2(2, 3, 20, 4)  # TNN: batch, slice, size, four channels
TNN = (5, 4, 20, 3)  # width, height, size, slice
SAME_SIZE = ints(*TNN, *TNN, 0, 2)
BROADCAST = (*TNN, *TNN, 0, 0, 2, 1, 60, 60, *[0] * 8)
CHANNEL = f2(3, 4, seed=1)
A, B = f4(6, 11), f4(11, 9)
LN = f4(4, 48)
V = f4(64, 4)
M = f4(4, 4) / 4
ERF = np.vectorize(math.erf)
TURNED = np.linalg.matrix_power(wide(M).T, 16)  # columns
MNN_POOL, TNN_POOL = ints(8, 9, 4, 5, 2, 3, 3, 2, 2, 1, 1), ints(8, 9, 72, 2, 4, 5, 20, 2, 1, 3, 3, 2, 2, 1, 1)
WINDOWS = windows(IMAGE, 3, 2, 1)
SCAN = uints(256 * 4 * 4, below=100)
KEYS = uints(3000)

#: corpus, the end of the file's path, kernel: threads or groups, arguments, results.
ROWS = [
    ("mnn", "shader/MetalSoftmax.metal", "softmax_plane", (5, 3), [X, OUT, ints(5, 7, 3, 35)], [softmax(X, 1)]),
    ("mnn", "shader/MetalSoftmax.metal", "softmax_off_reorder", (8, 2), [IMAGE, OUT, ints(8, 9, 2, 72)], [softmax(IMAGE, 1)]),
    ("mnn", "shader/MetalMatMul.metal", "matmul", (9, 6), [A, B, OUT, ints(9, 6, 11, 0, 11, 1, 1, 9)], [wide(A) @ wide(B)]),
    ("mnn", "shader/MetalMatMul.metal", "matmul_bias", (9, 6), [A, B, f4(9), OUT, ints(9, 6, 11, 0, 11, 1, 1, 9)], [wide(A) @ wide(B) + f4(9)]),
    ("mnn", "shader/MetalPooling.metal", "pooling_max", (4, 5, 2), [IMAGE, OUT, MNN_POOL], [np.nanmax(WINDOWS, -1)]),
    ("mnn", "shader/MetalPooling.metal", "pooling_avg", (4, 5, 2), [IMAGE, OUT, MNN_POOL], [np.nanmean(WINDOWS, -1)]),
    ("mnn", "shader/MetalEltwise.metal", "eltwise_max", 64, [f4(60), f4(60, seed=1), OUT, ints(60, 0, 0, 0)], [np.maximum(f4(60), f4(60, seed=1))]),
    ("mnn", "shader/MetalPReLU.metal", "prelu_slopes", (20, 3, 2), [f4(3, 2, 20, 4), OUT, f4(3, 4), ints(20, 3, 2)], [np.where(f4(3, 2, 20, 4) < 0, f4(3, 4)[:, None, None], 1) * f4(3, 2, 20, 4)]),
    ("mnn", "shader/MetalReLU6.metal", "relu6", 64, [V, OUT, mixed(-0.5, 0.75, 64, 0)], [np.clip(V, -0.5, 0.75)]),
    ("mnn", "shader/MetalLayerNorm.metal", "layernorm_x1", (48, 4), [LN, OUT, mixed(48, 4, 1e-5, 1), f4(48), f4(48, seed=1)], [norm(LN) * f4(48) + f4(48, seed=1)]),
    ("mnn", "shader/MetalLayerNorm.metal", "layernorm_x4", (12, 4), [LN, OUT, mixed(48, 4, 1e-5, 0), f4(48), f4(48)], [norm(LN)]),
    ("mnn", "shader/MetalLayerNorm.metal", "layernorm_x1_rms", (48, 4), [LN, OUT, mixed(48, 4, 0.0, 0), f4(48), f4(48)], [wide(LN) / np.sqrt((wide(LN) ** 2).mean(-1, keepdims=True))]),
    ("mnn", "shader/MetalResize.metal", "resize_nearest", (16, 18, 2), [IMAGE, OUT, ints(8, 9, 72, 16, 18, 288, 2), np.float32([0.5, 0, 0.5, 0])], [IMAGE.repeat(2, 1).repeat(2, 2)]),
    ("mnn", "shader/MetalResize.metal", "resize_bilinear", (16, 18, 2), [IMAGE, OUT, ints(8, 9, 72, 16, 18, 288, 2), np.float32([0.5, -0.25, 0.5, -0.25])], [linear(linear(IMAGE, np.arange(18) / 2 - 0.25, 1), np.arange(16) / 2 - 0.25, 2)]),
    ("mnn", "render/shader/radixsort_cumsum.metal", "main0", ((1,), 256), [OUT, SCAN, ints(4096, 0, 0, 0)], [SCAN.cumsum().astype("uint32")]),
    ("mnn", "render/shader/radixsort_histogram.metal", "main0", ((1,), 256), [OUT, KEYS.repeat(2), ints(3000, 0, 0, 0), ints(0, 0, 0, 0)], [histogram(KEYS, 256).astype("uint32")]),
    ("mnn", "render/shader/float2int.metal", "main0", 256, [OUT, f4(200), mixed(200, 0, 0, 0, 100.0, 7.0, 0.0, 0.0)], [np.trunc(f4(200) * np.float32(100) + 7).astype("int32")]),
    ("tnn", "metal_relu_layer_acc.metal", "relu", (20, 3, 2), [HALF, OUT, SAME_SIZE], [np.maximum(HALF, 0)]),
    ("tnn", "metal_add_layer_acc.metal", "add_normal", (20, 3, 2), [HALF, HALF[::-1], OUT, ints(*BROADCAST)], [HALF + HALF[::-1]]),
    ("tnn", "metal_mul_layer_acc.metal", "mul_broadcast", (20, 3, 2), [HALF, CHANNEL, OUT, ints(*BROADCAST[:9], 2, *BROADCAST[10:])], [HALF * CHANNEL[:, None]]),
    ("tnn", "metal_batch_norm_layer_acc.metal", "batch_norm", (20, 3, 2), [HALF, OUT, SAME_SIZE, CHANNEL, f2(3, 4)], [(wide(HALF) * CHANNEL[:, None] + f2(3, 4)[:, None]).astype("f2")]),
    ("tnn", "metal_pooling_layer_acc.metal", "pooling_max", (4, 5, 2), [IMAGE.astype("f2"), OUT, TNN_POOL], [np.nanmax(WINDOWS, -1).astype("f2")]),
    ("tnn", "metal_pooling_layer_acc.metal", "pooling_avg", (4, 5, 2), [IMAGE.astype("f2"), OUT, TNN_POOL], [np.nanmean(WINDOWS, -1).astype("f2")]),
    ("tnn", "metal_pooling_layer_acc.metal", "pooling_global_average", ((1, 1, 2), (32, 1, 1)), [IMAGE.astype("f2"), OUT, ints(8, 9, 72, 2, 1, 1, 1, 2, 1, *[0] * 6)], [wide(IMAGE).mean((1, 2)).astype("f2")]),
    ("tnn", "metal_layer_norm_layer_acc.metal", "layer_norm", ((1, 1, 4), (32, 1, 1)), [LN.astype("f2"), f2(48), f2(48, seed=1), OUT, mixed(*[0] * 10, 48, 4, 1e-5)], [(norm(LN) * f2(48) + f2(48, seed=1)).astype("f2")]),
    ("tnn", "metal_mat_mul_layer_acc.metal", "matmul_common", (9, 6, 1), [A.astype("f2"), B.astype("f2"), OUT, ints(1, 1, 1, 6, 11, 9)], [(wide(A) @ wide(B)).astype("f2")]),
    ("tnn", "metal_gelu_layer_acc.metal", "gelu", (20, 3, 2), [HALF, OUT, SAME_SIZE], [(0.5 * wide(HALF) * (1 + ERF(wide(HALF) / np.sqrt(2)))).astype("f2")]),
    ("tnn", "metal_softmax_layer_acc.metal", "softmax_common", (8, 1, 2), [IMAGE.astype("f2"), OUT, ints(0, 2, 8, 9, 0)], [softmax(IMAGE.astype("f2"), 1).astype("f2")]),
    ("tnn", "metal_arg_max_or_min_layer_acc.metal", "argmax_or_min_common", (8, 2, 1), [IMAGE.astype("f2"), OUT, ints(0, 2, 8, 9, 1)], [IMAGE.astype("f2").argmax(1).astype("int32")]),
    ("tnn", "metal_shuffle_layer_acc.metal", "channel_shuffle", (20, 3, 2), [HALF, OUT, ints(5, 4, 12, 20, 3, 5, 4, 20, 3, 3, 4, 2)], [HALF.transpose(0, 1, 3, 2).reshape(2, 3, 4, 20).swapaxes(1, 2).reshape(2, 3, 4, 20).transpose(0, 1, 3, 2)]),
    ("tnn", "metal_reduce_layer_acc.metal", "reduce_sum_axis_2_common", (5, 3, 2), [HALF, OUT, ints(5, 4, 20, 3, 2, 5, 1, 5, 3, 2, 2, 2, 12, 0, 4)], [wide(HALF).reshape(2, 3, 4, 5, 4).sum(2).astype("f2")]),
    ("tnn", "metal_cast_layer_acc.metal", "cast_ftype_to_int32", (20, 3, 2), [HALF * 50, OUT, ints(2, 3, 20)], [np.trunc(HALF * np.float16(50)).astype("int32")]),
    ("thundermittens", "matmul_custom.metal", "matmul_custom_float32", ((2, 1, 1), (32, 1, 1)), [OUT, f4(32, 48), f4(48, 64), ints(32), ints(48), ints(64)], [wide(f4(32, 48)) @ f4(48, 64)]),
    ("thundermittens", "add_rt.metal", "add_rt_float32", ((1, 1, 1), (32, 1, 1)), [f4(8, 8), f4(8, 8, seed=1), OUT, ints(8), ints(8)], [f4(8, 8, seed=1) + 4 * (wide(f4(8, 8)) @ f4(8, 8, seed=1))]),
    ("naga", "collatz.msl", "main_", 64, [Same(uints(64, below=1000)), ints(64)], [np.array([collatz(int(n)) for n in uints(64, below=1000)], "uint32")]),
    ("naga", "boids.msl", "main_", 1536, [np.float32([0.04, 0.1, 0.025, 0.05, 0.02, 0.05, 0.005]), lambda: flock()[0], OUT, ints(24000, 24000)], [lambda: flock()[1]]),
    ("naga", "workgroup-var-init.msl", "main_", {"groups": 1, "group": 1, "threadgroup_memory": {"w_mem": 2308}}, [Same(uints(512))], [np.zeros(512, "uint32")]),
    ("spirv-cross", "reference/shaders-msl/comp/shared.comp", "main0", ((6,), 4), [f4(24), OUT], [f4(24).reshape(6, 4)[:, ::-1]]),
    ("spirv-cross", "reference/shaders-msl/comp/culling.comp", "main0", ((1,), 64), [20 * f4(64), Same(np.zeros(64, "f4")), Same(np.zeros(1, "uint32"))], [lambda: culled(), np.uint32([(20 * f4(64) > 12).sum()])]),
    ("spirv-cross", "reference/shaders-msl/comp/dowhile.comp", "main0", 61, [np.concatenate([M, V[:61]]), OUT], [wide(V[:61]) @ TURNED.T]),
    ("spirv-cross", "reference/shaders-msl/comp/inverse.comp", "main0", 1, [Same(np.zeros(32, "f4")), lambda: matrices()], [lambda: matrices(np.linalg.inv)]),
    ("spirv-cross", "reference/shaders-msl/comp/atomic.comp", "main0", 1, [Same(ints(5, 9))], [ints(1, 1)]),
    ("spirv-cross", "reference/shaders-msl/comp/shader_ballot.msl22.comp", "main0", ((1,), 32), [f4(32), Same(np.zeros(32, "f4"))], [np.pad(f4(32)[f4(32) > 0], (0, (f4(32) <= 0).sum()))]),
    ("spirv-cross", "reference/shaders-msl/comp/udiv.comp", "main0", 100, [OUT, uints(100)], [uints(100) // 29]),
    ("spirv-cross", "reference/shaders-msl/comp/type-alias.comp", "main0", 64, [V, V[::-1], OUT], [V + V[::-1]]),
    ("spirv-cross", "reference/shaders-msl/comp/outer-product.comp", "main0", 1, [Same(np.zeros(92, "f4")), lambda: vectors()], [lambda: products()]),
]  # fmt: skip


def culled():
    """All of one threadgroup, in the order of its threads: the checker runs them so."""
    kept = 20 * f4(64)[20 * f4(64) > 12]
    return np.pad(kept, (0, 64 - len(kept)))


def columns(matrix):
    """As Metal stores it: column by column, three rows in the room of four."""
    rows = matrix.shape[0]
    return np.pad(matrix.T, [(0, 0), (0, 4 - rows if rows == 3 else 0)]).ravel()


def structure(*parts):
    """float2x2 and its kind one after the other, each on its alignment."""
    made = np.zeros(0, "float32")
    for part in parts:
        step = 2 if part.shape[0] == 2 else 4
        made = np.concatenate([np.pad(made, (0, -len(made) % step)), columns(part).astype("float32")])
    return np.pad(made, (0, -len(made) % 4))


def matrices(make=lambda one: one):
    return structure(*(make(np.eye(n) * 2 + wide(f4(n, n)) / 4) for n in (2, 3, 4)))


def vectors():
    return np.concatenate([f4(2), [0, 0], f4(3), [0], f4(4)]).astype("float32")


def products():
    return structure(*(np.outer(f4(rows), f4(cols)) for cols in (2, 3, 4) for rows in (2, 3, 4)))


T = IMAGE.astype("f2")  # slices, y, x, four channels
PLACES = (8, 9, 2)
NCHW, TURN = (1, 8, 9, 8), (0, 2, 3, 1)
POOLED = (2, 5, 4, 4)
MANY = f4(4, 9, 8, 4)
GRID = np.random.default_rng(5).uniform(-1, 1, (1, 9, 8, 4)).astype("f4")
ALPHA = f4(2, 4)


def channels(x):
    """(slices, y, x, 4) as (channels, y, x)."""
    return x.transpose(0, 3, 1, 2).reshape(-1, *x.shape[1:3])


def slices(x):
    return x.reshape(-1, 4, *x.shape[1:]).transpose(0, 2, 3, 1)


def first(x, dtype="f2"):
    """In the first channel, zeros in the others."""
    return np.stack([x, *[np.zeros_like(x)] * 3], -1).astype(dtype)


def at_grid(x, grid):
    """Between four pixels, zeros outside."""
    around = np.pad(wide(x), [(0, 0), (0, 1), (0, 1), (0, 0)])
    places = [(wide(grid[0, ..., nth]) + 1) * (size - 1) / 2 for nth, size in ((0, x.shape[2]), (1, x.shape[1]))]
    (u, v), (a, b) = ([np.floor(one).astype(int) for one in places], [one % 1 for one in places])
    a, b = a[..., None], b[..., None]
    return (around[:, v, u] * (1 - a) + around[:, v, u + 1] * a) * (1 - b) + (
        around[:, v + 1, u] * (1 - a) + around[:, v + 1, u + 1] * a
    ) * b


def depthwise(x, weights):
    """A 3 by 3 convolution of each channel with its own weights."""
    found = np.lib.stride_tricks.sliding_window_view(
        np.pad(wide(channels(x)), [(0, 0), (1, 1), (1, 1)]), (3, 3), (1, 2)
    )
    return slices((found * wide(weights).reshape(-1, 1, 1, 3, 3)).sum((-1, -2)))


def convolution():
    """Its parameters: strides and dilations of 1, no sum, no activation."""
    return np.concatenate([np.uint16([0, 0, 0, 1, 1, 1, 1, 8, 8, 1, 8, 0, 0, 0]), np.zeros(60, "uint16")])


def of_seven(x):
    """softmax of the first seven channels, by which the eighth is divided as well."""
    e = np.exp(wide(channels(x)) - wide(channels(x)[:7]).max(0))
    return slices(e / e[:7].sum(0))


def one_face():
    pixels, result = f4(2, 6, 10, 10, 4), np.zeros((2, 6, 10, 10, 4), "f4")
    result[1, 5, 7, 9] = pixels[1, 5, 7, 9]
    return pixels, result


#: The same with textures; Paddle-Lite's, file: kernel and the rest.
PADDLE = [
    ("ActivationKernel", "exp", PLACES, [Texture(IMAGE), ROOM(2, 9, 8, 4, dtype="f4")], [np.exp(wide(IMAGE))]),
    ("ActivationKernel", "relu", PLACES, [Texture(T), ROOM(2, 9, 8, 4)], [np.maximum(T, 0)]),
    ("ActivationKernel", "relu6", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(0.75)], [np.clip(T, 0, 0.75)]),
    ("ActivationKernel", "leaky_relu", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(0.25)], [np.maximum(T, T / 4)]),
    ("ActivationKernel", "sigmoid", PLACES, [Texture(T), ROOM(2, 9, 8, 4)], [1 / (1 + np.exp(-wide(T)))]),
    ("ActivationKernel", "hard_sigmoid", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(0.25, 0.5)], [np.clip(wide(T) / 4 + 0.5, 0, 1)]),
    ("ActivationKernel", "swish", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(1.0)], [wide(T) / (1 + np.exp(-wide(T)))]),
    ("ActivationKernel", "hard_swish", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(3.0, 6.0, 6.0)], [wide(T) * np.clip(wide(T) + 3, 0, 6) / 6]),
    ("ActivationKernel", "rsqrt", PLACES, [Texture(abs(IMAGE) + 1), ROOM(2, 9, 8, 4, dtype="f4")], [1 / np.sqrt(abs(wide(IMAGE)) + 1)]),
    ("Tanh", "tanh_half", PLACES, [Texture(T), ROOM(2, 9, 8, 4)], [np.tanh(wide(T))]),
    ("Elementwise", "elementwise", PLACES, [Texture(T), Texture(T[::-1]), ROOM(2, 9, 8, 4), ints(1, *[0] * 22, 2)], [T * T[::-1]]),
    ("Elementwise", "elementwise", PLACES, [Texture(T), Texture(T[:1]), ROOM(2, 9, 8, 4), ints(*[0] * 21, 1, 0, 1)], [T - T[:1]]),
    ("BatchNormKernel", "batchnorm", PLACES, [Texture(T), ROOM(2, 9, 8, 4), CHANNEL[:2], f2(2, 4)], [wide(T) * CHANNEL[:2, None, None] + f2(2, 4)[:, None, None]]),
    ("PoolKernel", "pool", (4, 5, 2), [Texture(T), ROOM(*POOLED), ints(3, 3, 2, 2, 1, 1, 0, 1)], [np.nanmax(WINDOWS, -1).astype("f2")]),
    ("PoolKernel", "pool", (4, 5, 2), [Texture(T), ROOM(*POOLED), ints(3, 3, 2, 2, 1, 1, 1, 1)], [np.nanmean(WINDOWS, -1)]),
    ("PoolKernel", "global_pool", ((1, 1, 2), (8, 4, 1)), [Texture(T), ROOM(2, 1, 1, 4)], [wide(T).mean((1, 2))]),
    ("InstanceNorm", "instance_norm", ((1, 1, 2), (8, 4, 1)), [Texture(IMAGE), ROOM(2, 9, 8, 4, dtype="f4")], [slices(norm(channels(IMAGE).reshape(8, 72)).reshape(8, 9, 8))]),
    ("Reduce", "reduce_sum_c", (8, 9, 1), [Texture(T), ROOM(1, 9, 8, 4)], [first(wide(T).sum((0, 3)))]),
    ("Reduce", "reduce_mean_hw", (1, 1, 2), [Texture(T), ROOM(2, 1, 1, 4)], [wide(T).mean((1, 2))]),
    ("MaxKernel", "arg_max_c", (8, 9, 1), [Texture(T), ROOM(1, 9, 8, 4), ints(4)], [first(channels(T).argmax(0))]),
    ("MaxKernel", "arg_max_h", (8, 1, 2), [Texture(T), ROOM(2, 1, 8, 4), ints(4)], [T.argmax(1).astype("f2")]),
    ("Pad2d", "pad2d", (12, 11, 2), [Texture(T), ROOM(2, 11, 12, 4), np.int16([1, 1, 2, 2, 0, 0, 1, 0])], [np.pad(T, [(0, 0), (1, 1), (2, 2), (0, 0)], "reflect")]),
    ("PixelShuffle", "pixel_shuffle", (16, 18, 1), [Texture(MANY), ROOM(1, 18, 16, 4, dtype="f4"), ints(2)], [slices(channels(MANY).reshape(4, 2, 2, 9, 8).transpose(0, 3, 1, 4, 2).reshape(4, 18, 16))]),
    ("ShuffleChannel", "shuffle_channel", PLACES, [Texture(T), ROOM(2, 9, 8, 4), ints(2, 4)], [slices(channels(T).reshape(2, 4, 9, 8).swapaxes(0, 1).reshape(8, 9, 8))]),
    ("BufferToTexture", "buffer_to_texture_kernel", (8, 9), [f4(9, 8), ROOM(9, 8, dtype="f4", kind="2d")], [f4(9, 8)]),
    ("BufferToTextureArrayKernel", "buf_to_tex_c_n", PLACES, [channels(IMAGE), ROOM(2, 9, 8, 4), ints(4, *NCHW)], [T]),
    ("FetchKernel", "fetch", PLACES, [Texture(T), OUT, ints(4, *NCHW)], [channels(T).astype("f4")]),
    ("Kernels", "tex2d_ary_to_buf", PLACES, [Texture(T), OUT], [channels(T)]),
    ("Kernels", "texture2d_to_2d_array", (8, 9, 1), [Texture(T[0], "2d"), ROOM(1, 9, 8, 4)], [T[:1]]),
    ("Kernels", "texture2d_int_to_2d_array", (8, 9, 1), [Texture(uints(9, 8, 4, below=2000), "2d"), ROOM(1, 9, 8, 4)], [uints(9, 8, 4, below=2000).astype("f2")]),
    ("BilinearInterp", "bilinear_interp", (16, 18, 2), [Texture(T), ROOM(2, 18, 16, 4), mixed(0.5, 0.5, 0.5)], [linear(linear(T, np.maximum(np.arange(18) / 2 - 0.25, 0), 1), np.maximum(np.arange(16) / 2 - 0.25, 0), 2)]),
    ("NearestInterpKernel", "nearest_interp", (16, 18, 2), [Texture(T), ROOM(2, 18, 16, 4), mixed(0.5, 0.5, 0.0)], [T.repeat(2, 1).repeat(2, 2)]),
    ("ResizeBilinear", "resize_bilinear", (16, 18, 2), [Texture(IMAGE), ROOM(2, 18, 16, 4, dtype="f4"), mixed(0.5, 0.5)], [linear(linear(IMAGE, np.arange(18) / 2, 1), np.arange(16) / 2, 2)]),
    ("Scale", "scale", (4, 4), [Texture(IMAGE[0, :8], "2d"), ROOM(4, 4, 4, dtype="f4", kind="2d")], [IMAGE[0, :8:2, ::2]]),
    ("ScaleKernel", "bias_after_scale", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(1.5, 0.25, 1, 0.0, 0.0, 0.0, 0.0, 0.0)], [np.maximum(wide(T) * 1.5 + 0.25, 0)]),
    ("Compare", "compare", PLACES, [Texture(T), Texture(T[::-1]), ROOM(2, 9, 8, 4), ints(2)], [(T[::-1] > T).astype("f2")]),
    ("DropoutKernel", "dropout", PLACES, [Texture(T), ROOM(2, 9, 8, 4), mixed(0.5)], [T / 2]),
    ("PreluKernel", "prelu_channel", PLACES, [Texture(IMAGE), ROOM(2, 9, 8, 4, dtype="f4"), ALPHA], [np.where(IMAGE > 0, 1, ALPHA[:, None, None]) * IMAGE]),
    ("GridSampler", "grid_sampler", PLACES, [Texture(IMAGE), ROOM(2, 9, 8, 4, dtype="f4"), Texture(GRID), f4(9, 8, 2)], [at_grid(IMAGE, GRID)]),
    ("Mul", "mul", (2, 6, 1), [Texture(f2(1, 6, 3, 4)), Texture(f2(1, 12, 2, 4)), ROOM(1, 6, 2, 4)], [(wide(f2(1, 6, 3, 4)).reshape(6, 12) @ wide(f2(1, 12, 2, 4)).reshape(12, 8)).astype("f2")]),
    ("TransposeKernel", "transpose", (9, 8, 2), [Texture(T), ROOM(2, 8, 9, 4), ints(*NCHW, *TURN, 1, 8, 8, 9, *TURN, 0, 1, 3, 2)], [T.swapaxes(1, 2)]),
    ("ReshapeKernel.inc", "reshape", (9, 8, 2), [Texture(T), ROOM(2, 8, 9, 4), ints(*NCHW, *TURN, 1, 8, 8, 9, *TURN)], [slices(channels(T).reshape(8, 8, 9))]),
    ("Softmax", "softmax", PLACES, [Texture(T), ROOM(2, 9, 8, 4), ints(1, 7, 9, 8)], [of_seven(T)]),
    ("ConvAddReluMetal", "depthwise_conv_3x3", PLACES, [Texture(T), Texture(T[:1]), ROOM(2, 9, 8, 4), convolution(), f2(8, 9)], [depthwise(T, f2(8, 9))]),
]  # fmt: skip
TEXTURES = [
    *(("paddle", f"texture/{row[0]}.metal", *row[1:]) for row in PADDLE),
    ("spirv-cross", "reference/shaders-msl/comp/image-cube-array-load-store.comp", "main0", 1, [Texture(one_face()[0], "cube_array"), ROOM(2, 6, 10, 10, 4, dtype="f4", kind="cube_array")], [one_face()[1]]),
]  # fmt: skip


def tint_rows():
    """Tint's builtins, each of arguments that stand in its file."""
    values = {
        "countOneBits/0d0e46": uints(4, below=1) + 1,
        "reverseBits/c21bc1": ints(1, 1, 1) << 31,
        "firstLeadingBit/000ff3": uints(4, below=1),
        "insertBits/3c7ba5": uints(2, below=1) + (1 | 1 << 1),
        "pack4x8snorm/4d22e7": np.full(4, 127, "uint8").view("uint32"),
        "unpack4x8snorm/523fb3": np.uint32([1]).view("int8") / 127,
        "cross/041cb0": np.cross(np.ones(3), np.ones(3)),
        "dot4I8Packed/881e62": np.int32([np.uint32([1]).view("int8") @ np.uint32([1]).view("int8")]),
        "subgroupInclusiveAdd/1b7680": ints(1).cumsum(dtype="int32"),
        "ldexp/082c1f": np.ldexp(np.ones(1, "f2"), 1),
    }
    for builtin, result in values.items():
        yield "tint", f"gen/var/{builtin}.wgsl.expected.msl", "compute_main", 1, [OUT], [result]


ALL = [*ROWS, *tint_rows(), *TEXTURES]


def argument(one, like):
    """What the kernel is given, and the Array or texture in which a result lies then."""
    if one is OUT:
        out = md.empty(like.shape, dtype="float32" if like.dtype == "float64" else like.dtype.name)
        return out, out
    if isinstance(one, Texture):
        texture = md.texture(md.asarray(np.array(one.array, order="C"), copy=True), kind=one.kind, copy=True)
        return texture, texture if one.is_result else None
    if isinstance(one, Same):
        out = md.asarray(one.array, copy=True)
        return out, out
    return md.asarray(np.array(one() if callable(one) else one, order="C"), copy=True), None


def call(corpus, file, kernel, grid, arguments, results):
    results = [result() if callable(result) else result for result in results]
    given, outs = [], []
    for one in arguments:
        array, out = argument(one, results[min(len(outs), len(results) - 1)])
        given.append(array)
        outs += [out] if out is not None else []
    if isinstance(grid, tuple) and isinstance(grid[0], tuple):
        grid = {"groups": grid[0], "group": grid[1]}
    how = grid if isinstance(grid, dict) else {"threads": grid}
    md.Library(metal_corpora.text_of(corpus, file))[kernel](*given, **how)
    return zip((np.asarray(getattr(out, "array", out)) for out in outs), results, strict=True)


NAMES = [f"{row[0]}: {row[1].rpartition('/')[2].partition('.')[0]} {row[2]}" for row in ALL]


@pytest.mark.parametrize("row", ALL, ids=NAMES)
def test_a_kernel_beside_numpy(row, metal_settings):
    metal_settings(kernel_check=1)
    for found, wanted in call(*row):
        if wanted.dtype.kind in "iu":
            np.testing.assert_array_equal(found, wanted.reshape(found.shape))
        else:
            close = 8e-3 if found.dtype == "float16" else 2e-5
            np.testing.assert_allclose(wide(found), wide(wanted).reshape(found.shape), rtol=close, atol=close)


def test_thundermittens_attention(metal_settings):
    metal_settings(kernel_check=1)
    q, k, v = (md.asarray(f4(2, 24, 64, seed=seed)).astype("bfloat16") for seed in (0, 1, 2))
    out = md.empty(q.shape, dtype="bfloat16")
    library = md.Library(metal_corpora.text_of("thundermittens", "attn_fwd.metal"))
    library["attn_fwd_64"](q, k, v, out, 24, 2, groups=(3, 2, 1), group=(32, 1, 1))
    found, q, k, v = (wide(np.asarray(one.astype("float32"))) for one in (out, q, k, v))
    np.testing.assert_allclose(found, softmax(q @ k.swapaxes(1, 2) / 8, -1) @ v, rtol=0.02, atol=0.02)


def test_there_are_enough():
    assert len(ROWS) >= 30 and len(TEXTURES) >= 30
