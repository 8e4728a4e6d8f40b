"""Child processes of the package end with it, and its programs end well when their output does not take it all."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from children import is_running, run_child
from eventually import PATIENCE, until
from places import KIT, PACKAGES, ROOT, python_files, python_path

#: A module that hangs when it is imported, with a process of its own; both write down who they are.
HANGS = """
import os, subprocess, time
from pathlib import Path
here = Path(os.environ["PIDS"])
(here / "grandchild").write_text(str(subprocess.Popen(["sleep", "60"]).pid))
(here / "child.part").write_text(str(os.getpid()))
(here / "child.part").rename(here / "child")
{hang}
"""
#: A consumer that hangs does it with the GIL or without.
HANGING = {"without the GIL": "time.sleep(60)", "with the GIL": "import ctypes; ctypes.PyDLL(None).sleep(60)"}
#: A compiler's environment has only what it needs.
COMPILES = """
import os, sys
from softmetal.msl import child
child._environment = lambda: dict(os.environ)
child.run([sys.executable, os.environ["PIDS"] + "/hangs.py"], "")
"""
#: What starts our child: arguments of Python.
STARTS = {
    "doctor": ["-m", "metal_dlpack"],
    "doctor, as JSON": ["-m", "metal_dlpack", "--json"],
    "kit, a producer": ["-m", "dlpack_conformance", "--producer", "hangs:Library"],
    "kit, a consumer": ["-m", "dlpack_conformance", "--consumer", "hangs:Library"],
    "trial": ["-c", "from metal_dlpack.asking.trials import trial_of; trial_of('torch')"],
    "compiler": ["-c", COMPILES],
}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread of the child watches its parent")


def heed_signals():
    """Also where the tests run under nohup or behind a `&`, whose children ignore these."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def started(tmp_path):
    """Start a Python whose child hangs; returns it, and the pids of that child and of the child's own."""
    parents, pids = [], []

    def start(arguments, hang):
        # whichever framework the child imports
        for name in ("numpy", "ml_dtypes", "torch", "tvm_ffi", "jax", "mlx", "hangs"):
            (tmp_path / f"{name}.py").write_text(HANGS.format(hang=hang))
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{python_path()}", "PIDS": str(tmp_path)}
        command = [sys.executable, *arguments]
        parents.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, preexec_fn=heed_signals))
        until(lambda: (tmp_path / "child").exists() or parents[0].poll() is not None, 60)
        pids.extend(int((tmp_path / name).read_text()) for name in ("child", "grandchild"))
        assert all(map(is_running, pids))
        return parents[0], pids

    yield start
    for parent in parents:
        parent.kill()
        parent.wait()
    for pid in filter(is_running, pids):
        os.kill(pid, signal.SIGKILL)


@linux_only
@pytest.mark.parametrize("hang", HANGING.values(), ids=HANGING)
@pytest.mark.parametrize("arguments", STARTS.values(), ids=STARTS)
@pytest.mark.some(4)
def test_a_child_ends_with_a_parent_that_is_killed(started, arguments, hang):
    parent, pids = started(arguments, hang)
    parent.kill()
    until(lambda: not any(map(is_running, pids)))


@linux_only
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGHUP, signal.SIGINT))]
)
@pytest.mark.parametrize("arguments", STARTS.values(), ids=STARTS)
def test_a_child_ends_with_a_parent_that_is_stopped(started, arguments, number):
    parent, pids = started(arguments, "time.sleep(60)")
    parent.send_signal(number)
    until(lambda: not any(map(is_running, pids)))
    parent.wait(PATIENCE)


def test_a_child_that_watches_its_parent_ends_its_group_after_it(tmp_path):
    """As on a Mac, where no signal comes."""
    code = (
        "import subprocess, sys, os, time; from dlpack_conformance import tied_process as tied; tied.LOOK_S = 0.05;"
        "helper = subprocess.Popen(['sleep', '60']);"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{helper.pid}} .');"
        "tied.watch(int(sys.argv[1])); time.sleep(60)"
    )
    starter = (
        "import subprocess, sys, os, time;"
        f"subprocess.Popen([sys.executable, '-c', {code!r}, str(os.getpid())], start_new_session=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen([sys.executable, "-c", starter], env=environment) as parent:
        place = tmp_path / "pids"
        until(lambda: place.exists() and place.read_text().endswith("."), 60)
        pids = [int(word) for word in place.read_text().split()[:2]]
        time.sleep(0.3)
        assert all(map(is_running, pids))
        parent.kill()
    until(lambda: not any(map(is_running, pids)))


def test_only_one_module_starts_processes():
    """What starts one elsewhere leaves it behind when it is killed itself."""
    starts = re.compile(
        r"subprocess\.(Popen|run|call|check_\w+|get\w*output)\b|\bPopen\(|os\.(fork|spawn\w*|popen|system)\(|import multiprocessing"
    )
    found = {
        path.relative_to(ROOT).as_posix()
        for root in (PACKAGES, KIT)
        for path in python_files(root)
        if starts.search(path.read_text())
    }
    assert found == {"kit/dlpack_conformance/tied_process.py"}


# ---- outputs ----

#: What prints something on stdout, by the program.
PRINTS = [
    ["-m", "metal_dlpack", "--version"],
    ["-m", "metal_dlpack", "--includes"],
    ["-m", "metal_dlpack"],
    ["-m", "metal_dlpack", "--json"],
    ["-m", "dlpack_conformance", "--list"],
    ["-m", "dlpack_conformance", "--producer", "toy_library:Toy", "--rule", "items"],
    ["-m", "dlpack_conformance", "--producer", "toy_library:Toy", "--rule", "items", "--json"],
]


def printed_to(arguments, output, errors=subprocess.PIPE, **environment):
    """Exit code and stderr; the doctor finds no device, so that it is quick."""
    given = {**os.environ, "PYTHONPATH": python_path(), "SOFTMETAL_DEVICES": "none", **environment}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=given,
        stdout=output,
        stderr=errors,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full")
@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
@pytest.mark.some(4)
def test_a_full_disk_is_a_sentence(arguments):
    sentence = f"python {' '.join(arguments[:2])}: the output cannot be written: No space left on device.\n"
    with open("/dev/full", "w") as full:
        for buffering in ("", "1"):
            assert printed_to(arguments, full, PYTHONUNBUFFERED=buffering) == (74, sentence)
        assert printed_to(arguments, full, full) == (74, None)  # 1 would be a verdict


def test_a_library_of_any_name_is_shown_on_one_line(tmp_path):
    (tmp_path / "odd.py").write_text(
        "from toy_library import Toy\nclass Odd(Toy):\n    name = 'a\\n\\x1b[31mred'\n"
        "    def version(self):\n        return '\\ud800'\n"
    )
    arguments = ["-m", "dlpack_conformance", "--producer", "odd:Odd", "--rule", "items"]
    done = run_child(arguments, PYTHONPATH=os.pathsep.join([str(tmp_path), python_path()]))
    assert done.stdout.startswith("a \\x1b[31mred \\ud800 as producer: keeps"), done.stderr


@pytest.mark.parametrize("program", ["dlpack_conformance", "metal_dlpack"])
def test_a_program_that_fails_itself_gives_no_verdict(program):
    """Without descriptors no child is started: 1 would say that a rule is broken, or that a pair shares nothing."""
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8));"
    arguments = ["--producer", "numpy"] if program.endswith("conformance") else []
    done = run_child(
        ["-c", f"{limit} sys.argv[0] = ''; runpy.run_module({program!r}, run_name='__main__')"], *arguments
    )
    assert (done.returncode, done.stderr.count("Too many open files")) == (70, 1)


@pytest.mark.parametrize("error", ["OSError(28, 'full', 'a file')", "OSError(2, 'gone')", "ValueError('wrong')"])
def test_an_error_that_is_not_the_outputs_is_shown_whole(error):
    done = run_child(
        f"from dlpack_conformance.command_line import run\nrun(lambda: (_ for _ in ()).throw({error}), '')"
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (70, 1), done.stderr


@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
def test_a_reader_who_has_seen_enough_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        assert printed_to(arguments, output) == (-signal.SIGPIPE, "")


@pytest.mark.parametrize("arguments", PRINTS, ids=" ".join)
def test_a_closed_output_is_no_traceback(arguments):
    done = run_child(
        ["-c", "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"],
        *arguments,
        SOFTMETAL_DEVICES="none",
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)
