"""A child that runs the Metal kernels of MLX's packages, each as its package launches it, beside a reference.

    python tests/support/mlx_packages.py FOLDERS [WORD ...]     # the cases whose names have one of the words

FOLDERS, joined as in PATH, have the packages' files (fetched_data.py).  What else they import is not installed: a module that has every name
stands for it.  Prints JSON: {"cases": {name: what went wrong, or null}, "referenced": [name], "sites": {"file:line": launches},
"seconds": {name: seconds}}.
"""

import ast
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import os
import sys
import time
import traceback
import types
from pathlib import Path

#: What the packages import and their kernels do not need.
ABSENT = {
    *("cryptography", "cv2", "datasets", "fastapi", "google", "huggingface_hub", "jinja2", "llguidance", "miniaudio"),
    *("PIL", "pydantic", "regex", "requests", "rich", "safetensors", "scipy", "sentencepiece", "sounddevice"),
    *("starlette", "tokenizers", "tqdm", "transformers", "uvicorn", "websockets", "yaml"),
}


# ---- modules that are not there ----


class _EveryName(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent

    def __getitem__(cls, _key):
        return Absent

    def __or__(cls, _other):
        return Absent

    __ror__ = __or__


class Absent(metaclass=_EveryName):
    """A class to inherit from, a decorator, a value."""

    def __init_subclass__(cls, **_keywords):
        pass

    def __init__(self, *_arguments, **_keywords):
        pass

    def __call__(self, *arguments, **_keywords):
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else Absent()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


class _Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent


class AbsentModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        is_absent = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_absent else None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


# ---- which calls of metal_kernel were launched ----


class Sites:
    """The calls of mx.fast.metal_kernel in the packages' source."""

    def __init__(self, folders):
        self.folders = folders
        self.places = {}  # file: [(first line, last line)]
        for path in sorted(path for folder in folders for path in folder.glob("*/**/*.py")):
            text = path.read_text()
            if "metal_kernel(" in text:
                self.places[str(path)] = [
                    (node.lineno, node.end_lineno)
                    for node in ast.walk(ast.parse(text))
                    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("metal_kernel")
                ]
        self.launched = {}  # "file:line": names of outputs launched

    def names(self):
        return [f"{self._short(file)}:{line}" for file, places in self.places.items() for line, _ in places]

    def of_frame(self, frame):
        for first, last in self.places.get(frame.f_code.co_filename, ()):
            if first <= frame.f_lineno <= last:
                return f"{self._short(frame.f_code.co_filename)}:{first}"
        return None

    def watch(self, mx):
        """Note each launch of what mx.fast.metal_kernel makes."""
        make = mx.fast.metal_kernel

        def metal_kernel(*arguments, **keywords):
            kernel, site = make(*arguments, **keywords), self.of_frame(sys._getframe(1))

            def call(**asked):
                outputs = kernel(**asked)
                self.launched[site] = self.launched.get(site, 0) + 1
                return outputs

            return call

        mx.fast.metal_kernel = metal_kernel

    def _short(self, file):
        return next(str(Path(file).relative_to(folder)) for folder in self.folders if Path(file).is_relative_to(folder))


# ---- comparing ----


def largest_difference(got, expected):
    """Return the largest difference between items of two trees, relative to the largest item expected, or to 1."""
    import mlx.core as mx
    import numpy as np
    from mlx.utils import tree_flatten

    got, expected = ([leaf for _, leaf in tree_flatten(tree)] for tree in (got, expected))
    assert len(got) == len(expected), (len(got), len(expected))
    worst = 0.0
    for one, other in zip(got, expected, strict=True):
        one, other = (mx.array(x) if not isinstance(x, mx.array) else x for x in (one, other))
        assert one.shape == other.shape, (one.shape, other.shape)
        one, other = (np.array(x.astype(mx.float32)).astype("float64") for x in (one, other))
        is_finite = np.isfinite(other)
        if not np.array_equal(one[~is_finite], other[~is_finite], equal_nan=True):
            return float("inf")
        if is_finite.any():
            scale = max(1.0, np.abs(other[is_finite]).max())
            worst = max(worst, np.abs(one[is_finite] - other[is_finite]).max() / scale)
    return worst


def is_wanted(name, case, words):
    """One that writes beside its arrays runs under the checker alone, which does not carry that out."""
    if case.is_wild and os.environ.get("SOFTMETAL_KERNEL_CHECK") != "1":
        return False
    return not words or any(word in name for word in words)


def run(one):
    """None, or what went wrong."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            got, expected, tolerance = one()
            import mlx.core as mx

            mx.eval(got)
            difference = None if expected is None else largest_difference(got, expected)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
    if difference is not None and not difference <= tolerance:
        return f"differs from its reference by {difference}, more than {tolerance}"
    return None


def main(folders, words):
    import softmetal

    sys.path[:0] = folders
    sys.meta_path.insert(0, AbsentModules())
    sites = Sites([*map(Path, folders)])
    softmetal.mlx_kernels()
    import mlx.core as mx
    from mlx_calls import CASES

    sites.watch(mx)
    results, seconds = {}, {}
    for name, case in CASES.items():
        if is_wanted(name, case, words):
            mx.random.seed(7)
            begin = time.perf_counter()
            results[name] = run(case)
            seconds[name] = round(time.perf_counter() - begin, 2)
    answer = {
        "cases": results,
        "referenced": [name for name in results if CASES[name].has_reference],
        "sites": {name: sites.launched.get(name, 0) for name in sites.names()},
        "seconds": seconds,
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1].split(os.pathsep), sys.argv[2:])
