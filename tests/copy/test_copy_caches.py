"""What copy_caches.c asks a machine, and what it makes of the answers."""

import ctypes
import shutil
import subprocess
import threading

import pytest
from copy_library import CC, FLAGS, needs_compiler
from places import C_FILES, SRC

pytestmark = needs_compiler

KIB = 1024
USUAL = (32 * KIB, 1024 * KIB)


class Caches(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int64), ("second", ctypes.c_int64)]


class Answer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("number", ctypes.c_int64), ("nbytes", ctypes.c_int)]


class Machine:
    """copy_caches.c before its first question: a copy of the library, which has memory of its own."""

    def __init__(self, library):
        path = library.with_name(f"{library.stem}{len(list(library.parent.iterdir()))}.so")
        shutil.copy(library, path)
        self.lib = ctypes.CDLL(str(path))
        self.lib.copy_caches_get.restype = ctypes.POINTER(Caches)

    def sizes(self):
        caches = self.lib.copy_caches_get().contents
        return caches.first, caches.second

    def questions(self):
        return ctypes.c_int.in_dll(self.lib, "questions").value


def build(folder, *flags):
    sources = [SRC / "copy" / "copy_caches.c", C_FILES / "asked_sizes.c"]
    library = folder / "caches.so"
    subprocess.run([*CC, *FLAGS, *flags, "-shared", "-fPIC", *map(str, sources), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module")
def linux(tmp_path_factory):
    library = build(tmp_path_factory.mktemp("linux"), "-Dsysconf=test_sysconf")

    def make(first, second):
        machine = Machine(library)
        ctypes.c_int64.in_dll(machine.lib, "level1_nbytes").value = first
        ctypes.c_int64.in_dll(machine.lib, "level2_nbytes").value = second
        return machine

    return make


@pytest.fixture(scope="module")
def macos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("macos")
    header = folder / "sys" / "sysctl.h"
    header.parent.mkdir()
    header.write_text("#include <stddef.h>\nint sysctlbyname(const char *, void *, size_t *, void *, size_t);\n")
    library = build(folder, "-D__APPLE__", "-Dsysctlbyname=test_sysctlbyname", f"-I{folder}")

    def make(**numbers):
        """Names without `hw.`, a double underscore for the dot; the cores are a number of 4 bytes."""
        machine = Machine(library)
        answers = (Answer * 8).in_dll(machine.lib, "answers")
        for i, (name, number) in enumerate(numbers.items()):
            width = 4 if name.endswith("cpusperl2") else 8
            answers[i] = Answer(("hw." + name.replace("__", ".")).encode(), number, width)
        machine.answers = answers  # they hold the names
        return machine

    return make


@pytest.mark.skipif(shutil.which("getconf") is None, reason="needs getconf")
def test_this_machine_s_caches_are_those_that_getconf_tells(tmp_path):
    def told(name):
        return int(subprocess.run(["getconf", name], capture_output=True, text=True, check=True).stdout or 0)

    first, second = told("LEVEL1_DCACHE_SIZE"), told("LEVEL2_CACHE_SIZE")
    assert Machine(build(tmp_path)).sizes() == (first or USUAL[0], second or USUAL[1])


def test_linux_tells_both_sizes(linux):
    assert linux(48 * KIB, 512 * KIB).sizes() == (48 * KIB, 512 * KIB)


def test_a_size_that_is_not_told_is_a_usual_one(linux):
    for silence in (0, -1):
        assert linux(silence, silence).sizes() == USUAL
        assert linux(silence, 512 * KIB).sizes() == (USUAL[0], 512 * KIB)
        assert linux(48 * KIB, silence).sizes() == (48 * KIB, USUAL[1])


def test_a_mac_is_asked_for_its_fastest_cores_which_share_a_cache(macos):
    machine = macos(
        l1dcachesize=64 * KIB,
        l2cachesize=4096 * KIB,
        perflevel0__l1dcachesize=128 * KIB,
        perflevel0__l2cachesize=12288 * KIB,
        perflevel0__cpusperl2=4,
    )
    assert machine.sizes() == (128 * KIB, 3072 * KIB)


def test_a_mac_with_one_kind_of_core_has_no_levels(macos):
    assert macos(l1dcachesize=32 * KIB, l2cachesize=256 * KIB).sizes() == (32 * KIB, 256 * KIB)


def test_a_mac_that_tells_nothing_has_the_usual_caches(macos):
    assert macos().sizes() == USUAL


def test_the_machine_is_asked_once_however_many_threads_begin(linux):
    machine = linux(48 * KIB, 512 * KIB)
    start, seen = threading.Barrier(8), []

    def ask():
        start.wait()
        seen.append(machine.sizes())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(48 * KIB, 512 * KIB)] * 8
    assert machine.questions() == 2
