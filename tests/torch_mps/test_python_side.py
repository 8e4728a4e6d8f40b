"""What torch's Python offers for mps, as on a Mac: its modules, autocast, storages, loaders, devices, transforms."""

import copy
import gc
import io
import pickle
import warnings
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from children import run_child

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_no_sanitizer]


def test_the_accelerator_is_mps_and_counts_its_memory(torch):
    accelerator = torch.accelerator
    assert torch.backends.mps.is_available() and torch.backends.mps.is_built() and torch.mps.device_count() == 1
    assert str(accelerator.current_accelerator()) == "mps"
    assert accelerator.is_available() and accelerator.device_count() == 1 and accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    accelerator.set_stream(accelerator.current_stream())
    gc.collect()  # what other tests left
    before = accelerator.memory_allocated()
    accelerator.reset_peak_memory_stats()
    t = torch.empty(3 << 20, dtype=torch.uint8, device="mps")
    assert accelerator.memory_allocated() - before == 3 << 20
    del t
    assert accelerator.memory_allocated() == before
    assert accelerator.max_memory_allocated() - before == 3 << 20
    assert accelerator.memory_stats()["allocated_bytes.large_pool.peak"] >= 3 << 20
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    assert accelerator.max_memory_allocated() == accelerator.memory_allocated()
    assert accelerator.memory_stats()["allocation.all.allocated"] == 0
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    accelerator.synchronize()


def test_memory_is_told_as_metal_tells_it(torch):
    t = torch.empty(5_000_000, dtype=torch.uint8, device="mps")
    device = md.default_device()
    assert torch.mps.driver_allocated_memory() == device.current_allocated_size >= t.nbytes
    assert torch.mps.recommended_max_memory() == device.recommended_max_working_set_size
    del t
    torch.mps.synchronize()
    torch.mps.empty_cache()
    assert md.memory_stats()["cached"] == 0
    for wrong, error in ((-1.0, ValueError), (3.0, ValueError), (1, TypeError)):
        with pytest.raises(error, match="fraction"):
            torch.mps.set_per_process_memory_fraction(wrong)


def test_seeds_of_torch_seed_mps_too(torch):
    def drawn():
        return torch.rand(4, device="mps").tolist()

    torch.manual_seed(7)
    first = drawn()
    torch.mps.manual_seed(7)
    assert drawn() == first
    torch.mps.seed()
    assert drawn() != first
    torch.manual_seed(7)
    with torch.random.fork_rng(device_type="mps"):
        assert drawn() == first
    assert drawn() == first


def test_torchs_own_profiler_sees_operators(torch):
    with torch.autograd.profiler.profile() as profile:  # torch.profiler starts for some seconds
        torch.ones(3, device="mps").add(1)
    assert "aten::add" in [event.key for event in profile.key_averages()]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_autocast_computes_in_half_and_keeps_what_needs_more(torch, kind):
    net, x = torch.nn.Linear(4, 4).to("mps"), torch.rand(2, 4, device="mps")
    with torch.autocast("mps", dtype=getattr(torch, kind)):
        y = net(x)
        assert y.dtype == getattr(torch, kind)
        assert torch.softmax(y, -1).dtype == torch.float32
    assert net(x).dtype == torch.float32
    with pytest.warns(UserWarning, match="MPS Autocast only supports"), torch.autocast("mps", dtype=torch.float32):
        pass


def test_a_gradient_that_is_scaled_trains_and_an_infinite_one_is_left_out(torch):
    weight = torch.ones(2, device="mps", requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), torch.amp.GradScaler("mps", init_scale=8.0)
    for factor, wanted in ((1.0, 0.5), (float("inf"), 0.5)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [wanted] * 2
    assert scaler.get_scale() == 4.0


def test_what_is_saved_from_any_device_is_loaded_on_mps(torch, tmp_path):
    torch.save({"a": torch.arange(3.0)}, tmp_path / "a.pt")
    for how in ({}, {"mmap": True}):
        assert torch.load(tmp_path / "a.pt", map_location="mps", **how)["a"].device.type == "mps"
    for is_zip in (True, False):
        base, file = torch.zeros(4, device="mps"), io.BytesIO()
        torch.save([base, base[1:]], file, _use_new_zipfile_serialization=is_zip)
        file.seek(0)
        whole, part = torch.load(file)
        whole[1] = 9
        assert part[0].item() == 9  # one memory before, and one after
    assert copy.copy(base).data_ptr() == base.data_ptr() != copy.deepcopy(base).data_ptr()


def test_storages_move_between_the_cpu_and_mps(torch):
    t = torch.arange(4, dtype=torch.uint8, device="mps")
    storage = t.untyped_storage()
    assert storage.device.type == storage.clone().device.type == storage.cpu().mps().device.type == "mps"
    assert list(storage) == list(torch.UntypedStorage([0, 1, 2, 3], device="mps")) == [0, 1, 2, 3]
    assert torch.UntypedStorage(5, device="mps").nbytes() == 5


def test_what_other_processes_cannot_have_is_refused_in_torch_s_words(torch):
    t = torch.ones(3, device="mps")
    assert t.share_memory_() is t  # torch's own: nothing, but on the CPU
    with pytest.raises(RuntimeError, match="only available on CPU"):
        ForkingPickler.dumps(t)
    with pytest.raises(RuntimeError, match="storage on different device"):
        torch.ones(3).pin_memory()
    with pytest.raises(TypeError, match=r"can't convert mps:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
        t.numpy()
    with pytest.raises(TypeError, match="can't convert mps:0"):
        np.asarray(t)
    assert t.numpy(force=True).tolist() == [1] * 3


def test_a_group_of_processes_refuses_a_module_on_mps(torch):
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="not currently implemented for the MPS device"):
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("mps"))
    finally:
        distributed.destroy_process_group()


@pytest.mark.long
def test_a_loader_with_workers_gives_batches_for_mps():
    """In a child: the workers are forked, and this process may have threads of other frameworks."""
    done = run_child("""
        import torch, warnings
        import softmetal
        softmetal.torch_mps()
        rows = torch.utils.data.TensorDataset(torch.arange(6.0).reshape(6, 1))
        with warnings.catch_warnings(record=True) as told:  # torch's own
            warnings.simplefilter("always")
            batches = list(torch.utils.data.DataLoader(rows, batch_size=2, num_workers=2, pin_memory=True))
        assert any("not supported on MPS" in str(warning.message) for warning in told), told
        assert [batch.to("mps").sum().item() for (batch,) in batches] == [1, 5, 9]
        on_mps = torch.utils.data.TensorDataset(rows.tensors[0].to("mps"))
        assert [x.device.type for (x,) in torch.utils.data.DataLoader(on_mps, batch_size=4, shuffle=True)] == ["mps"] * 2
    """)
    assert done.returncode == 0, done.stderr


def test_mps_is_the_default_where_it_is_asked_for(torch):
    torch.set_default_device("mps")
    try:
        made = [torch.ones(3), torch.tensor([1, 2]), torch.randperm(4), torch.nn.Linear(2, 2).weight]
        assert torch.get_default_device() == torch.device("mps", 0)
    finally:
        torch.set_default_device(None)
    with torch.device("mps"):
        made += [torch.arange(3), torch.randn(2)]
    assert {x.device for x in made} == {torch.device("mps", 0)}
    assert torch.ones(2).device.type == "cpu"


def test_a_tensor_names_its_kind_and_place(torch):
    t = torch.ones(2, device="mps")
    assert t.type() == "torch.mps.FloatTensor"
    assert t.half().type() == "torch.mps.HalfTensor"
    assert t.is_mps and isinstance(t, torch.Tensor) and not isinstance(t, torch.FloatTensor)
    assert repr(t) == "tensor([1., 1.], device='mps:0')"
    assert torch.get_device_module("mps") is torch.mps
    assert (torch.backends.mps.get_name(), t.get_device()) == ("Apple (software Metal)", 0)
    assert torch.backends.mps.is_macos13_or_newer() and torch.backends.mps.is_macos_or_newer(14, 0)


def test_a_tensor_gives_its_buffer_however_it_is_asked(torch):
    t = torch.arange(6, dtype=torch.float32, device="mps").reshape(2, 3)
    assert t.__dlpack_device__() == (8, 0)
    ways = [{}, {"stream": None}, {"stream": -1}, {"stream": 1}, {"max_version": (1, 0)}, {"copy": False}]
    for way in [*ways, {"dl_device": (8, 0)}]:
        assert md.from_dlpack(t.__dlpack__(**way)).buffer.handle == t.untyped_storage().data_ptr(), way
    assert md.from_dlpack(t.__dlpack__(copy=True)).buffer.handle != t.untyped_storage().data_ptr()
    a = md.from_dlpack(t)
    for source in (t, a):
        for way, device, is_shared in (
            ({}, "mps", True),
            ({"copy": True}, "mps", False),
            ({"device": "cpu"}, "cpu", False),
        ):
            taken = torch.from_dlpack(source, **way)
            assert (taken.device.type, taken.data_ptr() == t.data_ptr()) == (device, is_shared), way
            assert taken.tolist() == t.tolist()
        with pytest.raises(ValueError, match="without copying"):
            torch.from_dlpack(source, device="cpu", copy=False)


def test_modules_go_to_mps_in_every_way(torch):
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = {name: value.to("mps") for name, value in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net[0].weight.data_ptr() == state["0.weight"].data_ptr()
    assert net.half().to("cpu").to("mps", torch.bfloat16)[1].running_mean.dtype == torch.bfloat16
    with torch.device("meta"):
        empty = torch.nn.Linear(3, 2)
    assert empty.to_empty(device="mps").weight.device.type == "mps"
    assert pickle.loads(pickle.dumps(net))[0].weight.device.type == "mps"
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        assert torch.nn.Linear(2, 2).to("mps").weight.device.type == "mps"
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    with pytest.raises(TypeError, match="float64"):
        net.double()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.func imports
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # from 2.15 on
def test_transforms_of_functions_give_what_the_cpu_gives(torch):
    from torch import func

    def cube(x):
        return (x**3).sum()

    asked = [
        func.grad(cube),
        func.hessian(cube),
        func.jacrev(torch.sin),
        func.jacfwd(torch.sin),
        func.vmap(lambda x: x * 2 + 1),
        func.vmap(func.grad(cube), in_dims=0),
        lambda x: func.jvp(cube, (x,), (torch.ones_like(x),))[1],
        lambda x: func.vjp(cube, x)[1](torch.ones((), device=x.device))[0],
    ]
    x = torch.tensor([0.5, 1.0, 2.0])
    for transform in asked:
        result = transform(x.to("mps"))
        assert result.device.type == "mps"
        assert torch.allclose(result.cpu(), transform(x), atol=1e-5)
    mask = func.vmap(lambda x: x + torch.rand_like(x), randomness="different")(torch.zeros(3, 4, device="mps"))
    assert mask.unique().numel() == 12


@pytest.mark.parametrize("reentrant", [True, False])
def test_hooks_checkpoints_and_saved_tensors_work_on_mps(torch, reentrant):
    net, seen = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).to("mps"), []
    net.register_forward_hook(lambda *_: seen.append("forward"))
    x = torch.rand(2, 3, device="mps", requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.device.type))
    net(x).sum().backward()
    assert seen == ["forward", "mps"]
    wanted, x.grad = x.grad, None
    torch.utils.checkpoint.checkpoint(net, x, use_reentrant=reentrant).sum().backward()
    assert torch.allclose(x.grad, wanted)
    x.grad = None
    with torch.autograd.graph.save_on_cpu():
        y = net(x).sum()
    y.backward()
    assert torch.allclose(x.grad, wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")  # from 2.15 on
@pytest.mark.long
def test_graphs_are_exported_traced_and_compiled(torch):
    net, x = torch.nn.Linear(2, 2).to("mps"), torch.ones(1, 2, device="mps")
    wanted = net(x).tolist()
    assert torch.export.export(net, (x,)).module()(x).tolist() == wanted
    assert torch.fx.symbolic_trace(net)(x).tolist() == wanted
    assert torch.jit.trace(net, (x,))(x).tolist() == wanted
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert torch.compile(lambda: torch.ones(3, device="mps") + 1)().tolist() == [2] * 3  # no tensor comes in
        torch.compile(net)(x).sum().backward()
    assert net.weight.grad.tolist() == [[1, 1], [1, 1]]
    assert sum("a graph runs eagerly" in str(one.message) for one in told) == 2
