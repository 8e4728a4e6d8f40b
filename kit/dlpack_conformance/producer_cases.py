"""What a producer promises: the capsule, the tensor in it, the memory under it."""

from __future__ import annotations

import ctypes
import gc
import resource
from typing import Any

from .libraries import Library
from .rules import DEVICE, DLPACK, HEADER, MUST, PYTHON, SHOULD, Absent, Broken, Rules
from .taken import CPU, HOST_KINDS, Taken, take

RULES = Rules("producer")
SAMPLE = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
ROWS = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0, 10.0, 11.0]]
#: As a consumer of DLPack 1.3 asks.
NEWEST = (1, 3)


# ---- what cases share ----


def array_of(library: Library, *keywords: str) -> Any:
    """An array of SAMPLE; Absent if its __dlpack__ does not take these keywords."""
    array = library.make(SAMPLE, "float32")
    need(array, *keywords)
    return array


def device_of(array: Any) -> tuple[int, int]:
    kind, index = array.__dlpack_device__()
    return int(kind), int(index)


def flat(nested: Any) -> list[Any]:
    return [item for part in nested for item in flat(part)] if isinstance(nested, (list, tuple)) else [nested]


def need(array: Any, *keywords: str) -> None:
    """Absent if __dlpack__ does not take these keywords."""
    for name in keywords:
        try:
            array.__dlpack__(**{name: None})
        except TypeError:
            raise Absent(f"its __dlpack__ takes no {name}") from None
        except Exception:  # the keyword is known; other rules ask what it does
            continue


def latest(array: Any) -> dict[str, Any]:
    """The keywords for a tensor on the array's own device, versioned where the producer knows how."""
    try:
        need(array, "max_version")
    except Absent:
        return {}
    return {"max_version": NEWEST}


def readable(array: Any) -> dict[str, Any]:
    """The keywords for a tensor that the CPU can read; Absent if there is none."""
    if array.__dlpack_device__()[0] in HOST_KINDS:
        return {}
    need(array, "dl_device")
    return {"dl_device": CPU}


def newest(array: Any) -> dict[str, Any]:
    """The keywords of both."""
    return latest(array) | readable(array)


def ways(array: Any, **keywords: Any) -> list[dict[str, Any]]:
    """These keywords, for an unversioned tensor and for a versioned one: those of the two that the producer makes."""
    asked = keywords | latest(array)
    try:
        array.__dlpack__(**keywords)
    except BufferError:  # the standard lets a producer make versioned tensors only
        return [asked]
    return [keywords] if asked == keywords else [keywords, asked]


def expect(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise Broken(f"{what}: {found!r}, not {expected!r}")


def refusal(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:117] + '...' if len(text) > 120 else text}"


def versioned(array: Any, **keywords: Any) -> Taken:
    """A versioned tensor; Absent if the producer makes none."""
    need(array, "max_version")
    taken = take(array, max_version=NEWEST, **keywords)
    if not taken.is_versioned:
        raise Absent("it makes no versioned tensors")
    return taken


# ---- the device ----


@RULES.add(MUST, "__dlpack_device__() returns a tuple of the device's type and its id.", DEVICE)
def device_pair(library: Library) -> str:
    pair = array_of(library).__dlpack_device__()
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise Broken(f"it returned {pair!r}")
    int(pair[0]), int(pair[1])
    return f"{int(pair[0])}, {int(pair[1])}"


@RULES.add(SHOULD, "Without dl_device the tensor is on the array's own device.", DLPACK("dl_device"))
def device_agrees(library: Library) -> str:
    array = array_of(library)
    said = device_of(array)
    taken = take(array, **latest(array))
    if taken.device != said:
        raise Broken(f"__dlpack_device__() is {said}, the tensor's device {taken.device}")
    taken.delete()
    return f"both are {said}"


@RULES.add(MUST, "The device id of CPU, pinned and managed memory is 0.", HEADER("DLDevice.device_id"))
def device_id(library: Library) -> str:
    array = array_of(library)
    taken = take(array, **newest(array))
    expect(taken.device[1], 0, "device_id")
    taken.delete()
    return "it is 0"


@RULES.add(MUST, "dl_device=(1, 0) gives a tensor that the CPU can read.", DLPACK("dl_device"))
def device_cpu(library: Library) -> str:
    array = array_of(library, "dl_device")
    taken = take(array, dl_device=CPU, **latest(array))
    if taken.device[0] not in HOST_KINDS:
        raise Broken(f"the tensor is on device {taken.device}")
    expect(taken.items(), SAMPLE, "items")
    taken.delete()
    return "the items are there"


@RULES.add(MUST, "A dl_device that cannot be had is a BufferError.", DLPACK("dl_device"))
def device_unknown(library: Library) -> str:
    array = array_of(library, "dl_device")
    for keywords in ({"dl_device": (9, 0)}, {"dl_device": (9, 0), **latest(array)}):
        try:
            taken = Taken(array.__dlpack__(**keywords))
        except BufferError:
            continue
        except Exception as error:
            raise Broken(f"for kDLVPI, {refusal(error)}") from None
        raise Broken(f"__dlpack__({show(keywords)}) gave a tensor on device {taken.device}")
    return "BufferError for kDLVPI"


# ---- the keywords ----


@RULES.add(
    SHOULD,
    "__dlpack__ takes stream, max_version, dl_device and copy, all optional and by keyword only.",
    DLPACK("signature"),
)
def keywords(library: Library) -> str:
    array = array_of(library)
    try:
        need(array, "stream", "max_version", "dl_device", "copy")
    except Absent as absent:
        raise Broken(str(absent)) from None
    try:
        array.__dlpack__(None)
    except TypeError:
        return "all four, and nothing by position"
    raise Broken("it takes an argument by position")


@RULES.add(MUST, "On the CPU, which has no streams, only stream=None is accepted.", DLPACK("stream"))
def stream_cpu(library: Library) -> str:
    array = array_of(library, "stream")
    take(array, stream=None, **newest(array)).delete()
    try:
        array.__dlpack__(stream=3, **newest(array))
    except Exception as error:
        return f"stream=3 is refused, {type(error).__name__}"
    raise Broken("stream=3 was accepted for memory of the CPU")


@RULES.add(
    SHOULD,
    "Without max_version, or for one below 1.0, the tensor is unversioned; else a BufferError.",
    DLPACK("max_version, notes"),
)
def version_none(library: Library) -> str:
    array = array_of(library)
    asked: list[dict[str, Any]] = [{}]
    try:
        need(array, "max_version")
        asked += [{"max_version": None}, {"max_version": (0, 8)}]
    except Absent:
        pass
    for keywords in asked:
        try:
            taken = take(array, **keywords)
        except BufferError:
            continue
        if taken.is_versioned:
            raise Broken(f"__dlpack__({show(keywords)}) gave a versioned tensor")
        taken.delete()
    return "dltensor, or a BufferError"


def show(keywords: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in keywords.items())


@RULES.add(SHOULD, "For max_version=(1, 0) and later the tensor is versioned.", DLPACK("max_version"))
def version_asked(library: Library) -> str:
    array = array_of(library, "max_version")
    stamps = []
    for asked in ((1, 0), (1, 3)):
        taken = take(array, max_version=asked)
        if not taken.is_versioned:
            raise Broken(f"max_version={asked} gave an unversioned tensor")
        stamps.append(f"{taken.version[0]}.{taken.version[1]}")
        taken.delete()
    return f"stamped {' and '.join(dict.fromkeys(stamps))}"


@RULES.add(SHOULD, "A consumer of a later major version gets what the producer has.", DLPACK("max_version, notes"))
def version_later(library: Library) -> str:
    array = array_of(library, "max_version")
    try:
        taken = take(array, max_version=(2, 0))
    except Exception as error:
        raise Broken(f"max_version=(2, 0) was refused, {refusal(error)}") from None
    taken.delete()
    return f"{taken.name.decode()} {taken.version[0]}.{taken.version[1]}"


# ---- the capsule ----


@RULES.add(MUST, "The result is a capsule named dltensor or dltensor_versioned.", PYTHON("Implementation"))
def capsule_name(library: Library) -> str:
    array = array_of(library)
    names = {Taken(array.__dlpack__(**keywords)).name.decode() for keywords in ways(array)}
    return " and ".join(sorted(names))


@RULES.add(MUST, "A capsule that nobody took calls the deleter when it goes.", PYTHON("Implementation"))
def capsule_dropped(library: Library) -> str:
    array = array_of(library)
    for keywords in ways(array):
        taken = Taken(array.__dlpack__(**keywords))
        taken.watch()
        taken.capsule = None
        gc.collect()
        if taken.deletions > 1:
            raise Broken(f"the deleter of {taken.name.decode()} was called {taken.deletions} times")
        if taken.deletions == 0:  # a destructor may call the same function, and not by the tensor's pointer
            check_growth(library, keywords)
    return "the tensor was deleted"


def check_growth(library: Library, keywords: dict[str, Any]) -> None:
    """Broken if dropped capsules keep their memory."""
    values, count = [1.0] * (1 << 15), 64
    before = 0
    for turn in range(count + 4):
        if turn == 4:
            before = resident_bytes()
        library.make(values, "float32").__dlpack__(**keywords)
    growth = resident_bytes() - before
    if growth > count * len(values) * 4 // 2:
        raise Broken(f"{count} capsules that were dropped kept {growth >> 20} MiB")


def resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # a Mac, which counts bytes, and the most that there were
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@RULES.add(MUST, "A capsule that was renamed calls no deleter when it goes.", PYTHON("Implementation"))
def capsule_taken(library: Library) -> str:
    array = array_of(library)
    for keywords in ways(array):
        taken = take(array, **keywords)
        taken.watch()
        taken.capsule = None
        gc.collect()
        if taken.deletions != 0:
            raise Broken(f"the capsule of {taken.name.decode()} deleted a tensor that was taken")
        taken.delete()
    return "the deleter is left to the consumer"


@RULES.add(
    MUST, "The deleter takes the GIL itself if it needs it: it works on a thread of C's.", PYTHON("Implementation")
)
def deleter_thread(library: Library) -> str:
    process = ctypes.CDLL(None)
    for keywords in ways(array_of(library)) * 3:
        taken = take(array_of(library), **keywords)
        if not taken.managed.deleter:
            raise Absent("its tensors have no deleter")
        thread = ctypes.c_size_t()
        deleter, address = ctypes.c_void_p(taken.managed.deleter), ctypes.c_void_p(taken.address)
        if process.pthread_create(ctypes.byref(thread), None, deleter, address):
            raise Absent("no thread could be started")
        process.pthread_join(thread, None)
    gc.collect()
    return "it was called on a thread that Python does not know"


# ---- the memory ----


@RULES.add(MUST, "The tensor's data, shape and strides lead to the array's items.", HEADER("DLTensor"))
def items(library: Library) -> str:
    array = array_of(library)
    for keywords in ways(array, **readable(array)):
        taken = take(array, **keywords)
        expect(taken.items(), SAMPLE, f"the items of {taken.name.decode()}")
        taken.delete()
    return "float32, as they are"


@RULES.add(MUST, "Strides count items, not bytes; a view's tensor has the view's items.", HEADER("DLTensor.strides"))
def views(library: Library) -> str:
    rows = library.make(ROWS, "float32")
    found = library.views(rows)
    if not found:
        raise Absent("it has no views")
    for name, view in found.items():
        try:
            taken = take(view, **newest(view))
        except BufferError:
            continue  # rule "unexportable" asks for it
        expect(taken.items(), flat(library.tolist(view)), f"the items of a view ({name})")
        taken.delete()
    return ", ".join(found)


@RULES.add(MUST, "From version 1.2 on strides are never NULL, but for 0 dimensions.", HEADER("DLTensor.strides"))
def strides_given(library: Library) -> str:
    taken = versioned(array_of(library))
    if taken.version < (1, 2):
        raise Absent(f"its tensors are stamped {taken.version[0]}.{taken.version[1]}")
    if not taken.tensor.strides:
        raise Broken(f"strides are NULL in version {taken.version[0]}.{taken.version[1]}")
    taken.delete()
    return "they are there"


@RULES.add(MUST, "An array of 0 dimensions is one item, with ndim 0.", HEADER("DLTensor.shape"))
def zero_dimensions(library: Library) -> str:
    array = library.make(7.0, "float32")
    taken = take(array, **newest(array))
    expect(taken.tensor.ndim, 0, "ndim")
    expect(taken.items(), [7.0], "items")
    taken.delete()
    return "ndim 0, one item"


@RULES.add(SHOULD, "A tensor of size zero has NULL for data.", HEADER("DLTensor.data"))
def empty(library: Library) -> str:
    array = library.make([], "float32")
    taken = take(array, **newest(array))
    if taken.tensor.data:
        raise Broken("data is not NULL")
    taken.delete()
    return "data is NULL"


@RULES.add(SHOULD, "data is aligned to 256 bytes, and byte_offset says where the items begin.", HEADER("DLTensor.data"))
def alignment(library: Library) -> str:
    least = 256
    sizes = (3, 100, 1000, 5000) * 8  # a few could lie well by chance
    arrays = [library.make([0.0] * size, "float32") for size in sizes]
    for array in arrays:
        taken = take(array, **newest(array))
        address = int(taken.tensor.data or 0)
        least = min(least, address & -address)
        taken.delete()
    if least < 256:
        raise Broken(f"of {len(sizes)} new arrays one lay at a multiple of {least} bytes")
    return f"{len(sizes)} new arrays lay at multiples of 256 bytes"


@RULES.add(MUST, "The memory lives as long as the tensor, whatever becomes of the array.", PYTHON("Semantics"))
def lifetime(library: Library) -> str:
    for length in (6, 5000):
        values = [float(i % 251) for i in range(length)]
        array = library.make(values, "float32")
        taken = take(array, **newest(array))
        del array
        gc.collect()
        others = [library.make([9.0] * length, "float32") for _ in range(4)]
        expect(taken.items(), values, "the items after the array had gone")
        taken.delete()
        del others
    return "the items outlive the array"


@RULES.add(MUST, "The array can be used after the deleter as before.", PYTHON("Semantics"))
def array_goes_on(library: Library) -> str:
    array = array_of(library)
    first, second = take(array, **newest(array)), take(array, **newest(array))
    first.delete()
    expect(second.items(), SAMPLE, "the items of a second tensor, when the first was deleted")
    second.delete()
    expect(flat(library.tolist(array)), SAMPLE, "the array's items")
    third = take(array, **newest(array))
    expect(third.items(), SAMPLE, "the items of a third tensor")
    third.delete()
    return "it was exported three times"
