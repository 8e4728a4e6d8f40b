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
        from metal_dlpack import pickling

        sizeof.register(md.Array, bytes_of)
        sizeof.register(md.HostView, lambda host: bytes_of(host.array))
        # A worker whose process is too large spills one object after the other until it is not, and collects garbage
        # now and then.  What the pool keeps would look as if nothing had been gained, and the rest would go as well.
        pickling.before_pickling = md.empty_cache
        gc.callbacks.append(lambda phase, info: md.empty_cache() if is_full(phase, info) else None)

    sizeof.register_lazy("metal_dlpack", register_types)


def bytes_of(array: Any) -> int:
    """Count the bytes of all items, a view's too, as Dask counts NumPy's: an axis of stride 0 has one."""
    return int(array[tuple(slice(1 if stride == 0 else None) for stride in array.strides)].nbytes)


def is_full(phase: str, info: dict[str, int]) -> bool:
    """The end of a full collection."""
    return phase == "stop" and info["generation"] == 2
