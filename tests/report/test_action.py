"""action.yml: its shell steps as a runner would take them, on a repository with one racing kernel; the workflows that pages show."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from places import ROOT, python_path
from recipes import blocks, pages

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
OWN = "OWNER/metal_dlpack@main"
PAGES = {page: yaml.safe_load(block.text) for page in pages() for block in blocks(page) if block.language == "yaml"}
USED = "".join(path.read_text() for path in [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "action.yml"])

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]


def steps_of(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def given(asked):
    """The inputs of a step that uses the action."""
    inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
    assert {*asked} <= {*inputs} and {name for name, one in ACTION["inputs"].items() if one.get("required")} <= {*asked}
    return inputs | {name: str(value).lower() if isinstance(value, bool) else value for name, value in asked.items()}


@pytest.fixture
def runner(tmp_path):
    """A checkout on a machine whose commands for installing only write down what they are asked."""
    tools, checkout = tmp_path / "bin", tmp_path / "checkout"
    tools.mkdir()
    checkout.mkdir()
    noted = 'echo "$(basename "$0") $*" >> "$NOTED"'
    python = f'if [ "$1 $2" = "-m pip" ]; then {noted}; else exec "{sys.executable}" "$@"; fi'
    for name, text in {"sudo": 'exec "$@"', "apt-get": noted, "python": python}.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)

    def run(name, asked, **environment):
        inputs, step = given(asked), STEPS[name]
        values = {
            key: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
            for key, value in step.get("env", {}).items()
        }
        settings = {
            "RUNNER_OS": "Linux",
            "GITHUB_ACTION_PATH": "/actions/metal_dlpack",
            "NOTED": str(tmp_path / "noted"),
        }
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        everything = {**os.environ, "PYTHONPATH": python_path(), "PATH": path, **settings, **values, **environment}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]  # as a runner's `shell: bash`
        return subprocess.run(words, cwd=checkout, env=everything, capture_output=True, text=True, check=False)

    run.checkout, run.noted = checkout, tmp_path / "noted"
    return run


RACING = """
import metal_dlpack as md

SOURCE = '''
kernel void shift(device const float *x, device float *y, uint i [[thread_position_in_grid]]) {
    threadgroup float tile[64];
    tile[i] = x[i];
    y[i] = tile[(i + 32) % 64];
}'''


def test_shift():
    y = md.zeros(64, dtype="float32")
    md.kernel(SOURCE)(md.ones(64, dtype="float32"), y, threads=64, group=64)
    assert y.tolist() == [1.0] * 64
"""
BARRIER = "    threadgroup_barrier(metal::mem_flags::mem_threadgroup);\n    y[i]"


@pytest.mark.needs_kernels
def test_a_race_is_in_sarif_at_its_line_and_fails_the_job_until_it_is_mended(runner):
    (asked,) = [step["with"] for step in steps_of(PAGES["docs/kernel_authors.md"]) if step["uses"] == OWN]
    tests = runner.checkout / "tests"
    tests.mkdir()
    (tests / "test_shift.py").write_text(RACING)
    done = runner("Run", asked)
    assert done.returncode == 1, done.stdout + done.stderr
    (run,) = json.loads((runner.checkout / "kernels.sarif").read_text())["runs"]
    (found,) = run["results"]
    place = found["locations"][0]["physicalLocation"]
    line = 1 + RACING.splitlines().index("    y[i] = tile[(i + 32) % 64];")
    assert place["artifactLocation"]["uri"] == "tests/test_shift.py"
    assert place["region"]["startLine"] in (line - 1, line)
    (tests / "test_shift.py").write_text(RACING.replace("    y[i]", BARRIER))
    done = runner("Run", asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((runner.checkout / "kernels.sarif").read_text())["runs"][0]["results"] == []


@pytest.mark.needs_torch
def test_without_the_check_tests_and_programs_have_mps(runner):
    (asked,) = [step["with"] for step in steps_of(PAGES["docs/ci_without_a_mac.md"]) if step["uses"] == OWN]
    (runner.checkout / "tests").mkdir()
    test = "import torch\n\ndef test_it():\n    assert torch.ones(2, device='mps').sum().item() == 2\n"
    (runner.checkout / "tests/test_it.py").write_text(test)
    done = runner("Run", asked)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    program = "import sys, torch; print(torch.ones(2, device='mps').sum().item(), sys.argv[1:])"
    (runner.checkout / "program.py").write_text(program)
    done = runner("Run", {"run": "program.py --name 'two words'", "check": False})
    assert (done.returncode, done.stdout) == (0, "2.0 ['--name', 'two words']\n"), done.stderr
    assert not (runner.checkout / "kernels.sarif").exists()


def test_it_installs_compilers_itself_and_what_is_asked_for(runner):
    assert runner("Compilers", {"run": "x"}).returncode == 0
    assert runner("Install", {"run": "x", "packages": "'mlx[cpu]' pytest ."}).returncode == 0
    assert runner("Install", {"run": "x", "wheel": "dist/metal_dlpack.whl"}).returncode == 0
    assert runner("Install", {"run": "x", "wheel": "metal_dlpack[kernels]"}).returncode == 0
    assert runner.noted.read_text().splitlines() == [
        "apt-get update -q",
        "apt-get install -qy gcc g++ gobjc",
        "python -m pip install /actions/metal_dlpack[kernels] mlx[cpu] pytest .",
        "python -m pip install dist/metal_dlpack.whl[kernels]",
        "python -m pip install metal_dlpack[kernels]",
    ]
    done = runner("Compilers", {"run": "x"}, RUNNER_OS="macOS")
    assert (done.returncode, "::error::" in done.stdout) == (1, True)


def test_what_is_found_is_uploaded_whether_or_not_the_run_failed():
    assert STEPS["Upload"]["with"] == {"sarif_file": "${{ inputs.sarif }}"}
    assert STEPS["Upload"]["if"].startswith("${{ !cancelled() && inputs.check == 'true' && inputs.upload == 'true'")
    assert [*STEPS][-1] == "Upload"


def test_a_page_s_workflow_has_the_versions_of_the_project_s_own():
    versions = dict(re.findall(r"uses: ([\w/-]+)@[0-9a-f]{40} # (v\d+)\.", USED))
    assert PAGES
    for page, workflow in PAGES.items():
        for step in steps_of(workflow):
            if "uses" in step and step["uses"] != OWN:
                name, _, version = step["uses"].partition("@")
                assert version == versions[name], f"{page}: {name}"
            elif "uses" in step:
                given(step["with"])
