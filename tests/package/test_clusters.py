"""Arrays on more than one machine: what Dask believes they weigh, and its clusters, each worker a process of its own."""

import contextlib
import gc
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import CancelledError

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from children import output_of, run_child
from places import ROOT, SUPPORT
from recipes import all_recipes, blocks

import metal_dlpack as md
import softmetal
from metal_dlpack import pickling


@pytest.fixture(autouse=True)
def pool_of_other_tests(monkeypatch):
    """Where Dask has seen an Array, collections and pickles empty the pool."""
    known = list(gc.callbacks)
    monkeypatch.setattr(pickling, "before_pickling", pickling.before_pickling)
    yield
    gc.callbacks[:] = known


# ---- what it weighs ----

MAKERS = {
    "zeros": (md.zeros, np.zeros),
    "asarray": (md.asarray, np.asarray),
    "astype": (lambda x: md.asarray(x).astype("int8"), lambda x: np.asarray(x).astype("int8")),
    "copy": (lambda x: md.asarray(x).T.copy(), lambda x: np.asarray(x).T.copy()),
    "shared": (lambda x: md.asarray(np.asarray(x)), lambda x: np.asarray(x)[...]),
    "view": (lambda x: md.asarray(x)[1:], lambda x: np.asarray(x)[1:]),
    "same items": (lambda x: md.asarray(x)[...], lambda x: np.asarray(x)[...]),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("given", [(30, 40), (5,), (0, 3)])
def test_sys_getsizeof_counts_the_items_where_numpy_s_does(name, given):
    ours, theirs = (make(given) for make in MAKERS[name])
    alone = sys.getsizeof(md.empty([0] * ours.ndim))
    assert sys.getsizeof(ours) - alone == (ours.nbytes if theirs.flags.owndata else 0)
    ours.buffer  # noqa: B018 - the object exists from here on, and changes nothing
    assert sys.getsizeof(ours) - alone == (ours.nbytes if theirs.flags.owndata else 0)


def test_sys_getsizeof_counts_what_a_buffer_made_until_it_is_closed():
    alone = sys.getsizeof(md.Buffer.from_host(bytearray(100)))
    buffer = md.Buffer(100)
    assert sys.getsizeof(md.zeros(100).buffer) == alone, "its Array counts the items"
    assert sys.getsizeof(buffer) == alone + 100
    buffer.close()
    assert sys.getsizeof(buffer) == alone


@st.composite
def views(draw):
    """Make our view and NumPy's of the same items."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    array = md.zeros(shape, "int16")
    for act in draw(st.lists(st.sampled_from(["slice", "broadcast", "transpose"]), max_size=3)):
        if act == "transpose":
            array = array.T
        elif act == "broadcast":
            array = array.broadcast_to((draw(st.integers(1, 3)), *array.shape))
        else:
            array = array[tuple(slice(None, None, draw(st.sampled_from([1, 2, -1]))) for _ in array.shape)]
    return array, np.asarray(array)


@hypothesis.given(views())
def test_dask_counts_an_array_as_it_counts_numpy_s(pair):
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    ours, theirs = pair
    assert sizeof(ours) == sizeof(ours.host) == sizeof(theirs)


def test_dask_counts_packed_items_and_private_memory():
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    assert sizeof(md.zeros((3, 4), "int4")) == 6
    assert sizeof(md.zeros((2, 4), "int4").broadcast_to((9, 2, 4))) == 4
    assert sizeof(md.zeros((3, 4), storage="private")) == 48


def test_dask_starts_without_the_package():
    pytest.importorskip("dask")
    assert output_of("import sys, dask.sizeof\nprint('metal_dlpack' in sys.modules)") == "False\n"


@pytest.mark.parametrize("act", ["gc.collect()", "pickle.dumps(md.zeros(3))"])
def test_what_dask_does_where_memory_is_short_gives_the_pool_s_memory_back(act):
    pytest.importorskip("dask")
    code = f"""
        import gc, pickle, dask.sizeof, metal_dlpack as md
        a = md.zeros(1 << 20)
        gc.collect()
        dask.sizeof.sizeof(a)
        del a
        gc.collect(1)
        print(md.memory_stats()["cached"] > 1 << 20)
        {act}
        print(md.memory_stats()["cached"] > 1 << 20)
    """
    assert output_of(code) == "True\nFalse\n"


# ---- Dask: tasks ----


def filled(seed, kind="Array", count=1 << 20):
    array = np.random.default_rng(seed).random(count, "float32")
    return md.asarray(array, copy=True) if kind == "Array" else array


def facts_of(array):
    return os.getpid(), array.readonly, float(np.asarray(array)[-1])


def in_flight(fails=False):
    """An Array that the GPU has yet to write, and whether it has."""
    softmetal.configure(latency_us=300_000, fail="commit=Internal" if fails else None)
    stream = md.Stream()
    array = md.ones(1 << 18).copy(stream=stream)
    softmetal.configure(latency_us=None, fail=None)
    return array, stream.query()


def sum_of(pair):
    return float(np.asarray(pair[0]).sum())


def end_this_worker(_array):
    os.kill(os.getpid(), signal.SIGKILL)


# ---- Dask: clusters ----


@contextlib.contextmanager
def dask_cluster(folder, limit="1GB", **settings):
    """A client of two workers, and their addresses."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    local = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": "127.0.0.1:0",
        "host": "127.0.0.1",
    }
    known = {
        "temporary-directory": str(folder),
        "distributed.worker.use-file-locking": False,
        "distributed.logging.distributed": "critical",
        **settings,
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        dask.config.set(known),
    ):
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        with (
            distributed.LocalCluster(memory_limit=limit, **local) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client, sorted(client.scheduler_info()["workers"])


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with dask_cluster(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
def test_dask_moves_arrays_from_client_to_worker_to_worker_to_client(workers):
    client, (first, second) = workers
    array = filled(1)
    for given in (array, array.as_readonly()):
        there = client.scatter(given, workers=[first], hash=False)
        seen = [client.submit(facts_of, there, workers=[name], pure=False).result() for name in (first, second)]
        back = client.gather(there)
        assert len({pid for pid, *_ in seen} | {os.getpid()}) == 3
        assert {fact[1:] for fact in seen} == {(given.readonly, float(np.asarray(array)[-1]))}
        assert back.readonly == given.readonly
        assert np.array_equal(np.asarray(back), np.asarray(array))


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
@pytest.mark.needs_softmetal
def test_dask_sends_what_the_gpu_has_written(workers):
    client, (first, second) = workers
    there = client.submit(in_flight, workers=[first], pure=False)
    seen = client.submit(sum_of, there, workers=[second]).result(60)
    array, was_finished = there.result(60)
    assert not was_finished
    assert seen == float(np.asarray(array).sum()) == 1 << 18


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
@pytest.mark.needs_softmetal
@pytest.mark.parametrize("hop", ["to a worker", "to the client", "to disk"])
def test_dask_never_takes_what_a_failure_of_the_gpu_left_for_a_result(workers, hop):
    from distributed import wait

    client, (first, second) = workers
    there = client.submit(in_flight, True, workers=[first], pure=False)
    with pytest.raises(md.MetalError, match="MTLCommandBufferErrorInternal"):
        if hop == "to the client":
            sum_of(there.result(60))
        else:
            if hop == "to disk":
                wait(there)
                client.run(spill, workers=[first])
            client.submit(sum_of, there, workers=[second if hop == "to a worker" else first]).result(60)


def spill(dask_worker):
    while dask_worker.data.fast:
        dask_worker.data.evict()


def store(dask_worker):
    """Return how many objects a worker has in memory and on disk, and the bytes that it counts."""
    data = dask_worker.data
    return len(data.fast), len(data.slow), data.fast.total_weight


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
def test_dask_spills_as_many_arrays_as_it_spills_of_numpy_s_and_they_come_back(tmp_path):
    from distributed import wait

    by_weight = dict.fromkeys((f"distributed.worker.memory.{name}" for name in ("spill", "pause", "terminate")), False)
    with dask_cluster(tmp_path, 100 << 20, **by_weight) as (client, (first, second)):
        stores = {}
        for kind in ("NumPy", "Array"):
            chunks = client.map(filled, range(30), kind=kind, workers=[first], pure=False)
            wait(chunks)
            stores[kind] = client.run(store, workers=[first])[first]
            if kind == "Array":
                assert set(client.nbytes(summary=False).values()) == {4 << 20}
                seen = client.gather(client.map(facts_of, chunks, workers=[second]))
                assert [facts[1:] for facts in seen] == [
                    (False, float(filled(seed, "NumPy")[-1])) for seed in range(30)
                ]
            del chunks
            while any(client.run(store)[first]):
                time.sleep(0.05)
        assert stores["Array"] == stores["NumPy"]
        in_memory, on_disk, nbytes = stores["Array"]
        assert (in_memory + on_disk, nbytes) == (30, in_memory * 4 << 20)
        assert on_disk > 10


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
def test_results_of_a_killed_worker_are_made_again_and_a_task_that_kills_ends(tmp_path):
    from distributed import KilledWorker, wait

    with dask_cluster(tmp_path, **{"distributed.scheduler.allowed-failures": 1}) as (client, _):
        chunks = client.map(filled, range(8))
        wait(chunks)
        ((first,),) = client.who_has(chunks[:1]).values()
        scattered = client.scatter(filled(0), workers=[first], hash=False)
        pid = client.run(os.getpid, workers=[first])[first]
        os.kill(pid, signal.SIGKILL)
        again = client.gather(client.map(facts_of, chunks))
        assert pid not in {who for who, *_ in again}
        assert [item for *_, item in again] == [float(filled(seed, "NumPy")[-1]) for seed in range(8)]
        with pytest.raises(CancelledError):
            scattered.result(60)
        with pytest.raises(KilledWorker):
            client.submit(end_this_worker, chunks[0]).result(60)


# ---- docs/clusters.md ----


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
def test_the_page_s_commands_start_a_cluster_and_its_code_runs_there(tmp_path):
    """The first commands of clusters.md, and its blocks for Dask."""
    distributed = pytest.importorskip("distributed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    commands = next(block.text for block in blocks("docs/clusters.md") if block.language == "sh")
    commands = commands.replace("studio.local", "127.0.0.1").replace("8786", str(port))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "DASK_TEMPORARY_DIRECTORY": str(tmp_path),
    }
    with contextlib.ExitStack() as stack:
        for line in commands.splitlines():
            program = [sys.executable, "-m", *shlex.split(line, comments=True), "--dashboard-address", "127.0.0.1:0"]
            process = stack.enter_context(
                subprocess.Popen(program, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.terminate)
        names = {"np": np, "md": md, "__name__": "__main__"}
        first, last = (text for text in all_recipes("clusters.md") if "import ray" not in text)
        exec(first.replace("studio.local:8786", f"127.0.0.1:{port}"), names)
        client = stack.enter_context(names["client"])
        assert isinstance(client, distributed.Client)
        assert names["sums"] == [float(filled(seed, "NumPy").sum()) for seed in range(8)]
        exec(last, names)
        assert client.submit(names["double"], md.ones(3)).result(60).tolist() == [1.0] * 3


# ---- Ray ----


@pytest.mark.long
@pytest.mark.needs_no_sanitizer
@pytest.mark.needs_ray
def test_ray_moves_arrays_between_nodes_spills_them_and_makes_those_again_that_died(monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "200")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1")
    done = run_child(SUPPORT / "ray_cluster.py", timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    last = float(filled(0, "NumPy")[-1])
    (first, *seen), (second, *also_seen) = found["seen"]
    assert first != second
    assert seen == also_seen == [True, last]
    assert found["sums of the page"] == [1 << 20] * 8
    assert found["is the store's memory"] == [True, True]
    assert found["small is readonly"]
    if softmetal.is_present():
        assert found["in flight"] == [False, 1 << 20]
        assert found["failed"]
    assert found["killed"] == "WorkerCrashedError"
    assert found["from disk"]
    assert found["files"] > 0
    assert found["made again"]
