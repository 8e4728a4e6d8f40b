"""docs/testing_with_softmetal.md: its files run as written, fail where something is wrong, and its words exist."""

import os
import re
import subprocess
import sys

import pytest
from places import DOCS

from metal_dlpack import softmetal

GUIDE = (DOCS / "testing_with_softmetal.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, re.DOTALL))

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_numpy, pytest.mark.needs_no_sanitizer]


def run(folder, more="", **settings):
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "test_more.py").write_text(more)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SOFTMETAL_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=kept | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | settings,
    )
    return done.stdout + done.stderr


def test_there_are_two_files():
    assert set(FILES) == {"conftest.py", "test_upload.py"}


@pytest.mark.parametrize(
    "settings",
    [{}, {"SOFTMETAL_SEED": "last", "SOFTMETAL_DISCRETE": "1", "SOFTMETAL_POISON": "1"}],
    ids=["as it is", "as CI runs it again"],
)
def test_the_example_passes(tmp_path, settings):
    said = run(tmp_path, **settings)
    assert "8 passed" in said, said
    assert "softmetal:" not in said


WRONG = """
import metal_dlpack as md
from objc_messages import gpu_fill, pool, send

kept = []

def test_that_keeps_an_array():
    kept.append(md.zeros(100))

def test_that_asks_for_nothing():
    with pool():
        assert not send(send(md.Buffer(4).handle, "device"), "newBufferWithLength:options:", 0, 0)

def test_that_does_not_wait(metal):
    metal(latency_us=20_000)
    array = md.zeros(64, "uint8")
    gpu_fill(array.buffer.handle, 1, 64, waits=False)
    array.tolist()
"""


def test_the_fixture_fails_each_test_that_does_wrong(tmp_path):
    said = run(tmp_path, WRONG)
    assert "11 passed, 3 errors" in said, said
    for name, words in {
        "test_that_keeps_an_array": "a buffer is left behind",
        "test_that_asks_for_nothing": "softmetal: zero-length: ",
        "test_that_does_not_wait": "softmetal: race: ",
    }.items():
        assert f"ERROR test_more.py::{name}" in said
        assert words in said


@pytest.mark.needs_torch
def test_a_tensor_of_torch_is_read_as_the_guide_says(capsys):
    import torch

    import metal_dlpack as md

    (code,) = re.findall(r"## Tensors of torch.*?```python\n(.*?)```", GUIDE, re.DOTALL)
    names = {"md": md, "torch": torch}
    exec(code, names)
    assert "2" in capsys.readouterr().out
    assert md.from_dlpack(names["t"]).tolist() == names["u"].tolist() == [3.0] * 3
    assert "md.from_dlpack(t)" in str(md.explain(md.zeros(3), consumer="torch"))
    for use in (print, torch.Tensor.cpu, torch.Tensor.clone, lambda t: t + 1):
        with pytest.raises((RuntimeError, NotImplementedError)):
            use(names["t"])


def test_the_switches_are_understood():
    switches = re.findall(r"`(SOFTMETAL_\w+)=(\S+?)`", GUIDE)
    assert len(switches) >= 9
    for name, value in switches:
        setting = name.removeprefix("SOFTMETAL_").lower()
        if setting not in {"validation", "validation_mode"}:
            try:
                softmetal.configure(**{setting: value})
            finally:
                softmetal.configure(**{setting: None})


def test_the_names_it_uses_exist():
    import metal_dlpack as md

    for name in re.findall(r"\bmd\.(\w+)", GUIDE):
        assert hasattr(md, name), name
    for name in re.findall(r"\bsoftmetal\.(\w+)\(", GUIDE):
        assert hasattr(softmetal, name), name
    for target in re.findall(r"\]\(([^)#]+)", GUIDE):
        assert (DOCS / target).exists(), target
