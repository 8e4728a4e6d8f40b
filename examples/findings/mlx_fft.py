"""MLX's fft: in a last threadgroup that is not full, numbers behind the input are copied to behind the result.

Three transforms of 22 numbers, by the kernel of the installed MLX, launched as MLX launches it.
"""

import tempfile
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

import metal_dlpack as md

FOLDER = Path(str(distribution("mlx").locate_file("mlx/include")))
PLACE = "mlx/backend/metal/kernels/fft/readwrite.h"
RADICES = (13, 11, 8, 7, 6, 5, 4, 3, 2)
CONSTANTS = {"inv_": False, "is_power_of_2_": False, "elems_per_thread_": 6}
CONSTANTS |= {f"radix_{radix}_steps_": int(radix in (11, 2)) for radix in RADICES}
CONSTANTS |= {f"rader_{radix}_steps_": 0 for radix in RADICES}
#: The transforms of a threadgroup, where MLX takes `grid.y`.
ROWS = "min(int(grid.y), batch_size - int(elem.x * grid.y))"
SOURCE = """#include <metal_stdlib>
using namespace metal;
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/steel/defines.h"
#include "mlx/backend/metal/kernels/fft.h"
instantiate_kernel("fft", fft, 256, float2, float2)"""


def behind_the_result(*folders: str) -> list[int]:
    """The six numbers that lie behind the result: they were 0, and behind the input lie sevens."""
    items, out = md.full(72, 7, dtype="complex64"), md.zeros(72, dtype="complex64")
    kernel = md.Library(SOURCE, include=(*folders, FOLDER)).kernel("fft", constants=CONSTANTS)
    kernel(items[:66], out[:66], 22, 3, groups=(1, 1, 1), group=(1, 4, 4))
    return [int(number.real) for number in np.asarray(out)[66:]]


with tempfile.TemporaryDirectory() as folder:
    mended = Path(folder, PLACE)
    mended.parent.mkdir(parents=True)
    text = (FOLDER / PLACE).read_text()
    for size in ("read_width", "1"):
        text = text.replace(f"= grid.y * n - {size};", f"= {ROWS} * n - {size};")
    mended.write_text(text)
    print(f"behind the result: published {behind_the_result()}, right {[0] * 6}, mended {behind_the_result(folder)}")
