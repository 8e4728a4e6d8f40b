"""What Metal refuses and takes, snippet by snippet, by the sections of the Metal Shading Language Specification 3.2.

refused.metal and taken.metal have a snippet a line; nothing in them was seen by Apple's compiler here.
"""

from pathlib import Path

import pytest

from softmetal import msl

pytestmark = pytest.mark.needs_kernels

HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"
PARAMETERS = "device float *x, device int *n, constant float4 *k4, uint i [[thread_position_in_grid]]"


def snippets(name):
    """The lines, those that are a kernel's body within one; by their numbers."""
    lines = (Path(__file__).parent / f"{name}.metal").read_text().splitlines()
    rows = {nth: line for nth, line in enumerate(lines, 1) if not line.startswith("//")}
    return {nth: f"kernel void k({PARAMETERS}) {line}" if line[0] == "{" else line for nth, line in rows.items()}


REFUSED, TAKEN = snippets("refused"), snippets("taken")


#: The function constants in taken.metal have these.
VALUES = {0: b"\1", 1: bytes(4), 2: bytes(16)}


def opened(source):
    library = msl.open_library(source)
    for kernel in library.functions:
        library.compile(kernel, VALUES)


def test_there_are_enough_of_both():
    assert len(REFUSED) >= 120 and len(TAKEN) >= 120


@pytest.mark.parametrize("nth", REFUSED)
@pytest.mark.some(12)
def test_what_metal_refuses_is_refused(nth):
    with pytest.raises(msl.SourceError, match=r"^program_source:3:\d+: error: "):
        opened(HEAD + REFUSED[nth])


@pytest.mark.parametrize("read", [msl.open_library, pytest.param(opened, marks=pytest.mark.long)])
def test_what_metal_takes_is_taken(read):
    try:
        read(HEAD + "\n".join(f"namespace row_{nth} {{ {text}\n}}" for nth, text in TAKEN.items()))
    except msl.SourceError as error:
        pytest.fail(str(error))
