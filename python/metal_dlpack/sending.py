"""share_mps_tensors(): torch.multiprocessing sends mps tensors through memory that both processes share.

torch sends a tensor as its storage and where in it the items lie.  It shares CPU storages: by file descriptors, or by
names in the file system, the only way on a Mac.  Here an mps storage is sent as a CPU storage in such memory, which the
receiver wraps into an MTLBuffer; so who keeps and removes the memory is torch's, and the same as for CPU tensors.

Source: torch/multiprocessing/reductions.py.
"""

from __future__ import annotations

import mmap
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

from . import _core

#: An attribute of an mps storage over shared memory: the CPU storage, and the strategy of torch that shares it.
SHARED = "_metal_dlpack_shared"
#: An attribute of that CPU storage: a weak reference to the mps storage.
WRAPPED = "_metal_dlpack_wrapped"


def share_mps_tensors() -> None:
    """Let `torch.multiprocessing` and a `DataLoader`'s workers send mps tensors, through shared memory.

    Without it torch refuses to send them.  Call it in each process that sends: at the top of the program's module,
    which spawned children import too.  A process that only receives needs no call.  A second call does nothing.

    >>> md.share_mps_tensors()
    >>> queue = torch.multiprocessing.get_context("spawn").Queue()
    >>> queue.put(torch.ones(3, device="mps"))

    Copies: one when a tensor is sent, into shared memory, because torch's own MTLBuffers belong to one process; none
    when it is received.  None at all for a tensor that lies in shared memory already: one that was received, and
    what `default_collate` makes in a worker of a `DataLoader`.

    Writes: processes that have the same shared memory see each other's writes.  The sender of a tensor that was
    copied sees none, and its later writes are not seen.  Wait with ``torch.mps.synchronize()`` before you tell the
    other process to read.  Sending waits for torch's work on mps.

    Views of one storage that are sent together arrive as views of one storage, with strides, offsets and
    ``requires_grad``.  The whole storage is sent: clone a small view of a large tensor.  A received storage cannot be
    resized.

    Lifetime: as for CPU tensors.  The memory goes with its last tensor in any process; the arguments of a process stay
    until it ends.  The sender must live until the receiver has the tensor; then the receiver may outlive it.

    Raises
    ------
    ImportError
        torch is missing.
    MetalError
        In the receiver: it was forked.  Metal does not survive ``fork()``, so start children by ``"spawn"`` or
        ``"forkserver"``.

    Threads: any.  Source: torch.multiprocessing, "Sharing CUDA tensors", which this follows.
    """
    import torch
    import torch.multiprocessing  # which registers torch's own

    if ForkingPickler._extra_reducers.get(torch.UntypedStorage) is reduce_storage:  # type: ignore[attr-defined]
        return
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    new_of_torch = torch.UntypedStorage._new_shared

    def new_shared(size: int, *, device: Any = "cpu") -> Any:
        """As torch's function of this name, which makes an mps storage in ordinary memory."""
        if torch.device(device).type != "mps" or size == 0:
            return new_of_torch(size, device=device)
        shared = new_of_torch(size + mmap.PAGESIZE)
        return wrap(shared, size, torch.multiprocessing.get_sharing_strategy())

    torch.UntypedStorage._new_shared = staticmethod(new_shared)


share_mps_tensors.__module__ = "metal_dlpack"  # where its users find it


def reduce_storage(storage: Any) -> tuple[Any, ...]:
    """What ForkingPickler sends for a storage of any device."""
    import torch
    from torch.multiprocessing import get_sharing_strategy, reductions

    if storage.device.type != "mps":
        result: tuple[Any, ...] = reductions.reduce_storage(storage)
        return result
    nbytes, strategy = storage.nbytes(), get_sharing_strategy()
    if nbytes == 0:
        return empty_storage, ()
    shared, how = vars(storage).get(SHARED, (None, None))
    if how == strategy:
        torch.mps.synchronize()
    else:  # torch would move memory that was shared the other way from under its MTLBuffer
        shared = torch.UntypedStorage._new_shared(nbytes + mmap.PAGESIZE)
        items_of(shared, nbytes).copy_(torch.empty(0, dtype=torch.uint8, device="mps").set_(storage))
        starting = get_spawning_popen()
        if starting is not None:  # a process that starts is given the storage's own descriptor, later
            vars(starting).setdefault(SHARED, []).append(shared)
    return receive_storage, (shared, nbytes, strategy)


def empty_storage() -> Any:
    import torch

    return torch.UntypedStorage(0, device="mps")


def receive_storage(shared: Any, nbytes: int, strategy: str) -> Any:
    """The mps storage over a CPU storage in shared memory, the same one while it lives."""
    import torch

    known = vars(shared).get(WRAPPED)
    storage = None if known is None else torch.UntypedStorage._new_with_weak_ptr(known.cdata)
    return wrap(shared, nbytes, strategy) if storage is None else storage


def wrap(shared: Any, nbytes: int, strategy: str) -> Any:
    """An mps storage over a CPU storage, which it keeps, in memory that torch shares by this strategy."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    storage = _core.asarray(items_of(shared, nbytes), copy=False).to(torch).untyped_storage()
    setattr(storage, SHARED, (shared, strategy))
    setattr(shared, WRAPPED, StorageWeakRef(storage))
    return storage


def items_of(shared: Any, nbytes: int) -> Any:
    """The bytes from a page's start: torch may put a count of users before, and an mps storage has no offset."""
    import torch

    first = -shared.data_ptr() % mmap.PAGESIZE
    return torch.empty(0, dtype=torch.uint8).set_(shared, first, (nbytes,), (1,))
