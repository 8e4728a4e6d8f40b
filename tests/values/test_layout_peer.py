"""StridedLayout beside cuda.core's: random layouts, random operations, the same results and refusals."""

from dataclasses import dataclass

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import has_module, tries

import metal_dlpack as md

pytestmark = pytest.mark.needs_cuda_core

if has_module("cuda.core"):
    from cuda.core._layout import _StridedLayout as Peer
else:
    Peer = None

Ours = md.StridedLayout
MANY = hypothesis.settings(max_examples=tries(100))

#: Where the two differ on purpose: name -> why, and rows (what is asked, the peer's answer, ours).  A class of exceptions
#: is the answer of who refuses.  `same_outcome` allows some of them by name.
DIFFERENCES = {
    "overflow": (
        "What overflows in 64 bits, counted in items or bytes, is refused when the layout is made, not when a property "
        "is read later: a StridedLayout's properties cannot fail.",
        (lambda kind: kind((2**62, 4), None, 1).ndim, 2, OverflowError),
        (lambda kind: kind((2**62,), (1,), 4).ndim, 1, OverflowError),
        (lambda kind: kind((3,), (2**62,), 1).ndim, 1, OverflowError),
        (lambda kind: kind((3,), (-(2**62),), 2).ndim, 1, OverflowError),
        (lambda kind: kind((1,), (2**62,), 8).ndim, 1, OverflowError),
        (lambda kind: kind((), (), 4).broadcast_to((2**62, 2)).shape, (2**62, 2), OverflowError),
    ),
    "no_step": (
        "A step that is never taken (an axis of extent 0 or 1) may be longer than 64 bits count: nothing needs it.",
        (lambda kind: kind((5,), (4,), 1)[:: 2**62].shape, OverflowError, (1,)),
    ),
    "longest_step": (
        "is_unique answers wherever the bounds fit: the peer adds absolute values, which may overflow, and takes that of "
        "the stride -2**63 for negative.",
        (lambda kind: kind((2,), (-(2**63),), 1).is_unique, False, True),
        (lambda kind: kind((3,), (-(2**62),), 1).is_unique, OverflowError, True),
    ),
    "no_merge": (
        "Axes whose product of stride and extent overflows are not merged: flattened() of the peer refuses the whole "
        "layout, and its flattened_axis_mask() lets the product wrap round.",
        (lambda kind: kind((2, 2), (5, 2**62), 1).flattened().shape, OverflowError, (2, 2)),
    ),
    "repack": (
        "Itemsizes of which neither divides the other are refused: the peer rounds the factor and loses bytes.",
        *((lambda kind, n=n: kind.dense((5, 4), 4).repacked(n).volume * n != 80, True, ValueError) for n in (3, 6)),
    ),
    "max_itemsize": (
        "The answer is one that repacked() takes: the layout's own itemsize where the peer names another.",
        (lambda kind: kind.dense((5, 30), 3).max_compatible_itemsize(), 2, 3),
    ),
    "floats": (
        "Floats are refused where ints are meant: the peer cuts 2.7 down to 2.",
        (lambda kind: kind((2.5, 3), None, 4).ndim, 2, TypeError),
        (lambda kind: kind((2, 3), (3, 1.5), 4).ndim, 2, TypeError),
        (lambda kind: kind((2, 3), None, 4.5).ndim, 2, TypeError),
        (lambda kind: kind.dense((2, 3), 4, (0, 1.5)).ndim, 2, TypeError),
        (lambda kind: kind.dense((2, 3), 4).permuted((1, 0.5)).ndim, 2, TypeError),
        (lambda kind: kind.dense((2, 3), 4).flattened(mask=2.5).ndim, 1, TypeError),
        (lambda kind: kind.dense((2, 4), 4).repacked(8.5).ndim, 2, TypeError),
    ),
    "bools": (
        "True is no index, as NumPy gives it another meaning: the peer reads 1.",
        (lambda kind: kind.dense((2, 3), 4)[True].shape, (3,), TypeError),
    ),
    "indices": (
        "`...` and None are indices, and so is whatever has __index__, such as a NumPy integer.",
        (lambda kind: kind.dense((2, 3), 4)[...].shape, TypeError, (2, 3)),
        (lambda kind: kind.dense((2, 3), 4)[None].shape, TypeError, (1, 2, 3)),
        (lambda kind: kind.dense((2, 3), 4)[..., 1].shape, TypeError, (2,)),
        (lambda kind: kind.dense((2, 3), 4)[None, 1].shape, TypeError, (1, 3)),
        (lambda kind: kind.dense((2, 3), 4)[np.int64(1)].shape, TypeError, (3,)),
    ),
    "sequences": (
        "A list or one int does where the peer wants a tuple.",
        (lambda kind: kind([2, 3], None, 4).shape, TypeError, (2, 3)),
        (lambda kind: kind(6, None, 4).shape, TypeError, (6,)),
        (lambda kind: kind((6,), 1, 4).strides, TypeError, (1,)),
    ),
    "itemsize": (
        "An itemsize may pass 31 bits.",
        (lambda kind: kind((2,), None, 2**31).required_size_in_bytes(), OverflowError, 2**32),
    ),
    "values": (
        "Hashable, picklable, copied as itself; repr says slice_offset, and evaluates when that is 0.",
        (lambda kind: len({kind((2,), None, 4), kind((2,), None, 4)}), TypeError, 1),
    ),
    "iteration": (
        "Not iterable: the peer gives an iterator that ends in ValueError.",
        (lambda kind: list(kind((2,), None, 4)), ValueError, TypeError),
    ),
}

#: What two layouts near the ends of 64 bits may differ in.
FAR = {"overflow", "no_step", "no_merge", "longest_step"}

FACTS = [
    *["ndim", "shape", "strides", "strides_in_bytes", "volume", "itemsize", "slice_offset", "slice_offset_in_bytes"],
    *["stride_order", "offset_bounds", "min_offset", "max_offset"],
    *["is_contiguous_c", "is_contiguous_f", "is_contiguous_any", "is_dense", "is_unique"],
]
ASKED = ["required_size_in_bytes", "flattened_axis_mask"]


@dataclass
class Outcome:
    """What a call gave: a value, or the class of its refusal."""

    value: object = None
    refusal: type | None = None
    text: str = ""


def attempt(call):
    try:
        return Outcome(value=call())
    except Exception as error:
        return Outcome(refusal=type(error), text=str(error))


def facts_of(layout):
    facts = {name: attempt(lambda name=name: getattr(layout, name)) for name in FACTS}
    facts |= {name: attempt(getattr(layout, name)) for name in ASKED}
    return {name: outcome.refusal or outcome.value for name, outcome in facts.items()}


def overflows(layout):
    """Does the peer's layout, or its bytes, leave 64 bits anywhere?"""
    facts = facts_of(layout)
    if OverflowError in facts.values():
        return True
    extent_bytes = layout.itemsize
    for extent in layout.shape:
        extent_bytes *= max(extent, 1)
    ends = [facts["min_offset"] * layout.itemsize, (facts["max_offset"] + 1) * layout.itemsize, extent_bytes]
    return any(not -(2**63) <= end < 2**63 for end in ends)


def same_layout(ours, theirs, allowed=()):
    found, expected = facts_of(ours), facts_of(theirs)
    products = [extent * stride for extent, stride in zip(ours.shape, ours.strides or (), strict=False)]
    if "no_step" in allowed and ours.volume == 0:
        expected = {name: found[name] if fact is OverflowError else fact for name, fact in expected.items()}
    if "longest_step" in allowed and expected["is_unique"] is OverflowError:
        del found["is_unique"], expected["is_unique"]
    if "no_merge" in allowed and not all(-(2**63) <= product < 2**63 for product in products):
        del found["flattened_axis_mask"], expected["flattened_axis_mask"]  # the peer's product wraps round
    assert found == expected, f"{ours} is not {theirs}"


def same_outcome(call, ours, theirs, allowed=()):
    """The same call on both: equal layouts or values, or refusals of one class.  The pair to go on with, or None."""
    got, expected = attempt(lambda: call(ours)), attempt(lambda: call(theirs))
    if got.refusal is OverflowError and expected.refusal is None:
        assert "overflow" in allowed
        assert isinstance(expected.value, Peer)
        assert overflows(expected.value), f"{got.text} but {expected.value}"
        return None
    if expected.refusal is OverflowError and got.refusal in {None, ValueError}:
        assert "no_step" in allowed or "no_merge" in allowed, expected.text  # a later index may still be out of range
        return None
    assert got.refusal == expected.refusal, f"{got} is not {expected}"
    if got.refusal is not None:
        return None
    if isinstance(expected.value, Peer):
        same_layout(got.value, expected.value, allowed)
        return got.value, expected.value
    assert got.value == expected.value
    return None


# ---- layouts ----

extents = st.one_of(st.integers(0, 4), st.sampled_from([1, 1, 2, 6, 8]))
shapes = st.lists(extents, max_size=6).map(tuple)
steps = st.integers(-20, 20)
itemsizes = st.sampled_from([1, 2, 3, 4, 8, 16])
far = st.sampled_from([1 - 2**63, -(2**62), 2**31, 2**40, 2**61, 2**62, 2**63 - 1])


@st.composite
def arguments(draw, strides=steps, shapes=shapes):
    """What both constructors take: any strides, dense ones in some order, or None."""
    shape = draw(shapes)
    kind = draw(st.sampled_from(["any", "dense", "dense", "none", "gaps"]))
    itemsize = draw(itemsizes)
    if kind == "none":
        return shape, None, itemsize
    if kind == "any":
        return shape, tuple(draw(strides) for _ in shape), itemsize
    items = draw(st.integers(1, 3)) if kind == "gaps" else 1
    spaced = [0] * len(shape)
    for axis in draw(st.permutations(range(len(shape)))):
        spaced[axis] = items * draw(st.sampled_from([1, 1, 1, -1]))
        items *= max(shape[axis], 1)
    return shape, tuple(spaced), itemsize


@st.composite
def pairs(draw):
    given_arguments = draw(arguments())
    return Ours(*given_arguments), Peer(*given_arguments)


@given(arguments())
@MANY
def test_a_layout_has_the_peer_s_facts(values):
    same_layout(Ours(*values), Peer(*values))


@given(arguments(), st.booleans())
def test_strides_in_bytes_are_divided_or_refused(values, is_exact):
    shape, strides, itemsize = values
    if strides is not None and is_exact:
        strides = tuple(stride * itemsize for stride in strides)
    same_outcome(lambda layout: layout(shape, strides, itemsize, True), Ours, Peer)
    same_outcome(lambda layout: layout(shape, strides, itemsize, divide_strides=False), Ours, Peer)


orders = st.one_of(
    st.sampled_from(["C", "F", "K", "c", "A", "", "CF", None, 3]),
    st.lists(st.integers(-4, 4), max_size=4),
    st.integers(0, 6).flatmap(lambda n: st.permutations(range(n))).map(tuple),
)


@given(shapes, st.sampled_from([-1, 0, 1, 4]), orders)
@MANY
def test_dense_layouts(shape, itemsize, order):
    same_outcome(lambda layout: layout.dense(shape, itemsize), Ours, Peer)
    same_outcome(lambda layout: layout.dense(shape, itemsize, order), Ours, Peer)
    same_outcome(lambda layout: layout.dense(shape=shape, itemsize=itemsize, stride_order="F"), Ours, Peer)
    whole = tuple(reversed(range(len(shape))))
    same_outcome(lambda layout: layout.dense(shape, itemsize, whole), Ours, Peer)


# ---- operations ----


def slices_of(extent):
    bound = st.one_of(st.none(), st.integers(-extent - 2, extent + 2))
    step = st.one_of(st.none(), st.sampled_from([-3, -2, -1, 1, 2, 3, 7, 0]))
    return st.builds(slice, bound, bound, step)


@st.composite
def keys(draw, shape):
    entries = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        entries.append(draw(st.one_of(st.integers(-extent, max(extent - 1, 0)), slices_of(extent), st.integers(-5, 5))))
    if draw(st.integers(0, 20)) == 0:
        entries += [0] * (len(shape) - len(entries) + 1)  # one too many
    return entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


@st.composite
def other_shapes(draw, shape):
    """Shapes of as many items, mostly: axes joined and split, ones put in, sometimes -1 or a wrong extent."""
    parts = []
    for extent in shape:
        divisors = [d for d in range(1, extent + 1) if extent % d == 0] or [1]
        part = draw(st.sampled_from(divisors))
        parts += draw(st.sampled_from([[extent], [part, extent // part], [extent, 1], [1, extent]]))
    while len(parts) > 1 and draw(st.booleans()):
        place = draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [parts[place] * parts[place + 1]]
    if parts and draw(st.integers(0, 3)) == 0:
        parts[draw(st.integers(0, len(parts) - 1))] = draw(st.sampled_from([-1, -1, 2, 0, -2]))
    return tuple(parts)


@st.composite
def broader_shapes(draw, shape):
    extents = [draw(st.integers(0, 4)) if e == 1 else e for e in shape]
    if extents and draw(st.integers(0, 5)) == 0:
        extents[draw(st.integers(0, len(extents) - 1))] = draw(st.integers(-1, 5))
    fresh = draw(st.lists(st.integers(0, 3), max_size=2))
    return tuple(fresh + extents)[draw(st.sampled_from([0, 0, 0, 0, 1])) :]


def axes_of(ndim):
    return st.integers(-ndim - 2, ndim + 2)


@st.composite
def repackings(draw, ours):
    factor = draw(st.sampled_from([1, 2, 3, 4]))
    itemsize = ours.itemsize * factor if draw(st.booleans()) else max(ours.itemsize // factor, 1)
    if itemsize % ours.itemsize and ours.itemsize % itemsize:
        itemsize = ours.itemsize  # DIFFERENCES["repack"]
    itemsize = draw(st.sampled_from([itemsize] * 9 + [0, -1]))
    address = draw(st.sampled_from([0, 0, 4, 16, -8, 3, 2**63 - 8, -(2**63)]))
    return itemsize, address, draw(st.sampled_from([-1, -1, 0, draw(axes_of(ours.ndim))])), draw(st.booleans())


@st.composite
def operations(draw, ours):
    """A name and the arguments, near enough to what `ours` takes."""
    shape, ndim = ours.shape, ours.ndim
    axes, masks = axes_of(ndim), st.none() | st.integers(0, 255) | st.integers(-1, 2**64)
    order = st.permutations(range(ndim)) | st.permutations(range(-ndim, 0)) | st.lists(axes, max_size=4)
    given_by_name = {
        "reshaped": st.tuples(other_shapes(shape)),
        "permuted": st.tuples(order.map(tuple)),
        "squeezed": st.just(()),
        "unsqueezed": st.tuples(axes | st.lists(axes_of(ndim + 1), max_size=3).map(tuple)),
        "broadcast_to": st.tuples(broader_shapes(shape)),
        "flattened": st.tuples(st.just(0), st.just(-1), masks) | st.tuples(axes, axes),
        "repacked": repackings(ours),
        "[]": st.tuples(keys(shape)),
        "sliced": st.tuples(keys(shape)),
        "to_dense": st.tuples(orders),
    }
    name = draw(st.sampled_from([*given_by_name, "flattened"]))
    return name, draw(given_by_name[name])


def apply(layout, name, values):
    return layout[values[0]] if name == "[]" else getattr(layout, name)(*values)


def check_operations(pair, data):
    for _ in range(data.draw(st.integers(1, 5))):
        ours, theirs = pair
        name, values = data.draw(operations(ours))
        hypothesis.note(f"{ours}: {name} {values}")
        found = same_outcome(lambda layout, name=name, values=values: apply(layout, name, values), ours, theirs)
        pair = found or pair


@given(pairs(), st.data())
@hypothesis.settings(max_examples=tries(150))
def test_operations_one_after_another(pair, data):
    check_operations(pair, data)


@pytest.mark.long
@given(pairs(), st.data())
@hypothesis.settings(max_examples=tries(2000))
def test_many_operations_one_after_another(pair, data):
    check_operations(pair, data)


@given(pairs(), orders)
@MANY
def test_dense_like(pair, order):
    ours, theirs = pair
    same_outcome(lambda layout: type(layout).dense_like(layout), ours, theirs)
    same_outcome(lambda layout: type(layout).dense_like(layout, order), ours, theirs)
    same_outcome(lambda layout: type(layout).dense_like(layout, stride_order=tuple(range(layout.ndim))), ours, theirs)


@given(pairs(), st.data())
@MANY
def test_the_largest_itemsize(pair, data):
    ours, theirs = pair
    if ours.ndim and ours.shape[0] > 1 and data.draw(st.booleans()):
        ours, theirs = ours[1:], theirs[1:]
    limit = data.draw(st.sampled_from([0, -1, 1, 4, 8, 12, 16, 16, 64]))
    address = data.draw(st.sampled_from([0, 0, 2, 4, 8, -8, 64, 2**63 - 8, -(2**63)]))
    axis = data.draw(st.one_of(st.just(-1), axes_of(ours.ndim)))
    got = attempt(lambda: ours.max_compatible_itemsize(limit, address, axis))
    expected = attempt(lambda: theirs.max_compatible_itemsize(limit, address, axis))
    assert got.refusal == expected.refusal
    if got.refusal is None and got.value != expected.value:
        assert expected.value % ours.itemsize != 0  # DIFFERENCES["max_itemsize"]
        assert ours.itemsize % expected.value != 0
        assert got.value == ours.itemsize
    if got.refusal is None:
        assert ours.repacked(got.value, address if got.value != ours.itemsize else 0, axis).itemsize == got.value


# ---- the differences ----


small_shapes = st.lists(st.integers(0, 3), max_size=4).map(tuple)
far_shapes = st.lists(st.one_of(extents, far.map(abs)), max_size=4).map(tuple)


@given(arguments(strides=st.one_of(far, st.integers(-3, 3)), shapes=small_shapes | far_shapes), st.data())
@hypothesis.settings(max_examples=tries(200))
def test_far_layouts_never_answer_wrongly(values, data):
    """Near the ends of 64 bits: what both answer is the same, and ours refuses no more than what overflows."""
    made = same_outcome(lambda layout: layout(*values), Ours, Peer, allowed=FAR)
    if made is None or max(made[0].shape, default=0) > 8:
        return
    name, values = data.draw(operations(made[0]))
    same_outcome(lambda layout: apply(layout, name, values), *made, allowed=FAR)


def test_the_differences_are_these(subtests):
    for name, (_why, *rows) in DIFFERENCES.items():
        for ask, theirs, ours in rows:
            for kind, expected in ((Peer, theirs), (Ours, ours)):
                with subtests.test(name, kind=kind, expected=expected):
                    got = attempt(lambda ask=ask, kind=kind: ask(kind))
                    assert (got.refusal or got.value) == expected


def test_every_public_name_is_there():
    names = {name for name in dir(Peer) if not name.startswith("_")}
    assert names == {name for name in dir(Ours) if not name.startswith("_")}
