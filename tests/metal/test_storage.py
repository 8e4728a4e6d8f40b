"""Storage modes: what the CPU and the GPU see, on unified memory and on a discrete GPU."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import metal_dlpack as md


def run(script, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


MODE = "import metal_dlpack as md; print(md.get_storage_mode(), md.zeros(1).storage, md.get_storage_mode())"


@pytest.mark.needs_softmetal
def test_the_default_is_shared_on_unified_memory_and_managed_on_a_discrete_gpu():
    assert run(MODE, METAL_DLPACK_STORAGE_MODE="").stdout.split() == ["shared"] * 3
    assert run(MODE, SOFTMETAL_DISCRETE="1").stdout.split() == ["managed"] * 3


@pytest.mark.parametrize("value", ["private", "Shared", "MANAGED"])
def test_the_variable_chooses_in_any_letter_case(value):
    done = run(MODE, METAL_DLPACK_STORAGE_MODE=value)
    assert done.stdout.split() == [value.lower()] * 3
    assert done.stderr == ""


@pytest.mark.needs_softmetal
def test_a_wrong_value_is_one_warning_that_names_it():
    done = run(MODE, METAL_DLPACK_STORAGE_MODE="fast")
    assert done.stdout.split() == ["shared"] * 3
    assert done.stderr.count("RuntimeWarning") == 1
    assert "'fast'" in done.stderr


def test_the_variable_is_read_once():
    done = run(
        "import os, metal_dlpack as md; md.get_storage_mode();"
        "os.environ['METAL_DLPACK_STORAGE_MODE'] = 'private'; print(md.zeros(1).storage)",
        METAL_DLPACK_STORAGE_MODE="managed",
    )
    assert done.stdout.strip() == "managed"


def gpu_view(array):
    """What the GPU sees of a managed array: a private buffer filled from it by a blit.

    from_handle: a second Buffer over the same MTLBuffer knows nothing of the first one's state.
    """
    return np.array(md.Buffer.from_handle(array.buffer.handle).array(array.shape, array.dtype))


@pytest.mark.needs_softmetal
def test_what_the_cpu_writes_to_managed_storage_reaches_the_gpu():
    """Reading through a second Buffer synchronises from the GPU's copy: a write that Metal was not
    told of would be lost there."""
    array = md.zeros(8, "int32", storage="managed")
    array[2:5] = 7
    assert gpu_view(array).tolist() == [0, 0, 7, 7, 7, 0, 0, 0]
    array.fill(1)
    assert gpu_view(array).tolist() == [1] * 8
    array.buffer.copy_from(np.arange(8, dtype="int32"))
    assert gpu_view(array).tolist() == list(range(8))
    np.asarray(array)[...] = 9  # the view is gone again, and so told of
    assert gpu_view(array).tolist() == [9] * 8


@pytest.mark.needs_softmetal
def test_a_writable_view_that_is_out_counts_as_written_at_each_export():
    array = md.zeros(4, "int32", storage="managed")
    view = np.asarray(array)
    view[...] = 3
    capsule = array.__dlpack__()
    assert gpu_view(array).tolist() == [3] * 4
    view[...] = 4
    array.buffer.handle  # noqa: B018  the handle is another way out
    assert gpu_view(array).tolist() == [4] * 4
    del capsule


@pytest.mark.needs_softmetal
def test_the_cpu_export_of_managed_storage_sees_what_the_gpu_wrote():
    array = md.zeros(4, "int32", storage="managed")
    other = md.Buffer.from_handle(array.buffer.handle)
    other.copy_from(np.full(4, 5, "int32"))
    array.buffer.handle  # noqa: B018  others know the handle now
    assert np.from_dlpack(array, device="cpu").tolist() == [5] * 4


@pytest.mark.parametrize("mode", ["shared", "managed", "private"])
def test_every_mode_answers_with_the_same_numbers(mode):
    random = np.random.default_rng(3)
    array = md.zeros((5, 7), "int16", storage=mode)
    mirror = np.zeros((5, 7), "int16")
    for _ in range(40):
        row, column = random.integers(0, 5), random.integers(0, 7)
        value = int(random.integers(-100, 100))
        array[row, column:] = value
        mirror[row, column:] = value
        array[:, column] = mirror[:, column] = random.integers(-9, 9, 5).astype("int16")
        assert np.array(array).tolist() == mirror.tolist()
        assert np.array(array.T.copy()).tolist() == mirror.T.tolist()


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
