"""Where things are in a checkout."""

import os
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGES = ROOT / "python"
KIT = ROOT / "kit"
DOCS = ROOT / "docs"
INSIDE = DOCS / "inside"
EXAMPLES = ROOT / "examples"
TOOLS = ROOT / "tools"
TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
C_FILES = TESTS / "c"


def sources_of_a_mac() -> list[Path]:
    """Every C and Objective-C file of src/ but what stands in for Metal, and its glue."""
    here_alone = {SRC / "softmetal", SRC / "without_mac"}
    return [path for path in sorted(SRC.rglob("*.[cm]")) if not here_alone & set(path.parents)]


def python_files(folder: Path) -> list[Path]:
    """Its modules, without the copies that building the kit's wheel leaves in kit/build."""
    return [path for path in sorted(folder.rglob("*.py")) if KIT / "build" not in path.parents]


def python_path() -> str:
    """PYTHONPATH for a child process that imports the modules of tests/support."""
    return os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH")]))


def dlpack_include() -> Path:
    """Where dlpack.h is.  The package that carries it is not imported: it would import torch."""
    return Path(find_spec("tvm_ffi").origin).parent / "include"
