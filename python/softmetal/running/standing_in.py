"""What metal_dlpack asks of what stands in for Metal: `_core._stand_in` names this module, from src/without_mac/.

A process that is checked imports it while softmetal itself may be half imported: the functions import what they need.
"""

from __future__ import annotations

from .reporting import begin_as_child as begin_as_child

#: The doctor's, of rows for which torch_mps() was called.
TORCH_NOTE = (
    "PyTorch computes on mps here, on the CPU, after softmetal.torch_mps(), under python -m softmetal "
    "or pytest --softmetal-torch; the first time a C++ compiler makes the device"
)


def torch_mps() -> None:
    import softmetal

    softmetal.torch_mps()


def has_compiler() -> bool:
    from softmetal.torch import building

    return building.has_compiler()
