"""Expressions of Metal's language over NumPy arrays, each kernel of them run as a user's; and the shim by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

import metal_dlpack as md
from softmetal.msl import cache, flags
from softmetal.msl.compiler import Compiler

Input = tuple[str, np.ndarray]


def kernel_text(expressions: list[str], result: str, inputs: Mapping[str, Input], before: str, within: str) -> str:
    """A kernel with a buffer for each input, and one for the results: those of one expression, then of the next."""
    parameters = [f"device const {kind} *all_{name}" for name, (kind, _) in inputs.items()]
    parameters += [f"device {result} *out", "constant uint &n", "uint i [[thread_position_in_grid]]"]
    values = [f"{kind} {name} = all_{name}[i];" for name, (kind, _) in inputs.items()]
    stores = [f"out[{k} * n + i] = {text};" for k, text in enumerate(expressions)]
    body = "\n".join([within, *values, *stores])
    head = f"#include <metal_stdlib>\nusing namespace metal;\n{before}"
    return f"{head}\nkernel void evaluated({', '.join(parameters)}) {{\n{body}\n}}"


class Shim:
    """The shim with one compiler, which SOFTMETAL_CXX names."""

    def __init__(self, clang: Compiler) -> None:
        self.clang = clang

    def image(self, text: str, *, checked: bool = False) -> Path:
        """The image of a translated text; the cache of kernels keeps it for the next run."""
        key = [*self.clang.key_parts(checked=checked), text]
        return cache.made(key, ".so", lambda path: self.clang.build(text, path, checked=checked))

    def command(self, *more: str) -> list[str]:
        """The compiler's command for what comes on its standard input, with no precompiled header."""
        chosen = [*flags.ALONE, *flags.LANGUAGE, *flags.machine_flags()]
        shim = [f"-I{flags.INCLUDE}", "-include", str(flags.SHIM)]
        return [
            *self.clang.command,
            *chosen,
            *flags.kind_flags(self.clang.version, False),
            *shim,
            "-x",
            "c++",
            "-",
            *more,
        ]

    def check(self, text: str) -> None:
        self.clang.check("using namespace metal;\n" + text)

    def evaluate(
        self,
        expressions: Mapping,
        result: str,
        dtype: object,
        /,
        group: int | None = None,
        before: str = "",
        within: str = "",
        **inputs: Input,
    ) -> dict:
        """Return {name: what the expression gives for each item of the inputs}, in threadgroups of `group` threads."""
        count = max(len(values) for _, values in inputs.values())
        out = np.zeros((len(expressions), count), dtype)
        given = [np.ascontiguousarray(values) for _, values in inputs.values()]
        buffers = [md.Buffer(values.nbytes) for values in [*given, out]]
        for buffer, values in zip(buffers, given, strict=False):
            buffer.copy_from(values.reshape(-1).view("uint8"))
        kernel = md.kernel(kernel_text(list(expressions.values()), result, inputs, before, within), math="safe")
        kernel(*buffers, count, threads=count, group=group)
        buffers[-1].copy_to(out.reshape(-1).view("uint8"))
        return dict(zip(expressions, out, strict=True))

    def check_values(self, exact: Mapping[str, object], result: str, dtype: object, /, **given: object) -> None:
        """Each expression gives these values."""
        got = self.evaluate({text: text for text in exact}, result, dtype, **given)
        for text, values in exact.items():
            np.testing.assert_array_equal(got[text], values, text)
