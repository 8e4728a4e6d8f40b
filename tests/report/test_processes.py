"""A report has what the processes did that the program started, however they were started and however they ended."""

import json

import pytest
from children import run_child
from racing_program import LINES, RACY

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

#: What all processes have; `python work.py CODE` runs the code.
WORK = (
    RACY
    + """\
def start(code, *words, **keywords):
    return subprocess.run([sys.executable, *words, os.path.abspath("work.py"), code], **keywords).returncode


if __name__ == "__main__":
    exec(sys.argv[1])
"""
)
FOUND = [("work.py", line) for line in LINES]
SPAWNED = "if __name__ == '__main__':\n    spawn = multiprocessing.get_context('spawn')\n    "

#: What the program does; it and its children launch three times.
PROGRAMS = {
    "a child returns": "run(1)\nassert start('run(2)') == 0",
    "several do": "for _ in range(3): assert start('run(1)') == 0",
    "it leaves at once": "run(1)\nassert start('run(2); os._exit(0)') == 0",
    "it raises": "run(1)\nassert start('run(2); 1 / 0') == 1",
    "nobody waits for its kernels": "run(1)\nassert start('x = md.zeros(64); [K(x, n=64, group=64) for _ in \"ab\"]') == 0",
    "it is in another folder": "run(1)\nassert start('run(2)', cwd='/') == 0",
    "it is told to end": "run(1)\nassert start('run(2); os.kill(os.getpid(), signal.SIGTERM)') == -signal.SIGTERM",
    "it heeds that itself": "run(1)\nassert start('''signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\nrun(2)\n"
    "os.kill(os.getpid(), signal.SIGTERM)''') == 7",
    "it has a child": "run(1)\nassert start('run(1); start(\"run(1)\")') == 0",
    "it has a report of its own": "run(1)\nassert start('run(1); start(\"run(1)\")', "
    "'-m', 'softmetal', '--report', 'own.json') == 1",
    "it is spawned": SPAWNED + "child = spawn.Process(target=run, args=(3,))\n    child.start()\n    child.join()",
    "a pool is terminated": SPAWNED + "with spawn.Pool(2) as pool: pool.map(run, [1, 1, 1], chunksize=1)",
    "it becomes another": "run(1)\nassert start('x = md.zeros(64); K(x, n=64, group=64); os.execlp(sys.executable, sys.executable, "
    "\"work.py\", \"run(1)\")', env={**os.environ, 'SOFTMETAL_LATENCY_US': '200000'}) == 0",
    "the program becomes another": "run(1)\ntry: os.execv('/no such', ['it'])\nexcept OSError: run(1)\n"
    "os.execl(sys.executable, sys.executable, 'work.py', 'run(1)')",
    "it forks": "run(3)\nif (child := os.fork()) == 0: sys.exit()\nos.waitpid(child, 0)",
}  # fmt: skip


def ran(tmp_path, program, *options):
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "program.py").write_text("from work import *\n" + program)
    words = ["-m", "softmetal", "--report", "r.json", *options, "program.py"]
    done = run_child(words, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert not [*tmp_path.glob("metal_dlpack-reports-*")], "nothing stays behind"
    assert ("ended by a signal" in done.stderr) == ("signal.SIGKILL" in program or "signal.SIGABRT" in program), (
        done.stderr
    )
    return done, json.loads((tmp_path / "r.json").read_text())


def places(report):
    return [sorted((access["file"], access["line"]) for access in one["accesses"]) for one in report["findings"]]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.some(4)
def test_what_a_child_ran_and_what_was_found_in_it(tmp_path, program):
    done, report = ran(tmp_path, PROGRAMS[program])
    assert done.returncode == 1, done.stderr
    assert places(report) == [FOUND]
    assert [(one["name"], one["launches"], one["threads"]) for one in report["kernels"]] == [("turned", 3, 192)]
    assert report["findings"][0]["launches"] == 3
    assert done.stderr.count("1 kernel, 3 launches, 192 threads") == 1
    if program == "it has a report of its own":
        assert json.loads((tmp_path / "own.json").read_text())["findings"][0]["launches"] == 2


TORCH = """
import multiprocessing, subprocess, sys

def race():
    import torch
    k = torch.mps.compile_shader("kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i] = x[i ^ 1]; }")
    x = torch.zeros(8, device="mps")
    for _ in range(3): k.f(x)

def test_it():
"""
STARTS = {
    "a subprocess": "subprocess.run([sys.executable, '-c', 'import test_it; test_it.race()'], check=True)",
    "spawned": "p = multiprocessing.get_context('spawn').Process(target=race)\n    p.start()\n    p.join()",
    "of a fork server": "p = multiprocessing.get_context('forkserver').Process(target=race)\n    p.start()\n    p.join()",
}


@pytest.mark.needs_torch
@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("a subprocess", ["-m", "softmetal", "--strict", "--report", "r.json", "test_it.py"]),
        ("spawned", ["-m", "pytest", "-p", "no:cacheprovider", "--softmetal-report", "r.json"]),
        pytest.param("of a fork server", ["-m", "softmetal", "--report", "r.json", "test_it.py"], marks=pytest.mark.long),
    ],
)  # fmt: skip
@pytest.mark.some(1)
def test_kernels_of_torchs_in_a_child_that_does_not_know_of_us_fail_the_run(tmp_path, start, words):
    (tmp_path / "test_it.py").write_text(f"{TORCH}    {STARTS[start]}\n\nif __name__ == '__main__':\n    test_it()\n")
    done = run_child(words, cwd=tmp_path, PYTEST_ADDOPTS=None)
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert [one["kind"] for one in report["findings"]] == ["race"]


@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT"])
def test_of_a_child_that_is_killed_there_is_what_it_had_left(tmp_path, name):
    code = f"run(1); import softmetal; softmetal.wait_idle(); os.kill(os.getpid(), signal.{name})"
    done, report = ran(tmp_path, f"assert start({code!r}) == -signal.{name}")
    assert done.returncode == 1, done.stderr
    assert places(report) == [FOUND]
    assert "1 of the program's processes ended by a signal" in done.stderr


QUICKLY = "run(1); run(1); run(1); import softmetal; softmetal.wait_idle(); "
UNFINISHED = {
    "it waits, and is killed": f"start({QUICKLY + 'time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)'!r})",
    "it outlives the program": "child = subprocess.Popen([sys.executable, 'work.py', "
    f"{QUICKLY + 'print(flush=True); time.sleep(9)'!r}], stdout=subprocess.PIPE)\nchild.stdout.readline(); time.sleep(1)",
    "it gathers for itself": "start('run(1); start(\"run(2)\"); os.kill(os.getpid(), signal.SIGKILL)', "
    "'-m', 'softmetal', '--report', 'own.json')",
}  # fmt: skip


@pytest.mark.parametrize("program", UNFINISHED)
@pytest.mark.some(1)
def test_what_was_launched_quickly_and_below_is_not_lost(tmp_path, program):
    done, report = ran(tmp_path, UNFINISHED[program])
    assert [one["launches"] for one in report["kernels"]] == [3]
    assert ("processes still ran at the end" in done.stderr) == ("outlives" in program), done.stderr


def test_a_child_that_is_killed_right_behind_a_launch_is_told(tmp_path):
    code = "x = md.zeros(64); K(x, n=64, group=64); os.kill(os.getpid(), signal.SIGKILL)"
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "program.py").write_text(f"from work import *\nassert start({code!r}) == -9")
    done = run_child(
        ["-m", "softmetal", "--check", "--strict", "program.py"], cwd=tmp_path, SOFTMETAL_LATENCY_US="2000000"
    )
    assert (done.returncode, done.stderr.splitlines()[0].split(" (")[0]) == (
        2,
        "softmetal: 1 of the program's processes ended by a signal",
    ), done.stderr


def test_what_a_child_does_after_the_program_s_end_is_in_no_report(tmp_path):
    late = "run(1)\nprint(flush=True)\nwhile os.path.exists(os.environ['METAL_DLPACK_REPORTS']): time.sleep(0.01)\n"
    late += "run(1)\nopen('end', 'w')"
    program = f"child = subprocess.Popen([sys.executable, 'work.py', {late!r}], stdout=subprocess.PIPE)\nchild.stdout.readline()"
    done, report = ran(tmp_path, program)
    assert (tmp_path / "end").exists(), done.stderr
    assert report["kernels"][0]["launches"] == 1


def test_a_child_heeds_the_program_s_silences(tmp_path):
    (tmp_path / "benign.txt").write_text("turned:11 it is for show\n")
    done, report = ran(tmp_path, "assert start('run(1)') == 0", "--benign", "benign.txt")
    assert done.returncode == 0, done.stderr
    assert report["findings"][0]["silenced"]["reason"] == "it is for show"
    assert report["unused_silences"] == []


SUB_INTERPRETER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
kind = () if sys.version_info < (3, 13) else ("legacy",)
other = interpreters.create(*kind)
interpreters.run_string(other, '''
import metal_dlpack as md
x = md.zeros(64)
md.kernel("kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i] = i; }")(x, n=64)
''')
"""


def test_a_sub_interpreter_that_is_left_to_the_end_leaves_no_report_of_its_own(tmp_path):
    """Its end comes behind the program's, where nobody may wait."""
    (tmp_path / "program.py").write_text("import sys\nimport metal_dlpack\n" + SUB_INTERPRETER)
    done = run_child(["-m", "softmetal", "--check", "--report", "r.json", "program.py"], cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr
    (kernel,) = json.loads((tmp_path / "r.json").read_text())["kernels"]
    assert (kernel["name"], kernel["launches"]) == ("f", 1)


def test_without_a_report_nothing_waits_for_the_children(tmp_path):
    """Nor do they, or a program that the runner starts, import anything of it."""
    (tmp_path / "p.py").write_text(
        "import metal_dlpack, sys; print([m for m in sys.modules if 'report' in m and 'metal' in m])"
    )
    done = run_child([str(tmp_path / "p.py")], METAL_DLPACK_REPORTS=None)
    assert done.stdout == run_child(["-m", "softmetal", str(tmp_path / "p.py")]).stdout == "[]\n"
    assert run_child([str(tmp_path / "p.py")], METAL_DLPACK_REPORTS=str(tmp_path)).returncode == 0, (
        "nobody gathers there"
    )
