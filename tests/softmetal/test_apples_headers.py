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


def test_what_apple_has_otherwise_or_has_not_is_a_difference(ours):
    buffer, protocol = ours.kinds["MTLBuffer"], ours.protocols["MTLCommandQueue"]
    changes = [
        (ours.kinds["class NSString"].parents, 0, "NSWrong"),
        (buffer.methods["-contents"].__dict__, "result", "void **"),
        (buffer.methods, "-bytes", declared.Method("void *", [])),
        (ours.enums["MTLStorageMode"][1], "MTLStorageModePrivate", 4),
        (ours.macros, "MTLResourceStorageModeMask", 15),
        (ours.typedefs, "MTLGPUAddress", "void *"),
        (ours.structs, "_MTLPair", [("first", "NSUInteger")]),
        (ours.variables, "MTLErrorDomain", "const NSErrorDomain"),
        (ours.functions["MTLCreateSystemDefaultDevice"].__dict__, "result_is_owned", False),
        (protocol.methods, "-commandBuffer", "v16@0:8"),
    ]
    for table, key, wrong in changes:
        is_there = isinstance(table, list) or key in table
        right = table[key] if is_there else None
        table[key] = wrong
        assert compare.unknown(compare.every_difference(ours)) != [], key
        if is_there:
            table[key] = right
        else:
            del table[key]
    assert compare.differences(ours) == []
