"""The libraries that are known here, by name alone: libraries.py reads them, which takes longer to import."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """What people call a library, what pip installs, and the module that has its from_dlpack."""

    name: str
    distribution: str
    imported: str


#: By the name on the command line.
PACKAGES = {
    "numpy": Known("NumPy", "numpy", "numpy"),
    "torch": Known("PyTorch", "torch", "torch"),
    "jax": Known("JAX", "jax", "jax.numpy"),
    "mlx": Known("MLX", "mlx", "mlx.core"),
    "tvm-ffi": Known("tvm-ffi", "apache-tvm-ffi", "tvm_ffi"),
    "pyarrow": Known("pyarrow", "pyarrow", "pyarrow"),
    "metal_dlpack": Known("metal_dlpack", "metal_dlpack", "metal_dlpack"),
}
