"""Which of torch's operators have a kernel of MPS on a Mac: torch's own list says it, in every wheel alike.

It packs torchgen with the list of all operators and of the devices that have them, native_functions.yaml; it is read as
text, since torch does not need a parser of YAML.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

WHERE = "packaged/ATen/native/native_functions.yaml"


def packed_list() -> str:
    """The list of the torch that is installed; raise RuntimeError where it packs none."""
    found = find_spec("torchgen")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder, WHERE)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise RuntimeError(
        f"softmetal.torch_mps: this torch has no torchgen/{WHERE}, which names the operators of MPS. "
        "Install torch from a wheel of PyPI or pytorch.org."
    )


def with_kernels(text: str, key: str = "MPS") -> list[str]:
    """The operators, as "add.out", for which a device has a kernel of its own."""
    keys, delegates = {}, {}
    for entry in re.split(r"^- func: ", text, flags=re.MULTILINE)[1:]:
        name = entry.partition("(")[0]
        rows = re.findall(r"^    ([\w, ]+):", entry, flags=re.MULTILINE)  # of `dispatch:`
        keys[name] = {one.strip() for row in rows for one in row.split(",")}
        if delegate := re.search(r"^  structured_delegate: (\S+)", entry, flags=re.MULTILINE):
            delegates[name] = delegate[1]  # that one's kernel for dense tensors does this one's work
    dense = "Sparse" not in key
    return [name for name in keys if key in keys[name] or (dense and key in keys[delegates.get(name, name)])]


def as_source(text: str) -> str:
    """C++ that defines the lists which refusals.cpp declares."""
    return "".join(
        f"namespace torch_mps {{ extern const char *const {names}[]; const char *const {names}[] = {{\n"
        + "".join(f'    "aten::{name}",\n' for name in with_kernels(text, key))
        + "    nullptr,\n}; }\n"
        for names, key in (("kernels_of_mps", "MPS"), ("kernels_of_sparse_mps", "SparseMPS"))
    )
