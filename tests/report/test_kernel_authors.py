"""docs/kernel_authors.md: the program of the page, and what the page says of it, as they stand there."""

import pytest
from children import run_child
from kernel_images import EACH_COMPILER, command_of
from recipes import blocks

PAGE = "docs/kernel_authors.md"
PROGRAM, *REPORTS, TORCH = sorted(
    (block.text for block in blocks(PAGE) if block.language in ("python", "text")),
    key=lambda text: text.startswith("# scale.py"),
)
MENDS = (
    ("x[i - 1]", "x[max(i - 1, 0)]"),
    ("x[i + 1]", "x[min(i + 1, 255)]"),
    ("tile[t] = x[i];", "tile[t] = x[i];\n        threadgroup_barrier(mem_flags::mem_threadgroup);"),
)

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_kernels, pytest.mark.needs_mlx]


def check(folder, program, compiler):
    (folder / "blur.py").write_text(program)
    words = ["-m", "softmetal", "--check", "blur.py"]
    return run_child(words, cwd=folder, SOFTMETAL_CXX=command_of(compiler))


@pytest.mark.parametrize("compiler", EACH_COMPILER)
def test_the_program_of_the_page_is_reported_as_it_says_until_it_is_mended(tmp_path, compiler):
    program = PROGRAM
    for report, mends in zip(REPORTS, (MENDS[:2], MENDS[2:]), strict=True):
        done = check(tmp_path, program, compiler)
        assert (done.returncode, report in done.stderr) == (1, True), done.stderr
        for wrong, right in mends:
            program = program.replace(wrong, right)
    done = check(tmp_path, program, compiler)
    assert (done.returncode, "0 findings" in done.stderr) == (0, True), done.stderr
    assert done.stdout.startswith("array([0.333333, 1, 2, 3], dtype=float32)")


@pytest.mark.needs_torch
@pytest.mark.long
def test_the_report_of_the_page_s_kernel_of_torch_s_says_what_its_picture_shows(tmp_path):
    (tmp_path / "scale.py").write_text(TORCH)
    words = ["-m", "softmetal", "--report", "kernels.html", "scale.py"]
    assert run_child(words, cwd=tmp_path).returncode == 1
    text = (tmp_path / "kernels.html").read_text()
    for part in ("1 finding<", "scale.py:8:14</code>: thread (232,0,0)", "arguments: x float32 (25, 40), by float"):
        assert part in text
    mended = TORCH.replace("constant float &by,", "constant float &by, constant uint &n,").replace(
        "x[i] *=", "if (i < n) x[i] *="
    )
    (tmp_path / "scale.py").write_text(mended.replace("2.0, threads", "2.0, x.numel(), threads"))
    done = run_child(words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "2000.0\n"), done.stderr
