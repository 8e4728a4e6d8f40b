"""`flags` of an Array, in NumPy's words."""

from __future__ import annotations

from typing import Any, NoReturn

#: NumPy's names in brackets, and the attribute of each.
_KEYS = {"C_CONTIGUOUS": "c_contiguous", "F_CONTIGUOUS": "f_contiguous", "WRITEABLE": "writeable", "ALIGNED": "aligned"}
_KEYS |= {name[0]: attribute for name, attribute in _KEYS.items()}


class ArrayFlags:
    """What NumPy's flags say of an Array: ``a.flags.c_contiguous``, ``a.flags["WRITEABLE"]``.  They cannot be set."""

    __slots__ = ("c_contiguous", "f_contiguous", "writeable", "aligned")  # noqa: RUF023  # NumPy's order, for repr
    c_contiguous: bool
    f_contiguous: bool
    writeable: bool
    aligned: bool

    def __init__(self, array: Any):  # an Array: _core's stub imports this module
        layout = array.layout
        known = (layout.is_contiguous_c, layout.is_contiguous_f, not array.readonly, True)  # SPEC array.h Invariant
        for name, value in zip(self.__slots__, known, strict=True):
            object.__setattr__(self, name, value)

    def __getitem__(self, key: str) -> bool:
        if key not in _KEYS:
            raise KeyError(f"an Array has no flag {key!r}; it has {', '.join(_KEYS)}.")
        value: bool = getattr(self, _KEYS[key])
        return value

    def __getattr__(self, name: str) -> NoReturn:
        hint = "; memory belongs to Buffers: ask whether a.buffer is b.buffer" if name == "owndata" else ""
        raise AttributeError(f"an Array has no flag {name!r}{hint}.")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"the flag {name!r} of an Array cannot be set; a.as_readonly() is a view through which nothing is written, "
            "a.copy() can be written."
        )

    def __repr__(self) -> str:
        return "\n".join(f"  {name.upper()} : {getattr(self, name)}" for name in self.__slots__)
