"""What there is no stand-in for: declarations that need it are left out; a kernel that needs one of them is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

from metal_dlpack.language.declarations import INSTANTIATION, Declaration
from metal_dlpack.language.tokens import Tokens

_FEATURES = {
    "ray tracing": r"raytracing|intersector|intersection_query|acceleration_structure|\w+_acceleration_structure",
    "MetalPerformancePrimitives": r"mpp|tensor_(ops|handle|inline|offset)|cooperative_tensor|dextents",
    "tensors of numbers smaller than a byte": r"u?int[1-7]b_format|fp\d_\w+_format",
    "indirect command buffers": r"command_buffer|render_command|compute_command|compute_pipeline_state",
    "function tables": r"visible_function_table|intersection_function_table",
    "imageblocks": r"imageblock|imageblock_slice|threadgroup_imageblock",
    "mesh shaders": r"mesh_grid_properties|object_data",
}
_FEATURE = re.compile("|".join(f"(?P<f{nth}>{words})" for nth, words in enumerate(_FEATURES.values())))


@dataclass(frozen=True, slots=True)
class Lack:
    """What a declaration needs and does not get, and the word that shows it."""

    feature: str
    at: int

    def sentence(self, kernel: str) -> str:
        return f"the kernel '{kernel}' needs {self.feature}, which need a Mac: they are not supported without one"


def find(tokens: Tokens, found: list[Declaration]) -> dict[int, Lack]:
    """What each declaration lacks, by id; those that lack nothing are not among them."""
    words = tokens.words
    needed = {word: feature for word in set(words) if (feature := _feature(word))}
    if not needed:
        return {}
    lacks: dict[int, Lack] = {}
    known: set[str] = set()
    names = {id(one): one.name(tokens) for one in found if one.kind != INSTANTIATION}
    while needed:
        for one in found:
            if id(one) in lacks:
                continue
            at = next((at for at in range(one.first, one.last + 1) if words[at] in needed), None)
            if at is not None:
                lacks[id(one)] = Lack(needed[words[at]], at)
        known |= set(needed)
        needed = _left_without_declaration(names, lacks, known)
    return lacks


def _left_without_declaration(names: dict[int, str], lacks: dict[int, Lack], known: set[str]) -> dict[str, str]:
    """Names that only declarations which lack something declare: who uses them lacks it too."""
    there = {name for key, name in names.items() if key not in lacks}
    return {
        name: lacks[key].feature
        for key, name in names.items()
        if key in lacks and name and name not in there and name not in known
    }


def _feature(word: str) -> str | None:
    found = _FEATURE.fullmatch(word)
    if found is None:
        return None
    nth = next(int(name[1:]) for name, text in found.groupdict().items() if text is not None and name[1:].isdigit())
    return list(_FEATURES)[nth]
