"""What comes of others' archives and repositories, beside a filter over a dict of files."""

import io
import random
import subprocess
import tarfile
import zipfile
from pathlib import Path

import fetching
import pytest
import suites

NAMES = ("a", "b/a", "b/c", "b/d/a", "bb/a", "conftest.py")


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def committed(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def git(*words):
        command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=n@n", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q"), git("add", "."), git("commit", "-qm", "one", "--allow-empty")
    return git("rev-parse", "HEAD")


def under(files, paths):
    return {name: text for name, text in files.items() if any(name == p or name.startswith(f"{p}/") for p in paths)}


@pytest.mark.parametrize("seed", range(10))
def test_of_a_commit_the_paths_come_and_what_may_be_there(tmp_path, seed):
    draw = random.Random(seed)
    files = {name: draw.choice("xyz") for name in NAMES if draw.random() < 0.7}
    commit = committed(tmp_path / "there", {**files, "always": ""})
    (tmp_path / "there/later").write_text("no commit has it")
    folders = sorted({parent for name in files for parent in (name, *map(str, Path(name).parents))} - {"."})
    paths = draw.sample(folders, draw.randrange(len(folders) + 1)) + ["always"]
    maybe = draw.sample([*NAMES, "b", "b/d", "nowhere"], draw.randrange(6))
    clone = tmp_path / draw.choice(["there", "fetched"])
    fetching.take_commit(tmp_path / "new", (tmp_path / "there").as_uri(), commit, clone, paths, maybe)
    assert files_in(tmp_path / "new") == {**under(files, paths + maybe), "always": ""}
    with pytest.raises(OSError, match="nowhere"):
        fetching.take_commit(tmp_path / "none", (tmp_path / "there").as_uri(), commit, clone, ["always", "nowhere"])


def test_what_is_kept_is_taken_again_for_other_words_and_stays_where_that_fails(tmp_path):
    draw, folder, model, took = random.Random(7), tmp_path / "kept/a", None, []

    def take(new):
        took.append(mark)
        (new / "half").write_text(mark)
        if fails:
            raise OSError("there is no network")

    for _ in range(60):
        mark, fails = draw.choice("xyz"), draw.random() < 0.5
        before = len(took)
        try:
            fetching.keep(folder, mark, take)
        except OSError:
            assert fails and mark != model
        else:
            assert mark == model or not fails
            assert (len(took) == before) is (mark == model)
            model = mark
        assert {name: fetching.is_kept(folder, name) for name in "xyz"} == {name: name == model for name in "xyz"}
        assert (files_in(folder) if model else {}) == ({"half": model, "stamp": model} if model else {})
        assert {path.name for path in folder.parent.iterdir()} <= {"a", "a.lock"}


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_of_an_archive_what_matches_is_unpacked_and_nothing_beside_the_folder(tmp_path, kind):
    names = [
        "a-1/tests/a.py",
        "a-1/tests/b/c",
        "a-1/testing",
        "a-1/src/tests/a",
        "a-1/tests/../../out",
        "a-1/conftest.py",
    ]
    archive = tmp_path / f"a.{kind}"
    if kind == "whl":
        with zipfile.ZipFile(archive, "w") as wheel:
            for name in names:
                wheel.writestr(name, name)
    else:
        with tarfile.open(archive, "w:gz") as sdist:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = len(name)
                sdist.addfile(member, io.BytesIO(name.encode()))
            link = tarfile.TarInfo("a-1/tests/link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/hosts"
            sdist.addfile(link)
    fetching.unpack(archive, r"[^/]+/(?P<path>(tests|conftest\.py)(/.*)?)", tmp_path / "new/in")
    assert files_in(tmp_path / "new") == {
        f"in/{name}": f"a-1/{name}" for name in ("tests/a.py", "tests/b/c", "conftest.py")
    }
    fetching.unpack(archive, r".*/a\.py", tmp_path / "whole")
    assert [*files_in(tmp_path / "whole")] == ["a-1/tests/a.py"]


def test_a_suites_source_follows_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "BUILD", tmp_path / "build")
    monkeypatch.setenv("SUITES", str(tmp_path / "clones"))
    files = {"tests/a": "1", "tests/b": "2", "more/c": "3", "setup.cfg": "[x]", "no": ""}
    suite = {"repository": "n/a", "take": ["more"], "without": ["tests/b"]}
    suite["commit"] = committed(tmp_path / "clones/a", files)
    suite["parts"] = {"p": {"repository": "n/p", "commit": committed(tmp_path / "clones/p", files), "take": ["more"]}}
    found = files_in(suites.source("a", suite))
    del found["stamp"]
    wanted = {"tests/a": "1", "more/c": "3", "setup.cfg": "[x]", "p/more/c": "3", "pytest.ini": "[pytest]\n"}
    assert found == wanted
    del suite["without"]
    assert files_in(suites.source("a", suite))["tests/b"] == "2"
