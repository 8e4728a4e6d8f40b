"""The recipes of docs/synchronisation.md and docs/metal_stream.md, run as they stand there; torch's is in test_torch_queue.py."""

import ctypes
import sys
import types

import numpy as np
import pytest
from dlpack_structs import Producer
from objc_messages import encode_fill, pool, send
from recipes import all_recipes, recipe

import metal_dlpack as md
from metal_dlpack import sync

pytestmark = pytest.mark.needs_softmetal
SYNCHRONISATION = "synchronisation.md"


@pytest.fixture(autouse=True)
def slow(settings):
    settings(latency_us=20000)


class Commands:
    """A command buffer as PyObjC would have it."""

    def __init__(self, queue):
        with pool():
            self.handle = send(send(queue, "commandBuffer"), "retain")

    def encode(self, message, event, value):
        with pool():
            send(self.handle, message, event, value, result=None)

    def commit(self):
        with pool():
            send(self.handle, "commit", result=None)
            send(self.handle, "release", result=None)


class Queue:
    """And a command queue."""

    def __init__(self, handle):
        self.handle = handle

    def __c_void_p__(self):
        return ctypes.c_void_p(self.handle)

    def commandBuffer(self):
        return Commands(self.handle)


@pytest.fixture
def queue(foreign_queue):
    return Queue(foreign_queue)


def test_there_are_as_many_recipes_as_are_run_here():
    assert len(all_recipes(SYNCHRONISATION)) == 13  # tests/house/test_pages.py runs those that need nothing around them
    assert len(all_recipes("metal_stream.md")) == 2


def test_tasks_wait_for_streams():
    import asyncio

    names = {"md": md}
    exec(recipe(SYNCHRONISATION, "**asyncio.**"), names)

    async def main():
        array, stream, other = md.zeros((2, 4, 6)), md.Stream(), md.Stream()
        await names["upload"](np.ones((2, 4, 6), "float32"), array, stream)
        small = await names["halve"](array, other)
        assert stream.query() and other.query()
        return small

    assert np.array_equal(asyncio.run(main()), np.ones((2, 2, 3)))


def test_an_array_is_unchanged_by_what_mlx_computes_of_it(mx):
    """Without Metal MLX takes the host view only, and copies it: the code runs as it stands on a Mac."""
    array = md.full(8192, 2.0)
    names = {"mx": mx, "a": array if mx.metal.is_available() else array.host}
    exec(recipe(SYNCHRONISATION, "**MLX.**"), names)
    assert array.tolist() == [2.0] * 8192
    assert names["y"][0].item() == names["z"][0].item() == pytest.approx(7.389, abs=1e-3)


@pytest.mark.parametrize("scope", ["queue", "commands"])
def test_kernels_by_hand_with_pyobjc(settings, scope, queue):
    settings(wait_scope=scope)
    code = recipe(SYNCHRONISATION, "**PyObjC.**")
    assert code.count("...   ") == 1
    code = code.replace("...   ", "encode(commands.handle, a.buffer.handle, 5, 64)", 1)
    a, result, other = md.zeros(64, "uint8"), md.zeros(64, "uint8"), md.Stream()
    a.fill(1, stream=md.Stream())
    names = {"md": md, "queue": queue, "a": a, "other": other, "encode": encode_fill}
    exec(code, names)
    assert names["after"].query()
    result.copy_from(a, stream=other)
    assert result.tolist() == [5] * 64


def test_a_kernel_in_another_language(queue, shared_event):
    """The four numbers of __metal_stream__ in, an event of one's own out; nobody waits on the CPU in between."""
    a, result, stream = md.zeros(64, "uint8"), md.zeros(64, "uint8"), md.Stream()
    a.fill(1, stream=md.Stream())
    _, _, event, value = a.__metal_stream__()
    commands = queue.commandBuffer()
    commands.encode("encodeWaitForEvent:value:", event, value)
    encode_fill(commands.handle, a.buffer.handle, 6, 64)
    commands.encode("encodeSignalEvent:value:", shared_event, 1)
    commands.commit()
    moment = md.Event.from_handle(shared_event, 1)
    assert not moment.query()
    stream.wait(moment)
    result.copy_from(a, stream=stream)
    assert result.tolist() == [6] * 64
    moment.wait()


@pytest.mark.parametrize("package", ["tvm", "tvm_ffi"])
def test_tvm_is_synchronised_where_it_is_imported(package, monkeypatch):
    """A stand-in records the call: TVM with Metal runs on a Mac only."""
    waits = []
    device = types.SimpleNamespace(sync=lambda: waits.append("tvm"))
    kind = type("Tensor", (Producer,), {"__module__": f"{package}.runtime"})
    buffer = md.Buffer(64)
    producer = kind(data=buffer.handle, device=(8, 0))
    monkeypatch.delitem(sys.modules, "tvm", raising=False)
    md.from_dlpack(producer)
    assert waits == []
    monkeypatch.setitem(sys.modules, "tvm", types.SimpleNamespace(metal=lambda: device))
    sync._forget_types()
    md.from_dlpack(producer)
    assert waits == ["tvm"]
    md.from_dlpack(producer, stream=-1)
    assert waits == ["tvm"]
    sync._forget_types()


def test_a_producer_in_ten_lines(queue, shared_event):
    """The class of the proposal, over a framework with one queue that signals a number behind each command buffer."""
    names = {}
    exec(recipe("metal_stream.md", "# `__metal_stream__`: tell others"), names)
    array = md.zeros(64, "uint8")

    class Framework:
        queue_handle, event_handle = queue.handle, shared_event
        flushes = 0

        def flush(self):
            self.flushes += 1

    class Lent(names["Tensor"]):
        """Its memory is an Array's; its work is its own."""

        def __init__(self):
            self.stream, self.last_number = Framework(), 1

        def __dlpack__(self, **keywords):
            return array.__dlpack__(**(keywords | {"stream": -1}))

        def __dlpack_device__(self):
            return (8, 0)

    commands = queue.commandBuffer()
    encode_fill(commands.handle, array.buffer.handle, 7, 64)
    commands.encode("encodeSignalEvent:value:", shared_event, 1)
    commands.commit()
    lent = Lent()
    stream, result = md.Stream(), md.zeros(64, "uint8")
    result.copy_from(md.from_dlpack(lent, stream=stream), stream=stream)
    assert lent.stream.flushes == 1
    assert result.tolist() == [7] * 64
    assert np.asarray(md.from_dlpack(lent)).tolist() == [7] * 64
