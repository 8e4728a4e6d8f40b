"""Metal's scalars, from C's table (softmetal/metal_scalars.h), and how else sources and clang spell them."""

from __future__ import annotations

from metal_dlpack import _core

#: The element type of each.
SCALARS = {name: _core.dtype(kind) for name, kind in _core._metal_scalars.items()}
SPELLED = {
    **{f"{kind.name}_t": name for name, kind in SCALARS.items() if name != "bool"},
    "size_t": "ulong",
    "ptrdiff_t": "long",
    "signed char": "char",
    "unsigned": "uint",
    **{f"unsigned {name}": f"u{name}" for name in ("char", "short", "int", "long")},
}
#: In clang's messages.
CLANGS = {**SPELLED, "_Float16": "half", "__bf16": "bfloat", "long long": "long", "unsigned long long": "ulong"}
