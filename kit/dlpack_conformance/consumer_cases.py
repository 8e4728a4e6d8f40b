"""What a consumer promises: how it asks, what it takes, what it refuses, when it copies."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .dlpack_structs import READ_ONLY, Versioned
from .libraries import Library
from .offers import KEYWORDS, Flavour, Offer
from .producer_cases import expect, flat, refusal, show
from .rules import DLPACK, FROM_DLPACK, HEADER, MUST, PYTHON, SHOULD, Absent, Broken, Rules

RULES = Rules("consumer")
#: What the kit writes where a consumer looks, to see whether it looks there.
OTHER = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]


# ---- what cases share ----


def read(library: Library, array: Any) -> list[Any]:
    return flat(library.tolist(array))


def check_items(library: Library, offer: Offer, expected: Any = None, what: str = "items", **keywords: Any) -> Any:
    """Take the offer; Broken if the result has other items than these, or than the offer's in order."""
    array = library.from_dlpack(offer, **keywords)
    expect(read(library, array), list(offer.kind.sample) if expected is None else expected, what)
    return array


def shares(library: Library, offer: Offer, array: Any) -> bool:
    """Whether the array sees what is written into the offer's memory."""
    before = read(library, array)
    offer.rewrite(OTHER)
    return read(library, array)[: len(OTHER)] != before[: len(OTHER)]


def need_keyword(library: Library, name: str) -> None:
    try:
        library.from_dlpack(Offer(), **{name: None})
    except TypeError:
        raise Absent(f"its from_dlpack takes no {name}") from None


def need_versioned(library: Library) -> None:
    """Absent if the consumer never asks for a versioned tensor."""
    offer = Offer()
    library.from_dlpack(offer)
    if not any(isinstance(handed.struct, Versioned) for handed in offer.handed):
        raise Absent("it asks for unversioned tensors only")


def flavours(library: Library) -> list[Flavour]:
    """What it asks for, and unversioned tensors if it takes them."""
    library.from_dlpack(Offer())
    try:
        library.from_dlpack(Offer(flavour="legacy"))
    except Exception:  # rule "unversioned" has what it says
        return ["asked"]
    return ["asked", "legacy"]


# ---- how it asks ----


@RULES.add(MUST, "from_dlpack returns an array with the items of the tensor.", FROM_DLPACK)
def taken(library: Library) -> str:
    check_items(library, Offer())
    return "2x3 float32"


@RULES.add(MUST, "It passes no keyword but those that __dlpack__ has, in their form.", DLPACK("signature"))
def asks_in_form(library: Library) -> str:
    offer = Offer()
    library.from_dlpack(offer)
    for keywords in offer.calls:
        unknown = set(keywords) - set(KEYWORDS)
        is_pair = all(_is_pair(keywords.get(name)) for name in ("max_version", "dl_device"))
        if unknown or not is_pair or keywords.get("copy") not in (None, True, False):
            raise Broken(f"it called __dlpack__({show(keywords)})")
    return f"__dlpack__({show(offer.last_keywords)})"


def _is_pair(value: Any) -> bool:
    return value is None or (
        isinstance(value, tuple) and len(value) == 2 and all(hasattr(i, "__index__") for i in value)
    )


@RULES.add(MUST, "It asks for memory of the CPU with stream=None, or without stream.", DLPACK("stream"))
def asks_stream(library: Library) -> str:
    offer = Offer()
    library.from_dlpack(offer)
    for keywords in offer.calls:
        if keywords.get("stream") is not None:
            raise Broken(f"it passed stream={keywords['stream']!r}")
    return "None"


@RULES.add(SHOULD, "It passes the latest version that it knows as max_version.", DLPACK("notes"))
def asks_version(library: Library) -> str:
    offer = Offer()
    library.from_dlpack(offer)
    for keywords in offer.calls:
        if keywords.get("max_version") is not None:
            return f"max_version={keywords['max_version']}"
    raise Broken(f"it called __dlpack__({show(offer.last_keywords)})")


@RULES.add(SHOULD, "It asks a producer again that does not know a keyword, without it.", DLPACK("notes"))
def asks_again(library: Library) -> str:
    library.from_dlpack(Offer())
    for knows in (("stream",), ("stream", "max_version")):
        offer = Offer(knows=knows)
        with suppress(Exception):  # other rules ask what it takes
            library.from_dlpack(offer)
        if not offer.handed:
            raise Broken(
                f"a producer that knows only {' and '.join(knows)} got __dlpack__({show(offer.last_keywords)})"
            )
    return "older producers are asked with fewer"


# ---- what it takes ----


@RULES.add(SHOULD, "It takes unversioned tensors too, also if it asked for others.", PYTHON("Implementation"))
def unversioned(library: Library) -> str:
    check_items(library, Offer(flavour="legacy"))
    return "dltensor is taken"


@RULES.add(SHOULD, "A tensor of a later minor version is usable.", HEADER("DLPackVersion"))
def minor_later(library: Library) -> str:
    need_versioned(library)
    check_items(library, Offer(version=(1, 9)))
    return "1.9 is taken"


@RULES.add(MUST, "A capsule that was taken before, or has another name, is refused.", PYTHON("Implementation"))
def capsule_other(library: Library) -> str:
    for name in (b"used_dltensor", b"used_dltensor_versioned", b"tensor"):
        try:
            library.from_dlpack(Offer(capsule_name=name))
        except Exception:
            continue
        raise Broken(f"a capsule named {name.decode()} was taken")
    return "used_dltensor, used_dltensor_versioned and tensor are refused"


@RULES.add(
    SHOULD,  # the same standard's page on data interchange says that from_dlpack "may" raise it
    "An object without __dlpack__ and __dlpack_device__ is an AttributeError.",
    FROM_DLPACK("Raises"),
)
def no_producer(library: Library) -> str:
    library.from_dlpack(Offer())
    try:
        library.from_dlpack(object())
    except AttributeError:
        return "AttributeError"
    raise Broken("object() was taken")


class ProducersOwn(RuntimeError):
    """Raised by producers of the kit."""


@RULES.add(MUST, "What __dlpack__ and __dlpack_device__ raise comes through.", FROM_DLPACK("Raises"))
def errors(library: Library) -> str:
    library.from_dlpack(Offer())
    for raised in (BufferError("of the kit"), ProducersOwn("of the kit")):
        for where, offer in (("__dlpack__", Offer(fails=raised)), ("__dlpack_device__", Offer(device_fails=raised))):
            try:
                library.from_dlpack(offer)
            except type(raised):
                continue
            except Exception as error:
                raise Broken(f"{type(raised).__name__} of {where} became {refusal(error)}") from None
            if where == "__dlpack__":
                raise Broken(f"{type(raised).__name__} of {where} was swallowed")
    return "BufferError and another"


@RULES.add(SHOULD, "Memory of a device that it does not know is a BufferError.", PYTHON("Semantics"))
def device_other(library: Library) -> str:
    library.from_dlpack(Offer())
    try:
        library.from_dlpack(Offer(device=(9, 0)))
    except BufferError:
        return "BufferError for kDLVPI"
    raise Broken("a tensor on kDLVPI was taken")


@RULES.add(SHOULD, "A read-only tensor is taken, not refused.", DLPACK("notes"))
def read_only_taken(library: Library) -> str:
    need_versioned(library)
    check_items(library, Offer(flags=READ_ONLY))
    return "it is taken"


@RULES.add(SHOULD, "An array on read-only memory cannot be written.", HEADER("READ_ONLY"))
def read_only_kept(library: Library) -> str:
    if not library.has_read_only:
        raise Absent("it has no read-only arrays")
    need_versioned(library)
    offer = Offer(flags=READ_ONLY)
    try:
        array = library.from_dlpack(offer)
    except Exception as error:  # rule "read-only-taken" counts it
        raise Absent(f"refused, {refusal(error)}") from None
    if not shares(library, offer, array):
        return "it has a copy"
    if library.is_writable(array):
        raise Broken("the array can be written")
    return "the array is read-only"


# ---- when it copies ----


def page() -> Offer:
    """A tensor that fills whole pages: the easiest to share."""
    return Offer(shape=(4096,), values=[float(i) for i in range(4096)])


@RULES.add(MUST, "copy=None reuses the memory where that is possible.", FROM_DLPACK("copy"))
def copy_none(library: Library) -> str:
    offer = page()
    array = library.from_dlpack(offer)
    if shares(library, offer, array):
        return "the memory is shared"
    try:
        library.from_dlpack(page(), copy=False)
    except Exception as error:
        raise Absent(f"it cannot share the CPU's memory ({refusal(error)})") from None
    raise Broken("whole pages of float32 were copied")


@RULES.add(MUST, "copy=False never copies: it shares, or raises BufferError or ValueError.", FROM_DLPACK("copy"))
def copy_false(library: Library) -> str:
    need_keyword(library, "copy")
    offer = page()
    try:
        array = library.from_dlpack(offer, copy=False)
    except (BufferError, ValueError) as error:
        return refusal(error)
    except Exception as error:
        raise Broken(f"no BufferError: {refusal(error)}") from None
    if not shares(library, offer, array):
        raise Broken("whole pages of float32 were copied")
    return "the memory is shared"


@RULES.add(MUST, "copy=True always copies, whatever the producer knows.", FROM_DLPACK("copy"))
def copy_true(library: Library) -> str:
    need_keyword(library, "copy")
    offer = Offer()
    if shares(library, offer, check_items(library, offer, copy=True)):
        raise Broken("the memory is shared")
    old = Offer(knows=("stream", "max_version"))
    try:
        array = library.from_dlpack(old, copy=True)
    except Exception as error:
        return f"it copies, and refuses a producer that does not know copy, {refusal(error)}"
    if shares(library, old, array):
        raise Broken("the memory of a producer that does not know copy is shared")
    return "the array has memory of its own"


@RULES.add(MUST, "from_dlpack gives an array that the CPU can read, if device asks so.", FROM_DLPACK("device"))
def device_cpu(library: Library) -> str:
    need_keyword(library, "device")
    check_items(library, Offer(), device=library.cpu)
    return f"device={library.cpu!r}"
