"""dlpack_conformance: each rule is lost by a library that breaks it, and by no other."""

import contextlib
import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest
from children import output_of, run_child
from places import KIT, SUPPORT, python_path
from toy_faults import Wild
from toy_library import Toy

import dlpack_conformance
from dlpack_conformance import RULES, Library, child, judge
from dlpack_conformance.__main__ import main
from dlpack_conformance.judging import try_alone

pytestmark = pytest.mark.needs_no_sanitizer  # children die on purpose

SIDES = ("producer", "consumer")
#: Faults that end the process, and the rules that they lose: tried as the kit tries them, in a child.
DEADLY = {
    ("producer", "deleter-thread"): {"deleter-thread"},
    ("consumer", "deleter-null"): {"deleter-null"},
    ("consumer", "major-later"): {"major-later"},
    ("consumer", "table-taken"): {"table-taken", "table-major"},  # which tries a good table first
    ("consumer", "table-major"): {"table-major"},
}
#: Faults that spoil what other rules look at: these lose more than their own.
WIDE = {"capsule-name", "items", "array-goes-on", "taken", "deleter-late"}
#: Libraries of toy_faults.py: how many tensors the cases ask of them, how many rules do not apply, which are lost.
#: The first number falls if a case tries less than it says.
TOYS = {
    "producer": {
        "Toy": (235, 0, ""),
        "VersionedOnly": (108, 10, ""),
        "Plain": (99, 20, "keywords"),
        "Elsewhere": (301, 9, ""),
        "Unreadable": (116, 26, "keywords"),
        "Wordy": (223, 1, ""),
        "Generous": (235, 1, ""),
        "Later": (235, 0, ""),
        "Circular": (235, 7, "table-chain"),
        "Bare": (217, 10, "version-asked"),
        "Copying": (225, 1, "copy-true"),
        "Rude": (225, 0, "copy-false copy-true copy-flag read-only"),
        "Greedy": (228, 5, "device-unknown stream-cpu version-asked unexportable byte-order copy-true table-error"),
        "Empty": (0, 45, ""),
    },
    "consumer": {
        "Toy": (140, 0, ""),
        "Choosy": (140, 0, ""),
        "Bare": (138, 1, ""),
        "Copying": (139, 1, ""),
        "Rude": (139, 1, "asks-in-form copy-false"),
        "Picky": (136, 9, "types-all"),
        "Leaky": (139, 0, "deleter-once table-taken"),
        "Greedy": (
            133,
            1,
            "capsule-other no-producer errors device-other types-bits types-unknown major-later table-major",
        ),
        "Empty": (0, 42, ""),
    },
}
#: Faults for which other rules do not apply, and how many.
ABSENT = {
    ("producer", "copy-none"): 1,
    ("producer", "copy-true"): 1,
    ("producer", "table-functions"): 1,
    ("consumer", "asks-version"): 5,
    ("consumer", "errors"): 2,
    ("consumer", "read-only-taken"): 1,
    ("consumer", "unaligned"): 1,
    ("consumer", "types-unknown"): 1,
}


def names_of(side):
    return [rule.name for rule in RULES if rule.side == side]


def broken(report):
    return {result.rule.name for result in report.of("broken")}


# ---- the rules ----


def test_a_rule_is_named_once_and_says_where_it_stands():
    assert len({(rule.side, rule.name) for rule in RULES}) == len(RULES) > 80
    for rule in RULES:
        assert rule.says.endswith("."), rule.name
        assert rule.source.url.startswith("https://"), rule.name


@pytest.mark.parametrize("side", SIDES)
def test_a_library_that_breaks_a_rule_loses_that_rule_and_one_that_does_what_it_may_loses_none(side):
    faults = [name for name in names_of(side) if (side, name) not in DEADLY]
    expected = TOYS[side] | {name: (ABSENT.get((side, name), 0), name) for name in faults}
    done = run_child(SUPPORT / "toy_faults.py", side, *expected, timeout=550)
    found = {}
    for name, lost, tensors, left in map(json.loads, done.stdout.splitlines()):
        broken = [rule for rule, (outcome, _) in lost.items() if outcome == "broken"]
        assert all(happened for _, happened in lost.values()), name
        assert left == 0 or name != "Toy", "tensors that are never deleted"
        found[name] = *([tensors] if name in TOYS[side] else []), len(lost) - len(broken), " ".join(broken)
        if name in WIDE and name in broken:
            expected[name] = found[name]
    assert found == expected, done.stderr


def test_a_library_that_dies_loses_the_case_and_not_the_run(subtests):
    for (side, rule), lost in DEADLY.items():
        library = f"toy_faults:{side}_{rule.replace('-', '_')}"
        with subtests.test(rule):
            for name in lost:
                assert try_alone(side, library, name, 30) == ("broken", "the process died of SIGSEGV")
    report = judge("consumer", library, ["empty", "table-major", "taken"])
    assert [result.outcome for result in report.results] == ["kept", "broken", "kept"]


@pytest.mark.parametrize("name", ["Hanging", "Deaf"])
def test_a_library_that_hangs_in_a_case_loses_it_and_not_the_run(name):
    report = judge("consumer", f"toy_faults:{name}", ["taken", "lanes", "deleter-once"], timeout_s=1)
    assert {result.rule.name: result.happened for result in report.of("broken")} == {"lanes": "no answer within 1 s"}
    assert len(report.of("kept")) == 2


def test_processes_that_a_library_leaves_behind_do_not_hold_the_run():
    status, said, _ = run("--consumer", "toy_faults:Forking", "--rule", "taken", "--rule", "empty")
    assert (status, said.count("keeps 2 of 2 rules")) == (0, 1), said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_no_child(number, tmp_path):
    code = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); runpy.run_module('dlpack_conformance', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", code, "--consumer", "toy_faults:Waiting", "--rule", "taken"]
    environment = {**os.environ, "PYTHONPATH": python_path(), "TOY_PID": str(tmp_path / "pid")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as kit:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert kit.poll() is None
            time.sleep(0.05)
        kit.send_signal(number)
        _, error = kit.communicate(timeout=60)
    assert (kit.returncode, error) == (128 + number, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_rule_that_is_named_twice_is_tried_once_and_one_of_the_other_side_is_none():
    report = judge("consumer", "toy_faults:Toy", ["taken", "lanes", "taken"])
    assert [result.rule.name for result in report.results] == ["taken", "lanes"]
    assert {report: "a key, since nothing of it can change"}[report]
    with pytest.raises(LookupError, match="there is no rule 'copy-flag' for a consumer"):
        judge("consumer", "numpy", ["copy-flag"])


def test_a_tensor_that_leads_anywhere_is_not_followed(monkeypatch, subtests):
    for field, happened in [
        (["ndim", 2**31 - 1], "the tensor's ndim is 2147483647"),
        (["ndim", -1], "the tensor's ndim is -1"),
        (["shape", [2**40, 2**40]], "the tensor's shape is [1099511627776]"),
        (["shape", [-6, 1]], "the tensor's shape is [-6]"),
        (["shape", None], "the tensor's shape is NULL"),
        (["data", None], "the tensor's data is NULL"),
        (["device", [2, 0]], "the tensor is on device (2, 0), which the CPU cannot read"),
    ]:
        with subtests.test(str(field)):
            monkeypatch.setenv("TOY_FIELD", json.dumps(field))
            (rule,) = (rule for rule in RULES if (rule.side, rule.name) == ("producer", "items"))
            assert child.try_rule(rule, Wild()) == ("broken", happened)


def test_a_case_that_another_has_broken_is_tried_alone():
    report = judge("consumer", "toy_faults:Spoiling", ["asks-in-form", "asks-version", "asks-stream"])
    assert [result.outcome for result in report.results] == ["kept"] * 3


@pytest.mark.parametrize(
    ("raised", "happened"),
    [
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("two\nlines, \x1b[31mred\udc80"), r"ValueError: two lines, \x1b[31mred\udc80"),
        (ValueError("x" * 5000), f"ValueError: {'x' * 385}..."),
    ],
    ids=["error", "exit", "interrupt", "letters", "length"],
)
def test_what_a_library_raises_is_what_happened(raised, happened):
    class Raising(Toy):
        def from_dlpack(self, producer, **keywords):
            raise raised

    (rule,) = (rule for rule in RULES if rule.name == "taken")
    assert child.try_rule(rule, Raising()) == ("broken", happened)
    assert child.try_rule(rule, Library()) == ("absent", "it has no from_dlpack")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.rule("import-flavours", "import-once", "import-errors", "import-no-dlpack")
def test_metal_dlpack_keeps_every_rule_and_follows_all_advice(side):
    report = judge(side, "metal_dlpack")
    assert broken(report) == set()
    assert {result.rule.name for result in report.of("absent")} <= {"unexportable", "byte-order", "table-error"}


# ---- the command ----


def run(*arguments):
    """The command's status and what it prints; test_a_run_that_is_stopped_leaves_no_child starts it as users do."""
    said, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
        try:
            status = main([*arguments])
        except SystemExit as end:
            status = end.code
    return status, said.getvalue(), error.getvalue()


def test_the_command_shows_what_happened_and_what_the_standard_says():
    status, said, _ = run("--producer", "toy_faults:producer_copy_flag", "--consumer", "toy_faults:Toy")
    assert status == 1
    assert "Toy as producer: keeps 33 of 34 rules, follows 12 of 12 pieces of advice" in said
    assert "Toy as consumer: keeps 32 of 32 rules, follows 11 of 11 pieces of advice" in said
    for text in (
        "broken  copy-flag",
        "happened  the flags of a copy are 0x0",
        "A copy has the flag IS_COPIED.",
        "https:",
    ):
        assert text in said, said


@pytest.mark.parametrize(
    ("expected", "why", "words"),
    [
        (0, "", "--producer toy_faults:Toy --rule items"),
        (0, "", "--producer toy_faults:producer_flags --rule flags"),  # advice
        (0, "", "--producer toy_faults:producer_items --rule copy-flag"),
        (2, "no_such_module", "--producer no_such_module:Toy"),
        (2, "nothing", "--producer toy_faults:nothing"),
        (2, "numpyy", "--consumer numpyy"),
        (2, "copy-flag", "--consumer toy_faults:Toy --rule copy-flag"),
        (2, "nan", "--consumer toy_faults:Toy --timeout nan"),
        (2, "-1", "--consumer toy_faults:Toy --timeout -1"),
        (2, "", ""),
        (2, "it cannot be judged as a producer, since it has no make", "--producer toy_faults:Empty"),
        (2, "it cannot be judged as a consumer, since it has no from_dlpack", "--consumer toy_faults:Empty"),
        (2, "toy_faults:Unmakeable: ZeroDivisionError: by zero", "--consumer toy_faults:Unmakeable"),
    ],
)
def test_the_exit_status_says_how_it_went_and_the_error_why(expected, why, words):
    status, _, error = run(*words.split())
    assert (status, why in error, "Traceback" in error) == (expected, True, False), error


def test_a_side_that_has_none_of_the_rules_is_left_out():
    status, said, _ = run("--producer", "toy_faults:Toy", "--consumer", "toy_faults:Toy", "--rule", "copy-flag")
    assert (status, said.count(" as ")) == (0, 1), said


def test_the_json_has_each_rule():
    status, said, _ = run("--consumer", "toy_faults:consumer_copy_true", "--json")
    (report,) = json.loads(said)
    assert status == 1
    assert {result["rule"]: result["outcome"] for result in report["results"]}["copy-true"] == "broken"
    assert len(report["results"]) == len(names_of("consumer"))


def test_the_list_has_each_rule(capsys):
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    for rule in RULES:
        assert f" {rule.name}\n" in said


FRAMEWORKS = {"numpy", "torch", "jax", "mlx", "tvm_ffi", "pyarrow"}


def loaded_after(*steps, **environment):
    """Which modules of the three packages, and which frameworks, a process has after each step."""
    known = {"metal_dlpack", "softmetal", "dlpack_conformance", *FRAMEWORKS}
    tell = f"print(*(n for n in sys.modules if n in {known} or n.startswith('dlpack_conformance.')))"
    said = output_of("\n".join(["import sys", *(f"{step}\n{tell}" for step in steps)]), **environment)
    return [set(line.split()) for line in said.splitlines()]


TIES = {"dlpack_conformance", "dlpack_conformance.tied_process"}


def test_who_needs_one_module_of_it_loads_no_other_and_judging_loads_no_framework():
    one, judging = loaded_after(
        "import dlpack_conformance.tied_process",
        "import dlpack_conformance as c; c.RULES, c.LIBRARIES, c.judge",
    )
    assert one == TIES
    assert len(judging) > 9 and not judging & {*FRAMEWORKS, "metal_dlpack"}


@pytest.mark.needs_softmetal
@pytest.mark.needs_kernels
def test_the_bridge_loads_none_of_it_and_a_kernel_that_is_compiled_what_ties_a_child(tmp_path):
    kernel = "kernel void f(device float *x [[buffer(0)]]) { x[0] = 1; }"
    steps = "import metal_dlpack as md", f"md.kernel({kernel!r})"
    alone, compiled = loaded_after(*steps, SOFTMETAL_CACHE=str(tmp_path))
    assert alone == {"metal_dlpack"}
    assert compiled == {"metal_dlpack", "softmetal", *TIES}


def test_its_old_name_is_the_same_kit():
    listed = [output_of(["-m", name, "--list"]) for name in ("dlpack_conformance", "metal_dlpack.conformance")]
    assert listed[0] == listed[1] != ""
    old = importlib.import_module("metal_dlpack.conformance")
    assert all(getattr(old, name) is getattr(dlpack_conformance, name) for name in dlpack_conformance.__all__)
    assert old.__all__ == dlpack_conformance.__all__
    assert set(dlpack_conformance.__all__) <= set(dir(dlpack_conformance))
    with pytest.raises(AttributeError, match="'dlpack_conformance' has no attribute 'jugde'"):
        dlpack_conformance.jugde  # noqa: B018


@pytest.mark.needs_numpy
def test_its_folder_runs_where_the_extension_is_not_built(tmp_path):
    """From its wheel, unpacked beside NumPy: no compiler built it, and there is neither metal_dlpack nor softmetal."""
    folder = shutil.copytree(KIT, tmp_path / "kit", ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    run_child("import setuptools; setuptools.setup()", "-q", "bdist_wheel", "-d", tmp_path, cwd=folder, check=True)
    (wheel,) = tmp_path.glob("dlpack_conformance-*-py3-none-any.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    (tmp_path / "softmetal.py").write_text("raise ImportError('not there')")
    (tmp_path / "metal_dlpack.py").write_text("raise ImportError('not built')")
    command = ["-m", "dlpack_conformance", "--producer", "numpy", "--consumer", "numpy", "--scores"]
    done = run_child([*command, "--rule", "items", "--rule", "taken"], cwd=tmp_path)
    assert (done.returncode, done.stdout.count("NumPy"), done.stderr) == (0, 2, ""), done.stdout


# ---- under pytest ----


def run_pytest(folder, *arguments, settings=""):
    (folder / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\n{settings}\n")
    (folder / "test_it.py").write_text("def test_of_the_library():\n    pass\n")
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "_dlpack_conformance_pytest", *arguments]
    done = run_child(command, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    return done.stdout + done.stderr


def test_each_rule_is_a_test_and_advice_fails_none(tmp_path):
    libraries = "--dlpack-producer=toy_faults:producer_copy_flag", "--dlpack-consumer=toy_faults:consumer_device_other"
    said = run_pytest(tmp_path, "-m", "dlpack", *libraries, "-rs")
    count = len(RULES) - 2
    assert f"1 failed, {count} passed, 1 skipped, 1 deselected" in said, said
    assert "toy_faults:producer_copy_flag::producer::copy-flag" in said
    assert "happened: the flags of a copy are 0x0" in said
    assert "standard: A copy has the flag IS_COPIED." in said
    assert "advice: RuntimeError: which device?" in said


def test_a_known_failure_must_fail_and_who_is_named_twice_is_judged_once(tmp_path):
    """A library that is not there fails each rule, known or not, and says why."""
    names = ["consumer_copy_true", "Toy", "Toy", "Unmakeable"]
    asked = [word for name in names for word in ("--dlpack-consumer", f"toy_faults:{name}")]
    settings = 'dlpack_known_failures = ["consumer copy-true"]'
    said = run_pytest(tmp_path, "-k", "consumer and copy", *asked, settings=settings)
    assert "4 failed, " in said and "1 xfailed" in said, said
    assert "[XPASS(strict)] in dlpack_known_failures" in said, said
    assert said.count("\ntoy_faults:Unmakeable: ZeroDivisionError: by zero\n") == 3, said


def test_a_known_failure_of_no_rule_is_an_error(tmp_path):
    said = run_pytest(tmp_path, "--dlpack-consumer", "numpy", settings='dlpack_known_failures = ["consumer copytrue"]')
    assert "there is no rule 'consumer copytrue'" in said, said
