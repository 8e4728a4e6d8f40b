"""open() of what is no file of arrays, and asking for names that a file does not have: what is said, and how soon."""

import difflib
import pickle

import file_cases as cases
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from file_cases import safetensors_bytes

import metal_dlpack as md
from metal_dlpack.files import array_file
from metal_dlpack.opening import FileFormatError

# ---- files ----


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf", "pytorch_model.bin", "x.npy", "x.npz", "x"])
def test_a_pointer_of_git_lfs_says_how_to_fetch_the_file(tmp_path, name):
    path = tmp_path / name
    path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 988097824\n")
    with pytest.raises(FileFormatError, match=r"Git LFS pointer .* to a file of 988097824 bytes.*`git lfs pull`"):
        md.open(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\nsize " + "9" * 5000)
    with pytest.raises(FileFormatError, match="Git LFS pointer") as caught:
        md.open(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "pickle"])
@pytest.mark.parametrize("name", ["model.pt", "model.pth", "pytorch_model.bin", "model"])
def test_a_checkpoint_of_torch_says_how_to_convert_it(tmp_path, monkeypatch, name, is_zip, torch):
    """And what it says works."""
    import safetensors.torch

    monkeypatch.chdir(tmp_path)
    state = {"a": torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)}
    torch.save(state, name, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(FileFormatError, match="it is a PyTorch checkpoint: a pickle, which is not opened") as caught:
        md.open(name)
    advice = str(caught.value).partition("Convert it once: ")[2].removesuffix(".")
    exec(advice, {"torch": torch, "safetensors": safetensors})
    assert md.open("model.safetensors")["a"].tolist() == state["a"].tolist()


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_named(tmp_path, protocol):
    path = tmp_path / "state.pkl"
    path.write_bytes(pickle.dumps({"a": 1}, protocol))
    with pytest.raises(FileFormatError, match="it is a Python pickle"):
        md.open(path)


def test_an_archive_of_numpy_s_is_no_checkpoint(tmp_path):
    """Whatever its arrays are called."""
    np.savez(tmp_path / "a.npz", **{"archive/data.pkl": np.arange(3), "data.pkl": np.arange(2)})
    with md.open(tmp_path / "a.npz") as file:
        assert file["archive/data.pkl"].tolist() == [0, 1, 2]


def test_a_file_that_begins_as_a_pickle_may_be_sound(tmp_path):
    """A header of 0x280 bytes: the first two bytes are those of a pickle."""
    text = b"{}".ljust(0x280)
    (tmp_path / "a.safetensors").write_bytes(safetensors_bytes(text))
    assert dict(md.open(tmp_path / "a.safetensors")) == {}


# ---- names ----


@pytest.mark.parametrize("suffix", cases.WRITERS)
def test_every_format_tells_the_names_that_are_near(tmp_path, suffix):
    with md.open(cases.WRITERS[suffix](tmp_path / f"a{suffix}")) as file:
        name = next(iter(file))
        for wrong in (name[:-1], name.upper() + "x", "x" + name):
            for ask in (file.__getitem__, file.info):
                with pytest.raises(KeyError, match="has no tensor .* did you mean .*" + name) as caught:
                    ask(wrong)
                assert str(file.path) in caught.value.args[0]


def test_the_hint_follows_from_the_names(subtests):
    for names, wrong, hint in [
        ([], "a", "list(file) names those that it has."),
        (["arr_0"], "weights", "it has 'arr_0'."),
        (["x", "y"], "weights", "it has 'x' and 'y'."),
        (["a", "b", "c", "d"], "weights", "list(file) names those that it has."),
        (["wte.weight", "wpe.weight", "b"], "wt.weight", "did you mean 'wte.weight' or 'wpe.weight'?"),
        (["WTE"], "wte", "did you mean 'WTE'?"),
        (["a" * 300], "a" * 299, f"it has '{'a' * 80}'... (300 characters)."),
        (["a"], 3, "it has 'a'."),
    ]:
        with subtests.test(names=names):
            (said,) = array_file.missing_name("model", wrong, names).args
            assert said.startswith("model has no tensor ")
            assert said.endswith(f"; {hint}")


@hypothesis.given(
    names=st.sets(st.text("ab.1", max_size=8), min_size=1, max_size=24),
    slip=st.tuples(st.integers(0, 8), st.sampled_from(["", "c"])),
    data=st.data(),
)
def test_a_name_with_one_slip_is_found(names, slip, data):
    """All names are compared here, so difflib over all of them is the oracle."""
    name = data.draw(st.sampled_from(sorted(names)))
    wrong = name[: slip[0]] + slip[1] + name[slip[0] + 1 :]
    near = array_file.near_names(wrong, names)
    assert near == difflib.get_close_matches(wrong, names, 3)


def large_model():
    parts = ("mlp.down_proj", "mlp.up_proj", "self_attn.q_proj", "self_attn.k_proj", "norm")
    return {f"model.layers.{i}.{part}.weight": i for i in range(20_000) for part in parts}


@pytest.mark.parametrize(
    "wrong",
    ["model.layers.77.mlp.dwon_proj.weight", "layers.77.mlp.down_proj.weight", "Model.Layers.77.MLP.Down_Proj.weight"],
)
def test_of_a_hundred_thousand_names_a_few_are_compared_and_the_nearest_is_found(monkeypatch, wrong):
    compared = []
    real = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", lambda *given: compared.extend(given[1]) or real(*given))
    names = large_model()
    near = array_file.near_names(wrong, names)
    assert near[0] == "model.layers.77.mlp.down_proj.weight"
    assert len(names) == 100_000
    assert len(compared) <= 4 * array_file.NEIGHBOURS


def test_asking_with_get_or_in_compares_no_names(tmp_path, monkeypatch):
    monkeypatch.setattr(array_file, "near_names", None)
    with md.open(cases.write_npy(tmp_path / "a.npy")) as file:
        assert file.get("arr") is None
        assert file.get("arr", 3) == 3
        assert file.get("arr_0").shape == (4, 6)
        assert "arr" not in file
