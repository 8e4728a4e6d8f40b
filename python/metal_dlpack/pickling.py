"""Arrays through pickle: the bytes go as they lie in memory, and come back as a Metal buffer over what arrives.

With protocol 5 the bytes can travel out of band: nothing is copied here on either side, and what a transport (Dask,
Ray, multiprocessing) hands over becomes the buffer's memory, a read-only one if it is a bytes object.  Older protocols
copy once to make a bytes object, and once more to make a buffer that can be written.

Where joblib is imported the bytes go as a NumPy array over the same memory.  Its picklers have ways of their own for
those: a large one goes to a file that its workers map, is written to disk as it lies, and is hashed without a copy.

Source: PEP 574, "Pickle protocol 5 with out-of-band data"; joblib, "Working with numerical data in shared memory".
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    import numpy as np

OUT_OF_BAND_PROTOCOL = 5


def nothing() -> None:
    pass


#: _metal_dlpack_dask.py puts a function here that gives free memory back.
before_pickling: Callable[[], object] = nothing

#: By the id of a living Array what tells of its end, and the NumPy array over its bytes that joblib was given.
_given_to_joblib: dict[int, tuple[weakref.ref[_core.Array], np.ndarray[Any, Any]]] = {}


def reduce_array(array: _core.Array, protocol: int) -> tuple[Any, tuple[Any, ...]]:
    """What Array.__reduce_ex__ returns.

    A failure of GPU work is raised once.  Dask answers an error of pickle by other picklers, which must not send what
    the failure left: while it is handled, an Array that raises it is sent.
    """
    before_pickling()
    handled = sys.exception()
    if isinstance(handled, _core.MetalError) and vars(handled).get("not_sent") is array:
        return unusable_array, (text_of("could not be sent: ", handled, array.dtype, array.shape),)
    try:
        return facts_and_bytes(array, protocol)
    except _core.MetalError as error:
        vars(error)["not_sent"] = array
        raise


def facts_and_bytes(array: _core.Array, protocol: int) -> tuple[Any, tuple[Any, ...]]:
    dense = dense_form(array)
    data: Any = b""
    if dense.nbytes > 0:
        has_joblib = {"joblib", "numpy"} <= sys.modules.keys()
        data = bytes_for_joblib(array, dense) if has_joblib else bytes_for_pickle(array, dense, protocol)
    place = array.storage, array.device.index
    facts = array.readonly, array.padded, protocol < OUT_OF_BAND_PROTOCOL
    return restore_array, (data, array.dtype, array.shape, dense.strides, *place, *facts)


def items_as_bytes(array: _core.Array, dense: _core.Array) -> _core.Array:
    """The memory of `dense`, which can be written if `array` can."""
    memory = dense.buffer.array(dense.nbytes, "uint8", dense.byte_offset)
    return memory.as_readonly() if array.readonly else memory


def bytes_for_pickle(array: _core.Array, dense: _core.Array, protocol: int) -> PickleBuffer | bytes:
    memory = PickleBuffer(items_as_bytes(array, dense))
    return memory if protocol >= OUT_OF_BAND_PROTOCOL else memory.raw().tobytes()


def bytes_for_joblib(array: _core.Array, dense: _core.Array) -> np.ndarray[Any, Any]:
    """A NumPy array, the same one for the same Array: joblib knows by it what it has written to a file already.

    It keeps the Buffer and not the Array, at whose end it is forgotten.  Copies are not kept, which would be stale.
    """
    import numpy as np

    view = np.asarray(items_as_bytes(array, dense))  # waits for GPU work that writes these bytes
    if dense is not array:
        return view
    # pop() itself is the callback, without a Python step: what Ctrl-C raised there would be lost, and the next
    # Array at this address would be written as this one.
    end = weakref.ref(array, partial(_given_to_joblib.pop, id(array)))
    return _given_to_joblib.setdefault(id(array), (end, view))[1]  # of two threads that come at once, one gives it


def dense_form(array: _core.Array) -> _core.Array:
    """The array itself if its items fill one stretch of CPU memory in some order of the axes, else a copy that does."""
    is_plain = array.layout.is_dense and min(array.strides, default=0) >= 0
    if is_plain and array.storage != "private":
        return array
    return array.copy(order="K", storage="shared")


def restore_array(*parts: Any) -> _core.Array | UnusableArray:
    """An equal Array, from the arguments of `rebuild`.  What C pickles names this function."""
    try:
        return rebuild(*parts)
    except _core.MetalError as error:
        if not is_worker():
            raise
        return UnusableArray((restore_array, parts), text_of("came from another process. ", error, *parts[1:3]))


def unusable_array(text: str) -> UnusableArray:
    return UnusableArray((unusable_array, (text,)), text)


def text_of(what: str, error: _core.MetalError, dtype: _core.dtype, shape: tuple[int, ...]) -> str:
    return f"Array: an Array of shape {shape} and dtype {dtype.name} {what}{str(error).partition(': ')[2]}"


def is_worker() -> bool:
    """Was this process started by multiprocessing, or by what stands on it?"""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


class UnusableArray:
    """An Array that came to a worker without Metal, such as a forked one, or that the GPU failed to make.

    It can be sent on, and all else raises.  A worker that cannot read its task ends without a word, and
    multiprocessing.Pool waits for ever for the result; so does Dask where a worker cannot send.  So the task is what
    fails, and its exception reaches who asked for the result.
    """

    __slots__ = ("reduced", "text")

    def __init__(self, reduced: tuple[Any, ...], text: str) -> None:
        object.__setattr__(self, "reduced", reduced)
        object.__setattr__(self, "text", text)

    def __getattribute__(self, name: str) -> Any:
        if name == "__reduce_ex__":
            return object.__getattribute__(self, name)
        if name == "host":  # what HostView asks when it is received
            return UnusableArray((getattr, (self, name)), object.__getattribute__(self, "text"))
        return refuse(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = object.__getattribute__(self, "reduced")
        return reduced

    def __repr__(self) -> str:
        text: str = object.__getattribute__(self, "text")
        return f"<{text}>"


def refuse(array: UnusableArray, *_: Any) -> Any:
    raise _core.MetalError(object.__getattribute__(array, "text"))


#: What every object needs, be it of use or not.
ITS_OWN = {"__new__", "__hash__", "__sizeof__", *vars(UnusableArray)}
for _name, _value in vars(_core.Array).items():  # Python looks for these at the type
    if _name.startswith("__") and callable(_value) and _name not in ITS_OWN:
        setattr(UnusableArray, _name, refuse)


def rebuild(
    data: Any,
    dtype: _core.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    storage: Any,
    device_index: int,
    is_readonly: bool,
    is_padded: bool = False,
    is_old: bool = True,
) -> _core.Array:
    """An Array over `data`, a bytes-like object, or with its bytes where the storage or the alignment asks for a copy.

    A device that this machine has not becomes the default one.  Memory that cannot be written makes a read-only Array,
    as with NumPy.  `is_old`: the bytes came with an older protocol, which has nothing else: they are copied for an
    Array that was writable.
    """
    devices = _core.devices()
    device = devices[device_index if device_index < len(devices) else 0]
    layout = _core.StridedLayout._restore(shape, strides, dtype.itemsize, 0)  # with strides that take no step
    with memoryview(data) as given:
        if given.nbytes == 0:
            array = _core.Buffer(0, device=device, storage=storage).array(layout, dtype, padded=is_padded)
        else:
            must_copy = is_old and type(data) is bytes and not is_readonly
            buffer, offset = place_bytes(given.cast("B"), dtype, storage, device, must_copy)
            array = buffer.array(layout, dtype, offset, is_padded)
    return array.as_readonly() if is_readonly else array


def place_bytes(
    data: memoryview, dtype: _core.dtype, storage: Any, device: _core.Device, must_copy: bool
) -> tuple[_core.Buffer, int]:
    """A buffer that holds `data`, and where in it: shared if that is possible and asked for."""
    if storage == "shared" and not must_copy:
        array = _core.asarray(data, device=device)
        if array.byte_offset % dtype.alignment == 0:
            return array.buffer, array.byte_offset
    buffer = _core.Buffer(data.nbytes, device=device, storage=storage)
    buffer.copy_from(data)
    return buffer, 0
