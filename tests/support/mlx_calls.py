"""How MLX's packages launch their kernels: the table of mlx_packages.py.

A case calls functions of a package with shapes that its models have, made small, and returns or yields what each gave
beside what a reference gives: the package's own way without Metal, MLX operations, or None.
"""

import contextlib
import importlib
import inspect

import mlx.core as mx
import mlx.nn as nn
import numpy as np

CASES = {}

#: Relative to the largest item: results are rounded to their type, sums in another order.
TOLERANCE = {mx.float32: 2e-4, mx.float16: 4e-3, mx.bfloat16: 3e-2}


def case(*modules, tolerance=None, dtypes=(mx.float32,), has_reference=True, is_wild=False):
    """One case for each module and each type of the items: `run()` gives all that came, all expected, the tolerance."""

    def add(call):
        for module in modules:
            for dtype in dtypes:
                name = f"{module}: {call.__name__.strip('_')}"
                if len(dtypes) > 1:
                    name += f" {str(dtype).rpartition('.')[2]}"

                def run(module=module, dtype=dtype):
                    found = call(importlib.import_module(module), dtype)
                    got, expected = zip(*(found if inspect.isgenerator(found) else [found]), strict=True)
                    within = TOLERANCE[dtype] if tolerance is None else tolerance
                    return got, expected if has_reference else None, within

                run.has_reference, run.is_wild = has_reference, is_wild
                assert name not in CASES, name
                CASES[name] = run
        return call

    return add


def randn(*shape, dtype=mx.float32, scale=1.0):
    return (mx.random.normal(shape) * scale).astype(dtype)


def on_the_cpu(call, *arguments, **keywords):
    """What the package does where the default device is the CPU."""
    with mx.stream(mx.cpu):
        result = call(*arguments, **keywords)
        mx.eval(result)
    return result


def launched(kernel, inputs, grid, group, shapes, dtype=mx.float32, **template):
    """What a kernel gives that the package calls in the midst of more."""
    launch = {"grid": (*grid, 1)[:3], "threadgroup": (group, 1, 1), "output_shapes": shapes}
    template = [("T", dtype), *template.items()]
    return kernel(inputs=inputs, template=template, output_dtypes=[dtype] * len(shapes), **launch)


def rms(x, eps, weight=None):
    return mx.fast.rms_norm(x, weight, eps)


HALF_AND_FULL = (mx.float32, mx.bfloat16)
KERNELS = ("mlx_lm.kernels", "mlx_vlm.kernels")


# ---- routing, norms and rotations of heads ----


@case(*KERNELS)
def expert_routing(m, dtype):
    logits, bias = randn(2, 5, 70), randn(70, scale=0.1)
    got = m.expert_routing(logits, bias, top_k=6, multiplier=0.7, score_eps=1e-9, route_scale=2.5)
    scores = mx.sigmoid(logits * 0.7)
    chosen = mx.argsort(-(scores + bias), axis=-1)[..., :6]
    weights = mx.take_along_axis(scores, chosen, axis=-1)
    return got, [chosen.astype(mx.uint32), weights / (weights.sum(-1, keepdims=True) + 1e-9) * 2.5]


@case(*KERNELS, dtypes=HALF_AND_FULL)
def qk_norm(m, dtype):
    hq, hk, d = 4, 2, 80
    x = randn(2, 3, 2 * (hq + hk) * d, dtype=dtype)
    got = m.qk_norm(x, n_heads=hq, n_kv_heads=hk, head_dim=d, eps=1e-5, query_scale=0.3)
    heads = rms(x[..., : (hq + hk) * d].reshape(2, 3, hq + hk, d), 1e-5)
    return got, [(heads[..., :hq, :] * 0.3).astype(dtype), heads[..., hq:, :]]


@case(*KERNELS, dtypes=HALF_AND_FULL)
def qk_norm_rope(m, dtype):
    hq, hk, d, base = 4, 2, 64, 10000.0
    x = randn(2, 3, 2 * (hq + hk) * d, dtype=dtype)
    got = m.qk_norm_rope(x, n_heads=hq, n_kv_heads=hk, head_dim=d, eps=1e-5, query_scale=0.3, rope_base=base, offset=7)
    heads = rms(x[..., : (hq + hk) * d].reshape(2, 3, hq + hk, d), 1e-5)
    q, k = (heads[..., :hq, :] * 0.3).astype(dtype), heads[..., hq:, :]

    def turned(x):
        x = x.transpose(0, 2, 1, 3)
        return mx.fast.rope(x, d, traditional=True, base=base, scale=1.0, offset=7).transpose(0, 2, 1, 3)

    return got, [turned(q), turned(k)]


@case(*KERNELS, dtypes=HALF_AND_FULL)
def post_expert_norm_combine(m, dtype):
    experts, weights, w = randn(2, 3, 4, 520, dtype=dtype), mx.random.uniform(shape=(2, 3, 4)), randn(520)
    got = m.post_expert_norm_combine(experts, weights, norm_weight=w, eps=1e-5)
    x = experts.astype(mx.float32) * w
    normed = x * mx.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return got, (normed * weights[..., None]).sum(-2).astype(dtype)


@case(*KERNELS, dtypes=HALF_AND_FULL)
def rms_norm_sigmoid_gate(m, dtype):
    x, gate = randn(2, 4, 3, 80, dtype=dtype), randn(2, 3, 320, dtype=dtype)
    got = m.rms_norm_sigmoid_gate(x, gate, eps=1e-5)
    normed = rms(x.astype(mx.float32), 1e-5).transpose(0, 2, 1, 3).reshape(2, 3, 320)
    return got, (normed * mx.sigmoid(gate.astype(mx.float32))).astype(dtype)


@case(*KERNELS, dtypes=HALF_AND_FULL)
def norm_add_norm(m, dtype):
    d = 700
    branch, stream, norm = randn(2, 3, d, dtype=dtype), randn(2, 3, d), nn.RMSNorm(d, eps=1e-6)
    norm.weight = randn(d)
    alpha, beta, post = randn(d), randn(d), randn(d)
    arguments = {"alpha": alpha, "beta": beta, "post_weight": post, "post_eps": 1e-5}
    got = [
        *m.norm_add_norm(branch, stream, **arguments, next_norm=norm),
        m.norm_add_norm(branch, stream, **arguments, next_norm=None)[0],
        m.pre_norm(stream, norm, dtype=dtype),
    ]
    normed = rms((post.astype(dtype) * branch).astype(dtype), 1e-5).astype(mx.float32)
    total = alpha * stream + beta * normed
    return got, [total, norm(total).astype(dtype), total, norm(stream).astype(dtype)]


# ---- recurrences ----

GATED = "mlx_lm.models.gated_delta mlx_vlm.models.gated_delta mlx_vlm.models.qwen3_5.gated_delta mlx_audio.lm.models.gated_delta"
GATED = GATED.split()


def gated(dk, dv, steps, is_vector, dtype=mx.float32, hk=2, hv=4, batch=2):
    q, k = (randn(batch, steps, hk, dk, scale=0.1, dtype=dtype) for _ in "qk")
    g = mx.random.uniform(shape=(batch, steps, hv, dk) if is_vector else (batch, steps, hv))
    beta = mx.random.uniform(shape=(batch, steps, hv)).astype(dtype)
    return q, k, randn(batch, steps, hv, dv, dtype=dtype), g, beta, randn(batch, hv, dv, dk)


#: The mask of two sequences of five steps.
MASK = mx.array([[True] * 5, [True, True, False, True, False]])


def without_masked(results, mask):
    """Where a step is masked, its output means nothing: kernels write 0, operations what they computed."""
    y, *states = results
    return [y if mask is None else y * mask[..., None, None], *states]


def each_gated(calls, *more, dtype=mx.float32):
    """What a kernel and operations give, with a gate for each head or each item, with a mask and without."""
    for is_vector in (False, True):
        for mask in (None, MASK):
            arguments = (*gated(64, 24, 5, is_vector, dtype), mask, *more)
            yield [without_masked(call(*arguments), mask) for call in calls]


@case(*GATED, dtypes=HALF_AND_FULL)
def gated_delta(m, dtype):
    return each_gated((m.gated_delta_kernel, m.gated_delta_ops), dtype=dtype)


@case(*GATED[:3:2])
def gated_delta_packed(m, dtype):
    arguments = gated(128, 16, 3, False)
    return m.gated_delta_kernel(*arguments), m.gated_delta_ops(*arguments)


@case(GATED[0])
def gated_delta_xtree(m, dtype):
    arguments = gated(64, 16, 3, False)
    return m.gated_delta_kernel_xtree(*arguments), m.gated_delta_ops(*arguments)


@case(GATED[1])
def gated_delta_states(m, dtype):
    return each_gated((m.gated_delta_kernel, m.gated_delta_ops), 3)


@case(GATED[2])
def gated_delta_with_states(m, dtype):
    q, k, v, _, _, state = gated(64, 24, 5, False)
    a, b, log, bias = randn(2, 5, 4), randn(2, 5, 4), randn(4), randn(4)
    for mask in (None, MASK):
        arguments = (q, k, v, a, b, log, bias, state, mask)
        ways = (m.gated_delta_update_with_states(*arguments, state_steps=4, use_kernel=way) for way in (True, False))
        yield [without_masked(results, mask) for results in ways]


@case("mlx_lm.models.ssm", "mlx_vlm.models.ssm", "mlx_audio.lm.models.ssm", dtypes=HALF_AND_FULL)
def ssm_update(m, dtype):
    n, h, d, groups, ds = 2, 4, 16, 2, 64
    x = randn(n, 1, h, d, dtype=dtype)
    arguments = (x, randn(h), randn(n, 1, groups, ds, dtype=dtype), randn(n, 1, groups, ds, dtype=dtype))
    arguments += (randn(h), randn(n, 1, h), randn(h), randn(n, h, d, ds))
    return list(m.ssm_update(*arguments)), list(on_the_cpu(m.ssm_update, *arguments))


@case("mlx_audio.lm.models.ssm")
def ssm_initial(m, dtype):
    n, steps, h, d, groups, ds = 2, 5, 4, 16, 2, 64
    arguments = (randn(n, steps, h, d), randn(h), randn(n, steps, groups, ds), randn(n, steps, groups, ds))
    arguments += (randn(h), randn(n, steps, h), randn(h))
    return list(m.ssm_update(*arguments)), list(on_the_cpu(m.ssm_update, *arguments))


@case("mlx_lm.models.rwkv7", "mlx_vlm.models.rwkv7.language", dtypes=HALF_AND_FULL)
def wkv7(m, dtype):
    b, t, h, d = 2, 4, 3, 64
    r, k, v, a, w, s = (randn(b, t, h, d, scale=0.2, dtype=dtype) for _ in range(6))
    decay, state = mx.sigmoid(w), randn(b, h, d, d, dtype=dtype)
    mixing = type("Mixing", (), {"num_heads": h, "head_dim": d})()
    run = m.Rwkv7TimeMixing._wkv7
    arguments = (mixing, r, decay, k, v, a, s, state)
    y, end = on_the_cpu(run, *arguments)
    return list(run(*arguments)), [y.squeeze(-1), end]


@case("mlx_lm.models.kimi_k3", "mlx_vlm.models.kimi_k3.language", dtypes=HALF_AND_FULL)
def attention_residuals(m, dtype):
    blocks = m.ResidualBlocks(1e-5)
    for _ in range(3):
        blocks.append(randn(2, 5, 600, dtype=dtype))
    partial, w = randn(2, 5, 600, dtype=dtype), randn(600, scale=0.1)
    return m._attn_res_mix(blocks, partial, w, 1e-5), m._attn_res_mix(blocks, partial, w, 1e-5, use_kernel=False)


@case("mlx_vlm.models.kimi_k3.language", dtypes=HALF_AND_FULL)
def short_convolution(m, dtype):
    conv = m.ShortConv1d(80, 4)
    conv.set_dtype(dtype)
    conv.eval()
    arguments = (randn(2, 1, 80, dtype=dtype), randn(2, 3, 80, dtype=dtype), None, None)
    return list(conv(*arguments)), list(on_the_cpu(conv, *arguments))


@case("mlx_audio.codec.models.encodec.encodec", has_reference=False, is_wild=True)
def lstm_of_several(m, dtype):
    """The second sequence's items are taken from behind the end of `cell`."""
    return list(m.lstm_custom(randn(2, 3, 128), randn(2, 128), randn(2, 32), 1)), None


@case("mlx_audio.codec.models.encodec.encodec")
def lstm(m, dtype):
    batch, steps, hidden, step = 1, 3, 32, 1  # with more sequences it reads elsewhere
    x, h, cell = randn(batch, steps, 4 * hidden), randn(batch, 4 * hidden), randn(batch, hidden)
    i, f, g, o = mx.split(x[:, step] + h, 4, axis=-1)
    new = mx.sigmoid(f) * cell + mx.sigmoid(i) * mx.tanh(g)
    return list(m.lstm_custom(x, h, cell, step)), [mx.sigmoid(o) * mx.tanh(new), new]


# ---- losses ----


def divergence(loss, q, p):
    return [loss(q, p), mx.grad(lambda q: loss(q, p).sum())(q)]


def divergence_backwards(kernel, more):
    """Compare two arrays of logits, with as many more inputs of one number for each row."""
    inputs = [randn(2, 3, 1500), randn(2, 3, 1500), *(randn(2, 3) for _ in range(more))]
    return launched(kernel, inputs, (1024, 6), 1024, [(2, 3, 1500)], V=1500)


@case("mlx_lm.tuner.losses", dtypes=HALF_AND_FULL, has_reference=False)
def kullback_leibler(m, dtype):
    """SIMD-groups write `shared` while others still read it: the values depend on who comes first."""
    q, p = (randn(2, 3, 1500, dtype=dtype, scale=2) for _ in "qp")
    return divergence(m.kl_div_loss, q, p), None


@case("mlx_lm.tuner.losses", dtypes=HALF_AND_FULL, has_reference=False)
def jensen_shannon(m, dtype):
    q, p = (randn(2, 3, 1500, dtype=dtype, scale=2) for _ in "qp")
    return divergence(m.js_div_loss, q, p), None


@case("mlx_lm.tuner.losses", has_reference=False)
def gradient_of_kullback_leibler(m, dtype):
    return divergence_backwards(m._kl_backward_kernel, 1), None


@case("mlx_lm.tuner.losses", has_reference=False)
def gradient_of_jensen_shannon(m, dtype):
    return divergence_backwards(m._js_backward_kernel, 2), None


# ---- packed weights ----


@case("mlx_lm.models.bitlinear_layers", "mlx_vlm.models.bitnet.bitlinear", dtypes=HALF_AND_FULL)
def bit_linear(m, dtype):
    rows_in, rows_out = 256, 32
    layer = m.BitLinear(rows_in, rows_out, bias=False)
    values = mx.random.randint(0, 3, (rows_out, rows_in))
    parts = values.reshape(4, rows_out // 4, rows_in)
    layer.weight = sum(parts[i] << (2 * i) for i in range(4)).astype(mx.uint8)
    layer.weight_scale = mx.array([0.5], dtype)
    x = randn(2, 3, rows_in, dtype=dtype)
    expected = x.astype(mx.float32) @ (values - 1).astype(mx.float32).T * 0.5
    return layer(x), expected.astype(dtype)


@case("mlx_audio.stt.models.phonon.packed", tolerance=0)
def base_five(m, dtype):
    width = 64
    codes = mx.random.randint(0, 256, (6, m.packed_bytes_per_row(width))).astype(mx.uint8)
    return list(m.unpack_base5_codes(codes, width)), list(m._unpack_base5_codes_fallback(codes, width))


@case("mlx_vlm.quantization.one_bit", dtypes=(mx.float32, mx.float16))
def one_bit_matmul(m, dtype):
    for rows, width, out in ((3, 256, 48), (3, 128, 100), (20, 512, 40)):
        group = 128
        weight = mx.random.randint(0, 2**31, (out, width // 32)).astype(mx.uint32)
        scales, biases = (randn(out, width // group, dtype=dtype) for _ in "sb")
        x = randn(rows, width, dtype=dtype)
        dense = m.dequantize_one_bit(weight, scales, biases, group).astype(mx.float32)
        got = m.one_bit_quantized_matmul(x, weight, scales, biases, group_size=group)
        yield got, (x.astype(mx.float32) @ dense.T).astype(dtype)


@case("mlx_vlm.models.deepseek_v41.fakequant", dtypes=HALF_AND_FULL, tolerance=0)
def fp8_roundtrip(m, dtype):
    x = randn(3, 128, dtype=dtype, scale=30)
    return m.fake_quant_fp8_ue8m0(x), on_the_cpu(m.fake_quant_fp8_ue8m0, x)


# ---- images, sound, masks ----


@case("mlx_vlm.models.kernels")
def nearest_interpolate(m, dtype):
    x = randn(2, 3, 9, 7)
    return m.nearest_interpolate(x, size=(14, 5)), m._nearest_interpolate_mlx(x, 14, 5)


@case("mlx_vlm.models.kernels", tolerance=2e-3)
def bicubic_interpolate(m, dtype):
    x = randn(2, 3, 16, 12)
    yield m.bicubic_interpolate(x, size=(8, 6), antialias=True), m._bicubic_interpolate_mlx(x, 8, 6, antialias=True)
    ways = (
        m.bicubic_interpolate(x, size=(20, 15), align_corners=True),
        m._bicubic_interpolate_mlx(x, 20, 15, align_corners=True),
    )
    yield [images[:, :, 3:-3, 3:-3] for images in ways]


@case("mlx_vlm.models.kernels")
def grid_sample(m, dtype):
    x, grid = randn(2, 6, 5, 4), mx.random.uniform(-1.1, 1.1, (2, 7, 3, 2))
    return m.grid_sample(x, grid), m._grid_sample_mlx(x, grid)


@case("mlx_vlm.models.kernels")
def separable_interpolate(m, dtype):
    taps = [
        (mx.random.randint(0, n, (out, 4)).astype(mx.int32), mx.random.uniform(shape=(out, 4)))
        for n, out in ((9, 5), (7, 11))
    ]
    arguments = (randn(2, 9, 7, 3), *taps[0], *taps[1])
    return m.separable_interpolate(*arguments), m._separable_interpolate_mlx(*arguments)


@case("mlx_vlm.structured")
def grammar_mask(m, dtype):
    logits = randn(2, 70)
    words = mx.random.randint(0, 2**31, (2, 3)).astype(mx.int32)
    bits = (words[:, :, None].astype(mx.uint32) >> mx.arange(32).astype(mx.uint32)) & 1
    return m._apply_llguidance_mask(logits, words), mx.where(bits.reshape(2, 96)[:, :70] == 1, logits, -mx.inf)


@case("mlx_vlm.models.embedding_gemma2._video_kernel", has_reference=False)
def yuv_to_rgb(m, dtype):
    for depth, width, form in ((8, 32, "yuv420p"), (8, 18, "yuvj420p"), (10, 32, "yuv420p10le")):
        kind = np.uint8 if depth == 8 else np.uint16
        planes = [
            np.random.randint(0, 2**depth, size).astype(kind) for size in ((8, width), (4, width // 2), (4, width // 2))
        ]
        meta = {"colorspace": 1, "format": form, "depth": depth, "log2_chroma_w": 1, "log2_chroma_h": 1}
        yield m.yuv_to_rgb(planes, meta), None


FLASH = "mlx_audio.sts.models.mossformer2_se.flash_attention_kernels"


@case(FLASH)
def flash_attention(m, dtype):
    flash = m.FlashAttentionImplementations
    q, k, v = (randn(1, 1, 20, 16) for _ in "qkv")
    got = [flash.simple_kernel(q, k, v), flash.fused_kernel(q, k, v)]
    a, b = randn(40), randn(40)
    got += launched(m.fused_multiply_add, [a, b, mx.array([0.5])], (40, 1), 40, [(40,)])
    return got, [flash.standard(q, k, v)] * 2 + [a * b * 0.5]


@case("mlx_audio.sts.models.mossformer2_se.depthwise_conv1d_kernel", dtypes=(mx.float32, mx.float16))
def depthwise_convolution(m, dtype):
    x, w = randn(2, 20, 12, dtype=dtype), randn(12, 5, 1, dtype=dtype)
    return m.depthwise_conv1d(x, w, padding=2, groups=12), mx.conv1d(x, w, padding=2, groups=12)


# ---- projections of small blocks, dense and quantized ----

HALVES = (mx.float16, mx.bfloat16)


def quantized_linear(width, out, dtype, bits, group=64, mode="affine"):
    linear = nn.QuantizedLinear(width, out, bias=False, group_size=group, bits=bits, mode=mode)
    if mode == "affine":
        linear.scales, linear.biases = linear.scales.astype(dtype), linear.biases.astype(dtype)
    return linear


def quantized_experts(width, out, experts, dtype, bits, mode="affine", group=64):
    kind = importlib.import_module("mlx_vlm.models.switch_layers").QuantizedSwitchLinear
    linear = kind(width, out, experts, bias=False, bits=bits, mode=mode, group_size=group)
    if mode == "affine":
        linear.scales, linear.biases = linear.scales.astype(dtype), linear.biases.astype(dtype)
    return linear


def dense(linear):
    """The weights in float32: on the CPU MLX sums products of half precision in half precision."""
    asked = {"group_size": linear.group_size, "bits": linear.bits, "mode": linear.mode}
    return mx.dequantize(linear.weight, linear.scales, getattr(linear, "biases", None), **asked).astype(mx.float32)


def projected(linear, x):
    return (x.astype(mx.float32) @ dense(linear).swapaxes(-1, -2)).astype(x.dtype)


def of_chosen(linear, x, chosen):
    """Each chosen expert's projection; x has one row for all experts, or one for each."""
    x = x[..., None, :] if x.ndim == chosen.ndim else x
    weights = dense(linear)[chosen]
    return (x.astype(mx.float32)[..., None, :] @ weights.swapaxes(-1, -2)).squeeze(-2).astype(x.dtype)


VERIFIER = "mlx_vlm.models.quantized_verifier"


@case(VERIFIER, dtypes=HALVES)
def verified_linear(m, dtype):
    for bits, steps in ((4, 3), (5, 2), (8, 4), (4, 7), (4, 11)):
        linear, x = quantized_linear(512, 32, dtype, bits), randn(2, steps, 512, dtype=dtype)
        yield m.optimized_affine_linear(linear, x), projected(linear, x)


def unless_equal(logits, chosen, best):
    """The chosen ones; of two that are nearly equal, another order of sums may take either."""
    values = [mx.take_along_axis(logits, i[..., None].astype(mx.int32), axis=-1)[..., 0] for i in (chosen, best)]
    return mx.where(mx.abs(values[0] - values[1]) < 0.01, best.astype(chosen.dtype), chosen)


@case(VERIFIER, tolerance=0)
def verified_argmax(m, dtype):
    dtype = mx.float16
    for bits, steps in ((4, 3), (4, 7), (4, 11), (8, 2)):
        linear, x = quantized_linear(512, 64, dtype, bits), randn(2, steps, 512, dtype=dtype)
        mask = mx.random.randint(0, 2**31, (2 * steps, 2)).astype(mx.int32)
        for masked in (None, mask):
            chosen = m.optimized_affine_argmax(linear, x, masked)
            logits = projected(linear, x)
            best = mx.argmax(logits, -1) if masked is None else m._masked_argmax(logits, masked)
            yield unless_equal(logits, chosen, best), best


@case(VERIFIER, dtypes=HALVES)
def verified_linears(m, dtype):
    for bits, steps in ((4, 3), (8, 4), (4, 7)):
        linears, x = [quantized_linear(512, n, dtype, bits) for n in (16, 32, 8)], randn(2, steps, 512, dtype=dtype)
        yield m.optimized_affine_linears(linears, x), [projected(linear, x) for linear in linears]


@case(VERIFIER, tolerance=0)
def nvfp4_argmax(m, dtype):
    linear, x = quantized_linear(512, 64, dtype, 4, 16, "nvfp4"), randn(2, 3, 512, dtype=mx.float16)
    logits = projected(linear, x)
    chosen, best = m.optimized_nvfp4_argmax(linear, x), mx.argmax(logits, -1)
    return unless_equal(logits, chosen, best), best


def routed(length=3, width=512, out=64, top=2, experts=4, dtype=mx.float16, hc=4):
    x, chosen = randn(1, length, top, width, dtype=dtype), mx.random.randint(0, experts, (1, length, top))
    weights = mx.softmax(randn(1, length, top), axis=-1)
    shared, residual = randn(1, length, out, dtype=dtype), randn(1, length, hc, out, dtype=dtype)
    return x, chosen, weights, shared, residual, mx.random.uniform(shape=(1, length, hc)), randn(1, length, hc, hc)


def expanded(x, residual, post, comb):
    y = post[..., None] * x[:, :, None, :].astype(mx.float32)
    return (y + comb.swapaxes(-1, -2) @ residual.astype(mx.float32)).astype(x.dtype)


def combined(linear, x, chosen, weights, shared):
    parts = of_chosen(linear, x, chosen).astype(mx.float32)
    return (parts * weights[..., None]).sum(-2).astype(x.dtype) + shared


@case(VERIFIER, dtypes=HALVES)
def experts_and_hyperconnections(m, dtype):
    for bits, mode, group in ((4, "affine", 64), (5, "affine", 64), (4, "nvfp4", 16), (3, "affine", 64)):
        linear = quantized_experts(512, 64, 4, dtype, bits, mode, group)
        x, chosen, weights, shared, residual, post, comb = routed(dtype=dtype)
        arguments = (linear, x, chosen, weights, shared, residual, post, comb)
        by_hand = expanded(combined(linear, x, chosen, weights, shared), residual, post, comb)
        parts = of_chosen(linear, x, chosen)
        yield m.exact_quantized_moe_hc_expand(*arguments), by_hand
        yield m.exact_quantized_moe_hc_expand(*arguments, routed=parts), by_hand


FAST = "mlx_vlm.models.fast_ops"


@case(FAST, dtypes=HALVES)
def experts_gate_and_up(m, dtype):
    for bits in (4, 5):
        up, gate = (quantized_experts(512, 32, 4, dtype, bits) for _ in "ug")
        x, chosen = randn(1, 3, 512, dtype=dtype), mx.random.randint(0, 4, (1, 3, 2))
        switch = type("Switch", (), {"up_proj": up, "gate_proj": gate})()
        expected = [of_chosen(linear, x, chosen) for linear in (up, gate)]
        yield m.exact_affine_switch_gate_up(switch, x, chosen), expected


@case(FAST, dtypes=HALVES)
def experts_down(m, dtype):
    for bits in (4, 5):
        linear, (x, chosen, weights, shared, *_) = quantized_experts(512, 64, 4, dtype, bits), routed(dtype=dtype)
        yield m.exact_affine_moe_down(linear, x, chosen, weights, shared), combined(linear, x, chosen, weights, shared)


def hyperconnection(width, dtype):
    values = {
        "fn": randn(24, 4 * width, scale=0.01).astype(dtype),
        "scale": mx.random.uniform(shape=(3,)),
        "base": randn(24),
    }
    return type("Connection", (), {**values, "sinkhorn_iters": 4, "hc_eps": 1e-6, "norm_eps": 1e-6})()


def hyper_by_hand(one, norm, x, mixes):
    ops = importlib.import_module("mlx_vlm.models.deepseek_v4.hyper_connection")._hc_ops
    arguments = (one.scale, one.base, 4, one.sinkhorn_iters, one.hc_eps)
    collapsed, post, comb = ops(x, x.astype(mx.float32), mixes, *arguments)
    return [collapsed if norm is None else norm(collapsed), post, comb]


@case(FAST, dtypes=HALVES)
def hyperconnections(m, dtype):
    one, norm = hyperconnection(256, dtype), nn.RMSNorm(256, eps=1e-6)
    norm.weight = norm.weight.astype(dtype)
    x, mixes = randn(1, 3, 4, 256, dtype=dtype), randn(1, 3, 24)
    *_, residual, post, comb = routed(dtype=dtype)
    y = randn(1, 3, 64, dtype=dtype)
    got = [*m.exact_hc_norm(one, norm, x, mixes), m.exact_hc_expand(y, residual, post, comb)]
    return got, [*hyper_by_hand(one, norm, x, mixes), expanded(y, residual, post, comb)]


@case(FAST, dtypes=HALVES)
def hyperconnections_from_the_input(m, dtype):
    one, norm = hyperconnection(4096, dtype), nn.RMSNorm(4096, eps=1e-6)
    norm.weight = norm.weight.astype(dtype)
    x = randn(1, 2, 4, 4096, dtype=dtype)
    mixes = rms(x.astype(mx.float32).flatten(-2), 1e-6) @ one.fn.astype(mx.float32).T
    return list(m.exact_hc_normalized_norm(one, norm, x)), hyper_by_hand(one, norm, x, mixes)


@case("mlx_vlm.models.deepseek_v4.hyper_connection", dtypes=HALVES)
def sinkhorn(m, dtype):
    one, x, mixes = hyperconnection(256, dtype), randn(2, 3, 4, 256, dtype=dtype), randn(2, 3, 24)
    arguments = (mixes, one.scale, one.base, 4, 4, 1e-6)
    got = [*m._hc_kernel(x, x.astype(mx.float32), *arguments), *m.hc_split_sinkhorn(*arguments)]
    return got, [*hyper_by_hand(one, None, x, mixes), *m._hc_split_sinkhorn_ops(*arguments)]


@case("mlx_lm.models.deepseek_v41")
def sinkhorn_of_combinations(m, dtype):
    arguments = {"iters": 5, "eps": mx.array([1e-6])}
    comb = mx.random.uniform(shape=(2, 5, 4, 4))
    return m._sinkhorn(comb, **arguments), on_the_cpu(m._sinkhorn, comb, **arguments)


@case("mlx_vlm.models.exact_speculative_verify", dtypes=HALF_AND_FULL)
def dense_blocks(m, dtype):
    x, w, experts = randn(2, 3, 96, dtype=dtype), randn(20, 96, dtype=dtype), randn(5, 20, 96, dtype=dtype)
    chosen = mx.random.randint(0, 5, (2, 3, 2))
    got = [m.exact_speculative_verify_weight(w, x), m.exact_speculative_verify_switch_weight(experts, x, chosen)]
    each = mx.einsum("blk,blnok->blno", x.astype(mx.float32), experts[chosen].astype(mx.float32))
    got.append(m.exact_speculative_verify_switch_weight(experts, x, chosen[..., 0]))
    return got, [x @ w.T, each.astype(dtype), each[:, :, 0].astype(dtype)]


NEMOTRON = "mlx_vlm.models.nemotron_labs_diffusion.language"


@case(NEMOTRON, dtypes=HALF_AND_FULL)
def small_rows(m, dtype):
    x, gate, up = randn(2, 3, 96, dtype=dtype), nn.Linear(96, 20, bias=False), nn.Linear(96, 20, bias=False)
    gate.set_dtype(dtype), up.set_dtype(dtype)
    got = [m._small_row_gemv_weight(gate.weight, x, 8), m._small_row_swiglu(gate, up, x, 8)]
    return got, [gate(x), nn.silu(gate(x)) * up(x)]


@case(NEMOTRON, dtypes=(mx.bfloat16,))
def blocks_of_32(m, dtype):
    linear, x = nn.Linear(64, 64), randn(2, 32, 64, dtype=dtype)
    linear.set_dtype(dtype)
    return m._bm32_linear(linear, x), linear(x)


@case("mlx_vlm.models.glm_moe_dsa.speculative_verifier", dtypes=HALVES)
def quantized_head(m, dtype):
    for bits in (4, 5, 8):
        linear, x = quantized_linear(512, 32, dtype, bits), randn(2, 3, 512, dtype=dtype)
        yield m._quantized_head_logits(linear, x), projected(linear, x)


@case("mlx_vlm.models.nemotron_h.speculative_verifier", dtypes=HALF_AND_FULL)
def mamba(m, dtype):
    n, steps, h, d, groups, ds = 2, 3, 4, 16, 2, 64
    x = randn(n, steps, h, d, dtype=dtype)
    b, c = (randn(n, steps, groups, ds, dtype=dtype) for _ in "bc")
    arguments = (
        x,
        randn(h),
        b,
        c,
        randn(h, dtype=dtype),
        randn(n, steps, h),
        randn(h),
        randn(n, h, d, ds),
        (0.001, 100.0),
        None,
    )
    y, state, rollback = m._mamba_update_exact(*arguments)
    expected = m._mamba_update_timewise(*arguments)
    return [y, state, m.replay_mamba_state(rollback, steps)], [expected[0], expected[1], expected[1]]


# ---- attention ----


def attended(queries, keys, values, allowed, scale):
    """Attention where `allowed`, of (batch, query heads, queries, keys), is True."""
    share = queries.shape[1] // keys.shape[1]
    q, k, v = (x.astype(mx.float32) for x in (queries, mx.repeat(keys, share, 1), mx.repeat(values, share, 1)))
    scores = mx.where(allowed, scale * (q @ k.swapaxes(-1, -2)), -mx.inf)
    return (mx.softmax(scores, -1) @ v).astype(queries.dtype)


def heads(dtype, queries, keys, q_heads=4, kv_heads=2, d=64, batch=2):
    q = randn(batch, q_heads, queries, d, dtype=dtype)
    return q, randn(batch, kv_heads, keys, d, dtype=dtype), randn(batch, kv_heads, keys, d, dtype=dtype)


QWEN = "mlx_vlm.models.qwen3_5.language"


@case(QWEN, dtypes=HALVES)
def ragged_decode_attention(m, dtype):
    for keys, pads in ((100, [0, 7]), (4200, [0, 7])):
        q, k, v = heads(dtype, 1, keys)
        allowed = mx.arange(keys)[None] >= mx.array(pads)[:, None]
        expected = attended(q, k, v, allowed[:, None, None], 0.125)
        yield m._qwen3_5_ragged_decode_attention(q, k, v, pads, 0.125), expected


@case("mlx_vlm.models.sparse_attention", dtypes=HALVES)
def indexed_attention(m, dtype):
    q, k, v = heads(dtype, 3, 50)
    chosen = mx.stack([mx.random.permutation(50)[:8] for _ in range(6)]).reshape(2, 3, 8)
    allowed = (chosen[..., None] == mx.arange(50)).any(-2)
    return m.indexed_sparse_attention(q, k, v, chosen, 0.125), attended(q, k, v, allowed[:, None], 0.125)


def blocks_of_16(starts, ends, keys):
    """Which keys are of the chosen blocks and before the query's end."""
    place = mx.arange(keys)
    return (starts[..., None] == place // 16).any(-2) & (place < ends[..., None])


@case("mlx_vlm.models.minimax_m3_vl.language", dtypes=HALVES)
def sparse_prefill(m, dtype):
    q, k, v = heads(dtype, 3, 256)
    blocks = mx.broadcast_to(mx.array([0, 5]), (2, 3, 2))
    positions = mx.array([[80, 90, 95], [200, 210, 255]])
    got = m._minimax_m3_sparse_prefill_attention(q, k, v, blocks, positions, 0.125, 16)
    return got, attended(q, k, v, blocks_of_16(blocks, positions + 1, 256)[:, None], 0.125)


@case("mlx_vlm.models.qwen4_exp.qsa_kernel", dtypes=HALVES)
def qsa_attention(m, dtype):
    q, k, v = heads(dtype, 3, 256)
    blocks, ends = mx.broadcast_to(mx.array([0, 3]), (2, 3, 2)), mx.array([[80, 90, 95], [200, 210, 255]])
    got = m.qsa_sparse_attention(q, k, v, blocks, ends, scale=0.125, block_size=16)
    with_tail = mx.concatenate([blocks, (ends // 16)[..., None]], axis=-1)  # the block that is not complete
    return got, attended(q, k, v, blocks_of_16(with_tail, ends, 256)[:, None], 0.125)


@case("mlx_vlm.models.longcat_flash_sparse.indexer_kernel")
def indexer_scores(m, dtype):
    q, pooled, weights = randn(2, 4, 3, 32), randn(2, 300, 32), randn(2, 3, 4)
    got = m.indexer_dense_scores(q, pooled, weights, 0.3)
    scores = mx.maximum(q @ pooled[:, None].swapaxes(-1, -2), 0) * 0.3
    return got, (scores * weights.swapaxes(-1, -2)[..., None]).sum(1)


INKLING = "mlx_vlm.models.inkling.language"


@case(INKLING, dtypes=HALF_AND_FULL)
def banded_mask(m, dtype):
    rel, proj = randn(2, 5, 3, 16, dtype=dtype), randn(16, 12, dtype=dtype)
    for sliding in (0, 9):
        for shape in (None, mx.zeros((2, 3, 20, 8))):
            arguments = (rel, proj, 15, 20, sliding, 12)
            got = m.banded_additive_mask(*arguments, shape_ref=shape)
            expected = on_the_cpu(m.banded_additive_mask, *arguments, shape_ref=shape)
            yield got / 1e30, expected / 1e30
            yield mx.maximum(got, -100), mx.maximum(expected, -100)


@case(INKLING, dtypes=HALF_AND_FULL)
def decoding_convolution(m, dtype):
    conv = m.InklingShortConvolution(40, 4, 0)
    conv.set_dtype(dtype)
    x, state = randn(2, 3, 40, dtype=dtype), randn(2, 3, 40)
    caches = [[state], [state]]
    got = conv(x, caches[0], residual=x)
    expected = on_the_cpu(conv, x, caches[1], residual=x)
    return [got, caches[0][0]], [expected, caches[1][0]]


def by_expert(chosen, *values):
    """Sorted by the experts' numbers: the order among the chosen means nothing."""
    order = mx.argsort(chosen, axis=-1)
    return [mx.take_along_axis(x, order, axis=-1) for x in (chosen, *values)]


@case(INKLING, dtypes=HALF_AND_FULL)
def mixture_route(m, dtype):
    config = {"n_routed": 40, "n_shared": 2, "top_k": 6, "route_scale": 2.0, "intermediate_size": 8, "_wscale": None}
    moe = type("MoE", (), {**config, "global_scale": mx.array([1.5]), "e_score_correction_bias": randn(40)})()
    logits = randn(3, 42, dtype=dtype)
    got, expected = m.InklingSparseMoE._route(moe, logits), on_the_cpu(m.InklingSparseMoE._route, moe, logits)
    return [*by_expert(*got[:2]), got[2]], [*by_expert(*expected[:2]), expected[2]]


@case(INKLING, dtypes=HALVES)
def mixture_down(m, dtype):
    linear, top, rows = quantized_experts(2048, 16, 5, dtype, 4), 3, 2
    act, chosen = randn(rows, top, 1, 2048, dtype=dtype), mx.random.randint(0, 5, (rows, top)).astype(mx.uint32)
    weights = mx.softmax(randn(rows, top), -1).astype(dtype)
    inputs = [act, linear.weight, linear.scales, linear.biases, chosen, weights]
    sizes = {"OUT": 16, "IN": 2048, "GROUPS": 32, "K": top}
    (got,) = launched(m._down_combine_kernel, inputs, (256, 16, rows), 256, [(rows, 16)], dtype, **sizes)
    parts = of_chosen(linear, act.squeeze(-2), chosen).astype(mx.float32)
    return got, (parts * weights[..., None]).sum(-2).astype(dtype)


# ---- rotations ----


def all_positions(m, ndim):
    ids = mx.random.randint(0, 50, (3, 2, 5) if ndim == 3 else (2, 5))
    return ids, 1.0 / (100.0 ** (mx.arange(16).astype(mx.float32) / 16)), mx.array([0] * 6 + [1] * 5 + [2] * 5)


@case("mlx_vlm.models.rope_utils", dtypes=HALF_AND_FULL)
def mrope(m, dtype):
    q, k = randn(2, 4, 5, 40, dtype=dtype), randn(2, 2, 5, 40, dtype=dtype)
    for pairing in (m._HALF_SPLIT, m._EVEN_ODD):
        for ndim in (2, 3):
            arguments = (q, k, *all_positions(m, ndim))
            yield m._compiled_mrope_apply(32, ndim, pairing)(*arguments), m._mrope_apply(*arguments, pairing)


@case("mlx_vlm.models.rope_utils", dtypes=HALF_AND_FULL)
def rotary(m, dtype):
    q, k = randn(2, 4, 5, 40, dtype=dtype), randn(2, 2, 5, 40, dtype=dtype)
    angles = mx.random.uniform(0, 6, (2, 5, 16))
    cos, sin = (mx.concatenate([f(angles)] * 2, axis=-1) for f in (mx.cos, mx.sin))
    for pairing in (m._HALF_SPLIT, m._EVEN_ODD):
        apply = m._compiled_rotary_apply(32, pairing, 3, False, m._HALF_COS)
        asked = {"pairing": pairing, "cos_layout": m._HALF_COS, "sectioned": False, "mrope_section": None}
        yield apply(q, k, cos, sin, None), m._precomputed_rotary(q, k, cos, sin, **asked)


BONSAI = "mlx_vlm.models.bonsai.klein_fast.blocks"


def turned_pairs(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return mx.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1).reshape(x.shape)


def flux(m, steps):
    spec = m.Flux2KleinBlockSpec(dim=256, num_heads=2, head_dim=128)
    angles = mx.random.uniform(0, 6, (steps, 64))
    norms = [mx.random.uniform(shape=(128,)).astype(mx.bfloat16) for _ in range(4)]
    return spec, mx.cos(angles), mx.sin(angles), norms


def normed_heads(spec, x, norm, turn):
    heads = x.reshape(*x.shape[:2], 2, 128).transpose(0, 2, 1, 3).astype(mx.float32)
    if norm is not None:
        heads = rms(heads, spec.rms_norm_eps, norm.astype(mx.float32))
        heads = turned_pairs(heads, *turn)
    return heads.astype(mx.bfloat16)


@case(BONSAI, dtypes=(mx.bfloat16,))
def flux_single_block(m, dtype):
    steps = 6
    spec, cos, sin, (nq, nk, *_) = flux(m, steps)
    fused = randn(1, steps, spec.qkv_mlp_out_dim, dtype=dtype)
    kernel = m._get_fused_single_norm_rope_kernel(spec, steps)
    got = launched(kernel, [fused, nq, nk, cos, sin], (steps * 2 * 32, 1), 32, [(1, 2, steps, 128)] * 3, dtype)
    parts = (fused[..., i * 256 : (i + 1) * 256] for i in range(3))
    return got, [normed_heads(spec, x, norm, (cos, sin)) for x, norm in zip(parts, (nq, nk, None), strict=True)]


@case(BONSAI, dtypes=(mx.bfloat16,))
def flux_double_block(m, dtype):
    image, text = 5, 3
    spec, cos, sin, norms = flux(m, image + text)
    img, txt = randn(1, image, 768, dtype=dtype), randn(1, text, 768, dtype=dtype)
    kernel, steps = m._get_fused_double_norm_rope_kernel(spec, image, text), image + text
    inputs = [img, txt, *norms, cos, sin]
    got = launched(kernel, inputs, (steps * 2 * 32, 1), 32, [(1, 2, steps, 128)] * 3, dtype)
    expected = []
    for i, (of_image, of_text) in enumerate(((norms[0], norms[2]), (norms[1], norms[3]), (None, None))):
        part = slice(i * 256, (i + 1) * 256)
        first = normed_heads(spec, txt[..., part], of_text, (cos[:text], sin[:text]))
        second = normed_heads(spec, img[..., part], of_image, (cos[text:], sin[text:]))
        expected.append(mx.concatenate([first, second], axis=2))
    return got, expected


# ---- TurboQuant: keys and values of a few bits ----

TURBO = "mlx_vlm.turboquant"


@contextlib.contextmanager
def without_kernels(m, *names):
    """The module's functions that make these kernels, or any, make none: then it takes another way."""
    found = [name for name in vars(m) if name.endswith("_kernel") and callable(getattr(m, name))]
    usual = {name: getattr(m, name) for name in names or found}
    try:
        for name in usual:
            setattr(m, name, lambda *_, **__: None)
        yield
    finally:
        for name, make in usual.items():
            setattr(m, name, make)


def by_operations(m, call, *arguments):
    with without_kernels(m):
        result = call(*arguments)
        mx.eval(result)
    return result


@case(TURBO, tolerance=0)
def packing(m, dtype):
    for bits in (1, 2, 3, 4, 5, 8):
        values = mx.random.randint(0, 2**bits, (2, 3, 70)).astype(mx.uint32)
        packed = m._pack_lowbit(values, bits)
        yield packed, by_operations(m, m._pack_lowbit, values, bits)
        yield m._unpack_lowbit(packed, bits, 70), values


#: A power of two is rotated by Hadamard's matrix, another by a dense one.
DIMS = (64, 96)


@case(TURBO, tolerance=0)
def quantizing(m, dtype):
    for dim in DIMS:
        for bits, tokens in ((2, 5), (3, 1), (4, 1)):
            codec, x = m._TurboQuantMSECodec(dim, bits, 0), randn(1, 2, tokens, dim)
            expected = by_operations(m, codec.quantize, x)
            yield codec.quantize(x), expected
            with without_kernels(m, "_fused_norot_quantize_kernel"):
                got = codec.quantize(x)
            yield got, expected
        codec, x = m._TurboQuantProdCodec(dim, 3, 0), randn(1, 2, 1, dim)
        norms, indices, _, signs = codec.quantize(x)
        # the projection of what is left is summed in another order, so that a sign near 0 may differ
        signs_expected = by_operations(m, codec.quantize, x)
        differing = m._unpack_lowbit(signs, 1, dim) != m._unpack_lowbit(signs_expected[3], 1, dim)
        # Hadamard's rotation is projected by the dense one's matrix here: its numbers are of something else
        is_near = differing.sum() <= (2 * dim if codec.mse_codec.use_rht else 2)
        yield [norms, indices, is_near], [*signs_expected[:2], mx.array(True)]


def both_scores(m, codec, keys, hidden):
    """Each by all kernels, and without those that are hidden."""
    state = codec.quantize(keys)
    for repeats in (1, 4):
        queries = randn(1, 2, repeats, 1, keys.shape[-1])
        expected = by_operations(m, codec.score, queries, state)
        yield codec.score(queries, state), expected
        with without_kernels(m, *hidden):
            got = codec.score(queries, state)
        yield got, expected


@case(TURBO)
def scores(m, dtype):
    for dim in DIMS:
        for codec in (m._TurboQuantMSECodec(dim, 3, 0), *(m._TurboQuantProdCodec(dim, bits, 0) for bits in (3, 1))):
            hidden = ("_mse_score_tiled_kernel", "_prod_score_repeat_kernel")
            yield from both_scores(m, codec, randn(1, 2, 20, dim), hidden)


@case(TURBO)
def polar_scores(m, dtype):
    codec = m._TurboQuantPolarProdCodec(64, 4, 0)
    return both_scores(m, codec, randn(1, 2, 20, 64), ["_polar_turbo_score_repeat_kernel"])


@case(TURBO)
def weighted_sums(m, dtype):
    for dim in DIMS:
        codec = m._TurboQuantMSECodec(dim, 3, 0)
        state = codec.quantize(randn(1, 2, 20, dim))
        for repeats in (1, 4):
            values = randn(1, 2, repeats, 1, 20)
            calls = ((codec.weighted_sum, mx.softmax(values, -1)), (codec.weighted_sum_from_scores, values))
            for call, given in (*calls, (codec.weighted_sum_stats_from_scores, values)):
                yield call(given, state), by_operations(m, call, given, state)


def attention_by_operations(m, cache, queries, scale):
    """Scores, softmax and the sum of values, on what the cache has packed."""
    keys, values = cache._attention_states()
    batch, count, steps, dim = queries.shape
    heads = 2
    grouped = (queries * scale).reshape(batch, heads, count // heads, steps, dim)

    def compute():
        scores = cache.key_codec.score(grouped, cache._unwrap(keys))
        return cache.value_codec.weighted_sum(mx.softmax(scores, axis=-1), cache._unwrap(values))

    return by_operations(m, compute).reshape(batch, count, steps, -1)


def filled(m, tokens, dim=64, kind=None, batch=1, **bits):
    cache, keys, values = m.TurboQuantKVCache(**bits), randn(batch, 2, tokens, dim), randn(batch, 2, tokens, dim)
    if kind is not None:
        cache.key_codec = kind(keys)
    cache.update_and_fetch(keys, values)
    return cache


@case(TURBO)
def decoding(m, dtype):
    for dim in DIMS:
        for tokens in (20, 2100):
            cache = filled(m, tokens, dim, bits=4, key_bits=3)
            queries = randn(1, 4, 1, dim)
            yield cache.decode_attention(queries, scale=0.125), attention_by_operations(m, cache, queries, 0.125)


@case(TURBO, has_reference=False)
def one_more_token(m, dtype):
    """The sums of SIMD-groups that there are not are added to the norm."""
    cache = filled(m, 20, 96, bits=4, key_bits=3)
    cache.update_and_fetch(randn(1, 2, 1, 96), randn(1, 2, 1, 96))
    return cache.decode_attention(randn(1, 4, 1, 96), scale=0.125), None


@case(TURBO)
def decoding_of_products(m, dtype):
    """With 96 items: with a power of two these ways rotate by another matrix than the codec."""
    cache = filled(m, 20, 96, lambda keys: m._TurboQuantProdCodec(keys.shape[-1], 3, 0), bits=3)
    queries = randn(1, 4, 1, 96)
    keys, values = (cache._unwrap(state) for state in cache._attention_states())
    grouped = (queries * 0.125).reshape(1, 2, 2, 1, 96)
    expected = attention_by_operations(m, cache, queries, 0.125)
    yield cache.decode_attention(queries, scale=0.125), expected
    ways = [(), ("_fully_fused_decode_kernel",)]
    ways.append((*ways[1], "_fused_integer_decode_single_tile_kernel"))
    ways.append((*ways[1], "_fused_integer_decode_kernel"))
    ways.append((*ways[2], "_fused_integer_decode_kernel"))
    for hidden in ways:
        with without_kernels(m, *hidden) if hidden else contextlib.nullcontext():
            output = cache._compiled_integer_decode_attention(grouped, keys, values)
        yield output.reshape(1, 4, 1, 96), expected


@case(TURBO)
def prefill_of_products(m, dtype):
    cache = filled(m, 20, 96, lambda keys: m._TurboQuantProdCodec(keys.shape[-1], 3, 0), bits=4)
    queries = randn(1, 4, 3, 96)
    return cache.prefill_attention(queries, scale=0.125), attention_by_operations(m, cache, queries, 0.125)


@case(TURBO)
def decoding_of_products_in_single_tiles(m, dtype):
    """Eight tiles of values, and 64 of tokens, heads and batches."""
    cache = filled(m, 3, 232, lambda keys: m._TurboQuantProdCodec(keys.shape[-1], 3, 0), batch=32, bits=3)
    queries = randn(32, 4, 1, 232)
    keys, values = (cache._unwrap(state) for state in cache._attention_states())
    with without_kernels(m, "_fully_fused_decode_kernel"):
        got = cache._compiled_integer_decode_attention((queries * 0.125).reshape(32, 2, 2, 1, 232), keys, values)
    return got.reshape(32, 4, 1, 232), attention_by_operations(m, cache, queries, 0.125)


@case(TURBO)
def decoding_of_splits(m, dtype):
    """Keys alone, and values too: then one kernel does it all."""
    for dim, bits in ((64, {}), (96, {"value_bits": 3.5})):
        cache = filled(m, 20, dim, lambda keys: m._SplitCodec(keys, 3.5, "prod", 0), bits=3.5, **bits)
        queries = randn(1, 4, 1, dim)
        yield cache.decode_attention(queries, scale=0.125), attention_by_operations(m, cache, queries, 0.125)
