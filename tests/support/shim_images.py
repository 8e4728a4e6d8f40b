"""Expressions of Metal's language, compiled against the shim and evaluated over NumPy arrays.

One image evaluates many expressions of one type.  `Shim.evaluate` runs it as a plain loop; `Shim.run_groups` gives it the
run time of the software Metal, compiled apart, because lanes wait for each other there.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from kernel_images import Image, Launch, Thread

from softmetal.msl import cache, flags
from softmetal.msl.compiler import Compiler

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
RUN_ROWS = ctypes.CFUNCTYPE(None, ctypes.POINTER(Thread), ctypes.c_uint32, ctypes.c_uint32)

Input = tuple[str, np.ndarray]


def program(expressions: Mapping[str, str], result: str, inputs: Mapping[str, Input], before: str) -> str:
    """A kernel with a buffer for each input, and one for the results: those of one expression, then of the next."""
    pointers = [f"const {kind} *all_{name}" for name, (kind, _) in inputs.items()]
    values = [f"{kind} {name} = all_{name}[i];" for name, (kind, _) in inputs.items()]
    stores = [f"out[{k} * n + i] = {text};" for k, text in enumerate(expressions.values())]
    parameters = [*pointers, f"{result} *out", "const uint &n", "uint i"]
    binders = [f"softmetal::buffer<{k}>" for k in range(len(parameters) - 1)]
    binders.append("softmetal::builtin<softmetal::thread_position_in_grid>")
    names = ", ".join(f'"{parameter.split()[-1].strip("*&")}"' for parameter in parameters)
    return "\n".join(
        [
            "using namespace metal;\nSOFTMETAL_TEXT_BEGIN",
            before,
            f"static void kernel_under_test({', '.join(parameters)}) {{",
            *values,
            *stores,
            "}\nSOFTMETAL_TEXT_END",
            f"static const char *const softmetal_argument_names[] = {{{names}}};",
            f"SOFTMETAL_IMAGE(kernel_under_test, {', '.join(binders)})",
        ]
    )


class Program:
    """An image with its buffers bound."""

    def __init__(
        self,
        shim: Shim,
        expressions: Mapping[str, str],
        result: str,
        dtype: object,
        inputs: Mapping[str, Input],
        before: str = "",
    ) -> None:
        self.path = shim.image(program(expressions, result, inputs, before))
        self.names = list(expressions)
        self.count = max(len(values) for _, values in inputs.values())
        self.out = np.zeros((len(self.names), self.count), dtype)
        self.n = ctypes.c_uint32(self.count)
        self.inputs = [np.ascontiguousarray(values) for _, values in inputs.values()]
        self.launch = Launch()
        addresses = [values.ctypes.data for values in [*self.inputs, self.out]]
        for index, address in enumerate([*addresses, ctypes.addressof(self.n)]):
            self.launch.buffers[index] = address

    def results(self) -> dict[str, np.ndarray]:
        return dict(zip(self.names, self.out, strict=True))


class Shim:
    """The shim with one compiler.  `runtime` is the run time of kernels, loaded apart; built when lanes ask for it."""

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

    def evaluate(self, expressions, result: str, dtype: object, /, before: str = "", **inputs: Input):
        """Return {name: what the expression gives for each item of the inputs}."""
        made = Program(self, expressions, result, dtype, inputs, before)
        library = ctypes.CDLL(str(made.path))
        image = Image.in_dll(library, "softmetal_image")
        thread = Thread(launch=ctypes.pointer(made.launch))
        RUN_ROWS(image.run_rows)(ctypes.byref(thread), made.count, 1)
        return made.results()

    def check_values(self, exact: Mapping[str, object], result: str, dtype: object, /, group: int = 0, **given: object):
        """Each expression gives these values; with `group`, in threadgroups."""
        run = functools.partial(self.run_groups, group=group) if group else self.evaluate
        got = run({text: text for text in exact}, result, dtype, **given)
        for text, values in exact.items():
            np.testing.assert_array_equal(got[text], values, text)

    def run_groups(
        self, expressions, result: str, dtype: object, /, group: int = 32, before: str = "", **inputs: Input
    ):
        """As evaluate, by threadgroups of `group` threads that wait for each other."""
        made = Program(self, expressions, result, dtype, inputs, before)
        made.launch.sizes[:] = [made.count, 1, 1, -(-made.count // group), 1, 1, group, 1, 1]
        runtime, error = build_runtime(), ctypes.create_string_buffer(1000)
        image = runtime.soft_image_open(str(made.path).encode(), b"kernel_under_test", error, len(error))
        assert image, error.value
        assert runtime.soft_image_run(image, ctypes.byref(made.launch), error, len(error)), error.value
        return made.results()


@functools.cache
def build_runtime() -> ctypes.CDLL:
    """The run time of kernels, without the Metal around it.

    What it asks of the rest of the software Metal is answered with 0: settings as they are by default, no compiler, no
    fork, threads in order.
    """
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    softmetal = SRC / "softmetal"
    files = [*softmetal.glob("kernels/*.c"), *softmetal.glob("checker/*.c"), softmetal / "fiber.c"]
    sources = sorted(map(str, [*files, SRC / "arithmetic/pixel_format.c"]))
    with tempfile.TemporaryDirectory() as folder:
        text, answers, library = (Path(folder, name) for name in ("answers.c", "answers.so", "runtime.so"))
        shared = [*compiler, "-shared", "-fPIC", "-O1", f"-I{SRC}", f"-I{ROOT / 'python'}"]
        subprocess.run([*shared, "-o", str(library), *sources, "-pthread", "-ldl", "-lm"], check=True)
        listed = subprocess.run(
            ["nm", "-D", "--undefined-only", str(library)], capture_output=True, text=True, check=True
        )
        names = [word for word in listed.stdout.split() if word.startswith("soft_")]
        answer = {name: f"long {name}(void) {{ return 0; }}\n" for name in names}
        answer |= {name: f"int {name};\n" for name in names if name.startswith("soft_process_")}  # flags of host.h
        text.write_text("".join(answer.values()))
        subprocess.run([*shared, "-o", str(answers), str(text)], check=True)
        ctypes.CDLL(str(answers), mode=ctypes.RTLD_GLOBAL)
        runtime = ctypes.CDLL(str(library))
    runtime.soft_image_open.restype = ctypes.c_void_p
    runtime.soft_image_run.restype = ctypes.c_bool
    runtime.soft_image_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    return runtime
