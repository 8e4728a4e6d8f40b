"""docs/interop.md: each row is run as it stands there, with Arrays and with NumPy arrays in their place."""

import ast
import functools
import pickle
import random
import re
import socket
import sys
import time
import tracemalloc

import numpy as np
import pytest
from children import run_child
from machine import has_module
from places import DOCS
from recipes import all_recipes

import metal_dlpack as md

pytestmark = pytest.mark.needs_no_sanitizer

#: What the rows call, and where it is from.
NAMES = {
    "md": "metal_dlpack", "np": "numpy", "torch": "torch", "jnp": "jax.numpy", "cv2": "cv2", "pd": "pandas",
    "pl": "polars", "pa": "pyarrow", "xr": "xarray", "da": "dask.array", "Image": "PIL.Image",
    "array": "array", "ctypes": "ctypes", "hashlib": "hashlib", "pickle": "pickle", "random": "random",
    "struct": "struct", "zlib": "zlib",
}  # fmt: skip


@functools.cache
def names():
    """What the rows call, imported by the first test that asks: it takes seconds."""
    known = {name: pytest.importorskip(module) for name, module in NAMES.items() if name != "cv2" or has_module("cv2")}
    for name in ("safetensors.numpy", "safetensors.torch", "scipy.fft", "scipy.ndimage", "scipy.sparse"):
        pytest.importorskip(name)
        known[name.split(".")[0]] = sys.modules[name.split(".")[0]]
    known["train_test_split"] = pytest.importorskip("sklearn.model_selection").train_test_split
    known["StandardScaler"] = pytest.importorskip("sklearn.preprocessing").StandardScaler
    known["default_collate"] = known["torch"].utils.data.default_collate
    return known


SHAPES = {"a": (512, 64), "v": (6,), "image": (48, 64, 3), "grey": (48, 64), "half": (6,)}
DTYPES = {"image": "uint8", "grey": "uint8", "half": "bfloat16"}


def rows(heading: str):
    """The cells of the table under a heading."""
    text = (DOCS / "interop.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def code(cell: str) -> str:
    assert re.fullmatch(r"`[^`]+`", cell), cell
    return cell.strip("`")


class Mirror(np.ndarray):
    """A NumPy array in the place of an Array: what NumPy, torch and all others are tested to treat right."""

    host = property(lambda self: self)


def mirrors():
    numbers = np.random.default_rng(4)
    return {
        name: numbers.integers(1, 200, shape).astype(md.dtype(DTYPES.get(name, "float32")).numpy).view(Mirror)
        for name, shape in SHAPES.items()
    }


def arrays():
    return {name: md.asarray(mirror.view(np.ndarray), copy=True) for name, mirror in mirrors().items()}


class Place:
    """The names that a row uses beside arrays, and what came out of those that give nothing back."""

    def __init__(self, folder, given):
        self.sock, self.other = socket.socketpair()
        self.path = folder / "file.bin"
        self.path.write_bytes(bytes(range(24)))
        self.given = given
        self.names = given | {
            "file": self.path.open("r+b"),
            "sock": self.sock,
            "buffers": [],
            "ax": pytest.importorskip("matplotlib.figure").Figure().subplots(),
            "rng": np.random.default_rng(1),
        }

    def run(self, text):
        if text.startswith("cv2.") and "cv2" not in names():
            pytest.skip("needs OpenCV")
        return eval(text, names() | self.names)

    def close(self):
        self.names["file"].close()
        self.sock.close()
        self.other.close()


@pytest.fixture
def place(tmp_path):
    places = []

    def make(given):
        places.append(Place(tmp_path, given))
        return places[-1]

    yield make
    for made in places:
        made.close()


def written(place):
    place.names["file"].flush()
    return place.path.read_bytes()


def loaded(place, data):
    return pickle.loads(data, buffers=place.names["buffers"])


#: How what a row gives is read, where np.asarray does not; of what gives nothing, what it left behind.
READERS = {
    "file.write(a)": lambda place, _: written(place),
    "np.save(file, a)": lambda place, _: written(place),
    "np.savez(file, a=a)": lambda place, _: np.load(place.path)["a"] if written(place) else None,
    "sock.send(v)": lambda place, count: place.other.recv(count),
    "pickle.dumps(a, 5, buffer_callback=buffers.append)": loaded,
    "file.readinto(v)": lambda place, _: place.given["v"],
    'struct.pack_into("<2f", v, 4, 7.0, 8.0)': lambda place, _: place.given["v"],
    "random.shuffle(np.asarray(v))": lambda place, _: sorted(place.given["v"].tolist()),
    "rng.shuffle(np.asarray(v))": lambda place, _: sorted(place.given["v"].tolist()),
}


def read(text, place, result):
    """What a row made, as something that can be compared, in memory of its own."""
    if text in READERS:
        result = READERS[text](place, result)
    if isinstance(result, names()["pa"].Tensor):
        result = result.to_numpy()
    if isinstance(result, names()["torch"].Tensor):
        result = result.numpy()
    if isinstance(result, names()["pa"].Buffer):
        result = result.to_pybytes()
    if hasattr(result, "hexdigest"):
        return result.hexdigest()
    if isinstance(result, (list, tuple)):
        return [np.array(each).tolist() for each in result]
    return result if isinstance(result, (bytes, str, int, type(None))) else np.array(result).tolist()


def peak(place, text) -> int:
    tracemalloc.start()
    place.run(text)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_from_an_array(place, subtests):
    for text, memory in [(code(text), memory) for _, memory, text in rows("From an Array")]:
        with subtests.test(text=text, memory=memory):
            ours, theirs = place(arrays()), place(mirrors())
            expected = read(text, theirs, theirs.run(text))
            used = [array for name, array in ours.given.items() if re.search(rf"\b{name}\b", text)]
            result = ours.run(text)
            assert read(text, ours, result) == expected
            claim = memory.split(":")[0].split(",")[0]
            if claim == "in place":
                room = max(array.nbytes for array in used)
                assert peak(ours, text) < peak(theirs, text) + max(room / 2, 4096)
                continue
            for array in used:
                array.fill(3)
            is_changed = read(text, ours, result) != expected
            assert is_changed == {"shared": True, "copied": False}[claim]


def test_into_an_array(place, subtests):
    for text, memory in [(code(text), memory) for _, memory, text in rows("Into an Array")]:
        with subtests.test(text=text, memory=memory):
            ours, theirs = place(arrays()), place(mirrors())
            if text in READERS:
                assert memory == "shared"
                assert read(text, ours, ours.run(text)) == read(text, theirs, theirs.run(text))
                continue
            call = ast.parse(text, mode="eval").body
            owner = ours.run(ast.unparse(call.args[0]))
            taken = ours.run(ast.unparse(call.func))(owner)
            assert taken.tolist() == np.asarray(owner).tolist()
            claim, _, readonly = memory.partition(", ")
            assert taken.readonly == (readonly == "read-only")
            if taken.readonly:
                is_shared = md.shares_memory(taken, np.asarray(owner))
            else:
                taken.fill(3)
                is_shared = np.asarray(owner).tolist() == taken.tolist()
            assert is_shared == {"shared": True, "copied": False}[claim]


def lost(given, act):
    before = sorted(given["v"].tolist())
    random.seed(0)
    act()
    return sorted(given["v"].tolist()) != before


def warns_and_loses(place, text):
    with pytest.warns(UserWarning, match="not guaranteed"):
        return lost(place.given, lambda: place.run(text))


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def is_slow(place, text):
    place.names["v"] = md.zeros(100_000)
    quick = min(seconds(lambda: place.run('array.array("f", bytes(v))')) for _ in range(5))
    return seconds(lambda: place.run(text)) > 5 * quick


#: What goes wrong without an exception.
SILENT = {
    "torch.asarray(a)": lambda place, text: place.run(text).shape != place.given["a"].shape,
    "random.shuffle(v)": lambda place, text: lost(place.given, lambda: place.run(text)),
    "rng.shuffle(v)": warns_and_loses,
    'array.array("f", v)': is_slow,
    "StandardScaler().fit_transform(a)": lambda place, text: place.run(text).dtype == np.float64,
}


def test_what_goes_wrong(place, subtests):
    for wrong, happens, right in rows("What goes wrong"):
        with subtests.test(wrong=wrong, happens=happens, right=right):
            ours, theirs = place(arrays()), place(mirrors())
            expected = read(code(right), theirs, theirs.run(code(right)))
            assert read(code(right), ours, ours.run(code(right))) == expected
            ours = place(arrays())
            error = re.match(r"([\w.]*(?:Error|error|Invalid))\b", happens)
            if error is None:
                assert SILENT[code(wrong)](ours, code(wrong))
            else:
                with pytest.raises(eval(error[1], names())):
                    ours.run(code(wrong))


# ---- torch.utils.data ----

LOADER, COLLATE = all_recipes("how_to/torch.md")[-2:]


@pytest.mark.parametrize(
    "method", [pytest.param("spawn", marks=pytest.mark.long), *(["fork"] if sys.platform == "linux" else [])]
)
def test_workers_of_a_data_loader(method, tmp_path):
    script = tmp_path / "loader.py"
    script.write_text(
        "import torch, torch.utils.data\nimport metal_dlpack as md\n"
        "a = md.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])\n"
        f"{LOADER}\n"
        f"if __name__ == '__main__':\n"
        f"    torch.multiprocessing.set_start_method({method!r})\n"
        "    print([batch.tolist() for batch in batches])\n"
    )
    done = run_child(script)
    assert done.stdout.strip() == "[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]]", done.stderr


def test_default_collate_is_told_once():
    from torch.utils.data._utils.collate import default_collate_fn_map

    try:
        exec(COLLATE, names())
        one, other = md.full(3, 1.0), md.full(3, 2.0)
        batch = names()["default_collate"]([{"x": one, "y": 1}, {"x": other, "y": 2}])
    finally:
        default_collate_fn_map.pop(md.Array, None)
    assert batch["x"].tolist() == [[1.0] * 3, [2.0] * 3]
    assert batch["y"].tolist() == [1, 2]
