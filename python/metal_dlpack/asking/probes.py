"""The doctor's probes: one function a row, which really shares, writes on one side and reads on the other.

It is given the modules that it names; of JAX and MLX those that make arrays.

A probe returns None if both sides saw each other's writes, or raises: Copies with the reason if a write
was not seen, anything else if there was nothing to see.  Each runs in a child process (doctor.py).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import metal_dlpack as md
from metal_dlpack import _core

IS_MAC = sys.platform == "darwin"
#: What stands in for Metal, and names itself; None on a Mac.
STAND_IN: Any = importlib.import_module(_core._stand_in) if hasattr(_core, "_stand_in") else None
ITEMS = 4096


class Copies(Exception):
    """The data arrived, in other memory."""


@dataclass(frozen=True)
class Probe:
    """One row of the table."""

    name: str
    source: str
    target: str
    how: str
    modules: tuple[str, ...]
    run: Callable[..., None]  #: given the modules
    #: the verdict without which the doctor fails
    expected: str = "shares"
    #: what a reader should know about how it was found out
    note: str = ""


PROBES: list[Probe] = []


def probe(
    source: str,
    target: str,
    how: str,
    *modules: str,
    expected: str = "shares",
    note: str = "",
    where: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a function of the modules to PROBES, if `where` says that this machine can have it."""

    def add(run: Callable[..., None]) -> Callable[..., None]:
        if where:
            PROBES.append(Probe(run.__name__, source, target, how, modules, run, expected, note))
        return run

    return add


def require(is_seen: bool, what: str) -> None:
    if not is_seen:
        raise Copies(what)


def new_array() -> md.Array:
    """Zeros in memory of its own, so that every write is told from what was there."""
    return md.zeros((ITEMS,), dtype="float32")


def exchange(a: Any, b: Any) -> None:
    """Writes through each of two mutable sides and reads through the other."""
    a[1] = 11
    require(float(b[1]) == 11, "a write through the source is not seen by the target")
    b[2] = 12
    require(float(a[2]) == 12, "a write through the target is not seen by the source")


def watch(writer: Any, reader: Callable[[int], float]) -> None:
    """For sides that only one can write: each write is read afresh."""
    for item in (1, ITEMS - 1):
        writer[item] = 20 + item
        require(reader(item) == 20 + item, "a write is not seen on the other side")


# ---- NumPy ----


@probe("metal_dlpack", "NumPy", 'np.from_dlpack(a, device="cpu")', "numpy")
def numpy_from_dlpack(np: Any) -> None:
    array = new_array()
    exchange(array, np.from_dlpack(array, device="cpu"))


@probe("metal_dlpack", "NumPy", "np.asarray(a)", "numpy")
def numpy_asarray(np: Any) -> None:
    array = new_array()
    exchange(array, np.asarray(array))


@probe("NumPy", "metal_dlpack", "md.from_dlpack(x)", "numpy")
def from_numpy(np: Any) -> None:
    source = np.zeros(ITEMS, np.float32)
    exchange(source, md.from_dlpack(source))


# ---- PyTorch ----


@probe("metal_dlpack", "PyTorch CPU", "torch.from_dlpack(a.host)", "torch")
def torch_cpu(torch: Any) -> None:
    array = new_array()
    exchange(array, torch.from_dlpack(array.host))


@probe("PyTorch CPU", "metal_dlpack", "md.from_dlpack(t)", "torch")
def from_torch_cpu(torch: Any) -> None:
    source = torch.zeros(ITEMS)
    exchange(source, md.from_dlpack(source))


def check_torch_handle(tensor: Any, array: md.Array) -> None:
    if tensor.device.type != "mps":
        raise RuntimeError(f"the tensor is on {tensor.device}, not on mps")
    require(
        tensor.untyped_storage().data_ptr() == array.buffer.handle,
        "the tensor's storage is not the array's MTLBuffer",
    )


@probe(
    "metal_dlpack",
    "PyTorch MPS",
    "torch.from_dlpack(a), and back",
    "torch",
    where=not IS_MAC,
    note="as this PyTorch is installed, it has no MPS: it holds such a tensor t, which is read through "
    "md.from_dlpack(t)",
)
def torch_mps_handle(torch: Any) -> None:
    array = new_array()
    tensor = torch.from_dlpack(array)
    check_torch_handle(tensor, array)
    exchange(array, md.from_dlpack(tensor))
    part = torch.from_dlpack(array[8:])
    md.from_dlpack(part)[0] = 13
    require(float(array[8]) == 13, "a slice does not arrive at its offset")


COMPUTES = "shares" if STAND_IN is None or STAND_IN.has_compiler() else "cannot"
SWITCHED_ON = "" if STAND_IN is None else STAND_IN.TORCH_NOTE


def switch_on_mps() -> None:
    if STAND_IN is not None:
        STAND_IN.torch_mps()


@probe(
    "metal_dlpack",
    "PyTorch MPS",
    "torch.from_dlpack(a), computing",
    "torch",
    expected=COMPUTES,
    note=SWITCHED_ON,
)
def torch_mps(torch: Any) -> None:
    switch_on_mps()
    array = new_array()
    tensor = torch.from_dlpack(array)
    check_torch_handle(tensor, array)
    exchange_with_mps(torch, array, tensor)


@probe(
    "PyTorch MPS",
    "metal_dlpack",
    "md.from_dlpack(t), computing",
    "torch",
    expected=COMPUTES,
    note=SWITCHED_ON,
)
def from_torch_mps(torch: Any) -> None:
    switch_on_mps()
    tensor = torch.zeros(ITEMS, device="mps")
    torch.mps.synchronize()
    array = md.from_dlpack(tensor)
    check_torch_handle(tensor, array)
    exchange_with_mps(torch, array, tensor)


def exchange_with_mps(torch: Any, array: md.Array, tensor: Any) -> None:
    array[1] = 11
    require(float(tensor[1].cpu()) == 11, "a write through the array is not seen by the GPU")
    tensor.add_(1)
    torch.mps.synchronize()
    require(float(array[1]) == 12, "a write of the GPU is not seen by the array")


# ---- tvm-ffi ----


@probe(
    "metal_dlpack",
    "tvm-ffi metal",
    "tvm_ffi.from_dlpack(a), and back",
    "tvm_ffi",
    note="tvm-ffi holds tensors and computes nothing: its data is read through md.from_dlpack(t)",
)
def tvm_metal(tvm_ffi: Any) -> None:
    array = new_array()
    tensor = tvm_ffi.from_dlpack(array)
    if str(tensor.device) != "metal:0":
        raise RuntimeError(f"the tensor is on {tensor.device}, not on metal:0")
    back = md.from_dlpack(tensor)
    require(back.buffer.handle == array.buffer.handle, "the tensor's data is not the array's MTLBuffer")
    exchange(array, back)


@probe("metal_dlpack", "tvm-ffi cpu", "tvm_ffi.from_dlpack(a.host)", "tvm_ffi")
def tvm_cpu(tvm_ffi: Any) -> None:
    array = new_array()
    tensor = tvm_ffi.from_dlpack(array.host)
    require(tensor.data_ptr() == address_of(array), "the tensor's data is not the array's address")
    exchange(array, md.from_dlpack(tensor))


def address_of(array: md.Array) -> int:
    address = array.buffer.address
    assert address is not None
    return int(address) + array.byte_offset


# ---- JAX ----


def jax_item(array: Any, item: int) -> float:
    """An item as JAX computes it now: nothing that NumPy has cached."""
    import jax

    return float(jax.jit(lambda x: x[item] + 0)(array))


@probe(
    "metal_dlpack",
    "JAX",
    "jnp.from_dlpack(a.host)",
    "jax",
    note="JAX arrays cannot be written: only the other way is tried",
)
def jax_from_dlpack(jnp: Any) -> None:
    array = new_array()
    imported = jnp.from_dlpack(array.host)
    watch(array, lambda item: jax_item(imported, item))


@probe(
    "JAX",
    "metal_dlpack",
    "md.from_dlpack(x)",
    "jax",
    note="JAX arrays cannot be written: the addresses are compared and the items read",
)
def from_jax(jnp: Any) -> None:
    source = jnp.arange(ITEMS, dtype="float32")
    array = md.from_dlpack(source)
    require(source.unsafe_buffer_pointer() == address_of(array), "the items are at another address")
    require(float(array[ITEMS - 1]) == ITEMS - 1, "the items differ")


# ---- MLX ----


@probe(
    "metal_dlpack",
    "MLX",
    "mx.from_dlpack(a.host)",
    "mlx",
    expected="copies",
    where=not IS_MAC,
    note='MLX without Metal copies whatever it imports, and says "No Metal back-end" of mx.fast.metal_kernel until '
    "softmetal.mlx_kernels() is called; python -m softmetal and pytest --softmetal call it",
)
def mlx_host(mx: Any) -> None:
    array = new_array()
    imported = mx.from_dlpack(array.host)
    watch(array, lambda item: float(imported[item].item()))


@probe(
    "metal_dlpack",
    "MLX Metal",
    "mx.from_dlpack(a)",
    "mlx",
    where=IS_MAC,
    note="MLX arrays are written by replacing them, so only one way is tried",
)
def mlx_metal(mx: Any) -> None:
    array = new_array()
    imported = mx.from_dlpack(array)
    watch(array, lambda item: float(imported[item].item()))


@probe("MLX", "metal_dlpack", "md.from_dlpack(x)", "mlx")
def from_mlx(mx: Any) -> None:
    source = mx.zeros(ITEMS)
    mx.eval(source)
    array = md.from_dlpack(source)
    watch(array, lambda item: float(source[item].item()))


# ---- several at once, over one buffer ----


@probe("NumPy", "PyTorch MPS", "through one Array", "numpy", "torch")
def numpy_to_torch_mps(np: Any, torch: Any) -> None:
    source = np.zeros(ITEMS, np.float32)
    array = md.from_dlpack(source)
    tensor = torch.from_dlpack(array)
    check_torch_handle(tensor, array)
    exchange(source, md.from_dlpack(tensor))


@probe("PyTorch MPS", "tvm-ffi metal", "through one Array", "torch", "tvm_ffi")
def torch_mps_to_tvm(torch: Any, tvm_ffi: Any) -> None:
    array = new_array()
    tensor = torch.from_dlpack(array)
    back = md.from_dlpack(tvm_ffi.from_dlpack(md.from_dlpack(tensor)))
    require(tensor.untyped_storage().data_ptr() == back.buffer.handle, "the buffers differ")
    exchange(array, back)


@probe("PyTorch MPS", "JAX", "through one Array", "torch", "jax", where=not IS_MAC)
def torch_mps_to_jax(torch: Any, jnp: Any) -> None:
    array = new_array()
    tensor = torch.from_dlpack(array)
    imported = jnp.from_dlpack(md.from_dlpack(tensor).host)
    watch(md.from_dlpack(tensor), lambda item: jax_item(imported, item))


@probe("NumPy", "tvm-ffi metal", "NumPy, Array, PyTorch MPS, tvm-ffi", "numpy", "torch", "tvm_ffi")
def numpy_to_all(np: Any, torch: Any, tvm_ffi: Any) -> None:
    source = np.zeros(ITEMS, np.float32)
    array = md.from_dlpack(source)
    tensor = torch.from_dlpack(array)
    last = tvm_ffi.from_dlpack(md.from_dlpack(tensor))
    exchange(source, md.from_dlpack(last))
