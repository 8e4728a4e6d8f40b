"""What happens when a module is imported: a program that does not import it pays nothing.

PYTEST_DONT_REWRITE: _metal_dlpack_start imports it before pytest.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Loader:
    """The module's own, and what comes after it."""

    def __init__(self, own: Any, then: Callable[[], object]) -> None:
        self.own, self.then = own, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        self.then()


class _Finder:
    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        others = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        found = (finder.find_spec(name, path, target) for finder in others if hasattr(finder, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.then)  # type: ignore[assignment]
        return spec


def when_imported(name: str, then: Callable[[], object]) -> Callable[[], None]:
    """Call `then` once the module is imported, at once if it is; the function that is returned takes that back.

    The last call for a module counts.
    """
    if name in sys.modules:
        then()
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)

    def forget() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return forget


def is_awaited(name: str) -> bool:
    """Whether somebody waits for this module."""
    return any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path)
