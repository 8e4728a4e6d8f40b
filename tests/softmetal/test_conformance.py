"""The software Metal's headers declare only what Apple's declare: same names, types and values.

The references are Apple's C++ headers (metal-cpp), PyObjC's tables, the protocols that Apple's compiler wrote into
PyObjC's modules, and Apple's libobjc headers: see conformance/.  A reference that cannot be fetched skips the tests.
"""

import shutil

import pytest

pytest.importorskip("ziglang", reason="the reader of the headers is clang, out of the ziglang package")

from conformance import clang, compare, declared, metal_cpp, reference


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
    for arch in clang.TARGETS:
        compiled_by_both = set(ours.protocols[arch]) & set(reference.compiled_protocols(arch))
        assert {"NSObject", "MTLResource", "MTLBlitCommandEncoder", "MTLCommandQueue"} <= compiled_by_both


def test_the_references_are_read_in_full():
    assert len(metal_cpp.read().methods) > 2000
    assert len(metal_cpp.read().enums) > 80
    assert len(reference.tables("Metal").methods) > 800
    assert len(reference.compiled_protocols("arm64")) > 80


# ---- would it fail?  Edits of a copy of the headers ----

METAL, FOUNDATION = "Metal/Metal.h", "Foundation/Foundation.h"

#: What is changed: (header, text, the text instead of it).
EDITS = {
    "a value": (METAL, "MTLStorageModePrivate = 2", "MTLStorageModePrivate = 3"),
    "a value made of others": (METAL, "MTLStorageModeManaged << MTL", "MTLStorageModeShared << MTL"),
    "an error's code": (METAL, "MTLCommandBufferErrorNotPermitted = 7", "MTLCommandBufferErrorNotPermitted = 5"),
    "a constant's name": (METAL, "MTLPurgeableStateVolatile = 3", "MTLPurgeableStateLoose = 3"),
    "an enumeration's name": (METAL, "MTLPurgeableState", "MTLPurgeState"),
    "an enumeration's type": (METAL, "NS_ENUM(NSUInteger, MTLHazard", "NS_ENUM(NSInteger, MTLHazard"),
    "a macro": (METAL, "#define MTLResourceStorageModeShift 4", "#define MTLResourceStorageModeShift 5"),
    "a part of a selector": (METAL, "destinationOffset:(NSUInteger)", "destOffset:(NSUInteger)"),
    "a selector of one word": (METAL, "(void)endEncoding", "(void)finishEncoding"),
    "one argument less": (METAL, "didModifyRange:(NSRange)range", "didModifyRange"),
    "one argument more": (METAL, "(void)commit;", "(void)commit:(NSUInteger)count;"),
    "an argument's width": (METAL, "value:(uint8_t)value", "value:(uint16_t)value"),
    "an argument's sign": (METAL, "atIndex:(NSUInteger)index", "atIndex:(NSInteger)index"),
    "an argument's class": (METAL, "toBuffer:(id<MTLBuffer>)", "toBuffer:(id<MTLResource>)"),
    "an argument that is const": (METAL, "setBytes:(const void *)bytes", "setBytes:(void *)bytes"),
    "an argument's enumeration": (
        METAL,
        "length options:(MTLResourceOptions)options",
        "length options:(NSUInteger)options",
    ),
    "a block's argument": (METAL, "(void *pointer, NSUInteger length)", "(void *pointer, int length)"),
    "a result": (METAL, "(void *)contents", "(const void *)contents"),
    "a result's class": (METAL, "(id<MTLCommandBuffer>)commandBuffer;", "(id<MTLCommandQueue>)commandBuffer;"),
    "a result's ownership": (METAL, "MTLCopyAllDevices(void) NS_RETURNS_RETAINED", "MTLCopyAllDevices(void)"),
    "a function's name": (METAL, "MTLCreateSystemDefaultDevice", "MTLCreateDefaultDevice"),
    "a property's type": (METAL, "uint64_t registryID", "uint32_t registryID"),
    "a property that may be written": (METAL, "(readonly) NSUInteger maxBuffer", "(readwrite) NSUInteger maxBuffer"),
    "a property that is a method": (
        METAL,
        "@property(readonly) NSUInteger maxBufferLength;",
        "- (NSUInteger)maxBufferLength;",
    ),
    "a method that is a property": (METAL, "- (void *)contents;", "@property (readonly) void *contents;"),
    "a property that does not copy": (METAL, "@protocol MTLFence <NSObject>", "@protocol MTLFence <NSObject>\n//"),
    "a protocol's parent": (METAL, "MTLSharedEvent <MTLEvent>", "MTLSharedEvent <NSObject>"),
    "an optional method": (METAL, "- (void)updateFence", "@optional\n- (void)updateFence"),
    "a method of a class": (FOUNDATION, "+ (instancetype)stringWithUTF8String", "- (instancetype)stringWithUTF8String"),
    "a class": (FOUNDATION, "@interface NSAutoreleasePool", "@interface NSPool"),
    "a class's parent": (FOUNDATION, "NSError : NSObject", "NSError : NSString"),
    "a struct's order": (
        FOUNDATION,
        "NSUInteger location;\n    NSUInteger length;",
        "NSUInteger length;\n    NSUInteger location;",
    ),
    "a struct's type": (FOUNDATION, "NSUInteger location;", "NSInteger location;"),
    "a type's meaning": (FOUNDATION, "typedef double CFTimeInterval", "typedef float CFTimeInterval"),
    "what every object does": (FOUNDATION, "(NSUInteger)retainCount", "(NSInteger)retainCount"),
}


def has_difference(ours) -> bool:
    return compare.unknown(compare.every_difference(ours)) != []


@pytest.mark.parametrize("name", EDITS)
def test_one_edit_of_the_headers_is_found(name, tmp_path):
    for folder in ("Metal", "Foundation"):
        shutil.copytree(clang.SOFTMETAL / folder, tmp_path / folder)
    header, text, instead = EDITS[name]
    path = tmp_path / header
    before = path.read_text().replace("@property (", "@property(")
    assert text in before, "the edit has nothing to change: the header has moved on"
    if name == "a property that does not copy":
        at = before.index(text)
        path.write_text(before[:at] + before[at:].replace("(copy)", "(retain)", 1))
    else:
        path.write_text(before.replace(text, instead))
    assert has_difference(declared.read(tmp_path, arches=[])) or has_difference(declared.read(tmp_path, ["arm64"]))


# ---- would it fail?  Every single declaration, changed in turn ----


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
        yield name, ours.structs, name, fields[::-1]
    for name, function in ours.functions.items():
        yield name, function.__dict__, "result", "BOOL"
        yield name, function.__dict__, "result_is_owned", not function.result_is_owned
        yield name, function.__dict__, "arguments", [*function.arguments, "NSUInteger"]


def wrong_protocols(ours):
    for protocol in ours.protocols["arm64"].values():
        if protocol.name == "NSObject":
            continue  # libobjc's header speaks for it
        for key, types in protocol.methods.items():
            yield f"{protocol.name} {key} compiled", protocol.methods, key, "f" + types[1:]
            yield f"{protocol.name} {key} compiled", protocol.methods, key, types + "f"


@pytest.mark.parametrize("source", [wrong_kinds, wrong_values, wrong_protocols])
def test_no_declaration_can_change_unnoticed(source):
    ours = declared.read(clang.SOFTMETAL, arches=["arm64"])
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
        (buffer.methods, "-didModifyRange:count:", declared.Method("void", ["NSRange", "NSUInteger"])),
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
