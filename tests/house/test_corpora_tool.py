"""make corpora: what it keeps of a repository, which programs it finds, and what it counts."""

import dataclasses
import subprocess

import corpora
import metal_corpora
import pytest
from metal_corpora import Corpus

KERNEL = "kernel void {}(device float *x) {{ x[0] = {}; }}\n"
FILES = {
    "src/define.metal": "#define ONE 1\n",
    "src/a.metal": '#include "inc.h"\n' + KERNEL.format("a", "ONE + TWO + THREE"),
    "src/inc.h": "#define TWO 2\n",
    "src/two.metal": KERNEL.format("b", 1) + "// cut\n" + KERNEL.format("c", "nobody") + "// cut\nfloat f();\n",
    "src/left_out.metal": "SKIP: " + KERNEL.format("d", 1),
    "src/none.metal": "float g();\n",
    "other/e.metal": KERNEL.format("e", 1),
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.delenv("CORPORA", raising=False)
    monkeypatch.setattr(metal_corpora, "kept_in", lambda: tmp_path / "kept")
    for name, text in FILES.items():
        (tmp_path / "there" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "there" / name).write_text(text)

    def git(*words):
        command = ["git", "-C", str(tmp_path / "there"), "-c", "user.name=n", "-c", "user.email=n@n", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q"), git("add", "."), git("commit", "-qm", "one")
    address = (tmp_path / "there").as_uri()
    files = r"src/(?!define).*\.metal"
    return Corpus(
        "toy", address, git("rev-parse", "HEAD"), "today", ["src"], files, 100, r"(?s)(?P<text>(?:\A|// cut\n)(?:(?!// cut\n).)+)",
        include="src", first=["src/define.metal"], defines={"THREE": 3},
    )  # fmt: skip


def test_what_is_kept_and_which_programs_it_has(corpus):
    metal_corpora.fetch(corpus)
    kept = {path.name for path in corpus.path.rglob("*") if path.is_file()}
    assert kept == {"stamp", "define.metal", "a.metal", "inc.h", "two.metal", "left_out.metal", "none.metal"}
    found = {one.file: one.text for one in metal_corpora.programs(corpus)}
    assert list(found) == ["src/a.metal", "src/two.metal#0", "src/two.metal#1"]
    assert [word in found["src/a.metal"] for word in ("ONE 1", "TWO 2", "THREE 3")] == [True] * 3
    some = dataclasses.replace(corpus, number=2)
    assert len(metal_corpora.programs(some)) == 2 and metal_corpora.programs(some) == metal_corpora.programs(some)


def test_a_wrong_commit_keeps_nothing(corpus):
    with pytest.raises(OSError, match=r"^git .* fetch"):
        metal_corpora.fetch(dataclasses.replace(corpus, commit="0" * 40))
    assert not corpus.path.exists()


@pytest.mark.needs_kernels
def test_what_is_counted(corpus):
    metal_corpora.fetch(corpus)
    outcomes = [corpora.compiled(one) for one in metal_corpora.programs(corpus)]
    assert [(one.kernels, len(one.refused)) for one in outcomes] == [(1, 0), (1, 0), (1, 1)]
    assert list(outcomes[2].refused.values()) == ["use of undeclared identifier 'nobody'"]
    row, share = corpora.row_of(corpus, outcomes)
    assert row.endswith("| today | 3 | 3 | 2 | 66.7 % | 1 use of undeclared identifier '…' |") and share < corpus.least
    assert corpora.reason("the kernel 'k' needs ray tracing, which need a Mac: they are") == "ray tracing"
