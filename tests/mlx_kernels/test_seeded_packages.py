"""Defects put into the kernels of mlx-lm, mlx-vlm and mlx-audio by program: the checker finds them, and says where.

seeded_packages.py makes the seeds and has the rule for the right line.  Not sought: a value that is wrong and stays in its memory,
and `if (lane == 0)` left out, after which all lanes write the same.  None of these packages uses atomics.
"""

import json
import os
from collections import Counter

import fetched_data
import pytest
from children import run_child
from places import SUPPORT

mark = pytest.mark
pytestmark = [mark.long, mark.needs_softmetal, mark.needs_kernels, mark.needs_mlx, mark.needs_no_sanitizer]

PACKAGES = ("mlx-lm", "mlx-vlm", "mlx-audio")
#: From mlx_calls.py: most kernels with barriers, some without; small.
CASES = (
    "mlx_lm.kernels: expert_routing",
    "mlx_lm.kernels: post_expert_norm_combine float32",
    "mlx_lm.kernels: qk_norm_rope float32",
    "mlx_lm.kernels: norm_add_norm float32",
    "mlx_lm.models.kimi_k3: attention_residuals float32",
    "mlx_vlm.quantization.one_bit: one_bit_matmul float32",
    "mlx_vlm.models.fast_ops: hyperconnections float16",
    "mlx_vlm.models.quantized_verifier: experts_and_hyperconnections float16",
    "mlx_vlm.models.sparse_attention: indexed_attention float16",
    "mlx_vlm.models.qwen3_5.language: ragged_decode_attention float16",
    "mlx_vlm.models.minimax_m3_vl.language: sparse_prefill float16",
    "mlx_vlm.models.qwen4_exp.qsa_kernel: qsa_attention float16",
    "mlx_vlm.models.longcat_flash_sparse.indexer_kernel: indexer_scores",
    "mlx_vlm.models.deepseek_v4.hyper_connection: sinkhorn float16",
    "mlx_vlm.models.inkling.language: mixture_route float32",
    "mlx_vlm.models.inkling.language: mixture_down float16",
    "mlx_audio.sts.models.mossformer2_se.flash_attention_kernels: flash_attention",
    "mlx_audio.sts.models.mossformer2_se.depthwise_conv1d_kernel: depthwise_convolution float32",
    "mlx_audio.stt.models.phonon.packed: base_five",
    "mlx_vlm.models.kernels: nearest_interpolate",
    "mlx_vlm.models.kernels: bicubic_interpolate",
)
#: Read: what nothing can go wrong by, and why, beside the "idle".  (Beginning of the kernel's name, kind, line of its text).
EQUIVALENT = {
    (
        "mlx_vlm_affine_1bit_qmm",
        "barrier none",
        96,
    ): "orders reads before the next step's writes: a barrier without flags does",
}


def is_equivalent(seed):
    return seed["judged"] == "idle" or any(
        seed["kernel"].startswith(kernel) and (seed["kind"], seed["line"]) == (kind, line)
        for kernel, kind, line in EQUIVALENT
    )


def test_defects_in_the_packages_kernels_are_found_at_their_lines():
    folders = os.pathsep.join(str(fetched_data.folder(name)) for name in PACKAGES)
    script = SUPPORT / "seeded_packages.py"
    done = run_child(script, folders, *CASES, timeout=3000, SOFTMETAL_KERNEL_CHECK="1")
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert answer["failed"] == {}
    assert {kernel: said for kernel, said in answer["clean"].items() if said} == {}
    defects = [seed for seed in answer["seeds"] if not is_equivalent(seed)]
    assert [seed for seed in answer["seeds"] if seed["failure"]] == []  # each was built and launched
    judged = Counter(seed["judged"] for seed in defects)
    once = sum(len(seed["said"]) == 1 for seed in defects)
    told = [seed for seed in defects if seed["judged"] != "right"]
    print(
        f"{len(defects)} defects in {len(answer['clean'])} kernels: {len(defects) - judged['missed']} found, {judged['right']} "
        f"at the right line, {once} by one finding alone; by kind: {dict(Counter(seed['kind'] for seed in defects))}"
    )
    for seed in filter(is_equivalent, answer["seeds"]):
        print(f"changes nothing: {seed['kernel']}:{seed['line']}, {seed['kind']}: {seed['changed'].strip()}")
    assert len(defects) >= 40
    assert judged["right"] >= 0.95 * len(defects), told
    assert judged["twice"] == 0, told
