"""A model that is written as several .safetensors files: one mapping by way of their index.

An index is JSON: {"metadata": {...}, "weight_map": {tensor: file}}, as the transformers package writes it beside the
files.  A file (a *shard*) is opened when a tensor of it is first asked for.

Source: transformers, `save_pretrained`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from metal_dlpack import _core

from .array_file import ArrayFile
from .contents import TensorInfo
from .lookalikes import refuse_lookalike
from .safetensors import MAX_HEADER, read_object
from .single_file import SingleFile, open_single
from .source import FileFormatError, Source, shortened


class ShardedFile(ArrayFile):
    """The tensors of all shards, in the order of the index."""

    def __init__(
        self, path: str, mode: str, device: _core.Device, shard_names: dict[str, str], metadata: dict[str, Any]
    ):
        super().__init__(path, "safetensors", mode, shard_names.keys(), metadata)
        self._device = device
        self._folder = os.path.dirname(os.path.abspath(path))  # shards are opened later, maybe from another folder
        self._shard_names = shard_names
        self._shards: dict[str, SingleFile] = {}

    @property
    def shards(self) -> dict[str, int | None]:
        """The files beside the index with their lengths in bytes, None for one that is not there; opens none."""
        names = dict.fromkeys(self._shard_names.values())
        return {shard_name: length_of(self._path_of(shard_name)) for shard_name in names}

    @property
    def nbytes(self) -> int:
        return sum(length or 0 for length in self.shards.values())

    @property
    def is_mapped(self) -> bool:
        with self._lock:
            self._check_open()
            return all(shard.is_mapped for shard in self._all_shards())

    def _info(self, name: str) -> TensorInfo:
        return self._shard_of(name).info(name)

    def _array(self, name: str) -> _core.Array:
        return self._shard_of(name)[name]

    def _places(self, names: list[str]) -> Iterator[tuple[Source, list[TensorInfo]]]:
        held: dict[str, list[str]] = {}
        for name in names:
            held.setdefault(self._shard_names[name], []).append(name)
        for own in held.values():
            yield from self._shard_of(*own)._places(own)

    def _buffers(self) -> Iterator[_core.Buffer]:
        for shard in self._all_shards():
            yield from shard._buffers()

    def _let_go(self) -> None:
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    def _all_shards(self) -> list[SingleFile]:
        """Opens those that are not open."""
        return [self._shard(name) for name in dict.fromkeys(self._shard_names.values())]

    def _shard_of(self, *names: str) -> SingleFile:
        """The shard of names that the index has in one."""
        shard = self._shard(self._shard_names[names[0]])
        for name in names:
            if name not in shard:
                raise FileFormatError(
                    f"open: {shard.path}: tensor {shortened(name)}: it is not in this file, and the index {self.path} "
                    "has it here."
                )
        return shard

    def _shard(self, shard_name: str) -> SingleFile:
        shard = self._shards.get(shard_name)
        if shard is None:
            path = self._path_of(shard_name)
            try:
                shard = open_single(path, self._mode, self._device)
            except FileNotFoundError:
                sentence = f"open: {self.path} has tensors in {shortened(shard_name)}, which is not beside it; fetch it"
                raise FileNotFoundError(errno.ENOENT, sentence, path) from None
            self._shards[shard_name] = shard
        return shard

    def _path_of(self, shard_name: str) -> str:
        return os.path.join(self._folder, shard_name)


def length_of(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def open_sharded(path: str, mode: str, device: _core.Device) -> ShardedFile:
    """Read the index; no shard is opened."""
    source = Source(path)
    try:
        index = read_index(source)
        shard_names, metadata = index.get("weight_map"), index.get("metadata", {})
        if not isinstance(shard_names, dict):
            source.refuse("its weight_map is not an object of tensors and file names.")
        if not isinstance(metadata, dict):
            source.refuse("its metadata is not an object.")
        checked = set()
        for name, shard_name in shard_names.items():
            if not isinstance(shard_name, str) or shard_name not in checked:
                check_shard_name(source, name, shard_name)
                checked.add(shard_name)
    finally:
        source.close()
    return ShardedFile(path, mode, device, shard_names, metadata)


def read_index(source: Source) -> dict[str, Any]:
    if source.size > MAX_HEADER:
        source.refuse(f"it has {source.size} bytes, and an index of more than {MAX_HEADER} is not read.")
    text = source.read_up_to(0, source.size)
    refuse_lookalike(source, text)
    return read_object(source, text, "it")


def check_shard_name(source: Source, name: str, shard_name: Any) -> None:
    """A shard lies beside the index: a name with a folder in it could lead anywhere."""
    if not isinstance(shard_name, str) or not shard_name or "\0" in shard_name:
        source.refuse(f"its file ({str(shard_name)[:200]!r}) is not a file name.", name)
    if "/" in shard_name or "\\" in shard_name:
        source.refuse(f"its file ({shortened(shard_name)}) lies in another folder; shards lie beside the index.", name)
    if not shard_name.endswith(".safetensors"):
        source.refuse(
            f"its file ({shortened(shard_name)}) is not .safetensors; save the model with safe_serialization=True.",
            name,
        )
