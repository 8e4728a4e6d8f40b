"""torch's own queue on MPS: it signals our event and waits for ours, and nobody waits on the CPU.

A stand-in library exports torch's functions under their C++ names, over the software Metal.  It has what no torch that
runs here has: work that the GPU is still to begin, streams whatever the version, and faults.  The order of torch's own
operators and our work is asked of torch itself: tests/torch_mps/test_torch_async.py.
"""

import concurrent.futures
import contextlib
import ctypes

import numpy as np
import pytest
from eventually import PATIENCE, until
from held_work import gate, held
from law_programs import build_library
from objc_messages import encode_fill, pool, send
from recipes import recipe

import metal_dlpack as md
import softmetal
from metal_dlpack import _core, sync, torch_facts

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """In a folder whose name is no UTF-8: a home may be one."""
    path = build_library(tmp_path_factory.mktemp("torch"), "torch_queue")
    path.with_name("\udcff").mkdir()
    return str(path.rename(path.with_name("\udcff") / "libtorch_cpu.so"))


class TorchQueue:
    """torch's streams: for each a queue, the command buffer that is being encoded, and what torch does on it.

    Without a number it is the calling thread's current stream, as in torch.  What torch's own functions do for us, open
    and commit, makes no autorelease pool.
    """

    STREAMS = 4

    def __init__(self, path):
        self.loaded = ctypes.CDLL(path)
        self.commands = dict.fromkeys(range(self.STREAMS))
        with pool():
            self.queues = [send(md.default_device().handle, "newCommandQueue") for _ in self.commands]
        self.callbacks = (
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(self.open),
            ctypes.CFUNCTYPE(None, ctypes.c_int)(self.commit),
        )
        self.loaded.standin_set(*self.callbacks)

    @contextlib.contextmanager
    def stream(self, number):
        before = self.loaded.standin_set_stream(number)
        try:
            yield
        finally:
            self.loaded.standin_set_stream(before)

    def current(self):
        number = self.loaded.standin_set_stream(0)
        self.loaded.standin_set_stream(number)
        return number

    def open(self, number):
        if self.commands[number] is None:
            self.commands[number] = send(send(self.queues[number], "commandBuffer"), "retain")
        return self.commands[number]

    def commit(self, number):
        send(self.commands[number], "commit", result=None)
        send(self.commands[number], "release", result=None)
        self.commands[number] = None

    def fill(self, handle, value, nbytes):
        """A torch operation: encoded, and not committed."""
        with pool():
            encode_fill(self.open(self.current()), handle, value, nbytes)

    def copy(self, source, target, nbytes):
        with pool():
            encoder = send(self.open(self.current()), "blitCommandEncoder")
            selector = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:"
            send(encoder, selector, source, 0, target, 0, nbytes, result=None)
            send(encoder, "endEncoding", result=None)

    def synchronize(self):
        """torch.mps.synchronize: all streams."""
        for number in self.commands:
            with pool():
                last = send(self.open(number), "retain")
                self.commit(number)
                send(last, "waitUntilCompleted", result=None)
                send(last, "release", result=None)

    def close(self):
        self.synchronize()
        for queue in self.queues:
            send(queue, "release", result=None)


@pytest.fixture
def torch_queue(torch, library, monkeypatch):
    queue = TorchQueue(library)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch_facts, "library", lambda _torch: library)
    sync._forget_types()
    yield queue
    md.default_device().synchronize()
    assert queue.loaded.standin_calls_outside() == 0, "torch encodes on its current stream's dispatch queue only"
    queue.close()
    monkeypatch.undo()
    sync._forget_types()


@contextlib.contextmanager
def torch_held(torch_queue, number):
    """What a torch stream is given from now on waits for the end of the block."""
    with gate() as event:
        with pool():
            send(torch_queue.open(number), "encodeWaitForEvent:value:", event, 1, result=None)
        yield


def torch_tensor():
    """A torch tensor over a Metal buffer, and the buffer's handle."""
    import torch

    array = md.zeros(64)
    return torch.from_dlpack(array), array.buffer.handle


def torch_moment():
    """When all that torch's current stream was given so far is finished."""
    stream = md.Stream()
    md.from_dlpack(torch_tensor()[0], stream=stream)
    return stream.record()


def test_with_minus_one_torch_is_left_alone(torch_queue):
    tensor, _ = torch_tensor()
    md.from_dlpack(tensor, stream=-1)
    assert torch_queue.loaded.standin_commits() == 0


by_module_and_type = pytest.mark.parametrize(
    "find", [lambda torch: torch, lambda torch: torch.Tensor], ids=["module", "type"]
)


@by_module_and_type
@pytest.mark.parametrize("number", [0, 2])
def test_torch_s_current_stream_waits_for_our_work(torch, number, find, torch_queue, slow):
    array, target = md.zeros(64), md.zeros(64)
    stream = md.Stream()
    with held(stream), torch_queue.stream(number):
        array.fill(1.5, stream=stream)
        tensor = array.to(find(torch))
        torch_queue.copy(array.buffer.handle, target.buffer.handle, 256)
    assert [number for number, commands in torch_queue.commands.items() if commands] == [number]
    torch_queue.synchronize()
    assert target.tolist() == [1.5] * 64
    assert tensor.shape == (64,)


@pytest.mark.parametrize("scope", ["queue", "commands"])
@pytest.mark.parametrize("is_next", [False, True], ids=["behind the wait", "in the next"])
def test_torch_s_later_command_buffers_wait_for_our_work_too(torch, torch_queue, settings, is_next, scope):
    """Whatever a wait on the GPU holds back; and what we then ask of torch's queue comes after."""
    array, target = md.zeros(64), md.zeros(64)
    result = np.asarray(target)
    settings(wait_scope=scope)
    stream = md.Stream()
    with held(stream):
        array.fill(1.5, stream=stream)
        array.to(torch)
        steps = [
            lambda: torch_queue.copy(array.buffer.handle, target.buffer.handle, 256),
            lambda: torch_queue.commit(0),
        ]
        for step in reversed(steps) if is_next else steps:  # torch commits after some operations
            step()
        moment = torch_moment()
        assert not moment.wait(0.05)
    moment.wait()
    assert result.tolist() == [1.5] * 64


def test_the_recipe_for_torch_runs_as_written_and_waits_on_the_gpu_only(torch, torch_queue, slow):
    target = md.zeros(64)
    tensor, handle = torch_tensor()

    def model(x):
        torch_queue.fill(handle, x, 256)
        return tensor

    names = {"md": md, "torch": torch, "model": model, "x": 7}
    with torch_held(torch_queue, 0):
        exec(recipe("synchronisation.md", "**torch.**"), names)
        torch_queue.copy(names["b"].buffer.handle, target.buffer.handle, 256)
    assert names["z"].shape == (64,)
    torch_queue.synchronize()
    assert np.asarray(target).view("uint8").tolist() == [7] * 256


def test_an_idle_array_goes_to_torch_without_a_command(torch, torch_queue):
    assert md.zeros(4).to(torch.Tensor).shape == (4,)
    assert md.zeros(4).to(torch).shape == (4,)
    assert set(torch_queue.commands.values()) == {None}


def test_what_torch_gets_a_copy_of_is_complete(torch, torch_queue, slow):
    """torch cannot have negative strides; its queue knows nothing of the copy, which is made on ours."""
    array, target = md.zeros(64, storage="private"), md.zeros(64)
    array.copy_from(np.arange(64, dtype="float32"), stream=md.Stream())
    tensor = array[::-1].to(torch)
    torch_queue.copy(md.from_dlpack(tensor, stream=-1).buffer.handle, target.buffer.handle, 256)
    torch_queue.synchronize()
    assert target.tolist() == list(range(63, -1, -1))


@by_module_and_type
def test_where_torch_s_queue_is_not_to_be_had_the_cpu_waits(torch, find, slow, monkeypatch):
    monkeypatch.setattr(torch_facts, "library", lambda _torch: "")
    sync._forget_types()
    array = md.zeros(64)
    array.fill(1.5, stream=md.Stream())
    array.to(find(torch))
    answer = array.__metal_stream__()
    assert md.Event.from_handle(*answer[2:]).query(), "work is in flight still"


def test_each_stream_of_torch_s_is_waited_for_on_the_gpu_by_itself(torch_queue, live_buffers):
    """A tensor of the slow stream is not read before it is written, whatever another stream did meanwhile.

    With one event for all, the second stream's 2 would be there before the first one's 1, and say that it is done.
    """
    tensors = {number: torch_tensor() for number in (1, 2)}
    results, ready = {}, {}
    with torch_held(torch_queue, 1):
        for number, (tensor, handle) in tensors.items():
            with torch_queue.stream(number):
                torch_queue.fill(handle, number, 256)
                stream = md.Stream()
                results[number] = md.from_dlpack(tensor, stream=stream).copy(stream=stream)
                ready[number] = stream.record()
        assert torch_queue.loaded.standin_commits() == 2, "torch's work must be on its way"
        assert ready[2].wait(PATIENCE)
        assert not ready[1].query()
    for number, result in results.items():
        assert np.asarray(result).view("uint8").tolist() == [number] * 256


def test_the_recipe_for_torch_s_streams_waits_for_the_one_that_writes(torch, torch_queue, monkeypatch):
    tensor, handle = torch_tensor()
    stream = md.Stream()
    monkeypatch.setattr(torch.mps, "stream", torch_queue.stream, raising=False)
    names = {"md": md, "torch": torch, "other": 1, "y": tensor, "s": stream}
    with torch_held(torch_queue, 1):
        with torch_queue.stream(1):
            torch_queue.fill(handle, 7, 256)
        exec(recipe("synchronisation.md", "torch 2.15 has several streams."), names)
        result = names["a"].copy(stream=stream)
        assert not stream.record().wait(0.05)
    assert np.asarray(result).view("uint8").tolist() == [7] * 256


def test_values_reach_each_queue_of_torch_s_in_order(torch_queue):
    def work(number):
        with torch_queue.stream(number):
            return [torch_moment() for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(5) as threads:
        moments = [moment for some in threads.map(work, [0, 0, 1, 1, 2]) for moment in some]
    assert len(moments) == 100 and all(moment.wait(PATIENCE) for moment in moments)
    assert [torch_queue.loaded.standin_retains(number) for number in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["own thread", "another thread"])
def test_hand_overs_leave_no_object_of_torch_s_behind(torch, elsewhere, torch_queue):
    """torch autoreleases a command buffer each time, and the main thread has no pool that would ever be drained."""
    torch_queue.loaded.standin_run_elsewhere(elsewhere)
    array = md.zeros(64)
    tensor = array.to(torch)
    before = softmetal.live_objects("MTLCommandBuffer")
    for _ in range(50):
        md.from_dlpack(tensor)
        array.fill(1, stream=md.Stream())
        array.to(torch)
    torch_queue.loaded.standin_run_elsewhere(False)
    torch_queue.synchronize()
    assert softmetal.wait_idle()
    until(lambda: softmetal.live_objects("MTLCommandBuffer") <= before)


def test_a_job_on_a_thread_with_another_current_stream_is_not_encoded(torch_queue):
    tensor, _ = torch_tensor()
    torch_queue.loaded.standin_run_elsewhere(True)
    with torch_queue.stream(1), pytest.raises(md.MetalError, match="torch's queue"):
        md.from_dlpack(tensor)
    torch_queue.loaded.standin_run_elsewhere(False)
    assert torch_queue.loaded.standin_commits() == 0


def test_a_queue_for_which_metal_has_no_event_is_an_error_until_it_has_one(torch_queue, settings):
    tensor, _ = torch_tensor()
    settings(fail="event@1+")
    with torch_queue.stream(3), pytest.raises(md.MetalError, match="torch's queue"):
        md.from_dlpack(tensor)
    settings(fail=None)
    with torch_queue.stream(3):
        md.from_dlpack(tensor)
    assert torch_queue.loaded.standin_retains(3) == 1


def test_a_command_buffer_that_torch_does_not_give_is_an_error(torch_queue):
    nothing = type(torch_queue.callbacks[0])(lambda _number: None)
    torch_queue.loaded.standin_set(nothing, torch_queue.callbacks[1])
    tensor, _ = torch_tensor()
    with pytest.raises(md.MetalError, match="torch's queue"):
        md.from_dlpack(tensor)
    torch_queue.loaded.standin_set(*torch_queue.callbacks)
    with torch_queue.stream(-1), pytest.raises(md.MetalError, match="torch's queue"):
        md.from_dlpack(tensor)


def test_work_of_torch_s_that_fails_is_waited_for_and_no_longer(torch_queue, settings):
    """A command buffer that fails signals nothing; what is wrong with it is torch's to tell."""
    settings(fail="commit@1=8")
    moment = torch_moment()
    until(moment.query)


@pytest.mark.parametrize("what", ["no such file", "a library without them"])
def test_where_the_functions_are_missing_torch_synchronises_itself(torch, what, torch_queue, monkeypatch):
    waits = []
    path = "nowhere/libtorch_cpu.dylib" if what == "no such file" else _core.__file__
    monkeypatch.setattr(torch_facts, "library", lambda _torch: path)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waits.append(what))
    sync._forget_types()
    tensor, _ = torch_tensor()
    md.from_dlpack(tensor)
    assert waits == [what]
    array = md.zeros(4)
    array.fill(2, stream=md.Stream())
    assert array.to(torch.Tensor).shape == (4,)
    assert np.asarray(array).tolist() == [2] * 4


# ---- kernels on torch's tensors ----

KERNELS = """
#include <metal_stdlib>
using namespace metal;
kernel void scale(device float *x, constant float &factor, uint i [[thread_position_in_grid]]) { x[i] *= factor; }
"""


@pytest.fixture(scope="module")
def kernels():
    return md.Library(KERNELS)


@pytest.mark.needs_kernels
@pytest.mark.parametrize("is_named", [False, True], ids=["default stream", "named stream"])
def test_a_kernel_waits_for_torch_and_torch_waits_for_the_kernel(torch, kernels, torch_queue, slow, is_named):
    array, target = md.full(64, 1.5), md.zeros(64)
    ones = md.ones(64)
    tensor = torch.from_dlpack(array)
    keywords = {"stream": md.Stream()} if is_named else {}
    with torch_held(torch_queue, 0):
        torch_queue.copy(ones.buffer.handle, array.buffer.handle, 256)
        kernels["scale"](tensor, 3.0, n=64, **keywords)
        torch_queue.copy(array.buffer.handle, target.buffer.handle, 256)
    torch_queue.synchronize()
    assert target.tolist() == [3.0] * 64, "of torch's ones, and before torch's copy"
