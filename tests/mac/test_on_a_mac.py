"""tools/on_a_mac.py, and the questions about torch: one that copies or refuses fails them."""

import importlib
import io
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from children import run_child
from places import ROOT, TESTS, TOOLS
from proof import leaks_counted

pytestmark = pytest.mark.needs_no_sanitizer  # children import the frameworks

#: FAULT of tests/support/faulty_torch.py, and the end of the run; torch 2.15 has streams to ask about.
FAULTS = {
    "takes copies": r"6 errors|5 errors",
    "gives copies": r"6 errors|5 errors",
    "refuses": r"6 errors",
    "takes copies of matrices": r"4 failed, (2|1) passed",
    "no GPU": r"6 skipped",
    "missing": r"6 skipped",
}


@pytest.mark.long
@pytest.mark.needs_softmetal
@pytest.mark.needs_torch
@pytest.mark.parametrize("fault", FAULTS)
def test_a_torch_that_does_not_share_fails_the_questions(fault):
    """One that shares answers them in its place: test_torch_on_mps.py."""
    question = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "faulty_torch", "tests/mac/test_torch_on_mps.py"]
    done = run_child(question, cwd=ROOT, FAULT=fault)
    assert re.search(FAULTS[fault], done.stdout.splitlines()[-1]), done.stdout


ASKED = """
import os, time
def test_good(): print('seen', os.getcwd())
def test_wrong(): assert 1 == 2, 'one is not two'
def test_crashes(): os.abort()
def test_hangs():
    for line in range(300): print('before', line)
    time.sleep(60)
"""


@pytest.mark.long
def test_the_script_writes_facts_and_each_answer_and_no_folder_of_the_user_s(tmp_path):
    output = tmp_path / "answers.txt"
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:  # pytest names tests by their place in the checkout
        Path(folder, "test_asked.py").write_text(ASKED)
        done = run_child(TOOLS / "on_a_mac.py", "--quick", "--output", output, "--seconds", 8, folder, timeout=300)
    text = output.read_text()
    assert done.returncode == 1, done.stderr
    for line in ("package +metal_dlpack", "machine +.* GiB, pages of", "python +3", "torch +"):
        assert re.search(f"^{line}", text, re.MULTILINE), line
    ends = dict(re.findall(r"^== \S*::(\w+): (.*), \d+ s$", text, re.MULTILINE))
    assert ends == {"test_good": "passed", "test_wrong": "FAILED", "test_crashes": "SIGABRT", "test_hangs": "hangs"}
    assert "seen <checkout>" in text
    assert "one is not two" in text
    assert all(f"    before {line}\n" in text for line in range(300)), "all that was said before the time was over"
    assert str(ROOT) not in text


class Watched(io.StringIO):
    """A file that tells when something was written to it."""

    def __init__(self):
        super().__init__()
        self.grown = threading.Event()

    def write(self, text):
        super().write(text)
        if "spoken" in text:
            self.grown.set()


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("on_a_mac")


def test_a_line_is_in_the_file_before_the_question_has_its_end(script, monkeypatch):
    """If the Mac stops, what was said is worth sending."""
    monkeypatch.setattr(script, "PYTEST", (sys.executable, "-c", "import time; print('spoken'); time.sleep(60)"))  # fmt: skip
    file, came = Watched(), []
    asked = threading.Thread(target=lambda: came.append(script.ask("it", 300, script.Report(file))))
    asked.start()
    assert file.grown.wait(60)
    assert not came
    script.end(*script.running)
    asked.join()
    assert came == ["SIGKILL"]
    assert file.getvalue() == "    spoken\n"


def test_the_folders_of_the_suite_are_asked_at_the_same_time_and_each_tells_its_lines_apart(
    script, monkeypatch, tmp_path
):
    """Each waits here for the other."""
    meet = f"""
import sys, time, pathlib
pathlib.Path({str(tmp_path)!r}, sys.argv[-1]).touch()
while len(list(pathlib.Path({str(tmp_path)!r}).iterdir())) < 2:
    time.sleep(0.01)
print("met", sys.argv[-1])
"""
    monkeypatch.setattr(script, "PYTEST", (sys.executable, "-c", meet))
    file = io.StringIO()
    assert script.answer_suite(["one", "two"], script.Report(file)) == [True, True]
    assert {"    one | met one", "    two | met two"} <= set(file.getvalue().splitlines())


def test_the_suite_is_asked_in_all_its_folders(script):
    tests = {path.parent.name for path in TESTS.glob("*/test_*.py")}
    assert {Path(folder).name for folder in script.folders()} == tests - {"mac"}


@pytest.mark.parametrize(("told", "count"), [
    ("Process 123: 0 leaks for 0 total leaked bytes.\n", 0),
    ("grown by 0 bytes\nProcess 123: 15001 leaks for 960064 total leaked bytes.\n", 15001),
    ("leaks[9]: Process 123 is not debuggable. Due to security restrictions, leaks can only show ...\n", None),
    ("", None),
])  # fmt: skip
def test_a_leaks_that_could_not_look_has_found_nothing_out(told, count):
    assert leaks_counted(told) == count


MAKE = """#!/bin/sh
printf '%s\\n' "$@" >"$SAID"
exit 3
"""


def without_make(env):
    """A make that runs below another (`make test`) says which folder it enters, and takes the other's variables."""
    return {
        name: value for name, value in env.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS"}
    }


def test_a_checkout_and_a_python_with_a_space_in_their_paths_are_built(script, monkeypatch, tmp_path):
    """make cuts a target at its spaces: VENV is a name in the checkout, and PYTHON is used in commands alone."""
    tool, said, real = tmp_path / "make", tmp_path / "said", without_make(os.environ)
    tool.write_text(MAKE)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SAID", str(said))
    monkeypatch.delenv(script.IS_SET_UP, raising=False)
    monkeypatch.setattr(script, "has_package", lambda: False)
    monkeypatch.setattr(script.sys, "executable", "/an other/python3")
    with pytest.raises(SystemExit, match="The build failed"):
        script.set_up()
    assert said.read_text().splitlines() == ["build", "PYTHON=/an other/python3", "VENV=.venv"]
    asked = subprocess.run(["make", "-n", *said.read_text().splitlines()[:2], "VENV=.another"], cwd=ROOT, env=real,
                           capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert asked.startswith("PYTHON='/an other/python3' tools/prepare '.another'"), asked


SW_VERS = """#!/bin/sh
test "$SYSTEM_VERSION_COMPAT" = 0 && echo 26.1 || echo 10.16
"""


def test_the_system_is_asked_for_its_own_version_not_for_that_of_the_sdk(script, monkeypatch, tmp_path):
    tool = tmp_path / "sw_vers"
    tool.write_text(SW_VERS)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(script.platform, "mac_ver", lambda: ("10.16", ("", "", ""), "arm64"))
    assert script.facts()["system"] == "macOS 26.1"
