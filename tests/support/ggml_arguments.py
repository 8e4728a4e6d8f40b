"""llama.cpp's argument structs as NumPy scalars, read from its own header; and its words for an array's layout.

ggml_arguments.struct("sum_rows", ggml_arguments.layout(x, "0"), ne0=1)
"""

import re
from functools import cache

import kernel_sources
import numpy as np

KINDS = {"int32_t": "i4", "int64_t": "i8", "uint64_t": "u8", "size_t": "u8", "float": "f4", "bool": "?"}
KINDS |= {"int16_t": "i2", "uint32_t": "u4"}


@cache
def dtype(name: str) -> np.dtype:
    header = (kernel_sources.ggml() / "ggml-metal" / "ggml-metal-impl.h").read_text()
    (body,) = re.findall(r"typedef struct\s*\{([^}]*)\} ggml_metal_kargs_" + name + ";", header)
    fields = re.findall(r"^\s*(\w+)\s+(\w+)(?:\[(\d+)\])?;", body, re.MULTILINE)
    return np.dtype(
        [(field, KINDS[kind], *([int(count)] if count else [])) for kind, field, count in fields], align=True
    )


def struct(name: str, *layouts: dict[str, int], **values: object) -> np.void:
    """What is not given is zero; a layout may have more than the struct."""
    made = np.zeros((), dtype(name))
    given = {key: value for part in layouts for key, value in part.items() if key in made.dtype.names}
    for key, value in (given | values).items():
        made[key] = value
    return made[()]


def layout(array: np.ndarray, which: str) -> dict[str, int]:
    """ne and nb of tensor `which`, the innermost axis first, as llama.cpp counts: "0" of src0, "1" of src1, "" of dst."""
    axes = range(4)
    shape = [*reversed(array.shape), 1, 1, 1, 1][:4]
    strides = [array.itemsize * int(np.prod(shape[:axis])) for axis in axes]
    return {f"ne{which}{axis}": shape[axis] for axis in axes} | {f"nb{which}{axis}": strides[axis] for axis in axes}
