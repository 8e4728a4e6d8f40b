"""msl/cache.py: which files go when the folder is full, and whose files never do."""

import os
import stat
import time
from types import SimpleNamespace

import pytest
from cache_entries import refuses, stored, writes
from places import DOCS

from softmetal.msl import cache

pytestmark = pytest.mark.usefixtures("place")


def test_the_documents_say_how_much_is_kept():
    assert f"beyond {cache.MOST_NBYTES / (1 << 20):g} MiB" in (DOCS / "kernels.md").read_text()


def test_the_oldest_go_when_the_folder_is_full(place, monkeypatch):
    monkeypatch.setattr(cache, "MOST_NBYTES", 10_000)
    paths = []
    for number in range(9):
        paths.append(stored([str(number)], b"x" * 1000))
        os.utime(paths[-1], (number + 1, number + 1))
    os.utime(paths[0], (0, 0))
    cache.made(["0"], ".so", refuses)  # used now: the youngest
    latest = stored(["latest"], b"x" * 1000)
    kept = set(place.iterdir())
    assert {latest, paths[0], paths[8]} <= kept
    assert not {paths[1], paths[2]} & kept
    assert 5_000 < sum(path.stat().st_size for path in kept) <= 10_000


def test_what_another_process_has_just_found_stays(monkeypatch):
    monkeypatch.setattr(cache, "MOST_NBYTES", 10)
    first, old = stored(["first"]), stored(["old"])
    os.utime(first, (1, 1))
    os.utime(old, (time.time() - 700,) * 2)
    assert cache.made(["first"], ".so", refuses) == first
    stored(["latest"])
    assert cache.is_sound(first)
    assert not old.exists()


def test_a_header_that_is_dropped_takes_its_seal_along(place, monkeypatch):
    path = cache.made(["key"], ".pch", writes(b"x" * 1000))
    for one in place.iterdir():
        os.utime(one, (1, 1))
    monkeypatch.setattr(cache, "MOST_NBYTES", 500)
    kept = stored(["other"])
    assert not path.exists()
    assert list(place.iterdir()) == [kept]


def test_a_process_looks_for_what_is_old_once_in_a_while(place, monkeypatch):
    """To look through a full folder takes as long as a compiler."""
    monkeypatch.setattr(cache, "SWEEP_SECONDS", 60)
    monkeypatch.setattr(cache, "MOST_NBYTES", 10)
    monkeypatch.setattr(cache, "IN_USE_SECONDS", -1e12)
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=1000.0)
    monkeypatch.setattr(cache, "time", clock)
    for clock.now, count in ((1000.0, 1), (1059.0, 2), (1059.5, 3), (1060.0, 1), (1060.5, 2)):
        stored([str(clock.now)])
        assert len(list(place.iterdir())) == count


def test_one_file_larger_than_the_limit_is_kept(monkeypatch):
    monkeypatch.setattr(cache, "MOST_NBYTES", 10)
    path = stored(data=b"x" * 100)
    assert cache.is_sound(path)


def unfinished(place, name, age):
    folder = place / name
    folder.mkdir()
    (folder / "image.so").write_bytes(b"half")
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_what_a_killed_process_left_is_removed_after_an_hour(place):
    ours = stored()
    young = unfinished(place, "metal_dlpack-aaaaaaaa.unfinished", 10)
    old = unfinished(place, "metal_dlpack-bbbbbbbb.unfinished", 4000)
    os.utime(ours, (time.time() + 1e6,) * 2)  # a clock that was wrong once
    stored(["another"])
    assert young.exists()
    assert not old.exists()


# ---- what is not ours ----


#: A user's files, all older than our files, in the folder that SOFTMETAL_CACHE names and in ours too.
USERS_FILES = [
    "thesis.tex",
    "photos.tar",
    "metal_dlpack.pth",
    "libkernel.so",
    "paper.unfinished/draft",
    "metal_dlpack-paper.unfinished/draft",
    "0123456789abcdef0123456789abcdef01234567",  # as git names its objects
    "0123456789abcdef0123456789abcdef01234567.so",
    "0123456789abcdef0123456789abcdef01234567.unfinished/draft",
    ".cache/0123456789abcdef0123456789abcdef01234567.so",
]


def everything_below(top):
    facts = {path: path.lstat() for path in top.rglob("*") if path.is_symlink() or not path.is_dir()}
    return {path: (one.st_ino, one.st_mode, one.st_size, one.st_mtime) for path, one in facts.items()}


def test_what_is_not_ours_stays_whatever_it_is_called(place, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_NBYTES", 10_000)
    monkeypatch.setattr(cache, "UNFINISHED_SECONDS", -1e12)  # each is too old
    monkeypatch.setattr(cache, "IN_USE_SECONDS", -1e12)
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_bytes(b"x" * 100_000 + cache._SEAL)
    stored(["0"])
    for folder in (place, place.parent, tmp_path / "named"):
        for name in USERS_FILES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * 100_000)
            os.utime(path, (1, 1))
            os.utime(path.parent, (1, 1))
        (folder / "a copy.so").write_bytes((target / "file").read_bytes())
        os.utime(folder / "a copy.so", (1, 1))
        for name in ("f" * 40 + ".so", "metal_dlpack-aaaaaaaa.unfinished"):
            (folder / name).symlink_to(target if name.endswith("unfinished") else target / "file")
    theirs = {path: facts for path, facts in everything_below(tmp_path).items() if not cache.is_sound(path)}
    for number in range(20):
        stored([str(number)], b"x" * 1000)
    after = everything_below(tmp_path)
    assert {path: after.get(path) for path in theirs} == theirs
    ours = after.keys() - theirs.keys()
    assert all(cache.is_sound(path) for path in ours)
    assert 7 <= len(ours) <= 9  # the user's files do not count


def test_the_folder_that_a_user_names_may_be_the_home(place, tmp_path):
    (tmp_path / "named").mkdir()
    (tmp_path / "named").chmod(0o755)
    assert stored().parent == place
    assert stat.S_IMODE((tmp_path / "named").stat().st_mode) == 0o755
