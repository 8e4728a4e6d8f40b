"""The whole suite runs with the software Metal's validation on, and a report fails the test that made it."""

import os
from pathlib import Path

import pytest
from children import run_child
from places import ROOT, TESTS, python_path

pytestmark = pytest.mark.needs_softmetal

PROGRAM = """
import metal_dlpack as md
from objc_messages import pool, send

def test_that_is_wrong():
    with pool():
        assert not send(send(md.Buffer(4).handle, "device"), "newBufferWithLength:options:", 0, 0)

def test_that_is_right():
    md.Buffer(4)
"""


def run(folder: Path, **settings: str) -> str:
    path = folder / "test_program.py"
    path.write_text(PROGRAM)
    settings_of_the_suite = ["-c", str(ROOT / "pyproject.toml"), "-p", "conftest"]
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "_metal_dlpack_pytest", *settings_of_the_suite]
    environment = {"PYTHONPATH": os.pathsep.join([str(TESTS), python_path()]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = run_child(command, path, cwd=folder, **environment, **settings)
    return done.stdout + done.stderr


def test_validation_is_on():
    assert os.environ["SOFTMETAL_VALIDATION"] == "1"


@pytest.mark.needs_no_sanitizer
def test_a_report_fails_the_test_that_made_it(tmp_path):
    said = run(tmp_path)
    assert "1 failed, 1 passed" in said, said
    assert "test_that_is_wrong" in said
    assert "zero-length" in said
