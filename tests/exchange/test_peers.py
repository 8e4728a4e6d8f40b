"""Sharing with the real frameworks: the same buffer, the same offsets and strides, every write seen by all.

A test that computes on a GPU runs where there is one; all others run everywhere.  On Linux PyTorch takes and gives
MPS tensors but runs no operation on them: what they hold is read through md.from_dlpack(tensor).
"""

import sys

import pytest

import metal_dlpack as md

np = pytest.importorskip("numpy")

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "complex64"]

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
every_view = pytest.mark.parametrize("make_view", VIEWS.values(), ids=VIEWS.keys())
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def numbered():
    """0 to 23 in a buffer of its own, so that its place is the buffer's start."""
    array = md.empty((4, 6), "float32")
    array[...] = np.arange(24, dtype="float32").reshape(4, 6)
    return array


def is_same_place(view, tensor):
    """A torch tensor over the same MTLBuffer, from the same item, with the same steps."""
    assert tensor.untyped_storage().data_ptr() == view.buffer.handle
    assert tensor.storage_offset() * view.itemsize == view.byte_offset
    assert tuple(tensor.shape) == view.shape
    steps = [(a, b) for a, b, extent in zip(tensor.stride(), view.strides, view.shape, strict=True) if extent > 1]
    assert all(a == b for a, b in steps)
    return True


# ---- NumPy ----


def test_numpy_sees_each_view_at_its_place(live_buffers, subtests):
    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            for other in (np.from_dlpack(view, device="cpu"), np.asarray(view), np.from_dlpack(view.host)):
                assert other.__array_interface__["data"][0] == array.buffer.address + view.byte_offset
                assert other.tolist() == view.tolist()
                view[...] = 7
                assert (other == 7).all()


def test_numpy_and_the_array_see_each_others_writes(live_buffers):
    array = numbered()
    for other in (np.from_dlpack(array, device="cpu", copy=False), np.asarray(array)):
        other[1, 1] = 99
        assert array[1, 1].item() == 99
        array[1, 1] = 98
        assert other[1, 1] == 98


@pytest.mark.rule("import-copy-false")
def test_numpy_memory_becomes_an_array_without_a_copy(live_buffers, subtests):
    for dtype in DTYPES:
        with subtests.test(dtype=dtype):
            source = np.zeros((3, 5), dtype)
            array = md.from_dlpack(source, copy=False)
            assert array.buffer.address + array.byte_offset == source.ctypes.data
            assert array.dtype.name == dtype
            source[1, 2] = 1
            assert array[1, 2].item() == source[1, 2]
            array[2, 4] = 1
            assert source[2, 4] == 1


@pytest.mark.rule("import-negative-strides")
def test_numpy_views_arrive_with_their_strides(live_buffers):
    source = np.arange(24, dtype="int32").reshape(4, 6)
    for view in (source[1:], source[:, ::2], source.T, source[2, 3:], source[::-1], source[:, ::-2]):
        array = md.from_dlpack(view, copy=False)
        assert array.shape == view.shape
        assert [step * 4 for step in array.strides] == list(view.strides)
        assert array.tolist() == view.tolist()


@pytest.mark.rule("import-readonly")
def test_read_only_numpy_memory_stays_read_only(live_buffers):
    source = np.arange(6.0)
    source.flags.writeable = False
    array = md.from_dlpack(source)
    assert array.readonly
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


# ---- PyTorch on the CPU ----


@pytest.mark.needs_torch
@pytest.mark.rule("export-cpu-data")
def test_torch_on_the_cpu_sees_each_view_at_its_place(live_buffers, subtests):
    import torch

    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            tensor = torch.from_dlpack(view.host)
            assert tensor.data_ptr() == array.buffer.address + view.byte_offset
            assert tensor.tolist() == view.tolist()
            tensor.fill_(5)
            assert set(np.asarray(view).ravel().tolist()) == {5.0}
            view[...] = 6
            assert bool((tensor == 6).all())


@pytest.mark.needs_torch
def test_a_torch_tensor_on_the_cpu_becomes_an_array(live_buffers, subtests):
    import torch

    for dtype in DTYPES:
        with subtests.test(dtype=dtype):
            tensor = torch.zeros((4, 6), dtype=getattr(torch, dtype))
            part = tensor[1:, ::2]
            array = md.from_dlpack(part, copy=False)
            assert array.buffer.address + array.byte_offset == part.data_ptr()
            assert (array.shape, array.strides) == (tuple(part.shape), part.stride())
            array[0, 1] = 1
            assert tensor[1, 2].item() == 1
            tensor[3, 4] = 1
            assert array[2, 2].item() == 1


@pytest.mark.needs_torch
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
@pytest.mark.rule("export-dtypes")
def test_torch_types_that_numpy_has_not_go_both_ways(name, live_buffers):
    import torch

    array = md.zeros(8, name)
    tensor = torch.from_dlpack(array.host)
    assert tensor.dtype is getattr(torch, name)
    back = md.from_dlpack(tensor, copy=False)
    assert back.dtype.name == name
    array.view("uint8")[3] = 0x38
    assert back.view("uint8")[3].item() == 0x38


# ---- PyTorch on MPS ----


@pytest.mark.needs_torch
@pytest.mark.rule("export-metal-data")
def test_torch_mps_sees_each_view_at_its_place(live_buffers, subtests):
    import torch

    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            tensor = torch.from_dlpack(view)
            assert tensor.device == torch.device("mps:0")
            assert is_same_place(view, tensor)
            back = md.from_dlpack(tensor)
            assert (back.buffer.handle, back.byte_offset) == (array.buffer.handle, view.byte_offset)
            assert back.tolist() == view.tolist()
            back[...] = 3
            assert set(np.asarray(view).ravel().tolist()) == {3.0}
            view[...] = 4
            assert set(np.asarray(back).ravel().tolist()) == {4.0}


@pytest.mark.needs_torch
@pytest.mark.rule("export-dtypes")
def test_every_common_type_goes_to_torch_mps_and_back(live_buffers, subtests):
    import torch

    for dtype in DTYPES:
        with subtests.test(dtype=dtype):
            array = md.zeros((3, 2), dtype)
            tensor = torch.from_dlpack(array)
            assert tensor.dtype is getattr(torch, dtype)
            assert md.from_dlpack(tensor).dtype.name == dtype


@pytest.mark.needs_torch
@pytest.mark.rule("export-private")
def test_private_storage_goes_to_torch_mps(live_buffers):
    import torch

    array = md.full(8, 2.0, storage="private")
    tensor = torch.from_dlpack(array)
    assert is_same_place(array, tensor)
    assert md.from_dlpack(tensor).tolist() == [2.0] * 8


@pytest.mark.needs_torch
@pytest.mark.rule("export-negative")
def test_a_reversed_array_reaches_torch_as_a_copy(live_buffers):
    """Torch ends the process on a negative stride.  PEER torch 2.13, pytorch#188023."""
    import torch

    array = numbered()
    tensor = torch.from_dlpack(array[::-1])
    assert tensor.untyped_storage().data_ptr() != array.buffer.handle
    assert md.from_dlpack(tensor).tolist() == array[::-1].tolist()
    assert torch.from_dlpack(array[::-1].host).tolist() == array[::-1].tolist()


@pytest.mark.needs_torch
def test_torch_says_no_copy_as_it_does_for_its_own(live_buffers):
    import torch

    array = numbered()
    assert torch.from_dlpack(array, copy=False).untyped_storage().data_ptr() == array.buffer.handle
    copied = torch.from_dlpack(array, copy=True)
    assert copied.untyped_storage().data_ptr() != array.buffer.handle
    with pytest.raises(BufferError):
        torch.from_dlpack(array[::-1], copy=False)


@pytest.mark.needs_mps
def test_the_gpu_of_torch_and_the_array_see_each_others_writes(live_buffers, subtests):
    import torch

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


@pytest.mark.needs_mps
def test_a_tensor_that_torch_made_on_mps_becomes_an_array(live_buffers):
    import torch

    tensor = torch.arange(24, dtype=torch.float32, device="mps").reshape(4, 6)
    torch.mps.synchronize()
    for part in (tensor, tensor[1:, ::2], tensor.T):
        array = md.from_dlpack(part, copy=False)
        assert is_same_place(array, part)
        assert array.tolist() == part.cpu().tolist()


# ---- tvm-ffi ----


@pytest.mark.needs_tvm
@pytest.mark.rule("export-metal-data")
def test_tvm_ffi_carries_each_view_on_metal(live_buffers, subtests):
    import tvm_ffi

    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            tensor = tvm_ffi.from_dlpack(view)
            assert str(tensor.device) == "metal:0"
            assert tuple(tensor.shape) == view.shape
            back = md.from_dlpack(tensor)
            assert (back.buffer.handle, back.byte_offset) == (array.buffer.handle, view.byte_offset)
            back[...] = 2
            assert set(np.asarray(view).ravel().tolist()) == {2.0}


@pytest.mark.needs_tvm
@pytest.mark.rule("export-alignment")
def test_what_tvm_asks_for_is_what_fresh_arrays_have(live_buffers):
    """Its runtime takes compact tensors whose offset is a multiple of 64."""
    import tvm_ffi

    array = md.zeros((4, 16), "float32")
    tvm_ffi.from_dlpack(array, require_alignment=64, require_contiguous=True)
    tvm_ffi.from_dlpack(array[1:], require_alignment=64, require_contiguous=True)
    tvm_ffi.from_dlpack(array.host, require_alignment=64, require_contiguous=True)


@pytest.mark.needs_tvm
@pytest.mark.rule("export-cpu-data")
def test_tvm_ffi_on_the_cpu_has_the_address(live_buffers):
    import tvm_ffi

    array = numbered()
    tensor = tvm_ffi.from_dlpack(array[1:].host)
    assert tensor.data_ptr() == array.buffer.address + 24
    assert np.from_dlpack(tensor).tolist() == array[1:].tolist()
    assert md.from_dlpack(tensor, copy=False).tolist() == array[1:].tolist()


# ---- JAX ----


@pytest.mark.needs_jax
@pytest.mark.rule("export-host-view")
def test_jax_shares_through_the_host_view(live_buffers):
    import jax
    import jax.numpy as jnp

    array = numbered()
    imported = jnp.from_dlpack(array.host)
    assert imported.unsafe_buffer_pointer() == array.buffer.address
    array[2, 3] = 77
    assert float(jax.jit(lambda x: x[2, 3] * 1)(imported)) == 77


@pytest.mark.needs_jax
def test_jax_arrays_become_arrays(live_buffers):
    import jax.numpy as jnp

    source = jnp.arange(24, dtype="int32").reshape(4, 6)
    array = md.from_dlpack(source, copy=False)
    assert array.buffer.address + array.byte_offset == source.unsafe_buffer_pointer()
    assert array.tolist() == source.tolist()


@pytest.mark.needs_jax
def test_jax_says_no_to_metal_in_its_own_words(live_buffers):
    import jax.numpy as jnp

    array = numbered()
    with pytest.raises((TypeError, RuntimeError, ValueError)):
        jnp.from_dlpack(array)


# ---- MLX ----


@pytest.mark.needs_mlx
@pytest.mark.rule("import-copy-false")
def test_mlx_arrays_become_arrays_without_a_copy(live_buffers, subtests):
    import mlx.core as mx

    for dtype in ["int32", "float32", "float16", "bfloat16", "complex64", "uint8"]:
        with subtests.test(dtype=dtype):
            source = mx.zeros((4, 6), getattr(mx, dtype))
            mx.eval(source)
            array = md.from_dlpack(source, copy=False)
            assert (array.shape, array.dtype.name) == ((4, 6), dtype)
            array[1, 2] = 1
            mx.eval(source)
            assert source[1, 2].item() == 1


@pytest.mark.needs_mlx
@pytest.mark.rule("import-negative-strides")
def test_mlx_views_arrive_with_their_strides(live_buffers):
    import mlx.core as mx

    source = mx.arange(24).reshape(4, 6)
    mx.eval(source)
    for view in (source[1:], source[:, ::2], source.T, source[::-1]):
        mx.eval(view)
        assert md.from_dlpack(view).tolist() == view.tolist()


@pytest.mark.needs_mlx
@pytest.mark.rule("export-host-view")
def test_mlx_reads_the_host_view(live_buffers):
    import mlx.core as mx

    array = numbered()
    for view in (array, array[1:], array[:, 2:4], array.T, array[2]):
        assert mx.from_dlpack(view.host).tolist() == view.tolist()


def first_address(x):
    """Where an mx.array lies; nothing of MLX's is kept."""
    import mlx.core as mx

    mx.eval(x)
    return np.array(x, copy=False).__array_interface__["data"][0]


def rebind(x):
    x += 1
    return x


def assign(x):
    x[0] = 1
    return x


@pytest.mark.needs_mlx
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("operation", ["exp", "softmax", "rebind", "assign"])
def test_mlx_writes_a_result_where_only_the_operation_refers_to_an_array(operation, is_kept):
    """What explain and the recipe for MLX warn of.  MLX's own counts decide, also of memory that it imported."""
    import mlx.core as mx

    run = {"rebind": rebind, "assign": assign}.get(operation) or getattr(mx, operation)
    imported = mx.from_dlpack(md.full(8192, 2.0).host)
    kept = imported[:] if is_kept else None
    mx.eval(imported, kept)
    there = first_address(imported)
    result = run(imported)
    del imported
    assert (first_address(result) == there) == (not is_kept)


@pytest.mark.needs_mlx
@pytest.mark.skipif(sys.platform == "darwin", reason="MLX shares there; the next test is about that")
def test_what_mlx_writes_does_not_reach_an_array_whose_host_view_it_copied(live_buffers):
    import mlx.core as mx

    array = md.full(8192, 2.0)
    mx.eval(mx.exp(mx.from_dlpack(array.host)))
    assert array.tolist() == [2.0] * 8192
    with pytest.raises(ValueError, match="without a copy"):
        mx.from_dlpack(array.host, copy=False)


@pytest.mark.needs_mlx_metal
def test_mlx_does_not_write_into_an_array_while_its_own_is_kept_or_is_a_copy(live_buffers):
    import mlx.core as mx

    array = md.full(8192, 2.0)
    kept = mx.from_dlpack(array, copy=False)
    mx.eval(mx.exp(kept))
    mx.eval(mx.exp(mx.from_dlpack(array, copy=True)))
    assert array.tolist() == [2.0] * 8192


@pytest.mark.needs_mlx
def test_mlx_does_not_write_into_what_it_exported_to_us(live_buffers):
    import mlx.core as mx

    source = mx.full((8192,), 2.0)
    array = md.from_dlpack(source)
    result = mx.exp(source)
    del source
    mx.eval(result)
    assert array.tolist() == [2.0] * 8192
    assert not md.shares_memory(array, result)


@pytest.mark.needs_mlx_metal
def test_mlx_on_metal_shares_each_view(live_buffers, subtests):
    import mlx.core as mx

    for name, make_view in VIEWS.items():
        with subtests.test(name):
            array = numbered()
            view = make_view(array)
            imported = mx.from_dlpack(view, copy=False)
            assert imported.tolist() == view.tolist()
            view[...] = 9
            assert bool(mx.all(imported == 9).item())


# ---- all at once ----


@pytest.mark.needs_torch
@pytest.mark.needs_tvm
@pytest.mark.needs_jax
def test_one_write_is_seen_by_every_framework_at_once(live_buffers):
    import jax
    import jax.numpy as jnp
    import torch
    import tvm_ffi

    source = md.zeros((4, 6))
    mps = torch.from_dlpack(source)
    views = {
        "numpy": np.asarray(source),
        "torch cpu": torch.from_dlpack(source.host),
        "torch mps": md.from_dlpack(mps),
        "tvm": md.from_dlpack(tvm_ffi.from_dlpack(md.from_dlpack(mps))),
    }
    imported = jnp.from_dlpack(source.host)
    for writer, view in views.items():
        value = float(len(writer))
        view[2, 3] = value
        for reader, other in views.items():
            assert float(other[2, 3]) == value, (writer, reader)
        assert float(jax.jit(lambda x: x[2, 3] + 0)(imported)) == value
