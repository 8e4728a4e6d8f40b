"""The source of a custom kernel, as MLX writes it round the user's: signature, template, instantiation.

Source: MLX, mlx/backend/common/metal_kernel.cpp; a test holds every letter of it against what MLX writes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: Inputs with fewer items lie in the constant address space.
FEWEST_IN_DEVICE = 8
#: What the source can name, in this order in the signature.
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}
_TYPES = {"float32": "float", "float64": "double", "bool": "bool"}


def type_name(dtype: Any) -> str:
    """Metal's name of an mx.Dtype, as MLX's headers define it: "float", "bfloat16_t", "uint8_t"."""
    name = str(dtype).rpartition(".")[2].rstrip("_")
    return _TYPES.get(name, name + "_t")


class Input(NamedTuple):
    """What the signature depends on: an input's type, whether it is a scalar, whether it lies in constant memory."""

    dtype: Any
    is_scalar: bool
    is_constant: bool


class Written(NamedTuple):
    """What the user wrote, and what MLX found in it when the kernel was made."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    source: str
    header: str
    is_atomic: bool
    facts: tuple[tuple[str, ...], ...]  # of each input, which of _shape, _strides, _ndim the source names
    attributes: tuple[str, ...]


def written(
    name: str, input_names: Sequence[str], output_names: Sequence[str], source: str, header: str, is_atomic: bool
) -> Written:
    facts = tuple(
        tuple(what for what in ("shape", "strides", "ndim") if f"{one}_{what}" in source) for one in input_names
    )
    attributes = tuple(attribute for attribute in ATTRIBUTES if attribute in source)
    return Written(name, tuple(input_names), tuple(output_names), source, header, is_atomic, facts, attributes)


class Generated(NamedTuple):
    """The parts of a source; `text` is what MLX would give to Metal, behind its own headers."""

    function: str
    header: str
    opening: str  # the template, and the function up to its parameters
    parameters: str
    source: str
    closing: str

    @property
    def text(self) -> str:
        return self.header + self.opening + self.parameters + self.source + self.closing


def generated(
    kernel: Written, inputs: Sequence[Input], outputs: Sequence[Any], template: Sequence[tuple[str, Any]]
) -> Generated:
    """The source for inputs like these, outputs of these types, and these template arguments."""
    values = "<" + ", ".join(_template_value(value) for _, value in template) + ">"
    function = _function_name(kernel.name, inputs, outputs, values if template else "")
    opening = f"[[kernel]] void {function}(\n"
    closing = "\n}\n"
    if template:
        declared = ", ".join(f"{_template_kind(value)} {name}" for name, value in template)
        opening = f"template <{declared}>\n{opening}"
        instance = function + values
        closing += f'\ntemplate [[host_name("{function}")]] [[kernel]] decltype({instance}) {instance};\n'
    return Generated(function, kernel.header, opening, _parameters(kernel, inputs, outputs), kernel.source, closing)


def _function_name(name: str, inputs: Sequence[Input], outputs: Sequence[Any], values: str) -> str:
    parts = [f"custom_kernel_{name}"]
    if values:
        parts.append(re.sub("<|-|, ", "_", values[:-1]))
    parts += [type_name(one.dtype) + ("s" if one.is_scalar else "c" if one.is_constant else "") for one in inputs]
    return "_".join([*parts, *map(type_name, outputs)])


def _parameters(kernel: Written, inputs: Sequence[Input], outputs: Sequence[Any]) -> str:
    lines = [
        line
        for name, one, facts in zip(kernel.input_names, inputs, kernel.facts, strict=True)
        for line in _input_parameters(name, one, facts)
    ]
    lines = [f"  {line} [[buffer({index})]],\n" for index, line in enumerate(lines)]
    last = len(inputs) + len(outputs) - 1
    for index, (name, dtype) in enumerate(zip(kernel.output_names, outputs, strict=True), len(lines)):
        kind = f"atomic<{type_name(dtype)}>" if kernel.is_atomic else type_name(dtype)
        # MLX counts no buffers of _shape and its like here; where that is wrong, its source does not compile either.
        end = ",\n" if index < last or kernel.attributes else ") {\n"
        lines.append(f"  device {kind}* {name} [[buffer({index})]]{end}")
    attributes = ",\n".join(f"  {ATTRIBUTES[name]} {name} [[{name}]]" for name in kernel.attributes)
    return "".join(lines) + attributes + (") {\n" if attributes else "")


def _input_parameters(name: str, one: Input, facts: Sequence[str]) -> list[str]:
    space = "constant" if one.is_constant else "device"
    lines = [f"const {space} {type_name(one.dtype)}{'&' if one.is_scalar else '*'} {name}"]
    declared = {"shape": "const constant int* ", "strides": "const constant int64_t* ", "ndim": "const constant int& "}
    return lines if one.is_scalar else lines + [f"{declared[what]}{name}_{what}" for what in facts]


def _template_kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "typename"


def _template_value(value: Any) -> str:
    """As C++ writes it to a stream: true is 1."""
    return str(int(value)) if isinstance(value, int) else type_name(value)
