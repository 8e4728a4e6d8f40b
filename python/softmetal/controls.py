"""The software Metal's controls: live objects, validation reports, settings, and a wait for all of its work.

softmetal/__init__.py has them for users; what runs and counts kernels takes them from here.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from metal_dlpack import _core

#: What `configure` has set, by name; None: the default.  For what wants to restore it.
configured: dict[str, str | None] = {}


class SoftwareMetalMissing(RuntimeError):
    """This build uses Apple's Metal, which has none of these controls."""

    __module__ = "softmetal"


def is_present() -> bool:
    """True where the software Metal is compiled in."""
    return hasattr(_core, "_softmetal_live_objects")


def live_objects(kind: str | None = "MTLBuffer") -> int:
    """How many objects of a class or protocol live in this process; None counts all."""
    return int(_control("live_objects")(kind))


def reports(kind: str | None = None) -> int:
    """How many validation reports of a kind ("blit-range") were made; None counts all."""
    return int(_control("reports")(kind))


def last_report() -> str:
    """The text of the last validation report; "" if there was none."""
    return str(_control("last_report")())


def wait_idle(timeout: float = 10.0) -> bool:
    """Wait until no committed command buffer is left, on any queue of the process.  Torch's work is committed first.

    `timeout` is in seconds; returns False when it has passed.  Ctrl-C takes effect at its end.
    """
    wait = _control("wait_idle")
    if (device := sys.modules.get("softmetal.torch")) is not None:
        device.commit()  # on all of its streams; an MLX array that nobody evaluates runs on no machine
    return bool(wait(round(timeout * 1000)))


def configure(**settings: object) -> None:
    """Change settings of the running software Metal.

    The names are those of the environment, in small letters and without the prefix:
    ``configure(latency_us=500)`` is SOFTMETAL_LATENCY_US=500.  None restores the default.
    Raises ValueError for an unknown name or a wrong value; the settings before it stay in effect.
    """
    change = _control("set")
    for name, value in settings.items():
        text = _setting_text(value)
        change("SOFTMETAL_" + name.upper(), text)
        configured[name] = text


def demand(what: str) -> None:
    """Raise SoftwareMetalMissing, with the way out, for what counts; nothing where the software Metal is."""
    if not is_present():
        raise SoftwareMetalMissing(
            f"{what}: the counts need the software Metal, and this build uses Apple's. Run it in a Linux container, "
            'beside a checkout of metal_dlpack: docker run --rm -v "$PWD:/w" -w /w python:3.13 sh -c "apt-get update '
            "-q; apt-get install -qy gobjc; pip install -q './metal_dlpack[kernels]'; python your_script.py\"."
        )


def checks_kernels() -> bool:
    """Whether a kernel that is made now is checked."""
    setting = configured.get("kernel_check")
    return (os.environ.get("SOFTMETAL_KERNEL_CHECK", "0") if setting is None else setting) != "0"


def _setting_text(value: object) -> str | None:
    if value is None:
        return None
    return str(int(value)) if isinstance(value, bool) else str(value)


def _control(name: str) -> Any:
    try:
        return getattr(_core, "_softmetal_" + name)
    except AttributeError:
        raise SoftwareMetalMissing("The software Metal is not part of this build, which uses Apple's Metal.") from None
