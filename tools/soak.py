"""A million exchanges by every route, and what they leave: soak.py [TRIPS].

Each route is warmed up, then gone TRIPS times.  A line says how long one took, by how much the process grew, and how
many MTLBuffers are left.  The end is 1 if a route grew by more than SLACK_BYTES or left a buffer.
"""

import contextlib
import gc
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import metal_dlpack as md
import softmetal
from dlpack_conformance import exchange_table

WARM_UP = 2000
#: Allocators' own bookkeeping: at a million trips, a fraction of a byte each.
SLACK_BYTES = 2 * 2**20

Route = Callable[[], object]


def own_routes() -> Iterator[tuple[str, Route]]:
    array = md.zeros(1024)
    yield "__dlpack__(), dropped", array.__dlpack__
    yield "__dlpack__(max_version=(1, 3)), dropped", lambda: array.__dlpack__(max_version=(1, 3))
    yield "__dlpack__(dl_device=(1, 0)), dropped", lambda: array.__dlpack__(dl_device=(1, 0))
    yield "__dlpack__(copy=True), dropped", lambda: array.__dlpack__(copy=True)
    yield "from_dlpack(Array)", lambda: md.from_dlpack(array)
    yield "from_dlpack(legacy capsule)", lambda: md.from_dlpack(array.__dlpack__())
    yield "from_dlpack(versioned capsule)", lambda: md.from_dlpack(array.__dlpack__(max_version=(1, 3)))
    yield "from_dlpack(HostView)", lambda: md.from_dlpack(array.host)
    yield "a refusal", lambda: refused(array[::-1])


def refused(array: md.Array) -> None:
    with contextlib.suppress(BufferError):
        array.__dlpack__(copy=False)
        raise AssertionError


def table_routes() -> Iterator[tuple[str, Route]]:
    """Array's exchange table, called through C function pointers."""
    table, array = exchange_table.table_of(md.Array), md.zeros(1024)
    yield (
        "exchange table, out and in",
        lambda: exchange_table.object_from(table, exchange_table.tensor_from(table, array)),
    )


def peer_routes() -> Iterator[tuple[str, Route]]:
    array = md.zeros(1024)
    if find_spec("numpy"):
        import numpy as np

        source = np.zeros(1024, np.float32)
        yield "from_dlpack(ndarray)", lambda: md.from_dlpack(source, copy=False)
        yield "np.from_dlpack(Array)", lambda: np.from_dlpack(array, device="cpu")
    if find_spec("torch"):
        import torch

        cpu = torch.zeros(1024)
        with warnings.catch_warnings():  # on Linux torch has no mps, which the first tensor says
            warnings.simplefilter("ignore", RuntimeWarning)
            mps = torch.from_dlpack(array)
        yield "from_dlpack(torch CPU tensor)", lambda: md.from_dlpack(cpu, copy=False)
        yield "from_dlpack(torch MPS tensor)", lambda: md.from_dlpack(mps)
        yield "torch.from_dlpack(Array)", lambda: torch.from_dlpack(array)
        yield "Array.to(torch.Tensor)", lambda: array.to(torch.Tensor)
    if find_spec("tvm_ffi"):
        import tvm_ffi

        tensor = tvm_ffi.from_dlpack(array)
        yield "from_dlpack(tvm_ffi Tensor)", lambda: md.from_dlpack(tensor)
        yield "tvm_ffi.from_dlpack(Array)", lambda: tvm_ffi.from_dlpack(array)


def resident_bytes() -> int:
    """What the process holds now; where that is not to be had, the most it ever held."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def live_buffers() -> int:
    gc.collect()
    md.empty_cache()
    return softmetal.live_objects("MTLBuffer") if softmetal.is_present() else 0


def go(route: Route, trips: int) -> tuple[float, int, int]:
    """Seconds a trip, bytes grown, buffers left."""
    gc.freeze()  # the frameworks' objects: collections look at the trips' only
    for _ in range(WARM_UP):
        route()
    buffers, before = live_buffers(), resident_bytes()
    start = time.perf_counter()
    for _ in range(trips):
        route()
    seconds = time.perf_counter() - start
    return seconds / trips, resident_bytes() - before, live_buffers() - buffers


def main(trips: int) -> int:
    failures = 0
    for name, route in (*own_routes(), *table_routes(), *peer_routes()):
        seconds, grown, left = go(route, trips)
        is_flat = grown <= SLACK_BYTES and left == 0
        failures += not is_flat
        print(f"{name:40} {trips} x {seconds * 1e9:7.0f} ns  {grown / 1024:+7.0f} KiB  {left} buffers left", flush=True)
    print(f"{resident_bytes() / 2**20:.0f} MiB resident at the end; {failures} routes that grew")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
