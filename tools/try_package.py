"""Try the package as it is installed: its files, a shared buffer, a kernel, its licences.  Any failure ends it.

    python tools/try_package.py [FOLDER]

It needs NumPy, and where there is no Metal a compiler for kernels (the extra "kernels").  With a folder that has torch,
which only the last step sees, torch's mps device is compiled too, and trains.
"""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import metal_dlpack as md
import softmetal

CHECKOUT = Path(__file__).resolve().parents[1]
SCALE = """
#include <metal_stdlib>
kernel void scale(device float *x, constant float &factor, uint i [[thread_position_in_grid]]) { x[i] *= factor; }
"""


def check(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"{sys.executable}: {what}")


def share() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    array = md.from_dlpack(x)
    back = np.from_dlpack(array, device="cpu")
    x[1, 2] = 42
    check(back[1, 2] == 42, "a write through NumPy is not seen in the Array's memory.")
    check(back.ctypes.data == x.ctypes.data, "NumPy's memory was copied.")


def compute() -> None:
    ones = md.ones(4)
    md.kernel(SCALE)(ones, 0.5, n=4)
    check(ones.tolist() == [0.5] * 4, f"a kernel gave {ones.tolist()}.")


def find_files() -> None:
    package = Path(md.__file__).parent
    check(CHECKOUT not in package.parents, f"the package of the checkout was imported ({package}).")
    for path in (
        Path(md.get_include(), "metal_dlpack.h"),
        Path(md.get_cmake_dir(), "metal_dlpack-config.cmake"),
        Path(md.get_pkgconfig_dir(), "metal_dlpack.pc"),
        package / "_core.pyi",
        package / "py.typed",
        *([] if sys.platform == "darwin" else [package.parent / "metal_dlpack.pth"]),
    ):
        check(path.is_file(), f"{path} is missing.")
    for group, value in (("pytest11", "_metal_dlpack_pytest"), ("dask.sizeof", "_metal_dlpack_dask:register")):
        values = {point.value for point in importlib.metadata.entry_points(group=group)}
        check(value in values, f"{value} is no entry point of {group}.")
    check(importlib.metadata.version("metal_dlpack") == md.__version__, "metadata and module differ in the version.")


def read_the_licence() -> None:
    """A library that was put into the wheel has a licence of its own."""
    carried = {path.name.partition("-")[0] for path in Path(md.__file__).parents[1].glob("metal_dlpack.libs/*")}
    check(carried <= {"libobjc"}, f"the wheel carries {sorted(carried)}, and nobody has looked at their licences.")
    facts = importlib.metadata.metadata("metal_dlpack")
    named, files = facts["License-Expression"], facts.get_all("License-File")
    if carried:
        check("GPL-3.0-or-later WITH GCC-exception-3.1" in named, f"libobjc's licence is not named in {named}.")
        check({"LICENSE.libobjc", "LICENSE.libobjc-exception"} <= set(files), f"libobjc's licence is not in {files}.")


def ask_the_doctor() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "metal_dlpack", "--json"], capture_output=True, text=True, check=False
    )
    check(asked.returncode == 0, f"the doctor failed: {asked.stdout}{asked.stderr}")
    json.loads(asked.stdout)


def train() -> None:
    import torch

    softmetal.torch_mps()
    layer = torch.nn.Linear(1, 1, device="mps")
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 20, device="mps")[:, None]
    for _ in range(200):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(layer(x), 3 * x + 1).backward()
        optimiser.step()
    weight, bias = (md.from_dlpack(parameter.detach()).copy().tolist() for parameter in layer.parameters())
    learnt = weight[0] + bias
    check(np.allclose(learnt, [3, 1], atol=1e-3), f"torch learnt {learnt} on mps, not 3 and 1.")


def main(folders: list[str]) -> None:
    for step in (find_files, share, compute, read_the_licence, ask_the_doctor):
        step()
    works = f"works with Python {sys.version.split()[0]} on {md.devices()[0].name}"
    if folders:
        sys.path += folders
        train()
        works += f"; torch {importlib.metadata.version('torch')} trains on mps"
    print(f"metal_dlpack {md.__version__} {works}")


if __name__ == "__main__":
    main(sys.argv[1:])
