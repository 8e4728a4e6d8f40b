"""examples/findings: each program prints the number that a published kernel gives, the right one, and what the mend gives."""

import os
import re

import fetched_data
import pytest
from children import output_of, run_child
from places import ROOT, python_path

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels, pytest.mark.needs_numpy]

FOLDER = ROOT / "examples" / "findings"
PAGE = (ROOT / "docs" / "findings.md").read_text()
#: The package that a program takes its kernels from, where they are not its own.
OF = {"mlx_fft": "mlx", "mlx_masked_vector": "mlx", "mlx_lm_losses": "mlx", "torch_numbers": "torch"}
#: A text for the project's tracker shows what its program prints.
WITH_A_TEXT = {"mlx_fft", "mlx_layer_norm", "mlx_lm_losses", "torch_quantized", "torch_scan"}
UPSTREAM = ROOT / "docs" / "upstream"
PRINTED = re.compile(r"(.+): published (.+), right (.+), mended (.+)")


def case(name, *more):
    return pytest.param(name, *more, marks=[getattr(pytest.mark, f"needs_{OF[name]}")] if name in OF else [])


def given(name):
    """The environment of a program, with the folder of what it imports."""
    more = [str(fetched_data.folder("mlx-lm"))] if name == "mlx_lm_losses" else []
    return {"PYTHONPATH": os.pathsep.join([python_path(), *more]), "SOFTMETAL_KERNEL_CHECK": "0"}


@pytest.mark.parametrize("name", [case(path.stem) for path in sorted(FOLDER.glob("*.py"))])
def test_what_is_published_is_wrong_and_the_mend_is_right(name):
    printed = output_of(FOLDER / f"{name}.py", **given(name))
    for line in printed.splitlines():
        _, published, right, mended = PRINTED.fullmatch(line).groups()
        assert published != right == mended, line
    assert printed and f"examples/findings/{name}.py" in PAGE
    if name in WITH_A_TEXT:
        assert f"```text\n{printed}```" in (UPSTREAM / f"{name}.md").read_text()


@pytest.mark.parametrize(
    ("name", "findings"), [case("mlx_lm_losses", 6), case("torch_quantized", 2), case("torch_scan", 2)]
)
def test_the_checker_finds_the_races_and_none_where_they_are_mended(name, findings):
    """Two of those of mlx-lm are of a later barrier, which the mend leaves."""
    done = run_child(["-m", "softmetal", "--check", FOLDER / f"{name}.py"], **given(name))
    assert (done.returncode, f"; {findings} findings" in done.stderr) == (1, True), done.stderr
