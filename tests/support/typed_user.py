"""A user's code with every public name, as mypy --strict and pyright see it: `make lint`.

tests/house/test_types.py runs it, and says which name of the module or of a type is missing here.  A type's names are
used on a parameter of that type.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
import tempfile
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Literal, assert_type

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

import metal_dlpack as md
import softmetal
from metal_dlpack.timelines.records import Wait, Work
from softmetal.counting import KernelCount

Storage = Literal["shared", "managed", "private"]


def use_dtypes(t: md.dtype) -> None:
    assert_type((t.kind, t.type, t.str, t.char), tuple[str, type[np.generic], str, str])
    assert_type((t.num, t.byteorder, t.isnative, t.hasobject), tuple[int, str, bool, bool])
    assert_type((t.names, t.fields, t.subdtype), tuple[None, None, None])
    print(t.descr, t.newbyteorder(">"))
    assert_type(md.dtype("float32"), md.dtype)
    assert_type(t.name, str)
    assert_type((t.code, t.bits, t.lanes, t.itemsize, t.alignment), tuple[int, int, int, int, int])
    assert_type(t.numpy, np.dtype[Any])
    assert_type((t == md.float32, t == "float32", t == np.float32), tuple[bool, bool, bool])
    assert_type(np.dtype(t), np.dtype[Any])
    assert_type(t.dtype, np.dtype[Any])
    for kind in (np.dtype("f4"), np.float32, ml_dtypes.bfloat16, torch.float16, float, bool, "int4", md.int8):
        md.zeros(3, kind)
    every = [
        md.bool, md.int1, md.int2, md.int4, md.int8, md.int16, md.int32, md.int64,
        md.uint1, md.uint2, md.uint4, md.uint8, md.uint16, md.uint32, md.uint64,
        md.float16, md.float32, md.float64, md.bfloat16, md.complex32, md.complex64, md.complex128,
        md.float8_e3m4, md.float8_e4m3, md.float8_e4m3b11fnuz, md.float8_e4m3fn, md.float8_e4m3fnuz,
        md.float8_e5m2, md.float8_e5m2fnuz, md.float8_e8m0fnu, md.float6_e2m3fn, md.float6_e3m2fn, md.float4_e2m1fn,
    ]  # fmt: skip
    assert_type(every, list[md.dtype])


def use_layouts(layout: md.StridedLayout) -> None:
    assert_type(md.StridedLayout((2, 3), None, 4), md.StridedLayout)
    assert_type((layout.ndim, layout.itemsize, layout.volume), tuple[int, int, int])
    assert_type((layout.shape, layout.stride_order), tuple[tuple[int, ...], tuple[int, ...]])
    assert_type(layout.strides, tuple[int, ...] | None)
    assert_type(layout.strides_in_bytes, tuple[int, ...] | None)
    assert_type((layout.slice_offset, layout.slice_offset_in_bytes), tuple[int, int])
    assert_type((layout.min_offset, layout.max_offset), tuple[int, int])
    assert_type(layout.offset_bounds, tuple[int, int])
    assert_type((layout.is_contiguous_c, layout.is_contiguous_f, layout.is_contiguous_any), tuple[bool, bool, bool])
    assert_type((layout.is_dense, layout.is_unique), tuple[bool, bool])
    assert_type(layout.required_size_in_bytes() + layout.flattened_axis_mask(), int)
    assert_type(layout.max_compatible_itemsize(), int)
    moved = [layout.to_dense(), layout.reshaped((3, 2)), layout.permuted((1, 0)), layout.broadcast_to((2, 2, 3))]
    moved += [layout.unsqueezed(0), layout.squeezed(), layout.flattened(0, 1), layout.repacked(2)]
    moved += [layout.sliced((slice(1, None), ...)), layout[0], layout.dense((2, 3), 4, "F"), layout.dense_like(layout)]
    assert_type(moved, list[md.StridedLayout])


def use_devices(device: md.Device) -> None:
    assert_type(md.devices(), tuple[md.Device, ...])
    assert_type(md.default_device(), md.Device)
    assert_type((device.name, device.index, device.registry_id, device.handle), tuple[str, int, int, int])
    assert_type((device.has_unified_memory, device.is_software), tuple[bool, bool])
    sizes = (device.max_buffer_length, device.recommended_max_working_set_size, device.current_allocated_size)
    assert_type(sizes, tuple[int, int, int])
    assert_type(device.default_stream, md.Stream)
    device.synchronize()


def use_streams(stream: md.Stream, event: md.Event) -> None:
    assert_type(md.Stream(label="mine"), md.Stream)
    assert_type(md.current_stream(), md.Stream)
    assert_type(md.Stream.from_handle(stream.handle), md.Stream)
    assert_type((stream.device, stream.label), tuple[md.Device, str | None])
    assert_type(stream.record(), md.Event)
    stream.wait(event)
    stream.wait(md.zeros(3))
    stream.synchronize()
    assert_type(stream.query(), bool)
    with stream as entered:
        assert_type(entered, md.Stream)
    assert_type(md.Event.from_handle(event.handle, event.value), md.Event)
    assert_type((event.query(), event.wait(timeout=1.0)), tuple[bool, bool])
    assert_type(md.Event(), md.Event)
    asyncio.run(use_an_event_loop(stream))


async def use_an_event_loop(stream: md.Stream) -> None:
    async with stream as entered:
        assert_type(entered, md.Stream)
    await stream.record()


def use_buffers(buffer: md.Buffer) -> None:
    assert_type(md.Buffer(64, storage="shared", label="mine"), md.Buffer)
    assert_type(md.Buffer.from_handle(buffer.handle, owner=buffer), md.Buffer)
    assert_type(md.Buffer.from_host(bytearray(64)), md.Buffer)
    assert_type(buffer.array((4, 4)), md.Array)
    buffer.array(md.StridedLayout.dense(4, 2), md.float16, byte_offset=2)
    buffer.fill(0)
    buffer.copy_from(bytes(64))
    buffer.copy_to(bytearray(64))
    assert_type((buffer.size, buffer.offset, buffer.handle, buffer.gpu_address), tuple[int, int, int, int])
    assert_type(buffer.address, int | None)
    assert_type(buffer.storage, Storage)
    assert_type((buffer.device, buffer.label), tuple[md.Device, str | None])
    assert_type((buffer.is_host_accessible, buffer.is_closed), tuple[bool, bool])
    print(buffer.owner)
    if not buffer.device.is_software:
        assert_type(md.Buffer.from_iosurface(1), md.Buffer)
    buffer.close()


def use_arrays(a: md.Array) -> None:
    assert_type((a.shape, a.strides), tuple[tuple[int, ...], tuple[int, ...]])
    assert_type((a.ndim, a.size, a.nbytes, a.itemsize, a.byte_offset), tuple[int, int, int, int, int])
    assert_type((a.dtype, a.device, a.buffer, a.layout), tuple[md.dtype, md.Device, md.Buffer, md.StridedLayout])
    assert_type(a.storage, Storage)
    assert_type((a.padded, a.readonly), tuple[bool, bool])
    assert_type((a.flags.c_contiguous, a.flags["WRITEABLE"]), tuple[bool, bool])
    assert_type((a.tobytes(), a.data, a.ctypes), tuple[bytes, memoryview, Any])
    assert_type((a.T, a.mT, a[1:, ..., None], a[0]), tuple[md.Array, md.Array, md.Array, md.Array])
    views = (
        a.reshape(3, 2),
        a.reshape((3, 2)),
        a.permute(1, 0),
        a.squeeze(),
        a.expand_dims(0),
        a.flatten(),
        a.flatten("F"),
        a.ravel(order="C"),
        a.transpose(1, 0),
        a.swapaxes(0, 1),
        a.moveaxis((0,), 1),
        a.view("uint32"),
        a.view().view(3, 2).view((2, 3)),
    )
    assert_type(views[0], md.Array)
    assert_type((a.broadcast_to((2, 2, 3)), a.as_readonly()), tuple[md.Array, md.Array])
    assert_type(a.copy("F", storage="private"), md.Array)
    assert_type(a.astype(np.float16), md.Array)
    a.copy_from(a.copy(), stream=md.current_stream())
    a.copy_from(np.zeros((2, 3), "f4"))
    a.copy_to(a.copy())
    a.fill(1.5)
    a[0] = 3
    a[1] = [1.0, 2.0, 3.0]
    a[...] = np.ones((2, 3))
    print(a.item(0, 1), a.tolist(), float(a[0, 0]), len(a), [row.shape for row in a])
    assert_type(a.host, md.HostView)
    assert_type(a.to_device("cpu"), md.HostView)
    assert_type(a.to_device(a.device), md.Array)
    assert_type(a.to(torch.Tensor), torch.Tensor)
    a.to(torch)
    assert_type(a.to_numpy(), NDArray[Any])
    assert_type(memoryview(a).nbytes, int)


def use_host_views(host: md.HostView) -> None:
    assert_type(host.array, md.Array)
    np.asarray(host)
    torch.from_dlpack(host)


def exchange(a: md.Array) -> None:
    np.asarray(a)
    np.from_dlpack(a, device="cpu")
    torch.from_dlpack(a)
    io.BytesIO().write(a)
    assert_type(a.__dlpack_device__(), tuple[Literal[8], Literal[0]])
    assert_type(md.from_dlpack(a.__dlpack__()), md.Array)
    assert_type(md.from_dlpack(np.zeros(3), copy=True), md.Array)
    assert_type(md.from_dlpack(torch.zeros(3), stream=-1), md.Array)
    assert_type(md.asarray(1), md.Array)
    for x in (np.zeros(3), torch.zeros(3), b"abc", memoryview(b"abc"), a, a.host, (ctypes.c_float * 3)()):
        assert_type(md.asarray(x), md.Array)
    for numbers in ([1, 2], [[1.0], [2.0]], [[1j, 2]], [True]):
        md.asarray(numbers, dtype="complex64")


def make() -> None:
    made = (md.empty(3), md.zeros((2, 3), md.int8), md.full((), 1.5, storage="private"))
    assert_type(made, tuple[md.Array, md.Array, md.Array])
    alike = (md.empty_like(made[0], dtype="int8"), md.zeros_like(np.zeros(3)), md.ones_like(torch.zeros(3)))
    assert_type(alike, tuple[md.Array, md.Array, md.Array])
    assert_type((md.ones((2, 3)), md.full_like(made[0], 2)), tuple[md.Array, md.Array])
    memory = SharedMemory(create=True, size=64)
    md.asarray(memory, copy=False)
    memory.unlink()


def ask(a: md.Array) -> None:
    why = md.explain(a, consumer="torch")
    assert_type(why.outcome, str)
    assert_type(why.reasons + why.fixes, tuple[str, ...])
    print(bool(why))
    md.show(a, other=a.T)
    with md.timeline(capacity=100) as seen:
        a.copy()
    with md.capture("one.gputrace", device="metal:0"):
        a.copy()
    with md.keep_resident(a, [a.buffer], {"a": a}) as kept:
        assert_type((kept.nbytes, kept.is_supported), tuple[int, bool])
    assert_type(seen.events, list[Work | Wait])
    assert_type((seen.work, seen.waits), tuple[list[Work], list[Wait]])
    assert_type((seen.lost, seen.seconds), tuple[int, float])
    assert_type([advice.text for advice in seen.summary().advice], list[str])
    with tempfile.TemporaryDirectory() as folder:
        seen.save(Path(folder, "trace.json"))
    assert_type(md.shares_memory(a, np.asarray(a)), bool)
    assert_type(md.last_refusal(), Exception | None)
    assert_type(md.get_storage_mode(), Storage)


def manage() -> None:
    stats = md.memory_stats()
    assert_type(stats["live"] + stats["private"]["cached"] + md.empty_cache(), int)
    assert_type(stats["limit"], int | None)
    assert_type(md.set_memory_limit(None), int | None)
    assert_type(md.get_num_threads(), int)
    md.set_num_threads(2)
    md.set_num_threads(None)
    md.share_mps_tensors()
    with md.numpy_memory():
        md.from_dlpack(np.zeros(1 << 16))
    assert_type((md.get_include(), md.get_cmake_dir(), md.get_pkgconfig_dir()), tuple[str, str, str])


SOURCE = """
#include <metal_stdlib>
constant uint STEP [[function_constant(0)]];
kernel void scale(device float *x, constant float &by, uint i [[thread_position_in_grid]]) { x[i * STEP] *= by; }
"""


def use_textures(texture: md.Texture, sampler: md.Sampler) -> None:
    texture = md.texture(md.zeros((4, 8), "uint8"), "r8Unorm", kind="2d", copy=True, stream=md.Stream(), label="image")
    assert_type((texture.format, texture.array, texture.label), tuple[str, md.Array, str | None])
    assert_type((texture.shape, texture.dtype, texture.is_linear), tuple[tuple[int, ...], md.dtype, bool])
    assert_type((texture.width, texture.height, texture.depth, texture.nbytes), tuple[int, int, int, int])
    assert_type((texture.handle, texture.gpu_resource_id, texture.readonly), tuple[int, int, bool])
    assert_type(texture.device, md.Device)
    assert_type((texture.arrays, texture.mip_levels), tuple[tuple[md.Array, ...], int])
    md.texture(md.texture([texture.array], mip_levels="all", copy=True).arrays, copy=True)
    sampler = md.sampler("linear", address=("repeat", "clamp_to_edge"), lod=(0, None), compare="less", device="metal")
    assert_type((sampler.handle, sampler.gpu_resource_id, sampler.normalized), tuple[int, int, bool])
    print(texture.kind, sampler.min_filter, sampler.mag_filter, sampler.mip_filter, sampler.address, sampler.device)


def use_kernels(library: md.Library, kernel: md.Kernel, argument: md.Argument) -> None:
    x = md.ones(8)
    library = md.Library(
        SOURCE, name="scale.metal", defines={"N": 1, "F": 0.5, "S": "x"}, include=Path("."), math="safe", language="3.1"
    )
    assert_type((library.name, library.device, library.kernels), tuple[str, md.Device, tuple[str, ...]])
    kernel = library.kernel("scale", {"STEP": 2})
    assert_type(md.kernel(SOURCE, "scale", constants={0: 2}), md.Kernel)
    assert_type(kernel.arguments, tuple[md.Argument, ...])
    assert_type((kernel.name, kernel.device), tuple[str, md.Device])
    assert_type(
        (kernel.thread_execution_width, kernel.max_total_threads, kernel.threadgroup_memory), tuple[int, int, int]
    )
    argument = kernel.arguments[0]
    assert_type((argument.name, argument.index, argument.nbytes), tuple[str, int, int])
    assert_type(argument.dtype, md.dtype | None)
    assert_type(argument.kind, Literal["buffer", "threadgroup", "texture", "sampler"])
    assert_type(argument.access, Literal["read", "write", "read_write"])
    kernel(x, by=2, n=4, stream=md.Stream())
    assert_type(kernel.time(x, 2, groups=2, group=(2,)), float)
    assert_type(kernel.count(x, 2, n=4), KernelCount)
    try:
        md.kernel(SOURCE.replace("by;", "bye;"), "scale", constants={"STEP": 1})
    except md.CompileError as error:
        syntax: SyntaxError = error
        print(syntax.lineno, [(one.file, one.line, one.column, one.severity, one.text) for one in error.diagnostics])
    try:
        library["nothing"]
    except KeyError as missing:
        print(missing)


class Tensor:
    """A tensor of a framework that nobody knows."""

    def synchronize(self) -> None:
        print("ready")


def synchronise() -> None:
    md.register_sync(Tensor, lambda tensor: tensor.synchronize())
    md.register_sync(Tensor, None)


def read_files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.npy")
        np.save(path, np.zeros(3))
        with md.open(path, mode="c") as file:
            assert_type(file["arr_0"], md.Array)
            names: Mapping[str, md.Array] = file
            print(list(names), file.info("arr_0").shape)
        assert_type(md.load(path, dtype=np.float16, storage="private"), dict[str, md.Array])
        md.load(path, progress=lambda done, total: print(done, total), only=["arr_*"])


def fail() -> None:
    try:
        md.from_dlpack(np.zeros(3), copy=False)
    except md.CopyRequiredError as error:
        reason: ValueError = error
        print(reason)
    except md.MetalError as error:
        failure: RuntimeError = error
        print(failure)


def control_the_software() -> None:
    if softmetal.is_present():
        softmetal.configure(latency_us=None)
        assert_type((softmetal.live_objects(), softmetal.reports()), tuple[int, int])
        assert_type((softmetal.last_report(), softmetal.wait_idle()), tuple[str, bool])
        assert_type(softmetal.torch_mps(float64=False), bool)
        with softmetal.mlx_kernels():
            pass
    missing: type[RuntimeError] = softmetal.SoftwareMetalMissing
    print(missing)


def mistakes(a: md.Array, layout: md.StridedLayout) -> None:
    """Never called: a checker finds each of them."""
    md.zeros(3, 4)  # type: ignore[arg-type]
    layout.shape = (3,)  # type: ignore[misc]
    md.Buffer(8, storage="fast")  # type: ignore[arg-type]
    a["first"]  # type: ignore[index]
    md.from_dlpack([1, 2])  # type: ignore[arg-type]
    md.asarray(object())  # type: ignore[arg-type]
    md.zeros("3")  # type: ignore[arg-type]
    print(a + 1)  # type: ignore[operator]
    print(a.sum())  # type: ignore[attr-defined]
    md.explain(a, consumer="tensorflow")  # type: ignore[arg-type]
    md.register_sync(Tensor, lambda tensor: tensor.wait())  # type: ignore[attr-defined]
