"""A pytest plugin: one line for each test of another library's suite, on the device that $SUITE_DEVICE names.

Its time is the processor's.  The first and the last line of a run say what memory there is: tensors of mps that live,
and the process's own pages once malloc has given back what it can.

A test is written down when it begins, so that one which ends the process is known; $SUITE_DONE has the tests that an
earlier process of the same run has finished.  With $SUITE_DEFAULT=1 what is made without a device lies on that device;
with $SUITE_FROM_NUMPY=1 what torch.from_numpy gives, too.  $SUITE_ASKS: the suite's MODULE:FUNCTION that names one.
For the module that $SUITE_EMPTY names stands an empty one.
A default dtype that a test leaves behind (e3nn's: float64) is taken back, or MPS refuses all tests after it.
"""

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SECONDS_A_TEST = float(os.environ.get("SUITE_SECONDS", "120"))
_said: dict[str, tuple[str, str]] = {}


def write(**line: object) -> None:
    with open(os.environ["SUITE_RESULTS"], "a") as results:
        results.write(json.dumps(line) + "\n")


def pytest_sessionstart() -> None:
    import torch

    torch.set_num_threads(1)
    random.seed(0)  # some draw the parameters of their tests
    if os.environ.get("SUITE_DEFAULT") == "1":  # on the CPU too, as it makes each call slower
        torch.set_default_device(os.environ["SUITE_DEVICE"])
    if name := os.environ.get("SUITE_EMPTY"):
        sys.modules[name] = ModuleType(name)
    if os.environ.get("SUITE_FROM_NUMPY") == "1":
        from_numpy = torch.from_numpy
        torch.from_numpy = lambda array: from_numpy(array).to(os.environ["SUITE_DEVICE"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = set(Path(os.environ["SUITE_DONE"]).read_text().splitlines())
    kept = [item for item in items if item.nodeid not in done]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = kept
    module, _, function = os.environ.get("SUITE_ASKS", "").partition(":")
    if kept and module:
        setattr(importlib.import_module(module), function, lambda: os.environ["SUITE_DEVICE"])


def write_memory(when: str) -> None:
    import torch

    sys.last_type = sys.last_value = sys.last_traceback = None  # pytest's, of the last test that failed
    gc.collect()
    tensors = 0
    if os.environ["SUITE_DEVICE"] == "mps":
        torch.mps.synchronize()
        torch.mps.empty_cache()
        tensors = torch.mps.current_allocated_memory()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    write(memory=when, tensors=tensors, process=pages)


def pytest_runtestloop() -> None:
    write_memory("start")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    write_memory("end")


def pytest_runtest_logstart(nodeid: str) -> None:
    _said.pop(nodeid, None)
    write(begun=nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    import torch

    torch.manual_seed(0)
    faulthandler.dump_traceback_later(SECONDS_A_TEST, exit=True, file=sys.__stderr__)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    import torch

    chosen, begin = torch.get_default_dtype(), time.process_time()
    yield
    torch.set_default_dtype(chosen)
    write(took=item.nodeid, seconds=round(time.process_time() - begin, 4))


def pytest_runtest_teardown() -> None:
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome = "skipped" if hasattr(report, "wasxfail") and report.outcome == "skipped" else report.outcome
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr or "") if outcome == "failed" else ""
    if outcome == "failed" and _said.get(report.nodeid, ("", ""))[0] != "failed":
        _said[report.nodeid] = (outcome, (crash.message if crash else "")[:1500] + "\n" + text[-2500:])
    elif outcome == "skipped" or report.when == "call":
        _said.setdefault(report.nodeid, (outcome, ""))
    if report.when == "teardown":
        outcome, said = _said.pop(report.nodeid, ("skipped", ""))
        write(test=report.nodeid, outcome=outcome, said=said)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        write(uncollected=report.nodeid, said=str(report.longrepr)[-1500:])
