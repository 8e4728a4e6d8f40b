"""The answers to likely_mistakes.md, which is what people write who come from other libraries; and more of their kind."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import metal_dlpack as md

a = md.asarray([3.0, 1.0, 2.0])
x = np.arange(3, dtype="float32")
#: (what is written, the class of the exception, its text)
MISTAKES = re.findall(
    r"^\| `(.+?)` \| (\w+Error) \| (.+) \|$", Path(__file__).with_name("likely_mistakes.md").read_text(), re.MULTILINE
)


def test_a_likely_mistake_gets_the_way_out(subtests):
    assert len(MISTAKES) >= 23
    for mistake, error, text in MISTAKES:
        with subtests.test(mistake):
            with pytest.raises(Exception) as caught:
                eval(mistake, globals())
            assert (type(caught.value).__name__, str(caught.value)) == (error, text)


def test_targets_that_are_no_targets_are_told_apart(torch, mx, jnp):
    jax = sys.modules["jax"]
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


def test_an_index_of_any_kind_that_picks_items_is_refused_in_the_same_words(torch):
    grid = md.zeros((2, 3))
    arrays = [make([0, 1]) for make in (np.array, torch.tensor, md.asarray)]
    for index in [True, [0], np.array([True, False]), np.True_, *arrays]:
        for key in (index, (0, index), (..., index)):
            with pytest.raises(IndexError, match="would copy items"):
                grid[key]
            with pytest.raises(IndexError, match="would copy items"):
                grid[key] = 0
    assert grid[np.int64(1)].shape == grid[md.full((), 1, "int8")].shape == grid[torch.tensor(1)].shape == (3,)
    for index in (1.5, "x", {}, object()):
        with pytest.raises(IndexError, match=r"an index is|would copy items"):
            grid[index]


def test_numpy_and_jax_find_the_type_of_an_array(jnp):
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
