"""docs/interop.md: each row is run as it stands there, with Arrays and with NumPy arrays in their place.

The rows of a library that is LARGE run where METAL_DLPACK_LIBRARY names it, and no others do: `make versions` sets it.
"""

import ast
import builtins
import contextlib
import functools
import os
import pickle
import pkgutil
import random
import re
import socket
import sys
import time
import tomllib
import tracemalloc
import types
import warnings

import numpy as np
import pytest
from children import run_child
from machine import has_module
from places import DOCS, ROOT
from recipes import all_recipes

import metal_dlpack as md

pytestmark = pytest.mark.needs_no_sanitizer

#: What the rows do not call by its own name.
NAMES = {
    "md": "metal_dlpack", "np": "numpy", "jnp": "jax.numpy", "mx": "mlx.core", "pd": "pandas", "pl": "polars",
    "pa": "pyarrow", "xr": "xarray", "da": "dask.array", "nx": "networkx", "ak": "awkward", "ort": "onnxruntime",
    "iio": "imageio.v3", "tf": "tensorflow", "wp": "warp", "mb": "coremltools.converters.mil.Builder",
    "twice": "taichi", "field": "taichi",
    "Image": "PIL.Image", "Float32": "jaxtyping.Float32", "default_collate": "torch.utils.data.default_collate",
    "train_test_split": "sklearn.model_selection.train_test_split",
    "StandardScaler": "sklearn.preprocessing.StandardScaler",
}  # fmt: skip
#: The group `frameworks` of pyproject.toml.  Each needs a process of its own: imported together, some crash.
LARGE = {
    "coremltools": "coremltools", "paddle": "paddlepaddle", "ray": "ray", "taichi": "taichi",
    "tensorflow": "tensorflow-cpu", "warp": "warp-lang",
}  # fmt: skip
CHOSEN = os.environ.get("METAL_DLPACK_LIBRARY", "")


def find(name: str):
    """A module or something in it, imported by the first row that names it: all of them take a minute."""
    library = name.partition(".")[0]
    if library not in LARGE and not has_module(library):
        pytest.skip(f"{library} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an import's do not concern us
        return pkgutil.resolve_name(name)


def dotted_names(text: str) -> set[str]:
    """Of `scipy.fft.fft(a)`: scipy, scipy.fft, scipy.fft.fft and a."""
    tree = ast.parse(text, mode="eval")
    bound = {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    found = {ast.unparse(each) for each in ast.walk(tree) if isinstance(each, ast.Name | ast.Attribute)}
    return {name for name in found if re.fullmatch(r"[\w.]+", name) and name.partition(".")[0] not in bound}


SHAPES = {"a": (512, 64), "v": (6,), "image": (48, 64, 3), "grey": (48, 64), "half": (6,)}
DTYPES = {"image": "uint8", "grey": "uint8", "half": "bfloat16"}


def is_chosen(text: str) -> bool:
    firsts = {name.partition(".")[0] for name in dotted_names(text)}
    needed = {NAMES.get(first, first).partition(".")[0] for first in firsts}
    return {LARGE[library] for library in needed & LARGE.keys()} == ({CHOSEN} if CHOSEN else set())


def rows(heading: str):
    """The cells of the tables under a heading, of the rows to be run."""
    text = (DOCS / "interop.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [
        line for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE) for line in table.splitlines()[2:]
    ]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells for cells in found if is_chosen(code(cells[-1]))]


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


def a_field_of_taichi(place):
    ti = find("taichi")
    ti.init(arch=ti.cpu, log_level=ti.ERROR)
    return ti.field(ti.f32, (4, 3))


def a_kernel_of_taichi(place):
    ti = find("taichi")
    ti.init(arch=ti.cpu, log_level=ti.ERROR)

    @ti.kernel
    def twice(x: ti.types.ndarray()):
        for i in ti.grouped(x):
            x[i] *= 2

    return twice


def a_session_of_onnxruntime(place):
    """Make a session of a model that adds `x` to itself."""
    onnx, helper = find("onnx"), find("onnx.helper")
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", "m"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return find("onnxruntime.InferenceSession")(model.SerializeToString(), providers=["CPUExecutionProvider"])


def an_open_file_of_hdf5(place):
    opened = place.stack.enter_context(find("h5py").File(place.folder / f"{id(place)}.h5", "w"))
    opened["x"] = np.arange(512 * 64, dtype="float32").reshape(512, 64)
    return opened


def ray_with_its_processes(place):
    ray = find("ray")
    if not ray.is_initialized():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 27)
    return ray


def warp_that_is_ready(place):
    find("warp").init()
    return find("warp")


#: What rows name beside Arrays and libraries.
MADE = {
    "ax": lambda place: find("matplotlib.figure.Figure")().subplots(),
    "rng": lambda place: np.random.default_rng(1),
    "file": lambda place: place.stack.enter_context(place.path.open("r+b")),
    "sock": lambda place: place.sock,
    "buffers": lambda place: [],
    "ffi": lambda place: find("cffi.FFI")(),
    "total": lambda place: find("numba").njit(lambda x: x.sum()),
    "twice": a_kernel_of_taichi,
    "wp": warp_that_is_ready,
    "field": a_field_of_taichi,
    "session": a_session_of_onnxruntime,
    "binding": lambda place: place.get("session").io_binding(),
    "hdf": an_open_file_of_hdf5,
    "ray": ray_with_its_processes,
    # Its own choice of a device needs a compiler of the name clang.
    "Tensor": lambda place: functools.partial(find("tinygrad.Tensor"), device="PYTHON"),
}


class Place:
    """The names that a row uses, and what came out of those that give nothing back."""

    def __init__(self, folder, given):
        self.folder, self.path, self.given = folder, folder / "file.bin", given
        self.path.write_bytes(bytes(range(24)))
        self.stack = contextlib.ExitStack()
        self.sock, self.other = map(self.stack.enter_context, socket.socketpair())
        self.names = dict(given)

    def get(self, name):
        if name not in self.names:
            self.names[name] = MADE[name](self) if name in MADE else find(NAMES.get(name, name))
        return self.names[name]

    def run(self, text):
        for name in sorted(dotted_names(text)):
            first, _, rest = name.partition(".")
            if not hasattr(builtins, first):
                self.get(first)
            if rest and isinstance(self.names.get(first), types.ModuleType):
                find(f"{NAMES.get(first, first)}.{rest}")  # scipy.fft is to be imported as well
        return eval(text, self.names)


@pytest.fixture
def place(tmp_path):
    places = []

    def make(given):
        places.append(Place(tmp_path, given))
        return places[-1]

    yield make
    for made in places:
        made.stack.close()


def written(place):
    place.get("file").flush()
    return place.path.read_bytes()


def loaded(place, data):
    return pickle.loads(data, buffers=place.get("buffers"))


def computed(place, _):
    """What a session gives with what is bound, of the first time."""
    binding = place.get("binding")
    if "x" not in place.names:
        place.names["x"] = np.full((512, 64), 2, "float32")
        binding.bind_output("y") if binding.get_outputs() == [] else binding.bind_cpu_input("x", place.names["x"])
        place.get("session").run_with_iobinding(binding)
    return binding.get_outputs()[0].numpy()


def taken_out(place, dataset):
    """So that the row can run again."""
    found = dataset[:]
    del place.get("hdf")["a"]
    return found


def constant_of(place, program):
    """Core ML Tools keep what a model is made of beside the model."""
    (made,) = (each for each in program.functions["main"].operations if each.op_type == "const")
    return made.outputs[0].val


#: How what a row gives is read, where np.asarray does not; of what gives nothing, what it left behind.
READERS = {
    "file.write(a)": lambda place, _: written(place),
    "np.save(file, a)": lambda place, _: written(place),
    "np.savez(file, a=a)": lambda place, _: np.load(place.path)["a"] if written(place) else None,
    "sock.send(v)": lambda place, count: place.other.recv(count),
    "pickle.dumps(a, 5, buffer_callback=buffers.append)": loaded,
    "twice(np.asarray(a))": lambda place, _: place.given["a"],
    'hdf["x"].read_direct(np.asarray(a))': lambda place, _: place.given["a"],
    'isinstance(a, Float32[md.Array, "rows 64"])': lambda place, is_so: is_so == isinstance(place.given["a"], md.Array),
    'binding.bind_cpu_input("x", np.asarray(a))': computed,
    'binding.bind_ortvalue_output("y", ort.OrtValue.from_dlpack(a.host))': computed,
    'hdf.create_dataset("a", data=a)': taken_out,
    'ffi.from_buffer("float[]", v)': lambda _, made: list(made),
    "onnx.numpy_helper.from_array(np.asarray(a))": lambda _, made: made.raw_data,
    "mb.program(input_specs=[])(lambda: mb.const(val=np.asarray(a)))": constant_of,
    "nx.from_numpy_array(np.asarray(a[:64]))": lambda _, graph: find("networkx").to_numpy_array(graph),
    'iio.imwrite("<bytes>", image, extension=".png")': lambda _, data: find("imageio.v3").imread(data),
    "tifffile.imwrite(file, a)": lambda place, _: find("tifffile").imread(place.path) if written(place) else None,
    "zarr.array(a)": lambda _, made: made[:],
    "file.readinto(v)": lambda place, _: place.given["v"],
    'struct.pack_into("<2f", v, 4, 7.0, 8.0)': lambda place, _: place.given["v"],
    "random.shuffle(np.asarray(v))": lambda place, _: sorted(place.given["v"].tolist()),
    "rng.shuffle(np.asarray(v))": lambda place, _: sorted(place.given["v"].tolist()),
}


#: How libraries call what gives a NumPy array.
WAYS = ("numpy", "to_numpy")


def view_of(result):
    """A NumPy array of what a library made, with no copy where that can be."""
    for way in WAYS:
        if callable(getattr(result, way, None)):
            return getattr(result, way)()
    return np.from_dlpack(result) if hasattr(result, "__dlpack__") and not hasattr(result, "__array__") else result


def read(text, place, result):
    """What a row made, as something that can be compared, in memory of its own."""
    if text in READERS:
        result = READERS[text](place, result)
    if hasattr(result, "to_pybytes"):
        return result.to_pybytes()
    result = view_of(result)
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


def owner_in(text):
    """Of `md.asarray(x.numpy())`: x."""
    (node,) = ast.parse(text, mode="eval").body.args
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WAYS:
        node = node.func.value
    return ast.unparse(node).replace("'", '"')


def test_into_an_array(place, subtests):
    for text, memory in [(code(text), memory) for _, memory, text in rows("Into an Array")]:
        with subtests.test(text=text, memory=memory):
            ours, theirs = place(arrays()), place(mirrors())
            if text in READERS:
                assert memory == "shared"
                assert read(text, ours, ours.run(text)) == read(text, theirs, theirs.run(text))
                continue
            owner_text = owner_in(text)
            ours.names["owner"] = owner = ours.run(owner_text)
            taken = ours.run(text.replace(owner_text, "owner"))
            assert taken.tolist() == read(text, ours, owner)
            claim, _, readonly = memory.partition(", ")
            assert taken.readonly == (readonly == "read-only")
            if taken.readonly:
                is_shared = md.shares_memory(taken, view_of(owner))
            else:
                taken.fill(3)
                is_shared = read(text, ours, owner) == taken.tolist()
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
}


def test_each_large_library_is_installed_by_its_group():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert sorted(re.match(r"[\w-]+", line)[0] for line in groups["frameworks"]) == sorted(LARGE.values())


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
                with pytest.raises(ours.run(error[1])):
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
        exec(COLLATE, {"torch": find("torch"), "md": md, "np": np})
        one, other = md.full(3, 1.0), md.full(3, 2.0)
        batch = find(NAMES["default_collate"])([{"x": one, "y": 1}, {"x": other, "y": 2}])
    finally:
        default_collate_fn_map.pop(md.Array, None)
    assert batch["x"].tolist() == [[1.0] * 3, [2.0] * 3]
    assert batch["y"].tolist() == [1, 2]
