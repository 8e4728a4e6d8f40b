"""multiprocessing's SharedMemory under Arrays: two processes, one memory."""

import gc
import multiprocessing
import os
import sys
import uuid
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
from children import output_of

import metal_dlpack as md

SIZE = 1 << 16


@pytest.fixture
def shm():
    memory = SharedMemory(create=True, size=SIZE)
    yield memory
    memory.unlink()


def over(memory, dtype="float32"):
    return md.asarray(memory, copy=False).view(dtype)


def test_the_array_is_the_shared_memory(shm, live_buffers):
    array = over(shm)
    assert (array.shape, array.storage, array.readonly) == ((SIZE // 4,), "shared", False)
    assert array.buffer.owner[0] is shm
    array[3] = 1.5
    assert bytes(shm.buf[12:16]) == b"\x00\x00\xc0\x3f"
    shm.buf[0:4] = b"\x00\x00\x80\x3f"
    assert array[0].item() == 1.0
    del array
    shm.close()


def test_the_memory_lives_as_long_as_an_array_over_it(live_buffers):
    """The SharedMemory goes before its array: its own end must find nothing in use, and say nothing."""
    memory = SharedMemory(create=True, size=SIZE)
    name = memory.name
    array = over(memory)
    array[7] = 7
    view = array[5:]
    memory.unlink()
    del memory, array
    gc.collect()
    assert view[2].item() == 7
    if sys.platform == "linux":
        maps, path = Path("/proc/self/maps"), name.encode()  # other paths there may be no UTF-8
        assert path in maps.read_bytes()
        del view
        gc.collect()
        assert path not in maps.read_bytes()


@pytest.mark.parametrize("take", [over, md.Buffer.from_host])
def test_closing_it_under_an_array_is_refused_and_a_closed_one_too(take):
    memory = SharedMemory(create=True, size=SIZE)
    memory.unlink()
    taken = take(memory)
    with pytest.raises(BufferError):
        memory.close()
    taken.fill(0)  # it is there still
    del taken
    memory.close()
    with pytest.raises(ValueError, match="the SharedMemory is closed"):
        take(memory)


def test_a_subclass_is_one_too_and_a_namesake_is_not(shm):
    class Named(SharedMemory):
        pass

    other = Named(shm.name)
    array = over(other)
    array[1] = 2.0
    assert over(shm)[1].item() == 2.0

    class SharedMemoryOfOthers:
        buf = memoryview(bytearray(8))

    SharedMemoryOfOthers.__name__ = "SharedMemory"
    with pytest.raises((TypeError, ValueError)):
        md.asarray(SharedMemoryOfOthers())


def test_a_copy_and_a_type_are_made_as_from_any_memory(shm):
    copy = md.asarray(shm, copy=True)
    over(shm)[0] = 1.0
    assert copy[3].item() == 0
    assert md.asarray(shm, dtype="int32").shape == (SIZE,)
    assert md.asarray(shm, storage="private").storage == "private"


def double(name, shape):
    """In another process: its own Metal buffer over the same memory."""
    memory = SharedMemory(name)
    array = md.asarray(memory, copy=False).view("float32")[: shape[0] * shape[1]].reshape(shape)
    seen = array.tolist()
    array[0, 0] = 64.0
    array[1] = array[1].copy().copy(storage="private").copy(storage="shared")
    array[1, 2] = -1.0
    return seen, array.device.name, os.getpid()


@pytest.mark.needs_no_sanitizer
def test_two_processes_share_one_metal_array(torch, shm, live_buffers):
    array = over(shm)[:6].reshape(2, 3)
    array[...] = md.asarray([[1.0, 2, 3], [4, 5, 6]])
    tensor = torch.from_dlpack(array.host)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seen, device, pid = pool.apply(double, (shm.name, (2, 3)))
    assert pid != os.getpid()
    assert device == array.device.name
    assert seen == [[1, 2, 3], [4, 5, 6]]
    assert array.tolist() == tensor.tolist() == [[64, 2, 3], [4, 5, -1]]
    del array, tensor


@pytest.mark.skipif(sys.platform != "linux", reason="fork() is for Linux here")
@pytest.mark.needs_no_sanitizer
def test_a_forked_child_writes_through_an_array_made_before():
    name = f"md-{uuid.uuid4().hex[:12]}"
    code = f"""
import os, metal_dlpack as md
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory({name!r}, create=True, size=65536)
array = md.asarray(memory, copy=False).view("int32")
child = os.fork()
if child == 0:
    array[5] = 55
    os._exit(0)
os.waitpid(child, 0)
print(array[5].item())
memory.unlink()
"""
    assert output_of(code) == "55\n"
