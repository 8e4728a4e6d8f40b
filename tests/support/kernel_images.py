"""Images of kernels without a run time: compiled from translated text, loaded and run by ctypes, one thread at a time."""

import contextlib
import ctypes
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

import pytest

from metal_dlpack.language.errors import CompilerError
from softmetal.msl import compiler

MOST_BUFFERS = 31

#: As the translator would write it; %(body)s begins at column 5 of line 4.
TRANSLATED = """using namespace metal;
#line 3 "program_source"
void kernel_under_test(const float *x, float *y, uint i) {
    %(body)s
}
static const char *const softmetal_argument_names[] = {"x", "y", "i"};
SOFTMETAL_IMAGE(kernel_under_test, softmetal::buffer<0>, softmetal::buffer<1>,
                softmetal::builtin<softmetal::thread_position_in_grid>)
"""


def translated(body: str = "y[i] += x[i];") -> str:
    return TRANSLATED % {"body": body}


class Launch(ctypes.Structure):
    _fields_ = [
        ("sizes", ctypes.c_uint32 * 9),
        ("buffers", ctypes.c_void_p * MOST_BUFFERS),
        ("room", ctypes.c_uint64 * 128),  # what is of no interest here
    ]


class Thread(ctypes.Structure):
    _fields_ = [
        ("launch", ctypes.POINTER(Launch)),
        ("position_in_grid", ctypes.c_uint32 * 3),
        ("rest", ctypes.c_uint32 * 16),
    ]


RUN_THREAD = ctypes.CFUNCTYPE(None, ctypes.POINTER(Thread))
ACCESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p)
STOP = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p)


class Runtime(ctypes.Structure):
    _fields_ = [("others", ctypes.c_void_p * 5), ("access", ACCESS), ("stop", STOP)]


ABI = 4  #: of softmetal_kernel.h, whose soft_image begins as this


class Image(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("argument_count", ctypes.c_uint32),
        ("arguments", ctypes.c_void_p),
        ("threadgroup_nbytes", ctypes.c_uint64),
        ("has_syncs", ctypes.c_uint8),
        ("is_checked", ctypes.c_uint8),
        ("run_thread", RUN_THREAD),
        ("run_rows", ctypes.c_void_p),
        ("runtime", ctypes.POINTER(Runtime)),
    ]


class LoadedImage:
    """accesses: what a checked image has told; sites are offsets in the image."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.image = Image.in_dll(self.library, "softmetal_image")
        self.accesses: list[tuple[int, int, int, int]] = []
        self.base = base = base_of(ctypes.addressof(self.image))
        self.runtime = Runtime(
            access=ACCESS(
                lambda address, nbytes, how, site: self.accesses.append(
                    (address, nbytes, how, ctypes.c_void_p.from_address(site).value - base)
                )
            ),
            stop=STOP(lambda *_: os._exit(0)),  # in place of the run time, which ends the launch
        )
        self.image.runtime = ctypes.pointer(self.runtime)

    def run(self, x: ctypes.Array, y: ctypes.Array, i: int = 0) -> None:
        launch = Launch()
        launch.buffers[0], launch.buffers[1] = ctypes.addressof(x), ctypes.addressof(y)
        thread = Thread(launch=ctypes.pointer(launch))
        thread.position_in_grid[0] = i
        self.image.run_thread(ctypes.byref(thread))


class Where(ctypes.Structure):
    """Dl_info of <dlfcn.h>."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def base_of(address: int) -> int:
    """Where the image that holds this address is loaded."""
    where = Where()
    assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(where))
    return where.base


def floats(*values: float) -> ctypes.Array:
    return (ctypes.c_float * len(values))(*values)


def quickly(*few: object, of: Iterable[object]) -> list[object]:
    """Values to parametrize by: `few` of a matrix of the same thing, and the rest marked long."""
    return [value if value in few else pytest.param(value, marks=pytest.mark.long) for value in of]


COMPILERS = ["a compiler", "the other compiler"]
#: Parameters of a fixture, for `command_of`.
EACH_COMPILER = quickly(COMPILERS[0], of=COMPILERS)


def command_of(which: str) -> str:
    """SOFTMETAL_CXX for one of COMPILERS; the test skips where this machine has no such compiler."""
    commands, place = compiler_commands(), COMPILERS.index(which)
    if place >= len(commands):
        pytest.skip(f"{which} is not installed")
    return commands[place]


def compiler_commands() -> list[str]:
    """SOFTMETAL_CXX for the compilers of this machine: the one that is asked for, or PATH's clang and the wheel's zig."""
    asked = os.environ.get("SOFTMETAL_CXX")
    if asked:
        return [asked]
    commands: dict[bool, str] = {}
    for command in compiler.candidates(os.environ["PATH"]):
        with contextlib.suppress(CompilerError):
            compiler.known(command)
            commands.setdefault(command[-1] == "clang", shlex.join(command))  # a zig, or not
    return list(commands.values())
