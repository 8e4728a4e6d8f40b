"""Read-only is a fact of the memory: a consumer that drops DLPack's flag brings back a read-only Array all the same."""

import gc
import pickle

import numpy as np
import pytest
from dlpack_structs import IS_PADDED, READ_ONLY, Producer, open_capsule
from objc_messages import foreign_buffer

import metal_dlpack as md

DATA = bytes(range(64))
DTYPE = (1, 8, 1)


class Forgetful:
    """A consumer that hands the tensor on without its flags, as torch does; it keeps what it was given."""

    def __init__(self, given, versioned=True):
        self.kept = open_capsule(given.__dlpack__(max_version=(1, 0)))
        tensor = self.kept.tensor
        fields = {"shape": tuple(tensor.shape[: tensor.ndim]), "strides": tuple(tensor.strides[: tensor.ndim])}
        fields |= {"data": tensor.data, "byte_offset": tensor.byte_offset, "dtype": DTYPE}
        device = tuple(tensor.device)
        self.producer = Producer(versioned=versioned, device=device, **fields)

    def __dlpack__(self, **keywords):
        return self.producer.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.producer.__dlpack_device__()


def of_file(tmp_path):
    """Read a file that is long enough to be mapped."""
    np.save(tmp_path / "x.npy", np.tile(np.frombuffer(DATA, "uint8"), 1000))
    return md.open(tmp_path / "x.npy")["arr_0"][:64]


def readonly_numpy():
    x = np.frombuffer(bytearray(DATA), "uint8")
    x.flags.writeable = False
    return x


MAKERS = {
    "bytes": lambda _: md.asarray(DATA),
    "numpy": lambda _: md.from_dlpack(readonly_numpy()),
    "host": lambda _: md.Buffer.from_host(bytearray(DATA), writable=False).array((64,), "uint8"),
    "file": of_file,
    "a part": lambda _: md.asarray(DATA)[8:40:2],
    "pickled": lambda _: pickle.loads(
        pickle.dumps(md.asarray(DATA), protocol=5, buffer_callback=[].append), buffers=[DATA]
    ),
}


@pytest.fixture(params=MAKERS)
def array(request, tmp_path):
    made = MAKERS[request.param](tmp_path)
    assert made.readonly
    return made


def torch_over(x):
    return pytest.importorskip("torch").from_dlpack(x)


DOORS = {
    "Metal": lambda a: md.from_dlpack(Forgetful(a)),
    "Metal, legacy": lambda a: md.from_dlpack(Forgetful(a, versioned=False)),
    "Metal, capsule": lambda a: md.from_dlpack(Forgetful(a).__dlpack__()),
    "Metal, asarray": lambda a: md.asarray(Forgetful(a)),
    "Metal, a part": lambda a: md.from_dlpack(Forgetful(a[3:])),
    "CPU": lambda a: md.from_dlpack(Forgetful(a.host)),
    "CPU, legacy": lambda a: md.from_dlpack(Forgetful(a.host, versioned=False)),
    "CPU, capsule": lambda a: md.from_dlpack(Forgetful(a.host).__dlpack__()),
    "CPU, asarray": lambda a: md.asarray(Forgetful(a.host)),
    "CPU, a part": lambda a: md.from_dlpack(Forgetful(a[3:].host)),
    "CPU, from_host": lambda a: md.Buffer.from_host(Forgetful(a.host)).array((3,), "uint8"),
    "NumPy": lambda a: md.from_dlpack(np.asarray(a)),
    "NumPy, asarray": lambda a: md.asarray(np.asarray(a)),
    "NumPy by DLPack": lambda a: md.asarray(np.from_dlpack(a.host)),
    "memoryview": lambda a: md.asarray(memoryview(a)),
    "torch on Metal": lambda a: md.from_dlpack(torch_over(a)),
    "torch on the CPU": lambda a: md.from_dlpack(torch_over(a.host)),
    "torch, asarray": lambda a: md.asarray(torch_over(a.host)),
    "torch to NumPy": lambda a: md.asarray(torch_over(a.host).numpy()),
    "torch to NumPy by DLPack": lambda a: md.from_dlpack(torch_over(a.host).numpy()[1:]),
    "torch to a memoryview": lambda a: md.asarray(memoryview(torch_over(a.host).numpy())),
    "NumPy to torch": lambda a: md.from_dlpack(pytest.importorskip("torch").from_numpy(np.asarray(a))),
    "handle": lambda a: md.Buffer.from_handle(a.buffer.handle).array((3,), "uint8"),
    "handle and owner": lambda a: md.Buffer.from_handle(a.buffer.handle, owner=a).array((3,), "uint8"),
    "handle and size": lambda a: md.Buffer.from_handle(a.buffer.handle, 3).array((3,), "uint8"),
    "twice": lambda a: md.from_dlpack(Forgetful(md.from_dlpack(Forgetful(a)))),
    "Metal, then the CPU": lambda a: md.from_dlpack(Forgetful(md.from_dlpack(Forgetful(a)).host)),
    "CPU, then Metal": lambda a: md.from_dlpack(Forgetful(md.from_dlpack(Forgetful(a.host)))),
}


def refuses_writes(back):
    for write in (
        lambda: back.fill(7),
        lambda: back.__setitem__(..., 7),
        lambda: back.copy_from(md.zeros(back.shape, "uint8")),
        lambda: back.buffer.fill(0),
    ):
        with pytest.raises(ValueError, match="read-only"):
            write()
    with pytest.raises(BufferError, match="read-only"):
        back.__dlpack__()
    assert open_capsule(back.__dlpack__(max_version=(1, 0))).is_readonly
    assert not np.asarray(back).flags.writeable
    assert memoryview(back.buffer).readonly


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.rule("import-readonly")
def test_read_only_memory_comes_back_read_only(array, subtests):
    for door in DOORS:
        with subtests.test(door=door):
            before = array.tolist()
            back = DOORS[door](array)
            assert back.readonly
            refuses_writes(back)
            assert array.tolist() == before
            assert not array.copy().readonly
            assert bytes(range(64)) == DATA


@pytest.mark.needs_softmetal
@pytest.mark.parametrize("door", ["Metal", "CPU", "handle", "twice"])
@pytest.mark.rule("import-readonly")
def test_a_foreign_buffer_that_came_read_only_comes_back_so(door):
    with foreign_buffer(64, 0) as handle:
        given = md.from_dlpack(Producer(shape=(64,), dtype=DTYPE, data=handle, device=(8, 0), flags=READ_ONLY))
        back = DOORS[door](given)
        refuses_writes(back)
        del given, back
        gc.collect()
        assert not md.from_dlpack(Producer(shape=(64,), dtype=DTYPE, data=handle, device=(8, 0))).readonly


@pytest.mark.rule("import-readonly")
def test_memory_of_ours_can_be_written_whoever_called_it_read_only():
    """The flag belongs to its tensor; the memory behind was never read-only."""
    array = md.zeros(64, "uint8")
    marked = md.from_dlpack(
        Producer(shape=(64,), dtype=DTYPE, data=array.buffer.handle, device=(8, 0), flags=READ_ONLY)
    )
    assert marked.readonly
    with pytest.raises(ValueError, match="read-only"):
        marked.fill(1)
    for given in (array, marked, array.as_readonly()):
        for door in ("Metal", "CPU", "handle"):
            back = DOORS[door](given)
            back[0] = 5
            assert array[0].item() == 5
            array.fill(0)


@pytest.mark.rule("import-readonly")
def test_the_owner_of_memory_may_write_it_though_a_view_of_it_was_read_only():
    x = np.zeros(64, "uint8")
    view = x.view()
    view.flags.writeable = False
    kept = md.asarray(view)
    shown = [np.asarray(kept), memoryview(kept), Forgetful(kept), Forgetful(kept.host)]
    for take in (md.asarray, md.from_dlpack, lambda x: md.asarray(memoryview(x)), lambda x: md.asarray(x[::2])):
        taken = take(x)
        assert not taken.readonly
        taken.fill(3)
        assert x[0] == 3
    assert not md.Buffer.from_host(bytearray(4)).array((4,), "uint8").readonly
    assert not md.Buffer.from_handle(md.zeros(4).buffer.handle).array(4).readonly
    assert kept.readonly
    view = view[:0]
    assert memoryview(md.asarray(view).buffer).readonly
    del shown


@pytest.mark.rule("import-readonly")
def test_what_was_read_only_is_forgotten_with_its_last_owner():
    """The next memory at the same address can be written."""
    x = np.zeros(4096, "uint8")
    x.flags.writeable = False
    array = md.asarray(x)
    np.asarray(array)
    back = md.from_dlpack(Producer(shape=(9,), dtype=DTYPE, data=x.ctypes.data))
    assert back.readonly
    del array, back
    gc.collect()
    assert not md.from_dlpack(Producer(shape=(9,), dtype=DTYPE, data=x.ctypes.data)).readonly


@pytest.mark.rule("import-readonly")
def test_neighbours_of_read_only_memory_can_be_written():
    """A page can hold both: only the bytes count."""
    memory = np.zeros(100, "uint8")
    part = memory[40:60]
    part.flags.writeable = False
    array = md.asarray(part)
    kept = Forgetful(array.host)
    for first, count, expected in ((0, 40, False), (0, 41, True), (59, 1, True), (60, 40, False), (45, 3, True)):
        taken = md.from_dlpack(Producer(shape=(count,), dtype=DTYPE, data=memory.ctypes.data + first))
        assert taken.readonly == expected, first
    del kept


@pytest.mark.parametrize("device", [(1, 0), (8, 0)])
@pytest.mark.rule("import-readonly", "import-empty")
def test_a_tensor_without_items_keeps_its_flags(device):
    fields = {"shape": (2, 0), "dtype": (0, 4, 1), "data": None, "device": device}
    array = md.from_dlpack(Producer(flags=READ_ONLY | IS_PADDED, **fields))
    assert (array.readonly, array.padded, array.buffer.size) == (True, True, 0)
    assert open_capsule(array.__dlpack__(max_version=(1, 0))).flags == READ_ONLY | IS_PADDED
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    plain = md.from_dlpack(Producer(**fields))
    assert (plain.readonly, plain.padded) == (False, False)
    copy = md.from_dlpack(Producer(flags=READ_ONLY | IS_PADDED, **fields), copy=True)
    assert (copy.readonly, copy.padded) == (False, True)


def refuse_as_numpy_2_0(self, stream=None):
    raise BufferError("Cannot export readonly array since signalling readonly is unsupported by DLPack.")


@pytest.mark.parametrize("copy", [None, False, True])
def test_asarray_takes_read_only_memory_of_a_numpy_whose_dlpack_has_no_word_for_it(copy):
    old = type("numpy.ndarray", (np.ndarray,), {"__dlpack__": refuse_as_numpy_2_0})
    memory = np.frombuffer(DATA, "uint8").view(old)
    array = md.asarray(memory, copy=copy)
    assert array.readonly == (copy is not True)
    assert md.shares_memory(array, np.frombuffer(DATA, "uint8")) == (copy is not True)
    assert array.tolist() == list(DATA)
    with pytest.raises(BufferError, match=r"cannot export a read-only array; call asarray\(x\), or install NumPy 2.1"):
        md.from_dlpack(memory, copy=copy)
    with pytest.raises(BufferError, match="DLPack has no element type for"):  # as without read-only
        md.asarray(np.zeros(2, "M8[s]").view(old))


@pytest.mark.parametrize("take", [md.asarray, md.from_dlpack, lambda x: md.asarray(x, copy=False)])
def test_a_numpy_array_without_items_stays_read_only(take):
    x = np.zeros((0, 3))
    assert not take(x).readonly
    x.flags.writeable = False
    assert take(x).readonly
    assert not md.asarray(x, copy=True).readonly
