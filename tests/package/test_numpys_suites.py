"""NumPy's own tests of DLPack and of its file format, with Arrays on one side; see numpys_suites.py.

What does not apply is listed with its reason.  A line of the list that passes is stale, and fails.
"""

import json
import os
from pathlib import Path

import numpy
import pytest
from children import run_child

pytestmark = [pytest.mark.long, pytest.mark.needs_numpy, pytest.mark.needs_no_sanitizer]

NUMPY = Path(numpy.__file__).parent
DLPACK, FORMAT = NUMPY / "_core" / "tests" / "test_dlpack.py", NUMPY / "lib" / "tests" / "test_format.py"

HOLDS_MEMORY = "a capsule holds the memory, not the object that gave it"
OTHER_WORDS = "refused, in other words than NumPy's"
NO_ARRAY = "no Array can be made of it"
PATHS = "open takes paths, not open files"
REGISTERED = "an element type that a program registered with NumPy alone, from 2.5 on"
#: {role: (the suite, how many tests pass at least, {test: why it does not apply})}
ROLES = {
    "consumer": (
        DLPACK,
        75,
        {
            "test_writeable": "a legacy capsule gives a writable Array, as DLPack has it",
            "test_roundtrip": REGISTERED,
            "test_register_conflict": REGISTERED,
        },
    ),
    "producer": (
        DLPACK,
        65,
        {
            "test_dunder_dlpack_refcount": HOLDS_MEMORY,
            "test_from_dlpack_refcount": HOLDS_MEMORY,
            "test_dunder_dlpack_stream": "another stream is a BufferError here, as it is on Metal",
            "test_dunder_dlpack_copy": "copy= that is no bool is a TypeError",
            "test_strides_not_multiple_of_itemsize": NO_ARRAY,
            "test_invalid_dtype": NO_ARRAY,
            "test_invalid_byte_swapping": NO_ARRAY,
            "test_roundtrip": REGISTERED,
            "test_register_conflict": REGISTERED,
            "test_buffererror_bad_dtype": REGISTERED,
        },
    ),
    "files": (
        FORMAT,
        30,
        {
            "test_file_truncated": OTHER_WORDS,
            "test_huge_header": OTHER_WORDS,
            "test_huge_header_npz": OTHER_WORDS,
            "test_version_2_0": "a header of more than 10,000 bytes is refused, as np.load does by default",
            "test_compressed_roundtrip": "compressed members cannot be mapped",
            "test_pickle_python2_python3": "pickled objects are refused",
            "test_large_file_support": PATHS,
            "test_large_archive": PATHS,
        },
    ),
}


def run_suite(role, path, folder):
    """{test: (outcome, what it said)}"""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "numpys_suites"]
    places = ["-c", os.devnull, "--rootdir", folder, "--basetemp", folder / "files", path]
    environment = {"ROLE": role, "OUTCOMES": str(folder / "outcomes.json")}
    done = run_child(command, *places, cwd=folder, timeout=600, **environment)
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads((folder / "outcomes.json").read_text())


@pytest.mark.parametrize("role", ROLES)
def test_the_suite_of_numpy(role, tmp_path):
    path, least, reasons = ROLES[role]
    if not path.exists():
        pytest.skip("this NumPy comes without its tests")
    outcomes = run_suite(role, path, tmp_path)
    failed = {test: text for test, (outcome, text) in outcomes.items() if outcome == "failed"}
    unexpected = {test: text for test, text in failed.items() if test.partition("[")[0] not in reasons}
    assert unexpected == {}
    ran = {test.partition("[")[0] for test, (outcome, _) in outcomes.items() if outcome != "skipped"}
    stale = {test for test in reasons if test in ran and test not in {name.partition("[")[0] for name in failed}}
    assert stale == set()
    assert sum(outcome == "passed" for outcome, _ in outcomes.values()) >= least
