"""The software Metal's headers declare only what Apple's declare: same names, types and values.

The references are Apple's C++ headers (metal-cpp), PyObjC's tables, the protocols that Apple's compiler wrote into
PyObjC's modules, and Apple's libobjc headers: see apple/.  A reference that cannot be fetched skips the tests.
"""

import pytest

pytest.importorskip("ziglang", reason="the reader of the headers is clang, out of the ziglang package")

from apple import clang, compare, declared, metal_cpp, reference


@pytest.fixture(scope="module", autouse=True)
def references():
    reference.ready()


@pytest.fixture(scope="module")
def ours():
    return declared.read(clang.SOFTMETAL)


def test_every_declaration_is_apples(ours):
    assert compare.differences(ours) == []


def test_there_is_something_to_compare(ours):
    assert {"MTLDevice", "MTLBuffer", "MTLCommandQueue", "MTLCommandBuffer", "class NSString"} <= set(ours.kinds)
    assert sum(len(kind.methods) for kind in ours.kinds.values()) > 90
    assert len(ours.enums) >= 7 and len(ours.macros) >= 9 and len(ours.functions) >= 3
    compiled_by_both = set(ours.protocols) & set(reference.compiled_protocols())
    assert {"NSObject", "MTLResource", "MTLBlitCommandEncoder", "MTLCommandQueue"} <= compiled_by_both


def test_the_references_are_read_in_full():
    assert len(metal_cpp.read().methods) > 2000
    assert len(metal_cpp.read().enums) > 80
    assert len(reference.tables("Metal").selectors) > 800
    assert len(reference.compiled_protocols()) > 80


# ---- would it fail?  Every single declaration, changed in turn ----


def has_difference(ours) -> bool:
    return compare.unknown(compare.every_difference(ours)) != []


def wrong_kinds(ours):
    """Each: a label, and (object, key, wrong value) to put into a dict or a list."""
    for kind in ours.kinds.values():
        for i in range(len(kind.parents)):
            yield f"{kind.name}'s parent", kind.parents, i, "NSWrong"
        for key, method in kind.methods.items():
            yield f"{kind.name} {key}'s result", method.__dict__, "result", "void **"
            yield f"{kind.name} {key}'s arity", method.__dict__, "arguments", [*method.arguments, "int"]
            for i in range(len(method.arguments)):
                yield f"{kind.name} {key}'s argument {i}", method.arguments, i, "void **"


def wrong_values(ours):
    for name, (_, values) in ours.enums.items():
        yield name, ours.enums, name, ("NSWrong", values)
        for constant, value in values.items():
            yield constant, values, constant, value + 1
    for table in (ours.macros, ours.typedefs, ours.variables):
        for name, value in table.items():
            yield name, table, name, value + 1 if isinstance(value, int) else "void **"
    for name, fields in ours.structs.items():
        yield name, ours.structs, name, [*fields[1:], ("wrong", fields[0][1])]
    for name, function in ours.functions.items():
        yield name, function.__dict__, "result", "BOOL"
        yield name, function.__dict__, "result_is_owned", not function.result_is_owned
        yield name, function.__dict__, "arguments", [*function.arguments, "NSUInteger"]


def wrong_protocols(ours):
    for name in set(ours.protocols) & set(
        reference.compiled_protocols()
    ):  # metal-cpp's declarations speak for the others
        protocol = ours.protocols[name]
        for key, types in protocol.methods.items():
            yield f"{protocol.name} {key} compiled", protocol.methods, key, "f" + types[1:]
            yield f"{protocol.name} {key} compiled", protocol.methods, key, types + "f"
            yield f"{protocol.name} {key} optional", protocol.__dict__, "optional", protocol.optional ^ {key}
        for name, attributes in protocol.properties.items():
            yield f"{protocol.name}.{name} compiled", protocol.properties, name, attributes + ",&"


def test_no_declaration_can_change_unnoticed():
    ours = declared.read(clang.SOFTMETAL)
    for source in (wrong_kinds, wrong_values, wrong_protocols):
        missed, count = [], 0
        for label, place, key, wrong in list(source(ours)):
            right, place[key] = place[key], wrong
            if not has_difference(ours):
                missed.append(label)
            place[key] = right
            count += 1
        assert missed == []
        assert count > 50
    assert compare.differences(ours) == []


def test_every_name_must_exist(ours):
    """An addition that Apple's headers do not have is found, whatever it is."""
    buffer = ours.kinds["MTLBuffer"]
    additions = [
        (ours.kinds, "MTLQueue", declared.Kind("MTLQueue", True, ["NSObject"])),
        (buffer.methods, "-bytes", declared.Method("void *", [])),
        (buffer.methods, "-setPurgeableState:count:", declared.Method("void", ["NSUInteger", "NSUInteger"])),
        (ours.enums, "MTLMode", ("NSUInteger", {})),
        (ours.enums["MTLStorageMode"][1], "MTLStorageModeRemote", 4),
        (ours.functions, "MTLCreateDevice", declared.Function("id<MTLDevice>", [], True)),
        (ours.variables, "MTLErrorDomain", "const NSErrorDomain"),
        (ours.typedefs, "MTLBytes", "void *"),
        (ours.structs, "_MTLPair", [("first", "NSUInteger")]),
        (ours.macros, "MTLResourceModeMask", 15),
    ]
    for table, name, value in additions:
        table[name] = value
        assert has_difference(ours), name
        del table[name]
    assert compare.differences(ours) == []
