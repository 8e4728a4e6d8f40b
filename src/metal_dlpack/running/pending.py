"""What was asked for and has not run: begun, and waited for."""

from __future__ import annotations

import sys

from metal_dlpack import _core


def settle(idle_ms: int) -> bool:
    """Wait until no queue of the process has work; torch's, on all of its streams, is committed first.

    False: some still runs after so many milliseconds.  An array of MLX's that nobody evaluates runs on no machine.
    """
    if (device := sys.modules.get("metal_dlpack.torch_mps")) is not None:
        device.commit()
    return bool(_core._softmetal_wait_idle(idle_ms))
