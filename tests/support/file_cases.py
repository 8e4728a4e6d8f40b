"""Files of arrays for the tests: written by the formats' own packages, and by hand where those would refuse."""

import json
import re
import struct
import sys
from pathlib import Path

import numpy as np

import metal_dlpack as md
from metal_dlpack.files import safetensors

#: The types that numpy.save and the tests' reference loaders have in common.
NUMPY_TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


def numpy_arrays(scale: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {
        f"layer.{i}.{kind.strip('?') or 'bool'}": random.integers(0, 2, (3 * scale, 4 + i)).astype(kind)
        for i, kind in enumerate(NUMPY_TYPES)
    }


def write_npy(path: Path) -> Path:
    np.save(path, np.arange(24, dtype="f4").reshape(4, 6))
    return path


def write_npz(path: Path) -> Path:
    np.savez(path, **numpy_arrays())
    return path


def write_safetensors(path: Path, scale: int = 1) -> Path:
    """By hand: the package writes with NumPy only what NumPy has.  `layer.F32`, and so on."""
    random, data = np.random.default_rng(7), b""
    header = {"__metadata__": {"made": "here"}}
    for kind, name in safetensors.DTYPES.items():
        raw = random.integers(0, 2, 8 * scale * md.dtype(name).bits, dtype="u1").tobytes()
        header[f"layer.{kind}"] = entry(kind, (8 * scale, 8), (len(data), len(data) + len(raw)))
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(safetensors_bytes(text + b" " * (-len(text) % 8), data))
    return path


def write_gguf(path: Path, scale: int = 1) -> Path:
    import gguf

    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(2048)
    writer.add_token_list(["<s>", "</s>", "été", *(f"t{i}" for i in range(40))])
    writer.add_token_scores([0.5] * 43)
    for kind in ("f4", "f2", "f8", "i1", "i2", "i4", "i8"):
        writer.add_tensor(f"blk.0.{kind}", random.integers(0, 100, (3 * scale, 64)).astype(kind))
    for kind, (_, nbytes) in gguf.GGML_QUANT_SIZES.items():  # bytes of chance under each type's name
        rows = random.integers(0, 255, (4 * scale, 4 * nbytes), dtype="u1")
        writer.add_tensor(f"blk.1.{kind.name}", rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


WRITERS = {".npy": write_npy, ".npz": write_npz, ".safetensors": write_safetensors, ".gguf": write_gguf}


def safetensors_bytes(header, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with any header: an object, or its text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(kind="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": kind, "shape": list(shape), "data_offsets": list(offsets)}


def write_sparse_safetensors(path: Path, tensors: int, nbytes_each: int) -> Path:
    """A file of zeros that takes no room on the disk."""
    header = {f"t{i}": entry("U8", (nbytes_each,), (i * nbytes_each, (i + 1) * nbytes_each)) for i in range(tensors)}
    head = safetensors_bytes(header)
    with open(path, "wb") as stream:
        stream.write(head)
        stream.truncate(len(head) + tensors * nbytes_each)
    return path


def gguf_text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def gguf_bytes(pairs=(), tensors=(), data: bytes = b"", *, counts=None, version=3, magic=b"GGUF") -> bytes:
    """pairs: (key, type, bytes of the value); tensors: (name, extents, type, offset)."""
    counts = counts or (len(tensors), len(pairs))
    out = magic + struct.pack("<IQQ", version, *counts)
    for key, kind, value in pairs:
        out += gguf_text(key) + struct.pack("<I", kind) + value
    for name, extents, kind, offset in tensors:
        out += gguf_text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, kind, offset)
    return out + bytes(-len(out) % 32) + data


def bytes_of(array: md.Array) -> bytes:
    """The items in C order, read on the CPU, whatever the storage and layout."""
    dense = array.copy(storage="shared")
    return bytes(memoryview(dense.buffer)[: dense.nbytes]) if dense.nbytes else b""


def resident_nbytes() -> int:
    """Bytes of this process that are in memory."""
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10  # whatever the size of pages
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
