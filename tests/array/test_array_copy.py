"""copy, copy_from, copy_to, fill and assignment, of every storage and everybody else's memory; NumPy is the oracle."""

import importlib
import random

import numpy as np
import pytest

import metal_dlpack as md

STORAGES = ["shared", "private"]
TYPES = [np.dtype(letter).name for letter in "?bhilBHILefdFD"]


def noise(rng, shape, dtype):
    return np.asarray(rng.integers(0, 100, shape), dtype)


# ---- random views of random arrays ----


def random_key(chance, shape):
    """Basic indices: parts, backwards, with gaps, whole axes left out."""
    key = []
    for extent in shape:
        first, last = sorted(chance.choices(range(extent + 1), k=2))
        step = chance.choice([1, 1, 1, 2, 3, -1, -2])
        part = slice(first, last, step) if step > 0 else slice(last - 1 if last else None, None, step)
        key.append(chance.choice([slice(None), slice(None), part, part]))
    return tuple(key)


def random_view(chance, array, mirror):
    """The same view of both."""
    order = list(range(mirror.ndim))
    if chance.random() < 0.5:
        chance.shuffle(order)
    key = random_key(chance, mirror.shape)
    return array[key].permute(order), mirror[key].transpose(order)


def random_source(chance, shape):
    """A shape that can be broadcast to `shape`."""
    parts = [extent if chance.random() < 0.8 else 1 for extent in shape]
    return tuple(parts[chance.randrange(len(parts)) :] if parts and chance.random() < 0.2 else parts)


def strided(chance, values):
    """The same items as an Array: axes the other way round, steps of three along the last."""
    wide = np.repeat(values, 3, axis=-1) if values.ndim else values
    array = md.asarray(wide).copy(chance.choice("CF"), storage=chance.choice(STORAGES))
    return array[..., chance.randrange(3) :: 3] if values.ndim else array


@pytest.mark.parametrize("seed", range(4))
def test_random_copies_equal_numpy_s(seed):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(150):
        dtype = chance.choice(TYPES)
        mirror = noise(rng, [chance.randint(1, 6) for _ in range(chance.randint(1, 4))], dtype)
        array = md.asarray(mirror).copy(storage=chance.choice(STORAGES))
        part, mirror_part = random_view(chance, array, mirror)
        values = noise(rng, random_source(chance, part.shape), dtype)
        gaps = np.repeat(values, 3, axis=-1)[..., 1::3] if values.ndim else values
        source = chance.choice([values, gaps, memoryview(values), strided(chance, values)])
        how = chance.choice(["copy_from", "copy_to", "assign", "assign and convert", "assign a list", "fill"])
        if how == "copy_from":
            part.copy_from(source)
        elif how == "copy_to":
            strided(chance, values).copy_to(part)
        elif how == "assign":
            part[...] = source
        elif how == "assign and convert":
            part[...] = values.astype(np.result_type(dtype, chance.choice(["int8", "float16"])))
        elif how == "assign a list" and values.size:
            part[...] = values.tolist()
        else:
            values = np.array(chance.randrange(2), dtype)
            part.fill(values.item())
        mirror_part[...] = values
        assert (np.array(array) == mirror).all()
        assert part.tolist() == mirror_part.tolist()
        target = np.zeros((*part.shape, 2), dtype)[..., 1].T
        part.permute(range(part.ndim)[::-1]).copy_to(target)
        assert (target == mirror_part.T).all()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("seed", range(2))
def test_random_copies_within_one_array_read_all_before_they_write(seed, storage):
    chance, rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(100):
        side = chance.randint(1, 7)
        mirror = noise(rng, (side, side), chance.choice(TYPES))
        array = md.asarray(mirror).copy(storage=storage)
        size = chance.randint(1, side)
        starts = [chance.randint(0, side - size) for _ in range(4)]
        steps = chance.choices([1, 1, -1], k=2)
        to = tuple(slice(start, start + size) for start in starts[:2])
        part = tuple(slice(start, start + size) for start in starts[2:])
        turned = tuple(slice(None, None, step) for step in steps)
        array[to].copy_from(array[part][turned].T)
        mirror[to] = mirror[part][turned].T.copy()
        assert (np.array(array) == mirror).all()


@pytest.mark.parametrize("storage", STORAGES)
def test_copy_has_memory_of_its_own(storage):
    source = md.asarray(np.arange(12, dtype="int16").reshape(3, 4)).T
    for order in "CFAK":
        copied = source.copy(order, storage=storage)
        assert np.array(copied).tolist() == source.tolist()
        assert (copied.storage, copied.buffer is source.buffer) == (storage, False)
        expected = np.arange(12).reshape(3, 4).T.copy(order)
        assert [stride * 8 for stride in copied.strides] == list(expected.strides), order


# ---- who can be copied from and to ----


@pytest.mark.parametrize("storage", STORAGES)
def test_a_tensor_of_torch_is_read_and_written(torch, storage):
    tensor = torch.arange(12.0).reshape(4, 3).T
    array = md.zeros((3, 4), storage=storage)
    array.copy_from(tensor)
    assert array.tolist() == tensor.tolist()
    array.fill(7)
    array.copy_to(tensor)
    assert tensor.tolist() == [[7.0] * 4] * 3


@pytest.mark.needs_ml_dtypes
def test_types_that_the_buffer_protocol_cannot_name_are_copied():
    ml_dtypes = importlib.import_module("ml_dtypes")
    values = np.arange(6, dtype="float32").astype(ml_dtypes.bfloat16)
    array = md.zeros(6, "bfloat16")
    array.copy_from(values)
    assert (np.array(array) == values).all()
    target = np.zeros(6, ml_dtypes.bfloat16)
    array.copy_to(target)
    assert (target == values).all()


def test_packed_items_are_copied_as_a_whole():
    source = md.zeros(5, "int4")
    memoryview(source.buffer)[:] = b"\x21\x43\x05"
    target = md.zeros(5, "int4")
    target.copy_from(source)
    assert bytes(memoryview(target.buffer)) == b"\x21\x43\x05"
    rows = md.zeros((2, 5), "int4")
    rows.copy_from(source)
    assert bytes(memoryview(rows.buffer)) == b"\x21\x43\x15\x32\x54"
    with pytest.raises(ValueError, match=r"\(5,\).*\(2, 4\)"):
        md.zeros((2, 4), "int4").copy_from(source)


def test_leading_axes_of_extent_one_may_be_too_many():
    array = md.zeros(3)
    array.copy_from(np.ones((1, 1, 3), "float32"))
    array[...] = md.full((1, 3), 2.0)
    assert array.tolist() == [2, 2, 2]


# ---- what does not fit ----


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("make", [md.asarray, np.asarray, lambda values: md.asarray(values).copy(storage="private")])
def test_what_does_not_fit_is_refused_with_both_named_before_anything_is_written(make, storage):
    array = md.zeros((2, 3), "float32", storage=storage)
    wrong_shape = make(np.ones((2, 2), "float32"))
    wrong_type = make(np.ones((2, 3), "int16"))
    for refused in (array.copy_from, lambda source: array.__setitem__(..., source)):
        with pytest.raises(ValueError, match=r"\(2, 2\).*\(2, 3\)"):
            refused(wrong_shape)
    with pytest.raises(TypeError, match=r"int16.*float32"):
        array.copy_from(wrong_type)
    with pytest.raises(TypeError, match=r"float32.*int16"):
        array.copy_to(wrong_type)
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 2\)"):
        array.copy_to(wrong_shape)
    assert (np.array(array) == 0).all()
    assert (np.array(wrong_type) == 1).all()


def test_read_only_memory_is_not_written():
    array = md.zeros(3)
    for refused in (
        lambda: array.as_readonly().copy_from(array),
        lambda: array.as_readonly().fill(1),
        lambda: array.as_readonly().__setitem__(..., 1),
        lambda: md.full(3, 1.0).copy_to(array.as_readonly()),
        lambda: md.zeros(4, "uint8").copy_to(b"abcd"),
    ):
        with pytest.raises(ValueError, match="read-only"):
            refused()
    frozen = np.zeros(3, "float32")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        array.copy_to(frozen)
    assert (np.array(array) == 0).all() and (frozen == 0).all()


def test_a_number_that_does_not_fit_the_type_is_refused_with_both_named():
    too_large = [("int8", 128), ("int8", -129), ("uint8", -1), ("uint64", 2**64)]
    of_another_kind = [("int32", 1.5), ("float32", 1j), ("float32", "1")]
    for error, cases in ((OverflowError, too_large), (TypeError, of_another_kind)):
        for dtype, value in cases:
            array = md.zeros(2, dtype)
            with pytest.raises(error, match=dtype):
                array.fill(value)
            assert array.tolist() == [0, 0]
