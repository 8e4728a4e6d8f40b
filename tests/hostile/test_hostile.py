"""Malformed and odd tensors by the thousand, each in turn and in pairs, at every door, in child processes.

The tables are hostile/faults.py; what becomes of a row is told by an oracle that knows only dlpack.h (hostile/cases.py).
Arrays end where pages end, data is an address that faults wherever the metadata is at fault, and deleters are C
functions that make the whole tensor fault: who looks where he may not, or twice, dies.
"""

import os
import subprocess
import sys

import pytest
from hostile.cases import CPU, DELETED, METAL, REFUSED, TAKEN, single_faults, verdict
from hostile.faults import EMPTY, METAL_FAULTS, ODD, OTHER_MAJORS, PEERS
from machine import SANITIZER
from places import C_FILES, python_path


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
    "import-flavours",
    "import-major",
    "import-minor",
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
    """Each row by every route, and each two rows at once by one of the routes."""
    assert run_child(deleters, "routes", device) > 9000


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", "metal"])
def test_every_two_of_them_go_every_route(device, deleters):
    assert run_child(deleters, "routes", device, "full") > 50_000


@pytest.mark.rule("import-deleted-once", "import-deleter-exception")
def test_deleters_that_raise_reenter_unmap_and_run_on_raw_threads(deleters):
    assert run_child(deleters, "deleting") >= 120


@pytest.mark.needs_softmetal
@pytest.mark.rule("import-handle")
def test_handles_that_are_no_buffer_are_not_messaged(deleters):
    assert run_child(deleters, "handles") > 50


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
