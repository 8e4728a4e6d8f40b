"""What a Python does that starts where SOFTMETAL_TORCH or SOFTMETAL_MLX is set: metal_dlpack.pth imports this.

So what a program switches on is there in the processes that it starts too.  Like pytest's plugin this stands outside of
the package, which is imported when torch or mlx.core is: a Python that imports neither pays nothing.
PYTEST_DONT_REWRITE: it is imported before pytest.
"""

from __future__ import annotations

import os
import sys

from _metal_dlpack_imports import is_awaited, when_imported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: By the module whose import shows that a program wants it: the variable that asks for it, and what of
#: softmetal switches it on.  metal_dlpack.pth names the variables once more.
SWITCHES = {"torch": ("SOFTMETAL_TORCH", "torch_mps"), "mlx.core": ("SOFTMETAL_MLX", "mlx_kernels")}


def start() -> None:
    """Switch on what the environment asks for; once, though Python reads .pth files twice in a venv."""
    switch_on_when_imported(module for module in asked() if not is_awaited(module))


def asked() -> list[str]:
    """The modules whose variable is set, and not to "0"."""
    return [module for module, (name, _) in SWITCHES.items() if os.environ.get(name, "0") not in ("", "0")]


def variables_of(modules: Iterable[str]) -> dict[str, str]:
    """What asks for these modules, of the environment that is handed on."""
    return {SWITCHES[module][0]: "1" for module in modules}


def switch_on_when_imported(
    modules: Iterable[str], around: Callable[[Callable[[], object]], object] | None = None
) -> Callable[[], None]:
    """Switch on what these modules have on a Mac, each when it is imported; the returned function takes that back.

    `around` is called with what switches on, and calls it.  On a Mac the modules have their own, and nothing is done.
    """
    if sys.platform == "darwin":
        return lambda: None

    def switcher(module: str) -> Callable[[], object]:
        return lambda: around(lambda: _switch_on(module)) if around is not None else _switch_on(module)

    forget = [when_imported(module, switcher(module)) for module in modules]

    def forget_all() -> None:
        for one in forget:
            one()

    return forget_all


def _switch_on(module: str) -> None:
    variable, function = SWITCHES[module]
    try:
        import softmetal
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name in ("softmetal", "metal_dlpack"):
            # It was there when this Python started: somebody has taken it off the path since, as pip does for a build.
            import warnings

            why = "metal_dlpack is not on the path of this Python any more"
            warnings.warn(f"{variable} is set, and nothing is switched on: {why}.", RuntimeWarning, stacklevel=4)
            return
        # No ImportError: programs take that for a missing torch, and tests for a reason to skip.
        raise RuntimeError(
            f"{variable} is set, and metal_dlpack cannot be imported. Unset the variable, or mend this: {error}"
        ) from error
    getattr(softmetal, function)()
