"""A copy of the checkout in which the module is built, and built again with one file changed, in a second.

setup.py says with which commands; for one file they run again, the compiler's and the linker's; none for Python.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from softmetal.msl import cache

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(".*", "build", "*.so", "dist", "__pycache__")

#: Quick to build, and not too slow to run; the tests tell our code by its lines.
FLAGS = "-O1 -g1 -gno-column-info -w -MMD"
SAME = "the same code"


class Shop:
    def __init__(self, folder: Path, flags: str = FLAGS, linked: str = ""):
        self.folder = folder
        self.cache = folder / "cache"
        self.edited = ""
        self.changed: list[Path] = []  # objects that hold a mutant
        self.commands: dict[str, list[str]] = {}
        shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
        lenient = {key: value for key, value in os.environ.items() if not key.startswith("METAL_DLPACK_")}
        done = subprocess.run(
            [sys.executable, "setup.py", "-v", "build_ext", "--inplace", "--build-temp", "objects"],
            cwd=folder,
            env=lenient | {"METAL_DLPACK_LTO": "0", "CFLAGS": flags, "LDFLAGS": linked},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            if compiled := re.search(r" -c (src/\S+\.[cm]) ", line):
                self.commands[compiled[1]] = shlex.split(line)
            elif " -shared " in line and "objects/" in line:
                self.link = shlex.split(line)
        self.module = next((folder / "python" / "metal_dlpack").glob("*.so"))
        self.link[self.link.index("-o") + 1] = str(self.module)
        self.share_cache()

    def share_cache(self) -> None:
        """A cache with what the user's has: a mutant of what compiles kernels must not spoil that one."""
        shutil.rmtree(self.cache, ignore_errors=True)
        with contextlib.suppress(shutil.Error):  # some went meanwhile, or it is another disk: they are made again
            shutil.copytree(cache.folder(), self.cache, copy_function=os.link)

    def run(self, command: list[str]) -> str:
        """ "" or what the compiler said."""
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr or "failed"

    def object_of(self, source: str) -> Path:
        return self.folder / "objects" / source.rpartition(".")[0].join(("", ".o"))

    def sources_of(self, name: str) -> list[str]:
        """What must be compiled again: the file, or each that includes the header."""
        if name in self.commands:
            return [name]
        return [s for s in self.commands if name in self.object_of(s).with_suffix(".d").read_text().split()]

    def change(self, name: str, text: str) -> str:
        """Build with this text in place of a file's; "", SAME, or what the compiler said."""
        self.restore()
        (self.folder / name).write_text(text)
        self.edited = name
        if name.endswith(".py"):
            return ""
        for source in self.sources_of(name):
            made = self.object_of(source)
            shutil.copy2(made, made.with_suffix(".sound"))
            self.changed.append(made)
            if problem := self.run(self.commands[source]):
                return problem
        if all(made.read_bytes() == made.with_suffix(".sound").read_bytes() for made in self.changed):
            return SAME
        return self.run(self.link)

    def restore(self) -> None:
        if self.edited:
            shutil.copy2(ROOT / self.edited, self.folder / self.edited)
        if self.edited.endswith(".py"):
            self.share_cache()
        for made in self.changed:
            made.with_suffix(".sound").replace(made)
        self.changed = []
