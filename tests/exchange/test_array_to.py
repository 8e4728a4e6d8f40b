"""Array.to: the array in another framework, by its type's table or its module's from_dlpack."""

import gc
import types

import numpy as np
import pytest
from dlpack_structs import delete, kind_with_table, table_with

import metal_dlpack as md
from metal_dlpack import _core


@pytest.mark.rule("exchange-to")
def test_a_hand_over_that_fails_leaks_nothing(torch, live_buffers):
    for _ in range(20):
        with pytest.raises((BufferError, RuntimeError)):
            md.zeros((2, 4), "int4").to(torch.Tensor)


def test_to_refuses_what_is_no_target():
    array = md.zeros(2)
    assert array.to(md.Array).buffer.handle == array.buffer.handle
    for target in (5, "torch", object(), gc):
        with pytest.raises(TypeError, match="neither"):
            array.to(target)
    with pytest.raises(TypeError, match="__dlpack_c_exchange_api__"):
        array.to(dict)
    with pytest.raises((RuntimeError, BufferError)):
        md.zeros(2, storage="private").to(np)


@pytest.mark.parametrize("tensor", [dict, 3, None])
def test_a_module_whose_tensor_type_has_no_table_takes_by_its_from_dlpack(tensor):
    module = types.SimpleNamespace(Tensor=tensor, from_dlpack=np.from_dlpack)
    assert md.full(3, 2.0).to(module).tolist() == [2, 2, 2]


def test_what_a_module_raises_for_another_reason_than_a_refusal_comes_out():
    """A failure of the GPU and Ctrl-C are no refusals of Metal memory: the host's memory is not tried."""
    raised = []

    class Module:
        @staticmethod
        def from_dlpack(_x):
            raised.append(True)
            raise error

    for error in (md.MetalError("failed"), KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(error)):
            md.zeros(4).to(Module())
    assert len(raised) == 3


@pytest.mark.rule("exchange-to")
@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("status", [0, -1])
def test_a_type_that_gives_nothing_is_named_and_the_tensor_is_deleted_once(status, is_deleted, live_buffers):
    def to_nothing(tensor, out):
        if is_deleted:
            delete(tensor)
        out[0] = None
        return status

    table = table_with(to_object=to_nothing)
    array = md.zeros(3)
    with pytest.raises(BufferError, match="Kind refused the tensor without a reason"):
        array.to(kind_with_table(table))
    _core._forget_types()
    buffer = array.buffer
    del array
    buffer.close()  # refused while a tensor is left
    assert buffer.is_closed
