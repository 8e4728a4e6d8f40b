"""What uses torch, with other torches than that of pyproject.toml: torches.py [VERSION...].

Without a version: with the oldest that shares and with the newest that pip finds.  Each gets an environment of its own
in build/, behind which stands all of the one that runs this.  Where pip finds no build for the CPU alone, it is one for
CUDA, to which only the libraries are added that importing it needs: 3 GB to download, 5 GB on the disk.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST, NEWEST = "2.9.1", ""
#: The workflows and the pages are no matter of torch's version.
LEFT_OUT = ("tests/house", "tests/mac")


def environment(version: str) -> Path:
    """The Python of an environment with this torch."""
    folder = ROOT / "build" / f"torch-{version or 'newest'}"
    python = folder / "bin/python"
    if not python.exists():
        venv.create(folder, symlinks=True)
    packages = Path(said_by(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    behind = packages / "metal_dlpack_torches.pth"
    behind.unlink(missing_ok=True)  # pip sees this environment alone
    install(python, f"torch=={version}" if version else "torch")
    text = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    behind.write_text(text)
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode != 0:
        asked = said_by(python, "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))")
        behind.unlink()
        install(python, *re.findall(r"^(?:nvidia|cuda-toolkit)[^;\n]*", asked, re.MULTILINE), deps=True)
        behind.write_text(text)
    return python


def said_by(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def install(python: Path, *packages: str, deps: bool = False) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input"]
    # What torch needs beside its libraries stands behind this environment, where pip does not look.
    command += ["install", "-q", "--no-cache-dir", "--upgrade", "--no-warn-conflicts", *packages]
    subprocess.run([*command, *([] if deps else ["--no-deps"])], check=True)


def left_out(version: str) -> list[str]:
    """Of the tests; tools/torches_left_out.toml has them by the version up to which they are."""
    tables = tomllib.loads((ROOT / "tools/torches_left_out.toml").read_text())
    number = tuple(map(int, version.split("+")[0].split(".")[:2]))
    return [name for last, names in tables.items() if number <= tuple(map(int, last.split("."))) for name in names]


def run(version: str) -> int:
    python = environment(version)
    found = said_by(python, "import torch; print(torch.__version__)")
    print(f"== torch {found}", flush=True)
    command = [str(python), "-m", "pytest", "-q", "-m", "needs_torch and not long", "-p", "no:cacheprovider", "-n", "2"]
    command += [f"--ignore={folder}" for folder in LEFT_OUT] + [f"--deselect={name}" for name in left_out(found)]
    return subprocess.run([*command, "tests"], cwd=ROOT, env={**os.environ, "SOFTMETAL_VALIDATION": "1"}).returncode


if __name__ == "__main__":
    sys.exit(max(run(version) for version in sys.argv[1:] or (OLDEST, NEWEST)))
