"""Torch's own lists of modules and optimisers on mps beside the CPU, from one seed.

    python tests/support/torch_modules.py modules|optimizers [NAME ...]

A module: what comes out, the gradients, and its parameters and buffers after some steps.  An optimiser: losses and
parameters, of all its settings.  It prints how many were tried, and of each that differs why.
"""

import copy
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import torch  # noqa: E402
from torch.testing._internal.common_modules import module_db  # noqa: E402
from torch.testing._internal.common_optimizers import _get_optim_inputs_including_global_cliquey_kwargs, optim_db  # noqa: E402
from torch_operators import Copies, run, seed, tensors  # noqa: E402

import softmetal  # noqa: E402

STEPS = 3


def check_close(got, wanted):
    assert [x.device.type for x in got] == ["mps" for _ in wanted]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.detach().cpu(), other.detach(), equal_nan=True, rtol=1e-4, atol=1e-4)


def check_same(ours, theirs):
    """What a function gives on mps and on the CPU, or that both refuse alike."""
    seed()
    wanted, wanted_error = run(theirs)
    seed()
    got, error = run(ours)
    if type(error) is not type(wanted_error):
        raise error or AssertionError(f"the CPU raises {wanted_error}")
    if error is None:
        check_close(got, wanted)


# ---- modules ----


def train_module(module, call):
    """Some steps of gradient descent: results and gradients of each, then parameters and buffers."""
    seen = []
    for _ in range(STEPS):
        given = call()
        results = tensors(module(*given[0], **given[1]))
        seen += results
        losses = [x.float().pow(2).sum() for x in results if x.requires_grad]
        if losses:
            module.zero_grad()
            sum(losses).backward()
            seen += [x.grad for x in [*module.parameters(), *tensors(given)] if x.grad is not None]
            with torch.no_grad():
                for parameter in module.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad
    return [x.clone() for x in [*seen, *module.parameters(), *module.buffers()]]


def try_module(info):
    for training in (True, False):
        seed()
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
        for sample in inputs:
            made, given = sample.constructor_input, sample.forward_input

            def on(device, made=made, given=given, training=training):
                torch.manual_seed(1)
                arguments, keywords = Copies("cpu")((made.args, made.kwargs))
                module = info.module_cls(*arguments, **keywords).to(device).train(training)
                seed()
                return train_module(module, lambda: Copies(device)((given.args, given.kwargs)))

            check_same(lambda on=on: on("mps"), lambda on=on: on("cpu"))
    return len(module_db)


# ---- optimisers ----


def model_for(info):
    if info.only_supports_sparse_grads:
        return torch.nn.EmbeddingBag(7, 3, mode="sum", sparse=True)
    is_flat = info.optim_cls is torch.optim.Muon  # which takes matrices only
    return torch.nn.Sequential(
        torch.nn.Linear(7, 5, bias=not is_flat), torch.nn.Tanh(), torch.nn.Linear(5, 3, bias=not is_flat)
    )


def steps(info, settings, device):
    torch.manual_seed(3)
    model = model_for(info).to(device)
    takes_indices = info.only_supports_sparse_grads
    x = (torch.randint(0, 7, (4, 2)) if takes_indices else torch.randn(4, 7)).to(device)
    y = torch.randn(4, 3).to(device)
    optimizer = info.optim_cls(model.parameters(), **settings)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        if settings.get("differentiable"):  # its parameters are results
            break
        if info.step_requires_closure:
            losses.append(optimizer.step(closure))
        else:
            losses.append(closure())
            optimizer.step()
    return [x.clone() for x in [*losses, *model.parameters()]]


def try_optimizer(info):
    for sample in _get_optim_inputs_including_global_cliquey_kwargs("mps", torch.float32, info):
        settings = dict(sample.kwargs)
        for name, value in settings.items():
            if isinstance(value, torch.Tensor) and value.device.type == "mps":
                settings[name] = value.cpu()
        theirs = {**settings, "capturable": False} if "capturable" in settings else settings
        check_same(
            lambda settings=settings: steps(info, copy.deepcopy(settings), "mps"),
            lambda theirs=theirs: steps(info, copy.deepcopy(theirs), "cpu"),
        )


def main():
    what, *names = sys.argv[1:]
    os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"
    softmetal.torch_mps(float64=True)  # samples of FractionalMaxPool have it
    listed = {"modules": (module_db, try_module), "optimizers": (optim_db, try_optimizer)}
    infos, attempt = listed[what]
    tried, bad = [], {}
    for info in infos:
        if not names or info.name in names:
            _, error = run(lambda info=info: attempt(info))
            tried.append(info.name)
            if error is not None:
                bad[info.name] = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
    print(json.dumps({"tried": tried, "bad": bad}, indent=1))


if __name__ == "__main__":
    main()
