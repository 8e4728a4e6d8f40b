"""The pytest plugin: real runs of pytest, in which tests leak, race and use Metal wrongly."""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from places import python_path

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]

#: For tests that send messages to Metal's objects.
HEAD = """
import pytest
import metal_dlpack as md
import softmetal
from objc_messages import gpu_fill, pool, send

kept = []

def ask_for_nothing():
    with pool():
        assert not send(md.default_device().handle, "newBufferWithLength:options:", 0, 0)

def race():
    array = md.zeros(64, "uint8")
    gpu_fill(array.buffer.handle, 1, 64, waits=False)
    array.tolist()
"""

#: Only this plugin, by the name of its entry point: the others that are installed take seconds to import.
ALONE = ["-p", "metal_dlpack", "-p", "no:cacheprovider"]
#: Beside the tests, or pytest would take the settings of a folder above: tests/conftest.py's, where that is ours.
INI = "[pytest]\n"


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on a file of tests, in a process of its own."""
    for name in list(os.environ):
        if name.startswith("SOFTMETAL_"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", python_path())
    pytester.makeini(INI)

    def run(text, *options, head=HEAD, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        pytester.makepyfile(test_it=head + text)
        return pytester.runpytest_subprocess(*ALONE, *options)

    return run


def said(result) -> str:
    return result.stdout.str() + result.stderr.str()


# ---- one run for many: a process for each file would take a second ----

KERNEL = """
KERNEL = md.kernel(
    "#include <metal_stdlib>\\nusing namespace metal;\\n"
    "kernel void f(device float *x, uint i [[thread_position_in_grid]]) {\\n  x[0] = i;\\n}"
)

def test_it(metal):  # FAILED
    KERNEL(md.zeros(4), n=4)

def test_without_a_fixture():
    x = md.zeros(4)
    KERNEL(x, n=4)
    with pytest.raises(md.MetalError, match="program_source:4:"):
        x.tolist()
"""
#: Behind a test stands how it ends, PASSED where nothing does; `says` is a pattern of what its file's report says.
CASES = {
    "a test that passes and leaves a buffer behind is an error": r"""
# says: 2 MTLBuffers outlive the test\.
def test_it(metal):  # ERROR PASSED
    kept.append([md.zeros(100), md.zeros(100)])
""",
    "of a test that fails and leaks only its failure is shown": """
# says: its own
# says: (?s)\\A(?!.*outlive)
def test_it(metal):  # FAILED
    kept.append(md.zeros(100))
    assert kept == 'its own'
""",
    "what a fixture held is no leak": """
@pytest.fixture
def array(metal):
    return md.zeros(100)

@pytest.fixture(scope="module")
def shared():
    return md.zeros(100)

def test_it(metal, array, shared, metal_buffers):
    assert metal_buffers() == 1
    more = md.zeros(10)
    assert metal_buffers() == 2
""",
    # The instance of its class, and the arguments of its log records.
    "what pytest keeps of a test is no leak": r"""
# says: 1 MTLBuffers outlive the test\.
import logging
import unittest

class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def checked(self, metal):
        pass

    def setUp(self):
        self.first = md.zeros(3)

    def test_it(self):
        self.second = md.zeros(4)

    def test_wrong(self):  # FAILED
        ask_for_nothing()

class TestClass:
    @pytest.fixture(autouse=True)
    def checked(self, metal):
        self.first = md.zeros(3)

    def setup_method(self):
        self.second = md.zeros(3)

    def test_it(self):
        self.third = md.zeros(4)

    def teardown_method(self):
        assert self.first.size + self.third.size == 7

def test_log(metal):
    logging.warning("an array: %s", md.zeros(3))

def test_leak(metal):  # ERROR PASSED
    kept.append(md.zeros(3))
""",
    "a test with only one of the fixtures is judged by that": """
def test_settings(metal_settings):
    kept.append(md.zeros(100))
    metal_settings(latency_us=10, seed=3)

def test_reports(metal_reports):
    kept.append(md.zeros(100))
""",
    "wrong use fails the test that does it": """
# says: softmetal: zero-length:
def test_wrong(metal):  # FAILED
    ask_for_nothing()

def test_right(metal):
    md.zeros(3)
""",
    "a race fails the test with both places": """
# says: softmetal: race: .*a write of bytes 0 to 64 by queue \\d+, encoded at \\S+
# says: softmetal: race: .*a read of bytes 0 to 64 by the CPU at \\S+
def test_it(metal):  # FAILED
    metal(latency_us=20_000)
    race()
""",
    "kernels are checked": """
# says: softmetal: kernel: f: two threads write byte 0 of buffer 0 \\(x\\).*program_source:4:
# says: (?s)\\A(?!.*SOFTMETAL_KERNEL_CHECK)
"""
    + KERNEL,
    "failures that a test did not wait for are not those of the next": """
streams = [md.Stream(), md.default_device().default_stream]

def test_wrong(metal):
    metal(fail="commit@1+=OutOfMemory")
    for stream in streams:
        md.zeros(8).fill(1, stream=stream)

@pytest.mark.parametrize("stream", streams)
def test_right(metal, stream):
    stream.synchronize()
""",
    "the failure of a kernel is not that of the next test": """
def test_wrong(metal):  # FAILED
    past_the_end = "kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i + 4] = 1; }"
    md.kernel(past_the_end)(md.zeros(4), n=4)

def test_right(metal):
    md.default_device().synchronize()
""",
    # The report comes when the GPU is done, after the function has returned.
    "the work of a test is its own however late it is and however the test ends": """
# says: the last of \\d reports
def test_wrong(metal):  # FAILED
    metal(latency_us=50_000)
    ask_for_nothing()
    race()

def test_right(metal):
    pass

def test_that_fails(metal):  # FAILED
    metal(latency_us=200_000)
    race()
    raise KeyError("its own")

@pytest.fixture
def late(metal_reports):
    yield
    softmetal.configure(latency_us=200_000)
    race()
    softmetal.configure(latency_us=None)

def test_late(late):  # ERROR PASSED
    pass

def test_after(metal):
    pass
""",
    "a report that is expected is xfailed": """
@pytest.mark.xfail(reason="known")
def test_one(metal):  # XFAIL
    ask_for_nothing()

@pytest.mark.xfail(reason="known", strict=True)
def test_two(metal):  # XFAIL
    race()
""",
    "a failure shows the reports beside its own": """
# says: KeyError: .beside.
def test_it(metal):  # FAILED
    race()
    raise KeyError('beside')
""",
    "a report of a fixture is an error": """
@pytest.fixture
def early(metal):
    ask_for_nothing()

@pytest.fixture
def late(metal):
    yield
    ask_for_nothing()

def test_early(early):  # ERROR
    assert False, "not run"

def test_late(late):  # ERROR PASSED
    pass
""",
    "the collector works as ever": """
import gc, weakref

class Cycle:
    pass

held = {}
frozen = gc.get_freeze_count()  # Python 3.12 begins with hundreds

def test_makes_garbage_to_be():
    cycle = Cycle()
    cycle.me = held["cycle"] = cycle
    held["weak"] = weakref.ref(cycle)

def test_counts_buffers(metal_buffers):
    del held["cycle"]
    gc.collect()
    assert held["weak"]() is None
    assert gc.get_freeze_count() <= frozen

def test_finds_no_object_frozen_by_others(metal):
    assert gc.get_freeze_count() <= frozen
""",
    "garbage is collected before buffers are counted": """
def test_a_buffer_in_a_cycle_is_no_leak(metal):
    cycle = [md.zeros(100)]
    cycle.append(cycle)

def test_a_count_includes_no_garbage(metal_buffers):
    cycle = [md.zeros(100)]
    cycle.append(cycle)
    del cycle
    assert metal_buffers() == 0

def test_keeps_one():
    kept.append(md.zeros(100))

def test_a_buffer_in_a_cycle_is_no_leak_beside_others(metal):
    cycle = [md.zeros(100)]
    cycle.append(cycle)
""",
}
ENDS = re.compile(r"def (test_\w+)\(.*\):(?:  # ([A-Z ]+))?$", re.MULTILINE)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What is said of all, and each file's part of the report."""
    folder = tmp_path_factory.mktemp("together")
    (folder / "tox.ini").write_text(INI)
    files = {name: folder / f"test_{name.replace(' ', '_')}.py" for name in CASES}
    for name, file in files.items():
        file.write_text(HEAD + CASES[name])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SOFTMETAL_", "PYTEST_"))}
    # Which compiler makes kernels, the machine decides: PATH's may not link for it.
    kept |= {name: os.environ[name] for name in ["SOFTMETAL_CXX"] if name in os.environ}
    command = [sys.executable, "-m", "pytest", *ALONE, "-rA", "--junitxml=report.xml", *files.values()]
    environment = kept | {"PYTHONPATH": python_path(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    reports = list(ElementTree.parse(folder / "report.xml").iter("testcase"))
    return done.stdout, {
        name: "\n".join("".join(one.itertext()) for one in reports if one.get("classname").startswith(file.stem))
        for name, file in files.items()
    }


def outcomes_of(name, whole):
    """(a test's name, its words in pytest's summary)"""
    found = {}
    for word, test in re.findall(rf"^([A-Z]+) test_{name.replace(' ', '_')}\.py::([\w:\[\]]+)", whole, re.MULTILINE):
        found[test] = " ".join(sorted([word, *found.get(test, "").split()]))
    return {(test.rpartition("::")[2].partition("[")[0], words) for test, words in found.items()}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs_kernels if "md.kernel(" in CASES[name] else ()) for name in CASES],
)
def test_each_test_ends_as_it_should(name, results):
    whole, reports = results
    assert outcomes_of(name, whole) == {(test, words or "PASSED") for test, words in ENDS.findall(CASES[name])}
    for pattern in re.findall("^# says: (.*)$", CASES[name], re.MULTILINE):
        assert re.search(pattern, reports[name]), pattern


def test_a_failure_shows_the_reports_beside_its_own(results):
    assert re.search(r"KeyError: .beside.(?s:.*)- Captured softmetal call -.*\nsoftmetal: race: ", results[0])


# ---- it costs nothing unless it is used ----


def test_without_a_fixture_or_an_option_the_package_is_not_imported(run):
    result = run("def test_it():\n    import sys\n    assert 'metal_dlpack' not in sys.modules\n", head="")
    result.assert_outcomes(passed=1)
    assert "softmetal" not in said(result)


@pytest.mark.long
def test_it_can_be_left_out(pytester):
    pytester.makeini(INI)
    pytester.makepyfile("def test_it(metal):\n    pass\n")
    result = pytester.runpytest_subprocess("-p", "no:metal_dlpack")
    result.assert_outcomes(errors=1)
    assert "fixture 'metal' not found" in said(result)


@pytest.mark.long
def test_a_package_that_cannot_be_imported_costs_only_the_tests_that_need_it(run, pytester, monkeypatch):
    broken = pytester.mkpydir("metal_dlpack")
    (broken / "__init__.py").write_text("raise ImportError('no libobjc')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), python_path()]))
    text = "def test_one():\n    pass\n\ndef test_two(metal):\n    pass\n\ndef test_three():\n    pass\n"
    result = run(text, head="")
    result.assert_outcomes(passed=2, errors=1)
    assert "ImportError: no libobjc" in said(result)
    result = run(text, "--softmetal-seed=3", head="")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "metal_dlpack cannot be imported: no libobjc" in said(result)


# ---- reports ----


@pytest.mark.needs_kernels
@pytest.mark.long
def test_kernels_are_not_checked_where_the_environment_says_so(run):
    result = run(KERNEL, SOFTMETAL_KERNEL_CHECK="0")
    result.assert_outcomes(passed=1, failed=1)
    assert "two threads write" not in said(result)


@pytest.mark.long
def test_work_that_never_ends_fails_the_test(run):
    result = run("""
import _metal_dlpack_pytest as plugin

def test_it(metal_reports):
    plugin.IDLE_S = 0.05
    softmetal.configure(latency_us=300_000)
    kept.append(md.Stream())
    md.zeros(8).fill(1, stream=kept[0])

def test_right(metal_reports):
    pass
""")
    result.assert_outcomes(failed=1, passed=1)
    assert "GPU work is not done within 0.05 s" in said(result)


# ---- settings ----

ASK = """
import time

def once():
    stream = md.Stream()
    start = time.perf_counter()
    md.zeros(8).copy_from(md.zeros(8), stream=stream)  # a blit: no kernel is compiled
    stream.synchronize()
    return time.perf_counter() - start

def latency():
    return min(once() for _ in range(3))  # a busy machine adds to some

def test_before():
    assert {0}

def test_it(metal_settings):
    metal_settings(latency_us=200_000)
    assert latency() > 0.2

def test_after():
    assert {0}
"""


@pytest.mark.parametrize(
    ("options", "environment", "then"),
    [
        ([], {}, "latency() < 0.02"),
        (["--softmetal-latency=30000"], {}, "0.03 < latency() < 0.2"),
        (["--softmetal-settings=poison=1,latency_us=30000"], {}, "0.03 < latency() < 0.2"),
        ([], {"SOFTMETAL_LATENCY_US": "30000"}, "0.03 < latency() < 0.2"),
    ],
    ids=["defaults", "latency", "settings", "environment"],
)
@pytest.mark.long
def test_after_a_test_the_settings_are_those_of_the_run(run, options, environment, then):
    result = run(ASK.replace("{0}", then), *options, **environment)
    result.assert_outcomes(passed=3)


@pytest.mark.long
def test_settings_are_there_for_processes_that_tests_start(run):
    text = "import os\n\ndef test_it():\n    assert os.environ['SOFTMETAL_FAIL'] == 'buffer@3,queue'\n"
    result = run(text, "--softmetal-settings=fail=buffer@3,queue,discrete=1", "--softmetal-seed=4", head="")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["softmetal: SOFTMETAL_DISCRETE=1 SOFTMETAL_FAIL=buffer@3,queue SOFTMETAL_SEED=4"])


def test_a_random_seed_is_said_and_how_to_repeat(run):
    result = run("def test_it(metal):\n    assert False\n", "--softmetal-seed=random")
    (seed,) = re.findall(r"^softmetal: SOFTMETAL_SEED=(\d+)$", result.stdout.str(), re.MULTILINE)
    assert int(seed) > 0
    result.stdout.fnmatch_lines(["*- softmetal: repeat -*", f"SOFTMETAL_SEED={seed} pytest test_it.py::test_it"])


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--softmetal-seed=seven", "no setting 'SOFTMETAL_SEED' that can be 'seven'"),
        ("--softmetal-settings=nonsense=1", "no setting 'SOFTMETAL_NONSENSE'"),
        ("--softmetal-settings=poison", "must be NAME=VALUE"),
    ],
)
@pytest.mark.long
def test_what_is_not_understood_is_said(run, option, words):
    result = run("def test_it():\n    pass\n", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in said(result)


@pytest.mark.long
def test_on_a_mac_the_options_say_what_they_need_and_the_fixtures_do_nothing(run, pytester):
    pytester.makepyfile(
        no_softmetal="import softmetal\nsoftmetal.is_present = lambda: False\n"
        "del softmetal._core._softmetal_live_objects, softmetal._core._softmetal_reports\n"
    )
    result = run("def test_it():\n    pass\n", "-p", "no_softmetal", "--softmetal-seed=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "need the software Metal" in said(result)
    text = """
def test_checks(metal, metal_buffers):
    kept.append(md.zeros(3))
    assert metal_buffers() == 0

def test_settings(metal):
    metal(latency_us=3)
"""
    run(text, "-p", "no_softmetal").assert_outcomes(passed=1, skipped=1)


# ---- with others ----


@pytest.mark.long
def test_it_works_with_xdist(run):
    pytest.importorskip("xdist")
    text = """
import os

@pytest.mark.parametrize("number", range(4))
def test_seed(metal, number):
    print("seed", os.environ["SOFTMETAL_SEED"])
    assert number == 4

def test_race(metal):
    race()

def test_leak(metal):
    kept.append(md.zeros(3))
"""
    result = run(text, "-p", "xdist", "-n", "2", "--softmetal-seed=random")
    result.assert_outcomes(failed=5, passed=1, errors=1)
    seeds = re.findall(r"^seed (\d+)$", result.stdout.str(), re.MULTILINE)
    assert len(seeds) == 4 and len(set(seeds)) == 1
    assert "MTLBuffers outlive the test" in said(result)
    assert "softmetal: race: " in said(result)
    assert f"SOFTMETAL_SEED={seeds[0]} pytest test_it.py::test_race" in said(result)


# ---- what belongs to the whole process is as it was ----


#: Runs pytest in a process that has settings of its own, and says what of the process's is not as it was.
IN_PROCESS = """
import gc, json, os, signal, sys, threading, warnings
import pytest

configured, options, names = map(json.loads, sys.argv[1:])
if configured is not None:
    import softmetal
    softmetal.configure(**configured)

def settings():
    # of one that has not been loaded: what it would read
    configured = getattr(sys.modules.get("softmetal.controls"), "configured", {})
    return {name: configured.get(name, os.environ.get("SOFTMETAL_" + name.upper())) for name in names}

def state():
    return {
        "settings": settings(),
        "environment": dict(os.environ),
        "finders": [type(finder).__module__ for finder in sys.meta_path if "metal" in type(finder).__module__],
        "collector": [gc.get_freeze_count(), gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)],
        "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
        "hooks": [str(hook) for hook in (threading.excepthook, sys.unraisablehook, sys.excepthook, sys.displayhook)],
        "folder": os.getcwd(),
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), threading.stack_size()],
        "warnings": [str(one) for one in warnings.filters],
    }

before = state()
status = pytest.main(options)
changed = {name: [before[name], now] for name, now in state().items() if before[name] != now}
assert (int(status), changed) == (0, {}), (status, changed)
"""

USES_ALL = """
def test_changes_settings(metal):
    metal(latency_us=300, seed=7, validation_mode="abort", fail="buffer@100", kernel_check=0)
    md.zeros(3)

def test_changes_them_again(metal_settings):
    metal_settings(latency_us=400)
    metal_settings(latency_us=500, poison=1)

def test_counts(metal_reports, metal_buffers):
    assert metal_buffers() == 0

def test_torch_is_switched_on_where_it_is_asked_for(pytestconfig):
    import os, sys
    is_asked = pytestconfig.option.softmetal_torch
    assert os.environ.get("SOFTMETAL_TORCH") == ("1" if is_asked else None) and "SOFTMETAL_MLX" not in os.environ
    assert sum(type(finder).__module__ == "_metal_dlpack_imports" for finder in sys.meta_path) == is_asked
"""


@pytest.mark.parametrize(
    "options",
    [[], ["--softmetal-torch", "--softmetal-seed=3", "--softmetal-settings=latency_us=100,poison=1"]],
    ids=len,
)
@pytest.mark.parametrize("environment", [{}, {"SOFTMETAL_LATENCY_US": "70", "SOFTMETAL_KERNEL_CHECK": "1"}], ids=len)
@pytest.mark.parametrize(
    "configured",
    [None, {}, {"latency_us": 50, "validation": 1, "validation_mode": "log", "poison": 1, "kernel_check": 0}],
    ids=["not loaded", "loaded", "configured"],
)
@pytest.mark.some(4)
def test_a_run_leaves_the_process_as_it_was(run, pytester, options, environment, configured):
    pytester.makepyfile(test_it=HEAD + USES_ALL)
    names = ["latency_us", "seed", "validation", "validation_mode", "poison", "fail", "kernel_check"]
    given = [configured, [*ALONE, "-q", *options], names]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS, *map(json.dumps, given)],
        env=kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
