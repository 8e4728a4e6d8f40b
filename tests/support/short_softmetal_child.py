"""Scenes in which the n-th call of the software Metal's for memory or a thread fails, for each n, each in its process.

    LD_PRELOAD=short_malloc.so python short_softmetal_child.py SCENE FIRST STEP

A process may do its work, raise, or end with a sentence; what it has done is right, and it can go on.  Prints what was
otherwise, else how many failures were raised, were of no consequence, and ended the process.
"""

import ctypes
import importlib.util
import mmap
import os
import re
import signal
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path

from extension_code import code_in, loaded

#: More calls than a scene makes.
MOST = 3000
PATIENCE_S = 60
DONE, RAISED, NOT_REACHED = range(3)
ENDS = re.compile(r"softmetal: there is no memory for .*, so the process ends\.\n")
KERNEL = """
kernel void scale(device float *x, constant float2 &by, threadgroup float *room, uint i [[thread_position_in_grid]])
{
    room[i % 8] = by.x;
    x[i] = x[i] * room[i % 8] + STEP;
}
"""


def streams(md):
    first, second = md.Stream(), md.Stream()
    array, other = md.zeros(1000), md.zeros(1000, storage="private")
    array.fill(3, stream=first)
    second.wait(first.record())
    other.copy_from(array, stream=second)
    array.copy_from(other, stream=second)
    second.synchronize()
    assert array.tolist() == [3] * 1000


def strided_copies(md):
    array = md.asarray([float(number) for number in range(600)], copy=True).reshape(20, 30)
    hidden = array.copy(storage="private")
    hidden[1:].copy_from(hidden[:-1])
    rows = hidden[2:4, ::3].copy(storage="shared").tolist()
    assert rows == [[30.0 + 3 * i for i in range(10)], [60.0 + 3 * i for i in range(10)]]


def kernels(md):
    array = md.full(64, 2.0)
    library = md.Library("constant uint STEP [[function_constant(0)]];" + KERNEL)
    assert library.kernels == ("scale",)
    kernel = library.kernel("scale", {"STEP": 5})
    kernel(array, (3, 0), n=64, group=8, threadgroup_memory={"room": 32})
    assert array.tolist() == [11.0] * 64


def wrapped_memory(md):
    wrapped = md.asarray(mmap.mmap(-1, 1 << 16), copy=False)
    wrapped.fill(7, stream=md.Stream())
    assert wrapped.tolist() == [7] * (1 << 16)
    many = [md.zeros(3) for _ in range(5)]
    stream = md.Stream()
    for array in many:
        array.fill(1, stream=stream)
    stream.synchronize()
    assert [array.tolist() for array in many] == [[1.0] * 3] * 5


def devices(md):
    """A device that cannot be had at the first call is not asked for again."""
    for device in md.devices():
        assert device.name in ("Software Metal", "")  # a text needs memory
        device.synchronize()


SCENES = {scene.__name__: scene for scene in (devices, streams, strided_copies, kernels, wrapped_memory)}


def attempt(scene, n, extension, places):
    """In a process of its own, which has not loaded the extension before: its exit code."""
    signal.alarm(PATIENCE_S)
    import metal_dlpack as md

    if scene is not devices:
        md.devices()
    code = loaded(extension, places)
    bounds = (ctypes.c_size_t * len(code))(*code)
    ctypes.pythonapi.short_malloc_choose(bounds, ctypes.c_size_t(len(code)))
    ctypes.pythonapi.short_malloc_left.restype = ctypes.c_long
    ctypes.pythonapi.short_malloc_arm(ctypes.c_long(n))
    outcome = DONE
    try:
        scene(md)
    except (MemoryError, md.MetalError, md.CopyRequiredError):  # memory that Metal did not wrap has to be copied
        outcome = RAISED
    left = ctypes.pythonapi.short_malloc_left()
    ctypes.pythonapi.short_malloc_arm(ctypes.c_long(0))
    if scene is not devices:
        try:
            md.default_device().synchronize()
        except md.MetalError:
            outcome = RAISED
        scene(md)  # it works again
    return NOT_REACHED if left else outcome


def run_apart(*arguments):
    """How the process ended (the exit code; negative: a signal), and what it said."""
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
            code = 99
            try:
                code = attempt(*arguments)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return status, said.read()


def main(name, first, step):
    scene = SCENES[name]
    folder = importlib.util.find_spec("metal_dlpack").submodule_search_locations[0]
    (extension,) = map(str, Path(folder).glob(f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"))
    places = code_in(extension, "softmetal")
    counts, complaints = Counter(), []
    assert run_apart(scene, 0, extension, places) == (DONE, "")  # and from here on the kernels are compiled
    for n in range(first, MOST, step):
        status, said = run_apart(scene, n, extension, places)
        if status == NOT_REACHED:
            break
        if status == -signal.SIGABRT and ENDS.fullmatch(said):
            counts["ended"] += 1
        elif status in (DONE, RAISED):
            counts["raised" if status == RAISED else "done"] += 1
        else:
            complaints.append(f"{name}: with number {n} failing, it ended with {status}: {said}")
    print("\n".join(complaints) or f"quiet: {counts['raised']} raised, {counts['done']} done, {counts['ended']} ended")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
