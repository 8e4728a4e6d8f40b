"""The tool that runs other libraries' suites: its causes and counts on made-up results, and its page."""

import json
import random
import re
import subprocess
import sys

import pytest
import suites
import suites_rows
from suites_rows import DIED, Result

CAUSES = {"wide": {"says": "no float64", "rule": "MPS has no float64"}, "kept": {"says": "(?!)", "rule": "as a Mac"}}
#: What a test does on the CPU and on mps, and where it counts.
FATES = {
    "on_mps": [("passed", "passed", ""), ("failed", "passed", "")],
    "skipped": [("passed", "skipped", ""), ("failed", "skipped", "")],
    "failed_on_both": [("failed", "failed", "no float64"), ("failed", "failed", DIED)],
    "refused": [("passed", "failed", "TypeError: no float64")],
    "crashes": [("passed", "failed", f"{DIED}: -11")],
    "ours": [("passed", "failed", "AssertionError: 1 != 2\nmore")],
    None: [("skipped", "passed", ""), ("skipped", "failed", "")],
}


@pytest.mark.parametrize("seed", range(20))
def test_each_test_counts_once_and_by_its_fate(seed):
    draw = random.Random(seed)
    fates = [draw.choice(list(FATES)) for _ in range(draw.randrange(60))]
    cpu, mps = {}, {}
    for number, fate in enumerate(fates):
        there, here, said = draw.choice(FATES[fate])
        cpu[f"t.py::test[cpu-{number}]"] = Result(there, "", 1.0)
        mps[f"t.py::test[mps-{number}]"] = Result(here, said, 3.0)
    row = suites_rows.row_of(cpu, mps, CAUSES, {})
    assert row.tests == sum(fate is not None for fate in fates)
    assert row.on_cpu == sum(cpu[t].outcome == "passed" for t in cpu)
    counted = {name: getattr(row, name) for name in FATES if name}
    counted.update(refused=sum(row.refused.values()), crashes=len(row.crashes), ours=len(row.ours))
    assert counted == {name: fates.count(name) for name in counted}
    assert sum(counted.values()) == row.tests
    assert row.ratio in (0.0, 3.0)


def test_tests_of_mps_alone_count_where_that_is_said():
    cpu = {"a": Result("skipped"), "b": Result("skipped"), "c": Result("skipped"), "d": Result("passed")}
    mps = {"a": Result("passed"), "b": Result("failed", "wrong"), "c": Result("skipped"), "d": Result("passed")}
    row = suites_rows.row_of(cpu, mps, CAUSES, {}, of_mps=True)
    assert (row.tests, row.on_cpu, row.on_mps, row.skipped, [*row.ours]) == (3, 1, 2, 0, ["b"])


def test_of_a_suite_that_tries_the_cpu_beside_mps_only_mps_counts():
    cpu = {"t.py::test[cpu]": Result("passed")}
    for order in (["t.py::test[cpu]", "t.py::test[mps]"], ["t.py::test[mps]", "t.py::test[cpu]"]):
        outcomes = {"t.py::test[cpu]": Result("passed"), "t.py::test[mps]": Result("failed", "wrong")}
        row = suites_rows.row_of(cpu, {name: outcomes[name] for name in order}, CAUSES, {})
        assert (row.tests, row.on_mps, list(row.ours)) == (1, 0, ["t.py::test[cpu]"])


def test_a_name_is_the_same_on_both_devices_and_other_words_stay():
    same = suites_rows.same_test
    assert same("test_a.py::T::test[mps-float32]") == same("test_a.py::T::test[cpu-float32]")
    assert same("test_a.py::TestPackMPS::test_mps_int8") == same("test_a.py::TestPackCPU::test_cpu_int8")
    assert same("test[mps:0]") == same("test[mps0]") == "test[cpu]"
    assert same("test_ramps.py::test_mpsx") == "test_ramps.py::test_mpsx"


def test_what_is_known_by_name_comes_before_what_is_said():
    assert suites_rows.cause_of("no float64", "a::b", CAUSES, {"kept": ["a::*"]}) == "kept"
    assert suites_rows.cause_of("no float64", "c::b", CAUSES, {"kept": ["a::*"]}) == "wide"
    assert suites_rows.cause_of("wrong", "c::b", CAUSES, {"kept": ["a::*"]}) is None


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support", "float64"),
        ("TypeError: Trying to convert ComplexDouble to the MPS backend but it does not", "complex128"),
        ("The operator 'aten::mode' is not currently implemented for the MPS device. If", "no-kernel"),
        ("Could not run 'aten::_to_sparse_csr' with arguments from the 'SparseMPS' backend.", "no-kernel"),
        ("Could not run 'aten::add' with arguments from the 'MPS' backend.", None),
        ("RuntimeError: storage_device.is_cpu() || storage_device.is_cuda() || storage_device.is_xpu()", "nested"),
        ("RuntimeError: Expected all tensors to be on the same device, but found", "other-device"),
        ("TypeError: can't convert mps:0 device type tensor to numpy. Use Tensor.cpu()", "numpy"),
        ("RuntimeError: Backend doesn't support getting stream native handle.", "stream-handle"),
        ("RuntimeError: Expected a 'mps' device type for generator but found 'cpu'", "generator"),
        ("The values for attribute 'device' do not match: cpu != mps:0.", "expects-cpu"),
        ("hook 'hook' has changed the type of value (was MPSFloatType got torch.FloatTensor)", "hook-thread"),
        ("hook 'hook' has changed the type of value (was MPSFloatType got torch.mps.HalfTensor)", None),
        ("AssertionError: Tensor-likes are not close! torch.float64 on cpu and mps", None),
        ("RuntimeError: softmetal.torch_mps: the operator has a kernel on a Mac alone", None),
    ],
)
def test_torchs_words_name_the_cause(said, cause):
    assert suites_rows.cause_of(said, "t", suites.CAUSES, {}) == cause


@pytest.mark.parametrize(
    ("name", "text", "has"),
    [
        ("pyproject.toml", "[project]\ndependencies = ['pytest']\n[tool.pytest.ini_options]\n", True),
        ("pyproject.toml", "[project]\ndependencies = ['pytest']\n", False),
        ("setup.cfg", "[options]\ntests_require = pytest\n", False),
        ("setup.cfg", "[tool:pytest]\n", True),
        ("pytest.ini", "[pytest]\n", True),
    ],
)
def test_a_suite_that_only_names_pytest_has_no_settings(tmp_path, name, text, has):
    (tmp_path / name).write_text(text)
    assert suites.has_settings(tmp_path) is has


def test_what_a_run_leaves_of_a_test_that_ends_its_process(tmp_path):
    lines = tmp_path / "cpu.jsonl"
    lines.write_text(
        '{"begun": "a"}\n{"took": "a", "seconds": 2.5}\n{"test": "a", "outcome": "passed", "said": ""}\n{"begun": "b"}\n'
    )
    assert suites.read(lines) == {"a": Result("passed", "", 2.5), "b": Result("failed", DIED)}


@pytest.mark.needs_torch
def test_a_test_that_takes_too_long_has_died_and_the_others_run(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "BUILD", tmp_path)
    (tmp_path / "a/source").mkdir(parents=True)
    tests = (
        "def test_a():\n    while True:\n        pass\ndef test_b():\n    import empty\ndef test_c():\n    assert 0\n"
    )
    (tmp_path / "a/source/test_a.py").write_text(tests)
    suite = {"paths": ["test_a.py"], "environment": {"SUITE_SECONDS": "1"}, "empty": "empty"}
    suites.run("a", suite, "cpu", sys.executable, 0)
    found = suites.read(suites.lines_on("a", "cpu", 0))
    assert [result.outcome for result in found.values()] == ["failed", "passed", "failed"]
    assert [result.said.startswith(DIED) for result in found.values()] == [True, False, False]


@pytest.mark.needs_torch
def test_a_default_dtype_that_a_test_leaves_is_taken_back_and_a_fixtures_stays(tmp_path):
    (tmp_path / "test_a.py").write_text(
        "import pytest, torch\n"
        "@pytest.fixture(scope='module')\n"
        "def half():\n    torch.set_default_dtype(torch.float16)\n"
        "def test_a():\n    torch.set_default_dtype(torch.float64)\n"
        "def test_b():\n    assert torch.ones(1).dtype == torch.float32\n"
        "def test_c(half):\n    assert torch.ones(1).dtype == torch.float16\n"
        "def test_d(half):\n    assert torch.ones(1).dtype == torch.float16\n"
    )
    variables = suites.variables_of({}, "cpu", tmp_path / "lines", tmp_path / "done")
    (tmp_path / "done").touch()
    command = [sys.executable, *suites.command_of({"paths": ["test_a.py"]}, "cpu")]
    subprocess.run(command, cwd=tmp_path, env=variables, check=True, capture_output=True)
    assert [result.outcome for result in suites.read(tmp_path / "lines").values()] == ["passed"] * 4


def test_times_are_the_median_of_the_pairs_and_memory_is_that_of_the_last_process(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "BUILD", tmp_path)
    (tmp_path / "a").mkdir()
    seconds = {"cpu": [1, 1, 2], "mps": [1, 5, 4]}
    memory = [("start", 0, 50), ("start", 8, 100), ("end", 24, 70)]  # the first process ended early
    for device, pair in ((device, pair) for device in seconds for pair in range(3)):
        lines = [{"memory": when, "tensors": tensors, "process": pages} for when, tensors, pages in memory]
        lines += [{"begun": "t"}, {"took": "t", "seconds": seconds[device][pair]}]
        lines += [{"test": "t", "outcome": "passed", "said": ""}]
        suites.lines_on("a", device, pair).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    row = suites.row_from("a", {})
    assert (row.tests, row.ratio, row.ratios) == (1, 2, [1, 5, 2])
    assert (row.tensors, row.grown) == (16, {"cpu": -30, "mps": -30})
    assert "| 2.0 of 3 | 16 | -0 | -0 |" in suites_rows.lines_of("a", "1", "now", row, {})["rows"][0]


@pytest.mark.parametrize("more", [True, False])
def test_pairs_are_added_and_a_test_that_fails_once_has_failed(tmp_path, monkeypatch, more):
    monkeypatch.setattr(suites, "BUILD", tmp_path)
    monkeypatch.setattr(suites, "environment", lambda name, suite: None)
    monkeypatch.setattr(suites, "source", lambda name, suite: None)
    (tmp_path / "a").mkdir()
    ran, failing, cut_off = [], ["mps"], [("mps", 1)]

    def run(name, suite, device, python, pair):
        ran.append((device, pair))
        outcome = "failed" if device in failing else "passed"
        lines = [{"begun": "t"}, {"test": "t", "outcome": outcome, "said": "wrong"}]
        lines += [] if (device, pair) in cut_off else [{"memory": "end", "tensors": 0, "process": 0}]
        suites.lines_on(name, device, pair).write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    monkeypatch.setattr(suites, "run", run)
    suite = {"version": "1"}
    assert [*suites.judge("a", suite, 2).ours] == ["t"]
    ran.clear(), failing.clear(), cut_off.clear()
    row = suites.judge("a", suite, 2, more=more)
    assert ran == [(device, pair) for pair in ((1, 2) if more else (0, 1)) for device in ("cpu", "mps")]
    assert (len(row.ratios), [*row.ours]) == ((3, ["t"]) if more else (2, []))


def test_a_suites_lines_take_the_place_of_its_old_ones():
    page = "".join(f"<!-- {b} -->\n| h |\n| - |\n| b 1 | old |\n<!-- end of {b} -->\n" for b in ("rows", "ours"))
    once = suites_rows.placed(page, "a", {"rows": ["| a 1 | x |"], "ours": ["| a | y |", "| a | z |"]})
    assert suites_rows.names_on(once) == ["a", "b"]
    assert suites_rows.placed(once, "a", {"rows": [], "ours": []}) == page


def test_the_page_and_the_table_name_the_same_suites():
    page = suites_rows.PAGE.read_text(encoding="utf-8")
    assert suites_rows.names_on(page) == sorted(suites.SUITES, key=str.lower)
    for name, suite in suites.SUITES.items():
        assert f"| {name} {suite['version']} |" in page
        assert ("commit" in suite) == ("repository" in suite)
        assert set(suite.get("known", {})) <= set(suites.CAUSES)
    for cause in suites.CAUSES.values():
        re.compile(cause["says"])
