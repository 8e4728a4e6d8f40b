"""tools/on_a_mac.py: it runs everywhere, and calls nothing "as expected" that was refused, copied or not there.

The frameworks that exist on a Mac only are played by the stand-ins of tests/support/stand_ins.
"""

import ast
import re
import subprocess
import sys

import pytest
from places import INSIDE, SUPPORT, TOOLS

sys.path.append(str(TOOLS))
try:
    import mac_questions
    import on_a_mac
    from mac_questions import asking
finally:
    sys.path.remove(str(TOOLS))

QUESTIONS = {asked.name: asked for asked in mac_questions.QUESTIONS}
STAND_INS = SUPPORT / "stand_ins"
WITH_TORCH = [
    "torch on MPS",
    "1,000 hand-overs to torch",
    "two torch streams",
    "MPSGraph at the end",
    "MPSGraph on repeated rows",
]
WITH_MLX = ["MLX on the GPU", "MLX's donation"]
WITH_FRAMEWORKS = [*WITH_TORCH, *WITH_MLX, "PyObjC"]
SMALL = str(2**20 + 4)

pytestmark = pytest.mark.needs_no_sanitizer  # children import the frameworks


def run_tool(*options, **keywords):
    command = [sys.executable, TOOLS / "on_a_mac.py", "--large", SMALL, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, **keywords)


def ask(name):
    return mac_questions.answer(QUESTIONS[name])


@pytest.fixture
def stand_ins(monkeypatch):
    """Sets how the frameworks behave in the children."""
    monkeypatch.syspath_prepend(STAND_INS)
    return lambda way: monkeypatch.setenv("STAND_IN", way)


# ---- the whole ----


@pytest.mark.parametrize(
    "options",
    [["--only", "handles"], pytest.param(["--quick"], marks=pytest.mark.long)],
    ids=["one question", "all but the test suite"],
)
def test_what_only_a_mac_can_show_is_asked_everywhere(tmp_path, options):
    report = tmp_path / "answers.txt"
    done = run_tool(*options, "--output", report)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; 0 differ" in done.stdout
    text = report.read_text()
    assert "Traceback" not in text
    assert "STOPPED EARLY" not in text
    assert re.search(r"^as expected +\d+\.\d s  handles$", text, re.MULTILINE)


HERE = [
    name for name, asked in QUESTIONS.items() if not (asked.needs_mac or asked.is_for_people or name in WITH_FRAMEWORKS)
]


@pytest.mark.parametrize("name", HERE)
def test_each_question_that_needs_no_mac_is_asked_here(name, monkeypatch):
    monkeypatch.setenv("ON_A_MAC_LARGE", SMALL)
    got = ask(name)
    assert got.verdict == "as expected", got.text
    assert got.text


@pytest.mark.needs_softmetal
def test_on_a_discrete_gpu_the_questions_are_asked_too(monkeypatch):
    """There memory is managed where nothing else is asked for."""
    monkeypatch.setenv("SOFTMETAL_DISCRETE", "1")
    for name in ("contents and length", "neighbours", "a wait in one command buffer, a blit in the next"):
        got = ask(name)
        assert got.verdict == "as expected", got.text


# ---- nothing is called as expected that was not seen ----


WRAPS = ["contents and length", "neighbours", "host memory in use", "mapped files"]


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("name", WRAPS)
def test_memory_that_metal_refuses_differs(name, monkeypatch):
    monkeypatch.setenv("SOFTMETAL_FAIL", "buffer@1+")
    got = ask(name)
    assert got.verdict == "DIFFERS", got.text
    assert "Error" in got.text or "refused" in got.text


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("name", WITH_FRAMEWORKS)
def test_a_framework_that_shares_is_as_expected(name, stand_ins):
    stand_ins("shares")
    got = ask(name)
    assert got.verdict == "as expected", got.text


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("name", WITH_FRAMEWORKS)
@pytest.mark.parametrize("way", ["copies", "refuses"])
def test_a_framework_that_copies_or_refuses_differs(name, way, stand_ins):
    stand_ins(way)
    got = ask(name)
    assert got.verdict == "DIFFERS", got.text
    assert ("cop" in got.text or "not the same memory" in got.text) if way == "copies" else "Error" in got.text


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("name", ["MPSGraph at the end", "MPSGraph on repeated rows"])
def test_a_tensor_that_is_copied_later_differs(name, stand_ins):
    """Each tensor that MPSGraph is asked about is the Array's memory, not only the first."""
    stand_ins("copies matrices")
    got = ask(name)
    assert got.verdict == "DIFFERS", got.text
    assert "torch copied it" in got.text


@pytest.mark.needs_softmetal
def test_a_result_of_mlx_in_a_kept_array_differs(stand_ins):
    stand_ins("writes")
    got = ask("MLX's donation")
    assert got.verdict == "DIFFERS"
    assert "whose mx.array was kept" in got.text


def test_torch_with_one_stream_is_skipped_where_two_are_asked_for(stand_ins):
    stand_ins("one stream")
    got = ask("two torch streams")
    assert got.verdict == "skipped"
    assert "torch 2.15.0 has no torch.mps.Stream" in got.text


REASONS = {
    "missing": "is not installed",
    "broken": "cannot be imported: .*: a library is missing",
    "no GPU": "has no (MPS|Metal) here",
}
MISSING = [(name, way) for name in WITH_FRAMEWORKS for way in REASONS if (name, way) != ("PyObjC", "no GPU")]


@pytest.mark.parametrize(("name", "way"), MISSING)
def test_what_is_missing_is_skipped_with_the_reason(name, way, stand_ins):
    stand_ins(way)
    got = ask(name)
    assert got.verdict == "skipped", got.text
    assert re.search(REASONS[way], got.text)


@pytest.mark.parametrize(
    ("body", "verdict", "text"),
    [
        ("print('done')", "as expected", "done"),
        ("check(1 == 2, 'one is not two')", "DIFFERS", "one is not two"),
        ("raise Skipped('no such thing')", "skipped", "no such thing"),
        ("raise ValueError('refused')", "DIFFERS", "ValueError: refused"),
        ("raise SystemExit", "DIFFERS", "SystemExit"),
        ("raise SystemExit(0)", "DIFFERS", "SystemExit"),
        ("prove_shared('a copy', lambda value: None, lambda: 5)", "DIFFERS", "not the same memory"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "DIFFERS", "SIGSEGV"),
        ("os._exit(3)", "DIFFERS", "exit code 3"),
        ("time.sleep(60)", "DIFFERS", "hangs"),
    ],
)
def test_the_end_of_a_child_is_the_verdict(body, verdict, text, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys, time\n"
        f"sys.path.append({str(TOOLS)!r})\n"
        "from mac_questions.asking import *\n"
        "from mac_questions.asking import Question, QUESTIONS\n"
        f"def ask():\n    {body}\n"
        "QUESTIONS.insert(0, Question('made here', '', ask))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    got = mac_questions.answer(asking.Question("made here", "", print, seconds=20 if "sleep" not in body else 3))
    assert got.verdict == verdict, got.text
    assert text in got.text


def test_a_person_judges_where_nothing_is_proven():
    judged = asking.Question("look", "", print, is_for_people=True)
    assert asking.verdict_of(judged, asking.EXPECTED) == "look"
    assert asking.verdict_of(judged, asking.DIFFERS) == "DIFFERS"
    assert asking.verdict_of(judged, asking.SKIPPED) == "skipped"


def test_questions_for_a_mac_are_skipped_with_the_reason_elsewhere(monkeypatch):
    monkeypatch.setattr(asking, "IS_MAC", False)
    for name in ("Rosetta", "IOSurface", "leaks"):
        got = ask(name)
        assert (got.verdict, "needs a Mac" in got.text) == ("skipped", True)


def test_too_little_memory_is_skipped_with_the_figures(monkeypatch):
    monkeypatch.setenv("ON_A_MAC_LARGE", str(2**45 + 4))
    got = ask("a copy and a fill of 4 GiB + 4")
    assert got.verdict == "skipped"
    assert re.search(r"2 x 35,184,372,088,836 bytes are needed, and max_buffer_length allows [\d,]+ bytes", got.text)


# ---- the file ----


def test_the_file_has_versions_machine_times_and_each_answer(tmp_path):
    report = tmp_path / "answers.txt"
    run_tool("--only", "storage", "--output", report, check=True)
    text = report.read_text()
    for line in (
        r"package +metal_dlpack .*, commit",
        r"machine +\S+, .* GiB, pages of \d+",
        r"python +3\.",
        r"torch +\S",
    ):
        assert re.search(rf"^{line}", text, re.MULTILINE), line
    assert re.search(r"^time +\d{4}-\d\d-\d\d \d\d:\d\d UTC, \d+ s$", text, re.MULTILINE)
    assert "1 as expected, 0 DIFFERS, 0 look, 0 skipped" in text
    assert "== storage modes: as expected\n    expected: each mode as asked" in text


def test_no_folder_of_the_user_is_in_the_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    got = asking.Answer("look", f"{tmp_path}/secret and {on_a_mac.ROOT}/src", 1.0)
    text = on_a_mac.report_of({"python": sys.version}, [(QUESTIONS["doctor"], got)], 1.0, 1)
    assert str(tmp_path) not in text
    assert str(on_a_mac.ROOT) not in text
    assert "~/secret and <checkout>/src" in text
    assert "STOPPED EARLY: 1 questions were not asked" in text


def test_ctrl_c_ends_the_script_and_leaves_the_answers(monkeypatch, tmp_path, capsys):
    def interrupted(asked, **_):
        if asked.name != "machine":
            raise KeyboardInterrupt
        return asking.Answer("as expected", "seen", 0.1)

    report = tmp_path / "answers.txt"
    monkeypatch.setattr(mac_questions, "answer", interrupted)
    monkeypatch.setattr(sys, "argv", ["on_a_mac.py", "--output", str(report)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "mac_questions", mac_questions)
    assert on_a_mac.main() == 1
    assert f"STOPPED EARLY: {len(QUESTIONS) - 1} questions were not asked" in report.read_text()
    assert "1 answers; 0 differ" in capsys.readouterr().out


def test_a_word_that_no_question_holds_is_an_error():
    done = run_tool("--only", "nothing of the kind")
    assert done.returncode == 2
    assert "storage modes" in done.stderr


# ---- one command ----


def test_a_fresh_checkout_is_built_and_the_script_begins_again(monkeypatch):
    calls = []
    monkeypatch.setattr(on_a_mac, "has_package", lambda: False)
    monkeypatch.delenv(on_a_mac.IS_SET_UP, raising=False)
    monkeypatch.setattr(sys, "argv", ["on_a_mac.py", "--quick"])
    monkeypatch.setattr(on_a_mac.os, "execve", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(
        on_a_mac.subprocess,
        "run",
        lambda command, **_: calls.append(command) or subprocess.CompletedProcess(command, 0),
    )
    on_a_mac.set_up()
    build, (python, arguments, environment) = calls
    assert build[:2] == ["make", "build"]
    assert f"PYTHON={sys.executable}" in build
    assert arguments == [python, "on_a_mac.py", "--quick"]
    assert python == str(on_a_mac.ROOT / ".venv" / "bin" / "python")
    monkeypatch.setenv(on_a_mac.IS_SET_UP, environment[on_a_mac.IS_SET_UP])
    with pytest.raises(SystemExit, match="cannot be found"):
        on_a_mac.set_up()


def test_a_build_that_fails_is_said(monkeypatch):
    monkeypatch.setattr(on_a_mac, "has_package", lambda: False)
    monkeypatch.setattr(on_a_mac.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 2))
    with pytest.raises(SystemExit, match="The build failed"):
        on_a_mac.set_up()


def test_nothing_is_built_where_the_package_is():
    assert on_a_mac.has_package()


def test_the_python_of_macos_can_read_the_script_and_is_told_what_is_missing(monkeypatch):
    ast.parse((TOOLS / "on_a_mac.py").read_text(), feature_version=(3, 9))
    monkeypatch.setattr(on_a_mac.sys, "version_info", (3, 9, 6))
    monkeypatch.setattr(on_a_mac.shutil, "which", {"python3.12": "/opt/bin/python3.12"}.get)
    assert on_a_mac.find_python() == "/opt/bin/python3.12"
    monkeypatch.setattr(on_a_mac.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match=r"Python 3\.11 or later"):
        on_a_mac.find_python()


# ---- the page ----


def test_the_page_about_macs_names_the_questions_that_there_are():
    page = (INSIDE / "on_a_mac.md").read_text()
    words = re.findall(r"--only '?([^'`]+?)'?`", page)
    assert len(words) > 20
    for word in words:
        assert any(word in name for name in QUESTIONS), word
    unnamed = [name for name in QUESTIONS if not any(word in name for word in words)]
    assert unnamed == [], "each question has a row"
