"""How the kit makes the arrays of each library and reads them back.

A Library imports its package when it is made, which happens in a child process only.  Subclass it for a library that
is not here, and name the class on the command line: ``--producer mypackage.testing:MyLibrary``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .items import KINDS
from .packages import PACKAGES
from .rules import Absent
from .taken import take


class Library:
    """One library: how its arrays are made, and how its from_dlpack is called and its results are read.

    Override what the library offers; what raises Absent is scored as "does not apply".
    """

    name = ""  #: as people call it
    distribution = ""  #: what pip installs
    cpu: object = "cpu"  #: what from_dlpack takes as device= for the CPU
    has_read_only = False  #: whether its arrays can be read-only

    def version(self) -> str:
        """The version to be shown beside the score."""
        from importlib.metadata import PackageNotFoundError, version  # slow to import

        try:
            return version(self.distribution)
        except (PackageNotFoundError, ValueError):
            return ""

    # ---- as a producer ----

    def make(self, values: Any, kind: str) -> Any:
        """A new array of these nested numbers, of an element type such as "float32"; Absent if it has no such type."""
        raise Absent("it makes no arrays")

    def views(self, array: Any) -> Mapping[str, Any]:
        """Views of a 3x4 array that share its memory, by the name of what was done."""
        return {}

    def read_only(self) -> Any:
        """An array that may not be written."""
        raise Absent("it has no read-only arrays")

    def refused(self) -> Mapping[str, Any]:
        """Arrays that DLPack cannot describe, by the reason."""
        return {}

    def swapped(self) -> Any:
        """An array whose items have the other byte order."""
        raise Absent("its arrays have the machine's byte order")

    # ---- as a consumer, and to look at an array ----

    def from_dlpack(self, producer: Any, **keywords: object) -> Any:
        """What the library makes of an object with __dlpack__; keywords are `device` and `copy`."""
        raise Absent("it has no from_dlpack")

    def tolist(self, array: Any) -> Any:
        """The items as nested lists of numbers, read now and not from a cache."""
        return array.tolist()

    def is_writable(self, array: Any) -> bool:
        """Whether the library lets its users write this array."""
        return True


class Package(Library):
    """A library whose from_dlpack and types are those of one module."""

    imported = ""  #: its name

    def __init__(self) -> None:
        self.module = importlib.import_module(self.imported)

    def make(self, values: Any, kind: str) -> Any:
        return self.module.array(values, self.type_of(kind))

    def type_of(self, kind: str) -> Any:
        """What the module calls an element type; Absent if it has none."""
        found = getattr(self.module, kind, None)
        if found is None:
            raise Absent(f"it has no {kind}")
        return found

    def from_dlpack(self, producer: Any, **keywords: object) -> Any:
        return self.module.from_dlpack(producer, **keywords)


class NumPy(Package):
    name, distribution, imported = PACKAGES["numpy"]
    has_read_only = True

    def views(self, array: Any) -> Mapping[str, Any]:
        broadcast = self.module.broadcast_to(array[0], (3, 4))
        return {
            "transposed": array.T,
            "part": array[1:, ::2],
            "reversed": array[::-1, ::-1],
            "broadcast": broadcast,
        }

    def read_only(self) -> Any:
        array = self.module.arange(4.0)
        array.flags.writeable = False
        return array

    def refused(self) -> Mapping[str, Any]:
        return {
            "objects": self.module.array([None, "text"], object),
            "times": self.module.array(["2026-01-01"], "datetime64[D]"),
            "strides that are no whole items": self.module.zeros(3, "u1, f4")["f1"],
        }

    def swapped(self) -> Any:
        return self.module.arange(4).astype(self.module.dtype("int32").newbyteorder())

    def is_writable(self, array: Any) -> bool:
        return bool(array.flags.writeable)


class Torch(Package):
    name, distribution, imported = PACKAGES["torch"]

    def make(self, values: Any, kind: str) -> Any:
        if kind == "float4_e2m1fn":
            packed = self.module.tensor(list(KINDS[kind].pack(values)), dtype=self.module.uint8)
            return packed.view(self.module.float4_e2m1fn_x2)
        if kind == "int4":
            raise Absent("its int4 is a name without arithmetic or storage")
        return self.module.tensor(values, dtype=self.type_of(kind))

    def views(self, array: Any) -> Mapping[str, Any]:
        return {"transposed": array.T, "part": array[1:, ::2], "broadcast": array[0].expand(3, 4)}

    def refused(self) -> Mapping[str, Any]:
        ones = self.module.ones(3)
        return {
            "sparse": ones.to_sparse(),
            "conjugate": ones.to(self.module.complex64).conj(),
        }

    def tolist(self, array: Any) -> Any:
        small = array.is_floating_point() and array.element_size() == 1
        return (array.to(self.module.float32) if small else array).tolist()


class Jax(Package):
    name, distribution, imported = PACKAGES["jax"]
    has_read_only = True

    def __init__(self) -> None:
        super().__init__()
        self.jax = importlib.import_module("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.jax.config.update("jax_platforms", "cpu")
        self.cpu = self.jax.devices("cpu")[0]

    def read_only(self) -> Any:
        return self.module.arange(4.0)

    def refused(self) -> Mapping[str, Any]:
        return {"random keys": self.jax.random.key(0)}

    def tolist(self, array: Any) -> Any:
        known = array if array.dtype.kind in "biufc" else array.astype("float32")
        return self.jax.device_get(known).tolist()

    def is_writable(self, array: Any) -> bool:
        return False


class Mlx(Package):
    name, distribution, imported = PACKAGES["mlx"]

    def type_of(self, kind: str) -> Any:
        return super().type_of("bool_" if kind == "bool" else kind)

    def views(self, array: Any) -> Mapping[str, Any]:
        views = {
            "transposed": array.T,
            "part": array[1:, ::2],
            "reversed": array[::-1, ::-1],
            "broadcast": self.module.broadcast_to(array[0], (3, 4)),
        }
        self.module.eval(*views.values())
        return views


class TvmFfi(Package):
    """Its tensors come from elsewhere: here from NumPy's memory, by its from_dlpack."""

    name, distribution, imported = PACKAGES["tvm-ffi"]

    def __init__(self) -> None:
        super().__init__()
        self.numpy = importlib.import_module("numpy")

    def make(self, values: Any, kind: str) -> Any:
        if not hasattr(self.numpy, kind):
            raise Absent(f"NumPy, where its memory is from, has no {kind}")
        return self.module.from_dlpack(self.numpy.array(values, kind))

    def tolist(self, array: Any) -> Any:
        """It reads no items itself: they are read from its own tensor."""
        taken = take(array)
        items = taken.items()
        taken.delete()
        return items


class PyArrow(Package):
    """An Array for one dimension, else a Tensor, whose memory is NumPy's; Tensor.from_dlpack takes both."""

    name, distribution, imported = PACKAGES["pyarrow"]
    has_read_only = True

    def __init__(self) -> None:
        super().__init__()
        self.numpy = importlib.import_module("numpy")
        self.cpu = (1, 0)

    def make(self, values: Any, kind: str) -> Any:
        if not isinstance(values, list) or (values and isinstance(values[0], list)):
            return self.module.Tensor.from_numpy(self.numpy.array(values, kind))
        return self.module.array(values, self.type_of("bool_" if kind == "bool" else kind)())

    def read_only(self) -> Any:
        return self.make([0.0, 1.0, 2.0, 3.0], "float64")

    def refused(self) -> Mapping[str, Any]:
        return {
            "text": self.module.array(["a", "b"]),
            "nulls": self.module.array([1, None, 3]),
            "bits": self.module.array([True, False]),
        }

    def views(self, array: Any) -> Mapping[str, Any]:
        rows = array.to_numpy()
        return {
            name: self.module.Tensor.from_numpy(view)
            for name, view in (("transposed", rows.T), ("part", rows[1:, ::2]))
        }

    def from_dlpack(self, producer: Any, **keywords: object) -> Any:
        return self.module.Tensor.from_dlpack(producer, **keywords)

    def tolist(self, array: Any) -> Any:
        return array.to_numpy().tolist() if isinstance(array, self.module.Tensor) else array.to_pylist()

    def is_writable(self, array: Any) -> bool:
        return bool(array.is_mutable)


class MetalDlpack(Package):
    name, distribution, imported = PACKAGES["metal_dlpack"]
    has_read_only = True

    def version(self) -> str:
        return str(self.module.__version__)

    def make(self, values: Any, kind: str) -> Any:
        return self.module.asarray(values, dtype=kind, copy=True)

    def views(self, array: Any) -> Mapping[str, Any]:
        return {"transposed": array.T, "part": array[1:, ::2], "reversed": array[::-1, ::-1]}

    def read_only(self) -> Any:
        return self.module.asarray(memoryview(b"0123456789abcdef"))

    def tolist(self, array: Any) -> Any:
        """Return the items of an Array, or of a host view: what device="cpu" gives."""
        return self.module.from_dlpack(array).tolist()

    def is_writable(self, array: Any) -> bool:
        return not array.readonly


#: By the name on the command line.
LIBRARIES: dict[str, type[Library]] = {
    "numpy": NumPy,
    "torch": Torch,
    "jax": Jax,
    "mlx": Mlx,
    "tvm-ffi": TvmFfi,
    "pyarrow": PyArrow,
    "metal_dlpack": MetalDlpack,
}


def library_of(name: str) -> Library:
    """The Library of a name of LIBRARIES or of "module:attribute", which is a Library or makes one.

    Raises
    ------
    ImportError
        If the library or the module is not installed.
    LookupError
        If nothing has that name.
    """
    if name in LIBRARIES:
        return LIBRARIES[name]()
    module, colon, attribute = name.partition(":")
    if not colon:
        raise LookupError(
            f"no library is named {name!r}: write {', '.join(LIBRARIES)}, or module:attribute for a Library of yours."
        )
    found = getattr(importlib.import_module(module), attribute, None)
    library = found() if callable(found) and not isinstance(found, Library) else found
    if not isinstance(library, Library):
        raise LookupError(f"{name!r} is {library!r}, not a dlpack_conformance.Library.")
    return library
