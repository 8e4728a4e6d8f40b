"""python -m softmetal --check, --report and --benign: the report comes however the program ends."""

import json
import signal
import subprocess
import sys

import pytest
from children import output_of, run_child
from racing_program import CLEAN, LINES, RACE, RACY

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

RUNNER = ["-m", "softmetal"]


def program(tmp_path, end, text=RACY, comment=""):
    path = tmp_path / "program.py"
    path.write_text(text.replace(f"{RACE};", f"{RACE}; // {comment}") + end)
    return path


def ran(tmp_path, path, *options, arguments=(), **keywords):
    """How it ended, and the report."""
    file = tmp_path / "report of it.json"
    done = run_child([*RUNNER, "--report", str(file), *options, str(path), *arguments], cwd=tmp_path, **keywords)
    return done, json.loads(file.read_text()) if file.exists() else None


def lines_found(report):
    return [sorted((access["file"], access["line"]) for access in one["accesses"]) for one in report["findings"]]


FOUND = [[("program.py", line) for line in LINES]]

#: What the program does last, and the status it has; 1 where a finding makes it so.
ENDINGS = {
    "it returns": ("run(3)\nprint('last')", 1),
    "it exits with 0": ("run(3)\nsys.exit()", 1),
    "it exits with 3": ("run(3)\nsys.exit(3)", 3),
    "it exits with a sentence": ("run(3)\nsys.exit('enough')", 1),
    "it raises": ("run(3)\nraise ValueError('its own')", 1),
    "it leaves at once": ("run(3)\nos._exit(0)", 1),
    "it leaves at once with 5": ("run(3)\nos._exit(5)", 5),
    "another thread runs on": (
        "def late():\n    time.sleep(0.2)\n    run(3)\nthreading.Thread(target=late).start()", 1),
    "threads": (
        "ts = [threading.Thread(target=run) for _ in range(3)]\n[t.start() for t in ts]\n[t.join() for t in ts]", 1),
    "an exit handler runs kernels": ("atexit.register(run, 3)", 1),
    "nobody waits for its kernels": ("x = md.zeros(64)\nfor _ in range(3): K(x, n=64, group=64)", 1),
    "a child is forked": ("run(3)\nif os.fork() == 0:\n    os._exit(0)\nos.wait()", 1),
    "it goes to another folder": ("run(3)\nos.chdir('/')", 1),
    "stderr is closed": ("run(3)\nsys.stderr.close()", 1),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.some(5)
def test_the_report_comes_however_the_program_ends(tmp_path, ending):
    end, status = ENDINGS[ending]
    path = program(tmp_path, end)
    done, report = ran(tmp_path, path)
    assert done.returncode == status, done.stderr
    assert lines_found(report) == FOUND
    assert [(one["name"], one["launches"], one["threads"]) for one in report["kernels"]] == [("turned", 3, 192)]
    assert report["findings"][0]["launches"] == 3
    assert done.stderr.count("softmetal: kernel: turned") in ({1} if ending != "threads" else {1, 2, 3})
    assert "program.py:11" in done.stderr
    assert done.stderr.count("1 kernel, 3 launches, 192 threads") == 1
    does = {access["line"]: access["does"] for access in report["findings"][0]["accesses"]}
    assert does == {10: "writes", 11: "reads"}
    lines = path.read_text().split("\n")
    at = {
        access["line"]: lines[access["line"] - 1][access["column"] - 1 :]
        for access in report["findings"][0]["accesses"]
    }
    assert at[10].startswith("= x[t]")
    assert at[11].startswith(RACE)
    if ending == "it raises":
        assert done.stderr.index("ValueError: its own") < done.stderr.index("1 kernel, 3 launches")


#: torch's kernel reads past its neighbour's item, and nobody waits for it.
TORCH = """
import torch, sys
K = torch.mps.compile_shader("kernel void f(device float *x, uint i [[thread_position_in_grid]]) { x[i] = x[i ^ 1]; }")
x = torch.zeros(8, device="mps")
if hasattr(torch.mps, "Stream"):
    torch.mps.set_stream(torch.mps.Stream())
for _ in range(2000): K.f(x)
"""


@pytest.mark.needs_torch
@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(
    ("end", "status"),
    [("", 1), ("1 / 0", 1), ("sys.exit(3)", 3), ("import os; os._exit(0)", 1), ("raise KeyboardInterrupt", 130)],
)
@pytest.mark.some(1)
def test_kernels_of_torchs_that_nobody_waits_for_are_in_the_report(tmp_path, end, status):
    done, report = ran(tmp_path, program(tmp_path, end, TORCH))
    assert done.returncode in (status, -signal.SIGINT if status == 130 else status)
    assert [kernel["launches"] for kernel in report["kernels"]] == [2000]
    assert [finding["kind"] for finding in report["findings"]] == ["race"]


#: What a program does in which nothing is found, its status, and that under --strict.
CLEAN_ENDS = [("run()", 0, 0), ("os._exit(0)", 0, 2), ("sys.exit(3)", 3, 3), ("1 / 0", 1, 1)]


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize(("end", "status", "strict"), CLEAN_ENDS)
def test_a_program_in_which_nothing_is_found_has_its_own_status(tmp_path, end, status, strict, is_strict):
    done, report = ran(tmp_path, program(tmp_path, end, CLEAN), *["--strict"] * is_strict)
    assert (done.returncode, report["findings"]) == (strict if is_strict else status, [])
    assert "0 findings" in done.stderr
    assert ("softmetal: no kernel was launched, so nothing was checked: 0 kernels" in done.stderr) == (end != "run()")


def test_file_is_absolute_as_in_python(tmp_path):
    (tmp_path / "program.py").write_text("print(__file__)")
    assert run_child([*RUNNER, "program.py"], cwd=tmp_path).stdout == f"{tmp_path / 'program.py'}\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_program_that_is_told_to_end_has_a_report(tmp_path, name):
    heeds = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # whoever runs the tests may ignore it
    path = program(tmp_path, f"{heeds}\nrun(3)\nos.kill(os.getpid(), signal.{name})\ntime.sleep(60)")
    done, report = ran(tmp_path, path)
    assert (done.returncode, lines_found(report)) == (-getattr(signal, name), FOUND)
    assert ("KeyboardInterrupt" in done.stderr) == (name == "SIGINT")


def test_a_report_without_the_kernels_that_still_run_says_so(tmp_path):
    endless = RACY.replace("shared[t] = x[t];", "while (x[t] == 0) { shared[t] = x[t]; }")
    end = "md.running = None\nx = md.zeros(64)\nK(x, n=64, group=64)\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)"
    done, _ = ran(tmp_path, program(tmp_path, end, endless))
    assert done.returncode == -signal.SIGTERM
    assert "softmetal: kernels still ran at the end; what they did is not in this report." in done.stderr


def test_a_module_and_its_arguments(tmp_path):
    program(tmp_path, "print(sys.argv[1:])\nrun()")
    done = run_child([*RUNNER, "--check", "--report=r.html", "-m", "program", "--check", "x"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "['--check', 'x']\n")
    assert "turned" in (tmp_path / "r.html").read_text()


def test_two_processes_write_one_file(tmp_path):
    """The last one's stands, whole."""
    path = program(tmp_path, "run(int(sys.argv[1]))")
    words = [sys.executable, *RUNNER, "--report", "both.json", str(path)]
    processes = [subprocess.Popen([*words, str(n)], cwd=tmp_path, stderr=subprocess.DEVNULL) for n in (1, 2)]
    assert [process.wait(120) for process in processes] == [1, 1]
    report = json.loads((tmp_path / "both.json").read_text())
    assert report["kernels"][0]["launches"] in {1, 2}
    assert [one.name for one in tmp_path.iterdir() if "both" in one.name] == ["both.json"]


def test_of_a_program_without_its_source_the_kernel_s_own_line_is_said(tmp_path):
    code = "import py_compile, sys; py_compile.compile('program.py', cfile='bytes.pyc')"
    path = program(tmp_path, "run()")
    run_child(["-c", code], cwd=tmp_path, check=True)
    path.unlink()
    done = run_child([*RUNNER, "--report", "r.json", "-m", "bytes"], cwd=tmp_path)
    assert done.returncode == 1
    (finding,) = json.loads((tmp_path / "r.json").read_text())["findings"]
    assert {(one["file"], one["line"]) for one in finding["accesses"]} == {(None, 7), (None, 8)}
    for one in finding["accesses"]:
        place = f"program_source:{one['source_line']}:{one['column']}"
        assert f"{place} (the kernel's source): thread" in done.stderr
        assert f"{place}, thread" in done.stderr, "said at once"


@pytest.mark.parametrize("name", [None, "turned.metal"])
def test_a_kernel_in_a_file_of_metal_has_that_file(tmp_path, name):
    text = RACY.partition('"""')[2].partition('"""')[0]
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "turned.metal").write_text(text)
    before, _, rest = RACY.partition('md.kernel("""')
    made = f"md.Library(open('kernels/turned.metal').read(), name={name!r})['turned']"
    path = program(tmp_path, "run()", before + made + rest.partition('""")')[2])
    done, report = ran(tmp_path, path)
    assert done.returncode == 1
    assert lines_found(report) == [[("kernels/turned.metal", 7), ("kernels/turned.metal", 8)]]


def test_silenced_by_a_comment_or_a_list(tmp_path):
    done, report = ran(tmp_path, program(tmp_path, "run()", comment="as softmetal: benign the order is for show"))
    assert done.returncode == 1, "behind other words it is no such comment"
    path = program(tmp_path, "run()", comment="softmetal: benign it is for show")
    done, report = ran(tmp_path, path)
    assert done.returncode == 0
    assert report["findings"][0]["silenced"]["reason"] == "it is for show"
    assert "silenced: 1" in done.stderr
    assert "it is for show" in done.stderr
    (tmp_path / "benign.txt").write_text("turned:11 it is for show\nturned:99 it was once\n")
    done, report = ran(tmp_path, program(tmp_path, "run()"), "--benign", "benign.txt")
    assert done.returncode == 0
    assert "benign.txt:2: nothing was found there, so this silence is not needed: it was once" in done.stderr


@pytest.mark.parametrize(("options", "why"), [
    (["--report", "r.txt"], "--report: r.txt must end in .html, .json or .sarif"),
    (["--report", "nowhere/r.json"], "--report: nowhere/r.json cannot be written: there is no folder"),
    (["--benign", "nowhere"], "--benign: nowhere cannot be read: No such file or directory."),
    (["--benign", "rows"], "--benign: rows:1: turned:11 has no reason"),
    (["--report"], "usage: softmetal"),
])  # fmt: skip
def test_what_cannot_be_done_is_said_before_the_program_runs(tmp_path, options, why):
    (tmp_path / "rows").write_text("turned:11\n")
    program(tmp_path, "run()\nprint('it ran')")
    words = [*options, "program.py"] if len(options) > 1 else options
    done = run_child([*RUNNER, *words], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_a_report_that_cannot_be_written_at_the_end_is_said(tmp_path):
    (tmp_path / "gone").mkdir()
    path = program(tmp_path, "run()\nos.rmdir('gone')", CLEAN)
    done = run_child([*RUNNER, "--report", "gone/r.json", str(path)], cwd=tmp_path)
    assert done.returncode == 1
    assert "the report cannot be written to" in done.stderr


def test_pytest_warns_of_nothing_that_the_runner_has_imported_first():
    """It looks at the packages of an installed wheel; where warnings are errors, the run would end there."""
    output_of("""
        import sys
        import softmetal.running.program
        ours = {name for name in sys.modules if "." not in name and name.lstrip("_").startswith(("metal_dlpack", "softmetal"))}
        assert ours > {"metal_dlpack", "softmetal"}
        assert [name for name in ours if "PYTEST_DONT_REWRITE" not in sys.modules[name].__doc__] == []
    """)
