"""What Dask asks of metal_dlpack: how much memory an Array takes, and memory back where there is little.

Dask imports this module wherever it runs.  So it stands outside of the package, which Dask's first Array imports.  By
these numbers Dask decides what to spill to disk, and where a task runs.

Source: Dask, entry points of the group dask.sizeof; distributed, WorkerMemoryManager.
"""

from __future__ import annotations

import gc
from typing import Any


def register(sizeof: Any) -> None:
    """Tell `dask.sizeof.sizeof` of Arrays and their host views."""

    def register_types() -> None:
        import metal_dlpack as md

        sizeof.register(md.Array, bytes_of)
        sizeof.register(md.HostView, lambda host: bytes_of(host.array))
        gc.callbacks.append(lambda phase, info: empty_cache(md, phase, info))

    sizeof.register_lazy("metal_dlpack", register_types)


def bytes_of(array: Any) -> int:
    """Of all items, a view's too, as Dask counts NumPy's: an axis of stride 0 has one."""
    return int(array[tuple(slice(1 if stride == 0 else None) for stride in array.strides)].nbytes)


def empty_cache(md: Any, phase: str, info: dict[str, int]) -> None:
    """A worker whose process is too large spills, and collects garbage to see whether that was enough.

    What the pool keeps is garbage then: the worker would spill all that it has, and pause for good.
    """
    if phase == "stop" and info["generation"] == 2:
        md.empty_cache()
