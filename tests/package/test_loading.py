"""load(): the tensors of files read by several threads into buffers of their own."""

import errno
import gc
import json
import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import file_cases as cases
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from children import run_child
from eventually import until
from file_cases import bytes_of, entry, safetensors_bytes
from safetensors.numpy import save_file

import metal_dlpack as md
from metal_dlpack.files import plan, reading
from metal_dlpack.files.source import Source
from metal_dlpack.loading import chosen
from metal_dlpack.opening import FileFormatError

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells")
KINDS = ["?", "i1", "i2", "u4", "i8", "f2", "f4", "f8", "c8"]


@pytest.fixture
def small_parts(monkeypatch):
    """As if each number were a few thousand times larger."""
    monkeypatch.setattr(plan, "RUN", 256)
    monkeypatch.setattr(reading, "PART", 64)


@pytest.fixture
def many(tmp_path):
    """Tensors of 1 MiB and more, and a few small ones, in one file; path and arrays."""
    made = {f"layer.{i}.weight": np.full((512, 512 + i), i, "f4") for i in range(6)}
    made |= {f"layer.{i}.bias": np.full(512, i, "f4") for i in range(6)}
    write_by_hand(tmp_path / "many.safetensors", made)
    return tmp_path / "many.safetensors", made


@pytest.fixture
def nothing_left(live_buffers):
    """No buffer, no thread and no descriptor when the test is over."""
    md.zeros(4, storage="private").tolist()  # Metal's own threads are there
    before = held_by_the_process()
    yield
    gc.collect()
    until(lambda: held_by_the_process() == before)  # a thread's last steps are the system's
    assert live_buffers() == 0


def held_by_the_process():
    """Its threads and its descriptors."""
    return [len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")] if sys.platform == "linux" else []


# ---- what is read ----


def write_by_numpy(path, arrays):
    np.savez(path, **arrays)


def write_by_hand(path, arrays):
    """A .safetensors file with tensors in the given order, at whatever offsets that makes."""
    header, data = {}, b""
    names = {"?": "BOOL", "i1": "I8", "i2": "I16", "u4": "U32", "i8": "I64"}
    names |= {"f2": "F16", "f4": "F32", "f8": "F64", "c8": "C64"}
    for name, array in arrays.items():
        kind = names[array.dtype.str.replace("|b1", "?").lstrip("<|")]
        header[name] = entry(kind, array.shape, (len(data), len(data) + array.nbytes))
        data += array.tobytes()
    path.write_bytes(safetensors_bytes(header, data))


def write_by_gguf(path, arrays):
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    for name, array in arrays.items():
        if array.dtype.str[1:] in ("i1", "i8", "f2", "f4", "f8"):
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


BY_SUFFIX = {".npz": write_by_numpy, ".safetensors": write_by_hand, ".gguf": write_by_gguf}
ARRAYS = st.lists(st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, 9), max_size=3)), min_size=1, max_size=12)


@hypothesis.given(ARRAYS, st.sampled_from(list(BY_SUFFIX)), st.sampled_from(["shared", "private", "managed"]))
def test_any_tensors_are_read_as_they_were_written(tmp_path, small_parts, made, suffix, storage):
    random = np.random.default_rng(len(made))
    arrays = {}
    for i, (kind, shape) in enumerate(made):
        items = random.integers(0, 2 if kind == "?" else 100, shape).astype(kind)
        arrays[f"{i}.{kind.strip('?')}"] = items
    path = tmp_path / f"any{suffix}"
    BY_SUFFIX[suffix](path, arrays)
    with md.open(path) as file:
        loaded = md.load(path, storage=storage)
        assert list(loaded) == list(file)
        assert suffix == ".gguf" or sorted(loaded) == sorted(arrays)
        for name, array in loaded.items():
            assert (array.shape, array.dtype) == (file[name].shape, file[name].dtype)
            assert bytes_of(array) == arrays[name].tobytes(), name
            assert (array.storage, array.readonly) == (storage, False)
            assert array.byte_offset % array.dtype.alignment == 0


@pytest.mark.parametrize("storage", ["shared", "private"])
@pytest.mark.parametrize("suffix", list(cases.WRITERS))
def test_every_type_of_every_format_is_what_open_shows(tmp_path, suffix, storage):
    path = cases.WRITERS[suffix](tmp_path / f"model{suffix}")
    loaded = md.load(path, storage=storage)
    with md.open(path) as file:
        assert {name: (a.dtype, a.shape, bytes_of(a)) for name, a in loaded.items()} == {
            name: (a.dtype, a.shape, bytes_of(a)) for name, a in file.items()
        }


@pytest.mark.needs_ml_dtypes
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "float8_e4m3fn"])
@pytest.mark.parametrize("storage", ["shared", "private"])
def test_floating_tensors_are_converted_as_numpy_does(tmp_path, small_parts, dtype, storage):
    import ml_dtypes  # noqa: F401

    random = np.random.default_rng(5)
    made = {kind: random.normal(size=(7, 11)).astype(kind) for kind in ("f2", "f4", "f8")}
    made |= {"i4": np.arange(99, dtype="i4"), "none": np.zeros((0, 3), "f4"), "flat": np.asfortranarray(made["f4"])}
    np.savez(tmp_path / "a.npz", **made)
    loaded = md.load(tmp_path / "a.npz", dtype=dtype, storage=storage)
    for name, array in loaded.items():
        wanted = made[name] if name == "i4" else made[name].astype(md.dtype(dtype).numpy)
        assert (array.dtype, array.storage) == (md.dtype(wanted.dtype), storage)
        assert bytes_of(array) == wanted.tobytes(), name
    fp8 = tmp_path / "fp8.safetensors"
    fp8.write_bytes(safetensors_bytes({"w": entry("F8_E4M3", (4,), (0, 4))}, b"\x38" * 4))
    assert md.load(fp8, dtype="float32")["w"].dtype == md.float8_e4m3fn  # its scales are elsewhere


def test_only_what_is_named_is_read_and_only_its_shards_are_opened(tmp_path, many):
    _, made = many
    names = {f"part-{i}.safetensors": [f"layer.{i}.weight", f"layer.{i}.bias"] for i in range(6)}
    for shard, held in names.items():
        save_file({name: made[name] for name in held}, tmp_path / shard)
    (tmp_path / "m.safetensors.index.json").write_text(
        json.dumps({"weight_map": {name: shard for shard, held in names.items() for name in held}})
    )
    path = tmp_path / "m.safetensors.index.json"
    assert list(md.load(path)) == list(md.open(path))
    for i in (0, 1, 3, 4, 5):
        (tmp_path / f"part-{i}.safetensors").unlink()
    told = []
    loaded = md.load(path, only="layer.2.*", progress=lambda *both: told.append(both))
    assert list(loaded) == ["layer.2.weight", "layer.2.bias"]
    assert told[-1] == (loaded["layer.2.weight"].nbytes + 2048,) * 2
    assert np.array_equal(np.asarray(loaded["layer.2.weight"]), made["layer.2.weight"])
    assert list(md.load(path, only=("layer.?.bias", "layer.2.*")[1:])) == list(loaded)
    with pytest.raises(FileNotFoundError, match=r"part-\d.safetensors"):
        md.load(path)


def test_only_takes_names_before_patterns_and_in_the_files_order(tmp_path):
    path = tmp_path / "a.safetensors"
    write_by_hand(path, {name: np.zeros(2, "f4") for name in ("a", "a[0]", "a*", "ab", "b.weight")})
    assert list(md.load(path, only="a*")) == ["a*"]
    assert list(md.load(path, only=iter(["b*", "a"]))) == ["a", "b.weight"]
    assert md.load(path, only=[]) == {}
    with pytest.raises(KeyError, match=r"has no tensor 'b.weigth'; did you mean 'b.weight'\?"):
        md.load(path, only=["a", "b.weigth"])


def stands_for(pattern, name):
    """What a pattern means, letter by letter."""
    ways = {0}  # how much of the name is used up
    for sign in pattern:
        if sign == "*":
            ways = {later for way in ways for later in range(way, len(name) + 1)}
        else:
            ways = {way + 1 for way in ways if way < len(name) and sign in ("?", name[way])}
    return len(name) in ways


def test_patterns_mean_what_they_mean_letter_by_letter():
    draw = random.Random(0)
    names = {"".join(draw.choices("ab[]!\n.", k=draw.randint(1, 7))) for _ in range(60)}
    file = dict.fromkeys(sorted(names))
    for _ in range(500):
        pattern = "".join(draw.choices("ab[]!.***??", k=draw.randint(1, 7)))
        wanted = [pattern] if pattern in file else [name for name in file if stands_for(pattern, name)]
        if wanted:
            assert chosen(file, pattern) == wanted, pattern


def test_a_pattern_of_many_stars_is_matched_without_going_back(tmp_path):
    path = tmp_path / "a.safetensors"
    write_by_hand(path, {"a" * 200: np.zeros(2, "f4")})
    program = "import sys, metal_dlpack as md; md.load(sys.argv[1], only='*a' * 60 + sys.argv[2])"
    assert run_child(program, path, "").returncode == 0
    assert "KeyError" in run_child(program, path, "b", timeout=60).stderr  # else longer than the universe


# ---- whose memory it is ----


def test_arrays_live_on_their_own(many, nothing_left, live_buffers):
    path, made = many
    loaded = md.load(path)
    path.write_bytes(b"")
    for name, array in loaded.items():
        assert np.array_equal(np.asarray(array), made[name]), name
    assert live_buffers() == 7  # six of at least 1 MiB, one for what is smaller
    assert all(array.byte_offset == 0 for name, array in loaded.items() if name.endswith("weight"))
    del loaded["layer.3.weight"], array
    assert live_buffers() == 6
    loaded.clear()


def test_memory_comes_from_the_pool(many):
    path, _ = many
    md.load(path)
    hits = md.memory_stats()["hits"]
    loaded = md.load(path)
    assert md.memory_stats()["hits"] - hits >= 7
    del loaded


# ---- progress ----


def test_progress_begins_with_nothing_and_ends_with_all_in_the_calling_thread(many, small_parts, monkeypatch):
    path, made = many
    told, total = [], sum(array.nbytes for array in made.values())
    monkeypatch.setattr(reading, "PART", 1 << 14)
    md.load(path, progress=lambda *both: told.append((*both, threading.current_thread())))
    assert {thread for *_, thread in told} == {threading.current_thread()}
    assert (told[0][:2], told[-1][:2]) == ((0, total), (total, total))
    assert [done for done, *_ in told] == sorted({done for done, *_ in told})
    write_by_hand(path, {"none": np.zeros((0, 2), "f4")})
    told.clear()
    md.load(path, progress=lambda *both: told.append(both))
    assert told == [(0, 0)]


def test_true_is_a_bar_of_tqdm_or_a_line(many, monkeypatch, capsys):
    path, _ = many
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # its thread would leak: CPython frees nothing of a daemon's
    md.load(path, progress=True)
    shown = capsys.readouterr().err
    assert "many.safetensors: 100%" in shown and "6.3" in shown.replace("6.32", "6.3")
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    md.load(path, progress=True)
    lines = capsys.readouterr().err.split("\r")
    assert lines[1] == "many.safetensors: 0 of 6 MB" and lines[-1] == "many.safetensors: 6 of 6 MB\n"


@pytest.mark.parametrize("at", [0, 1])
def test_what_progress_raises_ends_it(many, nothing_left, monkeypatch, at):
    monkeypatch.setattr(reading, "PART", 1 << 12)
    calls = []

    def fail(done, total):
        calls.append(done)
        if len(calls) > at:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        md.load(many[0], progress=fail)


# ---- what goes wrong ----


def test_a_file_that_shrinks_while_it_is_read_is_refused(many, nothing_left):
    path, _ = many
    with pytest.raises(FileFormatError, match=r"many.safetensors: it has 3000000 bytes now and had 63\d+ when"):
        md.load(path, progress=lambda done, total: os.truncate(path, 3_000_000))


def test_an_error_of_the_disk_names_the_file(many, nothing_left, monkeypatch):
    path, _ = many
    read, calls = os.preadv, []

    def fail_later(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(*arguments)

    monkeypatch.setattr(os, "preadv", fail_later)
    with pytest.raises(OSError, match="Input/output error") as caught:
        md.load(path)
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(path))
    del caught


def test_reads_may_be_short(many, monkeypatch):
    path, made = many
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, parts, offset: read(fd, [parts[0][: 1 + len(parts[0]) // 3]], offset))
    loaded = md.load(path, dtype="float64")
    for name, array in loaded.items():
        assert np.array_equal(np.asarray(array), made[name]), name


@pytest.mark.needs_softmetal
def test_a_device_without_the_memory_says_so(many, nothing_left, settings):
    md.empty_cache()
    settings(memory_limit=3 << 20)
    with pytest.raises(MemoryError):
        md.load(many[0])


@pytest.mark.needs_softmetal
def test_a_copy_of_the_gpu_that_fails_is_said_at_once(many, nothing_left, settings):
    md.zeros(4, storage="private")
    settings(fail="commit@3=PageFault")
    with pytest.raises(md.MetalError, match=r"PageFault|page fault"):
        md.load(many[0], storage="private")


@pytest.mark.parametrize(
    ("keywords", "kind", "words"),
    [
        ({"dtype": "int8"}, ValueError, r"dtype \(int8\) is not a floating type of whole bytes"),
        ({"dtype": "float4_e2m1fn"}, ValueError, "of whole bytes"),
        ({"dtype": "float32x4"}, ValueError, "of whole bytes"),
        ({"progress": "yes"}, TypeError, r"progress \('yes'\) must be True, None or a callable"),
        ({"only": 5}, TypeError, r"only \(5\) must be a name or several"),
        ({"only": [b"a"]}, TypeError, "which is no name"),
        ({"only": "nothing.*"}, KeyError, "has no tensor 'nothing"),
        ({"storage": "paged"}, ValueError, "paged"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(many, nothing_left, keywords, kind, words):
    with pytest.raises(kind, match=words):
        md.load(many[0], **keywords)


# ---- files of others: the table at the end of docs/loading.md ----


def mapped(path, dtype, offset, shape):
    return md.asarray(np.memmap(path, dtype, mode="c", offset=offset, shape=shape), copy=False)


def test_a_contiguous_dataset_of_hdf5_is_where_its_offset_says(tmp_path):
    h5py = pytest.importorskip("h5py")
    made = np.arange(12, dtype="f4").reshape(3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["whole"] = made
        file.create_dataset("parts", data=made, chunks=(1, 4))
        file.flush()
        dataset = file["whole"]
        array = mapped(tmp_path / "a.h5", dataset.dtype, dataset.id.get_offset(), dataset.shape)
        assert array.tolist() == made.tolist()
        assert file["parts"].id.get_offset() is None


def test_an_initialiser_of_onnx_is_where_its_external_data_says(tmp_path):
    onnx = pytest.importorskip("onnx")
    made = {name: np.arange(2048, dtype="f4").reshape(2, -1) + i for i, name in enumerate("ab")}
    held = [onnx.numpy_helper.from_array(array, name) for name, array in made.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], initializer=held))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    for tensor in onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        array = mapped(tmp_path / place["location"], "f4", int(place["offset"]), tuple(tensor.dims))
        assert array.tolist() == made[tensor.name].tolist()
        assert array.nbytes == int(place["length"])


# ---- Ctrl-C, threads ----


INTERRUPTED = """
import gc, os, random, signal, sys, time
import metal_dlpack as md
from metal_dlpack.files import reading

reading.PART = 1 << 14
path, storage = sys.argv[1:3]
gc.disable()
random.seed(storage)
allowed = heard = 0

def hear(_, frame):  # Ctrl-C, once or twice, within load()
    global allowed
    if allowed > 0 and frame.f_code.co_filename != "<string>":
        allowed -= 1
        raise KeyboardInterrupt

def left():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")), md.memory_stats()["live_buffers"]

signal.signal(signal.SIGALRM, hear)
md.load(path, storage=storage)
duration = 1.0
time.sleep(0.1)
before = left()
while heard < 60:
    start = time.perf_counter()
    try:
        allowed = random.choice([1, 2])
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, duration), 1e-4)
        loaded = md.load(path, storage=storage)
        allowed = 0
        duration = time.perf_counter() - start  # it came too late
    except KeyboardInterrupt:
        heard += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    loaded = None
    until = time.monotonic() + 20
    while left() != before and time.monotonic() < until:  # a thread's last steps are the system's
        time.sleep(0.001)
    if left() != before:
        sys.exit(f"{heard}: {before}, {left()}")
"""


@ON_LINUX
@pytest.mark.parametrize(("suffix", "storage"), [(".safetensors", "shared"), (".npz", "private")])
@pytest.mark.some(1)
def test_ctrl_c_at_any_moment_leaves_nothing(many, suffix, storage):
    path = many[0].with_suffix(suffix)
    BY_SUFFIX[suffix](path, many[1])
    done = run_child(INTERRUPTED, path, storage, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_dropped_file_is_closed_by_no_step_of_pythons_where_ctrl_c_could_come():
    steps, sources = [], [Source(__file__)]
    sys.setprofile(lambda frame, event, _: steps.append((event, frame.f_code.co_name)))
    sources.clear()
    sys.setprofile(None)
    assert [event for event, _ in steps] == ["c_call", "c_return", "c_call"], steps  # clear(), setprofile()


def test_threads_load_at_once(many, nothing_left):
    path, made = many
    with ThreadPoolExecutor(4) as pool:
        for loaded in pool.map(lambda _: md.load(path), range(8)):
            assert all(np.array_equal(np.asarray(array), made[name]) for name, array in loaded.items())
        del loaded


@pytest.mark.parametrize("most", [0, 2])
def test_without_memory_for_its_threads_a_file_is_read_by_those_there_are(many, nothing_left, monkeypatch, most):
    path, made = many
    left, start = [None] * most, reading.start_new_thread
    monkeypatch.setattr(reading, "PART", 1 << 14)

    def start_some(*what):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        return start(*what)

    monkeypatch.setattr(reading, "start_new_thread", start_some)
    loaded = md.load(path)
    assert left == [] and all(np.array_equal(np.asarray(array), made[name]) for name, array in loaded.items())
    del loaded
