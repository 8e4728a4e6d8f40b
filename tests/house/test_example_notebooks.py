"""The notebooks of examples/ run from top to bottom.  `make notebooks` runs them in JupyterLab, in a browser."""

import json
import os

import pytest
from children import run_child
from places import ROOT

pytestmark = [pytest.mark.needs_numpy, pytest.mark.needs_torch, pytest.mark.needs_mlx, pytest.mark.needs_kernels]

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))

#: What the cells print, of what the text beside them promises.
SAID = {
    "model_file": ["(device(type='mps', index=0), True)", "(2.0, 1.0)", "tensor  █", "(private), 250 KiB"],
    "share": [
        "(device(type='mps', index=0), True)",
        "42.0 42.0",
        "corner  ·",
        "theirs  █",
        "Explanation(outcome='refusal'",
        "asarray: list has no memory to share",
    ],
    "softmax_kernel": ["In [1] 4 12 ", "device(type='mps', index=0)", "True"],
    "streams": ["1000000.0", ", True)", "6.0", "[5.0, 5.0, 5.0, 5.0]", "twice: argument 'x'"],
}


#: The code cells, as a notebook runs them.
RUN = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in json.loads(Path(sys.argv[1]).read_text())["cells"]:
    if cell["cell_type"] == "code" and not shell.run_cell("".join(cell["source"])).success:
        sys.exit(1)
"""


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook):
    done = run_child(RUN, notebook, IPYTHONDIR=os.devnull)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert [text for text in SAID[notebook.stem] if text not in done.stdout] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_output(notebook):
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []
    assert NOTEBOOKS  # else this and the others were asked of nothing
