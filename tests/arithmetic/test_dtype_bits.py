"""Items that do not fall on bytes, packed and padded, beside a naive oracle that counts single bits."""

import ctypes
import pickle
import random

import ml_dtypes
import numpy as np
import pytest
from dlpack_structs import IS_COPIED, IS_PADDED, Opened, Producer
from hostile.tensors import PAGE, PROT_NONE, libc, map_pages
from hypothesis import given
from hypothesis import strategies as st

import metal_dlpack as md

SCALARS = [dtype.name for dtype in vars(md).values() if isinstance(dtype, md.dtype) and dtype.bits < 8]
VECTORS = ["int4x3", "uint2x3", "float6_e2m3fnx3", "float4_e2m1fnx5"]
WHOLE_VECTORS = ["float4_e2m1fnx2", "int2x4", "float6_e3m2fnx4", "int4x6"]
STORAGES = ["shared", "managed", "private"]
SHARED = pytest.mark.parametrize("name", SCALARS)


# ---- the oracle: memory as one list of bits ----


def bits_of(codes, width):
    """The items' bits, the lowest first (SPEC dlpack.h DLDataType)."""
    return [code >> bit & 1 for code in codes for bit in range(width)]


def bytes_of(bits):
    padded = [*bits, *[0] * (-len(bits) % 8)]
    return bytes(sum(bit << place for place, bit in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8))


def codes_in(memory, width, count):
    """`count` codes of `width` bits from the first bit of `memory` on."""
    bits = [byte >> place & 1 for byte in memory for place in range(8)]
    return [sum(bits[at * width + place] << place for place in range(width)) for at in range(count)]


def number_of(code, dtype):
    """What a code means: ml_dtypes is asked; for several lanes a tuple."""
    lanes = [code >> lane * dtype.bits & (1 << dtype.bits) - 1 for lane in range(dtype.lanes)]
    scalar = md.dtype(dtype.name.rsplit("x", 1)[0]) if dtype.lanes > 1 else dtype
    if scalar.name.endswith("int1") and not hasattr(ml_dtypes, "int1"):
        pytest.skip("this ml_dtypes has no int1")
    numbers = np.array(lanes, "uint8").view(scalar.numpy)
    kind = int if "int" in dtype.name else float
    found = tuple(kind(number) for number in numbers)
    return found if dtype.lanes > 1 else found[0]


def nested(codes, dtype):
    """An array of codes as nested lists of numbers."""
    if codes.ndim == 0:
        return number_of(int(codes), dtype)
    return [nested(part, dtype) for part in codes]


def memory_of(array):
    """The bytes of the array's buffer."""
    return bytes(array.buffer.array(array.buffer.size, "uint8").copy(storage="shared").tolist())


def make(dtype, shape, codes, storage="shared"):
    width = dtype.bits * dtype.lanes
    array = md.empty(shape, dtype, storage=storage)
    array.buffer.copy_from(bytes_of(bits_of(codes, width)).ljust(array.buffer.size, b"\0"))
    return array


dtypes = st.sampled_from(SCALARS + VECTORS + WHOLE_VECTORS).map(md.dtype)
shapes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@st.composite
def arrays(draw, storages=("shared",)):
    """An array, and its codes in a NumPy array of the same shape."""
    dtype, shape = draw(dtypes), draw(shapes)
    count = int(np.prod(shape))
    top = (1 << dtype.bits * dtype.lanes) - 1
    codes = draw(st.lists(st.integers(0, top), min_size=count, max_size=count))
    return make(dtype, shape, codes, draw(st.sampled_from(storages))), np.array(codes, "int64").reshape(shape)


@st.composite
def keys(draw, shape):
    return tuple(
        draw(st.one_of(st.slices(extent), st.slices(extent), st.integers(-extent, extent - 1))) for extent in shape
    )


# ---- one item ----


@SHARED
def test_every_code_is_read_as_ml_dtypes_reads_it(name):
    dtype = md.dtype(name)
    codes = range(2**dtype.bits)
    expected = [number_of(code, dtype) for code in codes]
    assert make(dtype, len(codes), codes).tolist() == expected
    assert [str(x) for x in make(dtype, len(codes), codes).tolist()] == [str(x) for x in expected]  # -0.0
    assert [make(dtype, len(codes), codes).item(i) for i in codes] == expected


@pytest.mark.parametrize("name", ["int1", "uint1", "int2", "uint2", "int4", "uint4"])
def test_an_integer_that_does_not_fit_is_refused(name):
    dtype = md.dtype(name)
    numbers = [number_of(code, dtype) for code in range(2**dtype.bits)]
    array = md.zeros(3, dtype)
    for value in (min(numbers) - 1, max(numbers) + 1):
        with pytest.raises(OverflowError, match=name):
            array[1] = value
    assert array.tolist() == [0, 0, 0]


def test_lanes_are_a_tuple():
    array = md.zeros(2, "float4_e2m1fnx2")
    array[1] = (0.5, -6)
    assert array.tolist() == [(0.0, 0.0), (0.5, -6.0)]
    assert array.item(1) == (0.5, -6.0)
    array.fill(1.5)
    assert array.tolist() == [(1.5, 1.5)] * 2
    with pytest.raises(ValueError, match="2 lanes, not 3"):
        array[0] = (1, 2, 3)
    wide = md.zeros(2, "float32x40")
    wide.fill(tuple(range(40)))
    assert wide.tolist() == [tuple(map(float, range(40)))] * 2
    assert md.full(2, 7, "int4x3").tolist() == [(7, 7, 7)] * 2


# ---- views ----


@given(arrays(STORAGES), st.data())
def test_a_view_falls_on_a_byte_or_names_the_bit(pair, data):
    """Random chains of indexing, permuting and squeezing: the same items as NumPy picks, or a refusal."""
    array, codes = pair
    width = array.dtype.bits * array.dtype.lanes
    places = np.arange(codes.size).reshape(codes.shape)
    flat = codes.reshape(-1)
    for _ in range(data.draw(st.integers(1, 3))):
        if places.ndim == 0 or places.size == 0:
            break
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(places.ndim)))
            array, places = array.permute(order), places.transpose(order)
        key = data.draw(keys(places.shape))
        picked = places[key]
        if picked.size and picked.reshape(-1)[0] * width % 8:
            byte, bit = divmod(int(picked.reshape(-1)[0]) * width, 8)
            with pytest.raises(md.CopyRequiredError, match=f"bit {bit} of byte {byte} "):
                array[key]
            continue
        array, places = array[key], picked
    assert array.shape == places.shape
    assert array.tolist() == nested(flat[places], array.dtype)
    assert array.copy().tolist() == array.tolist()
    assert array.copy("F", storage="private").tolist() == array.tolist()


@given(arrays(STORAGES), st.data())
def test_writing_leaves_the_bits_beside_it(pair, data):
    """Numbers and arrays into any part, on any bit: the whole buffer is as if each code had been set alone."""
    array, codes = pair
    dtype, width = array.dtype, array.dtype.bits * array.dtype.lanes
    codes = codes.copy()
    for _ in range(3):
        key = data.draw(keys(codes.shape))
        shape = codes[key].shape if isinstance(codes[key], np.ndarray) else ()
        if data.draw(st.booleans()):
            code = data.draw(st.integers(0, (1 << width) - 1))
            array[key] = number_of(code, dtype)
            codes[key] = code
        else:
            source = data.draw(st.sampled_from(["same", "padded", "itself"]))
            count = int(np.prod(shape))
            fresh = np.array([data.draw(st.integers(0, (1 << width) - 1)) for _ in range(count)], "int64").reshape(
                shape
            )
            if source == "itself" and shape == codes.shape:
                array[key] = array
                codes[key] = codes.copy()
                continue
            value = make(dtype, shape, fresh.reshape(-1))
            if source == "padded" and dtype.lanes == 1:
                value = value.copy(padded=True)
                assert value.padded
            array[key] = value
            codes[key] = fresh
    expected = bytes_of(bits_of(codes.reshape(-1), width))
    assert memory_of(array) == expected.ljust(array.buffer.size, b"\0")


@SHARED
@pytest.mark.parametrize("copy", [False, True])
def test_no_byte_behind_the_last_item_is_touched(name, copy):
    """Where its memory ends, a page begins that faults."""
    dtype, shape = md.dtype(name), (3, 8)
    codes = np.arange(24).reshape(shape) % 2**dtype.bits
    pages, memory = map_pages(2), bytes_of(bits_of(codes.T.reshape(-1), dtype.bits))
    libc.mprotect(pages + PAGE, PAGE, PROT_NONE)
    data = pages + PAGE - len(memory)
    ctypes.memmove(data, memory, len(memory))
    columns = {"data": data, "shape": shape, "strides": (1, 3), "dtype": (dtype.code, dtype.bits, 1)}
    array = md.from_dlpack(Producer(**columns), copy=copy)
    assert array.tolist() == array.copy().tolist() == nested(codes, dtype)
    array[...] = number_of(1, dtype)
    array[2, 7] = number_of(0, dtype)
    assert array.tolist() == nested(np.where(np.arange(24).reshape(shape) < 23, 1, 0), dtype)


def slice_of(rng, extent, count, multiple=1):
    """A slice of so many items, forwards or backwards, whose first is a multiple."""
    while True:
        step = rng.randrange(1, (extent - 1) // count + 1) * rng.choice([1, -1])
        first = rng.randrange(0, extent, multiple)
        last = first + step * (count - 1)
        if 0 <= last < extent:
            stop = last + (1 if step > 0 else -1)
            return slice(first, None if stop < 0 else stop, step)


@pytest.mark.parametrize("name", ["int4", "uint2", "float6_e2m3fn"])
def test_parts_of_one_array_are_copied_as_those_of_a_list(name):
    dtype, rng = md.dtype(name), random.Random(5)
    for _ in range(300):
        codes = [rng.randrange(2**dtype.bits) for _ in range(24)]
        array, count = make(dtype, (24,), codes), rng.randrange(1, 9)
        into, out_of = slice_of(rng, 24, count), slice_of(rng, 24, count, 4)  # a view begins on a byte
        expected = list(codes)
        expected[into] = codes[out_of]
        array[into] = array[out_of]
        assert codes_in(memory_of(array), dtype.bits, 24) == expected, (into, out_of)


def test_other_items_over_packed_bytes():
    array = make(md.int4, (2, 4), range(8))
    assert array.view("uint8").tolist() == [[0x10, 0x32], [0x54, 0x76]]
    assert array.view("uint4").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert array.view("int4x2").tolist() == [[(0, 1), (2, 3)], [(4, 5), (6, 7)]]
    assert array[:, :2].view("uint8").tolist() == [[0x10], [0x54]]
    assert array.view("uint16").view("int4").tolist() == array.tolist()
    assert array.view("uint2").shape == (2, 8)
    rows = md.empty((3, 5), "int4")[:, :4]  # the second begins within a byte
    assert rows[:1].view("uint8").shape == (1, 2)
    for refused in (
        lambda: array[:, :3].view("uint8"),
        lambda: array.T.view("uint8"),
        lambda: array.view("float6_e2m3fn"),
        lambda: rows.view("uint8"),
        lambda: md.empty((2, 3), "int4").view("uint8"),
    ):
        with pytest.raises(ValueError, match="not contiguous or its bytes do not divide"):
            refused()


def test_an_array_over_a_buffer_begins_on_a_byte_and_ends_in_it():
    buffer = md.Buffer(4)
    assert buffer.array(8, "int4").shape == (8,)
    with pytest.raises(ValueError, match="past the Buffer's 4 bytes"):
        buffer.array(9, "int4")
    with pytest.raises(ValueError, match="past the Buffer's 4 bytes"):
        buffer.array(5, "int4", padded=True)
    with pytest.raises(ValueError, match="at bit 4 of a byte"):
        buffer.array(md.StridedLayout((9,), (1,), 1)[1:3], "int4")
    assert buffer.array(md.StridedLayout((8,), (1,), 1)[2:], "int4").byte_offset == 1
    with pytest.raises(ValueError, match="one lane"):
        buffer.array(1, "int4x3", padded=True)
    assert not buffer.array(4, "uint8", padded=True).padded


# ---- packed and padded ----


@given(arrays(STORAGES))
def test_padding_gives_each_item_a_byte_and_packing_takes_it(pair):
    array, codes = pair
    if array.dtype.lanes > 1:
        if array.dtype.bits * array.dtype.lanes % 8:
            with pytest.raises(ValueError, match="one lane"):
                array.copy(padded=True)
        return
    wide = array.copy(padded=True, storage="shared")
    assert (wide.padded, wide.nbytes, wide.dtype) == (True, codes.size, array.dtype)
    assert list(memory_of(wide)) == codes.reshape(-1).tolist()
    assert wide.copy().padded
    narrow = wide.copy(padded=False)
    assert not narrow.padded
    assert list(codes_in(memory_of(narrow), array.dtype.bits, codes.size)) == codes.reshape(-1).tolist()
    assert wide[..., ::-1].tolist() == nested(codes[..., ::-1], array.dtype)


def test_the_bits_above_a_padded_item_are_not_read_and_are_written_as_0():
    bytes_ = md.asarray(np.array([0xF3, 0x8F, 0x70], "uint8"))
    array = bytes_.buffer.array(3, "int4", bytes_.byte_offset, padded=True)
    assert array.tolist() == [3, -1, 0]
    array[1] = -2
    assert bytes_.tolist() == [0xF3, 0x0E, 0x70]
    assert array.view("uint4").tolist() == [3, 14, 0]
    assert array.view("uint8").tolist() == [0xF3, 0x0E, 0x70]
    assert not array.view("uint8").padded


@SHARED
def test_numpy_s_arrays_are_shared_padded_and_packed_ones_copied(name):
    dtype = md.dtype(name)
    theirs = np.arange(2**dtype.bits, dtype="uint8").repeat(3).view(dtype.numpy).reshape(-1, 3)
    array = md.asarray(theirs, copy=False)
    assert (array.dtype, array.padded, array.shape) == (dtype, True, theirs.shape)
    assert np.shares_memory(np.asarray(array).view("uint8"), theirs.view("uint8"))
    assert np.asarray(array, copy=False).dtype == dtype.numpy
    packed = array.copy(padded=False)
    assert packed.nbytes == (theirs.size * dtype.bits + 7) // 8
    for storage in STORAGES:
        back = np.asarray(packed.copy(storage=storage))
        assert back.dtype == dtype.numpy
        assert (back.view("uint8") == theirs.view("uint8")).all()
    with pytest.raises(md.CopyRequiredError, match="one byte for each item"):
        np.asarray(packed, copy=False)
    other = md.zeros(theirs.shape, dtype)
    other[...] = theirs
    assert memory_of(other)[: other.nbytes] == memory_of(packed)[: packed.nbytes]
    other[...] = 1.0 if "float" in name else 0
    other[1:, 1] = theirs[1:, 1]
    assert (np.asarray(other)[1:, 1].view("uint8") == theirs[1:, 1].view("uint8")).all()


# ---- exchange ----


@pytest.mark.parametrize("dl_device", [None, (1, 0)])
def test_a_padded_export_says_so(dl_device):
    array = make(md.int4, (2, 3), range(6)).copy(padded=True)
    seen = Opened(array.__dlpack__(max_version=(1, 3), dl_device=dl_device))
    assert seen.flags & IS_PADDED
    packed = Opened(make(md.int4, (2, 3), range(6)).__dlpack__(max_version=(1, 3), dl_device=dl_device))
    assert not packed.flags & IS_PADDED
    back = md.from_dlpack(array if dl_device is None else array.host)
    assert back.padded
    assert back.tolist() == array.tolist()
    assert back.buffer.address == array.buffer.address


def test_a_legacy_capsule_cannot_say_padded_and_gets_packed_items():
    array = make(md.int4, (2, 4), range(8)).copy(padded=True)
    seen = Opened(array.__dlpack__(dl_device=(1, 0)))
    assert seen.name == b"dltensor"
    assert ctypes.string_at(seen.tensor.data, 4) == bytes([0x10, 0x32, 0x54, 0x76])
    with pytest.raises(BufferError, match="padded, which only a versioned tensor can say"):
        array.__dlpack__(copy=False)


def test_packed_items_that_lie_apart_are_copied_together():
    array = make(md.int4, (4, 4), range(16))
    seen = Opened(array[:, :2].__dlpack__(max_version=(1, 3)))
    assert seen.flags & IS_COPIED
    with pytest.raises(md.CopyRequiredError, match="are not contiguous"):
        array[:, :2].__dlpack__(max_version=(1, 3), copy=False)
    assert not Opened(array[2:].__dlpack__(max_version=(1, 3))).flags & IS_COPIED


@pytest.mark.parametrize("copy", [None, False, True])
def test_tensors_of_others_packed_padded_and_strided(copy):
    memory = np.array([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA], "uint8")
    given_fields = {"data": memory.ctypes.data, "dtype": (1, 4, 1), "versioned": True}
    packed = md.from_dlpack(Producer(shape=(2, 3), strides=(3, 1), **given_fields), copy=copy)
    assert packed.tolist() == [[0, 1, 2], [3, 4, 5]]
    strided = md.from_dlpack(Producer(shape=(2, 4), strides=(8, 1), **given_fields), copy=copy)
    assert strided.tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    columns = md.from_dlpack(Producer(shape=(3, 2), strides=(1, 3), **given_fields), copy=copy)
    assert columns.tolist() == [[0, 3], [1, 4], [2, 5]]
    padded = md.from_dlpack(Producer(shape=(2, 3), strides=(3, 1), flags=IS_PADDED, **given_fields), copy=copy)
    assert padded.padded
    assert padded.tolist() == [[0, 2, 4], [6, 8, 10]]
    whole = md.from_dlpack(Producer(shape=(3,), flags=IS_PADDED, **{**given_fields, "dtype": (1, 8, 1)}), copy=copy)
    assert not whole.padded


def test_lanes_cannot_be_padded():
    memory = np.zeros(8, "uint8")
    producer = Producer(data=memory.ctypes.data, dtype=(17, 4, 2), shape=(2,), flags=IS_PADDED, versioned=True)
    with pytest.raises(BufferError, match="items of 4 bits in 2 lanes cannot be padded"):
        md.from_dlpack(producer)
    assert producer.deletions == 0


def test_torch_s_fp4_is_two_lanes_both_ways(torch):
    codes = torch.arange(16, dtype=torch.uint8).reshape(2, 8) * 0x11
    theirs = codes.view(torch.float4_e2m1fn_x2)
    array = md.from_dlpack(theirs)
    assert (array.dtype.name, array.shape, array.nbytes) == ("float4_e2m1fnx2", (2, 8), 16)
    expected = [[(number_of(code, md.float4_e2m1fn),) * 2 for code in row] for row in (range(8), range(8, 16))]
    assert array.tolist() == expected
    array[0, 0] = (6, -6)
    assert codes[0, 0] == 0xF7
    single = array.view("float4_e2m1fn")
    assert single.shape == (2, 16)
    assert single.tolist()[0][:4] == [6.0, -6.0, 0.5, 0.5]
    back = torch.from_dlpack(array.host)
    assert back.dtype == torch.float4_e2m1fn_x2
    assert back.view(torch.uint8).tolist() == codes.tolist()
    assert back.data_ptr() == theirs.data_ptr()
    made = torch.from_dlpack(single.astype("float32").astype("float4_e2m1fn").view("float4_e2m1fnx2").host)
    assert made.view(torch.uint8).tolist() == codes.tolist()


# ---- and everything else that holds an array ----


@given(arrays(STORAGES), st.sampled_from([2, 5]))
def test_pickles_keep_the_codes_and_the_form(pair, protocol):
    array, _ = pair
    forms = [array, array.permute(tuple(reversed(range(array.ndim)))), array.as_readonly()]
    if array.dtype.lanes == 1:
        forms += [array.copy(padded=True), md.empty((0, 3), array.dtype).copy(padded=True)]
    for form in forms:
        back = pickle.loads(pickle.dumps(form, protocol))
        assert (back.padded, back.dtype, back.storage, back.readonly) == (
            form.padded,
            form.dtype,
            form.storage,
            form.readonly,
        )
        assert back.tolist() == form.tolist()


def test_the_text_shows_the_numbers():
    assert "[1, -1, 7]" in repr(make(md.int4, (3,), [1, 15, 7])).replace(" ", "").replace(",", ", ")
    assert "(0.5, 6. )" in repr(md.full(1, (0.5, 6), "float4_e2m1fnx2"))
    assert "padded" in repr(md.zeros(3, "int4").copy(padded=True))
    assert "..." in repr(md.zeros((100, 101), "int4"))
    assert repr(md.zeros(1, "int2x1000")).startswith("Array(<items of many lanes>")


def test_who_shares_which_bytes():
    array = md.zeros((4, 4), "int4")
    assert not md.shares_memory(array[:, :2], array[:, :2].copy())
    assert md.shares_memory(array, array[2])
    assert not md.shares_memory(array[:2], array[2:])
    assert not md.shares_memory(array[:, :2], array[:, 2:])
    flat = array.flatten()
    assert not md.shares_memory(flat[::4], flat[2::4])
    assert md.shares_memory(flat[::4], flat[4::8])
    assert md.shares_memory(array[:2], array.buffer)
