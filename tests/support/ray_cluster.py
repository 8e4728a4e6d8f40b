"""Arrays on a Ray cluster with two nodes, in a process of its own: prints what came of them, as JSON.

The stores are small, so that they spill.  One worker is killed, and then one node.  The code of clusters.md runs.
"""

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import numpy as np
import ray
from ray.cluster_utils import Cluster
from recipes import recipe

import metal_dlpack as md
import softmetal

MIB = 1 << 20
ON_FIRST, ON_SECOND = ({"resources": {name: 0.01}} for name in ("first", "second"))


def items(seed, count):
    return np.random.default_rng(seed).random(count, "float32")


@ray.remote
def filled(seed, count=MIB):
    return md.asarray(items(seed, count), copy=True)


@ray.remote
def in_flight(fails=False):
    """What the GPU has yet to write, and whether it has."""
    softmetal.configure(latency_us=300_000, fail="commit=Internal" if fails else None)
    stream = md.Stream()
    array = md.ones(MIB).copy(stream=stream)
    softmetal.configure(latency_us=None, fail=None)
    return array, stream.query()


@ray.remote
def facts_of(array):
    return [os.getpid(), array.readonly, float(np.asarray(array)[-1])]


@ray.remote(max_retries=1)
def end_this_worker(_array):
    os.kill(os.getpid(), signal.SIGKILL)


def last_items(references, **where):
    return [item for _, _, item in ray.get([facts_of.options(**where).remote(each) for each in references])]


def run(cluster, second, node, folder):
    there = filled.options(**ON_FIRST).remote(0)
    yield "seen", ray.get([facts_of.options(**where).remote(there) for where in (ON_FIRST, ON_SECOND)])
    one, other = ray.get([there, there])
    yield "is the store's memory", [md.shares_memory(one, other), one.readonly]
    small = ray.get(filled.remote(0, 10))
    yield "small is readonly", small.readonly

    if softmetal.is_present():
        array, was_finished = ray.get(in_flight.options(**ON_FIRST).remote())
        yield "in flight", [was_finished, float(np.asarray(array).sum())]
        try:
            ray.get(in_flight.remote(fails=True))
        except ray.exceptions.UnserializableException as error:
            yield "failed", "MetalError" in str(error)

    try:
        ray.get(end_this_worker.remote(there))
    except ray.exceptions.WorkerCrashedError as error:
        yield "killed", type(error).__name__

    many = [filled.options(**ON_SECOND).remote(seed, 4 * MIB) for seed in range(12)]  # of 16 MiB
    yield "from disk", last_items(many, **ON_FIRST) == [float(items(seed, 4 * MIB)[-1]) for seed in range(12)]
    yield "files", sum(path.is_file() for path in Path(folder).glob("**/ray_spilled_objects*/*"))
    del many

    lost = [filled.options(**ON_SECOND).remote(seed) for seed in range(4)]
    ray.wait(lost, num_returns=4, fetch_local=False)
    cluster.add_node(resources={"second": 1}, **node)
    cluster.remove_node(second, allow_graceful=False)
    yield "made again", last_items(lost, **ON_FIRST) == [float(items(seed, MIB)[-1]) for seed in range(4)]


def main():
    folder = tempfile.mkdtemp(dir="/tmp")  # Ray's sockets allow no long path
    node = {"num_cpus": 1, "object_store_memory": 80 * MIB}
    head = {**node, "resources": {"first": 1}, "temp_dir": folder, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(resources={"second": 1}, **node)
        page = {"np": np, "md": md, "__name__": "__main__"}
        exec(recipe("clusters.md", "## Ray").replace("auto", cluster.address), page)
        found = {"sums of the page": page["sums"], **dict(run(cluster, second, node, folder))}
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
