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
    matches = [match for word in set(words) if (match := _FEATURE.fullmatch(word))]
    needed = {match[0]: list(_FEATURES)[int(str(match.lastgroup)[1:])] for match in matches}
    names = {id(one): one.name(tokens) for one in found if one.kind != INSTANTIATION} if needed else {}
    lacks: dict[int, Lack] = {}
    fresh = needed
    while fresh:
        for one in found:
            at = next((at for at in range(one.first, one.last + 1) if words[at] in fresh), None)
            if at is not None:
                lacks.setdefault(id(one), Lack(fresh[words[at]], at))
        # Names that only declarations which lack something declare: who uses them lacks it too.
        there = {"", *needed, *(name for key, name in names.items() if key not in lacks)}
        fresh = {name: lacks[key].feature for key, name in names.items() if name not in there}
        needed |= fresh
    return lacks
