"""A pytest plugin: PyTorch's own tests of its mps device, on the device of softmetal.torch_mps().

The suite is a file of PyTorch's repository, which is read as data.  `fill` runs its text as it is, and answers what it
asks of a Mac.  Which operators are expected to fail on a Mac is what the torch that is installed says.
"""

import faulthandler
import gc
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from children import run_child

#: The release of macOS that the suite is told: the newest that its lists know.
MACOS = 26.0
#: The Mac's memory: less than what those tests ask for that need tensors of 4 GiB.
MEMORY = 8 << 30
SECONDS_A_TEST = 150
#: Tests that need 5 to 20 GB and do not ask.
TOO_LARGE = ("test_index_64bit", "test_large_bmm_", "test_64bit_binops")


def run(suite, folder, *, processes=2, words=(), seconds=4 * 3600):
    """{test: (outcome, what it said)}; `words` go to pytest.

    A test that ends its process or takes too long fails alone: pytest-xdist begins another process.
    """
    (folder / "test_mps.py").write_text("import pytorchs_suite\npytorchs_suite.fill(globals())\n")
    command = ["-m", "pytest", "-q", "--tb=short", "-p", "pytorchs_suite", "-n", str(processes)]
    places = ["-c", os.devnull, "--rootdir", folder, folder / "test_mps.py"]
    without = [word for name in ("cacheprovider", "metal_dlpack") for word in ("-p", f"no:{name}")]
    settings = {"SUITE": str(suite), "OUTCOMES": str(folder / "outcomes"), "PYTORCH_PRINT_REPRO_ON_FAILURE": "0"}
    done = run_child(
        [*command, *without],
        *words,
        *places,
        cwd=folder,
        timeout=seconds,
        OMP_NUM_THREADS="1",
        PYTEST_XDIST_WORKER=None,
        **settings,
    )
    assert done.returncode in (0, 1) and (folder / "outcomes").exists(), done.stdout[-3000:] + done.stderr[-3000:]
    lines = [json.loads(line) for line in (folder / "outcomes").read_text().splitlines()]
    return {line["test"]: (line["outcome"], line["said"]) for line in lines}


# ---- in the child ----


def fill(module):
    """Run the suite's text in the namespace of a module."""
    import softmetal

    sys.modules["torchvision"] = None  # torch would take it; one for another torch raises more than ImportError
    softmetal.torch_mps()
    import torch
    from torch.testing._internal import common_utils

    common_utils.MACOS_VERSION = MACOS
    torch.mps._compile_shader = torch.mps.compile_shader  # its name in 2.6
    subprocess.check_output = partial(_check_output, subprocess.check_output)
    suite = Path(os.environ["SUITE"])
    exec(compile(suite.read_text(), str(suite), "exec"), module)


def _check_output(usual, command, *args, **keywords):
    """Sysctl is a Mac's."""
    if command == ["sysctl", "-n", "hw.memsize"]:
        return str(MEMORY).encode()
    return usual(command, *args, **keywords)


def pytest_collection_modifyitems(items):
    """In an order of their own: torch makes tests of sets, in another order in each process."""
    items[:] = sorted((item for item in items if not item.name.startswith(TOO_LARGE)), key=lambda item: item.nodeid)


def pytest_runtest_setup():
    faulthandler.dump_traceback_later(SECONDS_A_TEST, exit=True)


def pytest_runtest_teardown():
    faulthandler.cancel_dump_traceback_later()
    # Python keeps the last exception, with the tensors in its frames: tests ask how much memory there is.
    sys.last_traceback = sys.last_value = sys.last_exc = None
    gc.collect(1)


def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.outcome == "passed"):
        return
    outcome = "failed as on a Mac" if hasattr(report, "wasxfail") else report.outcome
    said = str(report.longrepr or "")[-1500:]
    with open(os.environ["OUTCOMES"], "a") as outcomes:
        test = report.nodeid.partition("::")[2].replace("::", ".")
        outcomes.write(json.dumps({"test": test, "outcome": outcome, "said": said}) + "\n")
