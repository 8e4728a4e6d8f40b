"""What `from metal_dlpack import *` binds: everything public, and no name of Python's own."""

import builtins

import metal_dlpack as md


def test_import_star_hides_nothing_of_pythons():
    names = {}
    exec("from metal_dlpack import *", names)
    bound = set(names) - {"__builtins__"}
    assert not bound & set(vars(builtins))
    assert bound == set(md.__all__)


def test_everything_else_public_is_bound():
    public = {name for name in dir(md) if not name.startswith("_")}
    assert public - set(md.__all__) == {"bool", "open"}
    assert md.bool.name == "bool"
    assert callable(md.open)
