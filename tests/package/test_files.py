"""open(): the tensors of .npy, .npz, .safetensors and .gguf files as Arrays over one memory map."""

import gc
import mmap
import os
import re
import struct
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import file_cases as cases
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from children import output_of, run_child
from file_cases import bytes_of, entry, gguf_bytes, safetensors_bytes
from machine import SANITIZER, tries
from places import DOCS, ROOT

import metal_dlpack as md
from metal_dlpack.files import memory, single_file
from metal_dlpack.opening import FileFormatError

SUFFIXES = list(cases.WRITERS)
GIB = 1 << 30
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells")


@pytest.fixture(params=SUFFIXES)
def model(request, tmp_path):
    """A sound file of each format."""
    return cases.WRITERS[request.param](tmp_path / f"model{request.param}")


@pytest.fixture
def big(tmp_path):
    """A file that is mapped."""
    return cases.write_safetensors(tmp_path / "big.safetensors", scale=100)


def reference(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Type, shape and bytes of each tensor, as the format's own package reads them."""
    if path.suffix == ".npy":
        array = np.load(path)
        return {"arr_0": (array.dtype.str, array.shape, array.tobytes())}
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return {name: (a.dtype.str, a.shape, a.tobytes()) for name, a in archive.items()}
    if path.suffix == ".safetensors":
        return judged_by_package(path)
    from gguf import GGUFReader

    reader = GGUFReader(path)
    found = {}
    for tensor in reader.tensors:
        shape = tuple(map(int, reversed(tensor.shape))) if tensor.tensor_type.name == "BF16" else tensor.data.shape
        found[tensor.name] = (tensor.tensor_type.name, shape, tensor.data.tobytes())
    return found


# ---- what is in a file ----


def test_every_format_has_a_writer_here_and_is_named_where_it_should_be():
    guide, security = (DOCS / "files.md").read_text(), (ROOT / "SECURITY.md").read_text()
    assert set(SUFFIXES) == set(single_file.FORMATS)
    for suffix in single_file.FORMATS:
        assert f"| `{suffix}`" in guide and f"`{suffix}`" in security and f"``{suffix}``" in md.open.__doc__, suffix


def test_every_tensor_is_what_the_format_s_own_package_reads(model, live_buffers):
    wanted = reference(model)
    with md.open(model) as file:
        assert sorted(file) == sorted(wanted)
        for name, array in file.items():
            info = file.info(name)
            assert (info.type, array.shape, bytes_of(array)) == wanted[name], name
            assert bytes_of(array.copy(storage="private")) == wanted[name][2], name
            assert (info.dtype, info.shape, info.nbytes) == (array.dtype, array.shape, array.nbytes)


def test_metadata_is_what_the_header_says(tmp_path):
    assert md.open(cases.write_safetensors(tmp_path / "s.safetensors")).metadata == {"made": "here"}
    assert dict(md.open(cases.write_npy(tmp_path / "s.npy")).metadata) == {}
    with md.open(cases.write_gguf(tmp_path / "s.gguf")) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.context_length"] == 2048
        assert file.metadata["tokenizer.ggml.tokens"][:4] == ["<s>", "</s>", "été", "t0"]
        assert file.metadata["tokenizer.ggml.scores"] == [0.5] * 43
        with pytest.raises(TypeError):
            file.metadata["x"] = 1
    with pytest.raises(ValueError, match="was closed"):
        file.metadata["general.architecture"]


def test_numpy_s_other_arrays(tmp_path):
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    made = {
        "f": fortran,
        "zero": np.zeros((0, 3)),
        "scalar": np.float32(2.5),
        "times": np.array(["2020-01-01", "2021-01-01"], "M8[D]"),
        "text": np.array(["ab", "c"]),
        "struct": np.zeros(2, [("x", "i4"), ("y", "f8")]),
    }
    np.savez(tmp_path / "a.npz", **made)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("readme.txt", b"no array")
    with md.open(tmp_path / "a.npz") as file:
        assert file["f"].tolist() == fortran.tolist()
        assert file.info("f").order == "F"
        assert (file["zero"].shape, file["scalar"].item()) == ((0, 3), 2.5)
        assert (file["times"].shape, file.info("times").type) == ((2, 8), "<M8[D]")
        assert file["times"].copy().view("int64").tolist() == made["times"].astype("i8").reshape(2, 1).tolist()
        assert (file.info("text").type, bytes_of(file["text"])) == ("<U2", made["text"].tobytes())
        assert bytes_of(file["struct"]) == made["struct"].tobytes()
        assert "x" in file.info("struct").type
        assert bytes_of(file["readme.txt"]) == b"no array"


@pytest.mark.needs_ml_dtypes
def test_types_of_ml_dtypes_are_nameless_in_an_npy_file(tmp_path):
    import ml_dtypes

    numbers = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    np.save(tmp_path / "b.npy", numbers)
    array = md.open(tmp_path / "b.npy")["arr_0"]
    assert array.shape == (1, 2, 2)
    assert np.asarray(array.view("bfloat16")).reshape(1, 2).tolist() == numbers.tolist()


# ---- how it is opened ----


@pytest.mark.needs_no_sanitizer
def test_of_a_ten_gib_file_the_header_is_read_and_it_takes_no_memory(tmp_path, live_buffers, monkeypatch):
    path = cases.write_sparse_safetensors(tmp_path / "large.safetensors", 10, GIB)
    with md.open(path) as file:  # what is made once is there from now on
        list(file.values())
    read = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(n) or real(fd, n, at))
    before = cases.resident_nbytes()
    with md.open(path) as file:
        arrays = list(file.values())
    assert sum(read) < 2000
    assert [a.nbytes for a in arrays] == [GIB] * 10
    assert arrays[9][GIB - 1].item() == 0
    assert cases.resident_nbytes() - before < 4 << 20


@ON_LINUX
def test_a_tensor_is_loaded_by_the_page_when_it_is_touched(tmp_path):
    path = cases.write_sparse_safetensors(tmp_path / "a.safetensors", 2, 64 << 20)
    with md.open(path) as file:
        array = file["t1"]
        before = cases.resident_nbytes()
        for i in range(16):
            array[i * (1 << 20)].item()
        after = cases.resident_nbytes()
        assert 0 < after - before < 8 << 20  # the kernel brings some neighbours along
        np.asarray(array).max()
        assert cases.resident_nbytes() - before > 48 << 20


def test_all_tensors_lie_in_one_buffer_over_the_map(big, live_buffers):
    with md.open(big) as file:
        assert file.is_mapped
        arrays = list(file.values())
        assert len({a.buffer.handle for a in arrays}) == 1
        assert live_buffers() == 1
        for array, name in zip(arrays, file, strict=True):
            assert array.byte_offset == file.info(name).offset
            assert array.storage == "shared"
            assert array.readonly
        assert file["layer.I8"].buffer is arrays[0].buffer


def test_a_small_file_is_read_and_a_large_one_mapped(tmp_path):
    for nbytes in (memory.READ_BELOW - 200, memory.READ_BELOW + 1):
        path = cases.write_sparse_safetensors(tmp_path / "a.safetensors", 1, nbytes)
        with md.open(path) as file:
            assert file.is_mapped == (path.stat().st_size >= memory.READ_BELOW)
            assert file["t0"].shape == (nbytes,)
            assert file["t0"].readonly
        with md.open(path, mode="r+") as file:
            assert file.is_mapped


def test_without_a_known_suffix_the_first_bytes_decide(model):
    kind = model.suffix[1:]
    plain = model.rename(model.with_suffix(""))
    with md.open(plain) as file:
        assert file.format == kind
        assert len(file) > 0


# ---- who shares ----


def test_torch_mlx_and_numpy_share_a_tensor_at_once(big, live_buffers, torch, mx):
    with md.open(big, mode="c") as file:
        array = file["layer.F32"]
        mps = torch.from_dlpack(array)
        cpu = torch.from_dlpack(array.host)
        seen = np.asarray(array)
        assert mps.untyped_storage().data_ptr() == array.buffer.handle
        assert cpu.data_ptr() == seen.__array_interface__["data"][0] == array.buffer.address + array.byte_offset
        array[0, 0] = 77
        assert (cpu[0, 0], seen[0, 0], mx.array(seen)[0, 0].item()) == (77, 77, 77)
        if md.default_device().is_software:
            assert mx.array(np.from_dlpack(array.host)).tolist() == seen.tolist()
        else:
            assert mx.from_dlpack(array).tolist() == seen.tolist()
    del array, mps, cpu, seen
    with md.open(big) as file:
        array = file["layer.F32"]
        assert torch.from_dlpack(array).untyped_storage().data_ptr() == array.buffer.handle
    del array


# ---- modes ----


def test_writes_go_where_the_mode_says(big):
    before = big.read_bytes()
    with md.open(big) as file, pytest.raises(ValueError, match="read-only"):
        file["layer.I8"][0, 0] = 9
    with md.open(big, mode="c") as file:
        file["layer.I8"][0, 0] = 9
        assert file["layer.I8"][0, 0].item() == 9
    assert big.read_bytes() == before
    with md.open(big, mode="r+") as file:
        file["layer.I8"][0, 0] = 9
        place = file.info("layer.I8").offset
    assert big.read_bytes() == before[:place] + b"\x09" + before[place + 1 :]
    with pytest.raises(ValueError, match=r"mode \('w'\) must be 'r', 'c' or 'r\+'"):
        md.open(big, mode="w")


# ---- places that do not fit ----


@pytest.mark.parametrize("read_below", [0, 1 << 20], ids=["mapped", "read"])
def test_a_tensor_off_its_alignment_is_copied_once(tmp_path, monkeypatch, read_below, live_buffers):
    """And so it cannot be written to the file."""
    monkeypatch.setattr(memory.Memory.__init__, "__defaults__", (read_below,))
    path = tmp_path / "odd.safetensors"  # a float32 tensor behind one byte
    header = {"a": entry("U8", (1,), (0, 1)), "b": entry("F32", (3,), (1, 13))}
    path.write_bytes(safetensors_bytes(header, b"\x07" + np.array([1, 2, 3], "f4").tobytes()))
    with md.open(path) as file:
        array = file["b"]
        assert file.info("b").offset % 4 != 0
        assert array.tolist() == [1.0, 2.0, 3.0]
        assert array.readonly
        assert file["b"] is array
        assert file["a"].buffer is not array.buffer
    with md.open(path, mode="c") as file:
        file["b"][1] = 8
        assert not file["b"].readonly
    with md.open(path, mode="r+") as file:
        with pytest.raises(md.CopyRequiredError, match=r"tensor 'b' begins at byte .* requires a multiple of 4"):
            file["b"]
        file["a"][0] = 1


def test_members_of_an_npz_file_are_read_wherever_they_lie(tmp_path, live_buffers):
    """The name's length moves the data: some fall on their alignment, some do not."""
    made = {"n" * i: np.arange(5000 + i, dtype="f8") for i in range(1, 12)}
    np.savez(tmp_path / "a.npz", **made)
    with md.open(tmp_path / "a.npz") as file:
        arrays = dict(file)
        shared = {name for name, a in arrays.items() if a.byte_offset == file.info(name).offset}
        assert {file.info(name).offset % 8 == 0 for name in shared} == {True}
        assert 0 < len(shared) < len(made)
        for name, array in arrays.items():
            assert np.array_equal(np.asarray(array), made[name])
    del arrays, array


LONGER_THAN_A_BUFFER = """
import sys
import metal_dlpack as md

assert md.default_device().max_buffer_length == 262144
arrays = list(md.open(sys.argv[1]).values())
print(len({a.buffer.handle for a in arrays}), max(a.buffer.size for a in arrays), [a[0].item() for a in arrays])
file = md.open(sys.argv[2])
print(bytes(memoryview(file["b"])), list(md.load(sys.argv[2], only="b")))
alive = md.memory_stats()["live_buffers"]
for ask in (lambda: file["big"], lambda: md.load(sys.argv[2])):
    try:
        ask()
    except MemoryError as error:
        print(error, md.memory_stats()["live_buffers"] - alive)
"""


@pytest.mark.needs_softmetal
@pytest.mark.needs_no_sanitizer
def test_a_file_above_max_buffer_length_spans_several_buffers_and_a_tensor_above_it_is_refused_by_load_too(tmp_path):
    several = cases.write_sparse_safetensors(tmp_path / "several.safetensors", 10, 100_000)
    with open(several, "r+b") as stream:
        stream.seek(-500_000, os.SEEK_END)
        stream.write(b"\x05")
    large = tmp_path / "large.safetensors"
    header = {"big": entry("U8", (300_000,), (0, 300_000)), "b": entry("U8", (4,), (300_000, 300_004))}
    large.write_bytes(safetensors_bytes(header, bytes(300_000) + b"abcd"))
    said = output_of(LONGER_THAN_A_BUFFER, several, large, SOFTMETAL_MAX_BUFFER_LENGTH="262144")
    spans, others, *refusals = said.splitlines()
    assert re.fullmatch(r"5 2\d{5} \[0, 0, 0, 0, 0, 5, 0, 0, 0, 0\]", spans)
    assert others == "b'abcd' ['b']"
    assert len(refusals) == 2
    for refusal in refusals:
        assert re.search(r"'big' has 300000 bytes, and the device's max_buffer_length is 262144.* 0$", refusal)


@hypothesis.given(
    st.lists(st.integers(1, 5 * mmap.PAGESIZE), max_size=40),
    st.integers(1, 8),
)
def test_spans_hold_every_tensor_that_fits_and_are_few(sizes, pages):
    limit = pages * mmap.PAGESIZE
    ends = np.cumsum([0, *sizes]).tolist()
    extents = list(pairwise(ends))
    spans = memory.plan_spans(extents, limit)
    assert all(start % mmap.PAGESIZE == 0 and end - start <= limit for start, end in spans)
    for first, end in extents:
        fits = end - first // mmap.PAGESIZE * mmap.PAGESIZE <= limit
        assert any(s <= first and end <= e for s, e in spans) == fits
    for (start, _), (_, next_end) in pairwise(spans):
        assert next_end - start > limit  # two that fit in one would be one


@pytest.mark.needs_softmetal
def test_where_metal_takes_no_map_each_tensor_is_copied(big, live_buffers, settings):
    wanted = reference(big)
    with md.open(big) as file:
        settings(fail="buffer@1")
        arrays = dict(file)
        settings(fail=None)
        for name, array in arrays.items():
            assert bytes_of(array) == wanted[name][2]
            assert array.readonly
    del arrays, array


# ---- threads ----


@pytest.mark.parametrize("read_below", [0, 1 << 30], ids=["mapped", "read"])
def test_threads_ask_for_the_first_tensor_at_once(tmp_path, monkeypatch, read_below, live_buffers):
    """All of them get the one buffer."""
    monkeypatch.setattr(memory.Memory.__init__, "__defaults__", (read_below,))
    path = cases.write_safetensors(tmp_path / "a.safetensors", scale=20)
    wanted = reference(path)
    for _ in range(20):
        start = threading.Barrier(6)
        with md.open(path) as file, ThreadPoolExecutor(6) as pool:

            def take(name, file=file, start=start):
                start.wait()
                array = file[name]
                return name, array.buffer.handle, bytes_of(array)

            found = list(pool.map(take, list(file)[:6]))
        assert len({handle for _, handle, _ in found}) == 1
        for name, _, data in found:
            assert data == wanted[name][2]


@ON_LINUX
def test_a_thousand_files_leave_nothing_behind(big):
    def trip():
        with md.open(big) as file:
            for array in file.values():
                array.reshape(-1)

    def round_of(trips):
        for _ in range(trips):
            trip()
        return cases.resident_nbytes()

    def left():
        return len(os.listdir("/proc/self/fd")), maps_of(big)

    sizes = [round_of(50)]
    before = left()
    sizes += [round_of(160) for _ in range(6)]
    assert left() == before == (before[0], 0)
    if not SANITIZER:  # AddressSanitizer keeps what was freed for a while, ThreadSanitizer its notes of each address
        # A leak grows in every round.  softmetal's validation keeps the last 4,096 dead objects: it grows in the first.
        assert min(after - earlier for earlier, after in pairwise(sizes)) < 160 << 10, sizes


# ---- how long it lives ----


def maps_of(path) -> int:
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines())


@ON_LINUX
def test_the_map_lives_as_long_as_an_array_over_it(big, live_buffers):
    file = md.open(big)
    assert maps_of(big) == 0
    array = file["layer.F32"]
    view = array[1:]
    assert maps_of(big) == 1
    file.close()
    file.close()
    with pytest.raises(ValueError, match="was closed"):
        file["layer.F32"]
    with pytest.raises(ValueError, match="was closed"):
        file.info("layer.F32")
    del array
    assert view.tolist() == view.copy().tolist()
    assert maps_of(big) == 1
    export = view.__dlpack__(max_version=(1, 0))
    del view
    gc.collect()
    assert maps_of(big) == 1
    del export
    gc.collect()
    assert maps_of(big) == 0


@ON_LINUX
def test_a_dropped_file_leaves_no_descriptor(big, recwarn):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        md.open(big)["layer.I8"].tolist()
        with pytest.raises(FileFormatError):
            md.open(__file__)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not list(recwarn)


@ON_LINUX
@pytest.mark.needs_no_sanitizer
def test_a_file_that_is_truncated_while_mapped_ends_the_process(big):
    """As docs/files.md says: every memory map does."""
    code = f"""
import os, metal_dlpack as md
array = md.open({str(big)!r})['layer.C64']
array.tolist()
os.truncate({str(big)!r}, 4096)
print('truncated', flush=True)
bytes(memoryview(array.buffer))
"""
    done = run_child(code)
    assert done.stdout == "truncated\n", done.stderr
    assert done.returncode == -7  # SIGBUS


def test_a_file_that_shrinks_before_it_is_touched_is_refused(model):
    file = md.open(model)
    name = list(file)[-1]
    os.truncate(model, model.stat().st_size - 1)
    with pytest.raises(FileFormatError, match=r"bytes now and had|follows at|not a zip|passes|pass the end"):
        file[name]


# ---- files that are not what they should be ----

GGUF_TENSOR = (b"t", (8,), 0, 0)


def tensors(nbytes, **entries):
    """A .safetensors file with so many bytes of data."""
    return safetensors_bytes(entries, bytes(nbytes))


def npy_bytes(descr, shape):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode()
    return (b"\x93NUMPY\x01\x00v\x00" + header).ljust(127) + b"\n"


BAD = {
    "empty.npy": (b"", "cannot read its header"),
    "text.npy": (b"hello world, this is no array", "cannot read its header"),
    "version.npy": (b"\x93NUMPY\x09\x00" + bytes(100), "version"),
    "short.npy": (npy_bytes("<f4", "(9,)"), r"36 bytes from byte 128"),
    "negative.npy": (npy_bytes("<f4", "(-9,)"), "whole numbers"),
    "huge.npy": (npy_bytes("<f4", "(0, 10**30)"), r"cannot read|2\*\*63 bytes"),
    "wide.npy": (npy_bytes("<f4", "(0, 999999999999999999999)"), r"2\*\*63 bytes"),
    "objects.npy": (npy_bytes("|O", "(9,)"), "pickled Python objects"),
    "swapped.npy": (npy_bytes(">f4", "()") + b"1234", "byte order.*newbyteorder"),
    "empty.npz": (b"", "zip archive"),
    "cut.npz": (b"PK\x03\x04" + bytes(60), "zip archive"),
    "empty.safetensors": (b"", "it has 0 bytes"),
    "long.safetensors": (safetensors_bytes({}, length=10**9), "1000000000 bytes, more than"),
    "cut.safetensors": (safetensors_bytes({}, length=50), "50 bytes, but only 2 follow"),
    "list.safetensors": (safetensors_bytes([]), "JSON list"),
    "json.safetensors": (safetensors_bytes(b"{'a'}"), "not valid JSON"),
    "nan.safetensors": (safetensors_bytes(b'{"a": NaN}'), "NaN"),
    "deep.safetensors": (safetensors_bytes(b'{"a": ' + b"[" * 200_000), "not valid JSON"),
    "digits.safetensors": (safetensors_bytes(b'{"a": ' + b"9" * 9000 + b"}"), "not valid JSON.*4300 digits"),
    "latin.safetensors": (safetensors_bytes(b'{"\xe9": 1}'), "utf-8"),
    "surrogate.safetensors": (safetensors_bytes(rb'{"\ud800": 1}'), "not valid JSON"),
    "twice.safetensors": (safetensors_bytes(b'{"a": 1, "a": 2}'), "'a' occurs twice"),
    "metadata.safetensors": (safetensors_bytes({"__metadata__": {"a": 1}}), "__metadata__"),
    "entry.safetensors": (tensors(0, a={"dtype": "F32"}), "tensor 'a': its entry lacks"),
    "dtype.safetensors": (tensors(8, a=entry("F3")), "'F3'.*is none of"),
    "shape.safetensors": (tensors(8, a=entry(shape=(2.0,))), "whole numbers"),
    "bool.safetensors": (tensors(8, a=entry(shape=(True, 2))), "whole numbers"),
    "negative.safetensors": (tensors(8, a=entry(shape=(-2,))), "negative"),
    "lying.safetensors": (tensors(12, a=entry(shape=(3,))), r"hold 8 bytes, and F32 of shape \(3,\) has 12"),
    "end.safetensors": (tensors(8, a=entry(shape=(3,), offsets=(0, 12))), "pass the end of the file"),
    "order.safetensors": (tensors(8, a=entry(offsets=(8, 0))), "first byte and an end"),
    "overlap.safetensors": (tensors(12, a=entry(), b=entry(offsets=(4, 12))), "tensor 'b'.*without overlaps"),
    "hole.safetensors": (tensors(24, a=entry(), b=entry(offsets=(16, 24))), "tensor 'b'.*holes"),
    "rest.safetensors": (tensors(9, a=entry()), "tensors end at byte"),
    "overflow.safetensors": (tensors(8, a=entry(shape=(2**40, 2**40))), r"2\*\*63 bytes"),
    "hidden.safetensors": (tensors(0, a=entry(shape=(0, 2**62, 4), offsets=(0, 0))), r"2\*\*63 bytes"),
    "dims.safetensors": (tensors(4, a=entry(shape=(1,) * 65, offsets=(0, 4))), "65 dimensions"),
    "half.safetensors": (tensors(2, a=entry("F4", (3,), (0, 2))), "whole bytes"),
    "name.safetensors": (tensors(8, **{"n" * 100_000: entry("F3")}), r"\(100000 characters\)"),
    "empty.gguf": (b"", "header needs 8 bytes"),
    "magic.gguf": (gguf_bytes(magic=b"GGML"), "begins with b'GGML'"),
    "version.gguf": (gguf_bytes(version=1), "version is 1"),
    "endian.gguf": (gguf_bytes(version=3 << 24), "big-endian"),
    "tensors.gguf": (gguf_bytes(counts=(2**60, 0)), "names 1152921504606846976 tensors"),
    "keys.gguf": (gguf_bytes(counts=(0, 2**60)), "names 1152921504606846976 keys"),
    "array.gguf": (gguf_bytes([(b"k", 9, struct.pack("<IQ", 4, 2**62))]), "array of key 'k'"),
    "texts.gguf": (gguf_bytes([(b"k", 9, struct.pack("<IQ", 8, 2**62))]), "texts in key 'k'"),
    "text.gguf": (
        gguf_bytes([(b"k", 9, struct.pack("<IQ", 8, 2) + cases.gguf_text(b"ab") + struct.pack("<Q", 2**63))]),
        "text of key 'k'",
    ),
    "nested.gguf": (gguf_bytes([(b"k", 9, struct.pack("<IQ", 9, 1))]), "array of arrays"),
    "type.gguf": (gguf_bytes([(b"k", 77, b"")]), "type 77"),
    "key.gguf": (gguf_bytes([(b"\xff", 0, b"\0")]), "not UTF-8"),
    "pair.gguf": (gguf_bytes([(b"k", 0, b"\0"), (b"k", 0, b"\0")]), "key 'k' occurs twice"),
    **{
        f"align_{value}_{letter}.gguf": (
            gguf_bytes([(b"general.alignment", kind, struct.pack(f"<{letter}", value))]),
            r"general.alignment.*is not a power of two",
        )
        for kind, letter, value in [
            (4, "I", 24),
            (4, "I", 0),
            (5, "i", -8),
            (5, "i", -1),
            (6, "f", 32.0),
            (7, "?", True),
        ]
    },
    "align_text.gguf": (
        gguf_bytes([(b"general.alignment", 8, cases.gguf_text(b"32"))]),
        r"\(32\) is not a power of two",
    ),
    "align_array.gguf": (
        gguf_bytes([(b"general.alignment", 9, struct.pack("<IQI", 4, 1, 32))]),
        r"\(an array\) is not a power of two",
    ),
    "ndim.gguf": (gguf_bytes([], [(b"t", (1,) * 5, 0, 0)], bytes(4)), "5 dimensions"),
    "ggml.gguf": (gguf_bytes([], [(b"t", (8,), 999, 0)], bytes(32)), r"type \(999\)"),
    "offset.gguf": (gguf_bytes([], [(b"t", (8,), 0, 4)], bytes(64)), "not a multiple of the alignment"),
    "far.gguf": (gguf_bytes([], [(b"t", (8,), 0, 2**40)], bytes(64)), "pass the end"),
    "size.gguf": (gguf_bytes([], [(b"t", (2**40, 2**40), 0, 0)], bytes(64)), r"2\*\*63 bytes"),
    "block.gguf": (gguf_bytes([], [(b"t", (33,), 2, 0)], bytes(64)), "rows have 33 items, and Q4_0"),
    "overlap.gguf": (gguf_bytes([], [GGUF_TENSOR, (b"u", (8,), 0, 0)], bytes(64)), "inside of tensor"),
    "twice.gguf": (gguf_bytes([], [GGUF_TENSOR, (b"t", (8,), 0, 32)], bytes(64)), "occurs twice"),
    "unknown.bin": (b"\x89PNG\r\n" + bytes(50), "none of .npy, .npz, .safetensors, .gguf"),
}


def test_what_is_wrong_is_said_with_the_path(tmp_path, subtests):
    for name, (data, words) in BAD.items():
        with subtests.test(name):
            path = tmp_path / name
            path.write_bytes(data)
            with pytest.raises(FileFormatError, match=words) as caught:
                md.open(path)
            assert str(caught.value).startswith(f"open: {path}: ")
            assert len(str(caught.value)) < 2000


GGUF = struct.Struct("<4sIQQ")
KEY = cases.gguf_text(b"k")
#: Beginnings of sparse files of 64 GiB that were sent as a few bytes: what the rest, zeros, would be read as.
SPARSE = {
    "tensors.gguf": (GGUF.pack(b"GGUF", 3, 10**9, 0), "occurs twice"),
    "keys.gguf": (GGUF.pack(b"GGUF", 3, 0, 10**9), "occurs twice"),
    "texts.gguf": (GGUF.pack(b"GGUF", 3, 0, 1) + KEY + struct.pack("<IIQ", 9, 8, 2**31), "2147483648 texts in key 'k'"),
    "items.gguf": (GGUF.pack(b"GGUF", 3, 0, 1) + KEY + struct.pack("<IIQ", 9, 0, 2**35), "34359738368 items in key"),
    "text.gguf": (GGUF.pack(b"GGUF", 3, 0, 1) + KEY + struct.pack("<IQ", 8, 2**35), "34359738368 bytes in key"),
    "key.gguf": (GGUF.pack(b"GGUF", 3, 0, 1) + struct.pack("<Q", 2**35), "34359738368 bytes in a key"),
    "name.gguf": (GGUF.pack(b"GGUF", 3, 1, 0) + struct.pack("<Q", 2**35), "34359738368 bytes in the name of a tensor"),
    "directory.npz": (b"PK\x03\x04", "would have 34359738368 bytes, more than 100000000"),
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_hole_of_any_length_is_refused_before_it_is_read(tmp_path, name):
    path, total = tmp_path / name, 64 << 30
    path.write_bytes(SPARSE[name][0])
    os.truncate(path, total)
    if name.endswith(".npz"):  # the end of an archive whose directory is 32 GiB long
        locator = struct.pack(
            "<4sLQL4s4H2LH", b"PK\6\7", 0, total, 1, b"PK\5\6", 0, 0, *[2**16 - 1] * 2, *[2**32 - 1] * 2, 0
        )
        with path.open("ab") as file:
            file.write(struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, 2**35, total - 2**35) + locator)
    start = time.monotonic()
    with pytest.raises(FileFormatError, match=SPARSE[name][1]):
        md.open(path)
    assert time.monotonic() - start < 120


def test_members_that_cannot_be_mapped_say_why_and_the_others_are_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, good=np.arange(3), objects=np.array([None, "x"], dtype=object))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("packed.npy", bytes(1000))
    with md.open(path) as file:
        assert file["good"].tolist() == [0, 1, 2]
        with pytest.raises(FileFormatError, match=r"tensor 'packed': it is compressed.*np.savez"):
            file["packed"]
        with pytest.raises(FileFormatError, match="tensor 'objects': its items are pickled"):
            file["objects"]


def test_a_directory_that_lies_is_refused(tmp_path):
    path = cases.write_npz(tmp_path / "a.npz")
    sound = bytearray(path.read_bytes())
    directory = sound.rfind(b"PK\x05\x06")
    entries = [m.start() for m in re.finditer(rb"PK\x01\x02", sound)]
    assert len(entries) > 3

    def changed(at, layout, value):
        data = bytearray(sound)
        struct.pack_into(layout, data, at, value)
        path.write_bytes(data)
        with pytest.raises(FileFormatError) as caught:
            with md.open(path) as file:
                [bytes_of(array) for array in file.values()]
        return str(caught.value)

    assert "no member begins" in changed(0, "<I", 0)
    changed(entries[1] + 42, "<I", 7)  # the place of a member
    changed(entries[1] + 20, "<I", 10**6)  # its size
    changed(entries[1] + 42, "<I", struct.unpack_from("<I", sound, entries[2] + 42)[0])  # two at one place
    changed(26, "<H", 60_000)  # the length of its name
    assert directory > 0


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        md.open(tmp_path / "nothing.npy")
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(FileFormatError, match="not a regular file"):
        md.open(tmp_path / "pipe.npy")
    with pytest.raises(TypeError):
        md.open(3.5)


def test_the_mapping_s_other_manners(model):
    with md.open(model) as file:
        assert len(file) == len(list(file)) == len(file.keys())
        assert f"{len(file)} tensors, mode='r'" in repr(file)
        assert (file.mode, file.is_closed, file.format) == ("r", False, model.suffix[1:])
        with md.open(model) as other:
            assert file == file
            assert file != other
            assert {file: 1}[file] == 1
    assert file.is_closed
    assert "closed" in repr(file)


# ---- what is written about it ----


def test_the_sentence_in_the_documentation_is_what_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.safetensors").write_bytes(BAD["overlap.safetensors"][0])
    with pytest.raises(FileFormatError) as caught:
        md.open("model.safetensors")
    text = " ".join((DOCS / "files.md").read_text().split())
    assert str(caught.value) in text


# ---- headers made by chance ----


def looked_at(path):
    """Each tensor, its bytes too; or why not."""
    try:
        with md.open(path) as file:
            return {name: (file.info(name).type, array.shape, bytes_of(array)) for name, array in file.items()}
    except FileFormatError as error:
        assert str(error).startswith("open: "), error
        return None


def judged_by_package(path):
    from safetensors import SafetensorError, deserialize

    try:
        return {n: (t["dtype"], tuple(t["shape"]), bytes(t["data"])) for n, t in deserialize(path.read_bytes())}
    except SafetensorError:
        return None


T = '"dtype":"F32","shape":[1],"data_offsets":[0,4]'
EMPTY = '"dtype":"F32","data_offsets":[0,0]'
ALIKE = {
    "a negative number where nobody reads": f'{{"t":{{{T},"x":-3}}}}',
    "a negative extent": '{"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
    "-0": f'{{"t":{{{EMPTY},"shape":[-0]}}}}',
    "an integer past 64 bits where nobody reads": f'{{"t":{{{T},"x":{"9" * 21}}}}}',
    "an extent past 64 bits": '{"t":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}}',
    "an extent past 64 bits, and none": f'{{"t":{{{EMPTY},"shape":[0,99999999999999999999999]}}}}',
    "an offset past 64 bits": '{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}}',
    "a negative extent, with a dash in the name": '{"t-1":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
    "a float past all floats": f'{{"t":{{{T},"x":1e999}}}}',
    "half a pair in the metadata": f'{{"__metadata__":{{"a":"\\ud800"}},"t":{{{T}}}}}',
    "half a pair as its name": f'{{"__metadata__":{{"\\udc00":"a"}},"t":{{{T}}}}}',
    "half a pair where nobody reads": f'{{"t":{{{T},"x":["\\ud800"]}}}}',
    "half a pair, deeper": f'{{"t":{{{T},"x":{{"\\ud800":1}}}}}}',
    "a whole pair": f'{{"\\ud83d\\ude00":{{{T}}}}}',
    "backslashes": f'{{"\\\\ud800":{{{T}}}}}',
    "a null character": f'{{"a\\u0000b":{{{T}}}}}',
    "no name": f'{{"":{{{T}}}}}',
    "space": f' \n{{"t":{{{T}}}}}\t\r\n ',
    "a zero byte behind": f'{{"t":{{{T}}}}}\0',
    "a tab in a name": f'{{"t\t":{{{T}}}}}',
    "a zero before a digit": '{"t":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}',
    "another script's digits": '{"t":{"dtype":"F32","shape":[\u0661],"data_offsets":[0,4]}}',
    "a field twice": f'{{"t":{{{T},"dtype":"F32"}}}}',
    "metadata twice": f'{{"__metadata__":{{}},"__metadata__":{{}},"t":{{{T}}}}}',
    "metadata of numbers": f'{{"__metadata__":{{"a":-1}},"t":{{{T}}}}}',
    "metadata of nothing": f'{{"__metadata__":null,"t":{{{T}}}}}',
    "lists in lists": f'{{"t":{{{T},"x":{"[" * 99 + "]" * 99}}}}}',
    "extents past 64 bits": f'{{"t":{{{EMPTY},"shape":[9223372036854775808,4,0]}}}}',
    "a byte order mark": f'\ufeff{{"t":{{{T}}}}}',
}
#: What docs/inside/files.md lists: only we refuse it.
STRICTER = {
    "a name twice": (f'{{"t":{{{T}}},"t":{{{T}}}}}', "occurs twice"),
    "a name twice where nobody reads": (f'{{"t":{{{T},"x":1,"x":2}}}}', "occurs twice"),
    "a key twice": (f'{{"__metadata__":{{"a":"1","a":"2"}},"t":{{{T}}}}}', "occurs twice"),
    "an entry as a list": ('{"t":["F32",[1],[0,4]]}', "lacks dtype"),
    "a dtype as an object": ('{"t":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}', "is none of"),
    "no items of too many": (f'{{"t":{{{EMPTY},"shape":[0,9223372036854775808]}}}}', r"2\*\*63 bytes or more"),
    "65 axes": (f'{{"t":{{"dtype":"F32","shape":[{",".join("1" * 65)}],"data_offsets":[0,4]}}}}', "more than 64"),
}


def write_header(path, text, nbytes=4):
    path.write_bytes(
        safetensors_bytes(text.encode("utf-8"), b"" if EMPTY in text else bytes(i % 251 for i in range(nbytes)))
    )
    return path


def test_a_header_is_judged_as_the_safetensors_package_does(tmp_path, subtests):
    for what, text in ALIKE.items():
        with subtests.test(what):
            path = write_header(tmp_path / "a.safetensors", text)
            assert looked_at(path) == judged_by_package(path)


def test_what_only_we_refuse(tmp_path, subtests):
    for what, (text, reason) in STRICTER.items():
        with subtests.test(what):
            path = write_header(tmp_path / "a.safetensors", text)
            assert judged_by_package(path) is not None
            with pytest.raises(FileFormatError, match=reason):
                md.open(path)


@pytest.mark.parametrize("value", ["[" * 200 + "]" * 200, "9" * 309], ids=["deep", "long"])
def test_what_only_we_take(tmp_path, value):
    path = write_header(tmp_path / "a.safetensors", f'{{"t":{{{T},"x":{value}}}}}')
    assert judged_by_package(path) is None
    assert looked_at(path) is not None


TWO = '"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F4","shape":[4],"data_offsets":[4,6]}'
SOUND_HEADERS = [
    f'{{"__metadata__": {{"a": "b"}}, "t": {{{T}, "x": [1.5, -2, null, true, "\\u00e9"]}}}}',
    f'{{{TWO},"v":{{"dtype":"U8","shape":[2,4],"data_offsets":[6,14]}}}}',
    f'{{"v":{{"dtype":"BF16","shape":[],"data_offsets":[14,16]}},"w":{{"dtype":"U8","shape":[8],"data_offsets":[6,14]}},{TWO}}}',
]
PIECES = [*'{}[],:" \n\t\\0148-.e+', "12", "1e9", "null", "true", "NaN", "\\u", "\\ud800", "\x0b", "\xa0", "é", "-0"]
PIECES += ['""', "[]", "{}", "F4", "U8"]


@pytest.mark.needs_no_sanitizer  # Python alone, and slow under it
@hypothesis.settings(max_examples=tries(500))
@hypothesis.given(
    text=st.sampled_from(SOUND_HEADERS),
    slips=st.lists(st.tuples(st.integers(0, 160), st.integers(0, 3), st.sampled_from(["", *PIECES])), max_size=2),
    numbers=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 14)), max_size=2),
    shift=st.sampled_from([0, 0, 1, -1, -2]),
    room=st.sampled_from([0, 0, 0, 1, -1]),
)
def test_any_slip_in_a_header_is_judged_as_the_safetensors_package_does(tmp_path, text, slips, numbers, shift, room):
    text = text.replace("[6,14]", f"[{6 + shift},{14 + shift}]")
    for which, number in numbers:
        found = list(re.finditer(r"\d+", text))
        place = found[which % len(found)].span()
        text = f"{text[: place[0]]}{number}{text[place[1] :]}"
    for place, length, piece in slips:
        text = text[:place] + piece + text[place + length :]
    ends = [int(end[:3]) for end in re.findall(r"data_offsets[^,]*,(\d+)", text)]
    path = write_header(tmp_path / "a.safetensors", text, max(max(ends, default=4) + room, 0))
    wanted, found = judged_by_package(path), looked_at(path)
    if wanted is not None and found is None:
        with pytest.raises(FileFormatError, match="|".join(reason for _, reason in STRICTER.values())):
            md.open(path)
    else:
        assert found == wanted


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    return {suffix: write(folder / f"a{suffix}").read_bytes() for suffix, write in cases.WRITERS.items()}


@pytest.mark.needs_no_sanitizer  # the same
@pytest.mark.filterwarnings("ignore:Reading `.npy`")
@pytest.mark.parametrize("suffix", SUFFIXES)
@hypothesis.settings(max_examples=80)
@hypothesis.given(data=st.data())
def test_a_file_with_some_bytes_changed_is_read_or_refused(tmp_path, sound, suffix, data):
    """No other exception, no crash, whatever the bytes say; load() reads what open() shows."""
    changed = bytearray(sound[suffix])
    places = st.one_of(st.integers(0, min(300, len(changed) - 1)), st.integers(0, len(changed) - 1))
    values = st.sampled_from([0, 1, 2, 9, 0x20, 0x27, 0x28, 0x2D, 0x5B, 0x7B, 0x7F, 0x80, 0xFF])
    for place, value in data.draw(st.lists(st.tuples(places, values), max_size=4)):
        changed[place] = value
    if data.draw(st.booleans()):
        del changed[data.draw(places) :]
    path = tmp_path / f"a{suffix}"
    path.write_bytes(changed)
    opened = looked_at(path)
    try:
        loaded = {name: bytes_of(array) for name, array in md.load(path).items()}
    except FileFormatError:
        loaded = None
    assert loaded == (None if opened is None else {name: held for name, (*_, held) in opened.items()})
