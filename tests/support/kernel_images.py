"""A text as the translator writes it, and the compilers of this machine that make an image of it."""

import contextlib
import os
import shlex
from collections.abc import Iterable

import pytest

from metal_dlpack.language.errors import CompilerError
from softmetal.msl import compiler

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
