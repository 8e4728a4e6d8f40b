"""The doctor: what it finds, what it says when something crashes, and its exit code."""

import json
import os
import subprocess
import sys

import pytest

import metal_dlpack as md
from metal_dlpack import doctor, frameworks, probes
from metal_dlpack.__main__ import main
from metal_dlpack.probes import Copies, Probe

#: Probes that need no framework: what the doctor makes of each end.
ENDS = {
    "end_well": "pass",
    "end_copied": "raise Copies('the bytes are elsewhere')",
    "end_refused": "raise BufferError('not this device')",
    "end_killed": "import os, signal; os.kill(os.getpid(), signal.SIGABRT)",
    "end_exit": "import os; print('last words', file=__import__('sys').stderr); os._exit(3)",
    "end_noisy": "print('[1, 2]'); print('not JSON {'); print('[\"end_well\", \"nonsense\", \"\"]')",
}


@pytest.fixture
def odd_probes(monkeypatch, tmp_path):
    """The children run these probes instead of the real ones."""
    lines = ["from metal_dlpack.probes import *", "from metal_dlpack import probes", "probes.PROBES.clear()"]
    for name, body in ENDS.items():
        lines += [f"def {name}():", f"    {body}"]
        lines += [f"probes.PROBES.append(probes.Probe({name!r}, 'a', 'b', 'how', (), {name}))"]
    (tmp_path / "odd_probes.py").write_text("\n".join(lines))
    code = "import sys, odd_probes; from metal_dlpack.doctor import run_child; run_child(sys.argv[1:])"
    monkeypatch.setattr(doctor, "child_command", lambda names: [sys.executable, "-c", code, *names])
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    stand_ins = [Probe(name, "a", "b", "how", (), lambda: None) for name in ENDS]
    monkeypatch.setattr(doctor, "PROBES", stand_ins)
    return list(ENDS)


def test_a_crash_is_a_row_and_not_the_end(odd_probes):
    answers = doctor.ask_children(odd_probes)
    assert list(answers) == odd_probes
    assert answers["end_well"] == ("shares", "")
    assert answers["end_copied"] == ("copies", "the bytes are elsewhere")
    assert answers["end_refused"] == ("cannot", "BufferError: not this device")
    verdict, reason = answers["end_killed"]
    assert verdict == "cannot"
    assert "SIGABRT" in reason
    verdict, reason = answers["end_exit"]
    assert verdict == "cannot"
    assert "code 3" in reason
    assert "last words" in reason
    assert answers["end_noisy"] == ("shares", "")


def test_a_probe_that_hangs_is_a_row(odd_probes, monkeypatch):
    monkeypatch.setattr(doctor, "CHILD_TIMEOUT_S", 0.5)
    monkeypatch.setattr(
        doctor, "child_command", lambda names: [sys.executable, "-c", "import time; time.sleep(60)", *names]
    )
    assert doctor.ask_children(["end_well"]) == {"end_well": ("cannot", "no answer in 0.5 s")}


def test_the_exit_code_says_whether_all_is_as_it_should_be(odd_probes, monkeypatch, capsys):
    assert main([]) == 1
    text = capsys.readouterr().out
    assert text.count("UNEXPECTED") == 4
    assert "Something should share and does not." in text
    monkeypatch.setattr(doctor, "PROBES", [Probe("end_well", "a", "b", "how", (), lambda: None)])
    assert main([]) == 0
    assert "All that should share does." in capsys.readouterr().out


def test_an_expected_copy_is_well_and_a_better_end_too():
    probe = Probe("x", "a", "b", "how", (), lambda: None, expected="copies")
    assert doctor.make_row(probe, "copies", "").is_as_expected
    assert doctor.make_row(probe, "shares", "").is_as_expected
    assert not doctor.make_row(probe, "cannot", "").is_as_expected


def test_every_way_to_run_a_probe_is_a_verdict():
    assert doctor.run_probe(Probe("x", "a", "b", "how", (), lambda: None)) == ("shares", "")

    def copied():
        raise Copies("elsewhere")

    assert doctor.run_probe(Probe("x", "a", "b", "how", (), copied)) == ("copies", "elsewhere")


def test_an_exchange_finds_a_copy():
    source = [0, 0, 0]
    probes.exchange(source, source)
    with pytest.raises(Copies, match="through the source"):
        probes.exchange([0, 0, 0], [0, 0, 0])


def test_probes_have_names_of_their_own():
    names = [probe.name for probe in probes.PROBES]
    assert len(set(names)) == len(names)
    known = {framework.module for framework in frameworks.FRAMEWORKS}
    assert all(set(probe.modules) <= known for probe in probes.PROBES)


def test_versions_are_found_without_an_import():
    missing = frameworks.Framework("none", "no_such_module", "no-such-module")
    assert not missing.is_installed()
    assert missing.version() is None
    assert frameworks.Framework("pytest", "pytest", "pytest").version() == pytest.__version__


@pytest.mark.needs_softmetal
def test_without_a_device_the_doctor_says_so():
    child = subprocess.run(
        [sys.executable, "-m", "metal_dlpack"],
        env={**os.environ, "SOFTMETAL_DEVICES": "none"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert child.returncode == 1, child.stderr
    assert "none: Metal shows no device" in child.stdout


@pytest.mark.needs_no_sanitizer
@pytest.mark.needs_numpy
@pytest.mark.needs_torch
@pytest.mark.needs_tvm
def test_here_all_that_should_share_does():
    child = subprocess.run(
        [sys.executable, "-m", "metal_dlpack", "--json"], capture_output=True, text=True, timeout=600, check=False
    )
    facts = json.loads(child.stdout)
    wrong = [pair for pair in facts["pairs"] if not pair["is_as_expected"]]
    assert wrong == []
    assert (child.returncode, facts["ok"]) == (0, True)
    assert facts["metal_dlpack"] == md.__version__
    assert facts["devices"][0]["name"] == md.default_device().name
    assert facts["storage_mode"] == md.get_storage_mode()
    pairs = {(pair["source"], pair["target"]) for pair in facts["pairs"]}
    assert {("metal_dlpack", "NumPy"), ("metal_dlpack", "PyTorch MPS"), ("metal_dlpack", "tvm-ffi metal")} <= pairs
