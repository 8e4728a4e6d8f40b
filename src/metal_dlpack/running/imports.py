"""What happens when a module is imported: a program that does not import it pays nothing."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any


class _Loader(importlib.abc.Loader):
    """The module's own, and what comes after it."""

    def __init__(self, own: Any, then: Callable[[], object]) -> None:
        self.own, self.then = own, then

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.own.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.own
        self.own.exec_module(module)
        self.then()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name, self.then = name, then
        self._is_asking = False  # the others, of which one may be of this kind and ask in turn

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name or self._is_asking:
            return None
        self._is_asking = True  # one thread at a time imports a module
        try:
            found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((one for one in found if one is not None), None)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.then)
        return spec


def when_imported(name: str, then: Callable[[], object]) -> Callable[[], None]:
    """Call `then` once the module is imported, at once if it is; the function that is returned takes that back."""
    if name in sys.modules:
        then()
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)

    def forget() -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(finder)

    return forget
