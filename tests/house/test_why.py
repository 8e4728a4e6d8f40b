"""docs/why.md: what it says of the frameworks is what happens here, with their installed versions."""

import re
import subprocess
import sys

import numpy as np
import pytest
from places import DOCS

import metal_dlpack as md

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_torch, pytest.mark.needs_jax, pytest.mark.needs_mlx]

TABLE = (DOCS / "why.md").read_text().split("## Tried here\n")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| `([^|]+)` \| ([^|]+) \|$", TABLE, re.MULTILINE)
ABORTED, CAPSULE = "the process is aborted", "a `dltensor` capsule"


def names():
    import jax.numpy as jnp
    import mlx.core as mx
    import torch

    x = np.arange(6, dtype="float32").reshape(2, 3)
    r = np.zeros(3, "float32")
    r.flags.writeable = False
    a = md.from_dlpack(x)
    return {"np": np, "torch": torch, "jnp": jnp, "mx": mx, "md": md, "x": x, "r": r, "a": a, "t": torch.from_dlpack(a)}


def test_the_table_has_rows_of_each_kind():
    assert len(ROWS) == TABLE.count("\n| `") == 17
    assert sum(result.startswith(ABORTED) for _, result in ROWS) == 1


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize(("code", "result"), ROWS)
def test_a_row_is_what_happens(code, result):
    if result.startswith(ABORTED):
        script = f"import numpy as np, torch\nx = np.zeros((2, 3), 'float32')\n{code}"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=240, check=False)
        assert done.returncode < 0
    elif result.startswith(CAPSULE):
        assert '"dltensor"' in repr(eval(code, names()))
    elif (expected := re.match(r"`([^`]+)`", result)[1]).endswith("Error"):
        with pytest.raises(Exception) as caught:
            eval(code, names())
        assert expected in [kind.__name__ for kind in type(caught.value).__mro__]
    else:
        assert repr(eval(code, names())) == expected
