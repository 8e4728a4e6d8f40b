"""building.py: torch's mps device is compiled once for each torch, by one process."""

import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from children import run_child

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch]

PROGRAM = """
import torch
from metal_dlpack import softmetal
softmetal.torch_mps()
assert (torch.ones(3, device="mps") + 1).tolist() == [2] * 3
"""


def test_of_processes_that_begin_together_one_compiles_and_the_file_is_the_users_own(tmp_path):
    """With a compiler that makes an empty library: what is asked here is who compiles, and how often."""
    compiler = tmp_path / "compiler"
    compiler.write_text(
        f"#!{sys.executable}\n"
        "import os, subprocess, sys, time\n"
        f"os.write(os.open({str(tmp_path / 'calls')!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'x')\n"
        "time.sleep(1)\n"
        "output = sys.argv[sys.argv.index('-o') + 1]\n"
        "sys.exit(subprocess.run(['cc', '-shared', '-x', 'c', '/dev/null', '-o', output]).returncode)\n"
    )
    compiler.chmod(0o700)
    program = "import torch; from metal_dlpack.torch_mps import building; print(building.library(torch))"
    settings = {"CXX": str(compiler), "SOFTMETAL_CACHE": str(tmp_path / "cache")}
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: run_child(program, **settings), range(3)))
    assert [one.returncode for one in done] == [0] * 3, done[0].stderr
    (path,) = {one.stdout.strip() for one in done}
    assert (tmp_path / "calls").read_text() == "x"
    assert sum("compiling torch's mps device" in one.stderr for one in done) == 1
    facts = os.stat(path)
    assert (stat.S_IMODE(facts.st_mode), facts.st_uid) == (0o700, os.geteuid())


def test_without_a_compiler_one_sentence_says_what_to_install(tmp_path):
    done = run_child(PROGRAM, PATH=str(tmp_path), CXX=None, SOFTMETAL_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: softmetal.torch_mps: ") and "apt-get install g++" in last


@pytest.mark.parametrize("name", ["false", "/no/such/compiler"])
def test_a_compiler_that_fails_is_named(tmp_path, name):
    done = run_child(PROGRAM, CXX=name, SOFTMETAL_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert f"RuntimeError: softmetal.torch_mps: {name} cannot compile torch's mps device for torch" in done.stderr
