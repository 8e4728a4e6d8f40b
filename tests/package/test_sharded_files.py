"""open() of a model in several .safetensors files, by its index or its folder: one mapping, shards opened when asked."""

import gc
import json
import os
import sys

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import metal_dlpack as md
from metal_dlpack.files import sharded_file
from metal_dlpack.opening import FileFormatError

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells")


def write_model(folder, extent=4, **changes):
    """Four tensors in two shards; the index's path.  `changes` go into the index."""
    tensors = {f"layer.{i}.weight": np.full((extent, 3), i, "f4") for i in range(4)}
    weight_map = {name: SHARDS[i % 2] for i, name in enumerate(tensors)}
    for shard in SHARDS:
        save_file({name: tensors[name] for name in tensors if weight_map[name] == shard}, folder / shard)
    index = {"metadata": {"total_size": 48 * extent}, "weight_map": weight_map, **changes}
    path = folder / INDEX
    path.write_text(json.dumps(index))
    return path


def opened_descriptors(folder):
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return [os.readlink(link) for link in links if os.path.exists(link) and str(folder) in os.readlink(link)]


# ---- one mapping ----


@pytest.mark.parametrize("extent", [4, 4000], ids=["read", "mapped"])
@pytest.mark.parametrize("spelling", [lambda path: path, lambda path: path.parent, lambda path: os.fsencode(path)])
def test_all_shards_are_one_mapping(tmp_path, live_buffers, extent, spelling):
    path = write_model(tmp_path, extent)
    wanted = {name: array for shard in SHARDS for name, array in load_file(tmp_path / shard).items()}
    with md.open(spelling(path), device=md.default_device()) as model:
        assert list(model) == [f"layer.{i}.weight" for i in range(4)]  # the order of the index
        assert (len(model), "layer.3.weight" in model, "layer.4.weight" in model) == (4, True, False)
        assert (model.path, model.format, model.mode) == (str(path), "safetensors", "r")
        assert dict(model.metadata) == {"total_size": 48 * extent}
        assert model.is_mapped == (extent == 4000)
        for name, array in model.items():
            assert array.readonly
            assert array.device == md.default_device()
            assert np.array_equal(np.asarray(array), wanted[name])
            assert model.info(name).shape == (extent, 3)
        handles = [model[name].buffer.handle for name in model]
        assert len(set(handles)) == 2  # a buffer a shard
        assert "4 tensors, mode='r'" in repr(model)
    del array


@ON_LINUX
def test_a_shard_is_opened_when_a_tensor_of_it_is_asked_for(tmp_path):
    model = md.open(write_model(tmp_path))
    assert opened_descriptors(tmp_path) == []
    model["layer.0.weight"], model["layer.2.weight"]
    assert opened_descriptors(tmp_path) == [str(tmp_path / SHARDS[0])]
    model.info("layer.1.weight")
    assert len(opened_descriptors(tmp_path)) == 2
    model.close()
    assert opened_descriptors(tmp_path) == []


def test_shards_are_found_from_another_working_folder(tmp_path, monkeypatch):
    write_model(tmp_path)
    monkeypatch.chdir(tmp_path)
    by_index, by_folder = md.open(INDEX), md.open(".")
    monkeypatch.chdir("/")
    for model in (by_index, by_folder):
        assert None not in model.shards.values()
        assert model["layer.3.weight"].shape == (4, 3)
    assert by_index.path == INDEX


def test_closing_lets_go_and_arrays_stay_good(tmp_path, live_buffers):
    model = md.open(write_model(tmp_path, 4000))
    array = model["layer.3.weight"]
    model.close()
    model.close()
    assert model.is_closed
    assert live_buffers() == 1
    for ask in (model.__getitem__, model.info):
        with pytest.raises(ValueError, match="was closed"):
            ask("layer.3.weight")
    with pytest.raises(ValueError, match="was closed"):
        _ = model.is_mapped
    assert list(model) == [f"layer.{i}.weight" for i in range(4)]
    assert array[3999, 2].item() == 3
    del array, model
    gc.collect()
    assert live_buffers() == 0


@pytest.mark.parametrize("extent", [4, 4000])
def test_modes_are_those_of_a_single_file(tmp_path, extent):
    path = write_model(tmp_path, extent)
    with md.open(path) as model, pytest.raises(ValueError, match="read-only"):
        model["layer.0.weight"][0, 0] = 9
    with md.open(path, mode="c") as model:
        model["layer.1.weight"][0, 0] = 9
        assert model["layer.1.weight"][0, 0].item() == 9
    assert load_file(tmp_path / SHARDS[1])["layer.1.weight"][0, 0] == 1
    with md.open(path, mode="r+") as model:
        model["layer.1.weight"][0, 0] = 9
    assert load_file(tmp_path / SHARDS[1])["layer.1.weight"][0, 0] == 9


# ---- shards that are not what the index says ----


def test_a_missing_shard_is_named_and_the_others_are_read(tmp_path):
    path = write_model(tmp_path, 4000)
    (tmp_path / SHARDS[1]).unlink()
    with md.open(path) as model:
        assert model["layer.0.weight"][0, 0].item() == 0
        with pytest.raises(FileNotFoundError, match=f"has tensors in '{SHARDS[1]}', which is not beside it") as caught:
            model["layer.1.weight"]
        assert caught.value.filename == str(tmp_path / SHARDS[1])
        with pytest.raises(FileNotFoundError):
            _ = model.is_mapped


def test_a_tensor_that_its_shard_lacks_is_told_with_both_files(tmp_path):
    path = write_model(tmp_path, weight_map={"layer.0.weight": SHARDS[1], "layer.1.weight": SHARDS[1]})
    with md.open(path) as model:
        assert model["layer.1.weight"][0, 0].item() == 1
        with pytest.raises(FileFormatError, match=r"tensor 'layer.0.weight': it is not in this file") as caught:
            model["layer.0.weight"]
        assert str(path) in str(caught.value)
        assert str(tmp_path / SHARDS[1]) in str(caught.value)


def test_a_tensor_that_no_shard_is_said_to_have_is_not_there(tmp_path):
    with md.open(write_model(tmp_path, weight_map={"layer.0.weight": SHARDS[0]})) as model:
        assert list(model) == ["layer.0.weight"]
        with pytest.raises(KeyError, match=r"has no tensor 'layer.2.weight'; did you mean 'layer.0.weight'\?"):
            model["layer.2.weight"]


OUTSIDE = ["../a.safetensors", "/etc/a.safetensors", "x/a.safetensors", "..\\a.safetensors", "..", "a\0.safetensors"]


def test_a_shard_is_a_file_beside_the_index(tmp_path, subtests):
    (tmp_path / "inner").mkdir()
    save_file({"a": np.zeros(3)}, tmp_path / "a.safetensors")
    for shard in [*OUTSIDE, "", None, 3, ["a.safetensors"], "pytorch_model.bin", "a.npz"]:
        with subtests.test(str(shard)):
            path = write_model(tmp_path / "inner", weight_map={"a": shard})
            with pytest.raises(FileFormatError, match=r"tensor 'a': its file \(.*\) (is not|lies in another folder)"):
                md.open(path)


@hypothesis.given(st.text(max_size=12))
def test_no_name_of_a_shard_leads_out_of_the_folder(tmp_path, name):
    source = sharded_file.Source(__file__)
    try:
        sharded_file.check_shard_name(source, "a", name + ".safetensors")
    except FileFormatError:
        return
    assert os.path.dirname(os.path.normpath(tmp_path / (name + ".safetensors"))) == str(tmp_path)


def test_an_index_that_is_not_sound_or_too_long_to_be_one_is_refused(tmp_path, subtests, monkeypatch):
    for text, words in [
        ("", "not valid JSON"),
        ("[]", "a JSON list"),
        ("{}", "weight_map is not an object"),
        ('{"weight_map": []}', "weight_map is not an object"),
        ('{"weight_map": {}, "metadata": 3}', "metadata is not an object"),
        ('{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}', "'a' occurs twice"),
        ("[" * 100_000, "not valid JSON"),
        ("\xff", "weight_map|valid JSON"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n", "Git LFS pointer .* `git lfs pull`"),
    ]:
        with subtests.test(text=text):
            path = tmp_path / INDEX
            path.write_bytes(text.encode("latin-1"))
            with pytest.raises(FileFormatError, match=words) as caught:
                md.open(path)
            assert str(caught.value).startswith(f"open: {path}: ")
            assert len(str(caught.value)) < 1000
    monkeypatch.setattr(sharded_file, "MAX_HEADER", 10)
    with pytest.raises(FileFormatError, match="an index of more than 10 is not read"):
        md.open(write_model(tmp_path))


# ---- folders ----


def test_a_folder_stands_for_its_only_model(tmp_path):
    save_file({"a": np.arange(3)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "._model.safetensors").write_bytes(b"\0\5\x16\7")  # what macOS writes where names have no attributes
    with md.open(tmp_path) as model:
        assert (model.path, model["a"].tolist()) == (str(tmp_path / "model.safetensors"), [0, 1, 2])
    path = write_model(tmp_path)  # an index says which of several files belong together
    assert md.open(str(tmp_path)).path == str(path)


def test_a_folder_of_none_or_several_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match=r"the folder has no file that ends in \.safetensors or \.safeten"):
        md.open(tmp_path)
    for name in ("b", "a"):
        save_file({"a": np.arange(3)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(FileFormatError, match=r"has 2 files .* 'a.safetensors' and 'b.safetensors'; open one of them"):
        md.open(tmp_path)
