"""keep_resident(): what is wired, for how long, and what keeps it."""

import threading
import time
import weakref

import numpy as np
import pytest
from children import output_of
from eventually import until
from own_threads import in_threads

import metal_dlpack as md
from metal_dlpack import _core, residency

pytestmark = pytest.mark.needs_softmetal
MIB = 1 << 20


def wired():
    return _core._softmetal_resident_nbytes()


@pytest.fixture(autouse=True)
def nothing_stays_wired():
    before = wired()
    yield
    assert wired() == before


def test_memory_is_wired_until_the_block_ends_however_long_it_takes():
    a, before = md.zeros(MIB, "uint8"), wired()
    with md.keep_resident(a) as kept:
        assert (kept.nbytes, kept.is_supported, kept.is_closed) == (a.buffer.size, True, False)
        for _ in range(8):
            assert wired() == before + a.buffer.size
            time.sleep(0.2)
    assert wired() == before
    assert kept.is_closed
    assert str(kept) == f"<metal_dlpack.Residency of {a.buffer.size} bytes, closed>"


def test_without_the_second_request_it_lapses(monkeypatch):
    monkeypatch.setattr(residency, "INTERVAL", 1000)
    before = wired()
    with md.keep_resident(md.zeros(64)):
        assert wired() > before
        time.sleep(1.1)
        assert wired() == before


def test_what_is_dropped_is_closed_and_its_thread_ends(monkeypatch):
    monkeypatch.setattr(residency, "INTERVAL", 0.01)
    a, threads = md.zeros(MIB, "uint8"), threading.active_count()
    kept = md.keep_resident(a)
    buffer = weakref.ref(a.buffer)
    del a
    assert buffer() is None
    assert wired() >= MIB, "the set keeps the memory, not the Buffer"
    del kept
    until(lambda: threading.active_count() == threads)


def test_a_buffer_counts_once_and_lists_and_mappings_are_walked():
    a, b = md.zeros(100), md.zeros(MIB, "uint8", storage="private")
    with md.keep_resident(a, a[1:], a.buffer, {"a": a, "more": [b, (b.view("int8"),)]}) as kept:
        assert kept.nbytes == a.buffer.size + b.buffer.size


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_a_file_is_wired_whole_and_stays_so_when_it_is_closed(tmp_path, mode):
    np.save(tmp_path / "a.npy", np.arange(MIB, dtype="uint8"))
    before = wired()
    with md.open(tmp_path / "a.npy", mode) as file:
        kept = md.keep_resident(file)
        array = file["arr_0"]
    assert wired() - before >= kept.nbytes >= array.nbytes, "whole pages"
    kept.close()
    kept.close()
    assert int(array[5]) == 5


def test_all_shards_of_a_model_are_wired(tmp_path):
    from safetensors.numpy import save_file

    names = {}
    for shard in ("one", "two"):
        save_file({shard: np.zeros(MIB, "uint8")}, tmp_path / f"{shard}.safetensors")
        names[shard] = f"{shard}.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(f'{{"weight_map": {names}}}'.replace("'", '"'))
    with md.open(tmp_path) as model, md.keep_resident(model) as kept:
        assert kept.nbytes > 2 * MIB


def test_macos_14_has_none_and_a_file_there_is_not_mapped(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(MIB))
    code = """
import sys, threading, metal_dlpack as md
file = md.open(sys.argv[1])
kept = md.keep_resident(file, md.zeros(3))
print(kept, kept.is_supported, threading.active_count(), file.is_mapped)
with kept:
    pass
"""
    said = output_of(code, tmp_path / "a.npy", SOFTMETAL_DEVICES="paravirtual", SOFTMETAL_MACOS="14")
    size = 16 if "of 16 bytes" in said else 12
    assert said == f"<metal_dlpack.Residency of {size} bytes, not supported before macOS 15> False 1 False\n"


def test_memory_comes_back_in_a_process_whose_gpu_has_done_nothing_else():
    code = """
import metal_dlpack as md
from metal_dlpack import _core
md.keep_resident(md.zeros(1000)).close()
print(_core._softmetal_resident_nbytes())
"""
    assert output_of(code) == "0\n"


def test_a_program_that_ends_with_one_open_ends_well():
    code = "import metal_dlpack as md, time; kept = md.keep_resident(md.zeros(1000)); time.sleep(0.7)"
    assert output_of(code) == ""


def test_more_than_the_working_set_is_refused_with_both_numbers():
    code = """
import metal_dlpack as md
try:
    md.keep_resident(md.zeros(1 << 18), md.zeros(1 << 18))
except ValueError as error:
    print(error)
"""
    said = output_of(code, SOFTMETAL_MAX_BUFFER_LENGTH=str(MIB))
    assert said.startswith(f"keep_resident: {2 * MIB} bytes are more than the {MIB} of")


def test_memory_on_two_devices_is_refused():
    code = """
import metal_dlpack as md
try:
    md.keep_resident(md.zeros(3), md.zeros(3, device="metal:1"))
except ValueError as error:
    print(error)
"""
    assert "call it once for each device" in output_of(code, SOFTMETAL_DEVICES="unified,unified")


def test_a_closed_one_and_a_closed_buffer_say_so():
    kept = md.keep_resident(md.zeros(3))
    kept.close()
    with pytest.raises(ValueError, match="it was closed; call keep_resident again"), kept:
        pass
    buffer = md.Buffer(64)
    buffer.close()
    with pytest.raises(ValueError, match="closed"):
        md.keep_resident(buffer)


def test_where_metal_makes_no_set_it_is_said(settings):
    a = md.zeros(100)
    settings(fail="residency")
    with pytest.raises(MemoryError):
        md.keep_resident(a)


def test_requests_and_ends_from_many_threads_at_once(monkeypatch):
    monkeypatch.setattr(residency, "INTERVAL", 0.0005)
    arrays = [md.zeros(1000) for _ in range(4)]

    def work(_):
        for _ in range(50):
            kept = md.keep_resident(*arrays)
            in_threads(2, lambda _, kept=kept: kept.close())

    in_threads(4, work)
