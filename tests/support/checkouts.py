"""A copy of the repository as git would give it to somebody, and its setup.py."""

import shutil
from pathlib import Path

from children import run_child
from places import ROOT


def checkout(folder):
    """What git would give somebody, without what was built."""
    ignore = shutil.ignore_patterns("*.so", "build", "dist", "*.egg-info", ".git", ".venv*", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, folder / "checkout", ignore=ignore))


def setup(folder, *arguments, **environment):
    return run_child(["setup.py", "-q"], *arguments, cwd=folder, timeout=600, PYTHONPATH=None, **environment)
