"""What can be wrong with a tensor, and what is odd but good: tables of fields."""

import itertools
import struct

from dlpack_structs import c_strides

#: Wrong by the metadata alone: refused before `data` is touched.
FAULTS = {
    "ndim -1": {"ndim": -1},
    "ndim 65": {"ndim": 65, "shape": (1,) * 65},
    "ndim largest": {"ndim": 2**31 - 1},
    "ndim smallest": {"ndim": -(2**31)},
    "shape NULL": {"ndim": 2, "shape": None, "strides": (3, 1)},
    "shape and strides NULL": {"ndim": 1, "shape": None, "strides": None},
    "arrays at odd addresses": {"shift": 1},
    "arrays half an int64 off": {"shift": 4},
    "extent -1": {"shape": (2, -1)},
    "extent -1 beside 0": {"shape": (0, -1)},
    "extent smallest": {"shape": (-(2**63), 2)},
    "product past 64 bits": {"shape": (2**32, 2**32)},
    "product past 64 bits, no strides": {"shape": (2**62, 2, 3), "strides": None},
    "bytes past 64 bits": {"shape": (2**61, 1)},
    "stride past 64 bits": {"strides": (2**62, 1)},
    "stride past 64 bits downward": {"strides": (-(2**62), 1)},
    "stride largest": {"strides": (2**63 - 1, 1)},
    "stride smallest": {"strides": (-(2**63), 1)},
    "strides past 64 bits together": {"strides": (2**60, 2**60)},
    "data NULL": {"data": None},
    "opaque handle": {"dtype": (3, 64, 1)},
    "code 18": {"dtype": (18, 128, 1)},
    "code 255": {"dtype": (255, 32, 1)},
    "bits 0": {"dtype": (2, 0, 1)},
    "bits 33": {"dtype": (2, 33, 1)},
    "bits 255": {"dtype": (0, 255, 1)},
    "float of 8 bits": {"dtype": (2, 8, 1)},
    "complex of 16 bits": {"dtype": (5, 16, 1)},
    "fp6 in 8 bits": {"dtype": (15, 8, 1)},
    "fp4 in 8 bits": {"dtype": (17, 8, 1)},
    "fp8 in 16 bits": {"dtype": (10, 16, 1)},
    "no lanes": {"dtype": (2, 32, 0)},
    "offset largest": {"byte_offset": 2**64 - 1},
    "offset past the addresses": {"byte_offset": 2**64 - 64},
    "offset negative": {"byte_offset": 2**63},
    **{f"device {kind}": {"device": (kind, 0)} for kind in (0, 2, 3, 4, 7, 9, 10, 13, 14, 15, 18, 99, -1, 2**31 - 1)},
}
#: Only a versioned tensor can say these.
VERSIONED_FAULTS = {"fp4 by two, padded": {"dtype": (17, 4, 2), "flags": 4}}
#: Another major version: deleted, and nothing else looked at.
OTHER_MAJORS = {f"major {major}": {"version": (major, 0)} for major in (0, 2, 3, 2**32 - 1)}

#: Wrong beside a real MTLBuffer of ROOM bytes.
ROOM = 4096
METAL_FAULTS = {
    "past the end by one item": {"byte_offset": ROOM - 20},
    "at the end": {"byte_offset": ROOM},
    "far past the end": {"byte_offset": 2**40},
    "extent past the end": {"shape": (ROOM // 4 + 1,)},
    "strides past the end": {"strides": (ROOM, 1)},
    "below the start": {"strides": (-3, 1), "byte_offset": 8},
    "below the start by one byte": {"shape": (3,), "strides": (-1,), "byte_offset": 7, "dtype": (1, 32, 1)},
    "offset within an item": {"byte_offset": 2},
    "device_id of nobody": {"device": (8, 77)},
    "device_id negative": {"device": (8, -1)},
}

#: Odd but good.  `data` is the address of ROOM bytes; byte i holds i % 251.
ODD = {
    "plain": {},
    "no strides": {"strides": None},
    "no strides, offset": {"strides": None, "byte_offset": 64},
    "offset": {"byte_offset": 256},
    "negative": {"strides": (-3, 1), "byte_offset": 128},
    "all negative": {"strides": (-3, -1), "byte_offset": 128},
    "repeated": {"strides": (0, 1)},
    "all one item": {"strides": (0, 0)},
    "overlapping": {"strides": (1, 1)},
    "gaps": {"strides": (30, 2)},
    "Fortran": {"strides": (1, 2)},
    "an axis of one, stride largest": {"shape": (1, 3), "strides": (2**63 - 1, 1)},
    "an axis of one, stride smallest": {"shape": (1, 3), "strides": (-(2**63), 1)},
    "an axis of one, stride 0": {"shape": (2, 1), "strides": (1, 0)},
    "64 axes": {"shape": (1,) * 63 + (2,)},
    "0-d, no arrays": {"shape": None, "strides": None, "ndim": 0},
    "0-d, arrays": {"shape": (), "strides": ()},
    "0-d, offset": {"shape": None, "strides": None, "ndim": 0, "byte_offset": 64},
    "bool": {"dtype": (6, 8, 1)},
    "int8": {"dtype": (0, 8, 1)},
    "uint64": {"dtype": (1, 64, 1)},
    "complex64": {"dtype": (5, 64, 1)},
    "bfloat16": {"dtype": (4, 16, 1)},
    "fp8": {"dtype": (10, 8, 1)},
    "four lanes": {"dtype": (2, 32, 4)},
    "fp4 by two": {"dtype": (17, 4, 2)},
    "int4": {"dtype": (0, 4, 1), "shape": (2, 4)},
    "int4 with gaps": {"dtype": (0, 4, 1), "strides": (7, 2)},
    "int2": {"dtype": (0, 2, 1)},
    "uint4 backwards": {"dtype": (1, 4, 1), "strides": (-3, -1), "byte_offset": 128},
    "int4 padded": {"dtype": (0, 4, 1), "flags": 4},
    "fp6": {"dtype": (15, 6, 1), "shape": (4,)},
    "fp6 with gaps": {"dtype": (16, 6, 1), "strides": (5, 1)},
    "no deleter": {"deleter": None},
    "no context": {"context": None},
    "no deleter, no context": {"deleter": None, "context": None},
    "minor 99": {"version": (1, 99)},
    "minor largest": {"version": (1, 2**32 - 1)},
    "unknown flags": {"flags": 2**63 + 256},
    "copied": {"flags": 2},
    "read-only": {"flags": 1},
    "read-only and copied": {"flags": 3},
    "padded whole bytes": {"flags": 4},
}
#: No items: data is not looked at.
EMPTY = {
    "empty, data NULL": {"shape": (0, 3), "data": None},
    "empty, data faults": {"shape": (0, 3)},
    "empty, no strides": {"shape": (2, 0), "strides": None, "data": None},
    "empty, strides past 64 bits": {"shape": (2, 0, 2), "strides": (2**63 - 1, -(2**63), 2**62)},
    "empty, offset past the addresses": {"shape": (0,), "byte_offset": 2**64 - 1},
    "empty, 64 axes": {"shape": (0,) * 64},
    "empty, data odd": {"shape": (0,), "data": 1},
}

#: What each peer makes, field for field (docs/inside/protocol.md names the sources).
PEERS = {
    "torch: empty, data NULL": {"shape": (0, 3), "strides": (3, 1), "data": None, "flags": 0},
    "torch: one item, stride 1": {"shape": (1, 3), "strides": (1, 1)},
    "torch: transposed": {"shape": (3, 2), "strides": (1, 3), "byte_offset": 24},
    "numpy: empty, data not NULL": {"shape": (0, 3), "strides": (0, 0), "data": 16, "version": (1, 0)},
    "numpy: 0-d without arrays": {"shape": None, "strides": None, "ndim": 0, "version": (1, 0)},
    "numpy: read-only": {"flags": 1, "version": (1, 0)},
    "numpy: copied": {"flags": 2, "version": (1, 0)},
    "mlx: CPU with an offset": {"versioned": False, "byte_offset": 32, "strides": (-3, 1)},
    "mlx: 0-d": {"versioned": False, "shape": None, "strides": None, "ndim": 0},
    "jax: no strides": {"versioned": False, "strides": None},
    "tvm: strides always": {"versioned": False, "strides": (3, 1), "byte_offset": 64},
    "tvm-ffi: view": {"strides": (6, 1), "byte_offset": 128},
    "safetensors: one byte for none": {"versioned": False, "shape": (0,), "strides": (1,)},
    "quadrants: no context": {"versioned": False, "context": None},
    "cupy: minor 0": {"version": (1, 0), "flags": 2},
}


def merged(one, other):
    """Both at once, or None if they say different things of one field."""
    if any(other.get(key, value) != value for key, value in one.items()):
        return None
    return {**one, **other}


def pairs_of(table, other=None):
    """Each two rows that do not contradict each other."""
    rows = (
        itertools.combinations(table.items(), 2) if other is None else itertools.product(table.items(), other.items())
    )
    for (name, one), (other_name, two) in rows:
        both = merged(one, two)
        if both is not None:
            yield f"{name} + {other_name}", both


def bytes_of(fields, memory):
    """The items of an odd tensor in C order, packed into one number, and how many bits they are.

    SPEC dlpack.h: item i of a packed tensor is `(D >> (i * bits)) & mask`, little-endian; a padded one has a byte.
    """
    shape = fields.get("shape", (2, 3)) or ()
    _code, bits, lanes = fields.get("dtype", (2, 32, 1))
    nbits = bits * lanes
    step_bits = 8 if nbits < 8 and fields.get("flags", 0) & 4 else nbits
    strides = fields.get("strides", "C")
    if strides in ("C", None):
        strides = c_strides(shape)
    data = int.from_bytes(memory, "little")
    found = at = 0
    for index in itertools.product(*map(range, shape)):
        item = sum(i * step for i, step in zip(index, strides, strict=True))
        first = 8 * fields.get("byte_offset", 0) + item * step_bits
        found |= (data >> first & ((1 << nbits) - 1)) << at
        at += nbits
    return found, at


PATTERN = struct.pack(f"{ROOM}B", *(i % 251 for i in range(ROOM)))
