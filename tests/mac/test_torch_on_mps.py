"""PyTorch on MPS: a Mac's, and elsewhere that of the software Metal; test_on_a_mac.py asks faulty ones the same."""

import gc
import mmap
import os

import numpy as np
import pytest
from machine import IS_MAC, has_mps
from objc_messages import SHARED, foreign_buffer
from proof import footprint, missing_pools, prove_shared, stderr_lines

import metal_dlpack as md

pytestmark = pytest.mark.mac
PAGE = mmap.PAGESIZE


@pytest.fixture
def torch(torch):
    """torch, after a proof that it shares in both directions."""
    if not has_mps():
        pytest.skip("needs PyTorch with MPS")
    if not torch.backends.mps.is_available():
        pytest.skip(f"torch {torch.__version__} has no MPS here")
    array, tensor = md.zeros(16), torch.zeros(16, device="mps")
    prove_torch_shares(torch, "an Array", array, torch.from_dlpack(array))
    prove_torch_shares(torch, "a tensor", md.from_dlpack(tensor), tensor)
    return torch


def prove_torch_shares(torch, what, array, tensor):
    """Both see each other's writes; torch's arrive with torch.mps.synchronize()."""

    def write_tensor(value):
        tensor.fill_(value)
        torch.mps.synchronize()

    assert tensor.device.type == "mps"
    prove_shared(what, array.fill, lambda: tensor[-1].item())
    prove_shared(f"{what}, written by torch", write_tensor, lambda: array[-1].item())


@pytest.mark.skipif(
    IS_MAC and "OBJC_DEBUG_MISSING_POOLS" not in os.environ, reason="tools/on_a_mac.py sets what this needs"
)
@pytest.mark.long
def test_a_thousand_hand_overs_leave_no_object_without_a_pool_and_no_memory(torch):
    stream, u = md.Stream(), torch.zeros(16, device="mps")

    def hand_over(n):
        a = md.from_dlpack(u + n, stream=stream).copy(stream=stream)  # the stream waits for torch
        assert (a.to(torch) + 1)[0].item() == n + 1  # torch waits for the stream

    def alone(n):
        assert ((u + n).clone() + 1)[0].item() == n + 1

    counts, grown = {}, {}
    for work in (alone, hand_over):
        with stderr_lines() as lines:
            for n in range(100):
                work(n)
            gc.collect()
            before = footprint()
            for n in range(1000):
                work(n)
            gc.collect()
            grown[work] = footprint() - before
        counts[work] = len(missing_pools(lines))
        print(f"{work.__name__}: footprint {before:,} bytes and {grown[work]:+,}; {counts[work]} without a pool")
    assert counts[hand_over] <= counts[alone]
    assert grown[hand_over] < 1000 * 1024 + max(grown[alone], 0)


def test_work_on_two_of_torch_s_streams_is_waited_for_in_both_directions(torch):
    if not hasattr(torch.mps, "Stream"):
        pytest.skip(f"torch {torch.__version__} has no torch.mps.Stream, which 2.15 has")
    theirs, ours = [torch.mps.Stream(), torch.mps.Stream()], md.Stream()
    nitems = 1 << 20

    def slow(value):
        tensor = torch.full((nitems,), float(value), device="mps")
        for _ in range(8):
            tensor = tensor + 1
        return tensor

    def seen(tensor):
        return md.from_dlpack(tensor, stream=ours).copy(stream=ours)[-1].item()

    for n in range(100):
        for which, stream in enumerate(theirs):
            with torch.mps.stream(stream):
                assert seen(slow(n + which)) == n + which + 8
            array = md.zeros(nitems)
            array.fill(n + which, stream=ours)
            with torch.mps.stream(stream):
                assert (array.to(torch) + 1)[-1].item() == n + which + 1
    with torch.mps.stream(theirs[0]):
        tensor = slow(1)
    with torch.mps.stream(theirs[1]):
        print("written on one stream, handed over on the other, which is not promised:", seen(tensor), "of 9")
    with torch.mps.stream(theirs[0]):
        tensor = slow(2)
    torch.mps.synchronize()
    with torch.mps.stream(theirs[1]):
        assert seen(tensor) == 10


def arrays_at_an_end(values):
    """Arrays of these values whose last byte is the last of an MTLBuffer, and the last of a page of the CPU's."""
    with foreign_buffer(values.nbytes + 256, SHARED) as handle:
        array = md.Buffer.from_handle(handle).array(values.shape, "float32", 256)
        array.copy_from(values)
        yield "the buffer's end", array
        del array
    pages = -(-values.nbytes // PAGE)
    memory = np.frombuffer(mmap.mmap(-1, pages * PAGE), "uint8")
    view = memory[pages * PAGE - values.nbytes :].view("float32").reshape(values.shape)
    view[...] = values
    yield "the page's end", md.asarray(view, copy=False)


def shared(torch, array):
    tensor = torch.from_dlpack(array)
    handle = tensor.untyped_storage().data_ptr()  # of the storage itself pytest would print each byte
    assert handle == array.buffer.handle, "torch copied it"
    return tensor


def assert_close(tensor, wanted, what):
    assert np.allclose(tensor.cpu().numpy(), wanted, rtol=1e-3, atol=1e-3), what


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (17, 129), (499, 768)])
def test_mpsgraph_reads_nothing_past_a_buffer_or_a_page(torch, rows, columns):
    random = np.random.default_rng(1)
    values = random.standard_normal((rows, columns)).astype("float32")
    weights = random.standard_normal((columns, columns)).astype("float32")
    powers = np.exp(values - values.max(-1, keepdims=True))
    for (where, x), (_, w) in zip(arrays_at_an_end(values), arrays_at_an_end(weights), strict=True):
        tensor, matrix = shared(torch, x), shared(torch, w)
        assert_close(tensor @ matrix, values @ weights, f"matmul at {where}")
        assert_close(torch.softmax(tensor, -1), powers / powers.sum(-1, keepdims=True), f"softmax at {where}")
        assert_close(torch.nn.functional.linear(tensor, matrix), values @ weights.T, f"linear at {where}")
        del tensor, matrix, x, w


def test_mpsgraph_takes_a_row_that_is_repeated(torch):
    """SPEC pytorch#167154: Metal said that the buffer was not large enough, and ended the process."""
    values = np.random.default_rng(1).standard_normal((499, 768)).astype("float32")
    weights = torch.rand((768, 768), device="mps")
    for where, x in arrays_at_an_end(values):
        tensor = shared(torch, x.broadcast_to((5, 499, 768)))
        result = torch.nn.functional.linear(tensor, weights)
        assert_close(result[4], values @ weights.cpu().numpy().T, where)
        del tensor, x
