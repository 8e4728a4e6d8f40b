"""Malformed and odd tensors by the thousand, each in turn and in pairs, at every door, in child processes.

The tables are hostile/faults.py; what becomes of a row is told by an oracle that knows only dlpack.h (hostile/cases.py).
Arrays end where pages end, data is an address that faults wherever the metadata is at fault, and deleters are C
functions that make the whole tensor fault: who looks where he may not, or twice, dies.
"""

import ctypes
import gc
import os
import subprocess
import sys
import threading

import pytest
from dlpack_structs import DELETER, Opened, Producer
from hostile.cases import CPU, DELETED, METAL, REFUSED, TAKEN, cases, single_faults, verdict
from hostile.faults import EMPTY, METAL_FAULTS, ODD, OTHER_MAJORS, PEERS
from machine import SANITIZER
from places import C_FILES, python_path

import metal_dlpack as md


@pytest.fixture(scope="module")
def deleters(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "deleters.so"
    flags = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    command = [*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-Wall", "-O1", "-g", *flags]
    subprocess.run([*command, C_FILES / "deleters.c", "-o", path, "-pthread"], check=True)
    return path


def run_child(deleters, module, *arguments):
    """The number of cases; the case at which the child died or failed is in the message."""
    environment = {**os.environ, "HOSTILE_DELETERS": str(deleters)}
    environment["PYTHONPATH"] = python_path()
    if "address" in SANITIZER:
        environment["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"] + ":detect_leaks=1"
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", f"hostile.{module}", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = child.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAIL")]
    assert failed == []
    assert child.returncode == 0, f"died ({child.returncode}) at: {lines[-1:]}\n{child.stderr}"
    done, count, failures = lines[-1].split()
    assert (done, failures) == ("DONE", "0")
    return int(count)


@pytest.mark.parametrize("device", ["cpu", "metal"])
@pytest.mark.rule(
    "exchange-steals",
    "exchange-foreign",
    "import-major",
    "import-untouched",
    "import-deleted-once",
    "import-null-deleter",
    "import-null-strides",
    "import-0d",
    "import-size-1-strides",
    "import-empty",
    "import-shape",
    "import-overflow",
    "import-dtype",
    "import-lanes",
    "import-subbyte",
    "import-offset",
    "import-bounds",
    "import-device-id",
    "import-copy-true",
    "import-copy-false",
    "explain-true",
)
def test_every_fault_is_refused_and_every_oddity_taken(device, deleters):
    assert run_child(deleters, "routes", device) > 2400


@pytest.mark.rule("import-deleted-once", "import-deleter-exception")
def test_deleters_that_raise_reenter_unmap_and_run_on_raw_threads(deleters):
    assert run_child(deleters, "deleting") >= 120


@pytest.mark.needs_softmetal
@pytest.mark.rule("import-handle")
def test_handles_that_are_no_buffer_are_not_messaged(deleters):
    assert run_child(deleters, "handles") > 50


# ---- the tables themselves ----


def test_the_oracle_agrees_with_the_tables():
    for device in (CPU, METAL):
        for name, fields in single_faults():
            assert verdict(fields, device) == REFUSED, name
        for name, fields in OTHER_MAJORS.items():
            assert verdict(fields, device) == DELETED, name
        for name, fields in (ODD | EMPTY | PEERS).items():
            assert verdict(fields, device) == TAKEN, name
            assert verdict(fields, device, 4096) == TAKEN, name
    for name, fields in METAL_FAULTS.items():
        assert verdict(fields, METAL, 4096) == REFUSED, name


def test_there_are_cases_enough_of_each_kind():
    for device in (CPU, METAL):
        fates = [fate for *_, fate in cases(device)]
        assert fates.count(REFUSED) > 4000
        assert fates.count(TAKEN) > 400
        assert fates.count(DELETED) > 100


# ---- deleters that are no plain functions ----


def import_with_deleter(deleter, **fields):
    """An Array over 64 bytes whose tensor ends in `deleter`; what must live beside it."""
    memory = ctypes.create_string_buffer(128)
    address = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
    producer = Producer(data=address, shape=(4,), **fields)
    callback = DELETER(deleter)
    producer.struct.deleter = ctypes.cast(callback, ctypes.c_void_p).value
    return md.from_dlpack(producer.capsule(), copy=False), (memory, producer, callback)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_deleter_that_raises_harms_nobody(versioned, live_buffers, monkeypatch):
    calls, seen = [], []

    def deleter(address):
        calls.append(address)
        raise RuntimeError("from a deleter")

    array, keep = import_with_deleter(deleter, versioned=versioned)
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    del array
    gc.collect()
    assert len(calls) == 1
    assert [str(call.exc_value) for call in seen] == ["from a deleter"]
    assert md.zeros(2).tolist() == [0.0, 0.0]
    seen.clear()
    del keep


@pytest.mark.rule("import-deleter-exception")
def test_a_deleter_meets_no_exception_and_leaves_one_alone(live_buffers):
    met = []

    def deleter(_address):
        met.append(sys.exc_info()[0])

    array, _keep = import_with_deleter(deleter)
    holder = [array]
    del array
    with pytest.raises(ZeroDivisionError):
        try:
            raise ZeroDivisionError
        finally:
            holder.clear()
    assert met == [ZeroDivisionError]  # what is being handled, as in any call; nothing is set


def test_a_deleter_may_come_back_into_the_package(live_buffers):
    results = []
    other = md.full((3,), 2.0)

    def deleter(_address):
        again = md.from_dlpack(other)
        results.append(again.copy().tolist())
        results.append(md.from_dlpack(other.__dlpack__()).tolist())
        gc.collect()

    array, _keep = import_with_deleter(deleter)
    view = array[1:]
    del array
    assert results == []
    del view
    assert results == [[2.0] * 3] * 2


def test_a_deleter_may_drop_another_array_whose_deleter_drops_another(live_buffers):
    order, chain, keeps = [], {}, []

    def deleter_of(i):
        def deleter(_address):
            order.append(i)
            chain.pop(i - 1, None)

        return deleter

    for i in range(50):
        array, keep = import_with_deleter(deleter_of(i))
        chain[i] = array
        keeps.append(keep)
    del array
    chain.pop(49)
    assert order == list(range(49, -1, -1))
    assert chain == {}


@pytest.mark.rule("import-deleter-thread")
def test_a_tensor_let_go_on_a_thread_without_python_runs_its_deleter_in_python(deleters, live_buffers):
    """Foreign memory, an Array over it, an export of that; the export's deleter runs on a raw thread."""
    threads = []

    def deleter(_address):
        threads.append(threading.get_ident())

    array, _keep = import_with_deleter(deleter)
    capsule = array.__dlpack__(max_version=(1, 3))
    opened = Opened(capsule)
    opened.take()
    del array
    gc.collect()
    assert threads == []
    call = ctypes.CDLL(str(deleters)).call_on_thread
    assert call(ctypes.c_void_p(opened.managed.deleter), ctypes.c_void_p(opened.address)) == 0
    md.from_dlpack(md.zeros(1))  # the interpreter's next import lets go of what waits
    assert threads == [threading.get_ident()]
