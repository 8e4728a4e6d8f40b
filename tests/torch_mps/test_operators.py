"""Torch's own lists of operators, modules and optimisers: mps gives what the CPU gives, but for one table."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from children import run_child

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = [
    pytest.mark.needs_softmetal,
    pytest.mark.needs_torch,
    pytest.mark.needs_expecttest,
    pytest.mark.needs_no_sanitizer,
]

PARTS = 8

#: What does not hold: of which operators, in which questions of torch_operators.py, and why.
FORWARD, BACKWARD, MEMORY = QUESTIONS = ("forward", "backward", "memory")
TABLE = [
    # With float64=True they hold.
    ("every sample needs float64, which mps refuses as on a Mac", QUESTIONS, {"cdouble", "double", "to"}),
    (
        "every sample needs float64, which mps refuses as on a Mac",
        (FORWARD, BACKWARD),
        {"float_power", "log_softmax_with_dtype", "nn_functional_softmin_with_dtype", "softmax_with_dtype"},
    ),
    ("its gradient needs float64", (BACKWARD,), {"_foreach_norm"}),
    (
        "torch makes no compressed sparse tensors on mps",
        QUESTIONS,
        {"sparse_mm_reduce", "sparse_sampled_addmm"},
    ),
    ("by whole weights it gives int32 as on a Mac, not float64", (FORWARD,), {"bincount"}),
    ("torch wants the indices on the CPU", QUESTIONS, {"tensor_split"}),
    ("torch accumulates in float32 on the CPU alone", (FORWARD,), {"nn_functional_linear_cross_entropy_chunked_none"}),
    ("torch's out= form names the devices that it knows", (MEMORY,), {"mode"}),
    ("it falls back, and the CPU's strides leave gaps: none comes back so", (FORWARD, MEMORY), {"linalg_lstsq"}),
    ("it falls back, and the CPU's strides leave gaps: none comes back so", (FORWARD,), {"linalg_lstsq_grad_oriented"}),
    ("torch's kernel for MPS, in Python, makes no out= longer", (MEMORY,), {"linalg_lu_solve", "lu_solve"}),
]

#: With torch 2.9 this does not, either.
TABLE_OF_2_9 = [("MPS has no sparse_mask, here as on a Mac", (BACKWARD,), {"to_sparse"})]

#: Some of each road by which an operator can go: views, in place, out=, lists, a generator, results that are numbers,
#: complex numbers, indices, convolutions, attention, sparse tensors; and some of the table.
SOME = [
    "expand",
    "transpose",
    "as_strided_partial_views",
    "unfold",
    "add",
    "clamp_max",
    "cumsum",
    "sort",
    "scatter_add",
    "index_put",
    "masked_fill",
    "cat",
    "split",
    "unbind",
    "_foreach_add",
    "_foreach_addcmul",
    "bernoulli",
    "multinomial",
    "nn_functional_dropout",
    "randn_like",
    "item",
    "equal",
    "view_as_complex",
    "polar",
    "fft_rfft",
    "linalg_svd",
    "conj_physical",
    "nn_functional_conv2d",
    "nn_functional_batch_norm",
    "nn_functional_group_norm",
    "nn_functional_scaled_dot_product_attention",
    "nn_functional_embedding",
    "to_sparse",
    "resize_",
    "resize_as_",
    "double",
    "tensor_split",
    "mode",
]


def why_not(question, names):
    table = TABLE + (TABLE_OF_2_9 if version("torch").startswith("2.9.") else [])
    return {name for _, questions, bad in table if question in questions for name in bad} & set(names)


def ask(program, *words, **environment):
    """A report of the software Metal ends the child."""
    done = run_child(SUPPORT / program, *words, timeout=3000, SOFTMETAL_VALIDATION="1", **environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return json.loads(done.stdout)


def check_operators(*words, **environment):
    for question, found in ask("torch_operators.py", *words, **environment).items():
        assert set(found["bad"]) == why_not(question, found["tried"]), (question, found["bad"])
        assert found["tried"]


def test_operators_of_each_kind_are_those_of_the_cpu():
    check_operators("all", *SOME[::2])


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_all_operators_are_those_of_the_cpu(part):
    check_operators("all", part, PARTS)


@pytest.mark.long
def test_operators_whose_bytes_arrive_later_are_those_of_the_cpu():
    check_operators("all", *SOME, SOFTMETAL_LATENCY_US="200")
    check_operators("all", 5, 10 * PARTS, SOFTMETAL_LATENCY_US="200")


def test_the_table_is_small():
    """Torch 2.13 lists 741 operators with one of the five types on the CPU, 587 of them with gradients."""
    for question, tried, most in ((FORWARD, 741, 0.02), (BACKWARD, 587, 0.05), (MEMORY, 741, 0.02)):
        listed = [name for _, questions, bad in TABLE if question in questions for name in bad]
        assert len(listed) == len(set(listed)) <= most * tried


@pytest.mark.long
@pytest.mark.parametrize("latency", ["0", "200"])
@pytest.mark.parametrize("what", ["modules", "optimizers"])
def test_all_modules_and_optimizers_are_those_of_the_cpu(what, latency):
    found = ask("torch_modules.py", what, SOFTMETAL_LATENCY_US=latency)
    assert found["bad"] == {}
    assert len(found["tried"]) > 10
