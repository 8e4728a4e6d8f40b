"""Builds the extension modules of examples/ as their README says, and imports them."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from places import EXAMPLES


def build(name, folder, **environment):
    """A copy of examples/NAME in `folder`, with its extension built in place."""
    ignore = shutil.ignore_patterns("build", "*.so", "__pycache__")
    there = Path(shutil.copytree(EXAMPLES / name, folder / name, ignore=ignore))
    result = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=there,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return there


def load(folder, module):
    (path,) = folder.glob(f"{module}.*.so")
    spec = importlib.util.spec_from_file_location(module, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def run_demo(folder):
    """What demo.py prints, run in the folder of the built extension."""
    return subprocess.run(
        [sys.executable, "demo.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=True
    ).stdout
