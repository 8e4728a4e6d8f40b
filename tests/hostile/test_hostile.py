"""Malformed and odd tensors by the thousand, each in turn and in pairs, at every door, in child processes.

The tables are hostile/faults.py; what becomes of a row is told by an oracle that knows only dlpack.h (hostile/cases.py).
Arrays end where pages end, data is an address that faults wherever the metadata is at fault, and deleters are C
functions that make the whole tensor fault: who looks where he may not, or twice, dies.
"""

import os

import pytest
from children import run_child
from hostile.cases import CPU, DELETED, METAL, REFUSED, TAKEN, single_faults, verdict
from hostile.faults import EMPTY, METAL_FAULTS, ODD, OTHER_MAJORS, PEERS
from law_programs import build_library
from machine import SANITIZER


@pytest.fixture(scope="module")
def deleters(tmp_path_factory):
    return build_library(tmp_path_factory.mktemp("hostile"), "deleters")


def count_cases(deleters, module, *arguments):
    """How many went well; the case at which the child died or failed is in the message."""
    environment = {"HOSTILE_DELETERS": str(deleters)}
    if "address" in SANITIZER:
        environment["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"] + ":detect_leaks=1"
    what = ["-X", "faulthandler", "-m", f"hostile.{module}"]
    child = run_child(what, *arguments, timeout=600, **environment)
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
    assert count_cases(deleters, "routes", device) > 9000


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", "metal"])
def test_every_two_of_them_go_every_route(device, deleters):
    assert count_cases(deleters, "routes", device, "full") > 50_000


@pytest.mark.rule("import-deleted-once", "import-deleter-exception")
def test_deleters_that_raise_reenter_unmap_and_run_on_raw_threads(deleters):
    assert count_cases(deleters, "deleting") >= 120


@pytest.mark.needs_softmetal
@pytest.mark.rule("import-handle")
def test_handles_that_are_no_buffer_are_not_messaged(deleters):
    assert count_cases(deleters, "handles") > 50


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
