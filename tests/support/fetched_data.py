"""Files of public packages that tests take as data: never committed; what is run at all is run in a child.

    python tests/support/fetched_data.py        # fetches what is missing: tools/prepare does it

They are kept in metal_dlpack/tests of $XDG_CACHE_HOME or ~/.cache, for all checkouts; where that cannot be written, in
build/.  A test that reads them, `folder("mlx-metal")`, skips if they could not be fetched, or fails if
METAL_DLPACK_NEEDS_REFERENCE is 1.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from apple.macho import Image
from fetching import alone, is_kept, keep, take_archive, unpack
from places import ROOT


@dataclass(frozen=True)
class Package:
    """What is taken from one file of an index."""

    requirement: str  # "mlx-metal==0.32.4"
    digest: str  # SHA-256 of the wheel or sdist
    options: tuple[str, ...]  # how pip is asked for it
    wanted: str  # a pattern of the paths inside; where it has a group `path`, that is the path outside
    #: What is kept in place of a big file, by the pattern of its path: under which name, and what is said of it.
    facts: tuple[str, str, Callable[[Path], str]] | None = None

    @property
    def name(self) -> str:
        return self.requirement.partition("==")[0]

    @property
    def mark(self) -> str:
        return self.requirement + self.digest + self.wanted + (self.facts[0] if self.facts else "")


def registrations(library: Path) -> str:
    """For each dispatch key of MPS, the operators of aten that libtorch registers for it, as JSON."""
    registered: dict[str, list[str]] = {}
    for function, names in Image(library).strings_of(r"TORCH_LIBRARY_IMPL_init_aten_(Sparse|SparseCsr)?MPS_").items():
        key = re.search(r"init_aten_(\w*MPS)_", function)[1]
        registered.setdefault(key, []).extend(names)
    return json.dumps(registered)


FOR_ANY_MAC = ("--only-binary=:all:", "--platform=macosx_10_9_universal2", "--python-version=3.11")
#: PyObjC's wheels for macOS: framework, SHA-256.  The tables of names in each are taken ...
PYOBJC = {
    "Metal": "9e56862fd12eb3d3da429f15d6721f966d5791e27419ea0fa08f5f3dd0981fe8",
    "Cocoa": "851dca4c16e70b405e5cd5a8c166cf7c445ae54a4cdd95ce9a523803172f32d1",
    "IOSurface": "17ca25726aee45048e9c1725e843617d457ea74f9793bcb1953010d28607598b",
    "Quartz": "4b01e325b0cdc121e78730dde9756e971b23069bf141cd62efbcaac76d7b6dbb",
    "CoreML": "be7700e4acd57fea051454a5456fa78aa9fea21da952ba561a704f8e0d7daff2",
    "CoreMedia": "f6f8150428e6ae40d6b97714f6933b8c4322f3fb94de9bfcb206d00cb021f464",
    "AVFoundation": "6a1baf030b9c7997b99e38450e84ea7398c8ca9e762660ba9019c20837e733a0",
    "MetalPerformanceShaders": "31178f26ad7f34b57dbdfc891a47aa84ffd082b0030a388a31499fe6e1cd92e4",
    "MetalPerformanceShadersGraph": "1e94705ba9c5bad35fe9f6dc20a085a975a2b624f859d8481039b3edd5559481",
}
#: ... and of these also others' tables, and what holds the protocols as Apple's compiler wrote them.
OF_PYOBJC = {
    "Metal": r"Metal/_metadata\.py|Metal/_Metal\..*\.so",
    "Cocoa": r"(Core)?Foundation/_metadata\.py|Foundation/_Foundation\..*\.so",
    "Quartz": r"Quartz/Core(Graphics|Video)/_metadata\.py",
}
#: Packages of MLX, for how they use custom kernels.
USERS_OF_MLX = {
    "mlx-lm==0.32.2": "5c0991248cfff5872503d74f466d2532dd8cb7fb3670cb9be7a06d7305dadc04",
    "mlx-vlm==0.7.10": "f112ddaaf1bf0dd1efa702b5675a27df3345614e69e3996d3fbd09d838b8333d",
    "mlx-audio==0.6.2": "db57a552bd0ab16aa1fcc435d5fdb1c692d78e64926fa1f73669805c782e5731",
}
PACKAGES = (
    Package(  # Apple's own C++ headers, and MLX's kernels
        "mlx-metal==0.32.4",
        "8019b2db622599267d66cc168b2f0dbf5af929790a6c3b3913e00eabc42a7947",
        ("--only-binary=:all:", "--platform=macosx_14_0_arm64"),
        r"mlx/include/(?P<path>mlx/backend/metal/kernels/.*\.h"
        r"|metal_cpp/(Metal|Foundation)/.*\.hpp|metal_cpp/LICENSE.txt)",
    ),
    Package(  # pip asks the build backend for an sdist's metadata, even of one that it only downloads
        "llama-cpp-python==0.3.36",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        ("--no-binary=:all:", "--no-build-isolation"),
        r".*/vendor/llama\.cpp/ggml/src/(?P<path>ggml-metal/kernels/.*|ggml-metal/ggml-metal-impl\.h|ggml-common\.h)",
    ),
    *(
        Package(f"pyobjc-framework-{name}==12.2.2", digest, FOR_ANY_MAC, OF_PYOBJC.get(name, rf"{name}/_metadata\.py"))
        for name, digest in PYOBJC.items()
    ),
    Package(  # which operators MPS has
        "torch==2.13.0",
        "2fe228aba290d14b9f31b049be550dbd469c3fd3013d7a19705b30454da97027",
        ("--only-binary=:all:", "--platform=macosx_14_0_arm64", "--python-version=3.12"),
        r"torchgen/packaged/ATen/native/(?P<path>native_functions\.yaml)",
        (r"torch/lib/libtorch_cpu\.dylib", "registrations.json", registrations),
    ),
    *(
        Package(name, digest, ("--only-binary=:all:", "--ignore-requires-python"), rf"mlx_{kind}/.*\.py")
        for name, digest in USERS_OF_MLX.items()
        for kind in re.findall(r"mlx-(\w+)", name)
    ),
)


@dataclass(frozen=True)
class File:
    """One file of a public repository, which no package has."""

    name: str
    address: str  # it names a release
    digest: str  # SHA-256
    also: str = ""  # where else it is

    @property
    def path(self) -> Path:
        return kept_in() / self.name / self.address.rpartition("/")[2]


MLX = "https://raw.githubusercontent.com/ml-explore/mlx/846d176227a0ac13d2667e58d2bb68b322109ab0"
FILES = (
    File(  # what reports must be
        "sarif-2.1.0",
        "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/e0583813964ec43cea53b6b531b402866095ed1f"
        "/sarif-2.1/schema/sarif-schema-2.1.0.json",
        "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e",
    ),
    # The suite's newest version at hand. A newer one needs its digest here, and a look at the causes in its test.
    File(
        "pytorch-2.12.1",
        "https://raw.githubusercontent.com/pytorch/pytorch/v2.12.1/test/test_mps.py",
        "a99be505a9c7519869e1ffad583d5ed8251544ef9c603dddab081491b7fdc7fb",
        "; Debian's source of pytorch 2.12.1 has it too",
    ),
    File(  # of MLX after 0.32.1
        "mlx-test_fast",
        f"{MLX}/python/tests/test_fast.py",
        "5497c7621722e3f509f8b6273ab7643a97ee2e0fe51be465f8389104ebd09b47",
    ),
    File(  # of MLX after 0.32.1
        "mlx-mlx_tests",
        f"{MLX}/python/tests/mlx_tests.py",
        "e3ff7708e7d0ee3c3db9f8a830722de0254802283bc5b24fce2445ea3a4018d7",
    ),
)


@cache
def kept_in() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "metal_dlpack", "tests")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder if os.access(folder, os.W_OK) else ROOT / "build" / "fetched"
    except OSError:
        return ROOT / "build" / "fetched"


def is_there(package: Package | File) -> bool:
    if isinstance(package, File):
        return package.path.exists() and hashlib.sha256(package.path.read_bytes()).hexdigest() == package.digest
    return is_kept(kept_in() / package.name, package.mark)


@cache
def folder(name: str) -> Path:
    """The folder of a package; without it the test skips, or fails where METAL_DLPACK_NEEDS_REFERENCE is 1."""
    (package,) = (package for package in PACKAGES if package.name == name)
    if not is_there(package):
        what = f"{package.requirement} is not in {kept_in()}: run python tests/support/fetched_data.py"
        (pytest.fail if os.environ.get("METAL_DLPACK_NEEDS_REFERENCE") == "1" else pytest.skip)(what)
    return kept_in() / name


@cache
def file(name: str) -> Path:
    """The path of a file; without it the test skips: the machines of tests reach packages, and not always more."""
    (wanted,) = (file for file in FILES if file.name == name)
    if not is_there(wanted):
        pytest.skip(
            f"{wanted.path} is not there: run python tests/support/fetched_data.py, or put there what {wanted.address} "
            f"has (SHA-256 {wanted.digest}){wanted.also}."
        )
    return wanted.path


def fetch(package: Package | File) -> None:
    """Fetch the package, unless what is kept was taken by the same words."""
    if isinstance(package, Package):
        keep(kept_in() / package.name, package.mark, lambda new: take(package, new))
        return
    with alone(kept_in() / package.name):
        if not is_there(package):
            take_file(package)


def take_file(file: File) -> None:
    with urllib.request.urlopen(file.address, timeout=60) as answer:
        contents = answer.read()
    digest = hashlib.sha256(contents).hexdigest()
    if digest != file.digest:
        raise OSError(f"{file.address} has the SHA-256 {digest}, not {file.digest}")
    file.path.parent.mkdir(exist_ok=True)
    file.path.write_bytes(contents)


def take(package: Package, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        requirement = f"{package.requirement} --hash=sha256:{package.digest}"
        archive = take_archive(Path(scratch), requirement, package.options)
        unpack(archive, package.wanted, folder)
        if package.facts:
            inside, outside, said = package.facts
            unpack(archive, inside, Path(scratch, "facts"))
            (whole,) = (path for path in Path(scratch, "facts").rglob("*") if path.is_file())
            (folder / outside).write_text(said(whole))


if __name__ == "__main__":
    for package in PACKAGES:
        try:
            fetch(package)
        except OSError as failure:
            sys.exit(f"{package.requirement} cannot be fetched: {str(failure).splitlines()[-1]}")
    for wanted in FILES:
        try:
            fetch(wanted)
        except OSError as failure:
            print(f"{wanted.address} cannot be fetched: {failure}", file=sys.stderr)
