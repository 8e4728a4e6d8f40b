"""How what others publish comes here: archives of the package index, and a repository's files at one commit.

Why something cannot be had is an OSError.
"""

import fcntl
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Let one of several checkouts fetch."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_kept(folder: Path, mark: str) -> bool:
    stamp = folder / "stamp"
    return stamp.exists() and stamp.read_text() == mark


def keep(folder: Path, mark: str, take: Callable[[Path], None]) -> None:
    """Have `take` fill the folder, unless what is there was taken by the same words; what fails changes nothing."""
    with alone(folder):
        if is_kept(folder, mark):
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            new = Path(scratch, folder.name)
            new.mkdir()
            take(new)
            (new / "stamp").write_text(mark)
            shutil.rmtree(folder, ignore_errors=True)
            new.rename(folder)


def said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


# ---- of a repository ----


def take_commit(
    folder: Path, repository: str, commit: str, clone: Path, paths: Iterable[str], maybe: Iterable[str] = ()
) -> None:
    """Put the paths, and of `maybe` those that are there, in the folder; without a clone, bare or not, it is fetched."""
    with tempfile.TemporaryDirectory() as scratch:
        if not clone.is_dir():
            clone = Path(scratch, "clone")
            said_by("git", "init", "-q", "--bare", str(clone))
            said_by("git", "-C", str(clone), "fetch", "-q", "--depth", "1", repository, commit)
            commit = "FETCH_HEAD"
        git, archive = ("git", "-C", str(clone)), Path(scratch, "archive.tar")
        there = said_by(*git, "ls-tree", "--name-only", commit, "--", *maybe).splitlines() if maybe else []
        said_by(*git, "archive", "-o", str(archive), commit, *paths, *there)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")


# ---- of the package index ----


def take_archive(folder: Path, requirement: str, options: Iterable[str]) -> Path:
    """Download one archive; where the requirement has its digest, pip compares that before it opens the file."""
    asked = folder / "asked.txt"
    asked.write_text(f"{requirement}\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps")
    said_by(*pip, *options, "--dest", str(folder), "--requirement", str(asked))
    (archive,) = (path for path in folder.iterdir() if path != asked)
    return archive


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


def unpack(archive: Path, wanted: str, folder: Path) -> None:
    """The files whose paths match; where the pattern has a group `path`, that is the path in the folder."""
    for name, contents in members(archive):
        if (match := re.fullmatch(wanted, name)) and ".." not in Path(name).parts:
            target = folder / match.groupdict().get("path", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(contents())
