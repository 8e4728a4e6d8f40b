"""The frameworks: one list for explain, its trials and the doctor."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

from dlpack_conformance.packages import PACKAGES


@dataclass(frozen=True)
class Framework:
    """Its name, the package, the distribution that pip installs; of a consumer, too, what explain knows of it."""

    name: str
    module: str
    distribution: str
    entry: str = ""  #: the module whose from_dlpack is the consumer's
    told: str = ""  #: the version whose ways explain's tables tell

    def is_installed(self) -> bool:
        try:
            return importlib.util.find_spec(self.module) is not None
        except (ImportError, ValueError):
            return False

    def version(self) -> str | None:
        """The installed version; None if it is not installed or does not say."""
        if not self.is_installed():
            return None
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None


def _consumer(name: str, told: str) -> Framework:
    """One that the kit knows too."""
    known = PACKAGES[name]
    return Framework(known.name, known.imported.partition(".")[0], known.distribution, known.imported, told)


#: By the names of explain's consumers.
FRAMEWORKS = {
    "numpy": _consumer("numpy", "2.4"),
    "ml_dtypes": Framework("ml_dtypes", "ml_dtypes", "ml_dtypes"),
    "torch": _consumer("torch", "2.13"),
    "tvm": _consumer("tvm-ffi", "0.1.15"),
    "jax": _consumer("jax", "0.10"),
    "mlx": _consumer("mlx", "0.32"),
}


def entry_of(module: str) -> str:
    """The module to import for a package."""
    return next((f.entry for f in FRAMEWORKS.values() if f.module == module), "") or module
