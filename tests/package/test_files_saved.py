"""docs/files.md: its ways to save Arrays run as they stand there, keep every value and copy nothing."""

import re
import sys

import numpy as np
import pytest
from children import run_child
from file_cases import bytes_of
from places import DOCS

import metal_dlpack as md

GUIDE = (DOCS / "files.md").read_text().partition("## Save Arrays")[2]
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
BY_NUMPY, BY_TORCH = (
    next(block for block in BLOCKS if f"from safetensors.{module} import save_file" in block)
    for module in ("numpy", "torch")
)
CONVERSION = next(block for block in BLOCKS if "torch.load" in block)
TYPES = ["bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64"]
SMALL_FLOATS = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


def every_byte(dtype, shape=(3, 256)):
    """Items whose bytes are all that there are."""
    raw = np.arange(np.prod(shape) * md.dtype(dtype).itemsize, dtype="u1").astype("u1")
    raw = raw & 1 if dtype == "bool" else raw
    return md.asarray(raw, copy=True).view(dtype).reshape(shape)


def save(block, arrays, monkeypatch, folder):
    monkeypatch.chdir(folder)
    exec(block, {"np": np, "md": md, "arrays": arrays, "torch": sys.modules.get("torch")})
    return md.open("saved.safetensors")


@pytest.mark.needs_ml_dtypes
@pytest.mark.parametrize("block", [BY_NUMPY, BY_TORCH], ids=["numpy", "torch"])
def test_every_type_is_saved_bit_by_bit(tmp_path, monkeypatch, live_buffers, block, torch):
    arrays = {dtype: every_byte(dtype) for dtype in TYPES + SMALL_FLOATS}
    arrays |= {"scalar": md.asarray(np.float32(2.5)), "empty": md.zeros((0, 3))}
    arrays["managed"] = md.full(5, 1.0, storage="managed")
    with save(block, arrays, monkeypatch, tmp_path) as saved:
        assert set(saved) == set(arrays)
        for name, array in arrays.items():
            assert (saved[name].dtype, saved[name].shape) == (array.dtype, array.shape)
            assert bytes_of(saved[name]) == bytes_of(array), name


def test_any_layout_is_saved_by_numpy(tmp_path, monkeypatch, live_buffers):
    base = md.asarray(np.arange(24, dtype="f4").reshape(4, 6), copy=True)
    arrays = {
        "whole": base,
        "turned": base.T,
        "part": base[1:, ::2],
        "backwards": base[::-1],
        "readonly": base.as_readonly(),
        "private": base.copy(storage="private"),
    }
    with save(BY_NUMPY, arrays, monkeypatch, tmp_path) as saved:
        for name, array in arrays.items():
            assert saved[name].tolist() == array.tolist(), name


def test_without_its_order_numpy_saves_a_turned_array_wrong(tmp_path, monkeypatch):
    """What the guide warns of; when this fails the warning can go."""
    turned = md.asarray(np.arange(6, dtype="f4").reshape(2, 3), copy=True).T
    assert 'order="C"' in BY_NUMPY
    with save(BY_NUMPY.replace(', order="C"', ""), {"a": turned}, monkeypatch, tmp_path) as saved:
        assert saved["a"].tolist() != turned.tolist()


def test_packed_fp4_is_saved_as_torch_s_pairs(tmp_path, monkeypatch, torch):
    from safetensors.torch import save_file

    array = md.asarray(np.arange(64, dtype="u1"), copy=True).view("float4_e2m1fn")
    (code,) = re.findall(r"`(torch\.from_dlpack\(array\.view.*?)`", GUIDE)
    monkeypatch.chdir(tmp_path)
    save_file({"a": eval(code, {"torch": torch, "array": array})}, "saved.safetensors")
    saved = md.open("saved.safetensors")["a"]
    assert (saved.dtype, saved.shape) == (array.dtype, array.shape)
    assert bytes_of(saved) == bytes_of(array)


def test_torch_s_checkpoint_is_converted_tied_weights_and_all(tmp_path, monkeypatch, torch):
    import safetensors.torch

    monkeypatch.chdir(tmp_path)
    weight = torch.arange(6.0).reshape(2, 3)
    torch.save({"weight": weight, "tied": weight, "turned": weight.T}, "model.pt")
    exec(CONVERSION, {"torch": torch, "safetensors": safetensors})
    with md.open("model.safetensors") as model:
        assert model["weight"].tolist() == model["tied"].tolist() == weight.tolist()
        assert model["turned"].tolist() == weight.T.tolist()


GROWTH = """
import resource, sys
import numpy as np
import torch, safetensors.numpy, safetensors.torch
import metal_dlpack as md
arrays = {f"t{i}": md.full((8 << 20,), i, "uint8") for i in range(12)}
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for block in sys.argv[1:]:
    before = most()
    exec(block)
    print((most() - before) >> 10)
"""


@pytest.mark.needs_torch
@pytest.mark.needs_no_sanitizer
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss counts KiB")
def test_saving_makes_no_copy(tmp_path):
    """96 MiB in 12 tensors: the process grows by less than one of them."""
    done = run_child(GROWTH, BY_NUMPY, BY_TORCH, options=["-W", "ignore"], cwd=tmp_path, check=True)
    assert len(done.stdout.split()) == 2
    assert max(map(int, done.stdout.split())) < 8
    assert (tmp_path / "saved.safetensors").stat().st_size > 96 << 20
