"""Files that stand where a file of arrays is expected and are none: what each is, and what to do about it."""

from __future__ import annotations

import os
from typing import NoReturn

from .source import Source

#: SPEC git-lfs docs/spec.md: the first line of a pointer, which has less than 1024 bytes.
LFS_MARK = b"version https://git-lfs.github.com/spec/v1\n"
LFS_MOST = 1024
#: torch.serialization.MAGIC_NUMBER, pickled: files of torch before 1.6.
OLD_TORCH_MARK = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
#: SPEC pickletools: PROTO and its number, 2 to 5.
PICKLE_MARKS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
PICKLE_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle")


def refuse_lookalike(source: Source, head: bytes) -> None:
    """Return if the first bytes are not those of a Git LFS pointer or of a pickle."""
    if head.startswith(LFS_MARK):
        refuse_pointer(source)
    if head.startswith(OLD_TORCH_MARK):
        refuse_checkpoint(source)
    if head.startswith(PICKLE_MARKS) and source.path.lower().endswith(PICKLE_SUFFIXES):
        refuse_pickle(source)


def refuse_pointer(source: Source) -> NoReturn:
    lines = source.read_up_to(0, LFS_MOST).decode("ascii", "replace").splitlines()
    size = next((line[5:25] for line in lines if line.startswith("size ")), "unknown")
    source.refuse(
        f"it is a Git LFS pointer ({source.size} bytes) to a file of {size} bytes, which was not fetched; run "
        f"`git lfs pull` in its repository."
    )


def refuse_checkpoint(source: Source) -> NoReturn:
    source.refuse(
        "it is a PyTorch checkpoint: a pickle, which is not opened because loading one can run any code. Convert it "
        f"once: state = torch.load({os.path.basename(source.path)!r}, weights_only=True); "
        "safetensors.torch.save_file(state, 'model.safetensors')."
    )


def refuse_pickle(source: Source) -> NoReturn:
    source.refuse(
        "it is a Python pickle, which is not opened because loading one can run any code; load it with what wrote it, "
        "and save its arrays as .safetensors."
    )
