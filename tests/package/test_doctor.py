"""The doctor: what it finds, what it says when something crashes, and its exit code."""

import io
import json
import operator
import re
import sys
from unittest.mock import MagicMock

import pytest
from children import run_child

import metal_dlpack as md
from dlpack_conformance import asking
from dlpack_conformance.asking import Child
from metal_dlpack.__main__ import main
from metal_dlpack.asking import doctor, frameworks, probes
from metal_dlpack.asking.probes import Copies, Probe

#: Probes that need no framework: what the doctor makes of each end.
ENDS = {
    "end_well": "pass",
    "end_copied": "raise Copies('the bytes are elsewhere')",
    "end_refused": "raise BufferError('not this device')",
    "end_killed": "import os, signal; os.kill(os.getpid(), signal.SIGABRT)",
    "end_exit": "import os; print('last words', file=__import__('sys').stderr); os._exit(3)",
    "end_noisy": "print('[1, 2]'); print('not JSON {'); print('[\"end_well\", \"nonsense\", \"\"]')",
    "end_unfinished": "import os; os.write(1, b'no newline'); print(5, end='')",
    # A process that outlives the child, with all that it inherits.
    "end_outlived": "import os, subprocess; subprocess.Popen(['sleep', '30']); os._exit(3)",
    # It ends well in a process of its own.
    "end_alone": "import metal_dlpack as md\n    assert not hasattr(md, 'mark'), 'not alone'",
    "end_marked": "import metal_dlpack as md\n    md.mark = True",
    "end_late": "import os, time\n    while not os.path.exists(os.environ['GO_ON']): time.sleep(0.01)",
}


def stand_in(name, modules=("numpy",)):
    return Probe(name, "a", "b", f"how {name}", modules, lambda: None)


def quiet(probe):
    pass


@pytest.fixture
def children(monkeypatch):
    """The children of the doctor, by what they ran."""
    started = []
    monkeypatch.setattr(doctor, "Child", lambda module, *names: started.append([*names]) or Child(module, *names))
    return started


@pytest.fixture
def odd_probes(children, monkeypatch, tmp_path):
    """The children run these probes instead of the real ones."""
    lines = ["from metal_dlpack.asking.probes import *", "from metal_dlpack.asking import probes"]
    lines += ["probes.PROBES.clear()"]
    for name, body in ENDS.items():
        lines += [f"def {name}():", f"    {body}"]
        lines += [f"probes.PROBES.append(probes.Probe({name!r}, 'a', 'b', 'how', (), {name}))"]
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("GO_ON", str(tmp_path / "go on"))
    return children


def test_a_crash_is_a_row_and_not_the_end(odd_probes):
    names = ["end_well", "end_copied", "end_refused", "end_killed", "end_exit", "end_noisy"]
    answers = {name: ends for name, *ends in doctor.ask_together([stand_in(name) for name in names], quiet)}
    expected = [("shares", "$"), ("copies", "the bytes are elsewhere$"), ("cannot", "BufferError: not this device$")]
    expected += [("cannot", ".*SIGABRT"), ("cannot", ".*code 3.*last words"), ("shares", "$")]
    assert list(answers) == names
    for (verdict, reason), (wanted, words) in zip(answers.values(), expected, strict=True):
        assert verdict == wanted and re.match(words, reason, re.DOTALL), (verdict, reason)
    assert odd_probes == [names, names[4:], names[5:]]


def test_what_a_framework_prints_is_no_answer_and_spoils_none(odd_probes):
    names = ["end_noisy", "end_unfinished", "end_well"]
    answers = list(doctor.ask_together([stand_in(name) for name in names], quiet))
    assert answers == [(name, "shares", "") for name in names]
    assert odd_probes == [names]
    for line in (b"5", b"null", b"[]", b"[[], 1, 2]", b"\xff", b"[" * 10**5):
        assert asking.read_answer(line) is None


@pytest.mark.parametrize(
    ("name", "seconds", "words"),
    [("end_outlived", 20, "the process ended with code 3"), ("end_late", 0.5, "no answer within 0.5 s")],
)
def test_neither_a_process_that_is_left_behind_nor_one_that_hangs_is_waited_for(
    odd_probes, monkeypatch, name, seconds, words
):
    monkeypatch.setattr(asking, "IMPORT_TIMEOUT_S", seconds)
    ((_, verdict, reason),) = doctor.ask_together([stand_in(name)], quiet)
    assert (verdict, reason[: len(words)]) == ("cannot", words)


def test_a_reason_of_many_lines_is_one_line_of_the_table():
    probe = stand_in("p")
    text = doctor.Table([probe]).row(doctor.Row(probe, "cannot", "ImportError:\n\n  one\n  two"))
    assert text.endswith("UNEXPECTED ImportError: one two")


def test_a_row_comes_as_it_is_found(odd_probes, tmp_path):
    tried = []
    rows = doctor.find_rows([stand_in("end_well"), stand_in("end_late")], tried.append)
    assert next(rows).probe.name == "end_well"
    assert [probe.name for probe in tried] == ["end_well"]
    (tmp_path / "go on").touch()
    assert next(rows).probe.name == "end_late"


def test_a_row_that_is_not_as_it_should_be_is_tried_once_more_alone(odd_probes):
    names = ["end_marked", "end_alone", "end_killed", "end_well"]
    rows = list(doctor.find_rows([stand_in(name) for name in names]))
    assert [row.probe.name for row in rows] == names
    assert [row.verdict for row in rows] == ["shares", "shares", "cannot", "shares"]
    assert odd_probes == [names, ["end_alone"], ["end_killed"], ["end_well"]]


def test_each_framework_is_imported_by_one_child():
    modules = {"a": "numpy", "b": "torch", "c": "mlx", "d": "jax", "e": "numpy torch", "f": "torch jax"}
    probes = [stand_in(name, tuple(needed.split())) for name, needed in modules.items()]
    groups = [[probe.name for probe in group] for group in doctor.group_probes(probes)]
    assert groups == [["a", "b", "d", "e", "f"], ["c"]]


def exchange_with_gpu(array, reads, writes):
    """As with PyTorch on MPS: the GPU's work is done when it is waited for."""
    work, torch = [], MagicMock()
    tensor = MagicMock(add_=work.append)
    tensor.__getitem__.side_effect = lambda index: MagicMock(cpu=lambda: reads[index])
    torch.mps.synchronize = lambda: operator.setitem(writes, 1, float(writes[1]) + sum(work))
    probes.exchange_with_mps(torch, array, tensor)


def test_what_the_array_and_the_gpu_write_is_looked_for_on_the_other_side():
    array, other = probes.new_array(), probes.new_array()
    exchange_with_gpu(array, array, array)
    with pytest.raises(Copies, match="not seen by the GPU"):
        exchange_with_gpu(array, other, array)
    with pytest.raises(Copies, match="not seen by the array"):
        exchange_with_gpu(array, array, other)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_what_is_tried(odd_probes, monkeypatch):
    monkeypatch.setattr(doctor, "PROBES", [stand_in("end_well"), stand_in("end_copied")])
    monkeypatch.setenv("TERM", "xterm")
    for out in (Terminal(), io.StringIO()):
        assert not doctor.report(out)
        text = out.getvalue()
        assert ("trying 2 of 2: how end_copied" in text) == out.isatty()
        assert ("\r" in text) == out.isatty()
        assert "  a     b   how end_copied  copies   UNEXPECTED the bytes are elsewhere\n" in text


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_dumb_terminal_is_told_nothing_that_it_cannot_obey(odd_probes, monkeypatch, term):
    monkeypatch.setattr(doctor, "PROBES", [stand_in("end_well")])
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM", raising=False)
    out = Terminal()
    assert doctor.report(out)
    assert not {"\x1b", "\r"} & set(out.getvalue())


def test_any_character_is_printed_where_the_output_has_few(monkeypatch):
    monkeypatch.setattr(doctor, "runnable_probes", list)
    monkeypatch.setattr(doctor, "machine_lines", lambda machine: ["an erröneous driver"])
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert main([]) == 0
    assert out.buffer.getvalue().startswith(rb"an err\xf6neous driver")


def test_without_a_framework_the_doctor_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "runnable_probes", list)
    assert main([]) == 0
    text = capsys.readouterr().out
    assert text.endswith("with pip and run this again: numpy, torch, apache-tvm-ffi, jax, mlx.\n")
    assert "Everything that should share memory does." not in text
    assert "Who shares memory" not in text


def test_the_exit_code_says_whether_all_is_as_it_should_be(odd_probes, monkeypatch, capsys):
    tried = [stand_in(name) for name in ENDS if name not in ("end_alone", "end_late", "end_outlived")]
    monkeypatch.setattr(doctor, "PROBES", tried)
    assert main([]) == 1
    text = capsys.readouterr().out
    assert text.count("UNEXPECTED") == 4
    assert "A pair that should share memory does not." in text
    monkeypatch.setattr(doctor, "PROBES", [stand_in("end_well")])
    assert main([]) == 0
    assert "Everything that should share memory does." in capsys.readouterr().out


def test_an_expected_copy_is_well_and_a_better_end_too():
    probe = Probe("x", "a", "b", "how", (), lambda: None, expected="copies")
    assert doctor.Row(probe, "copies", "").is_as_expected
    assert doctor.Row(probe, "shares", "").is_as_expected
    assert not doctor.Row(probe, "cannot", "").is_as_expected


def test_an_exchange_finds_a_copy():
    source = [0, 0, 0]
    probes.exchange(source, source)
    with pytest.raises(Copies, match="through the source"):
        probes.exchange([0, 0, 0], [0, 0, 0])


def test_probes_have_names_of_their_own():
    names = [probe.name for probe in probes.PROBES]
    assert len(set(names)) == len(names)
    known = {framework.module for framework in doctor.FRAMEWORKS.values()}
    assert all(set(probe.modules) <= known for probe in probes.PROBES)


def test_versions_are_found_without_an_import():
    missing = frameworks.Framework("none", "no_such_module", "no-such-module")
    assert not missing.is_installed()
    assert missing.version() is None
    assert frameworks.Framework("pytest", "pytest", "pytest").version() == pytest.__version__


@pytest.mark.needs_softmetal
def test_without_a_device_the_doctor_says_so():
    child = run_child(["-m", "metal_dlpack"], SOFTMETAL_DEVICES="none")
    assert child.returncode == 1, child.stderr
    assert "none: Metal shows no device" in child.stdout
    assert child.stdout.endswith("Nothing can be shared: Metal shows no device.\n")


@pytest.mark.needs_no_sanitizer
@pytest.mark.needs_numpy
@pytest.mark.needs_torch
@pytest.mark.needs_tvm
def test_here_all_that_should_share_does_and_no_framework_is_imported_twice(children, capsys):
    assert main(["--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"]
    assert [pair for pair in facts["pairs"] if not pair["is_as_expected"]] == []
    groups = doctor.group_probes(doctor.runnable_probes())
    assert children == [[probe.name for probe in group] for group in groups]
    assert facts["metal_dlpack"] == md.__version__
    assert facts["devices"][0]["name"] == md.default_device().name
    assert facts["storage_mode"] == md.get_storage_mode()
    pairs = {(pair["source"], pair["target"]) for pair in facts["pairs"]}
    assert {("metal_dlpack", "NumPy"), ("metal_dlpack", "PyTorch MPS"), ("metal_dlpack", "tvm-ffi metal")} <= pairs
