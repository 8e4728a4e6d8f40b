"""One place of a notebook has one name, the cell's: what is said at once, the report in each form, compile errors."""

import json
import os
import tempfile

import pytest
from children import run_child

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

#: IPython in a terminal calls a cell <ipython-input-...>; ipykernel, a notebook's, names a file that is in no folder.
SHELL = """
import hashlib, json, os, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
if sys.argv[1] == "files":
    name = lambda text, *_: f"/nowhere/ipykernel_1/{hashlib.md5(text.encode()).hexdigest()}.py"
    shell.compile.get_code_name = name
for cell in json.loads(sys.argv[2]):
    done = shell.run_cell(cell, store_history=True)
    error = done.error_in_exec
    if error is not None:
        print("FAILED", str(error).splitlines()[0], getattr(error, "filename", None), getattr(error, "lineno", None))
"""

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
SIGNATURE = "kernel void k(device float *x, uint i [[thread_position_in_grid]])"
OUTSIDE = f'"""{METAL}{SIGNATURE} {{\n    threadgroup float s[8]; s[0] = 1; x[i + 100] = 1;\n}}"""'
UNKNOWN = f'"""{METAL}{SIGNATURE} {{\n    x[i] = unknown;\n}}"""'
#: Where they are wrong, from the line that the text begins in.
DOWN, COLUMN = 3, 50


def ran(kind, cells, **environment):
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "IPYTHONDIR": folder,
            "SOFTMETAL_KERNEL_CHECK": "report",
            "SOFTMETAL_VALIDATION_MODE": "log",
            **environment,
        }
        return run_child(SHELL, kind, json.dumps(cells), **settings)


@pytest.mark.parametrize("kind", ["files", "names"])
def test_a_finding_has_the_name_of_its_cell(tmp_path, kind):
    """The last of two cells with the text names it, and its number changes when it runs again."""
    launch = (
        "with contextlib.suppress(md.MetalError):\n    x = md.zeros(8)\n    md.kernel(SOURCE)(x, n=8)\n    x.tolist()"
    )
    paths = [str(tmp_path / f"r.{form}") for form in ("json", "html", "sarif")]
    done = ran(kind, [
        "import contextlib\nimport metal_dlpack as md\nfrom softmetal import report\nreport.start()",
        f"SOURCE = {OUTSIDE}",
        f"# again\nSOURCE = {OUTSIDE}\n{launch}",
        f"# again\nSOURCE = {OUTSIDE}\n{launch}",
        f"print(report.ended(report.end(), {paths})[0])",
    ])  # fmt: skip
    place = f"In [4]:{2 + DOWN}:{COLUMN}"
    said = [line for line in done.stderr.splitlines() if line.startswith("softmetal: kernel: k: ")]
    assert [f"In [{cell}]:{2 + DOWN}:{COLUMN}, thread" in line for cell, line in zip((3,), said, strict=True)] == [True]
    assert f"   {place}: thread" in done.stdout
    result, page, sarif = ((tmp_path / os.path.basename(path)).read_text() for path in paths)
    (access,) = json.loads(result)["findings"][0]["accesses"]
    assert (access["file"], access["line"], access["column"]) == ("In [4]", 2 + DOWN, COLUMN)
    assert json.loads(result)["kernels"][0]["file"] == "In [4]"
    assert f"<code>{place}</code>" in page and "In [4]:4<" in page
    (location,) = json.loads(sarif)["runs"][0]["results"][0]["locations"]
    assert location["message"] == {"text": place} and "physicalLocation" not in location
    assert not any("ipykernel" in text or "ipython" in text for text in (*said, result, page, sarif))


#: A kernel as a notebook has it, and the first lines of the errors that its front end is told.
KERNEL = """
import json, sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
def hook(message):
    if message["msg_type"] == "error":
        print(message["content"]["ename"], message["content"]["evalue"].splitlines()[0])
try:
    for cell in json.loads(sys.argv[1]):
        client.execute_interactive(cell, output_hook=hook, timeout=100)
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


@pytest.mark.needs_ipykernel
def test_a_notebook_s_own_kernel_says_the_cell_of_a_compile_error_and_of_a_finding(tmp_path):
    cells = [
        f"import metal_dlpack as md\nmd.kernel({UNKNOWN})",
        f"x = md.zeros(8)\nmd.kernel({OUTSIDE})(x, n=8)\nx.tolist()",
    ]
    folders = {"IPYTHONDIR": tmp_path / "ipython", "JUPYTER_RUNTIME_DIR": tmp_path / "runtime"}
    settings = {**{name: str(folder) for name, folder in folders.items()}, "SOFTMETAL_VALIDATION_MODE": "log"}
    done = run_child(KERNEL, json.dumps(cells), SOFTMETAL_KERNEL_CHECK="1", **settings)
    error, finding = done.stdout.splitlines()
    assert error == f"CompileError use of undeclared identifier 'unknown' (In [1], line {2 + DOWN})", done.stderr
    assert finding.startswith("MetalError ") and f"In [2]:{2 + DOWN}:{COLUMN}, thread (0,0,0)" in finding


def test_a_compile_error_has_the_name_of_its_cell():
    cells = ["import metal_dlpack as md\nmd.kernel({text})", "md.zeros(1)\nmd.Library({text}, defines={{'N': 2}})"]
    for kind in ("files", "names"):
        refused_at(cells, kind)


@pytest.mark.needs_torch
@pytest.mark.needs_mlx
@pytest.mark.long
def test_a_compile_error_of_a_framework_s_has_the_name_of_its_cell():
    cells = [
        "import torch; import softmetal; softmetal.torch_mps()\ntorch.mps.compile_shader({text})",
        "import mlx.core as mx; softmetal.mlx_kernels()\n"
        "mx.fast.metal_kernel(name='f', input_names=[], output_names=['y'], source={source})("
        "inputs=[], output_shapes=[(8,)], output_dtypes=[mx.float32], grid=(8, 1, 1), threadgroup=(8, 1, 1))",
    ]
    refused_at(cells, "files")


def refused_at(cells, kind):
    """Each cell's error names it, and the line there."""
    source = '"""uint i = thread_position_in_grid.x;\n\n    \n    y[i] = unknown;\n"""'
    said = failures(ran(kind, [cell.format(text=UNKNOWN, source=source) for cell in cells]))
    assert len(said) == len(cells)
    for number, line in enumerate(said, 1):
        assert "use of undeclared identifier 'unknown'" in line
        assert line.endswith(f" In [{number}] {2 + DOWN}")
        assert "nowhere" not in line and "program_source" not in line


def failures(done):
    return [line for line in done.stdout.splitlines() if line.startswith("FAILED")]


def test_a_compile_error_shows_the_cell_s_own_line():
    text = METAL.replace("\n", "\\n") + SIGNATURE + " { x[i] = unknown; }"
    cell = f'import metal_dlpack as md\ntry:\n    md.kernel("{text}")\nexcept SyntaxError as e:\n    print(e.text[e.offset - 1 :], e.offset)'
    done = ran("files", [cell])
    assert done.stdout.splitlines()[-1].startswith('unknown; }") '), done.stdout
