"""msl/cache.py: files that outlive the process, of which none is ever loaded that is not this user's own and sound."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from cache_entries import refuses, stored, writes
from children import run_child

from softmetal.msl import cache, for_softmetal

pytestmark = pytest.mark.usefixtures("place")

SOMEBODY = 12345  # a user that is not this one

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


# ---- entries ----


def test_what_was_made_is_found_again_and_begins_with_what_was_written(place):
    path = stored()
    assert path.parent == place
    assert path.read_bytes().startswith(b"image")
    assert cache.made(["key"], ".so", refuses) == path


def test_what_was_written_is_read_again_whether_a_part_is_bytes_or_text():
    assert cache.read(["a", b"b"]) is None
    cache.write(["a", b"b"], b"data")
    assert cache.read([b"a", "b"]) == b"data"


@pytest.mark.parametrize("key", [["ab", "c"], ["a", "bc"], ["abc"], ["a", "b", "c"], [b"a", "b"], ["a", ""]])
def test_keys_differ_where_their_parts_do(key):
    others = [["a", "b"], ["abc", ""], ["", "abc"]]
    assert cache.entry(key) not in [cache.entry(other) for other in others] or key == [b"a", "b"]


def test_what_fails_to_be_made_leaves_nothing(place):
    def fail(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.made(["key"], ".so", fail)
    assert not list(place.iterdir())


# ---- broken and hostile entries ----


def change(what):
    return lambda path: path.write_bytes(what(path.read_bytes()))


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


#: What is done to an entry.
HARMS = {
    "shorter by one": change(lambda data: data[:-1]),
    "cut off": change(lambda data: data[:3]),
    "empty": change(lambda data: b""),
    "another first byte": change(lambda data: bytes([data[0] ^ 1]) + data[1:]),
    "another last byte": change(lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "longer": change(lambda data: data + b"x"),
    "zeroed": change(lambda data: b"\0" * len(data)),
    "the sound file of another key": change(lambda data: stored(["other"], b"other").read_bytes()),
    "all may write": lambda path: path.chmod(0o777),
    "the group may write": lambda path: path.chmod(0o720),
    "others may write": lambda path: path.chmod(0o702),
    "a pipe": replace_by_pipe,
    "of another user": pytest.param(lambda path: os.chown(path, SOMEBODY, -1), marks=as_root),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_broken_or_hostile_file_is_made_anew(harm):
    path = stored()
    harm(path)
    assert cache.read(["key"], ".so") is None
    assert cache.made(["key"], ".so", writes(b"again")).read_bytes().startswith(b"again")
    assert cache.made(["key"], ".so", refuses) == path
    assert path.stat().st_uid == os.geteuid()


def test_nothing_is_added_to_a_precompiled_header_which_clang_reads_to_its_end(place):
    path = cache.made(["key"], ".pch", writes(b"header"))
    assert path.read_bytes() == b"header"
    assert cache.made(["key"], ".pch", refuses) == path
    assert len(list(place.iterdir())) == 2
    cache.forget(path)
    assert not list(place.iterdir())


def test_a_header_that_nobody_has_touched_is_not_read_again(monkeypatch):
    path = cache.made(["key"], ".pch", writes(b"header"))
    assert cache.made(["key"], ".pch", refuses) == path
    monkeypatch.setattr(cache, "is_sound", refuses)
    assert cache.made(["key"], ".pch", refuses) == path
    time.sleep(0.02)  # the file system's clock has steps
    os.utime(path)  # another process has used it, or changed it
    with pytest.raises(AssertionError, match="it is there already"):
        cache.made(["key"], ".pch", refuses)


@pytest.mark.parametrize("harmed", ["", "_seal"], ids=["the header", "its seal"])
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_broken_or_hostile_header_is_made_anew(harm, harmed):
    path = cache.made(["key"], ".pch", writes(b"header"))
    assert cache.made(["key"], ".pch", refuses) == path
    time.sleep(0.02)  # the file system's clock has steps
    harm(path.with_name(path.name + harmed))
    assert not cache.is_sound(path)
    assert cache.made(["key"], ".pch", writes(b"again")).read_bytes() == b"again"
    assert cache.made(["key"], ".pch", refuses) == path


def test_a_symlink_is_not_followed(tmp_path):
    path = stored()
    target = tmp_path / path.name
    path.rename(target)
    path.symlink_to(target)
    assert not cache.is_sound(path)
    assert cache.read(["key"], ".so") is None
    stored(data=b"again")
    assert not path.is_symlink()
    assert target.read_bytes().startswith(b"image")  # nobody wrote through it


def test_a_folder_in_the_place_of_a_file_is_passed_by():
    path = stored()
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match="is a directory"):
        assert cache.made(["key"], ".so", writes(b"again")).read_bytes().startswith(b"again")


# ---- hostile folders ----


def refused(match):
    """A temporary folder is used, one warning says why, and a second kernel says nothing more."""
    with pytest.warns(RuntimeWarning, match=match) as told:
        first = stored()
    assert len(told) == 1
    assert "SOFTMETAL_CACHE" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stored() == first
        second = stored(["second"])
    facts = first.parent.stat()
    assert stat.S_IMODE(facts.st_mode) == 0o700
    assert facts.st_uid == os.geteuid()
    assert second.parent == first.parent
    return first.parent


@pytest.mark.parametrize(
    ("mode", "owner", "why"),
    [
        (0o777, -1, r"mode 0777\): run chmod 700 on it"),
        (0o750, -1, r"mode 0750\): run chmod 700 on it"),
        (0o701, -1, r"mode 0701\): run chmod 700 on it"),
        pytest.param(0o700, SOMEBODY, rf"belongs to another user \(uid {SOMEBODY}", marks=as_root),
    ],
)
def test_a_folder_that_others_may_enter_is_refused(place, mode, owner, why):
    place.mkdir(parents=True)
    place.chmod(mode)
    os.chown(place, owner, -1)
    assert refused(why) != place
    assert not list(place.iterdir())


def test_a_folder_that_is_a_symlink_is_refused(place, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere")
    refused("symlink or a file")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_file_in_the_place_of_the_folder_is_refused(place, tmp_path, monkeypatch):
    place.parent.mkdir(parents=True)
    place.write_text("")
    refused("symlink or a file")
    monkeypatch.setattr(cache, "_replaced", {})
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path / "file"))
    refused("not a directory")


#: What is done to a directory above the folder, and the refusal; "" where it is safe.
ABOVE = {
    "all may write": (lambda path: path.chmod(0o777), "any user may write to .*above"),
    "as /tmp": (lambda path: path.chmod(0o1777), ""),
    "all may read": (lambda path: path.chmod(0o755), ""),
    "root's group may write": (lambda path: give_away(path, -1, 0, 0o775), ""),
    "another group may write": (lambda path: give_away(path, -1, SOMEBODY, 0o775), f"group {SOMEBODY} may write"),
    "another user's": (lambda path: give_away(path, SOMEBODY, -1, 0o755), f"above belongs to uid {SOMEBODY}"),
    "another user's, as /tmp": (lambda path: give_away(path, SOMEBODY, -1, 0o1777), f"belongs to uid {SOMEBODY}"),
}


def give_away(path, user, group, mode):
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(path, user, group)
    path.chmod(mode)


@pytest.mark.parametrize("is_made", [False, True], ids=["nothing below it", "a folder below it"])
@pytest.mark.parametrize(("harm", "refusal"), ABOVE.values(), ids=ABOVE)
def test_a_directory_above_that_others_may_change_is_refused(tmp_path, monkeypatch, harm, refusal, is_made):
    above = tmp_path / "above"
    above.mkdir()
    monkeypatch.setenv("SOFTMETAL_CACHE", str(above / "named"))
    if is_made:
        assert stored().parent == above / "named/metal_dlpack/kernels"
    harm(above)
    if refusal:
        assert above not in refused(refusal).parents
        assert is_made or not list(above.iterdir())  # no file of root is left in a user's home
    else:
        assert stored().parent == above / "named/metal_dlpack/kernels"


def test_a_group_is_this_users_own_if_it_has_the_users_name_and_no_other_members(monkeypatch):
    import grp
    import pwd

    for gid, name, members, is_own in [
        (7, "ann", [], True),
        (7, "ann", ["ann"], True),
        (7, "ann", ["ann", "bob"], False),
        (7, "users", [], False),
        (0, "wheel", ["bob"], True),
    ]:
        monkeypatch.setattr(
            grp, "getgrgid", lambda _, name=name, members=members: grp.struct_group((name, "", 7, members))
        )
        monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("ann", "", 5, 7, "", "", "")))
        assert cache._is_own_group(gid) == is_own, (gid, name, members)


def test_a_symlink_above_is_followed_once(place, tmp_path, monkeypatch):
    """Its owner may turn it after the check: the path in use has no symlink."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path / "link"))
    assert stored().parent == tmp_path / "real/metal_dlpack/kernels"


def test_what_is_made_is_for_this_user_alone(place, tmp_path):
    old = os.umask(0)
    try:
        file = stored()
    finally:
        os.umask(old)
    for made in (tmp_path / "named", tmp_path / "named/metal_dlpack", place, file):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


def test_a_folder_that_was_removed_is_made_again(place):
    stored().unlink()
    place.rmdir()
    assert stored(data=b"again").parent == place


def test_a_folder_that_changes_hands_is_refused_from_then_on(place):
    stored()
    place.chmod(0o777)
    assert refused(r"mode 0777") != place


def test_the_folder_is_xdgs_then_the_homes(tmp_path, monkeypatch):
    monkeypatch.delenv("SOFTMETAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert stored().parent == tmp_path / "xdg/metal_dlpack/kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert stored().parent == tmp_path / "home/.cache/metal_dlpack/kernels"


def test_without_a_home_a_temporary_folder_serves(monkeypatch):
    monkeypatch.delenv("SOFTMETAL_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # no $HOME, and no such user
    refused("no home directory")


def test_without_a_working_directory_a_relative_folder_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("SOFTMETAL_CACHE", "named")
    refused("no working directory, and SOFTMETAL_CACHE is relative")


@pytest.mark.parametrize("name", ["$ORIGIN", "${LIB}64", "a$PLATFORM"])
def test_a_folder_that_the_loader_would_call_otherwise_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv("SOFTMETAL_CACHE", str(tmp_path / name))
    refused("replaces by one of its own")


def test_a_folder_where_nothing_may_be_executed_is_refused(monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    refused("noexec")


def test_a_home_that_is_read_only_is_a_sentence(monkeypatch, tmp_path):
    """Root writes where the mode forbids it: the call says what the kernel would."""

    def read_only(self, *arguments, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", read_only)
        refused("read-only file system")


def test_a_folder_that_is_read_only_serves_what_it_has(place, monkeypatch):
    """As in an image of a container: only what is missing there is made elsewhere."""
    path = cache.made(["key"], ".so", lambda path: path.write_bytes(b"image"))

    def read_only(*_arguments, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    monkeypatch.setattr(os, "utime", read_only)
    assert cache.made(["key"], ".so", refuses) == path
    real = tempfile.TemporaryDirectory
    monkeypatch.setattr(
        tempfile,
        "TemporaryDirectory",
        lambda suffix, prefix, folder, **more: (read_only if folder == place else real)(suffix, prefix, folder, **more),
    )
    with pytest.warns(RuntimeWarning, match="used: read-only file system\\. Kernels"):
        assert cache.made(["other"], ".so", lambda path: path.write_bytes(b"image")).parent != place


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full")
def test_a_full_disk_is_a_sentence_and_the_kernel_is_made_elsewhere(place):
    def fills(path):
        if path.parent.parent == place:
            Path("/dev/full").write_bytes(b"image")
        path.write_bytes(b"image")

    with pytest.warns(RuntimeWarning, match="used: no space left on device\\. Kernels"):
        path = cache.made(["key"], ".so", fills)
    assert path.parent != place
    assert cache.is_sound(path)
    assert cache.made(["key"], ".so", refuses) == path


def test_where_the_temporary_folder_fails_too_the_error_is_raised(place):
    def full(_path):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.warns(RuntimeWarning, match="no space left"), pytest.raises(OSError, match="No space left"):
        cache.made(["key"], ".so", full)
    code, said = for_softmetal._answer(lambda: full(None))
    assert code == for_softmetal.INTERNAL and "set SOFTMETAL_CACHE" in said


def test_a_temporary_folder_ends_with_its_process(place):
    place.mkdir(parents=True)
    place.chmod(0o755)
    code = (
        "import warnings; warnings.simplefilter('ignore'); import os\n"
        "from softmetal.msl import cache\n"
        "print(cache.folder(), flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(cache.folder(), flush=True); raise SystemExit\n"
        "os.wait(); print(cache.folder().is_dir(), flush=True)"
    )
    parent, child, is_left = run(code).split()
    assert parent != child  # the child does not lose what its parent removes
    assert is_left == "True"  # nor the parent
    assert not Path(parent).exists()
    assert not Path(child).exists()


# ---- many processes ----


def run(code):
    return run_child(code, check=True).stdout


RACER = """
import os, sys, time
from softmetal.msl import cache, for_softmetal
CONTENT = os.urandom(8) * 40_000  # of each process another
time.sleep(max(0, float(sys.argv[1]) - time.time()))
for turn in range(20):
    def make(path):
        with open(path, "wb") as file:
            for start in range(0, len(CONTENT), 8192):
                file.write(CONTENT[start : start + 8192])
    path = cache.made(["same", str(turn)], ".so", make)
    data = path.read_bytes()
    assert len(data) == len(CONTENT) + 44 and data[: len(CONTENT)] == data[:8] * 40_000, "mixed or cut off"
print("sound")
"""


def test_processes_that_make_the_same_files_at_once_see_complete_ones(place):
    start = str(time.time() + 1.5)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, start], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for racer in racers:
        output, errors = racer.communicate(timeout=120)
        assert output == "sound\n", errors
    assert all(cache.is_sound(path) for path in place.iterdir())
    assert len(list(place.iterdir())) == 20


KILLED = """
import os
from softmetal.msl import cache, for_softmetal
cache.made(["key"], ".so", lambda path: (path.write_bytes(b"half"), os.kill(os.getpid(), 9)))
"""


def test_a_process_that_is_killed_while_it_writes_leaves_no_entry_and_a_folder_that_goes_later(place):
    with pytest.raises(subprocess.CalledProcessError):
        run(KILLED)
    (left,) = place.iterdir()
    os.utime(left, (1, 1))
    assert not cache.is_sound(cache.entry(["key"], ".so"))
    made = cache.made(["key"], ".so", writes(b"whole"))
    assert made.read_bytes().startswith(b"whole")
    assert list(place.iterdir()) == [made]
