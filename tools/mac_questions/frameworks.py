"""The frameworks that exist on a Mac only: PyTorch on MPS, MLX on the GPU, PyObjC."""

import ctypes
import gc
import mmap

import numpy as np
from objc_messages import SHARED, foreign_buffer

import metal_dlpack as md

from .asking import Skipped, attempt, check, footprint, need, prove_shared, question, stderr_lines

PAGE = mmap.PAGESIZE
NO_POOLS = {"OBJC_DEBUG_MISSING_POOLS": "YES"}


def need_mps():
    torch = need("torch")
    if not torch.backends.mps.is_available():
        raise Skipped(f"torch {torch.__version__} has no MPS here")
    return torch


def need_mlx_on_metal():
    mx = need("mlx.core", "mlx")
    if not mx.metal.is_available():
        raise Skipped(f"MLX {mx.__version__} has no Metal here: it takes CPU memory only, and copies it")
    return mx


# ---- PyTorch ----


def prove_torch_shares(torch, what, array, tensor):
    """Both see each other's writes; torch's arrive with torch.mps.synchronize()."""

    def write_tensor(value):
        tensor.fill_(value)
        torch.mps.synchronize()

    check(tensor.device.type == "mps", f"{what}: a tensor on {tensor.device}")
    prove_shared(what, array.fill, lambda: tensor[-1].item())
    prove_shared(f"{what}, written by torch", write_tensor, lambda: array[-1].item())


def need_torch_that_shares():
    """torch, after a proof that it shares in both directions."""
    torch = need_mps()
    print("torch", torch.__version__)
    array, tensor = md.zeros(16), torch.zeros(16, device="mps")
    prove_torch_shares(torch, "an Array", array, torch.from_dlpack(array))
    prove_torch_shares(torch, "a tensor", md.from_dlpack(tensor), tensor)
    return torch


@question("torch on MPS", "the same memory, both ways, with offsets; 200 hand-overs between queues; 20,000 round trips")
def torch_on_mps():
    torch = need_torch_that_shares()
    array, tensor = md.zeros(16)[3:], torch.zeros(16, device="mps")[3:]
    prove_torch_shares(torch, "an Array with an offset", array, torch.from_dlpack(array))
    imported = md.from_dlpack(tensor)
    print("torch's tensor has", imported.storage, "storage; byte_offset", imported.byte_offset)
    prove_torch_shares(torch, "a tensor with an offset", imported, tensor)
    u, stream = torch.arange(16.0, device="mps"), md.Stream()
    for n in range(200):
        back = md.from_dlpack(u * n, stream=stream).copy(stream=stream).to(torch)
        check((back + 1).tolist() == [x * n + 1.0 for x in range(16)], f"hand-over {n}")
    print("200 hand-overs between torch's queue and a stream")
    for _ in range(20000):
        torch.from_dlpack(md.zeros(16, "float32"))
    print("20,000 round trips")


def missing_pools(lines: list[str]) -> list[str]:
    return [line for line in lines if "MISSING POOLS" in line]


@question(
    "1,000 hand-overs to torch",
    "no more 'MISSING POOLS' lines than torch alone gives; at most 1 KiB of footprint more for each",
    environment=NO_POOLS,
)
def hand_overs():
    torch = need_torch_that_shares()
    stream, u = md.Stream(), torch.zeros(16, device="mps")

    def hand_over(n):
        a = md.from_dlpack(u + n, stream=stream).copy(stream=stream)  # the stream waits for torch
        check((a.to(torch) + 1)[0].item() == n + 1, f"hand-over {n}")  # torch waits for the stream

    def alone(n):
        check(((u + n).clone() + 1)[0].item() == n + 1, f"torch alone, {n}")

    counts, grown = {}, {}
    for what, work in (("torch alone", alone), ("hand-overs", hand_over)):
        with stderr_lines() as lines:
            for n in range(100):
                work(n)
            gc.collect()
            before = footprint()
            for n in range(1000):
                work(n)
            gc.collect()
            grown[what] = footprint() - before
        said = missing_pools(lines)
        counts[what] = len(said)
        print(f"{what}: footprint {before:,} bytes and {grown[what]:+,}; {len(said)} objects without a pool")
        for line in said[:5]:
            print("   ", line)
    check(counts["hand-overs"] <= counts["torch alone"], "objects are autoreleased without a pool")
    check(grown["hand-overs"] < 1000 * 1024 + max(grown["torch alone"], 0), "the footprint grows")


@question("two torch streams", "each one's work is waited for, in both directions; torch.mps.synchronize() covers all")
def two_torch_streams():
    if not hasattr(need_mps().mps, "Stream"):
        raise Skipped(f"torch {need_mps().__version__} has no torch.mps.Stream, which 2.15 has")
    torch = need_torch_that_shares()
    theirs, ours = [torch.mps.Stream(), torch.mps.Stream()], md.Stream()
    nitems = 1 << 20

    def slow(value):
        tensor = torch.full((nitems,), float(value), device="mps")
        for _ in range(8):
            tensor = tensor + 1
        return tensor

    for n in range(100):
        copies = []
        for which, stream in enumerate(theirs):
            with torch.mps.stream(stream):
                tensor = slow(n + which)
                copies.append(md.from_dlpack(tensor, stream=ours).copy(stream=ours))
        check([copy[-1].item() for copy in copies] == [n + 8, n + 9], f"from torch's streams, turn {n}")
        for which, stream in enumerate(theirs):
            array = md.zeros(nitems)
            array.fill(n + which, stream=ours)
            with torch.mps.stream(stream):
                result = array.to(torch) + 1
                check(result[-1].item() == n + which + 1, f"to torch's streams, turn {n}")
    print("100 turns on two streams, each way")
    with torch.mps.stream(theirs[0]):
        tensor = slow(1)
    with torch.mps.stream(theirs[1]):
        seen = md.from_dlpack(tensor, stream=ours).copy(stream=ours)[-1].item()
    print("written on one stream, handed over on the other, which is not promised:", seen, "of", 9.0)
    with torch.mps.stream(theirs[0]):
        tensor = slow(2)
    torch.mps.synchronize()
    with torch.mps.stream(theirs[1]):
        check(md.from_dlpack(tensor, stream=ours).copy(stream=ours)[-1].item() == 10, "after torch.mps.synchronize()")


def arrays_at_an_end(shape, values):
    """Arrays of these values whose last byte is the last of an MTLBuffer, and the last of a page of the CPU's."""
    nbytes = values.nbytes
    with foreign_buffer(nbytes + 256, SHARED) as handle:
        array = md.Buffer.from_handle(handle).array(shape, "float32", 256)
        array.copy_from(values)
        yield "the buffer's end", array
        del array
    pages = -(-nbytes // PAGE)
    memory = np.frombuffer(mmap.mmap(-1, pages * PAGE), "uint8")
    view = memory[pages * PAGE - nbytes :].view("float32").reshape(shape)
    view[...] = values
    yield "the page's end", md.asarray(view, copy=False)


@question("MPSGraph at the end", "matmul, softmax and linear are right on what ends with its buffer or its page")
def mpsgraph_at_the_end():
    torch = need_torch_that_shares()
    linear = torch.nn.functional.linear
    random = np.random.default_rng(1)
    for rows, columns in ((3, 5), (17, 129), (499, 768)):
        values = random.standard_normal((rows, columns)).astype("float32")
        weights = random.standard_normal((columns, columns)).astype("float32")
        powers = np.exp(values - values.max(-1, keepdims=True))
        wanted = {"matmul": values @ weights, "softmax": powers / powers.sum(-1, keepdims=True)}
        wanted["linear"] = values @ weights.T
        for (where, x), (_, w) in zip(
            arrays_at_an_end(values.shape, values), arrays_at_an_end(weights.shape, weights), strict=True
        ):
            tensor, matrix = torch.from_dlpack(x), torch.from_dlpack(w)
            check(tensor.untyped_storage().data_ptr() == x.buffer.handle, f"{where}: torch copied it")
            got = {
                "matmul": tensor @ matrix,
                "softmax": torch.softmax(tensor, -1),
                "linear": linear(tensor, matrix),
            }
            for name, result in got.items():
                check(np.allclose(result.cpu().numpy(), wanted[name], rtol=1e-3, atol=1e-3), f"{name} at {where}")
            print(f"({rows}, {columns}) at {where}: equal", flush=True)
            del tensor, matrix, got, x, w


@question("MPSGraph on repeated rows", "linear takes an Array with a stride of 0 whose one row ends with the buffer")
def mpsgraph_on_repeated_rows():
    """SPEC pytorch#167154: Metal said that the buffer was not large enough, and ended the process."""
    torch = need_torch_that_shares()
    values = np.random.default_rng(1).standard_normal((499, 768)).astype("float32")
    weights = torch.rand((768, 768), device="mps")
    for where, x in arrays_at_an_end(values.shape, values):
        tensor = torch.from_dlpack(x.broadcast_to((5, 499, 768)))
        check(tensor.untyped_storage().data_ptr() == x.buffer.handle, f"{where}: torch copied it")
        result = torch.nn.functional.linear(tensor, weights)
        wanted = values @ weights.cpu().numpy().T
        check(np.allclose(result[4].cpu().numpy(), wanted, rtol=1e-3, atol=1e-3), where)
        print(f"five times the same rows at {where}: equal", flush=True)


# ---- MLX ----


@question("MLX on the GPU", "the same memory, both ways, with offsets and strides; private memory is copied")
def mlx_on_the_gpu():
    mx = need_mlx_on_metal()
    print("MLX", mx.__version__)
    x = mx.zeros(16, dtype=mx.float32)
    mx.eval(x)
    a = md.from_dlpack(x, copy=False)
    prove_shared("an array of MLX's", a.fill, lambda: x[3].item())
    b = md.zeros((8, 64))
    for what, view in (("an Array in MLX", b), ("a view", b[2:, 3:9]), ("columns", b[:, ::2]), ("transposed", b.T)):
        y = mx.from_dlpack(view, copy=False)
        prove_shared(what, view.fill, lambda y=y: y[2, 3].item())
    private = md.zeros(16, storage="private")
    attempt("private memory, copy=False", lambda: mx.from_dlpack(private, copy=False).tolist())
    check(mx.from_dlpack(private).tolist() == [0.0] * 16, "a copy of private memory")


@question("MLX's donation", "MLX writes no result into an Array whose mx.array is kept, nor into one that it copied")
def mlx_donation():
    mx = need_mlx_on_metal()
    a = md.full(8192, 2.0)
    kept = mx.from_dlpack(a, copy=False)
    prove_shared("an Array in MLX", a.fill, lambda x=kept: x[8191].item())
    a.fill(2.0)
    mx.eval(mx.exp(kept))
    check(set(a.tolist()) == {2.0}, "MLX wrote a result into an Array whose mx.array was kept")
    print("mx.exp of a kept mx.array: the Array is unchanged")
    mx.eval(mx.exp(mx.from_dlpack(a, copy=True)))
    check(set(a.tolist()) == {2.0}, "MLX wrote a result into an Array that it was asked to copy")
    print("mx.exp of a copy: the Array is unchanged")
    del kept
    mx.eval(mx.exp(mx.from_dlpack(a, copy=False)))
    print("mx.exp of a temporary: the Array is", "unchanged" if set(a.tolist()) == {2.0} else "WRITTEN OVER")
    said = str(md.explain(a, consumer="mlx"))
    print(said)
    check("may write a result into this memory" in said, "explain does not say it")


# ---- PyObjC ----


@question("PyObjC", "a command buffer of PyObjC's on a Stream's queue writes an Array, and an Event comes after it")
def pyobjc():
    objc, metal = need("objc", "PyObjC"), need("Metal", "pyobjc-framework-Metal")
    queue = metal.MTLCreateSystemDefaultDevice().newCommandQueue()
    stream = md.Stream.from_handle(queue)
    a = md.zeros(64, "uint8")
    buffer = objc.objc_object(c_void_p=ctypes.c_void_p(a.buffer.handle))

    def write(value):
        stream.wait(a)
        commands = queue.commandBuffer()
        encoder = commands.blitCommandEncoder()
        encoder.fillBuffer_range_value_(buffer, (0, 64), value)
        encoder.endEncoding()
        commands.commit()
        stream.record().wait()

    prove_shared("an Array in PyObjC", write, lambda: a[63].item())
