"""Metal programs of public repositories, taken as data at one commit: which they are, and where they are kept.

`programs("naga")` reads what `make corpora` fetched; what is kept is beside the packages of fetched_data.py.  A clone,
bare or not, in $CORPORA/NAME is taken in place of the address.
"""

import fcntl
import os
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from fetched_data import kept_in

from metal_dlpack import kernel_source

KERNEL = re.compile(r"\bkernel\b[\s\]]+void\b|\[\[kernel\]\]")
ANY = re.compile(r"(?s)(?P<text>.*)")


@dataclass(frozen=True)
class Corpus:
    name: str
    repository: str
    commit: str
    date: str  # of the commit
    under: tuple[str, ...]  # the folders and files that are kept
    files: str  # a pattern of the paths, of which each is opened
    part: re.Pattern[str] = ANY  # `text` is a program; a file may have several
    include: str = "."
    first: tuple[str, ...] = ()  # files that its host code puts before each
    defines: Mapping[str, object] = field(default_factory=dict)
    number: int = 0  # how many, by a seed; 0: all
    least: float = 98  # percent of the kernels that must compile

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


_GITHUB = "https://github.com/"
_SPIRV = ("spirv-cross", f"{_GITHUB}KhronosGroup/SPIRV-Cross", "6c09849fe88c48eaed08413aa022aaa136a3a057", "2026-07-06")
_MNN = ("mnn", f"{_GITHUB}alibaba/MNN", "4d40bdbd7efb73a58383bb5da867a6f41eb1776e", "2026-08-20")
#: What is no compute kernel of Metal: of other compilers, not valid, or with rays.
_NOT_OF_METAL = r"(?!.*(?:\.nocompat|\.invalid|ray-?query|rayquery))"
CORPORA = {
    one.name: one
    for one in (
        Corpus(
            "naga",
            f"{_GITHUB}gfx-rs/wgpu",
            "64a61ee5c69569bbb3db03563997e88a229eba17",
            "2024-10-23",
            ("naga/tests/out/msl",),
            r"(?!.*ray-query).*\.msl",
            least=100,
        ),
        Corpus(*_SPIRV, ("reference",), rf"reference/(opt/)?shaders-msl{_NOT_OF_METAL}.*/comp/.*", least=99),
        Corpus(
            "tint",
            f"{_GITHUB}google/dawn",
            "1e975e28f98a0285e44150a7f64b3bb89f27c719",
            "2026-08-22",
            ("test/tint",),
            r".*\.expected\.msl",
            re.compile(r"(?s)(?P<text>(?:\A|//\n// \w+\n//\n)(?:(?!//\n// \w+\n//\n).)+)"),
            number=1200,
            least=99,
        ),
        Corpus(
            "paddle",
            f"{_GITHUB}PaddlePaddle/Paddle-Lite",
            "3d329c954c82d3e189e2d3ab35a5558d35e7202a",
            "2024-03-28",
            ("lite/backends/metal/metal_kernel",),
            r".*\.metal",
            include="lite/backends/metal/metal_kernel/texture",
        ),
        Corpus(
            "tnn",
            f"{_GITHUB}Tencent/TNN",
            "f0cb08129a05c5b60f08e4ef66042a54a883a56a",
            "2025-03-25",
            ("source/tnn/device/metal",),
            r".*\.metal",
            include="source",
        ),
        Corpus(
            *_MNN,
            ("source/backend/metal",),
            r".*/shader/(?!MetalDefine|MetalConvolutionActivation).*\.metal",
            first=tuple(f"source/backend/metal/shader/Metal{name}.metal" for name in ("Define", "ConvolutionActivation")),
            defines={"MNN_METAL_FULL_PRECISION": 1, "LOCAL_SIZE": 256, "UNIT": 4, "BIN_NUMBER": 16, "TYPE": "float"},
        ),
        Corpus(
            "thundermittens",
            f"{_GITHUB}HazyResearch/ThunderMittens",
            "8633af90c270e3be62d29ffb6fd2f34ce24b4c13",
            "2025-08-26",
            ("ThunderMittens/include", "ThunderMittens/kernels"),
            r".*/kernels/.*\.metal",
            include="ThunderMittens/include",
            least=100,
        ),
    )
}


def fetch(corpus: Corpus) -> None:
    """Keep the corpus, unless it is there; OSError: why it cannot be had."""
    corpus.path.parent.mkdir(parents=True, exist_ok=True)
    with corpus.path.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as scratch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = corpus.path / "stamp"
        if stamp.exists() and stamp.read_text() == corpus.stamp:
            return
        clone = Path(os.environ.get("CORPORA") or scratch, corpus.name)
        if not clone.is_dir():
            clone = Path(scratch, corpus.name)
            git("init", "-q", "--bare", str(clone))
            git("-C", str(clone), "fetch", "-q", "--depth", "1", corpus.repository, corpus.commit)
        archive = Path(scratch, "archive.tar")
        git("-C", str(clone), "archive", "-o", str(archive), corpus.commit, *corpus.under)
        shutil.rmtree(corpus.path, ignore_errors=True)
        with tarfile.open(archive) as packed:
            packed.extractall(corpus.path, filter="data")
        stamp.write_text(corpus.stamp)


def git(*words: str) -> None:
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"git {' '.join(words)}: {done.stderr.strip()}")


def sources(corpus: Corpus) -> Iterator[Program]:
    """Each program with a compute kernel, as it was written."""
    for path in sorted(path for path in corpus.path.rglob("*") if path.is_file()):
        file = path.relative_to(corpus.path).as_posix()
        if re.fullmatch(corpus.files, file) and not (text := path.read_text()).startswith("SKIP"):
            parts = [part["text"] for part in corpus.part.finditer(text) if KERNEL.search(part["text"])]
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
    if not (corpus.path / "stamp").exists():
        pytest.skip(f"{name} is not in {corpus.path}: run make corpora ARGS={name}")
    (found,) = (one for one in sources(corpus) if one.file.endswith(file))
    return composed(corpus, found)
