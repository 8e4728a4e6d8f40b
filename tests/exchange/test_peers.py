"""Sharing with the real frameworks: the same buffer, the same offsets and strides, every write seen by all.

A test that computes on a GPU runs where there is one; all others run everywhere.  On Linux PyTorch takes and gives
MPS tensors but runs no operation on them: what they hold is read through md.from_dlpack(tensor).
"""

import sys

import numpy as np
import pytest

import metal_dlpack as md


def library(name):
    return pytest.importorskip({"jax": "jax.numpy", "mlx": "mlx.core", "tvm": "tvm_ffi"}.get(name, name))


def by_library(table):
    """The names of a table, each with the marker of the library that it begins with."""
    words = ("torch", "tvm", "jax", "mlx", "ml_dtypes")
    marks = {word: getattr(pytest.mark, f"needs_{word}") for word in words}
    return [pytest.param(name, marks=[marks[word] for word in words if name.startswith(word)]) for name in table]


#: Views of a (4, 6) array, by what makes them; the offsets and strides differ in every one.
VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, 2:5],
    "every second": lambda a: a[::2, 1::2],
    "transposed": lambda a: a.T,
    "one row": lambda a: a[2],
    "one item": lambda a: a[3, 5],
    "axis of one": lambda a: a[None, 1],
}
CPU, METAL = "cpu", "metal"


def numbered():
    """0 to 23 in a buffer of its own, so that its place is the buffer's start."""
    array = md.empty((4, 6), "float32")
    array[...] = np.arange(24, dtype="float32").reshape(4, 6)
    return array


# ---- ours, taken by others ----


def numpys_place(x):
    return x.__array_interface__["data"][0]


def mps_place(tensor):
    assert tensor.device.type == "mps"
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset() * tensor.element_size()


def metal_place(tensor):
    """TVM adds the offset to the handle."""
    assert str(tensor.device) == "metal:0"
    offset = md.from_dlpack(tensor).byte_offset
    return tensor.data_ptr() - offset, offset


#: Road: (whose memory the other side sees, how it takes an Array, where it says that item 0 lies).
ROADS = {
    "numpy": (CPU, lambda a: np.from_dlpack(a, device="cpu", copy=False), numpys_place),
    "numpy, host view": (CPU, lambda a: np.from_dlpack(a.host), numpys_place),
    "numpy, to": (CPU, lambda a: a.to(np), numpys_place),
    "numpy.asarray": (CPU, np.asarray, numpys_place),
    "memoryview": (CPU, memoryview, lambda view: numpys_place(np.asarray(view))),
    "torch": (METAL, lambda a: library("torch").from_dlpack(a), mps_place),
    "torch, to": (METAL, lambda a: a.to(library("torch")), mps_place),
    "torch, to its type": (METAL, lambda a: a.to(library("torch").Tensor), mps_place),
    "torch, host view": (CPU, lambda a: library("torch").from_dlpack(a.host), lambda x: x.data_ptr()),
    "tvm": (METAL, lambda a: library("tvm").from_dlpack(a), metal_place),
    "tvm, host view": (CPU, lambda a: library("tvm").from_dlpack(a.host), lambda x: x.data_ptr()),
}


@pytest.mark.parametrize("road", by_library(ROADS))
@pytest.mark.rule("export-metal-data", "export-cpu-data", "exchange-foreign")
def test_each_view_is_taken_at_its_place_and_comes_back(road, live_buffers, subtests):
    device, take, place = ROADS[road]
    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            expected = view.tolist()
            taken = take(view)
            there = (array.buffer.handle, view.byte_offset)
            assert place(taken) == (there if device == METAL else array.buffer.address + view.byte_offset)
            back = md.asarray(taken, copy=False)
            assert (back.buffer.handle, back.byte_offset, back.shape) == (*there, view.shape)
            steps = zip(back.strides, view.strides, view.shape, strict=True)
            assert all(ours == theirs for theirs, ours, extent in steps if extent > 1)
            if device == CPU:
                assert np.asarray(taken if road == "memoryview" else np.from_dlpack(back.host)).tolist() == expected
            for writer, reader, number in ((back, view, 3.0), (view, back, 4.0)):
                writer[...] = number
                assert set(np.asarray(reader).ravel().tolist()) == {number}
            del array, view, writer, reader, taken
            assert live_buffers() == 1
            assert set(np.asarray(back).ravel().tolist()) == {4.0}
            del back
            assert live_buffers() == 0


NUMPYS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
#: What MPS has, and what NumPy has not.
TORCHS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "float16",
    "float32", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip
MLXS = ["int32", "float32", "float16", "bfloat16", "complex64", "uint8"]


@pytest.mark.rule("export-dtypes")
def test_every_type_of_torch_goes_there_and_back(torch, live_buffers, subtests):
    for name in {*TORCHS, *NUMPYS, "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"}:
        for is_host in (True, False) if name in TORCHS else (True,):
            with subtests.test(name, is_host=is_host):
                array = md.zeros((3, 2), name)
                tensor = torch.from_dlpack(array.host if is_host else array)
                assert tensor.dtype is getattr(torch, name)
                back = md.from_dlpack(tensor, copy=False)
                assert back.dtype.name == name
                array.view("uint8")[1, 1] = 0x38
                assert back.view("uint8")[1, 1].item() == 0x38


@pytest.mark.rule("export-private", "export-negative")
def test_torch_gets_private_storage_as_it_is_and_a_copy_of_what_would_end_it(torch, live_buffers):
    """A negative stride ends the process.  PEER torch 2.13, pytorch#188023."""
    private, array = md.full(8, 2.0, storage="private"), numbered()
    tensor = torch.from_dlpack(private)
    assert mps_place(tensor) == (private.buffer.handle, 0)
    assert md.from_dlpack(tensor).tolist() == [2.0] * 8
    for turned in (torch.from_dlpack(array[::-1]), torch.from_dlpack(array[::-1].host)):
        back = md.from_dlpack(turned)
        assert (back.tolist(), md.shares_memory(back, array)) == (array[::-1].tolist(), False)
    assert mps_place(torch.from_dlpack(array, copy=False))[0] == array.buffer.handle
    assert mps_place(torch.from_dlpack(array, copy=True))[0] != array.buffer.handle
    with pytest.raises(BufferError):
        torch.from_dlpack(array[::-1], copy=False)


@pytest.mark.needs_mps
def test_the_gpu_of_torch_and_the_array_see_each_others_writes(torch, live_buffers, subtests):
    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            tensor = torch.from_dlpack(view)
            assert tensor.cpu().tolist() == view.tolist()
            expected = (np.asarray(view) + 1).tolist()
            tensor.add_(1)
            torch.mps.synchronize()
            assert view.tolist() == expected
            view[...] = 8
            assert bool((tensor.cpu() == 8).all())


@pytest.mark.needs_tvm
@pytest.mark.rule("export-alignment")
def test_what_tvm_asks_for_is_what_fresh_arrays_have(live_buffers):
    """Its runtime takes compact tensors whose offset is a multiple of 64."""
    array = md.zeros((4, 16), "float32")
    for given in (array, array[1:], array.host):
        library("tvm").from_dlpack(given, require_alignment=64, require_contiguous=True)


@pytest.mark.needs_jax
@pytest.mark.rule("export-host-view")
def test_jax_shares_through_the_host_view(jnp, live_buffers):
    import jax

    array = numbered()
    for number, imported in enumerate([jnp.from_dlpack(array.host), array.to(jnp)]):
        assert imported.unsafe_buffer_pointer() == array.buffer.address
        array[2, 3] = number
        assert float(jax.jit(lambda x: x[2, 3] * 1)(imported)) == number
    with pytest.raises((TypeError, RuntimeError, ValueError)):  # in its own words
        jnp.from_dlpack(array)


@pytest.mark.rule("export-host-view")
def test_mlx_reads_the_host_view(mx, live_buffers, subtests):
    for name, make_view in VIEWS.items():
        with subtests.test(name):
            view = make_view(numbered())
            assert mx.from_dlpack(view.host).tolist() == view.tolist()


# ---- theirs, taken by us ----


def first_address(x):
    """Where an mx.array lies; no MLX object is kept."""
    library("mlx").eval(x)
    return numpys_place(np.array(x, copy=False))


def jax_says_readonly():
    """Its arrays are immutable.  Before 0.12 it had legacy capsules only, which have no flag for it."""
    library("jax")
    import jax

    return jax.__version_info__ >= (0, 12)


#: Library: (a (4, 6) array of a dtype, where its item 0 lies, the dtypes).
MAKERS = {
    "numpy": (lambda name: np.arange(24).reshape(4, 6).astype(name), numpys_place, NUMPYS),
    "ml_dtypes": (
        lambda name: np.arange(24).reshape(4, 6).astype(md.dtype(name).numpy),
        numpys_place,
        ["bfloat16", "float8_e4m3fn"],
    ),
    "torch": (
        lambda name: library("torch").arange(24).reshape(4, 6).to(getattr(library("torch"), name)),
        lambda x: x.data_ptr(),
        TORCHS,
    ),
    "jax": (
        lambda name: library("jax").arange(24).reshape(4, 6).astype(name),
        lambda x: x.unsafe_buffer_pointer(),
        ["int32", "float32"],
    ),
    "mlx": (lambda name: library("mlx").arange(24).reshape(4, 6).astype(getattr(library("mlx"), name)), None, MLXS),
}
PARTS = {name: VIEWS[name] for name in ("whole", "rows", "every second", "transposed", "one row")}
TURNED = {"rows turned": lambda x: x[::-1], "columns turned": lambda x: x[:, ::-2]}  # torch has none


@pytest.mark.parametrize("name", by_library(MAKERS))
@pytest.mark.rule("import-copy-false", "import-negative-strides")
def test_what_a_library_made_is_shared_as_it_lies(name, live_buffers, subtests):
    make, place, dtypes = MAKERS[name]
    take = md.asarray if name == "ml_dtypes" else md.from_dlpack  # NumPy cannot export such types
    cases = [(dtype, "whole") for dtype in dtypes]
    cases += [("int32", part) for part in (PARTS if name == "torch" else PARTS | TURNED)]
    for dtype, part in cases:
        with subtests.test(dtype, part=part):
            x = (PARTS | TURNED)[part](make(dtype))
            array, again = take(x, copy=False), md.asarray(x, copy=False)
            assert (array.dtype.name, array.shape) == (dtype, tuple(x.shape))
            assert array.tolist() == x.tolist()
            assert md.shares_memory(array, again)
            if place is not None:
                assert array.buffer.address + array.byte_offset == place(x)
            if part == "whole":
                buffer = md.Buffer.from_host(x)
                assert buffer.address + buffer.offset == array.buffer.address + array.byte_offset
                assert bytes(memoryview(buffer)) == array.to_numpy().tobytes()
            if name == "numpy":
                assert [step * array.itemsize for step in array.strides] == list(x.strides)
            if name == "torch":
                assert array.strides == x.stride()
            if name in ("numpy", "torch"):
                x[(1,) * x.ndim] = 0
                assert array[(1,) * array.ndim].item() == 0
            is_readonly = name == "jax" and jax_says_readonly()
            assert array.readonly == again.readonly == is_readonly
            if is_readonly:
                with pytest.raises(ValueError, match="the array is read-only"):
                    array.fill(1)
                continue
            array.fill(1)
            assert set(np.ravel(again.tolist())) == {1}
            assert name == "jax" or set(np.ravel(x.tolist())) == {1}  # JAX keeps what it read before


@pytest.mark.needs_mps
def test_a_tensor_that_torch_made_on_mps_becomes_an_array(torch, live_buffers):
    tensor = torch.arange(24, dtype=torch.float32, device="mps").reshape(4, 6)
    torch.mps.synchronize()
    for part in (tensor, tensor[1:, ::2], tensor.T):
        array = md.from_dlpack(part, copy=False)
        assert mps_place(part) == (array.buffer.handle, array.byte_offset)
        assert (array.strides, array.tolist()) == (part.stride(), part.cpu().tolist())


# ---- MLX's donation ----


def rebind(x):
    x += 1
    return x


def assign(x):
    x[0] = 1
    return x


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("operation", ["exp", "softmax", "rebind", "assign"])
def test_mlx_writes_a_result_where_only_the_operation_refers_to_an_array(mx, operation, is_kept):
    """What explain and the recipe for MLX warn of.  MLX's own counts decide, also of memory that it imported."""
    run = {"rebind": rebind, "assign": assign}.get(operation) or getattr(mx, operation)
    imported = mx.from_dlpack(md.full(8192, 2.0).host)
    kept = imported[:] if is_kept else None
    mx.eval(imported, kept)
    there = first_address(imported)
    result = run(imported)
    del imported
    assert (first_address(result) == there) == (not is_kept)


@pytest.mark.skipif(sys.platform == "darwin", reason="MLX shares there; the next test is about that")
def test_what_mlx_writes_does_not_reach_an_array_whose_host_view_it_copied(mx, live_buffers):
    array = md.full(8192, 2.0)
    mx.eval(mx.exp(mx.from_dlpack(array.host)))
    assert array.tolist() == [2.0] * 8192
    with pytest.raises(ValueError, match="without a copy"):
        mx.from_dlpack(array.host, copy=False)


@pytest.mark.needs_mlx_metal
def test_mlx_does_not_write_into_an_array_while_its_own_is_kept_or_is_a_copy(mx, live_buffers, subtests):
    array = md.full(8192, 2.0)
    kept = mx.from_dlpack(array, copy=False)
    mx.eval(mx.exp(kept))
    mx.eval(mx.exp(mx.from_dlpack(array, copy=True)))
    assert array.tolist() == [2.0] * 8192
    for name, make_view in VIEWS.items():
        with subtests.test(name):
            view = make_view(numbered())
            imported = mx.from_dlpack(view, copy=False)
            assert imported.tolist() == view.tolist()
            view[...] = 9
            assert bool(mx.all(imported == 9).item())


def test_mlx_does_not_write_into_what_it_exported_to_us(mx, live_buffers):
    source = mx.full((8192,), 2.0)
    array = md.from_dlpack(source)
    result = mx.exp(source)
    del source
    mx.eval(result)
    assert array.tolist() == [2.0] * 8192
    assert not md.shares_memory(array, result)
