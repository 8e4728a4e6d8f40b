"""What to do where the package lies without its extension module: loaded when the import of that has failed."""

from __future__ import annotations

import sysconfig
from pathlib import Path


def advice(folder: str) -> str:
    """A sentence or two about the package in `folder`."""
    built = sorted(path.name for path in Path(folder).glob("_core.*.so"))
    if built:
        why = f"{', '.join(built)} is for another Python than this one ({sysconfig.get_config_var('EXT_SUFFIX')})"
    else:
        why = "its extension module is not built"
    return (
        f"metal_dlpack cannot be imported from {folder}: {why}. Run `python -m pip install .` in the checkout with "
        "this Python. If you mean another metal_dlpack, which is installed, start Python outside of the folder that "
        "holds this one."
    )
