"""What MLX says of its GPU while kernels are switched on: what packages ask before they build a kernel.

All operations of MLX's run on its CPU: mx.gpu is a device that MLX takes for its CPU's, and that is equal to no other.
"""

from __future__ import annotations

import os
import threading

from metal_dlpack import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def is_cpu(mx: Any, stream: Any) -> bool:
    """Does `stream=` name the CPU?  Streams do not: here all of them are the CPU's."""
    if isinstance(stream, mx.DeviceType):
        return bool(stream is mx.DeviceType.cpu)
    return isinstance(stream, mx.Device) and bool(stream.type is mx.DeviceType.cpu)


def answers(mx: Any) -> Iterator[tuple[object, str, object]]:
    """(module, name, what stands there while kernels are switched on)."""
    gpu = _gpu(mx)
    usual_default, usual_set, usual_stream = mx.default_device, mx.set_default_device, mx.stream
    usual_info, usual_count = mx.device_info, mx.device_count
    blocks = _Blocks()
    is_cpu_else = False  # outside of the blocks of mx.stream, in all threads

    def default_device() -> Any:
        return usual_default() if (is_cpu_else if blocks.is_cpu is None else blocks.is_cpu) else gpu

    def set_default_device(device: Any) -> None:
        nonlocal is_cpu_else
        usual_set(device)
        is_cpu_else = is_cpu(mx, device)

    class Block:
        """mx.stream: default_device() is that of the block."""

        def __init__(self, s: Any) -> None:
            self._usual = usual_stream(s)
            self._is_cpu = is_cpu(mx, s) if isinstance(s, (mx.Device, mx.DeviceType)) else None

        def __enter__(self) -> Any:
            blocks.enter(self._is_cpu)
            return self._usual.__enter__()

        def __exit__(self, *error: Any) -> Any:
            blocks.leave()
            return self._usual.__exit__(*error)

    def device_info(d: Any = None) -> dict[str, str | int]:
        device = default_device() if d is None else d
        if is_cpu(mx, device):
            return dict(usual_info(mx.cpu))
        return _facts() if getattr(device, "index", 0) == 0 else {}

    yield mx, "gpu", gpu
    yield mx, "default_device", default_device
    yield mx, "set_default_device", set_default_device
    yield mx, "stream", Block
    yield mx, "device_info", device_info
    yield mx, "device_count", lambda device_type: 1 if device_type == gpu else usual_count(device_type)
    yield mx.metal, "is_available", lambda: True
    yield mx.metal, "device_info", _facts


def _gpu(mx: Any) -> Any:
    class Gpu(mx.Device):  # type: ignore[misc]
        """MLX's C++ sees the CPU's device, Python the GPU."""

        type = mx.DeviceType.gpu

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Gpu) or (isinstance(other, mx.DeviceType) and other is mx.DeviceType.gpu)

        def __ne__(self, other: object) -> bool:
            return not self == other

        def __hash__(self) -> int:
            return hash(mx.DeviceType.gpu)

        def __repr__(self) -> str:
            return "Device(gpu, 0)"

    return Gpu(mx.cpu, 0)


class _Blocks(threading.local):
    """The blocks of mx.stream that a thread is in."""

    def __init__(self) -> None:
        self._outer: list[bool | None] = []
        self.is_cpu: bool | None = None  # of the innermost block that says so; None: of none

    def enter(self, is_cpu: bool | None) -> None:
        self._outer.append(self.is_cpu)
        self.is_cpu = self.is_cpu if is_cpu is None else is_cpu

    def leave(self) -> None:
        self.is_cpu = self._outer.pop()


def _facts() -> dict[str, str | int]:
    """mx.device_info() of a Mac: an M1's architecture, this machine's memory."""
    device = _core.default_device()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "device_name": device.name,
        "architecture": "applegpu_g13g",
        "max_buffer_length": device.max_buffer_length,
        "max_recommended_working_set_size": memory * 3 // 4,
        "memory_size": memory,
        "resource_limit": 499000,
    }
