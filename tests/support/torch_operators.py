"""Torch's own lists of operators, OpInfo, on mps beside the CPU.

    python tests/support/torch_operators.py forward|backward|memory|all [PART PARTS] [NAME ...]

It prints which operators were tried, and of each that does not hold why.  Forward: values, types, strides, views and
the state of the generator are the CPU's.  Backward: gradients.  Memory: what in place, out= and views write, an Array
over the same bytes sees.  A process of its own: the list freezes flags of torch.
"""

import contextlib
import itertools
import json
import os
import sys
import warnings
from collections import Counter

import numpy as np

import metal_dlpack as md
import softmetal

warnings.simplefilter("ignore")  # torch's lists warn when they are imported

import torch  # noqa: E402
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride  # noqa: E402
from torch.testing._internal.common_methods_invocations import (  # noqa: E402
    foreach_binary_op_db,
    foreach_other_op_db,
    foreach_pointwise_op_db,
    foreach_reduce_op_db,
    foreach_unary_op_db,
    op_db,
)
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402

FOREACH = (
    foreach_binary_op_db + foreach_other_op_db + foreach_pointwise_op_db + foreach_reduce_op_db + foreach_unary_op_db
)
LISTED = op_db + FOREACH
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)
#: All samples of float32 are tried, and so many of the other types.
MOST_SAMPLES = 20
#: Their results are memory as it was.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def is_refused(error):
    """mps has no float64, here as on a Mac."""
    return "support float64" in str(error) or "ComplexDouble" in str(error)


# ---- copies of samples ----


def bytes_of(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


class Copies:
    """Copies of tensors on a device.  What shares memory, and what is one tensor, does so among the copies."""

    def __init__(self, device):
        self.device = device
        self.storages = {}
        self.tensors = {}

    def __call__(self, thing):
        return tree_map(self.one, thing)

    def one(self, thing):
        if isinstance(thing, torch.Tensor):
            if id(thing) not in self.tensors:
                self.tensors[id(thing)] = self.tensor(thing), thing
            return self.tensors[id(thing)][0]
        if isinstance(thing, torch.device) or thing in ("cpu", "mps"):
            return torch.device(self.device)
        return thing

    def tensor(self, tensor):
        given = tensor.detach()
        if tensor.layout != torch.strided:
            copy = given.clone() if self.device == "cpu" else given.to(self.device)
        else:
            copy = torch.empty(0, dtype=tensor.dtype, device=self.device)
            copy.set_(self.storage(tensor), tensor.storage_offset(), tensor.shape, tensor.stride())
            copy = torch._neg_view(copy) if tensor.is_neg() else copy
            copy = torch.conj(copy) if tensor.is_conj() else copy
        return copy.requires_grad_(tensor.requires_grad)

    def storage(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            copy = torch.empty(storage.nbytes(), dtype=torch.uint8, device=self.device)
            copy.copy_(bytes_of(storage))
            self.storages[storage._cdata] = copy.untyped_storage()
        return self.storages[storage._cdata]


def seed():
    """Both generators: they begin alike."""
    torch.manual_seed(7)


def restore_mps_with_the_cpu():
    """What torch's lists use to leave the generators as they were, knows only the CPU's and CUDA's in torch 2.9."""
    usual = torch.testing._utils.freeze_rng_state

    @contextlib.contextmanager
    def freeze_rng_state():
        state = torch.mps.get_rng_state()
        try:
            with usual():
                yield
        finally:
            torch.mps.set_rng_state(state)

    torch.testing._utils.freeze_rng_state = freeze_rng_state


def samples(op, dtype, **keywords):
    seed()
    most = None if dtype == torch.float32 else MOST_SAMPLES
    return itertools.islice(op.sample_inputs("cpu", dtype, **keywords), most)


def run(function):
    """What comes back, or what was raised."""
    try:
        return function(), None
    except Exception as error:
        return None, error


# ---- comparisons ----


def tolerance(op, dtype):
    """The widest that the list gives the operator; {} for that of assert_close."""
    widest = {}
    for info in op.decorators:
        for decorator in getattr(info, "decorators", [info]):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                widest = wider(widest, *decorator.d[dtype])
            elif isinstance(decorator, precisionOverride) and dtype in decorator.d:
                widest = wider(widest, decorator.d[dtype], 1.3e-6)
    return widest


def wider(widest, atol, rtol):
    return {"atol": max(atol, widest.get("atol", 0)), "rtol": max(rtol, widest.get("rtol", 0))}


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def check_equal(op, got, wanted, has_values=True, has_strides=True, device="mps"):
    got, wanted = tree_leaves(got), tree_leaves(wanted)
    assert len(got) == len(wanted), (len(got), len(wanted))
    for one, other in zip(got, wanted, strict=True):
        if not isinstance(other, torch.Tensor):
            assert one == other or one != one or not has_values, (one, other)
            continue
        assert one.device.type == device, f"a result is on {one.device}"
        for fact in ("dtype", "layout", "shape", "is_conj", "is_neg"):
            answers = [getattr(x, fact) for x in (one, other)]
            answers = [x() if callable(x) else x for x in answers]
            assert answers[0] == answers[1], f"{fact} {answers[0]}, not {answers[1]}"
        if other.layout == torch.strided and has_strides:
            assert one.stride() == other.stride(), f"strides {one.stride()}, not {other.stride()}"
        if has_values:
            close(op, one.detach().cpu(), other.detach())


def close(op, got, wanted):
    torch.testing.assert_close(got, wanted, equal_nan=True, **tolerance(op, wanted.dtype))


def check_same_error(got, wanted):
    if (got is None) != (wanted is None) or type(got) is not type(wanted):
        raise got or AssertionError(f"the CPU raises {type(wanted).__name__}: {wanted}")


# ---- the three questions, of one sample ----


def forward(op, sample):
    given = (sample.input, sample.args, sample.kwargs)
    ours, theirs = Copies("mps")(given), Copies("cpu")(given)
    seed()
    wanted, wanted_error = run(lambda: op(theirs[0], *theirs[1], **theirs[2]))
    got, error = run(lambda: op(ours[0], *ours[1], **ours[2]))
    check_same_error(error, wanted_error)
    of_the_cpu = torch.mps.get_rng_state()[: torch.get_rng_state().numel()]
    assert torch.equal(of_the_cpu, torch.get_rng_state()), "other random numbers were drawn"
    names_device = any(isinstance(x, (torch.Tensor, torch.device)) for x in tree_leaves(ours))
    device = "mps" if names_device else "cpu"
    check_equal(op, got, wanted, has_values=op.name not in UNDEFINED, device=device)
    check_equal(op, tensors(ours), tensors(theirs))  # which the operator may have changed
    check_views(got, wanted, ours, theirs)


def check_views(got, wanted, ours, theirs):
    """What is over an argument's bytes on the CPU is so on mps."""

    def places(results, arguments):
        for result, argument in itertools.product(tensors(results), tensors(arguments)):
            if result.layout == argument.layout == torch.strided and argument.numel() and result.numel():
                is_view = result.untyped_storage()._cdata == argument.untyped_storage()._cdata
                yield is_view, is_view and result.storage_offset()

    assert list(places(got, ours)) == list(places(wanted, theirs)), "what is a view of what differs"


def backward(op, sample):
    given = (sample.input, sample.args, sample.kwargs)
    ours, theirs = Copies("mps")(given), Copies("cpu")(given)
    wanted, wanted_error = run(lambda: gradients(op, sample, theirs))
    got, error = run(lambda: gradients(op, sample, ours))
    check_same_error(error, wanted_error)
    check_equal(op, got, wanted, has_strides=False)  # which autograd chooses by device


def gradients(op, sample, given):
    seed()
    results = op(given[0], *given[1], **given[2])
    if sample.output_process_fn_grad is not None:
        results = sample.output_process_fn_grad(results)
    results = [x for x in tensors(results) if x.requires_grad]
    leaves = [x for x in tensors(given) if x.requires_grad]
    if not results or not leaves:
        return []
    random = torch.Generator().manual_seed(5)
    factors = [torch.randn(x.shape, dtype=x.dtype, generator=random).to(x.device) for x in results]
    return torch.autograd.grad(results, leaves, factors, allow_unused=True)


def memory(op, sample):
    """In place, out= and, of a view, what is written to it: by an Array over the bytes."""
    given = (sample.input, sample.args, sample.kwargs)
    if op.inplace_variant is not None and not getattr(sample, "broadcasts_input", False):
        in_place(op, given)
    if op.supports_out:
        for is_empty in (False, True):
            out(op, given, is_empty)
    through_view(op, given)


class Beside:
    """An Array over all bytes of a tensor's storage."""

    def __init__(self, tensor):
        self.tensor = tensor
        self.array = md.from_dlpack(bytes_of(tensor.untyped_storage())) if tensor.untyped_storage().nbytes() else None

    def check(self, op, wanted):
        """The bytes are those of the CPU's tensor `wanted`, in its place and around it."""
        if self.array is None or op.name in UNDEFINED:
            return
        torch.mps.synchronize()
        found = torch.from_numpy(np.asarray(self.array).copy()).untyped_storage()
        expected = wanted.untyped_storage()
        assert found.nbytes() >= expected.nbytes()
        count = expected.nbytes() // wanted.itemsize
        close(op, *(torch.empty(0, dtype=wanted.dtype).set_(x, 0, (count,), (1,)) for x in (found, expected)))


def is_plain(tensor):
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.numel() > 0


def in_place(op, given):
    ours, theirs = Copies("mps")(given), Copies("cpu")(given)
    if not all(map(is_plain, tensors(theirs[0]))):
        return
    befores = [(Beside(x), x.untyped_storage().data_ptr()) for x in tensors(ours[0])]
    seed()
    _, wanted_error = run(lambda: op.inplace_variant(theirs[0], *theirs[1], **theirs[2]))
    _, error = run(lambda: op.inplace_variant(ours[0], *ours[1], **ours[2]))
    check_same_error(error, wanted_error)
    if wanted_error is None:
        for one, other, (before, address) in zip(tensors(ours[0]), tensors(theirs[0]), befores, strict=True):
            is_moved = one.untyped_storage().data_ptr() != address
            (Beside(one) if is_moved else before).check(op, other)


def out(op, given, is_empty):
    """Into a part of a larger buffer, strided otherwise; or into what must be made longer."""
    plain = Copies("cpu")(given)
    seed()
    results, error = run(lambda: op(plain[0], *plain[1], **plain[2]))
    results = (results,) if isinstance(results, torch.Tensor) else results
    if error is not None or not isinstance(results, tuple) or not all(map(is_plain, results)):
        return
    ours, theirs = Copies("mps")(given), Copies("cpu")(given)
    wanted = tuple(x.new_empty(0) if is_empty else part_of_more(x) for x in results)
    got = Copies("mps")(wanted)
    besides = [Beside(x) for x in got]

    def call(given, out):
        seed()
        return op(given[0], *given[1], **{**given[2], "out": out if len(out) > 1 else out[0]})

    _, wanted_error = run(lambda: call(theirs, wanted))
    _, error = run(lambda: call(ours, got))
    check_same_error(error, wanted_error)
    if (
        wanted_error is None
        and run(lambda: [close(op, *pair) for pair in zip(wanted, results, strict=True)])[1] is None
    ):
        for one, other, beside in zip(got, wanted, besides, strict=True):
            assert one.shape == other.shape and one.stride() == other.stride()
            (Beside(one) if is_empty else beside).check(op, other)


def part_of_more(result):
    """Make a tensor of a result's shape on every second place of memory that begins before and ends long after it.

    The CPU's tril loses its way there: such results are compared with nothing.
    """
    more = torch.ones(8 * result.numel() + 64, dtype=result.dtype)
    return more[3::2][: result.numel()].view(result.shape[::-1]).permute(tuple(reversed(range(result.ndim))))


def through_view(op, given):
    ours, theirs = Copies("mps")(given), Copies("cpu")(given)
    if not is_plain(theirs[0]):
        return
    beside = Beside(ours[0])
    wanted, wanted_error = run(lambda: op(theirs[0], *theirs[1], **theirs[2]))
    got, error = run(lambda: op(ours[0], *ours[1], **ours[2]))
    check_same_error(error, wanted_error)
    for one, other in zip(tensors(got), tensors(wanted), strict=True):
        if other.layout == torch.strided and other.untyped_storage()._cdata == theirs[0].untyped_storage()._cdata:
            _, wanted_error = run(lambda x=other: x.fill_(1))
            _, error = run(lambda x=one: x.fill_(1))
            check_same_error(error, wanted_error)
            beside.check(op, theirs[0])


# ---- all operators ----

QUESTIONS = {"forward": forward, "backward": backward, "memory": memory}


def dtypes_of(op, question):
    if question == "backward":
        wanted = [torch.float32] if op.supports_autograd else []
        return [dtype for dtype in wanted if dtype in op.supported_backward_dtypes("cpu")]
    known = [dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")]
    return known if question == "forward" else known[:1]


def ask(op, question, counts):
    """None where the operator holds, else why not; "" where it has nothing to ask."""
    held, refusal = 0, ""
    for dtype in dtypes_of(op, question):
        for sample in samples(op, dtype, requires_grad=question == "backward"):
            counts["samples"] += 1
            try:
                QUESTIONS[question](op, sample)
                held += 1
            except Exception as error:
                if not is_refused(error):
                    raise
                refusal = str(error)
                counts["samples refused"] += 1
                softmetal.torch_mps(float64=True)
                try:
                    QUESTIONS[question](op, sample)
                finally:
                    softmetal.torch_mps()
    return refusal if refusal and not held else None if held else ""


def answers(question, ops):
    """What was tried, and what does not hold."""
    counts, bad, tried = Counter(), {}, []
    for op in ops:
        try:
            why = ask(op, question, counts)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why != "":
            tried.append(op.formatted_name)
        if why:
            bad[op.formatted_name] = why.replace("\n", " ")[:300]
    return {"tried": tried, "bad": bad, **counts}


def main():
    question, *words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdecimal()]
    names = [word for word in words if not word.isdecimal()]
    part, parts = numbers or (0, 1)
    os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"  # what MPS does not implement is compared as well
    softmetal.torch_mps()
    restore_mps_with_the_cpu()
    ops = [op for op in LISTED[part::parts] if not names or op.formatted_name in names]
    print(json.dumps({name: answers(name, ops) for name in ([question] if question != "all" else QUESTIONS)}, indent=1))


if __name__ == "__main__":
    main()
