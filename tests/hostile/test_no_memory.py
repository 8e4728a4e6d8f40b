"""Every public call with each of its steps failing in turn: an exception, nothing lost, nothing half done.

The names are found by looking (public_surface.py), how each is called stands in fault_calls.py, and no_memory_child.py
lets Python's allocations, the extension's own, and Metal's calls fail one by one.
"""

import json
import re

import pytest
from children import output_of, run_child
from extension_code import spans_in
from law_programs import build_library
from machine import BREAKS_TYPES
from places import SUPPORT

import softmetal
from metal_dlpack import _core

pytest.importorskip("_testbuffer", reason="needs CPython's _testbuffer")

needs_glibc = pytest.mark.needs_glibc

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_no_sanitizer]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The C files that let allocations fail, compiled: {name: path}."""
    folder = tmp_path_factory.mktemp("short")
    return {name: build_library(folder, name) for name in ("short_malloc", "short_python")}


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """Where the extension's machine code is, found once for all children."""
    file = tmp_path_factory.mktemp("code") / "code.json"
    file.write_text(json.dumps(spans_in(_core.__file__)))
    return {"EXTENSION_CODE": str(file)}


def count_failures(kind, part=0, parts=1, *arguments, **environment):
    """How often something failed, where all was well."""
    assert softmetal.is_present()
    # With validation, the software Metal notes where each object was made: too slow here.
    environment = {"SOFTMETAL_VALIDATION": "0", **environment}
    said = output_of(SUPPORT / "no_memory_child.py", kind, part, parts, *arguments, timeout=600, **environment)
    assert said.startswith("quiet, "), said
    return int(said.split()[1])


def test_every_call_has_a_public_name():
    """A name without a call is called without arguments: one that needs some fails in test_flat.py."""
    code = """
        import fault_calls, public_surface
        names = public_surface.surface()
        assert len(names) > 200
        print(sorted(set(fault_calls.CALLS) - names))
    """
    assert output_of(code) == "[]\n"


@needs_glibc
@pytest.mark.rule("import-failing-half")
def test_pythons_allocations_may_fail(libraries, code):
    assert count_failures("python", 0, 1, libraries["short_python"], **code) > 500


@needs_glibc
@pytest.mark.long
def test_each_allocation_of_pythons_may_fail(libraries, code):
    """Also each of those of which the quick test takes some: calls that do much, and the import."""
    enough = 1000 if BREAKS_TYPES else 2000
    assert count_failures("python", 0, 1, libraries["short_python"], "each", **code) > enough


@needs_glibc
@pytest.mark.rule("import-failing-half")
def test_allocations_of_the_extension_may_fail(libraries, code):
    assert count_failures("c", LD_PRELOAD=str(libraries["short_malloc"]), **code) > 100


@pytest.mark.parametrize("part", [2, *(pytest.param(part, marks=pytest.mark.long) for part in (0, 1, *range(3, 8)))])
def test_metal_may_refuse_every_eighth_call(part):
    """The kernels, which are made once, have a test of their own in test_work_items.py."""
    assert count_failures("metal", part, 8) > (20 if part == 2 else 3)


# ---- the software Metal's own ----

#: The scenes of short_softmetal_child.py.
SCENES = ["devices", "streams", "strided_copies", "kernels", "wrapped_memory"]


@needs_glibc
@pytest.mark.needs_kernels
@pytest.mark.parametrize(
    ("first", "step", "validation"),
    [(5, 7, "0"), pytest.param(1, 1, "0", marks=pytest.mark.long), pytest.param(1, 1, "1", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("scene", SCENES)
def test_where_the_software_metal_lacks_memory_or_a_thread_a_call_fails_or_a_sentence_ends_the_process(
    libraries, code, scene, first, step, validation
):
    words = (scene, first, step)
    settings = {"LD_PRELOAD": libraries["short_malloc"], "SOFTMETAL_VALIDATION": validation, **code}
    said = output_of(SUPPORT / "short_softmetal_child.py", *words, timeout=1200, **settings)
    counts = re.fullmatch(r"quiet: (\d+) raised, (\d+) done, (\d+) ended\n", said)
    assert counts is not None, said
    assert sum(map(int, counts.groups())) > 2


def test_where_no_thread_can_be_made_work_is_refused_until_one_can_be():
    """As RLIMIT_NPROC and a container's limit do; root has only this one."""
    code = """
        import resource
        import metal_dlpack as md
        md.zeros(4).fill(1, stream=md.Stream())
        streams = [md.Stream() for _ in range(32)]
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 20), before[1]))
        try:
            for stream in streams:  # the C library keeps the stacks of threads that have ended, and gives them again
                stream.record()
        except md.MetalError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, before)
        stream.record()
        stream.synchronize()
        print("works again")
    """
    done = run_child(code)
    assert done.returncode == 0, done.stderr
    refused, works = done.stdout.splitlines()
    assert refused.startswith("Stream.record: Metal gave no command buffer or encoder; there may be too many threads")
    assert works == "works again"
    assert re.fullmatch(
        r"softmetal: -\[MTLCommandQueue commandBuffer\] returns nil: the system starts .*\n", done.stderr
    )
