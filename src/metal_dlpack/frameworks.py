"""The frameworks that arrays are shared with: their names, and what is installed.

Nothing here imports a framework.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

__all__ = ["FRAMEWORKS", "Framework"]


@dataclass(frozen=True)
class Framework:
    """One framework: its name, the module that is imported, the distribution that pip installs."""

    name: str
    module: str
    distribution: str

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


FRAMEWORKS = (
    Framework("NumPy", "numpy", "numpy"),
    Framework("ml_dtypes", "ml_dtypes", "ml_dtypes"),
    Framework("PyTorch", "torch", "torch"),
    Framework("tvm-ffi", "tvm_ffi", "apache-tvm-ffi"),
    Framework("JAX", "jax", "jax"),
    Framework("MLX", "mlx", "mlx"),
)
