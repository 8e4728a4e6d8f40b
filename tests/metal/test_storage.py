"""Storage modes: which one an allocation gets, and what each does; on unified memory and on a discrete GPU."""

import ctypes
import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from children import run_child

import metal_dlpack as md


def run(script, **environment):
    done = run_child(script, **environment)
    assert done.returncode == 0, done.stderr
    return done


MODE = "import metal_dlpack as md; print(md.get_storage_mode(), md.zeros(1).storage, md.get_storage_mode())"


@pytest.mark.needs_softmetal
def test_the_default_is_shared_on_every_device():
    assert run(MODE, METAL_DLPACK_STORAGE_MODE="").stdout.split() == ["shared"] * 3
    assert run(MODE, SOFTMETAL_DISCRETE="1").stdout.split() == ["shared"] * 3


def test_a_forked_child_is_told_the_mode_whether_metal_was_used_or_not():
    script = """
        import os, metal_dlpack as md
        if os.fork() == 0:
            print(md.get_storage_mode(), flush=True)
            os._exit(0)
        os.wait()
    """
    assert run(script, METAL_DLPACK_STORAGE_MODE="").stdout == "shared\n"
    assert run(script, METAL_DLPACK_STORAGE_MODE="Managed").stdout == "managed\n"


# ---- managed storage ----


def test_a_managed_array_does_what_a_shared_one_does():
    """One memory: the CPU's writes are the GPU's, and views of either kind see the writes of both."""
    stream, shared = md.Stream(), md.zeros((4, 5), "int32")
    array = md.zeros((4, 5), "int32", storage="managed")
    assert (array.storage, array.buffer.storage, array.buffer.is_host_accessible) == ("managed", "managed", True)
    assert "storage='managed'" in repr(array)
    reader, writer = np.asarray(array.as_readonly()), np.asarray(array)
    assert np.shares_memory(reader, writer)
    for each in (shared, array):
        each[1] = 7
        each[:, 2].fill(3, stream=stream)
        stream.synchronize()
        np.asarray(each)[3] = 9
    assert reader.tolist() == writer.tolist() == shared.tolist()
    assert array.copy(storage="private", stream=stream).tolist() == shared.tolist()
    view = md.from_dlpack(writer)  # found by its address, as shared memory is
    assert (view.storage, view.buffer.handle) == ("managed", array.buffer.handle)
    assert array.__array_interface__["data"] == (array.buffer.address, False)
    assert array.copy(storage="shared").storage == "shared"
    buffer = md.Buffer(8, storage="managed")
    buffer.copy_from(b"abcdefgh")
    assert bytes(memoryview(buffer)) == b"abcdefgh"


@pytest.mark.needs_softmetal
def test_managed_storage_is_refused_where_the_gpu_has_memory_of_its_own():
    script = """
        import metal_dlpack as md
        from objc_messages import MANAGED, foreign_buffer

        def why(call):
            try:
                call()
            except md.MetalError as error:
                return str(error)

        with foreign_buffer(64, MANAGED) as handle:
            calls = {
                "zeros": lambda: md.zeros(3, storage="managed"),
                "empty": lambda: md.empty(0, storage="managed"),
                "Buffer": lambda: md.Buffer(8, storage="Managed"),
                "Array.copy": lambda: md.zeros(3).copy(storage="managed"),
                "asarray": lambda: md.asarray([1, 2], storage="managed"),
                "Buffer.from_handle": lambda: md.Buffer.from_handle(handle),
            }
            refusal = ": managed storage needs a device with unified memory; use 'shared' or 'private'."
            for function, call in calls.items():
                assert why(call).endswith(refusal), (function, why(call))
        assert md.zeros(3, storage="private").tolist() == md.zeros(3).tolist() == [0, 0, 0]
    """
    run(script, SOFTMETAL_DISCRETE="1")
    run(
        "import metal_dlpack as md\ntry: md.zeros(3)\nexcept md.MetalError: pass\nelse: raise SystemExit('taken')",
        SOFTMETAL_DISCRETE="1",
        METAL_DLPACK_STORAGE_MODE="managed",
    )


@pytest.mark.parametrize("value", ["private", "Shared", "MANAGED"])
def test_the_variable_chooses_in_any_letter_case(value):
    done = run(MODE, METAL_DLPACK_STORAGE_MODE=value)
    assert done.stdout.split() == [value.lower()] * 3
    assert done.stderr == ""


def test_the_variable_is_read_once():
    done = run(
        "import os, metal_dlpack as md; md.get_storage_mode();"
        "os.environ['METAL_DLPACK_STORAGE_MODE'] = 'private'; print(md.zeros(1).storage)",
        METAL_DLPACK_STORAGE_MODE="managed",
    )
    assert done.stdout.strip() == "managed"


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "touched"),
    [
        ((4,), (1,), 0, {0, 1, 2, 3}),
        ((3,), (1,), 1, {1, 2, 3}),
        ((2, 2), (3, 0), 0, {0, 3}),  # as many items as its span has places, and gaps all the same
        ((2, 2), (4, 1), 2, {2, 3, 6, 7}),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32"])
def test_writing_a_private_array_leaves_the_bytes_between_and_beside_its_items(shape, strides, offset, touched, dtype):
    buffer = md.Buffer(64, storage="private")
    buffer.fill(7)
    itemsize = md.dtype(dtype).itemsize
    layout = md.StridedLayout(shape, strides, itemsize)
    array = buffer.array(layout, dtype, byte_offset=offset * itemsize)
    array.fill(1)
    assert set(array.copy(storage="shared").tolist()[0] if array.ndim == 2 else array.tolist()) == {1}
    after = np.frombuffer(bytearray(64), dtype)
    buffer.copy_to(after)
    untouched = np.frombuffer(bytes([7]) * 64, dtype)[0]
    assert [i for i, item in enumerate(after.tolist()) if item != untouched] == sorted(touched)


def test_each_of_several_read_only_memories_is_known_by_its_handle_and_by_its_bytes():
    class Forgetful:
        """Another view of the memory, which says that it can be written."""

        def __init__(self, memory):
            self.__array_interface__ = memory.__array_interface__ | {"data": (memory.ctypes.data, False)}

    memories = [np.zeros(1 << 12, "uint8") for _ in range(3)]
    for memory in memories:
        memory.flags.writeable = False
    arrays = [md.asarray(memory, copy=False) for memory in memories]
    for array, memory in zip(arrays, memories, strict=True):
        wrapped = md.Buffer.from_handle(array.buffer.handle)
        assert memoryview(wrapped).readonly
        assert md.asarray(Forgetful(memory)).readonly
    del arrays, array, wrapped
    assert not md.asarray(np.zeros(1 << 12, "uint8")).readonly


def flags_of(address):
    """What the system says of the mapping at this address, in words of two letters."""
    is_found = False
    for line in Path("/proc/self/smaps").read_text(errors="surrogateescape").splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            is_found = int(found[1], 16) <= address < int(found[2], 16)
        elif is_found and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


@pytest.mark.needs_softmetal
@pytest.mark.needs_no_sanitizer
def test_a_large_array_asks_for_huge_pages_and_a_smaller_one_does_not():
    with mmap.mmap(-1, 8 << 20) as asked:
        asked.madvise(mmap.MADV_HUGEPAGE)
        if "hg" not in flags_of(ctypes.addressof(ctypes.c_char.from_buffer(asked))):
            pytest.skip("the system has no huge pages, or tells nothing of a process's memory")
    for nbytes, is_asked in ((4 << 20, True), (3 << 20, False)):
        array = md.zeros(nbytes, dtype="uint8")
        is_met = ("hg" in flags_of(array.ctypes.data)) == is_asked
        del array
        assert is_met
    md.empty_cache()
