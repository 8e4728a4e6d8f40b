"""A copy of the repository as git would give it to somebody, and its setup.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from places import ROOT


def checkout(folder):
    """What git would give somebody, without what was built."""
    ignore = shutil.ignore_patterns("*.so", "build", "dist", "*.egg-info", ".git", ".venv*", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, folder / "checkout", ignore=ignore))


def setup(folder, *arguments, **environment):
    return subprocess.run(
        [sys.executable, "setup.py", "-q", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
