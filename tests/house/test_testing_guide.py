"""The guide to testing, docs/testing.md: its files run as written, its words exist."""

import os
import re
import textwrap

import pytest
from children import run_child
from places import DOCS
from recipes import recipe

import _metal_dlpack_pytest
import softmetal

GUIDE = (DOCS / "testing.md").read_text()
PLUGIN = GUIDE[GUIDE.index("## Options") :]
SWITCH_ON = recipe("ci_without_a_mac.md", "# mps in CI without a Mac")
FILES = dict(re.findall(r"```(?:python|toml)\n# (\w+\.\w+)\n(.*?)```", GUIDE, re.DOTALL))

pytestmark = [pytest.mark.needs_softmetal, pytest.mark.needs_numpy, pytest.mark.needs_no_sanitizer]


def run(folder, *options, more="", **settings):
    """The plugin is named, and others are left out: to import them takes longer than the tests."""
    for name, text in {**FILES, "test_more.py": more}.items():
        (folder / name).write_text(text)
    ours = dict.fromkeys(name for name in os.environ if name.startswith("SOFTMETAL_"))
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "_metal_dlpack_pytest", "-W", "ignore"]
    done = run_child(words, *options, ".", cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **ours | settings)
    return done.stdout + done.stderr


#: The options of the command at the top of the page.
(OPTIONS,) = re.findall(r"^    python -m pytest (--softmetal.*)$", GUIDE, re.MULTILINE)


WRONG = """
import metal_dlpack as md
from objc_messages import pool, send

kept = []

def test_that_keeps_an_array():
    kept.append(md.zeros(100))

def test_that_asks_for_nothing():
    with pool():
        assert not send(send(md.Buffer(4).handle, "device"), "newBufferWithLength:options:", 0, 0)
"""


def test_the_example_passes_as_ci_runs_it_and_each_test_that_does_wrong_fails(tmp_path):
    said = run(tmp_path, *OPTIONS.split(), more=WRONG)
    assert "1 failed, 9 passed, 1 error" in said, said
    assert "ERROR test_more.py::test_that_keeps_an_array" in said and "outlive the test" in said
    assert "FAILED test_more.py::test_that_asks_for_nothing" in said and "softmetal: zero-length: " in said


@pytest.mark.long
def test_a_tensor_of_torch_is_read_and_computes_once_it_is_switched_on_as_the_pages_say():
    """In a child: in this process torch computes on mps."""
    done = run_child(f"""
        import metal_dlpack as md, torch
        import softmetal
        t = torch.from_dlpack(md.full(3, 2.0))
        for use in (print, torch.Tensor.cpu, torch.Tensor.clone, lambda t: t + 1):
            try:
                use(t)
            except (RuntimeError, NotImplementedError):
                continue
            raise AssertionError(use)
        assert md.from_dlpack(t).tolist() == [2.0] * 3
        assert "md.from_dlpack(t)" in str(md.explain(md.zeros(3), consumer="torch"))
        {textwrap.indent(SWITCH_ON, "        ").strip()}
        print((t + 1).cpu())
    """)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tensor([3., 3., 3.])\n"


def test_the_settings_are_understood(metal_settings):
    settings = re.findall(r"`([a-z_]+)=(\S+?)`", GUIDE.partition("| setting |")[2].partition("\n\n")[0])
    assert len(settings) >= 9
    for name, value in settings:
        metal_settings(**{name: value})
        metal_settings(**{name: None})


def test_the_tools_that_it_names_exist():
    tools = PLUGIN.partition("has the same tools: ")[2].partition(". ")[0]
    assert len(re.findall(r"`(\w+)`", tools)) == 5
    for name in re.findall(r"`(\w+)`", tools):
        assert hasattr(softmetal, name), name


def test_the_fixtures_and_options_are_those_of_the_plugin(pytestconfig):
    fixtures = {name for name in vars(_metal_dlpack_pytest) if name == "metal" or name.startswith("metal_")}
    assert set(re.findall(r"^\| `(metal\w*)`", PLUGIN, re.MULTILINE)) == fixtures
    assert set(re.findall(r"`(metal(?:_\w+)?)`", GUIDE)) - {"metal_dlpack"} <= fixtures
    assert [name for name in fixtures if not getattr(_metal_dlpack_pytest, name).__doc__] == []
    options = {f"--{name.replace('_', '-')}" for name in vars(pytestconfig.option) if name.startswith("softmetal")}
    assert set(re.findall(r"^\| `(--[\w-]+)", PLUGIN, re.MULTILINE)) == options
