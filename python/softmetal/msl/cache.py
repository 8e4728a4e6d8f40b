"""Files that outlive the process: compiled kernels, precompiled headers, what is known of a compiler.

A kernel's image is code that this process will run, so that the folder has to be the user's own: a directory (no
symlink) of this user that nobody else may enter, below directories that nobody else may change.  A file in it counts
only if it is this user's, is no symlink, and ends with a seal: the hash of its content and of its own name.  The seal
of a precompiled header lies beside it, as clang reads that file to its end.  A file without a sound seal is made
again.  A file appears under its name complete or not at all, so that any number of processes may make the same one at
once.

The folder is metal_dlpack/kernels in $SOFTMETAL_CACHE, $XDG_CACHE_HOME or ~/.cache: what lies beside it is not ours.
Nothing is removed there either that has not both a name and a mark of this module.  Where the folder cannot be used,
one warning says why, and the files live in a temporary folder until the process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import re
import stat
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

#: The oldest files go when the folder holds more.
MOST_NBYTES = 512 << 20
#: What a process that was killed has left behind is younger than this while it may still be written.
UNFINISHED_SECONDS = 3600
#: A process looks through the folder once in so long: that takes as long as a compiler, where it is full.
SWEEP_SECONDS = 60
#: What was found so lately may be about to be opened, by a compiler or a loader of any process.
IN_USE_SECONDS = 600

_SEAL = b"metal_dlpack"
_HASH_NBYTES = 32
_SEAL_NBYTES = _HASH_NBYTES + len(_SEAL)
#: Files whose reader minds what follows the content, and the end of the name of the seal beside one.
_SEALED_BESIDE, _BESIDE = {".pch"}, "_seal"
_ENTRY = re.compile(r"[0-9a-f]{40}(\.\w+)?")
#: SPEC ld.so(8), "Dynamic string tokens".
_LOADERS_OWN = re.compile(r"\$\{?(?:ORIGIN|LIB|PLATFORM)")
#: A scratch folder's name: what tempfile puts between these two is its own.
_UNFINISHED = "metal_dlpack-", ".unfinished"
_IS_UNFINISHED = re.compile(r"metal_dlpack-[a-z0-9_]{8}\.unfinished")

# tempfile and shutil are imported where they are used: to find a file, which must be quick, needs neither.

_lock = threading.Lock()
_replaced: dict[Path | None, Path] = {}  # folders that cannot be used -> what is used instead
_sound: dict[Path, object] = {}  # large files -> what the system said of them when they were last found sound
_swept: dict[Path, float] = {}  # folders -> when this process last looked for what is old


def _forget() -> None:
    """In a forked child: its parent removes its own temporary folder."""
    global _lock
    _lock = threading.Lock()
    _replaced.clear()


os.register_at_fork(after_in_child=_forget)


def entry(key_parts: Iterable[bytes | str], suffix: str = "") -> Path:
    """Return the path of the file with this key; whether it exists is another question: `is_sound`."""
    key = hashlib.blake2b(digest_size=20)
    for part in key_parts:
        data = part.encode() if isinstance(part, str) else part
        key.update(len(data).to_bytes(8, "little"))
        key.update(data)
    return folder() / (key.hexdigest() + suffix)


def made(key_parts: Iterable[bytes | str], suffix: str, make: Callable[[Path], None]) -> Path:
    """Return the path of a sound file with this key.  If there is none, `make(path)` writes one, which is then kept.

    Raises what `make` raises.  Safe in many processes and threads at once; two may both call `make`.
    """
    path = entry(key_parts, suffix)
    known = _sound.get(path)
    if (known is not None and known == _facts(path)) or is_sound(path):
        _mark_as_used(path)
        if suffix in _SEALED_BESIDE:  # its hash takes as long as a run of the compiler that reads it
            _sound[path] = _facts(path)
        return path
    return _make_somewhere(path, make)


def read(key_parts: Iterable[bytes | str], suffix: str = "") -> bytes | None:
    """Return what `write` stored under this key, or None."""
    path = entry(key_parts, suffix)
    data = _read_own(path)
    if data is None or not _is_sealed(path, data):
        return None
    _mark_as_used(path)
    return data[:-_SEAL_NBYTES]


def write(key_parts: Iterable[bytes | str], data: bytes, suffix: str = "") -> None:
    """Store data under this key, for `read`."""
    with contextlib.suppress(OSError):  # not even a temporary folder takes it
        _make_somewhere(entry(key_parts, suffix), lambda unfinished: unfinished.write_bytes(data))


def is_sound(path: Path) -> bool:
    """True if the file is this user's, nobody else may write it, and its seal is right."""
    data = _read_own(path)
    if data is not None and path.suffix in _SEALED_BESIDE:
        return _read_own(_beside(path)) == _seal(path, data)
    return data is not None and _is_sealed(path, data)


def forget(path: Path) -> None:
    """Remove a file that its reader refuses, so that it is made again."""
    with contextlib.suppress(OSError):
        _unlink(path)


def folder() -> Path:
    """Return the folder in use.  It is made if it is not there, and checked each time: it may have changed hands."""
    wished = _wished_folder()
    with _lock:
        instead = _replaced.get(wished)
    if instead is not None:
        return instead
    if wished is None:
        is_named = bool(os.environ.get("SOFTMETAL_CACHE"))
        relative = "there is no working directory, and SOFTMETAL_CACHE is relative"
        return _instead(None, relative if is_named else "there is no home directory ($HOME is not set)")
    refusal = _refusal(wished)
    return wished if refusal is None else _instead(wished, refusal)


def _wished_folder() -> Path | None:
    base = os.environ.get("SOFTMETAL_CACHE", "")
    if base:
        with contextlib.suppress(FileNotFoundError):  # a relative path, and the working directory was removed
            base = os.path.abspath(base)
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(base):  # SPEC specifications.freedesktop.org/basedir-spec: a relative path is ignored
            base = os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    # Symlinks on the way are followed once, here: who owns one cannot turn it after the check.
    return Path(os.path.realpath(os.path.join(base, "metal_dlpack")), "kernels")


def _refusal(path: Path) -> str | None:
    """Make the folder; return why it cannot be used, or None."""
    try:
        for above in reversed(path.parents):
            _make_directory(above)
            if reason := _why_unsafe(above):
                return reason
        _make_directory(path)
        facts = path.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            return "it is a symlink or a file, not a directory"
        if facts.st_uid != os.geteuid():
            return f"it belongs to another user (uid {facts.st_uid}, not {os.geteuid()})"
        if facts.st_mode & 0o077:
            return f"other users may enter it (mode {stat.S_IMODE(facts.st_mode):04o}): run chmod 700 on it"
        if os.statvfs(path).f_flag & os.ST_NOEXEC:
            return "nothing may be executed on its file system (noexec)"
        if _LOADERS_OWN.search(str(path)):
            return "its path has a name that the loader replaces by one of its own"
    except OSError as error:
        return _sentence(error)
    return None


def _make_directory(path: Path) -> None:
    """Make it for this user alone, unless something is there."""
    with contextlib.suppress(FileExistsError):
        if not os.path.lexists(path):  # mkdir of a directory that is there may fail as read-only
            path.mkdir(mode=0o700)  # SPEC specifications.freedesktop.org/basedir-spec: so are those above it


def _why_unsafe(above: Path) -> str | None:
    """Why somebody else may replace what lies in this directory, or None."""
    facts = above.lstat()
    # In a container / may belong to a user without a name here: the one who runs the system.
    if facts.st_uid not in (0, os.geteuid(), os.lstat("/").st_uid):
        return f"another user may replace it, because {above} belongs to uid {facts.st_uid}"
    if facts.st_mode & stat.S_ISVTX:  # as /tmp: an entry is its owner's
        return None
    if facts.st_mode & stat.S_IWOTH:
        return f"any user may replace it, because any user may write to {above}"
    if facts.st_mode & stat.S_IWGRP and not _is_own_group(facts.st_gid):
        return f"other users may replace it, because the group {facts.st_gid} may write to {above}"
    return None


def _is_own_group(gid: int) -> bool:
    """True of root's group, and of one that has this user's name and no other members, as many systems give each."""
    import grp
    import pwd

    if gid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _sentence(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _instead(wished: Path | None, why: str) -> Path:
    """Use a temporary folder from now on, and say so."""
    private = _private_folder()
    with _lock:
        _replaced[wished] = private
    place = "The folder of compiled kernels" if wished is None else f"The folder of compiled kernels ({wished})"
    warnings.warn(
        f"{place} cannot be used: {why}. Kernels are compiled anew in each process. "
        "Set SOFTMETAL_CACHE to a folder of your own.",
        RuntimeWarning,
        stacklevel=2,
    )
    return private


_private: tuple[int, Path] | None = None  # of which process


def _private_folder() -> Path:
    global _private
    with _lock:
        import tempfile

        if _private is None or _private[0] != os.getpid():  # a forked child must not lose what its parent removes
            path = Path(tempfile.mkdtemp(prefix="metal_dlpack-"))
            _private = (os.getpid(), path)
            atexit.register(_remove, *_private)
        return _private[1]


def _remove(pid: int, path: Path) -> None:
    import shutil

    if pid == os.getpid():
        shutil.rmtree(path, ignore_errors=True)


def _read_own(path: Path) -> bytes | None:
    """Return the content of a regular file that this user alone may write; None for anything else."""
    careful = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, careful)) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                return None
            return file.read()
    except (OSError, MemoryError):  # nobody made our file that no memory holds
        return None


def _facts(path: Path) -> object:
    """What changes when a header or its seal does, by whomever."""
    try:
        said = [os.lstat(one) for one in (path, _beside(path))]
    except OSError:
        return None
    return [(one.st_dev, one.st_ino, one.st_size, one.st_mode, one.st_uid, one.st_ctime_ns) for one in said]


def _seal(path: Path, data: bytes | memoryview) -> bytes:
    """Bytes that follow the content, which the loader of images does not read, or that lie beside it."""
    seal = hashlib.blake2b(data, digest_size=_HASH_NBYTES, key=path.name.encode()[:64])
    return seal.digest() + _SEAL


def _is_sealed(path: Path, data: bytes) -> bool:
    return data[-_SEAL_NBYTES:] == _seal(path, memoryview(data)[:-_SEAL_NBYTES])


def _make_somewhere(path: Path, make: Callable[[Path], object]) -> Path:
    """Make the file; in a temporary folder if its own does not take it."""
    try:
        return _make(path, make)
    except OSError as error:
        if path.parent == _private_folder():
            raise
        return _make(_instead(path.parent, _sentence(error)) / path.name, make)


def _make(path: Path, make: Callable[[Path], object]) -> Path:
    import tempfile

    prefix, suffix = _UNFINISHED
    with tempfile.TemporaryDirectory(suffix, prefix, path.parent, ignore_cleanup_errors=True) as scratch:
        unfinished = Path(scratch, path.name)
        make(unfinished)
        if path.suffix in _SEALED_BESIDE:
            seal = _beside(unfinished)
            seal.write_bytes(_seal(path, unfinished.read_bytes()))
            seal.chmod(0o700)
            seal.replace(_beside(path))  # first: what has no seal is nobody's, and stays
        else:
            with open(unfinished, "r+b") as file:
                file.write(_seal(path, file.read()))
        unfinished.chmod(0o700)
        unfinished.replace(path)
    if time.monotonic() - _swept.get(path.parent, -SWEEP_SECONDS) >= SWEEP_SECONDS:
        _swept[path.parent] = time.monotonic()
        _drop_oldest(path)
    return path


def _beside(path: Path) -> Path:
    return path.with_name(path.name + _BESIDE)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
    if path.suffix in _SEALED_BESIDE:
        _beside(path).unlink(missing_ok=True)


def _mark_as_used(path: Path) -> None:
    with contextlib.suppress(OSError):  # a read-only folder; what is never written drops nothing either
        os.utime(path)


def _drop_oldest(kept: Path) -> None:
    """Remove what was unused longest until entries are a quarter below their limit, and what was left unfinished."""
    entries, unfinished = [], []
    with os.scandir(kept.parent) as items:
        for item in items:
            try:
                facts = item.stat(follow_symlinks=False)
            except OSError:
                continue  # another process was faster
            if facts.st_uid == os.geteuid():
                if stat.S_ISREG(facts.st_mode) and _ENTRY.fullmatch(item.name):
                    entries.append((facts.st_mtime, facts.st_size, item.path))
                elif stat.S_ISDIR(facts.st_mode) and _IS_UNFINISHED.fullmatch(item.name):
                    unfinished.append((facts.st_mtime, Path(item.path)))
    # The clock is the file system's: `kept` was written just now.
    now = max((since for since, _, path in entries if path == str(kept)), default=0)
    for since, path in unfinished:
        if since < now - UNFINISHED_SECONDS:
            import shutil

            shutil.rmtree(path, ignore_errors=True)
    if sum(nbytes for _, nbytes, _ in entries) <= MOST_NBYTES:
        return
    marked = [(since, nbytes, path) for since, nbytes, name in entries if _has_mark(path := Path(name))]
    total = sum(nbytes for _, nbytes, _ in marked)
    most = MOST_NBYTES if total <= MOST_NBYTES else MOST_NBYTES * 3 // 4
    for since, nbytes, path in sorted(marked):
        if total <= most or since > now - IN_USE_SECONDS:
            return
        if path != kept and not _is_beside_another(path):
            _unlink(path)
            total -= nbytes


def _is_beside_another(path: Path) -> bool:
    """True of the seal of a file that is there: it goes with that file."""
    return path.name.endswith(_BESIDE) and path.with_name(path.name.removesuffix(_BESIDE)).exists()


def _has_mark(path: Path) -> bool:
    """True if the file, or the seal beside it, ends as `_seal` ends one, sound or not."""
    try:
        with open(_beside(path) if path.suffix in _SEALED_BESIDE else path, "rb") as file:
            file.seek(-len(_SEAL), os.SEEK_END)
            return file.read() == _SEAL
    except OSError:
        return False
