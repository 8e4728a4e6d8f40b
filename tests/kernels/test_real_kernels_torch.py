"""PyTorch's headers for Metal, c10/metal, in kernels as PyTorch's own use them, beside SciPy.

Its special functions are polynomials in float32, made for double and cut: 3e-6 of the value, and as much near a zero.
"""

from functools import partial

import kernel_sources
import numpy as np
import pytest
from own_kernels import on_metal, random

import metal_dlpack as md

TOLERANCE = 3e-6


def kernel(text):
    return md.kernel("#include <metal_stdlib>\n" + text, include=(kernel_sources.torch(),))


# ---- special_math.h ----

#: What torch computes of x: (SciPy's function of it, range, tolerance).
SPECIAL = {
    "erf(x)": ("erf", -4, 4),
    "erfc(x)": ("erfc", -4, 4),
    "erfinv(x)": ("erfinv", -0.99, 0.99),
    "i0(x)": ("i0", -8, 8),
    "i0e(x)": ("i0e", -50, 50),
    "i1(x)": ("i1", -8, 8),
    "i1e(x)": ("i1e", -50, 50),
    "gamma(x)": ("gamma", 0.1, 10, 2e-5),  # a power of up to x ** 9.5, of which pow may be 16 ulp off
    "log_gamma(x)": ("gammaln", 0.1, 50, 1e-5),  # x * log(x) - x cancels
    "digamma(x)": ("digamma", 0.1, 50),
    "bessel_j0_forward(x)": ("j0", 0, 30),
    "bessel_j1_forward(x)": ("j1", 0, 30),
    "bessel_y0_forward(x)": ("y0", 0.1, 30),
    "bessel_y1_forward(x)": ("y1", 0.1, 30),
    "modified_bessel_k0_forward(x)": ("k0", 0.1, 20),
    "modified_bessel_k1_forward(x)": ("k1", 0.1, 20),
    "erfcx(x)": ("erfcx", -3, 40, 1e-5),  # 2 * exp(x * x) where x is negative
    "entr(x)": ("entr", 0, 9),
    # A series of up to some hundred terms in float32, times a power that is off by x * 1e-6.
    "igamma(x, 21 - x)": (lambda special, x: special.gammainc(x, 21 - x), 1, 20, 1e-4),
    "igammac(x, 21 - x)": (lambda special, x: special.gammaincc(x, 21 - x), 1, 20, 1e-4),
    # Sums of pow, each within 16 ulp.
    "zeta(x, 1.5f)": (lambda special, x: special.zeta(x, 1.5), 1.5, 12, 1e-5),
    "polygamma(2, x)": (lambda special, x: special.polygamma(2, x), 1.5, 12, 1e-5),
    # The recurrence doubles an error a step.
    "chebyshev_polynomial_t_forward(x, 5)": (lambda special, x: special.eval_chebyt(5, x), -0.99, 0.99, 5e-6),
    "hermite_polynomial_h_forward(x, 4)": (lambda special, x: special.eval_hermite(4, x), -0.99, 0.99, 2e-5),
}


@pytest.mark.long
def test_special_functions():
    special = pytest.importorskip("scipy.special")
    lines = [f"x = all[{k} * n + i]; out[{k} * n + i] = c10::metal::{text};" for k, text in enumerate(SPECIAL)]
    use = kernel(f"""#include <c10/metal/special_math.h>
#include <c10/metal/igamma.h>
kernel void use(device const float *all, device float *out, uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {{
    float x;
    {" ".join(lines)}
}}""")
    x = np.array([np.linspace(low, high, 501, dtype="f4") for _, low, high, *_ in SPECIAL.values()])
    out = md.zeros(x.shape, dtype="float32")
    use(on_metal(x), out, threads=501)
    for (text, (function, _, _, *tolerance)), items, got in zip(SPECIAL.items(), x, np.asarray(out), strict=True):
        bound = tolerance[0] if tolerance else TOLERANCE
        exact = getattr(special, function) if isinstance(function, str) else partial(function, special)
        np.testing.assert_allclose(got, exact(items.astype("f8")), rtol=bound, atol=bound, err_msg=text)


# ---- reduction_utils.h ----


def test_reductions_of_a_threadgroup():
    reduce_ = kernel("""#include <c10/metal/reduction_utils.h>
using namespace c10::metal;
kernel void reduce(device const float *x, device float *sums, device float *products, device float *most, device float *least,
                   device uint *where, uint i [[thread_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                   uint group [[threadgroup_position_in_grid]], uint size [[threads_per_threadgroup]]) {
    threadgroup float shared[4][32];  // each may still be read when the next is written
    threadgroup float values[32];
    threadgroup uint indices[32];
    float sum = threadgroup_sum(shared[0], x[i], t, size);
    float product = threadgroup_prod(shared[1], x[i] > 80 ? 2.0f : 1.0f, t, size);
    float largest = threadgroup_max(shared[2], x[i], t, size);
    float smallest = threadgroup_min(shared[3], x[i], t, size);
    uint at = threadgroup_argmax(values, indices, x[i], t, t, size);
    if (t == 0) {
        sums[group] = sum;
        products[group] = product;
        most[group] = largest;
        least[group] = smallest;
        where[group] = at;
    }
}""")
    x = np.stack([random(seed).permutation(256) % 100 + np.arange(256) / 256 for seed in range(5)]).astype("f4")
    outs = [md.zeros(5, dtype="float32") for _ in range(4)] + [md.zeros(5, dtype="uint32")]
    reduce_(on_metal(x), *outs, groups=5, group=256)
    got = [np.asarray(out) for out in outs]
    np.testing.assert_array_max_ulp(got[0], x.astype("f8").sum(1).astype("f4"), 4)
    np.testing.assert_array_equal(got[1], 2.0 ** (x > 80).sum(1))
    np.testing.assert_array_equal(got[2], x.max(1))
    np.testing.assert_array_equal(got[3], x.min(1))
    np.testing.assert_array_equal(got[4], x.argmax(1))


# ---- atomic.h, indexing ----


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "dtype"), [("int", "i4"), ("float", "f4"), ("half", "f2"), ("uchar", "u1"), ("long", "i8")]
)
def test_atomic_additions(kind, dtype):
    """Items smaller than a word are added by exchanging the word that they are in; of 64 bits there are two halves."""
    add = kernel(f"""#include <c10/metal/atomic.h>
using namespace c10::metal;
kernel void add(device const uint *where, device const {kind} *x, device AtomicType_t<{kind}> *sums,
                uint i [[thread_position_in_grid]]) {{
    AtomicType<{kind}>::atomic_add(sums, where[i], x[i]);
}}""")
    where, x = random().integers(0, 8, 500, dtype="uint32"), random(1).integers(0, 3, 500).astype(dtype)
    sums = md.zeros(8, dtype=np.dtype(dtype).name)
    words = sums if kind in ("int", "float") else sums.view("uint32")
    add(on_metal(where), on_metal(x), words, threads=500)
    expected = np.zeros(8, dtype)
    np.add.at(expected, where, x)
    np.testing.assert_array_equal(np.asarray(sums), expected)
