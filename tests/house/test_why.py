"""docs/why.md: what it says of the frameworks is what happens here, with their installed versions."""

import re

import numpy as np
import pytest
from children import run_child
from places import DOCS

import metal_dlpack as md

pytestmark = pytest.mark.needs_softmetal

TABLE = (DOCS / "why.md").read_text().split("## Tried here\n")[1].split("\n## ")[0]
#: (code, what it does, what it did before a version of NumPy, that version)
ROWS = re.findall(r"`([^`|]+)`: (`[^`|]+`|the process is aborted)(?: \((`[^`|]+`) before NumPy ([\d.]+)\))?", TABLE)
ABORTED = "the process is aborted"


def test_the_table_has_two_columns_of_code():
    assert len(ROWS) == 2 * (TABLE.count("\n| ") - 2) == 20
    assert sum(result == ABORTED for _, result, *_ in ROWS) == 1
    assert TABLE.count(" before ") == sum(bool(version) for *_, version in ROWS)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_each_line_of_code_does_what_the_table_says(subtests, torch, jnp, mx):
    def names():
        x = np.arange(6, dtype="float32").reshape(2, 3)
        r = np.zeros(3, "float32")
        r.flags.writeable = False
        a = md.from_dlpack(x)
        return modules | {"x": x, "r": r, "a": a, "t": torch.from_dlpack(a)}

    modules = {"np": np, "torch": torch, "jnp": jnp, "mx": mx, "md": md}
    for code, newest, older, version in ROWS:
        result = older if older and np.lib.NumpyVersion(np.__version__) < f"{version}.0" else newest
        with subtests.test(code):
            if result == ABORTED:
                script = f"import numpy as np, torch\nx = np.zeros((2, 3), 'float32')\n{code}"
                assert run_child(script).returncode < 0
            elif result.endswith("Error`"):
                with pytest.raises(Exception) as caught:
                    eval(code, names())
                assert result.strip("`") in [kind.__name__ for kind in type(caught.value).__mro__]
            else:
                assert repr(eval(code, names())) == result.strip("`")
