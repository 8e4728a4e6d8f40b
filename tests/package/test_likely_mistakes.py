"""What people write who come from NumPy, torch, MLX and JAX, and is not so here: each answer, word by word."""

import pytest

np = pytest.importorskip("numpy")

import metal_dlpack as md  # noqa: E402

a = md.asarray([3.0, 1.0, 2.0])
x = np.arange(3, dtype="float32")
INDEX = (
    "would copy items, and indexing only makes views; write np.asarray(a)[index], a.to(torch.Tensor)[index], "
    "or ints and slices."
)
COMPUTE = (
    "an Array does no arithmetic; compute with np.asarray(a), a.to(torch.Tensor) or a kernel, which share its memory."
)

NEITHER = "is neither a type with __dlpack_c_exchange_api__ nor a module with from_dlpack; write"

#: (what is written, the class of the exception, its text)
MISTAKES = [
    (lambda: a + 1, TypeError, f"Array + int: {COMPUTE}"),
    (
        lambda: a == 3,
        TypeError,
        "Array == int: an Array compares no items; compare np.asarray(a) or a.to(torch.Tensor), which share its memory, "
        "or the objects themselves with `is`.",
    ),
    (
        lambda: 3 in a,
        TypeError,
        "int in Array: an Array compares no items; write `x in a.tolist()` or `x in np.asarray(a)`.",
    ),
    (
        lambda: bool(a),
        ValueError,
        "bool(Array): only an array of one item is a number; this one has 3.  "
        "Ask np.asarray(a).any(), .all(), or a.size > 0.",
    ),
    (
        lambda: a.sum(),
        AttributeError,
        "Array has no attribute 'sum': it does no arithmetic; call np.asarray(a).sum() or a.to(torch.Tensor).sum(), "
        "which share its memory.",
    ),
    (
        lambda: a.numpy(),
        AttributeError,
        "Array has no attribute 'numpy'; write np.asarray(a), which shares the memory.",
    ),
    (
        lambda: a.cpu(),
        AttributeError,
        "Array has no attribute 'cpu'; write np.asarray(a) or a.host, the same memory on the CPU.",
    ),
    (lambda: a[[0, 1]], IndexError, f"Array: an index of type list {INDEX}"),
    (lambda: a[x > 1], IndexError, f"Array: an index of type numpy.ndarray {INDEX}"),
    (
        lambda: md.zeros(2, 3),
        TypeError,
        "zeros: 3 is not an element type; if it is an extent, pass the shape as one argument: zeros((2, 3)).",
    ),
    (
        lambda: md.zeros((2,), storge="shared"),
        TypeError,
        "zeros() has no keyword argument 'storge'; it takes shape, dtype, device, storage.",
    ),
    (
        lambda: md.full((2,), fill_value=1),
        TypeError,
        "full() has no keyword argument 'fill_value'; it takes shape, value, dtype, device, storage.",
    ),
    (
        lambda: md.zeros((2,), order="F"),
        TypeError,
        "zeros() has no keyword argument 'order'; it takes shape, dtype, device, storage.",
    ),
    (
        lambda: md.zeros((2,), device="cpu"),
        ValueError,
        "zeros: 'cpu' is not a Metal device, and an Array lies in a Metal buffer; leave device out, and use the "
        "same memory on the CPU: np.asarray(a), a.host.",
    ),
    (
        lambda: a.to("cpu"),
        TypeError,
        f"Array.to: 'cpu' {NEITHER} np.asarray(a) or a.host, the same memory on the CPU.",
    ),
    (
        lambda: a.to("mps"),
        TypeError,
        f"Array.to: 'mps' {NEITHER} a.to(torch); the Array lies on Metal already.",
    ),
    (
        lambda: a.to("float16"),
        TypeError,
        "Array.to: 'float16' is an element type, not a framework; write a.astype('float16').",
    ),
    (
        lambda: md.zeros(2, "float"),
        TypeError,
        "zeros: 'float' is not an element type, because its width differs between NumPy and torch; give 'float32' or "
        "'float64'.",
    ),
    (
        lambda: md.asarray(x.astype(">f4")),
        ValueError,
        "asarray: dtype('>f4') is not in the machine's byte order; convert the array with "
        "x.astype(x.dtype.newbyteorder('=')), or name the type without '>'.",
    ),
    (
        lambda: md.asarray([[1, 2], [3]]),
        ValueError,
        "asarray: the nested lists differ in length or depth: x[1] has length 1 where x[0] has length 2.",
    ),
    (
        lambda: md.array([1, 2]),
        AttributeError,
        "module 'metal_dlpack' has no attribute 'array'; write metal_dlpack.asarray(x), or asarray(x, copy=True)",
    ),
    (
        lambda: md.Array([1, 2]),
        TypeError,
        "Array() cannot make an array; call asarray(x) for data, zeros(shape) for new memory, or Buffer.array(shape, dtype).",
    ),
    (
        lambda: md.from_dlpack([1, 2]),
        AttributeError,
        "from_dlpack: list has no __dlpack__ and __dlpack_device__; use asarray() for lists, scalars and objects with the "
        "buffer protocol.",
    ),
]


def test_a_likely_mistake_gets_the_way_out(subtests):
    for mistake, error, text in MISTAKES:
        with subtests.test(mistake=mistake):
            with pytest.raises(error) as caught:
                mistake()
            assert (type(caught.value), str(caught.value)) == (error, text)


def test_there_are_twenty_of_them():
    assert len(MISTAKES) >= 20


@pytest.mark.needs_torch
@pytest.mark.needs_mlx
@pytest.mark.needs_jax
def test_targets_that_are_no_targets_are_told_apart():
    torch, mx, jax = (pytest.importorskip(name) for name in ("torch", "mlx.core", "jax"))
    for target, instead in [
        (jax, r"write a\.to\(jax\.numpy\)\."),
        (jax.Array, r"write a\.to\(jax\.numpy\)\."),
        (mx.array, r"write a\.to\(mlx\.core\)\."),
        (np.ndarray, r"write a\.to\(numpy\), the module, or np\.asarray\(a\)\."),
        (torch.device("cpu"), r"write np\.asarray\(a\) or a\.host"),
        (torch.device("mps:0"), r"write a\.to\(torch\)"),
        (torch.float16, r"write a\.astype\('float16'\)"),
        (np.float16, r"write a\.astype\('float16'\)"),
        ("gpu", r"write a\.to\(mlx\.core\)"),
        ("cuda:0", r"write a\.to\(torch\)"),
        ("cpux", r"neither a type with .*; write a\.to\(torch\), a\.to\(torch\.Tensor\)"),
        (3, r"neither a type with .*; write a\.to\(torch\), a\.to\(torch\.Tensor\)"),
        (dict, "the type dict has no __dlpack_c_exchange_api__; write"),
    ]:
        with pytest.raises(TypeError, match=instead):
            a.to(target)
    assert np.shares_memory(a.to(np), np.asarray(a))


@pytest.mark.needs_torch
def test_an_index_of_any_kind_that_picks_items_is_refused_in_the_same_words():
    torch = pytest.importorskip("torch")
    grid = md.zeros((2, 3))
    for index in [
        True,
        [0],
        np.array([0, 1]),
        np.array([True, False]),
        torch.tensor([0, 1]),
        md.asarray([0, 1]),
        np.True_,
    ]:
        for key in (index, (0, index), (..., index)):
            with pytest.raises(IndexError, match="would copy items"):
                grid[key]
            with pytest.raises(IndexError, match="would copy items"):
                grid[key] = 0
    assert grid[np.int64(1)].shape == grid[md.full((), 1, "int8")].shape == grid[torch.tensor(1)].shape == (3,)
    for index in (1.5, "x", {}, object()):
        with pytest.raises(IndexError, match=r"an index is|would copy items"):
            grid[index]


@pytest.mark.needs_jax
def test_numpy_and_jax_find_the_type_of_an_array():
    jnp = pytest.importorskip("jax").numpy
    assert np.result_type(a) == np.result_type(a.dtype) == np.dtype("float32")
    assert jnp.asarray(a).tolist() == [3.0, 1.0, 2.0]


def test_a_keyword_that_is_none_is_refused_with_those_that_are(subtests):
    for name in ["x", "storag", "zz", "\u00fcber", "a" * 40]:
        with subtests.test(name), pytest.raises(TypeError) as caught:
            md.zeros(2, **{name: 1})
        words = f"zeros() has no keyword argument '{name}'; it takes shape, dtype, device, storage."
        assert str(caught.value) == words
        with pytest.raises(TypeError, match="it takes none"):
            md.Event(**{name: 1})
