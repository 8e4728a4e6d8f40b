"""torch gives a tensor other memory while an Array lies on the memory that it had."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import metal_dlpack as md

COUNT = 4096


class Memory(np.ndarray):
    """Is alive as long as the storage of a tensor that lies on it."""


def on_memory(torch, dtype="float32"):
    """A tensor, and what tells whether its memory is kept."""
    memory = np.ones(COUNT, dtype).view(Memory)
    return torch.from_numpy(memory), weakref.ref(memory)


def parameter(torch, x):
    return torch.nn.Parameter(x, requires_grad=False)


def of_a_class_of_its_own(torch, x):
    return x.as_subclass(type("Own", (torch.Tensor,), {}))


def with_a_gradient_of_its_own(torch, x):
    return x.as_subclass(type("Own", (torch.Tensor,), {"requires_grad": False}))


#: Each takes one of the roads by which torch hands out memory.
TENSORS = {
    "plain": lambda _torch, x: x,
    "a view": lambda _torch, x: x[3:],
    "strided": lambda _torch, x: x[::2],
    "complex": lambda torch, x: x.view(torch.complex64),
    "a parameter": parameter,
    "of a subclass": of_a_class_of_its_own,
    "of a subclass without torch's requires_grad": with_a_gradient_of_its_own,
}


def by_data(torch, x):
    x.data = torch.zeros(5, dtype=x.dtype)


def by_set(_torch, x):
    x.set_()


def by_another_source(torch, x):
    x.set_(torch.zeros(5, dtype=x.dtype))


def by_another_storage(torch, x):
    x.set_(torch.zeros(5, dtype=x.dtype).untyped_storage())


def by_a_module(torch, x):
    """As a model that goes to another type or device."""
    module = torch.nn.Module()
    module.register_buffer("state", x)
    if isinstance(x, torch.nn.Parameter):
        module.weight = x
    with warnings.catch_warnings(action="ignore"):  # that modules of complex numbers are young
        module.to(torch.complex128 if x.is_complex() else torch.float64)


WAYS = [by_data, by_set, by_another_source, by_another_storage, by_a_module]


@pytest.mark.rule("import-keeps")
@pytest.mark.parametrize("replace", WAYS)
@pytest.mark.parametrize("make", TENSORS)
@pytest.mark.parametrize("take", [md.from_dlpack, md.asarray])
def test_an_array_keeps_the_memory_that_torch_replaced(torch, make, replace, take, live_buffers):
    plain, memory = on_memory(torch)
    tensor = TENSORS[make](torch, plain)
    del plain
    array = take(tensor)
    before = array.tolist()
    replace(torch, tensor)
    del tensor
    gc.collect()
    assert memory() is not None
    assert array.tolist() == before
    del array
    gc.collect()
    assert memory() is None, "it is let go with the last Array"


@pytest.mark.rule("import-keeps")
def test_looking_and_copies_keep_no_memory(torch, live_buffers):
    tensor, memory = on_memory(torch)
    array = md.from_dlpack(tensor, copy=True)
    md.explain(tensor)
    assert not md.shares_memory(array, tensor)
    del tensor
    gc.collect()
    assert memory() is None


@pytest.mark.needs_mps
def test_an_array_keeps_the_memory_on_mps_that_torch_replaced(torch):
    tensor = torch.ones(1 << 20, device="mps")
    array = md.from_dlpack(tensor)
    tensor.data = torch.zeros(5, device="mps")
    others = [torch.full((1 << 20,), 3.0, device="mps") for _ in range(4)]
    torch.mps.synchronize()
    assert set(array[:: 1 << 10].tolist()) == {1.0}
    del others
