"""examples/softmax_kernel.py runs as it stands, with the kernel of the notebook beside it; so does docs/kernels.md."""

import json
import re

import pytest
from children import run_child
from places import ROOT

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_torch, pytest.mark.needs_numpy]

EXAMPLE = ROOT / "examples" / "softmax_kernel.py"
NOTEBOOK = ROOT / "examples" / "softmax_kernel.ipynb"
PAGE = (ROOT / "docs" / "kernels.md").read_text()


def cells():
    """The notebook's code, each cell's last expression printed as a notebook would."""
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def test_the_example_runs():
    done = run_child(EXAMPLE)
    assert done.returncode == 0, done.stderr
    assert "<metal_dlpack.Kernel softmax(x, y, width) on metal:0>" in done.stdout
    assert "torch tensors on mps:0" in done.stdout


@pytest.mark.needs_softmetal
def test_without_a_compiler_the_example_says_how_to_get_one():
    done = run_child(EXAMPLE, SOFTMETAL_CXX="/nowhere/clang++", SOFTMETAL_CACHE="/nowhere/cache")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "SOFTMETAL_CXX" in done.stdout


def test_both_have_one_kernel():
    (example,) = re.findall(r'SOURCE = """\n(.*?)"""', EXAMPLE.read_text(), re.DOTALL)
    assert any(example in cell for cell in cells())


def test_the_page_begins_with_an_example_that_runs():
    first = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    done = run_child(first)
    assert (done.returncode, done.stdout) == (0, "[0.5 1.  1.5]\n"), done.stderr
