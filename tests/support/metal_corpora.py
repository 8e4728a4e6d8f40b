"""Metal programs of public repositories, taken as data at one commit: which they are, and where they are kept.

`programs("naga")` reads what `make corpora` fetched; what is kept is beside the packages of fetched_data.py.  A clone,
bare or not, in $CORPORA/NAME is taken in place of the address.
"""

import os
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from fetched_data import kept_in
from fetching import is_kept, keep, take_commit

from metal_dlpack import kernel_source

KERNEL = re.compile(r"\bkernel\b[\s\]]+void\b|\[\[kernel\]\]")


@dataclass(frozen=True)
class Corpus:
    """One of metal_corpora.toml, which says what each field is."""

    name: str
    repository: str
    commit: str
    date: str
    under: Sequence[str]
    files: str
    least: float
    part: str = r"(?s)(?P<text>.*)"
    include: str = "."
    first: Sequence[str] = ()
    defines: Mapping[str, object] = field(default_factory=dict)
    number: int = 0

    @property
    def path(self) -> Path:
        return kept_in() / "corpora" / self.name

    @property
    def stamp(self) -> str:
        return " ".join((self.commit, *self.under))


@dataclass(frozen=True)
class Program:
    file: str
    text: str


CORPORA = {
    name: Corpus(name, **fields)
    for name, fields in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


def fetch(corpus: Corpus) -> None:
    """Keep the corpus, unless it is there; OSError: why it cannot be had."""
    clone = Path(os.environ.get("CORPORA") or corpus.path.parent / "clones", corpus.name)
    taken = (corpus.repository, corpus.commit, clone, corpus.under)
    keep(corpus.path, corpus.stamp, lambda new: take_commit(new, *taken))


def sources(corpus: Corpus) -> Iterator[Program]:
    """Each program with a compute kernel, as it was written."""
    for path in sorted(path for path in corpus.path.rglob("*") if path.is_file()):
        file = path.relative_to(corpus.path).as_posix()
        if re.fullmatch(corpus.files, file) and not (text := path.read_text()).startswith("SKIP"):
            parts = [part["text"] for part in re.finditer(corpus.part, text) if KERNEL.search(part["text"])]
            for nth, part in enumerate(parts):
                yield Program(file + (f"#{nth}" if len(parts) > 1 else ""), part)


def programs(corpus: Corpus) -> list[Program]:
    """As the compiler gets them: behind what its host code puts before, with what they include."""
    found = list(sources(corpus))
    if corpus.number:
        found = sorted(random.Random(1).sample(found, corpus.number), key=lambda one: one.file)
    return [Program(one.file, composed(corpus, one)) for one in found]


def composed(corpus: Corpus, program: Program) -> str:
    folder = (corpus.path / program.file).parent
    options = (program.file, dict(corpus.defines), (folder, corpus.path / corpus.include), "safe")
    before = "".join((corpus.path / one).read_text() + "\n" for one in corpus.first)
    return kernel_source.compose(before + program.text, options)


@cache
def text_of(name: str, file: str) -> str:
    """One program, by the end of its path; the test skips where the corpus was not fetched."""
    corpus = CORPORA[name]
    if not is_kept(corpus.path, corpus.stamp):
        pytest.skip(f"{name} is not in {corpus.path}: run make corpora ARGS={name}")
    (found,) = (one for one in sources(corpus) if one.file.endswith(file))
    return composed(corpus, found)
