"""What a Mac compiles, compiled here: every source file for macOS, and what the result asks of Apple."""

import ast
import re
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from places import INSIDE, PACKAGES, ROOT, SRC, dlpack_include, sources_of_a_mac

pytest.importorskip("ziglang", reason="the compiler for macOS is the ziglang package")

from apple import clang, macho, reference

#: clang warns of C that is newer than C11, which the GCC 8 of the wheels for Linux does not know.
STRICT = ["-O0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]

#: What the bridge may ask for, and from whom.  A longer list here is a larger border: look at it.
FROM_METAL = {
    *("_MTLCreateSystemDefaultDevice", "_MTLCopyAllDevices"),
    *("_MTLLibraryErrorDomain", "_MTLCommandBufferEncoderInfoErrorKey"),
}
CLASSES_OF_METAL = {
    *("_OBJC_CLASS_$_MTLCompileOptions", "_OBJC_CLASS_$_MTLFunctionConstantValues"),
    *("_OBJC_CLASS_$_MTLComputePipelineDescriptor", "_OBJC_CLASS_$_MTLCommandBufferDescriptor"),
    *("_OBJC_CLASS_$_MTLCaptureDescriptor", "_OBJC_CLASS_$_MTLCaptureManager"),
    *("_OBJC_CLASS_$_MTLTextureDescriptor", "_OBJC_CLASS_$_MTLSamplerDescriptor"),
}
FROM_FOUNDATION = {
    *("_OBJC_CLASS_$_NSAutoreleasePool", "_OBJC_CLASS_$_NSProcessInfo"),
    *("_OBJC_CLASS_$_NSString", "_OBJC_CLASS_$_NSURL"),
}
#: C functions, by framework.
FROM_C = {
    "CoreGraphics": {"CGColorSpaceGetTypeID"},
    "CoreFoundation": {"CFGetTypeID", "CFRetain", "CFRelease"},
    "IOSurface": {
        "IOSurfaceGetTypeID",
        "IOSurfaceLock",
        "IOSurfaceUnlock",
        "IOSurfaceGetBaseAddress",
        "IOSurfaceGetAllocSize",
        "IOSurfaceIncrementUseCount",
        "IOSurfaceDecrementUseCount",
    },
    "CoreVideo": {"CVPixelBufferGetTypeID", "CVPixelBufferGetIOSurface"},
}
FROM_OTHER_FRAMEWORKS = {f"_{name}" for names in FROM_C.values() for name in names}
FROM_LIBOBJC = {
    "_objc_msgSend",
    "_objc_alloc_init",
    "_objc_retain",
    "_objc_release",
    "_object_getClass",
    "_class_conformsToProtocol",
    "_class_getSuperclass",
    "_objc_getClassList",
    "_objc_getClass",  # residency sets, which the SDK of macOS 14 cannot name
    # an exception of Metal's drains the pools on its way, since clang has a cleanup for it
    "___objc_personality_v0",
    "_objc_terminate",
}
#: C's functions, in no framework.
LIBSYSTEM = clang.zig_lib() / "libc" / "darwin" / "libSystem.tbd"


def include_dirs() -> list[str]:
    # This interpreter's headers: its pyconfig.h says Linux, which these files do not ask.
    folders = [SRC, PACKAGES, dlpack_include(), sysconfig.get_path("include")]
    return [*(f"-I{folder}" for folder in folders[:3]), "-isystem", folders[3]]


class Bridge:
    """The parts of the bridge as one."""

    def __init__(self, parts: list[macho.Image]):
        self.parts = parts

    def undefined(self) -> set[str]:
        defined = {symbol.name for part in self.parts for symbol in part.symbols if not symbol.is_undefined}
        return {name for part in self.parts for name in part.undefined()} - defined

    def sent(self) -> set[str]:
        return {name for part in self.parts for name in part.sent()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("macos")


@pytest.fixture(scope="module")
def built(folder):
    """{source name: object} of the whole extension module, warnings as errors."""
    sources = sources_of_a_mac()
    objects = {source.name: folder / f"{source.name}.o" for source in sources}

    def compile_one(source: Path):
        extra = ["-I", clang.SOFTMETAL, "-isystem", clang.INCLUDE] if source.suffix == ".m" else []
        clang.compile_object(source, objects[source.name], *STRICT, *include_dirs(), *extra)

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, sources))
    return objects


@pytest.fixture(scope="module")
def bridge(built):
    return Bridge([macho.Image(path) for name, path in built.items() if name.endswith(".m")])


def test_every_file_is_for_the_oldest_macos(built):
    for name, path in built.items():
        assert macho.Image(path).macos == tuple(map(int, clang.MACOS.split("."))), name


def test_the_bridge_asks_apple_for_these_and_nothing_else(bridge):
    asked = bridge.undefined()
    from_apple = FROM_METAL | CLASSES_OF_METAL | FROM_FOUNDATION
    assert from_apple | {"_objc_msgSend"} <= asked
    in_libc = set(re.findall(r"[\w$]+", LIBSYSTEM.read_text()))
    assert asked <= from_apple | FROM_OTHER_FRAMEWORKS | FROM_LIBOBJC | in_libc


def test_the_bridge_sends_only_messages_that_apple_knows(bridge):
    sent = bridge.sent()
    assert "newBufferWithLength:options:" in sent
    assert sent - reference.selectors() == set()


def test_the_review_of_the_bridge_names_every_call(bridge):
    text = (INSIDE / "bridge_review.md").read_text()
    functions = {name.removeprefix("_") for name in bridge.undefined() & FROM_METAL}
    missing = {call for call in bridge.sent() | functions if not re.search(rf"`[^`]*{re.escape(call)}[^`]*`", text)}
    assert missing == set()


def test_nothing_but_the_bridge_is_objective_c(built):
    for name, path in built.items():
        image = macho.Image(path)
        asked = {s for s in image.undefined() if s.startswith(("_objc_", "_OBJC_", "_MTL", "_NS"))}
        assert name.endswith(".m") or asked == image.sent() == set(), name


def test_the_module_links_and_shows_only_its_init_function(built, folder):
    module = folder / "_core.so"
    clang.link_module(list(built.values()), module)
    image = macho.Image(module)
    made_by_the_linker = {"___dso_handle", "__mh_dylib_header"}
    assert image.exported() - made_by_the_linker == {"_PyInit__core"}
    missing = {s for s in image.undefined() if s.startswith(("_bridge_", "_storage_", "_layout_", "_softmetal_"))}
    assert missing == set()


def test_the_build_names_every_framework():
    (named,) = re.findall(r"named = (\(.*\))", (ROOT / "setup.py").read_text())
    assert set(ast.literal_eval(named)) == {"Metal", "Foundation", *FROM_C}


#: Stands for a framework of Apple's SDK, which is not here.
STUB = """--- !tapi-tbd
tbd-version: 4
targets: [arm64-macos]
install-name: '/System/Library/Frameworks/{name}.framework/Versions/A/{name}'
exports:
  - targets: [arm64-macos]
    symbols: [{symbols}]
...
"""


def test_a_linker_that_drops_what_is_unused_keeps_the_framework_that_a_default_device_needs(built, folder):
    """conda links with -dead_strip_dylibs, and without CoreGraphics there is no default device (pyobjc issue 390)."""
    for name, symbols in {**FROM_C, "Unused": {"NobodyAsks"}}.items():
        stub = folder / f"{name}.framework" / f"{name}.tbd"
        stub.parent.mkdir()
        stub.write_text(STUB.format(name=name, symbols=", ".join(f"_{symbol}" for symbol in symbols)))
    frameworks = [part for name in ("CoreGraphics", "Unused") for part in ("-framework", name)]
    module = folder / "stripped.so"
    clang.link_module(
        list(built.values()), module, "-F", folder, *frameworks, "-Wl,-dead_strip_dylibs", "-Wl,-dead_strip"
    )
    loaded = {Path(path).name for path in macho.Image(module).loaded}
    assert "CoreGraphics" in loaded
    assert "Unused" not in loaded


#: A C type as PyObjC's tables write it.
ENCODED = {
    "void": "v",
    "void *": "^v",
    "CFTypeRef": "@",
    "CFTypeID": "Q",
    "size_t": "Q",
    "kern_return_t": "i",
    "IOSurfaceLockOptions": "I",
    "uint32_t *": "^I",
    "IOSurfaceRef": "^{__IOSurface=}",
    "CVPixelBufferRef": "^{__CVBuffer=}",
}


@pytest.mark.parametrize("framework", FROM_C)
def test_the_functions_are_declared_as_apple_declares_them(framework):
    reference.ready()
    header = clang.INCLUDE / framework / f"{framework}.h"
    tree = clang.syntax_tree(header, "-x", "c", "-isystem", clang.INCLUDE)
    kinds = {node["name"]: node["type"]["qualType"] for node in tree["inner"] if node["kind"] == "FunctionDecl"}
    assert FROM_C[framework] <= set(kinds)
    for name in FROM_C[framework]:
        result, arguments = re.fullmatch(r"(.*?) ?\((.*)\)", kinds[name]).groups()
        taken = [] if arguments == "void" else arguments.split(", ")
        types = "".join(ENCODED[kind] for kind in [result, *taken])
        assert reference.tables(framework).functions[name] == (types, False), name
    if framework == "IOSurface":
        assert "kIOSurfaceLockReadOnly = 1" in header.read_text()
        assert reference.tables("IOSurface").enums["kIOSurfaceLockReadOnly"] == 1
