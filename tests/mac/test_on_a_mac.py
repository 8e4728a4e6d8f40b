"""tools/on_a_mac.py, and the questions about torch asked of a stand-in: a torch that copies or refuses fails them."""

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
from children import run_child
from places import INSIDE, ROOT, SUPPORT, TESTS, TOOLS

pytestmark = pytest.mark.needs_no_sanitizer  # children import the frameworks

WAYS = {
    "shares": r"6 passed",
    "copies": r"6 (failed|error)",
    "refuses": r"6 (failed|error)",
    "copies matrices": r"4 failed, 2 passed",
    "one stream": r"5 passed, 1 skipped",
    "no GPU": r"6 skipped",
    "missing": r"6 skipped",
}


@pytest.mark.long
@pytest.mark.needs_softmetal
@pytest.mark.parametrize("way", WAYS)
def test_a_torch_that_does_not_share_fails_the_questions(way):
    question = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/mac/test_torch_on_mps.py"]
    done = run_child(
        question, cwd=ROOT, STAND_IN=way, PYTHONPATH=os.pathsep.join([str(SUPPORT / "stand_ins"), *sys.path])
    )
    assert re.search(WAYS[way], done.stdout.splitlines()[-1]), done.stdout


ASKED = """
import os, time
def test_good(): print('seen', os.getcwd())
def test_wrong(): assert 1 == 2, 'one is not two'
def test_crashes(): os.abort()
def test_hangs(): time.sleep(60)
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
    assert str(ROOT) not in text


def test_the_page_about_macs_names_every_file_of_questions():
    page = (INSIDE / "on_a_mac.md").read_text()
    assert [path.name for path in sorted((TESTS / "mac").glob("test_*.py")) if path.name not in page] == []
