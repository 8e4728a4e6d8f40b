"""tests/support/typed_user.py, which `make lint` gives to type checkers, leaves out nothing public and is true."""

import ast
import inspect

import pytest
from places import ROOT

import metal_dlpack as md
import softmetal
from metal_dlpack import _core

pytestmark = [pytest.mark.needs_torch, pytest.mark.needs_ml_dtypes]

USER = ROOT / "tests" / "support" / "typed_user.py"
TREE = ast.parse(USER.read_text())


def names_on(tree, owner):
    """What is read of the name `owner`."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == owner
    }


def names_on_parameters(kind):
    """What functions read of their parameters that are annotated md.<kind>, and of the type itself."""
    found = {
        node.attr
        for node in ast.walk(TREE)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == f"md.{kind}"
    }
    for function in TREE.body:
        if isinstance(function, ast.FunctionDef):
            for argument in function.args.args:
                if argument.annotation is not None and ast.unparse(argument.annotation) == f"md.{kind}":
                    found |= names_on(function, argument.arg)
    return found


def test_it_uses_every_name_of_the_package():
    assert set(md.__all__) - names_on(TREE, "md") == set(), "use it in tests/support/typed_user.py"
    assert set(softmetal.__all__) - names_on(TREE, "softmetal") == set()


PUBLIC_TYPES = [kind for kind in _core._types() if not kind.__name__.startswith("_")]


def test_it_uses_every_name_of_a_type():
    for kind in PUBLIC_TYPES:
        public = {name for name in vars(kind) if not name.startswith("_")}
        missing = public - names_on_parameters(kind.__name__)
        assert missing == set(), f"use it on a parameter of the type md.{kind.__name__} in tests/support/typed_user.py"


def functions():
    import typed_user

    return {
        name: function
        for name, function in vars(typed_user).items()
        if inspect.isfunction(function) and function.__module__ == "typed_user" and name != "mistakes"
    }


def instances():
    stream = md.Stream()
    array = md.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype="float32")
    buffer = md.Buffer(64)
    layout = md.StridedLayout.dense((2, 3), 4)
    library = md.Library("kernel void nothing(device float *x) {}")
    kernel = library["nothing"]
    things = (md.float32, layout, md.default_device(), stream, stream.record(), buffer, array, array.host)
    return {f"md.{type(thing).__name__}": thing for thing in (*things, library, kernel, kernel.arguments[0])}


@pytest.mark.long
def test_it_runs(live_buffers, subtests, monkeypatch, tmp_path):
    monkeypatch.setenv("METAL_CAPTURE_ENABLED", "1")
    monkeypatch.chdir(tmp_path)  # where the trace goes
    for name, function in functions().items():
        if inspect.iscoroutinefunction(function):
            continue
        with subtests.test(name):
            things = instances()
            function(*(things[parameter.annotation] for parameter in inspect.signature(function).parameters.values()))


def test_the_mistakes_are_the_last_function():
    assert TREE.body[-1].name == "mistakes"
