"""What people write who come from other libraries, by the tables of likely_mistakes.md; and more of the kind."""

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import metal_dlpack as md

a = md.asarray([3.0, 1.0, 2.0])
x = np.arange(3, dtype="float32")
#: (what is written, the class of the exception, its text)
TABLES = Path(__file__).with_name("likely_mistakes.md").read_text()
MISTAKES = re.findall(r"^\| `(.+?)` \| (\w+Error) \| (.+) \|$", TABLES, re.MULTILINE)


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


# ---- what is typed ----

#: (an expression from a guide, "NumPy", "torch" or "both", or what is raised)
TYPED = re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", TABLES, re.MULTILINE)
X = np.arange(6, dtype="float32").reshape(2, 3)


def typed(code, names):
    """What the last expression gives, after the statements before it."""
    *before, last = code.split("; ")
    for statement in before:
        exec(statement, names)
    try:
        return eval(last, names)
    except SyntaxError:  # it is a statement itself
        return exec(last, names)


def shown(value):
    """In the words that all have: arrays and numbers of NumPy are (shape, dtype, items)."""
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return (tuple(value.shape), md.dtype(value.dtype).name, value.tolist()) if hasattr(value, "tolist") else value


def test_what_is_typed_gives_what_numpy_and_torch_give_or_says_the_way_out(torch, subtests):
    """And `a` holds afterwards what it holds there: views are views, copies copies."""
    makers = {"NumPy": (np, X.copy), "torch": (torch, lambda: torch.from_numpy(X.copy()))}
    assert len(TYPED) >= 150
    for code, how in TYPED:
        with subtests.test(code):
            names = {"a": md.asarray(X, copy=True), "xp": md, "np": np, "torch": torch, "io": io}
            if how in ("NumPy", "torch", "both"):
                given = shown(typed(code, names))
                for library in makers if how == "both" else [how]:
                    xp, make = makers[library]
                    there = {**names, "a": make(), "xp": xp}
                    assert given == shown(typed(code, there)), library
                    assert shown(names["a"]) == shown(there["a"]), library
            else:
                with pytest.raises((TypeError, AttributeError, ValueError, IndexError)) as caught:
                    typed(code, names)
                assert how in str(caught.value)
                assert shown(names["a"]) == shown(md.asarray(X))
