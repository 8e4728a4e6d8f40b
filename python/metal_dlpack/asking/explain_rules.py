"""Why consumers refuse, copy or crash, and the way out: RULES for theirs, WAYS_OUT for the reasons of our own in C.

A rule says: given a tensor of which this condition holds, this consumer may do this; here is the sentence for the
user, the way out, and how it is known.  What an installed consumer really does is found by giving it the rule's
example (trials.py): if it shares that, the rule is silent.  tests/package/test_explain.py holds every row against the
installed frameworks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from metal_dlpack.sync import package_of

from .frameworks import FRAMEWORKS

#: DLPack's devices, and a version of another major number.
METAL, CPU, CUDA, SECOND_CPU, NEXT_MAJOR = (8, 0), (1, 0), (2, 0), (1, 1), (2, 0)
#: Its flags.
READ_ONLY, IS_COPIED, PADDED = 1, 2, 4
#: MLX wraps whole pages of Apple silicon.
MAC_PAGE = 16384

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

#: What sentences call a consumer.
NAMES = {name: framework.name for name, framework in FRAMEWORKS.items()}
NAMES |= {name: name for name in ("metal_dlpack", "torch")}

#: The module whose from_dlpack is a consumer's, and the version whose ways the tables here tell.
MODULES = {name: (framework.entry, framework.told) for name, framework in FRAMEWORKS.items() if framework.entry}

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


# ---- ways out ----

#: Expressions of x in the words of each kind of thing, each made of those before it; "": for all others.
EXPRESSIONS = {
    "array": {"": "md.from_dlpack(x){shared?}", "Array": "x{shared?}", "HostView": "x.array{shared?}"},
    "host": {"": "{array}.host", "HostView": "x"},
    "shared": {"": "{array}{host?}"},
    "copy": {"": "{array}.copy(){host?}", "numpy": "x.copy()", "torch": "x.contiguous()"},
    "bytes": {"": "{array}{dense?}.view('uint8'){host?}", "numpy": "x{dense?}.view('uint8')"},
    "numpy": {"": "np.asarray({array})", "numpy": "x"},
}

#: Some of them, each of which does what those before it do.
STRONGER = ("{host}", "{shared}", "{copy}", "{bytes}")


def words_for(x: object, facts: Facts) -> dict[str, str]:
    """The EXPRESSIONS for this thing and its consumer."""
    root, name = package_of(type(x)), type(x).__name__
    kind = name if root == "metal_dlpack" else "" if facts.is_metal else root
    on_metal = ("torch", "tvm", "metal_dlpack", *(["mlx"] if sys.platform == "darwin" else []))
    words = {
        "shared?": ".copy(storage='shared')" if facts.storage == "private" else "",
        "host?": "" if facts.is_metal and facts.consumer in on_metal else ".host",
        "dense?": "" if facts.is_compact(facts.long_axes[::-1]) else ".copy()",
    }
    for name, kinds in EXPRESSIONS.items():
        words[name] = fill(kinds.get(kind, kinds[""]), words)
    return words


def fill(text: str, words: dict[str, str]) -> str:
    """The text with its {names} of words; other braces stay."""
    return re.sub(r"\{([a-z]+\??)\}", lambda match: words[match[1]], text)


#: The way out of each reason in C's list (exchange/dlpack_check.h); of any other, that of a fault.
WAYS_OUT = {
    "DLPACK_FAULT_MAJOR": "Ask the producer for max_version=(1, 0).",
    "DLPACK_FAULT_DEVICE": "Copy it to the CPU in its framework first.",
    "REFUSED_READONLY": "Pass {copy}.",
    "COPY_NEGATIVE": "Pass {copy}, or flip the axis after the import.",
    "COPY_APART": "Keep the copy: {copy}.",
    "COPY_PADDED": "Keep the copy: {array}.copy(padded=False).",
    "COPY_PRIVATE": "Pass {shared}.",
    "COPY_OFFSET": "Start the view on a whole item of the buffer.",
    "COPY_MISALIGNED": "Allocate the memory aligned; NumPy's own allocations are.",
    "COPY_TOO_FAR": "Import it in parts.",
    "COPY_TOO_LONG": "Import it in parts.",
    "COPY_METAL": "Let md.from_dlpack(x) copy it: pass copy=None.",
}
FAULT_WAY_OUT = "Report it to the framework that made it; until then copy the items there, or by way of NumPy."


#: Words of a producer's refusal, and the way out; the first that fits.  Each was raised here by the versions above.
REFUSALS = (
    ("require gradient", "Pass x.detach()."),
    ("conjugate bit", "Pass x.resolve_conj()."),
    ("negative bit", "Pass x.resolve_neg()."),
    ("torch.strided", "Pass x.to_dense()."),
    ("QUInt/QInt", "Pass x.dequantize(), or x.int_repr() for the integers."),
    ("on meta", "Give the tensor memory first: torch.empty_like(x, device='cpu')."),
    ("readonly", "Pass x.copy()."),
    ("byte order", "Pass x.astype(x.dtype.newbyteorder('='))."),
    ("multiple of itemsize", "Pass x.copy()."),
    ("a type of ml_dtypes", "Call md.asarray(x)."),
    ("DLPack has no element type", "Convert the items, x.astype('float64'), or pass their bytes: x.view('uint8')."),
    ("DLPack only supports", "Convert the items, x.astype('float64'), or pass their bytes: x.view('uint8')."),
    ("deleted", "Give an array that is not deleted; JAX deletes those that are donated."),
)
#: For every other refusal.
LAST_RESORT = "Copy the items into a NumPy array, and pass that: np.array(x)."


# ---- a tensor, and what is asked about it ----


@dataclass
class Facts:
    """A tensor as a consumer would get it; what rules ask about and name in their sentences."""

    consumer: str
    device: tuple[int, int] = CPU
    dtype: str = ""
    code: tuple[int, int, int] = (0, 0, 0)
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = ()
    steps: tuple[int, ...] = ()  # the strides, worked out where there are none
    address: int = 0
    byte_offset: int = 0
    itemsize: int = 1
    nitems: int = 0
    flags: int = 0
    version: str = ""  # of a legacy tensor, which says none
    storage: str = ""
    ours: bool = False
    by_exchange: bool = False
    is_private_map: bool = False
    takes_type: bool = True  # the consumer takes such items
    reason: tuple[str, str] | None = None  # of C's list: its name, and the sentence without a full stop

    @property
    def device_id(self) -> int:
        return self.device[1]

    @property
    def is_metal(self) -> bool:
        return self.device[0] == METAL[0]

    @property
    def is_unknown(self) -> bool:
        return self.version != "" and not self.version.startswith("1.")

    @property
    def long_axes(self) -> list[tuple[int, int]]:
        """(extent, stride) of the axes along which steps are taken."""
        if self.nitems == 0:
            return []
        return [(extent, step) for extent, step in zip(self.shape, self.steps, strict=True) if extent > 1]

    @property
    def copied_nbytes(self) -> int:
        """The bytes of a copy: of the items alone, without what lies between them."""
        bits = 8 * self.itemsize if self.flags & PADDED else self.code[1] * self.code[2]
        return (self.nitems * bits + 7) // 8

    def is_compact(self, axes: list[tuple[int, int]]) -> bool:
        expected = 1
        for extent, step in axes:
            if step != expected:
                return False
            expected *= extent
        return True


#: What rules ask, by name.
CONDITIONS: dict[str, Callable[[Facts], bool]] = {
    # An Array that gives a plain buffer, of anything but the one kind that every torch.asarray reads right.
    "ours_shows_bytes": lambda f: (
        f.ours
        and not f.flags & IS_COPIED
        and f.storage != "private"
        and f.dtype in (ELEMENT_TYPES["numpy"] or ())
        and f.is_compact(f.long_axes[::-1])
        and (f.dtype, len(f.shape)) != ("float32", 1)
    ),
    "ours_on_metal": lambda f: f.ours and f.is_metal,
    "other_major": lambda f: f.is_unknown,
    "other_device": lambda f: f.device[0] not in (METAL[0], CPU[0]),
    "has_items": lambda f: f.nitems > 0,
    "metal": lambda f: f.is_metal,
    "cpu": lambda f: f.device[0] == CPU[0] and f.nitems > 0,
    "cpu_not_on_page": lambda f: f.device[0] == CPU[0] and f.nitems > 0 and (f.address + f.byte_offset) % MAC_PAGE != 0,
    "readonly": lambda f: f.flags & READ_ONLY != 0,
    "legacy": lambda f: f.version == "",
    "versioned": lambda f: f.version != "",
    "versioned_by_method": lambda f: f.version != "" and not f.by_exchange,
    "element_type": lambda f: not f.takes_type,
    "negative_steps": lambda f: any(step < 0 for _, step in f.long_axes),
    "negative_strides": lambda f: any(step < 0 for step in f.strides or ()) and f.nitems > 0,
    "offset_ignored": lambda f: f.byte_offset != 0 and f.is_metal,
    "no_strides_with_offset": lambda f: f.strides is None and f.byte_offset != 0,
    "offset_in_item": lambda f: f.byte_offset % f.itemsize != 0,
    "metal_other_index": lambda f: f.is_metal and f.device_id != 0,
    "other_index": lambda f: f.device_id != 0,
    "wide_float": lambda f: f.dtype in ("float64", "complex128"),
    "private": lambda f: f.storage == "private",
    # The GPU may touch it: on Metal, or about to be.
    "private_map": lambda f: f.is_private_map and f.nitems > 0 and (f.is_metal or f.consumer == "metal_dlpack"),
    "not_compact": lambda f: not f.is_compact(sorted(f.long_axes, key=lambda axis: axis[1])),
    "not_c_order": lambda f: not f.is_compact(f.long_axes[::-1]),
    "not_aligned_64": lambda f: f.nitems > 0 and ((0 if f.is_metal else f.address) + f.byte_offset) % 64 != 0,
}


#: Conditions that the version alone decides.
ABOUT_VERSIONS = {"other_major", "legacy", "versioned", "versioned_by_method"}


# ---- the rules of each consumer ----


@dataclass(frozen=True)
class Rule:
    """One row: see the module."""

    sentence: str  # with {names} of Facts, and {name}: the consumer's
    fix: str  # with {names} of EXPRESSIONS
    #: fields for trials.Example: a tensor of which this condition holds and no other
    example: dict[str, Any] | None = field(default=None, compare=False)
    source: str = "run"  # executed here against the versions above; else where it was read
    machine: str = ""  # "metal": where the consumer has a Metal device; "no metal": where it has none
    consumer: str = ""
    condition: str = ""  # a name in CONDITIONS
    outcome: str = ""  # of OUTCOMES or NOTES; of an installed consumer, what it does with the example


#: (consumers, with blanks between them; condition; outcome): what is said.
_ROWS = {
    # ---- several consumers ----
    ("numpy jax", "metal", "refusal"): Rule(
        "{name} does not read Metal, and the tensor is there.", "Pass {host}.", {"device": METAL}
    ),
    ("numpy torch jax", "other_major", "refusal"): Rule(
        "The tensor is of DLPack {version}; {name} supports major version 1.",
        "Ask the producer for max_version=(1, 0).",
        {"version": NEXT_MAJOR},
    ),
    ("torch mlx jax", "element_type", "refusal"): Rule(
        "{name} has no element type {dtype}.", "Pass the bytes: {bytes}."
    ),
    ("torch jax", "other_device", "refusal"): Rule(
        "The tensor is on device {device}, which {name} reads only if it is built for it; this assumes that it is not.",
        "Copy it to the CPU in its framework first.",
        {"device": CUDA},
    ),
    ("torch tvm", "readonly", "note"): Rule(
        "The memory is read-only, and {name} drops the flag: a write changes that memory.",
        "Pass {copy}, or do not write to the tensor.",
    ),
    ("metal_dlpack torch tvm mlx", "private_map", "note if shared"): Rule(
        "The memory is a private map of a file (mode 'c'): on a Mac each page that the GPU touches becomes a wired "
        "copy, which no number of the process shows.",
        "Pass {copy}, or open the file with mode 'r'.",
        source="townsendmerino/goinfer docs/measurements/s6-alias-2026-09-24.md",
    ),
    # ---- metal_dlpack.from_dlpack ----
    ("metal_dlpack", "readonly", "note"): Rule(
        "The memory is read-only, so the Array will be read-only too.",
        "Call md.from_dlpack(x, copy=True) to write.",
    ),
    # ---- NumPy ----
    ("numpy", "other_device", "refusal"): Rule(
        "NumPy reads CPU memory only, and the tensor is on device {device}.",
        "Copy it to the CPU in its framework first.",
        {"device": CUDA},
    ),
    ("numpy", "element_type", "refusal"): Rule(
        "NumPy's from_dlpack has no element type {dtype}.",
        "Call {numpy} with ml_dtypes installed, or pass the bytes: {bytes}.",
    ),
    ("numpy", "legacy", "note"): Rule(
        "The capsule is a legacy one, and NumPy makes a read-only array of it.",
        "Call np.array({numpy}) to write, or give NumPy a producer that takes max_version.",
    ),
    # ---- PyTorch ----
    ("torch", "offset_ignored", "crash"): Rule(
        "torch of this version ignores byte_offset ({byte_offset}): it reads the items from the buffer's start.",
        "Install torch 2.12 or later, or pass {copy}.",
        {"device": METAL, "byte_offset": 64},
        source="pytorch#168177",
    ),
    ("torch", "negative_steps", "crash"): Rule(
        "A stride is negative {strides}, which torch does not support.",
        "Pass {copy}.",
        {"shape": (3,), "strides": (-1,), "is_inside": True},
        source="run; pytorch#188023",
    ),
    ("torch", "no_strides_with_offset", "refusal"): Rule(
        "The tensor has a byte_offset ({byte_offset}) and no strides, which torch does not support together.",
        "Let the producer write strides, as DLPack 1.2 requires.",
        {"strides": None, "byte_offset": 64},
    ),
    ("torch", "offset_in_item", "refusal"): Rule(
        "byte_offset ({byte_offset}) is not a multiple of the itemsize ({itemsize}).",
        "Pass {copy}.",
        {"byte_offset": 2},
    ),
    ("torch", "ours_shows_bytes", "note"): Rule(
        "torch.asarray(x) is another way, which loses the shape, and before torch 2.15 the type: it reads a plain "
        "buffer.",
        "Call torch.from_dlpack(x), or torch.as_tensor(x), not torch.asarray(x).",
    ),
    ("torch", "metal", "note"): Rule(
        "torch's builds without MPS compute with a tensor t of mps, print it or move it only once that is switched on.",
        "Switch it on with softmetal.torch_mps(), read t through md.from_dlpack(t), or pass {host}.",
        machine="no metal",
    ),
    ("torch", "ours_on_metal", "zero-copy"): Rule(
        "This torch names memory on MPS by its address, and DLPack by the MTLBuffer, so the array refuses.",
        "Pass {host} for a CPU tensor.",
        {"device": METAL, "is_ours": True},
        source="pytorch#190373, which no release has",
        machine="metal",
    ),
    ("torch", "metal_other_index", "note"): Rule(
        "The device_id is {device_id}: torch names the tensor 'mps:{device_id}', which does not exist.",
        "Export with device_id 0.",
    ),
    # ---- MLX ----
    ("mlx", "metal", "refusal"): Rule(
        "This build of MLX has no Metal, and the tensor is on Metal.",
        "Pass {host}.",
        {"device": METAL},
        machine="no metal",
    ),
    ("mlx", "other_device", "refusal"): Rule(
        "MLX reads Metal and CPU memory, and the tensor is on device {device}.",
        "Copy it to the CPU in its framework first.",
        {"device": CUDA},
    ),
    ("mlx", "other_major", "crash"): Rule(
        "MLX does not look at the major version: it reads a tensor of DLPack {version} as if it were of its own.",
        "Ask the producer for max_version=(1, 0).",
        source="run; the struct was one of 1.3 with another number",
    ),
    ("mlx", "negative_strides", "refusal"): Rule(
        "A stride is negative {strides}, which MLX does not support, even if no step is taken.",
        "Pass {copy}.",
        {"shape": (1, 3), "strides": (-1, 1)},
    ),
    ("mlx", "wide_float", "copy"): Rule(
        "MLX converts {dtype} to its single-precision type.",
        "Convert to float32 or complex64 before.",
        {"dtype": (2, 64, 1)},
    ),
    ("mlx", "cpu", "copy"): Rule("This build of MLX has no Metal, and copies CPU memory.", "", {}, machine="no metal"),
    ("mlx", "cpu_not_on_page", "copy"): Rule(
        "The memory does not begin on a page ({address:#x}), so MLX copies it.",
        "Pass md.from_dlpack(x).",
        {"byte_offset": 64},
        source="mlx python/src/convert.cpp",
        machine="metal",
    ),
    ("mlx", "private", "copy"): Rule(
        "The buffer's storage is private, so MLX copies it on the GPU.",
        "Pass {shared}.",
        source="mlx python/src/convert.cpp can_reuse_alien_buffer",
        machine="metal",
    ),
    ("mlx", "readonly", "note"): Rule(
        "The memory is read-only, and MLX drops the flag: it may put a result of its own there.",
        "Call mx.array({numpy}): it copies.",
        source="run; mlx array.h is_donatable",
    ),
    ("mlx", "has_items", "note if shared"): Rule(
        "MLX may write a result into this memory, as in mx.exp(mx.from_dlpack(x)): it counts only its own references, "
        "and reuses what only the operation still refers to.",
        "Keep the mx.array until the result is evaluated, or call mx.from_dlpack(x, copy=True).",
        source="run, on the CPU; mlx array.h is_donatable; mlx#3531",
    ),
    # ---- JAX ----
    ("jax", "versioned", "refusal"): Rule(
        "JAX before 0.12 takes legacy capsules only, and the producer gives a versioned one.",
        "Install JAX 0.12 or later, or let the producer give a legacy capsule where no max_version is asked.",
        {"version": (1, 3)},
    ),
    ("jax", "not_compact", "refusal"): Rule(
        "JAX takes compact strides only, in any order of the axes, and these leave gaps or repeat {strides}.",
        "Pass {copy}.",
        {"shape": (3, 2), "strides": (4, 2)},
    ),
    ("jax", "other_index", "refusal"): Rule(
        "The device_id is {device_id}, and JAX on the CPU has one device.", "", {"device": SECOND_CPU}
    ),
    ("jax", "not_aligned_64", "copy"): Rule(
        "The first item does not lie on a multiple of 64 bytes, so JAX copies.",
        "Begin the array on a multiple of 64 bytes: whole Arrays do.",
        {"byte_offset": 4},
    ),
    # ---- TVM ----
    ("tvm", "versioned_by_method", "refusal"): Rule(
        "tvm-ffi asks __dlpack__ for a legacy capsule only, and the producer gives a versioned one.",
        "Let the producer give a legacy capsule where no max_version is asked.",
        {"version": (1, 3)},
    ),
    ("tvm", "not_aligned_64", "note"): Rule(
        "The first item does not lie on a multiple of 64 bytes: tvm.runtime.from_dlpack, which asks for that, refuses.",
        "Use tvm_ffi.from_dlpack, or pass {copy}.",
    ),
    ("tvm", "not_c_order", "note"): Rule(
        "The items are not contiguous: tvm.runtime.from_dlpack, which asks for that, refuses.",
        "Use tvm_ffi.from_dlpack, or pass {copy}.",
    ),
}
RULES = tuple(
    replace(rule, consumer=consumer, condition=condition, outcome=outcome)
    for (consumers, condition, outcome), rule in _ROWS.items()
    for consumer in consumers.split()
)
