"""The pytest plugin of metal_dlpack: fixtures and options for tests on the software Metal.

pytest imports this module in every run of everybody who has metal_dlpack installed.  So it stands outside of the
package, and imports the package only when a fixture or an option is used.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

import pytest

import _metal_dlpack_start

PREFIX = "SOFTMETAL_"
#: Under pytest kernels are checked, unless the environment says 0.
CHECK = "SOFTMETAL_KERNEL_CHECK"
IDLE_S = 10
NAMES_A_GPU = re.compile(r"\bmps\b|\bmetal\b", re.IGNORECASE)
#: How long other libraries may take to let go of a buffer, on threads of their own.
LET_GO_S = 2
Configure = Callable[..., None]

_has_begun = pytest.StashKey[bool]()
_gathering = pytest.StashKey[Any]()
_report_text = pytest.StashKey[str]()
_reports_before = pytest.StashKey[int]()
_kernel_reports_before = pytest.StashKey[int]()
_findings_before = pytest.StashKey[int]()
_was_idle = pytest.StashKey[bool]()
_has_passed = pytest.StashKey[bool]()
#: Only there if the test passed and buffers outlived its fixtures.
_buffers_before = pytest.StashKey[int]()


# ---- options: settings of the whole run ----


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("softmetal", "the software Metal, which metal_dlpack uses where there is no Mac")
    group.addoption(
        "--softmetal-seed",
        metavar="N",
        help='shuffle GPU work within what Metal promises: a number, "last" or "random"',
    )
    group.addoption("--softmetal-latency", metavar="US", help="microseconds that each command buffer takes at least")
    group.addoption(
        "--softmetal-settings",
        metavar="NAME=VALUE,...",
        help="any other settings, as discrete=1,poison=1; docs/softmetal.md lists them",
    )
    group.addoption(
        "--softmetal",
        action="store_true",
        help="torch's mps device computes, and kernels of mx.fast.metal_kernel run; on a Mac they are Metal's",
    )
    group.addoption(
        "--softmetal-torch",
        action="store_true",
        help="torch's mps device computes, on the CPU; on a Mac torch has its own",
    )
    group.addoption(
        "--softmetal-check",
        action="store_true",
        help="as --softmetal, check kernels, say at the end what was found, each finding once, and exit with 1",
    )
    group.addoption(
        "--softmetal-strict",
        action="store_true",
        help="as --softmetal-check, and exit with 2 if no kernel was launched",
    )
    group.addoption(
        "--softmetal-report",
        metavar="FILE",
        action="append",
        default=[],
        help="as --softmetal-check, and write it: FILE.html, FILE.json or FILE.sarif",
    )
    parser.addini("softmetal_benign", "findings of kernels that are meant so: KERNEL:LINE REASON", type="linelist")
    parser.addini("softmetal", "as --softmetal, for every run", type="bool")
    parser.addini("softmetal_torch", "as --softmetal-torch, for every run", type="bool")


def asked_settings(option: Any) -> dict[str, str]:
    """What the options say, by the names of softmetal.configure."""
    # A value may have commas too: fail=buffer@3,queue
    pieces = re.split(r",(?=[a-z_]+=)", option.softmetal_settings) if option.softmetal_settings else []
    if not all("=" in piece for piece in pieces):
        raise pytest.UsageError(f"--softmetal-settings must be NAME=VALUE,..., not {option.softmetal_settings!r}.")
    asked = dict(piece.split("=", 1) for piece in pieces)
    if option.softmetal_seed is not None:
        asked["seed"] = option.softmetal_seed
    if option.softmetal_latency is not None:
        asked["latency_us"] = option.softmetal_latency
    return asked


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before any conftest.py is imported: what that asks of torch decides what is skipped."""
    begin(early_config, early_config.known_args_namespace)


def begin(config: pytest.Config, option: Any) -> None:
    """Check kernels and switch devices on as the options say; once, whichever hook comes first.

    Without an option kernels are checked later: a conftest.py may set the variable.
    """
    if _has_begun not in config.stash:
        config.stash[_has_begun] = True
        if keeps_report(option):
            check_kernels(config, option)
        if modules := switched_on(config, option):
            switch_on(config, modules)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.softmetal_seed == "random":
        chosen = getattr(config, "workerinput", {}).get("softmetal_seed")
        config.option.softmetal_seed = chosen or str(1 + int.from_bytes(os.urandom(3), "little"))
    begin(config, config.option)
    check_kernels(config, config.option)
    if benign := config.getini("softmetal_benign"):
        read_silences(config, benign)
    if keeps_report(config.option):
        keep_report(config)
    asked = asked_settings(config.option)
    if not asked:
        return
    try:
        import softmetal
    except ImportError as error:
        raise pytest.UsageError(f"--softmetal-...: metal_dlpack cannot be imported: {error}") from error
    if not softmetal.is_present():
        raise pytest.UsageError(
            "The options --softmetal-... need the software Metal, and metal_dlpack uses Apple's Metal here. "
            "Leave them out on a Mac."
        )
    settings = current_settings(asked)
    try:
        softmetal.configure(**asked)
    except ValueError as error:
        raise pytest.UsageError(f"--softmetal-...: {error}") from None
    # Processes that tests start get them as well.
    before = {variable(name): os.environ.get(variable(name)) for name in asked}
    os.environ.update({variable(name): value for name, value in asked.items()})
    config.add_cleanup(lambda: undo(before, settings))


def switched_on(config: pytest.Config, option: Any) -> list[str]:
    """The modules whose import switches something on."""
    if sys.platform == "darwin":
        return []
    if option.softmetal or config.getini("softmetal") or keeps_report(option):
        return [*_metal_dlpack_start.SWITCHES]
    asked = _metal_dlpack_start.asked()
    is_named = option.softmetal_torch or config.getini("softmetal_torch")
    return ["torch", *asked] if is_named and "torch" not in asked else asked


def switch_on(config: pytest.Config, modules: list[str]) -> None:
    """When the first test or conftest.py imports one, here or in a child: a run that does not pays nothing."""
    variables = _metal_dlpack_start.variables_of(modules)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    config.add_cleanup(lambda: undo(before, {}))

    def aloud(switch_on: Callable[[], object]) -> None:
        capture = config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            switch_on()  # the first time for a torch it compiles its device, and says so

    config.add_cleanup(_metal_dlpack_start.switch_on_when_imported(modules, aloud))


def check_kernels(config: pytest.Config, option: Any) -> None:
    """For kernels of the whole run, also those that are made while tests are collected."""
    if CHECK in os.environ and not (keeps_report(option) and os.environ[CHECK] == "0"):
        return
    variable_before = {CHECK: os.environ.get(CHECK)}
    before: dict[str, str | None] = {"kernel_check": None}
    if reads_settings():
        before = current_settings(before)
    os.environ[CHECK] = "1"
    if reads_settings():
        import softmetal

        softmetal.configure(kernel_check=1)
    config.add_cleanup(lambda: undo(variable_before, before))


def reads_settings() -> bool:
    """Whether the software Metal is loaded: it may have read the environment."""
    if "metal_dlpack._core" not in sys.modules:
        return False
    import softmetal

    return softmetal.is_present()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers of xdist get the seed that was chosen."""
    node.workerinput["softmetal_seed"] = node.config.option.softmetal_seed


def undo(variables: dict[str, str | None], settings: dict[str, str | None]) -> None:
    for name, value in variables.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    if reads_settings():
        import softmetal

        softmetal.configure(**settings)


def variable(name: str) -> str:
    return PREFIX + name.upper()


def current_settings(names: Iterable[str]) -> dict[str, str | None]:
    """What was set last, by `configure` or the environment; None: the default."""
    from softmetal import controls

    return {name: controls.configured.get(name, os.environ.get(variable(name))) for name in names}


def variables() -> list[str]:
    """What differs from a plain run under pytest."""
    asked = {
        name: value for name, value in os.environ.items() if name.startswith(PREFIX) and (name, value) != (CHECK, "1")
    }
    return sorted(f"{name}={shlex.quote(value)}" for name, value in asked.items())


def pytest_report_header() -> str | None:
    return f"softmetal: {' '.join(variables())}" if variables() else None


# ---- a report of the whole run ----


def keeps_report(option: Any) -> bool:
    return bool(option.softmetal_check or option.softmetal_strict or option.softmetal_report)


def checks_kernels(config: pytest.Config) -> bool:
    """Whether findings are failures: by our option, or as `python -m softmetal --check` says."""
    return keeps_report(config.option) or os.environ.get(CHECK) == "report"


def keep_report(config: pytest.Config) -> None:
    """Keep the report of this process and its children, such as xdist's workers and the children of tests."""
    if is_worker(config):
        return
    try:
        import softmetal
    except ImportError as error:
        raise pytest.UsageError(f"--softmetal-check: metal_dlpack cannot be imported: {error}") from error
    if not softmetal.is_present():
        raise pytest.UsageError(
            "--softmetal-check and --softmetal-report need the software Metal; on a Mac kernels run on its GPU."
        )
    from softmetal import report
    from softmetal.report import files, processes

    for path in config.option.softmetal_report:
        if (why := files.refusal(path)) is not None:
            raise pytest.UsageError(f"--softmetal-report: {why}")
    config.option.softmetal_report = [os.path.abspath(path) for path in config.option.softmetal_report]
    report.start()
    config.add_cleanup(report.stop)
    config.stash[_gathering] = processes.Gathering()
    config.add_cleanup(config.stash[_gathering].close)


def is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def read_silences(config: pytest.Config, lines: list[str]) -> None:
    if sys.platform == "darwin":
        return  # nothing is found there
    try:
        from softmetal.report import silences
    except ImportError as error:
        raise pytest.UsageError(f"softmetal_benign: metal_dlpack cannot be imported: {error}") from error
    try:
        silences.read("\n".join(lines), "softmetal_benign")
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None
    config.add_cleanup(silences.forget)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if is_worker(config) and "softmetal.report.processes" in sys.modules:
        import softmetal
        from softmetal.report import processes

        softmetal.wait_idle(IDLE_S)
        processes.leave()
    if _gathering not in config.stash:
        return
    import softmetal
    from softmetal import report

    softmetal.wait_idle(IDLE_S)
    whole = config.stash[_gathering].end()
    words, is_bad = report.ended(whole, config.option.softmetal_report)
    config.stash[_report_text] = config.stash[_gathering].killed_words() + words
    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        if is_bad:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif config.option.softmetal_strict and not whole["kernels"]:
            session.exitstatus = 2


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _report_text in config.stash:
        terminalreporter.section("kernels")
        terminalreporter.write(config.stash[_report_text])
    wanted = [one for one in terminalreporter.getreports("skipped") if NAMES_A_GPU.search(str(one.longrepr))]
    if wanted and switched_on(config, config.option):
        terminalreporter.section("softmetal")
        terminalreporter.write_line(
            f"softmetal: {len(wanted)} of the skipped tests name mps or Metal, though both are there: "
            f"{wanted[0].nodeid} is the first. Did something ask for mps before it was switched on, or in another way?"
        )


# ---- fixtures ----


@pytest.fixture
def metal_settings() -> Generator[Configure]:
    """A function that changes settings of the software Metal, by name: metal_settings(latency_us=20_000).

    After the test they are restored.  On a Mac a test that calls it is skipped.
    """
    import softmetal

    before: dict[str, str | None] = {}

    def configure(**settings: object) -> None:
        if not softmetal.is_present():
            pytest.skip("needs the software Metal")
        for name, value in settings.items():
            old = current_settings([name])
            softmetal.configure(**{name: value})
            before.setdefault(name, old[name])

    yield configure
    if before:
        softmetal.configure(**before)
    if "fail" in before:
        forget_failures()


@pytest.fixture
def metal_buffers(request: pytest.FixtureRequest) -> Generator[Callable[[], int]]:
    """A function that counts the living MTLBuffers that were made since the test began.

    A test that passes and leaves one behind is an error.  On a Mac, which has no such count, it gives 0.
    """
    import softmetal

    if not softmetal.is_present():
        yield lambda: 0
        return
    before = count_buffers()
    yield lambda: count_buffers() - before
    if not request.node.stash.get(_has_passed, False):
        return  # what a failed test holds is its traceback's
    getattr(request.node, "funcargs", {}).clear()  # pytest keeps what fixtures gave for longer than their teardown
    if settled_count() > before and count_buffers() > before:
        request.node.stash[_buffers_before] = before


def count_buffers() -> int:
    """MTLBuffers that live once all work is done, what could die has died, and the pool is empty."""
    if settled_count() == 0:
        return 0  # saves a collection, which takes long beside a framework's million objects
    gc.collect()
    return settled_count()


def settled_count() -> int:
    """The same, with what waits for the collector."""
    import metal_dlpack as md
    import softmetal

    softmetal.wait_idle(2)  # finished work lets go of its buffers a moment after it tells so
    md.empty_cache()
    return softmetal.live_objects("MTLBuffer")


@pytest.fixture
def metal_reports(request: pytest.FixtureRequest) -> Generator[None]:
    """Turn validation on.  A test that makes a report, of a race or of wrong use, fails."""
    import softmetal

    if not softmetal.is_present():
        yield
        return
    wanted = {"validation": "1", "validation_mode": "log"}
    before = current_settings(wanted)
    softmetal.configure(**{name: os.environ.get(variable(name), value) for name, value in wanted.items()})
    yield
    if request.node.stash.get(_was_idle, False):
        softmetal.wait_idle(IDLE_S)  # work of other fixtures' teardowns, while it is still validated
    softmetal.configure(**before)


@pytest.fixture
def metal(metal_reports: None, metal_buffers: Callable[[], int], metal_settings: Configure) -> Configure:
    """Fail on races, wrong use and buffers left behind.  Call it to change settings: metal(latency_us=20_000)."""
    return metal_settings


# ---- what became of a test ----


def uses(item: pytest.Item, fixture: str) -> bool:
    return fixture in getattr(item, "fixturenames", ())


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, None]:
    if uses(item, "metal_reports"):
        import softmetal

        if softmetal.is_present():
            item.stash[_was_idle] = softmetal.wait_idle(0)
            item.stash[_reports_before] = softmetal.reports()
            item.stash[_kernel_reports_before] = count_kernel_reports()
    elif checks_kernels(item.config):
        item.stash[_findings_before] = count_findings()
    judge_reports(item, "setup", (yield))


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, None]:
    judge_reports(item, "call", (yield))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, None]:
    """The outermost: the log's records and the instance of the test's class hold buffers until here."""
    instance = getattr(item, "instance", None) if uses(item, "metal_buffers") else None
    outcome = yield
    judge_reports(item, "teardown", outcome)
    if item.stash.get(_was_idle, False) and count_kernel_reports() > item.stash[_kernel_reports_before]:
        forget_failures()
    if _buffers_before in item.stash:
        getattr(instance, "__dict__", {}).clear()  # pytest keeps it until the run ends
        judge_buffers(item.stash[_buffers_before], outcome)
        del item.stash[_buffers_before]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    if report.when == "call":
        item.stash[_has_passed] = report.passed
    has_options = bool(asked_settings(item.config.option))
    if report.failed and variables() and (has_options or uses(item, "metal_reports")):
        report.sections.append(("softmetal: repeat", " ".join([*variables(), "pytest", shlex.quote(item.nodeid)])))


def judge_reports(item: pytest.Item, phase: str, outcome: Any) -> None:
    """Let what the software Metal reported in this phase fail it; beside another failure, show it.

    Work is waited for after failures too: else its reports come in the next test.
    """
    if _findings_before in item.stash:
        judge_findings(item, phase, outcome)
    if _reports_before not in item.stash:
        return
    import softmetal

    is_late = item.stash[_was_idle] and phase != "setup" and not softmetal.wait_idle(IDLE_S)
    if is_late:
        item.stash[_was_idle] = False  # said once; the tests after this one are not to blame
    count = softmetal.reports()
    news = count - item.stash[_reports_before]
    item.stash[_reports_before] = count
    if not is_late and news == 0:
        return
    text = softmetal.last_report() if news else f"softmetal: GPU work is not done within {IDLE_S} s."
    if news > 1:
        text += f"\n(the last of {news} reports; the others are on stderr)"
    fail(item, phase, outcome, text)


def fail(item: pytest.Item, phase: str, outcome: Any, text: str) -> None:
    if outcome.excinfo is None:
        outcome.force_exception(pytest.fail.Exception(text, pytrace=False))
    else:
        item.add_report_section(phase, "softmetal", text)


def judge_findings(item: pytest.Item, phase: str, outcome: Any) -> None:
    """What the checker found in this phase's kernels fails it, whether the test waits for them or not."""
    count = count_findings()
    news, item.stash[_findings_before] = count - item.stash[_findings_before], count
    if news == 0:
        return
    import softmetal

    text = softmetal.last_report() + (f"\n(the last of {news})" if news > 1 else "")
    fail(item, phase, outcome, text)


def count_findings() -> int:
    """Count the findings of all kernels launched so far; begin torch's that nobody waits for."""
    if not reads_settings():
        return 0
    import softmetal

    softmetal.wait_idle(IDLE_S)
    return count_kernel_reports()


def count_kernel_reports() -> int:
    import softmetal

    return softmetal.reports("kernel")


def forget_failures() -> None:
    """Failures that a test has caused and not waited for are its own: the next test to wait would raise them."""
    import metal_dlpack as md
    import softmetal

    for device in md.devices() if softmetal.wait_idle(IDLE_S) else ():
        for _ in range(100):  # each wait raises the failure of one stream
            try:
                device.synchronize()
            except md.MetalError:
                continue
            break
    softmetal.wait_idle(IDLE_S)


def judge_buffers(before: int, outcome: Any) -> None:
    deadline = time.monotonic() + LET_GO_S
    while (kept := count_buffers() - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if kept > 0 and outcome.excinfo is None:
        outcome.force_exception(pytest.fail.Exception(f"{kept} MTLBuffers outlive the test.", pytrace=False))
