"""Thousands of malformed and odd tensors, each way into the package, in processes of their own.

Every fault that the metadata shows is refused before `data` is touched (it faults), every odd but legal tensor is
taken with the right bytes, and each is deleted exactly once or left to its capsule.  The tables are in
hostile/faults.py; deleters are C and take their tensor's pages away, so that a look back is a crash.
"""

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from dlpack_structs import DELETER, Opened, Producer

import metal_dlpack as md

FOLDER = Path(__file__).with_name("hostile")

#: Table: the least number of cases, for one struct and device.
TABLES = {
    "faults": 900,
    "faults-beside-odd": 650,
    "majors": 4,
    "metal-faults": 30,
    "odd": 35,
    "odd-pairs": 250,
    "empty": 7,
}
WAYS = [
    (table, struct, device, route)
    for table in TABLES
    for struct in ("legacy", "versioned")
    for device in ("cpu", "metal")
    for route in ("capsule", "object", "exchange")
    if not (struct == "legacy" and (route == "exchange" or table == "majors"))
    and not (device == "cpu" and table == "metal-faults")
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "deleters.so"
    compiler = os.environ.get("CC", "cc").split()
    subprocess.run([*compiler, "-shared", "-fPIC", "-pthread", FOLDER / "deleters.c", "-o", path], check=True)
    return path


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_tables_of_tensors_are_refused_or_taken_as_they_should(way, library, tmp_path):
    trace = tmp_path / "trace"
    with trace.open("w") as file:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", FOLDER / "child.py", *way],
            env={
                **os.environ,
                "HOSTILE_DELETERS": str(library),
                "HOSTILE_TRACE": str(file.fileno()),
                "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *sys.path]),
            },
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            timeout=300,
        )
    last = trace.read_text().splitlines()[-1:]
    assert done.returncode == 0, f"at {last}: {done.stdout}{done.stderr}"
    *complaints, count = done.stdout.splitlines()
    assert complaints == []
    assert int(re.fullmatch(r"(\d+) cases", count)[1]) >= TABLES[way[0]]


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


def test_a_tensor_let_go_on_a_thread_without_python_runs_its_deleter_in_python(library, live_buffers):
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
    call = ctypes.CDLL(str(library)).call_on_thread
    assert call(ctypes.c_void_p(opened.managed.deleter), ctypes.c_void_p(opened.address)) == 0
    md.from_dlpack(md.zeros(1))  # the interpreter's next import lets go of what waits
    assert threads == [threading.get_ident()]
