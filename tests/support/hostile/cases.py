"""Every case of the tables, with the verdict of an oracle that knows the header and nothing of the package."""

import itertools
import math

from dlpack_structs import c_strides

from hostile.faults import (
    EMPTY,
    FAULTS,
    METAL_FAULTS,
    ODD,
    OTHER_MAJORS,
    PEERS,
    ROOM,
    VERSIONED_FAULTS,
    pairs_of,
)

CPU, METAL = (1, 0), (8, 0)
LARGEST, MASK = 2**63 - 1, 2**64 - 1
#: SPEC dlpack.h DLDataTypeCode: the bits that each code comes in.
BITS_OF_CODE = {
    0: {1, 2, 4, 8, 16, 32, 64},
    1: {1, 2, 4, 8, 16, 32, 64},
    2: {16, 32, 64},
    4: {16},
    5: {32, 64, 128},
    6: {8},
}
BITS_OF_CODE |= {code: {8} for code in range(7, 15)} | {15: {6}, 16: {6}, 17: {4}}

REFUSED, DELETED, TAKEN = "refused", "deleted", "taken"


def reach(shape, strides):
    """The lowest and the highest item, counted from the first."""
    reaches = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True)]
    return sum(r for r in reaches if r < 0), sum(r for r in reaches if r > 0)


def verdict(fields, device, room=None):
    """What becomes of a tensor: by the metadata alone, or, with `room`, beside a buffer of so many bytes."""
    if fields.get("versioned", True) and fields.get("version", (1, 3))[0] != 1:
        return DELETED
    shape, strides = fields.get("shape", (2, 3)), fields.get("strides", "C")
    ndim = fields.get("ndim", len(shape or ()))
    code, bits, lanes = fields.get("dtype", (2, 32, 1))
    if fields.get("device", device)[0] not in (1, 8) or not 0 <= ndim <= 64 or (ndim and shape is None):
        return REFUSED
    if ndim and fields.get("shift", 0) % 8 != 0:
        return REFUSED
    shape = shape or ()
    if any(extent < 0 for extent in shape) or lanes == 0 or bits not in BITS_OF_CODE.get(code, ()):
        return REFUSED
    is_padded = bits < 8 and bool(fields.get("flags", 0) & 4)
    if is_padded and lanes > 1:
        return REFUSED
    itemsize = (bits * lanes + 7) // 8
    if math.prod(max(extent, 1) for extent in shape) * itemsize > LARGEST:
        return REFUSED  # as NumPy refuses it: also where another extent is 0
    if 0 in shape:
        return TAKEN
    if strides in ("C", None):
        strides = c_strides(shape)
    strides = [1 if extent == 1 else step for extent, step in zip(shape, strides, strict=True)]
    lowest, highest = reach(shape, strides)
    if max(-lowest, highest + 1) * itemsize > LARGEST or fields.get("data", 1) is None:
        return REFUSED
    item_bits = 8 if is_padded else bits * lanes
    lowest, end = lowest * item_bits // 8, -(-(highest + 1) * item_bits // 8)
    offset = fields.get("byte_offset", 0)
    if offset > LARGEST - end:
        return REFUSED
    if room is not None:
        return TAKEN if is_within(fields, device, offset, lowest, end, room) else REFUSED
    return TAKEN


def is_within(fields, device, offset, lowest, end, room):
    code, bits, _lanes = fields.get("dtype", (2, 32, 1))
    alignment = max(bits // 8 // (2 if code == 5 else 1), 1)
    has_place = fields.get("device", device)[1] == 0 and offset % alignment == 0
    return has_place and offset + lowest >= 0 and offset + end <= room


def is_whole(fields):
    """As long as it says: a struct whose arrays are too short is its producer's crash."""
    shape, strides, ndim = fields.get("shape", (2, 3)), fields.get("strides", "C"), fields.get("ndim")
    lengths = {len(array) for array in (shape, strides) if isinstance(array, (tuple, list))}
    return len(lengths) <= 1 and (ndim is None or shape is None or not 0 <= ndim <= 64 or ndim == len(shape))


def flavours(fields):
    """The fields as a versioned and as a legacy tensor, as far as they can be either."""
    can_be = [fields["versioned"]] if "versioned" in fields else [False, True]
    for versioned in can_be:
        if versioned or not ({"version", "flags"} & set(fields)):
            yield {**fields, "versioned": versioned}


def rows():
    """(name, fields, is it sound but for its place in a buffer?)"""
    faults = FAULTS | VERSIONED_FAULTS | OTHER_MAJORS
    yield from faults.items()
    yield from (ODD | EMPTY | PEERS | METAL_FAULTS).items()
    yield from pairs_of(faults)
    yield from pairs_of(faults, ODD | EMPTY | PEERS)
    yield from pairs_of(METAL_FAULTS, ODD | FAULTS)
    yield from pairs_of(METAL_FAULTS)
    yield from pairs_of(ODD)
    yield from pairs_of(ODD, EMPTY)


def cases(device):
    """(name, fields, where its bytes lie: "nowhere" or in "memory" of ROOM bytes, verdict)."""
    for name, some in rows():
        if not is_whole(some) or ("device" in some and some["device"][0] == 1):
            continue
        for fields in flavours(some):
            fate = verdict(fields, device)
            place = "nowhere"
            if fate == TAKEN and 0 not in (fields.get("shape", (2, 3)) or ()):
                place = "memory"
                fate = verdict(fields, device, ROOM)
                if fate != TAKEN and device == CPU:
                    continue  # nobody can say how long memory of the CPU is
            yield f"{'versioned' if fields['versioned'] else 'legacy'}: {name}", fields, place, fate


def single_faults():
    return itertools.chain(FAULTS.items(), VERSIONED_FAULTS.items())
