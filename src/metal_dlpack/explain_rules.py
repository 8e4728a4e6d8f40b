"""Why consumers refuse, copy or crash, and the way out, as one table of data: see RULES.

A rule says: given a tensor of which this condition holds, this consumer may do this; here is the sentence for the
user, the way out, and how it is known.  What an installed consumer really does is found by giving it the rule's
example (trials.py): if it shares that, the rule is silent.  tests/package/test_explain.py holds every row against the
installed frameworks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: DLPack's devices, and a version of another major number.
METAL, CUDA, SECOND_CPU, NEXT_MAJOR = (8, 0), (2, 0), (1, 1), (2, 0)

#: Outcomes, the worst first.
OUTCOMES = ("crash", "refusal", "copy", "zero-copy")

#: What leaves the outcome as it is: a note, and a note that is true only where the memory itself is handed over.
NOTES = ("note", "note if shared")

_INTEGERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_NUMPY = frozenset({"bool", "float16", "float32", "float64", "complex64", "complex128"} | _INTEGERS)
_FLOAT8 = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
_RARE_FLOAT8 = {"float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"}

#: The names of the element types that a consumer takes, lanes included; None: all.  For those not installed.
ELEMENT_TYPES: dict[str, frozenset[str] | None] = {
    "numpy": _NUMPY,
    "torch": _NUMPY | _FLOAT8 | {"bfloat16", "complex32", "float4_e2m1fnx2"},
    "mlx": _NUMPY | {"bfloat16"},
    "jax": _NUMPY | _FLOAT8 | _RARE_FLOAT8 | {"bfloat16"},
    "tvm": None,
    "metal_dlpack": None,
}

#: The module whose from_dlpack is a consumer's, and the version whose ways the tables here tell.
MODULES = {
    "numpy": ("numpy", "2.4"),
    "torch": ("torch", "2.13"),
    "mlx": ("mlx.core", "0.32"),
    "jax": ("jax.numpy", "0.10"),
    "tvm": ("tvm_ffi", "0.1.15"),
}

#: How a consumer asks for the tensor: keywords of __dlpack__ in order, each with the exceptions after which it
#: tries the next.  "exchange": the C exchange API of the object's type, if it has one; the rest is for those not
#: installed.
CALLS: dict[str, list[tuple[dict[str, object] | str, tuple[type[Exception], ...]]]] = {
    "numpy": [({"dl_device": None, "max_version": (1, 0)}, (TypeError,)), ({}, ())],
    "torch": [({"max_version": (1, 0)}, (TypeError,)), ({}, ())],
    "mlx": [({}, (TypeError, BufferError)), ({"max_version": (1, 1)}, ())],
    "jax": [({"stream": None}, ())],
    "tvm": [("exchange", (BufferError,)), ({}, ())],
}


#: Words of a producer's refusal, and the way out; the first that fits.  Each was raised here by the versions above.
REFUSALS = (
    ("require gradient", "Pass x.detach()."),
    ("conjugate bit", "Pass x.resolve_conj()."),
    ("negative bit", "Pass x.resolve_neg()."),
    ("torch.strided", "Pass x.to_dense()."),
    ("QUInt/QInt", "Pass x.dequantize(), or x.int_repr() for the integers."),
    ("on meta", "Give the tensor memory first: torch.empty_like(x, device='cpu')."),
    ("readonly", "Pass a copy: x.copy()."),
    ("byte order", "Pass x.astype(x.dtype.newbyteorder('='))."),
    ("multiple of itemsize", "Pass a copy: x.copy()."),
    ("a type of ml_dtypes", "Call metal_dlpack.asarray(x)."),
    ("DLPack has no element type", "Convert the items, x.astype('float64'), or pass their bytes: x.view('uint8')."),
    ("DLPack only supports", "Convert the items, x.astype('float64'), or pass their bytes: x.view('uint8')."),
    ("deleted", "Pass an array that is not deleted; JAX deletes those that are donated."),
)
#: For every other refusal.
LAST_RESORT = "Copy the items into a NumPy array, and pass that: np.array(x)."


@dataclass(frozen=True)
class Rule:
    """One row: see the module."""

    consumer: str
    condition: str  # a name in explain.CONDITIONS
    outcome: str  # of OUTCOMES or NOTES; of an installed consumer, what it does with the example
    sentence: str  # with {names} of explain.Facts
    fix: str
    source: str  # "run": executed here against the versions above; else where it was read
    #: fields for trials.Example: a tensor of which this condition holds and no other
    example: dict[str, Any] | None = field(default=None, compare=False)
    machine: str = ""  # "metal": where the consumer has a Metal device; "no metal": where it has none


RULES = (
    # ---- what an Array of ours does before any consumer sees it ----
    Rule(
        "producer",
        "ours_readonly_legacy",
        "refusal",
        "The array is read-only, and the legacy capsule that {consumer} asks for cannot say so.",
        "Pass a copy: x.copy().",
        "run",
    ),
    Rule(
        "producer",
        "ours_negative",
        "copy",
        "A stride is negative {strides}, which consumers refuse, so the array hands out a copy.",
        "Pass x.copy(), or flip the axis after the import.",
        "run",
    ),
    Rule(
        "producer",
        "ours_apart",
        "copy",
        "Packed sub-byte items are not contiguous {strides}, and consumers read the bytes as one run, so the array "
        "hands out a copy.",
        "Keep the copy: x.copy().",
        "run",
    ),
    Rule(
        "producer",
        "ours_padded_legacy",
        "copy",
        "The items are padded to a byte each, which the legacy capsule that {consumer} asks for cannot say, so the "
        "array hands out a packed copy.",
        "Keep the copy: x.copy(padded=False).",
        "run",
    ),
    Rule(
        "producer",
        "ours_private_for_cpu",
        "copy",
        "Private storage has no CPU address, so the array hands out a copy.",
        "Allocate with storage='shared'.",
        "run",
    ),
    Rule(
        "producer",
        "ours_offset_for_metal",
        "copy",
        "byte_offset ({byte_offset}) is not a multiple of the itemsize ({itemsize}), so the array hands out a copy.",
        "Start the view on a whole item of the buffer.",
        "run",
    ),
    # ---- metal_dlpack.from_dlpack ----
    Rule(
        "metal_dlpack",
        "other_major",
        "refusal",
        "The tensor is of DLPack {version}; only major version 1 is supported.",
        "Ask the producer for max_version=(1, 0).",
        "dlpack.h DLManagedTensorVersioned",
    ),
    Rule(
        "metal_dlpack",
        "other_device",
        "refusal",
        "The tensor is on device {device}; only Metal (8) and the CPU (1) can be read.",
        "Copy it to the CPU in its framework first.",
        "run",
    ),
    Rule(
        "metal_dlpack",
        "faulty",
        "refusal",
        "The tensor is invalid: {fault}",
        "Report it to the framework that made it; until then copy the items there, or by way of NumPy.",
        "run",
    ),
    Rule(
        "metal_dlpack",
        "cpu_misaligned",
        "copy",
        "The address of its first item ({address:#x}) is not a multiple of the element's alignment ({alignment}).",
        "Allocate the memory aligned; NumPy's own allocations are.",
        "run",
    ),
    Rule(
        "metal_dlpack",
        "too_long_for_metal",
        "copy",
        "The memory ({nbytes} bytes; {whole_pages} with the rest of its pages) is longer than a Metal buffer can be.",
        "Import it in parts.",
        "MTLDevice.maxBufferLength",
    ),
    Rule(
        "metal_dlpack",
        "readonly",
        "note",
        "The memory is read-only, so the Array will be read-only too.",
        "Pass copy=True to write.",
        "run",
    ),
    # ---- NumPy ----
    Rule(
        "numpy",
        "metal",
        "refusal",
        "NumPy reads CPU memory only, and the tensor is on Metal.",
        "Call np.from_dlpack(x, device='cpu'), np.asarray(x), or pass x.host.",
        "run",
        {"device": METAL},
    ),
    Rule(
        "numpy",
        "other_device",
        "refusal",
        "NumPy reads CPU memory only, and the tensor is on device {device}.",
        "Copy it to the CPU in its framework first.",
        "run",
        {"device": CUDA},
    ),
    Rule(
        "numpy",
        "other_major",
        "refusal",
        "The tensor is of DLPack {version}; NumPy supports major version 1.",
        "Ask the producer for max_version=(1, 0).",
        "run",
        {"version": NEXT_MAJOR},
    ),
    Rule(
        "numpy",
        "element_type",
        "refusal",
        "NumPy's from_dlpack has no element type {dtype}.",
        "Use np.asarray(x) with ml_dtypes installed, or view the bytes: x.view('uint8').",
        "run",
    ),
    Rule(
        "numpy",
        "legacy",
        "note",
        "The capsule is a legacy one, and NumPy makes a read-only array of it.",
        "To write, copy it: np.array(x); or give NumPy a producer that takes max_version.",
        "run",
    ),
    # ---- PyTorch ----
    Rule(
        "torch",
        "negative_steps",
        "crash",
        "A stride is negative {strides}, which torch does not support.",
        "Pass a contiguous copy.",
        "run; pytorch#188023",
        {"shape": (3,), "strides": (-1,), "is_inside": True},
    ),
    Rule(
        "torch",
        "offset_ignored",
        "crash",
        "torch of this version ignores byte_offset ({byte_offset}): it reads the items from the buffer's start.",
        "Install torch 2.12 or later, or pass x.copy().",
        "pytorch#168177",
        {"device": METAL, "byte_offset": 64},
    ),
    Rule(
        "torch",
        "no_strides_with_offset",
        "refusal",
        "The tensor has a byte_offset ({byte_offset}) and no strides, which torch does not support together.",
        "Let the producer write strides, as DLPack 1.2 requires.",
        "run",
        {"strides": None, "byte_offset": 64},
    ),
    Rule(
        "torch",
        "offset_in_item",
        "refusal",
        "byte_offset ({byte_offset}) is not a multiple of the itemsize ({itemsize}).",
        "Pass a copy.",
        "run",
        {"byte_offset": 2},
    ),
    Rule(
        "torch",
        "element_type",
        "refusal",
        "torch has no element type {dtype}.",
        "View the items as another type, such as x.view('uint8').",
        "run",
    ),
    Rule(
        "torch",
        "other_major",
        "refusal",
        "The tensor is of DLPack {version}; torch supports major version 1.",
        "Ask the producer for max_version=(1, 0).",
        "run",
        {"version": NEXT_MAJOR},
    ),
    Rule(
        "torch",
        "other_device",
        "refusal",
        "The tensor is on device {device}, which torch reads only if it is built for it; this assumes that it is not.",
        "Copy it to the CPU in its framework first.",
        "run",
        {"device": CUDA},
    ),
    Rule(
        "torch",
        "readonly",
        "note",
        "The memory is read-only, and torch drops the flag: it will write there.",
        "Do not write to the tensor, or pass a copy.",
        "run",
    ),
    Rule(
        "torch",
        "ours_shows_bytes",
        "note",
        "torch.asarray(x) is another way, which loses shape and type: it reads the bytes as torch's default dtype.",
        "Call torch.from_dlpack(x) or torch.as_tensor(x), not torch.asarray(x).",
        "run",
    ),
    Rule(
        "torch",
        "metal",
        "note",
        "This build of torch has no MPS: it holds a tensor t, but cannot compute with it, print it or move it.",
        "Read t through md.from_dlpack(t). For a tensor to compute with, pass md.from_dlpack(x).host.",
        "run",
        machine="no metal",
    ),
    Rule(
        "torch",
        "ours_on_metal",
        "zero-copy",
        "This torch names memory on MPS by its address, and DLPack by the MTLBuffer, so the array refuses.",
        "Pass x.host for a CPU tensor.",
        "pytorch#190373, which no release has",
        {"device": METAL, "is_ours": True},
        machine="metal",
    ),
    Rule(
        "torch",
        "metal_other_index",
        "note",
        "The device_id is {device_id}: torch names the tensor 'mps:{device_id}', which does not exist.",
        "Export with device_id 0.",
        "run",
    ),
    # ---- MLX ----
    Rule(
        "mlx",
        "metal",
        "refusal",
        "This build of MLX has no Metal, and the tensor is on Metal.",
        "Pass x.host.",
        "run",
        {"device": METAL},
        machine="no metal",
    ),
    Rule(
        "mlx",
        "other_device",
        "refusal",
        "MLX reads Metal and CPU memory, and the tensor is on device {device}.",
        "Copy it to the CPU in its framework first.",
        "run",
        {"device": CUDA},
    ),
    Rule(
        "mlx",
        "other_major",
        "crash",
        "MLX does not look at the major version: it reads a tensor of DLPack {version} as if it were of its own.",
        "Ask the producer for max_version=(1, 0).",
        "run; the struct was one of 1.3 with another number",
    ),
    Rule(
        "mlx",
        "negative_strides",
        "refusal",
        "A stride is negative {strides}, which MLX does not support, even if no step is taken.",
        "Pass a contiguous copy.",
        "run",
        {"shape": (1, 3), "strides": (-1, 1)},
    ),
    Rule(
        "mlx",
        "element_type",
        "refusal",
        "MLX has no element type {dtype}.",
        "View the items as another type, such as x.view('uint8').",
        "run",
    ),
    Rule(
        "mlx",
        "wide_float",
        "copy",
        "MLX converts {dtype} to its single-precision type.",
        "Convert to float32 or complex64 before.",
        "run",
        {"dtype": (2, 64, 1)},
    ),
    Rule(
        "mlx",
        "cpu",
        "copy",
        "This build of MLX has no Metal, and copies CPU memory.",
        "",
        "run",
        {},
        machine="no metal",
    ),
    Rule(
        "mlx",
        "cpu_not_on_page",
        "copy",
        "The memory does not begin on a page ({address:#x}), so MLX copies it.",
        "Import it as a Metal array, md.from_dlpack(x), and give that to MLX.",
        "mlx python/src/convert.cpp",
        {"byte_offset": 64},
        machine="metal",
    ),
    Rule(
        "mlx",
        "private",
        "copy",
        "The buffer's storage is private, so MLX copies it on the GPU.",
        "Allocate with storage='shared'.",
        "mlx python/src/convert.cpp can_reuse_alien_buffer",
        machine="metal",
    ),
    Rule(
        "mlx",
        "readonly",
        "note",
        "The memory is read-only, and MLX drops the flag: it may put a result of its own there.",
        "Use mx.array(x), which copies.",
        "run; mlx array.h is_donatable",
    ),
    Rule(
        "mlx",
        "has_items",
        "note if shared",
        "MLX may write a result into this memory, as in mx.exp(mx.from_dlpack(x)): it counts only its own references, "
        "and reuses what only the operation still refers to.",
        "Keep the mx.array until the result is evaluated, or call mx.from_dlpack(x, copy=True).",
        "run, on the CPU; mlx array.h is_donatable; mlx#3531",
    ),
    # ---- JAX ----
    Rule(
        "jax",
        "metal",
        "refusal",
        "JAX refuses device 8 without asking for the tensor.",
        "Pass x.host.",
        "run",
        {"device": METAL},
    ),
    Rule(
        "jax",
        "other_device",
        "refusal",
        "The tensor is on device {device}, which JAX on the CPU does not read.",
        "Copy it to the CPU in its framework first.",
        "run",
        {"device": CUDA},
    ),
    Rule(
        "jax",
        "versioned",
        "refusal",
        "JAX takes legacy capsules only, and the producer gives a versioned one.",
        "Let the producer give a legacy capsule where no max_version is asked.",
        "run",
        {"version": (1, 3)},
    ),
    Rule(
        "jax",
        "other_major",
        "refusal",
        "The tensor is of DLPack {version}; JAX understands major version 1.",
        "Ask the producer for max_version=(1, 0).",
        "run",
        {"version": NEXT_MAJOR},
    ),
    Rule(
        "jax",
        "not_compact",
        "refusal",
        "JAX takes compact strides only, in any order of the axes, and these leave gaps or repeat {strides}.",
        "Pass a contiguous copy.",
        "run",
        {"shape": (3, 2), "strides": (4, 2)},
    ),
    Rule(
        "jax",
        "element_type",
        "refusal",
        "JAX's from_dlpack has no element type {dtype}.",
        "View the items as another type, such as x.view('uint8').",
        "run",
    ),
    Rule(
        "jax",
        "other_index",
        "refusal",
        "The device_id is {device_id}, and JAX on the CPU has one device.",
        "",
        "run",
        {"device": SECOND_CPU},
    ),
    Rule(
        "jax",
        "not_aligned_64",
        "copy",
        "The first item does not lie on a multiple of 64 bytes, so JAX copies.",
        "Begin the array on a multiple of 64 bytes: whole Arrays do.",
        "run",
        {"byte_offset": 4},
    ),
    # ---- TVM ----
    Rule(
        "tvm",
        "versioned_by_method",
        "refusal",
        "tvm-ffi asks __dlpack__ for a legacy capsule only, and the producer gives a versioned one.",
        "Let the producer give a legacy capsule where no max_version is asked.",
        "run",
        {"version": (1, 3)},
    ),
    Rule(
        "tvm",
        "not_aligned_64",
        "note",
        "The first item does not lie on a multiple of 64 bytes: tvm.runtime.from_dlpack, which asks for that, refuses.",
        "Use tvm_ffi.from_dlpack, or pass a copy.",
        "run",
    ),
    Rule(
        "tvm",
        "not_c_order",
        "note",
        "The items are not contiguous: tvm.runtime.from_dlpack, which asks for that, refuses.",
        "Use tvm_ffi.from_dlpack, or pass a copy.",
        "run",
    ),
    Rule(
        "tvm",
        "readonly",
        "note",
        "The memory is read-only, and tvm-ffi drops the flag.",
        "Do not write to the tensor, or pass a copy.",
        "run",
    ),
)
