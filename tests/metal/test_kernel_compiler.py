"""The package's own kernels, which the software Metal has in C, and the compiler of Metal's language, which no copy asks.

What is compiled stays for the life of a process, so each case is one.
"""

import pytest
from children import output_of

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]

#: A copy that takes a kernel: `is_right(i)`.
HEAD = """
import signal
import sys
import threading
import time

import numpy as np

import metal_dlpack as md
import softmetal


def is_right(i, dtype="float32"):
    x = (np.arange(7 * 9) + i).astype(dtype).reshape(7, 9)
    private = md.asarray(x).copy(storage="private")
    return np.array_equal(np.array(private.T[::-1].copy(storage="shared")), x.T[::-1])

"""


def run(body: str) -> str:
    return output_of(HEAD + body)


def test_copies_of_every_unit_need_no_compiler_and_import_nothing_of_it():
    assert (
        run("""
sys.modules["softmetal.msl"] = None  # an import of it raises
print([is_right(1, dtype) for dtype in ("int8", "int16", "float32", "int64", "complex128")])

private = md.asarray(np.arange(6.0)).copy(storage="private")
private.copy_from(private[::-1])  # by way of memory between them: two grids
print(private.tolist(), [name for name in sys.modules if "for_softmetal" in name])
array = md.asarray(np.arange(6.0)).copy(storage="private")
array.fill(2, stream=md.Stream())
md.Stream().wait(array)
print(array.tolist(), softmetal.live_objects("MTLLibrary"))
""")
        == "[True, True, True, True, True]\n[5.0, 4.0, 3.0, 2.0, 1.0, 0.0] []\n[2.0, 2.0, 2.0, 2.0, 2.0, 2.0] 0\n"
    )


def test_an_interrupt_while_a_library_is_compiled_is_raised_as_itself():
    assert (
        run("""
from softmetal import msl

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

def interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)
    time.sleep(10)

msl.open_library = interrupt
try:
    md.Library("kernel void nothing() {}")
except KeyboardInterrupt as error:
    print("raised", error.__context__)
""")
        == "raised None\n"
    )


@pytest.mark.needs_kernels
def test_threads_that_compile_libraries_do_not_block_each_other():
    assert (
        run("""
from own_threads import in_threads

from softmetal import msl

compile_really, together = msl.open_library, threading.Barrier(4)


def compile_slowly(*arguments, **options):
    together.wait(120)  # all of them are inside, so none holds a lock that another wants
    return compile_really(*arguments, **options)


msl.open_library = compile_slowly
print(*[name for name, in in_threads(4, lambda i: md.Library(f"kernel void k{i}() {{}}").kernels)])
""")
        == "k0 k1 k2 k3\n"
    )


def test_a_child_of_fork_that_has_no_kernels_is_refused_and_its_parent_compiles():
    assert (
        run("""
import os

from forking import fork

array = md.asarray(np.arange(6.0)).copy(storage="private")
if fork() == 0:
    try:
        array[::-1].copy(storage="shared")
    except md.MetalError as error:
        os._exit("forked child" in str(error))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), is_right(1))
""")
        == "1 True\n"
    )
