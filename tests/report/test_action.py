"""action.yml: its steps as a runner takes them, on a repository with one racing kernel; the workflows that pages show."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml
from checkouts import checkout
from places import ROOT, python_path
from recipes import blocks, pages
from site_links import PLACEHOLDER

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
OWN = f"{PLACEHOLDER}@main"
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


class Runner:
    """A job's machine: a workspace, the files that GitHub gives, and each step of the action as a runner takes it.

    All its folders have a space in their names.  Commands of root's write down what they are asked; so does pip, unless a
    Python of the job's own is given.
    """

    def __init__(self, folder, python=None):
        self.noted, self.workspace, self.files = folder / "noted", folder / "a work space", folder / "runner temp"
        self.uploaded, self.action, tools = [], folder / "an action", folder / "bin"
        for made in (self.workspace, self.files, tools):
            made.mkdir()
        noted = 'echo "$(basename "$0") $*" >> "$NOTED"'
        pip = f'if [ "$1 $2" = "-m pip" ]; then {noted}; else exec "{sys.executable}" "$@"; fi'
        commands = {"sudo": 'exec "$@"', "apt-get": noted, "python": f'exec "{python}" "$@"' if python else pip}
        for name, text in commands.items():
            (tools / name).write_text(f"#!/bin/sh\n{text}\n")
            (tools / name).chmod(0o755)
        path = {"PYTHONPATH": python_path()} if python is None else {}
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.variables = kept | path | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_ACTION_PATH": str(self.action),
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(self.files),
            "NOTED": str(self.noted),
            **{f"GITHUB_{name}": str(self.files / name) for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY")},
        }  # fmt: skip

    def play(self, asked, only=None, **variables):
        """Each step in turn, but `only` one if it is named; after one that fails those whose `if` says so."""
        inputs, status, said = given(asked), 0, []
        for name, step in STEPS.items():
            if only in (None, name) and self.is_taken(step.get("if"), inputs, status):
                if "uses" in step:
                    self.uploaded.append({key: filled(value, inputs) for key, value in step["with"].items()})
                    continue
                done = self.step(step, inputs, variables)
                status = status or done.returncode
                said.append(done.stdout + done.stderr)
        return status, "".join(said)

    def step(self, step, inputs, variables):
        assert step["shell"] == "bash"
        for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY"):  # a runner makes them empty for each step
            (self.files / name).write_text("")
        script = self.files / "a step.sh"
        script.write_text(filled(step["run"], inputs))
        values = {key: filled(value, inputs) for key, value in step.get("env", {}).items()}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        return self.run(words, self.variables | values | variables)

    def run(self, words, settings):
        return subprocess.run(words, cwd=self.workspace, env=settings, capture_output=True, text=True, check=False)

    def is_taken(self, condition, inputs, status):
        """An `if`, in which `&&`, `!`, `==`, `!=` and two functions may stand."""
        if condition is None:
            return status == 0
        text = condition.removeprefix("${{").removesuffix("}}").replace("&&", " and ")
        text = re.sub(r"inputs\.(\w+)", r"inputs['\1']", re.sub(r"!(?!=)", " not ", text)).strip()

        def hash_files(pattern):
            return "".join(str(hash(path)) for path in self.workspace.glob(pattern))

        return eval(text, {"inputs": inputs, "cancelled": lambda: False, "hashFiles": hash_files})


def filled(text, inputs):
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], text)


#: What of this machine's environment a job has as well: where caches and package indexes are.
KEPT = [
    name
    for name in os.environ
    if name.startswith(("PIP_", "XDG_", "SSL_", "LC_")) or name in ("HOME", "LANG", "TMPDIR")
]


class Container(Runner):
    """The same in a container that podman runs: a new system of the machine's own Debian, without a compiler.

    What is there besides: the job's folders, a Python as actions/setup-python puts one first in PATH, and where pip looks.
    """

    PODMAN = ("podman", "--runtime", "runc")

    def __init__(self, folder):
        new = folder / "hosted tool cache"
        super().__init__(folder, new / "bin/python")
        asked = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
        )
        said = re.findall(r"^(?:global|install)\.([\w-]+)='(.*)'$", asked.stdout, re.MULTILINE)
        of_pip = {f"PIP_{key.upper().replace('-', '_')}": value for key, value in said}
        of_pip |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
        commands = f"{new}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        its_own = {
            name: value for name, value in self.variables.items() if name.startswith(("GITHUB_", "RUNNER_", "CI"))
        }
        self.variables = its_own | of_pip | {"PATH": commands, "LANG": "C.UTF-8"}
        read = sorted({value for value in of_pip.values() if value.startswith("/") and Path(value).exists()})
        seen = [f"--volume={folder}:{folder}", *(f"--volume={path}:{path}:ro" for path in read)]
        begin = ["run", "--detach", "--rm", "--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
        system = f"{os.environ['METAL_DLPACK_CONTAINER']}:O"  # what is written there is forgotten
        self.name = self.podman(*begin, *seen, "--rootfs", system, "sleep", "1h").stdout.strip()
        self.podman("exec", self.name, "python3", "-m", "venv", str(new))

    def podman(self, *words, check=True):
        return subprocess.run([*self.PODMAN, *words], capture_output=True, text=True, check=check)

    def run(self, words, settings):
        asked = [f"--env={name}={value}" for name, value in settings.items()]
        return self.podman("exec", *asked, f"--workdir={self.workspace}", self.name, *map(str, words), check=False)


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


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


def racing(workspace, text=RACING):
    (workspace / "tests").mkdir(exist_ok=True)
    (workspace / "tests/test_shift.py").write_text(text)


def assert_found_at_its_line(file):
    (run,) = json.loads(file.read_text())["runs"]
    (found,) = run["results"]
    place = found["locations"][0]["physicalLocation"]
    line = 1 + RACING.splitlines().index("    y[i] = tile[(i + 32) % 64];")
    assert place["artifactLocation"]["uri"] == "tests/test_shift.py"
    assert place["region"]["startLine"] in (line - 1, line)


def asked_on(page):
    (asked,) = [step["with"] for step in steps_of(PAGES[page]) if step.get("uses") == OWN]
    return asked


@pytest.mark.needs_kernels
def test_a_race_is_in_sarif_at_its_line_and_fails_the_job_until_it_is_mended(runner):
    racing(runner.workspace)
    status, said = runner.play(asked_on("docs/kernel_authors.md"))
    assert status == 1, said
    assert_found_at_its_line(runner.workspace / "kernels.sarif")
    assert runner.uploaded == [{"sarif_file": "kernels.sarif"}]
    racing(runner.workspace, RACING.replace("    y[i]", BARRIER))
    status, said = runner.play(asked_on("docs/kernel_authors.md"))
    assert status == 0, said
    assert json.loads((runner.workspace / "kernels.sarif").read_text())["runs"][0]["results"] == []
    assert len(runner.uploaded) == 2


@pytest.fixture(params=["environment", pytest.param("container", marks=pytest.mark.needs_container)])
def job(request, tmp_path):
    """Where pip has nothing of this package's yet."""
    if request.param == "environment":
        new = tmp_path / "hosted tool cache"
        venv.create(new, symlinks=True, with_pip=True)
        yield Runner(tmp_path, new / "bin/python")
        return
    container = Container(tmp_path)
    yield container
    container.podman("rm", "--force", "--time=0", container.name)


@pytest.mark.long
@pytest.mark.needs_kernels
def test_the_action_s_own_checkout_is_built_and_installed_on_a_new_machine(job, tmp_path):
    checkout(tmp_path).rename(job.action)
    racing(job.workspace)
    asked = {
        "run": """-m pytest -p no:cacheprovider "tests" -k 'shift and not other'""",
        "packages": "pytest",
        "sarif": "out/all found.sarif",
    }
    (job.workspace / "out").mkdir()
    status, said = job.play(asked, PIP_RETRIES="0")  # torch's index may be out of reach, and holds nothing of this
    assert (status, (job.workspace / "out/all found.sarif").exists()) == (1, True), said
    assert_found_at_its_line(job.workspace / "out/all found.sarif")
    assert job.uploaded == [{"sarif_file": "out/all found.sarif"}]
    racing(job.workspace, RACING.replace("    y[i]", BARRIER))
    status, said = job.play(asked, only="Run")
    assert (status, "1 passed" in said) == (0, True), said
    assert {path.name for path in job.workspace.iterdir()} == {"tests", "out"}
    assert {path.read_text() for path in job.files.glob("[A-Z]*")} == {""}


@pytest.mark.needs_torch
def test_without_the_check_tests_and_programs_have_mps(runner):
    (runner.workspace / "tests").mkdir()
    test = "import torch\n\ndef test_it():\n    assert torch.ones(2, device='mps').sum().item() == 2\n"
    (runner.workspace / "tests/test_it.py").write_text(test)
    status, said = runner.play(asked_on("docs/ci_without_a_mac.md"))
    assert (status, "1 passed" in said, runner.uploaded) == (0, True, []), said
    program = "import sys, torch; print(torch.ones(2, device='mps').sum().item(), sys.argv[1:])"
    (runner.workspace / "a program.py").write_text(program)
    asked = {"run": """'a program.py' --name 'two words' "it's" """, "check": False}
    assert runner.play(asked, only="Run") == (0, """2.0 ['--name', 'two words', "it's"]\n""")
    assert not (runner.workspace / "kernels.sarif").exists()


def test_it_installs_compilers_itself_and_what_is_asked_for(runner):
    assert runner.play({"run": "x"}, only="Compilers")[0] == 0
    for asked in (
        {"packages": "'mlx[cpu]' pytest ."},
        {"wheel": "dist/metal_dlpack.whl"},
        {"wheel": "metal_dlpack[kernels]"},
    ):
        assert runner.play({"run": "x", **asked}, only="Install")[0] == 0
    assert runner.noted.read_text().splitlines() == [
        "apt-get update -q",
        "apt-get install -qy gcc g++ gobjc",
        f"python -m pip install {runner.action}[kernels] mlx[cpu] pytest .",
        "python -m pip install dist/metal_dlpack.whl[kernels]",
        "python -m pip install metal_dlpack[kernels]",
    ]
    status, said = runner.play({"run": "x"}, RUNNER_OS="macOS")
    assert (status, said.count("::error::"), len(runner.noted.read_text().splitlines())) == (1, 1, 5)


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
