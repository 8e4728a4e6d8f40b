"""What MPS on a Mac refuses is refused here, in torch's words, unless PYTORCH_ENABLE_MPS_FALLBACK allows it."""

import json
import re
import warnings

import fetched_data
import pytest
from children import run_child

import softmetal
from softmetal.torch.native_functions import packed_list, with_kernels

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]

COMPOSITE = (
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)
#: What a Mac runs on the CPU without being asked.
ON_THE_CPU = {"aten::embedding_renorm_", "aten::linalg_svd", "aten::linalg_svd.U"}
#: A Mac refuses it in words of its own; a convolution does not come to it.
REFUSED_OTHERWISE = {"aten::_slow_conv2d_forward"}
#: How this device does what a Mac's does in other ways.
OURS = {
    "aten::convolution_backward_overrideable",
    "aten::convolution_overrideable",
    "aten::copy_",
    "aten::linalg_lu_solve.out",  # of torch's Python, for a Mac; the next two in 2.9
    "aten::native_group_norm",
    "aten::native_group_norm_backward",
    "aten::scaled_dot_product_attention",
    "aten::_fused_sdp_choice",  # which it calls, as do the next two
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
}


@pytest.fixture
def fallback(torch, monkeypatch):
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    softmetal.torch_mps()
    yield
    monkeypatch.undo()
    softmetal.torch_mps()


def refused_by_mps(operator):
    return pytest.raises(
        NotImplementedError,
        match=re.escape(
            f"The operator 'aten::{operator}' is not currently implemented for the MPS device. If you want"
        ),
    )


def test_an_operator_has_a_kernel_if_a_mac_has_one(torch):
    has, names = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C._dispatch_get_all_op_names()
    listed = {f"aten::{name}" for name in with_kernels(packed_list())}
    assert 800 < len(listed) < 1500
    computed = {name for name in names if name.startswith("aten::") and has(name, "MPS")}
    has_svd = "aten::_linalg_svd.U" in listed  # after 2.13
    assert computed - listed - OURS == {name for name in ON_THE_CPU if not (has_svd and "svd" in name)} - listed
    assert not {name for name in listed - computed if not any(has(name, kind) for kind in COMPOSITE)}


#: Without a kernel on MPS in every torch from 2.9 to 2.15.
@pytest.mark.parametrize("operator", ["mode", "_pdist_forward", "special_airy_ai.out", "_linalg_eigvals"])
def test_an_operator_without_a_kernel_is_refused(torch, operator):
    x = torch.rand(3, 3, device="mps")
    calls = {
        "mode": x.mode,
        "_pdist_forward": lambda: torch.pdist(x),
        "special_airy_ai.out": lambda: torch.special.airy_ai(x),
        "_linalg_eigvals": lambda: torch.linalg.eigvals(x),  # made of it
    }
    with refused_by_mps(operator):
        calls[operator]()


@pytest.mark.filterwarnings("ignore:.torch.jit")  # of what torch imports for it
def test_a_formula_of_a_derivative_is_refused_by_the_operator_that_it_uses(torch):
    x = torch.rand(4, device="mps")
    with refused_by_mps("glu_jvp"):
        torch.func.jvp(torch.nn.functional.glu, (x,), (x,))


def test_operators_of_libraries_compute_where_they_have_a_kernel_of_mps():
    """torchvision's do so as in its wheel for macOS.  In a child: torch.ops keeps names of a library that went."""
    done = run_child("""
        import torch
        import softmetal
        softmetal.torch_mps()
        x = torch.ones(3, device="mps")
        ours, torchvision = torch.library.Library("ours", "DEF"), torch.library.Library("torchvision", "FRAGMENT")
        for library, name in ((ours, "twice"), (torchvision, "roi_pool"), (torchvision, "roi_pool_of_a_test")):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x * 2, "CPU")
        for operator in (torch.ops.ours.twice, torch.ops.torchvision.roi_pool, torch.ops.torchvision.roi_pool_of_a_test):
            try:
                print(operator(x).tolist())
            except NotImplementedError as error:
                print(str(error).partition(" not currently implemented")[0], "refused")
        ours.impl("twice", lambda x: x + x, "MPS")
        print(torch.ops.ours.twice(x).tolist())
    """)
    assert done.stdout.splitlines() == [
        "The operator 'ours::twice' is refused",
        "[2.0, 2.0, 2.0]",
        "The operator 'torchvision::roi_pool_of_a_test' is refused",
        "[2.0, 2.0, 2.0]",
    ], done.stderr


def test_where_it_is_allowed_the_cpu_computes_in_the_same_memory(torch, fallback):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the first in this process
        x = torch.tensor([[3.0, 1.0], [1.0, 3.0]], device="mps")
        values, index = x.mode(1)
        assert values.tolist() == [1, 1] and values.device.type == "mps" and index.device.type == "mps"
        out = torch.empty(2, device="mps")
        torch.linalg.eigvalsh(x, out=out)
        assert out.tolist() == pytest.approx([2, 4])


def test_the_first_that_falls_back_warns():
    done = run_child("""
        import os, warnings, torch
        import softmetal
        softmetal.torch_mps()
        x = torch.rand(2, 2, device="mps")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):  # on a Mac, too, without being allowed
                torch.nn.functional.embedding(torch.tensor([1], device="mps"), x, max_norm=1.0)
        for one in said:
            print(one.category.__name__, one.message)
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1, done.stdout
    assert done.stdout.startswith(
        "UserWarning The operator 'aten::embedding_renorm_' is not currently supported on the MPS backend and will fall back "
        "to run on the CPU. This may have performance implications."
    )


#: Operators of the CPU that keep what they are given, or give it back: a library's, which fall back, and torch's one
#: that is replaced, which is lent the bytes of mps.
KEEPING = """
import threading
import numpy as np, torch
import softmetal
softmetal.torch_mps()
kept, found = [], []

def keep(x):
    kept.extend([x, x.numpy(), x[1:].detach(), torch.from_dlpack(x)])
    threads.append(threading.Thread(target=lambda: (torch.mps.empty_cache(), found.append(x.sum().item()))))
    return torch.from_numpy(x.numpy())

def fail(x):
    kept.append(x)
    raise ValueError("its own")

library = torch.library.Library("keeping", "DEF")
for name, function in (("keep", keep), ("fail", fail)):
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, function, "CPU")
replaced = torch.library.Library("aten", "IMPL")
replaced.impl("relu", keep, "CPU")
replaced.impl("tanh", fail, "CPU")

for keeping, failing in ((torch.ops.keeping.keep, torch.ops.keeping.fail), (torch.relu, torch.tanh)):
    threads = []
    x = torch.full((1 << 16,), 7.0, device="mps")
    results = [keeping(x), keeping(x[:])]
    try:
        failing(x)
    except ValueError:
        pass
    del x
    other = [torch.full((1 << 16,), 9.0, device="mps") for _ in range(8)]
    torch.mps.synchronize()
    for thread in threads:
        thread.start()
        thread.join()
    assert all(result.eq(7).all().item() for result in results)
    assert all((np.asarray(one) == 7).all() for one in kept), [np.asarray(one)[:2] for one in kept]
    del other
    kept.clear()
assert found == [7 << 16] * 4, found
print("done")
"""


@pytest.mark.parametrize("latency", ["0", "2000"])
@pytest.mark.long
def test_what_an_operator_of_the_cpu_keeps_stays_as_it_was(latency):
    done = run_child(
        KEEPING,
        PYTORCH_ENABLE_MPS_FALLBACK="1",
        SOFTMETAL_LATENCY_US=latency,
        SOFTMETAL_POISON="1",
        PYTHONWARNINGS="ignore",
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr[-3000:]


def test_what_only_a_mac_has_is_refused_in_our_words(torch):
    x = torch.rand(1, 4, 4, device="mps")
    with pytest.raises(NotImplementedError, match="'aten::_mps_convolution' has a kernel on a Mac alone"):
        torch.ops.aten._mps_convolution(x, x, None, [0], [1], [1], 1)


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
)
def test_floats_of_eight_bits_go_to_mps_and_back_and_are_converted_on_the_cpu(torch, name):
    dtype, x = getattr(torch, name), torch.tensor([0.5, 1.0, 2.0])
    small = x.to("mps", dtype)
    assert small.cpu().float().equal(x) and small.clone()[1:].cpu().float().equal(x[1:])
    if name == "float8_e4m3fn" and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
        assert x.to("mps").to(dtype).float().equal(x.to("mps"))
        return
    refused = rf"Trying to convert {name.replace('float', 'Float')} to the MPS backend but it does not have"
    casts = (
        lambda: x.to("mps").to(dtype),
        small.float,
        lambda: small.to("cpu", torch.float32),
        lambda: torch.empty(3, device="mps").copy_(small),
    )
    for cast in casts:
        with pytest.raises(TypeError, match=refused):
            cast()
    assert torch.empty(0, device="mps").to(dtype).numel() == 0


def test_more_than_sixteen_axes_are_refused(torch):
    assert torch.empty([1] * 16, device="mps").dim() == 16
    with pytest.raises(RuntimeError, match=r"MPS supports tensors with dimensions <= 16, but got 17\."):
        torch.empty([1] * 17, device="mps")


@pytest.mark.long
@pytest.mark.parametrize("key", ["MPS", "SparseMPS", "SparseCsrMPS"])
def test_the_list_says_what_a_macs_torch_registers(key):
    """As the code in torch's wheel for macOS names them."""
    mac = fetched_data.folder("torch")
    registered = json.loads((mac / "registrations.json").read_text())
    listed = with_kernels((mac / "native_functions.yaml").read_text(encoding="utf-8"), key)
    assert {f"aten::{name}" for name in listed} | (ON_THE_CPU | REFUSED_OTHERWISE if key == "MPS" else set()) == {
        f"aten::{name}" for name in registered[key]
    }
