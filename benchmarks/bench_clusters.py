"""Dask and Ray: what an array's hops cost, and work on more than the memory holds, beside a NumPy array.

    python benchmarks/bench_clusters.py [--mib N] [--rounds N] [--gb N] [--limit BYTES] [--engine dask|ray]

Without --gb the hops.  Printed: the least time of the rounds, and how often the items were written to new memory, on
both sides together.  With --gb a map-reduce over so many GB of random numbers in chunks of --mib, by two workers of
--limit each: they spill.  NumPy and Arrays take turns.  --directory is where Dask spills to.
"""

import argparse
import contextlib
import os
import time
import tracemalloc

import numpy as np

import metal_dlpack as md

MIB, GB = 1 << 20, 10**9
KINDS = ("NumPy", "Array")


def chunk(kind: str, seed: int, nbytes: int):
    array = (np if kind == "NumPy" else md).empty(nbytes // 4, dtype="float32")
    np.random.default_rng(seed).random(out=np.asarray(array), dtype="float32")
    return array


def sum_of(array) -> float:
    return float(np.asarray(array).sum())


def last_item(array) -> float:
    return float(np.asarray(array)[-1])


def ours() -> int:
    return md.memory_stats()["live"]


class Memory:
    """Of one process: bytes that were in use at once, beyond what it began with."""

    def __init__(self) -> None:
        tracemalloc.start()
        self.before = tracemalloc.get_traced_memory()[0], ours()

    def made(self) -> int:
        peak = tracemalloc.get_traced_memory()[1], ours()
        tracemalloc.stop()
        return sum(max(0, now - before) for now, before in zip(peak, self.before, strict=True))


# ---- Dask ----


@contextlib.contextmanager
def cluster(limit, directory):
    import dask
    from distributed import Client, LocalCluster

    settings = {
        "temporary-directory": directory,
        "distributed.logging.distributed": "error",
        "distributed.scheduler.active-memory-manager.start": False,  # it would drop one of two copies
    }
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set(settings),
        LocalCluster(memory_limit=limit, host="127.0.0.1", **local) as workers,
        Client(workers) as client,
    ):
        client.run(md.default_device)
        yield client


def start_counting(dask_worker) -> None:
    dask_worker.counted = Memory()


def stop_counting(dask_worker) -> int:
    return dask_worker.counted.made()


def spill(dask_worker) -> float:
    start = time.perf_counter()
    dask_worker.data.evict()
    return time.perf_counter() - start


def unspill(key, dask_worker) -> float:
    start = time.perf_counter()
    dask_worker.data[key]
    return time.perf_counter() - start


def dask_hops(client, array):
    """Each hop: its name, and what makes it: it returns seconds, or nothing where the call is to be timed."""
    first, second = client.scheduler_info()["workers"]
    held = []
    yield "client to worker", lambda: held.append(client.scatter(array, workers=[first], hash=False, direct=True))
    (there,) = held
    yield "worker to worker", lambda: client.submit(last_item, there, workers=[second], pure=False).result()
    yield "worker to client", lambda: held.append(client.gather(there, direct=True))
    held.pop()
    yield "worker to disk", lambda: client.run(spill, workers=[first])[first]
    yield "disk to worker", lambda: client.run(unspill, there.key, workers=[first])[first]


def time_dask(options) -> None:
    best, made = {}, {}
    with cluster("4GB", options.directory) as client:
        for turn in range(options.rounds + 2):  # the first imports, the second counts, which takes time
            for kind in KINDS:
                for name, hop in dask_hops(client, chunk(kind, 0, options.mib * MIB)):
                    if turn == 1:
                        client.run(start_counting)
                        here = Memory()
                    start = time.perf_counter()
                    told = hop()
                    seconds = told if isinstance(told, float) and "disk" in name else time.perf_counter() - start
                    if turn == 1:
                        made[name, kind] = here.made() + sum(client.run(stop_counting).values())
                    elif turn > 1:
                        best[name, kind] = min(best.get((name, kind), seconds), seconds)
    for name, _ in dict.fromkeys((name, "") for name, _ in best):
        times = "".join(f"{kind:>8}{best[name, kind] * 1e3:7.0f} ms" for kind in KINDS)
        counts = "".join(f"{kind:>8}{made[name, kind] / MIB / options.mib:5.1f}" for kind in KINDS)
        print(f"{name:20}{times}   written:{counts}")


# ---- Ray ----


def time_ray(options) -> None:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=8 * options.mib * MIB, logging_level="error")
    see, make = ray.remote(last_item), ray.remote(chunk)
    best = {}

    def timed(name, kind, call, *arguments):
        start = time.perf_counter()
        result = call(*arguments)
        seconds = time.perf_counter() - start
        best[name, kind] = min(best.get((name, kind), seconds), seconds)
        return result

    for turn in range(options.rounds + 1):
        if turn == 1:  # the first started the worker
            best.clear()
        for kind in KINDS:
            array = chunk(kind, 0, options.mib * MIB)
            there = timed("driver to store", kind, ray.put, array)
            timed("store to a task", kind, lambda ref: ray.get(see.remote(ref)), there)
            result = make.remote(kind, 0, options.mib * MIB)
            ray.wait([result], fetch_local=True)
            timed("store to driver", kind, ray.get, result)
            del there, result, array
    for name in dict.fromkeys(name for name, _ in best):
        print(f"{name:20}" + "".join(f"{kind:>8}{best[name, kind] * 1e3:7.1f} ms" for kind in KINDS))


# ---- more than the memory holds ----


def facts(dask_worker) -> tuple[int, float]:
    return dask_worker.data.spilled_total.disk, time.process_time()


def map_reduce(client, kind: str, options) -> None:
    from distributed import wait

    nbytes = options.mib * MIB
    _, busy = zip(*client.run(facts).values(), strict=True)
    start = time.perf_counter()
    chunks = [client.submit(chunk, kind, seed, nbytes, pure=False) for seed in range(options.gb * GB // nbytes)]
    wait(chunks)
    made = time.perf_counter()
    on_disk, _ = zip(*client.run(facts).values(), strict=True)
    total = sum(client.gather(client.map(sum_of, chunks, pure=False)))
    end = time.perf_counter()
    _, busy_after = zip(*client.run(facts).values(), strict=True)
    print(
        f"{kind:8}{end - start:8.1f} s: {made - start:.1f} made, {end - made:.1f} reduced; "
        f"{sum(busy_after) - sum(busy):.1f} s of CPU; {sum(on_disk) / GB:.1f} GB of {options.gb} on disk; "
        f"mean {total / len(chunks) / nbytes * 4:.6f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gb", type=int, default=0)
    parser.add_argument("--limit", default="2GB")
    parser.add_argument("--directory")
    parser.add_argument("--engine", choices=["dask", "ray"], default="dask")
    options = parser.parse_args()
    if options.engine == "ray":
        time_ray(options)
    elif options.gb == 0:
        time_dask(options)
    else:
        for turn in range(options.rounds):
            for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
                os.sync()  # what the one before wrote is not this one's to wait for
                # A busy machine takes longer to end two full workers than Dask waits.
                with contextlib.suppress(TimeoutError), cluster(options.limit, options.directory) as client:
                    map_reduce(client, kind, options)


if __name__ == "__main__":
    main()
