"""The package's own kernels where the software Metal compiles them: once, under no lock, and not at all where none can.

What is compiled stays for the life of a process, so each case is one.
"""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]

#: A copy that takes a kernel: `copy(i)` gives what it should be, and what it is.
HEAD = """
import signal
import threading
import time

import numpy as np

import metal_dlpack as md
from metal_dlpack import msl

asked = []
compile_really = msl.open_library


def copy(i):
    x = (np.arange(7 * 9) + i).astype("float32").reshape(7, 9)
    private = md.asarray(x).copy(storage="private")
    return x.T[::-1].copy(), np.array(md.Array.copy(private.T[::-1], storage="shared"))


def is_right(i):
    expected, found = copy(i)
    return np.array_equal(expected, found)

"""


def run(body: str, head: str = HEAD) -> str:
    result = subprocess.run([sys.executable, "-c", head + body], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_nothing_of_the_compiler_is_imported_before_a_kernel_is_needed():
    code = """
import sys
import metal_dlpack as md
a = md.zeros((4, 4))
a.copy_from(md.ones((4, 4)), stream=md.Stream())
print([name for name in sys.modules if name == "metal_dlpack.msl" or "for_softmetal" in name])
"""
    assert run(code, head="") == "[]\n"


@pytest.mark.parametrize("error", ["msl.CompilerNotFound('none')", "msl.SourceError('no')", "ValueError('a mistake')"])
def test_without_a_compiler_copies_are_right_and_none_is_looked_for_again(error):
    assert (
        run(f"""
def refuse(source, math):
    asked.append(source)
    raise {error}

msl.open_library = refuse
print(all([is_right(i) for i in range(5)]), len(asked))
""")
        == "True 1\n"
    )


@pytest.mark.needs_kernels
def test_the_kernels_are_compiled_once():
    assert (
        run("""
def compile_it(source, math):
    asked.append(source)
    return compile_really(source, math)

msl.open_library = compile_it
print(all([is_right(i) for i in range(5)]), len(asked))
""")
        == "True 1\n"
    )


@pytest.mark.needs_kernels
def test_a_copy_compiles_the_one_kernel_that_moves_its_units():
    assert (
        run("""
compile_image = msl.Library.compile


def compile_it(library, name, constants, **options):
    asked.append(name)
    return compile_image(library, name, constants, **options)


def is_right_of(dtype):
    x = np.arange(7 * 9).astype(dtype).reshape(7, 9)
    private = md.asarray(x).copy(storage="private")
    return np.array_equal(np.array(md.Array.copy(private.T[::-1], storage="shared")), x.T[::-1])


def overlap_is_right():
    private = md.asarray(np.arange(6.0)).copy(storage="private")
    private.copy_from(private[::-1])  # by way of memory between them: two grids
    return np.array_equal(np.array(private), np.arange(6.0)[::-1])


msl.Library.compile = compile_it
print([is_right_of(dtype) for dtype in ("int16", "int16", "float32", "int16")], *asked)
print(overlap_is_right(), *asked)
""")
        == "[True, True, True, True] copy_units_2 copy_units_4\nTrue copy_units_2 copy_units_4 copy_units_8\n"
    )


@pytest.mark.needs_kernels
def test_an_interrupt_while_they_are_compiled_is_raised_and_the_next_copy_compiles():
    assert (
        run("""
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

def interrupt(source, math):
    asked.append(source)
    if len(asked) == 1:
        signal.raise_signal(signal.SIGINT)
        time.sleep(10)
    return compile_really(source, math)

msl.open_library = interrupt
try:
    copy(0)
    print("not raised")
except KeyboardInterrupt:
    print("raised")
print(is_right(1), len(asked))
""")
        == "raised\nTrue 2\n"
    )


def test_an_interrupt_while_a_library_is_compiled_is_raised_as_itself():
    assert (
        run("""
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

def interrupt(source, math):
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
def test_threads_that_compile_and_hold_the_gil_in_turn_do_not_block_each_other():
    assert (
        run("""
together = threading.Barrier(4)


def compile_slowly(source, math):
    together.wait(30)  # all of them are inside, so none holds a lock that another wants
    return compile_really(source, math)


msl.open_library = compile_slowly
results = [None] * 4
threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, is_right(i))) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(results)
""")
        == "[True, True, True, True]\n"
    )


@pytest.mark.needs_kernels
def test_a_child_of_fork_that_has_no_kernels_is_refused_and_its_parent_compiles():
    assert (
        run("""
import os

array = md.asarray(np.arange(6.0)).copy(storage="private")
if os.fork() == 0:
    try:
        array[::-1].copy(storage="shared")
    except md.MetalError as error:
        os._exit("forked child" in str(error))
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]), is_right(1))
""")
        == "1 True\n"
    )


@pytest.mark.needs_kernels
def test_a_kernel_that_an_exit_handler_needs_is_compiled_or_done_without():
    assert (
        run("""
import atexit

atexit.register(lambda: print(is_right(1)))
""")
        == "True\n"
    )
