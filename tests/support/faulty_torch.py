"""A pytest plugin: torch with a fault in its exchange, for the questions about torch that a Mac is asked.

FAULT says which: "takes copies", "takes copies of matrices", "gives copies", "refuses", "no GPU", "missing".
"""

import os
import sys

FAULT = os.environ["FAULT"]


def copy_given(torch):
    usual = torch.Tensor.__dlpack__
    del torch.Tensor.__dlpack_c_exchange_api__  # another way in
    torch.Tensor.__dlpack__ = lambda tensor, **keywords: usual(tensor.clone(), **keywords)


def fault_taken(torch):
    usual = torch.from_dlpack

    def take(x, **keywords):
        if FAULT == "refuses":
            raise ValueError("not without a copy")
        tensor = usual(x, **keywords)
        return tensor.clone() if FAULT == "takes copies" or tensor.ndim > 1 else tensor

    torch.from_dlpack = take


def break_torch():
    import torch

    import softmetal

    softmetal.torch_mps()
    if FAULT == "no GPU":
        torch.backends.mps.is_available = lambda: False
    elif FAULT == "gives copies":
        copy_given(torch)
    else:
        fault_taken(torch)


if FAULT == "missing":
    sys.modules["torch"] = None
else:
    break_torch()
