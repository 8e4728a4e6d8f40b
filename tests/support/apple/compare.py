"""Our declarations against Apple's: every difference, as a sentence.  No difference is an empty list."""

import re

from apple import declared, metal_cpp, reference
from apple.declared import Declared, Kind, Method

#: Where the references differ from one another, or from the headers of macOS 14: what we follow, and why.
KNOWN = {
    "metal-cpp: MTLResourceStorageModeMemoryless is 48, not 32": (
        "metal-cpp's slip: 32 is MTLResourceStorageModePrivate.  PyObjC has 48, MTLStorageModeMemoryless << 4."
    ),
    "metal-cpp: -[MTLDevice newBufferWithBytesNoCopy:length:options:deallocator:] takes (void *, NSUInteger, "
    "MTLResourceOptions, void (^)(void *, NSUInteger)), not (const void *, NSUInteger, MTLResourceOptions, "
    "void (^)(void *, NSUInteger))": (
        "metal-cpp lends the argument of newBufferWithBytes: to it.  Apple's page has `void *`: the buffer is written to."
    ),
    "compiled: MTLResource adopts NSObject, not MTLAllocation": (
        "MTLAllocation stands between the two since macOS 15; on macOS 14 MTLResource adopts NSObject."
    ),
    "metal-cpp: MTLResource is a kind of NSObject, not of MTLAllocation": "As above.",
    "metal-cpp: MTLComputePipelineState is a kind of NSObject, not of MTLAllocation": "As above.",
}

#: Methods whose types no reference tells: the selector is in PyObjC's tables, the types on Apple's page.
#: SPEC developer.apple.com/documentation/foundation/nsstring
DOCUMENTED = {
    ("NSString", "+stringWithUTF8String:"): Method("instancetype", ["const char *"]),
    ("NSString", "-initWithUTF8String:"): Method("instancetype", ["const char *"]),
}


def differences(ours: Declared) -> list[str]:
    """All but those of KNOWN, and those of KNOWN that are none."""
    found = list(every_difference(ours))
    unused = [f"known, but not so: {text}" for text in KNOWN if text not in found]
    return unknown(found) + unused


def unknown(found) -> list[str]:
    return [text for text in dict.fromkeys(found) if text not in KNOWN]


def every_difference(ours: Declared):
    for kind in ours.kinds.values():
        yield from check_kind(kind)
    for name, protocol in ours.protocols.items():
        yield from check_compiled(name, protocol, reference.compiled_protocols().get(name))
    yield from check_enums(ours)
    yield from check_functions(ours)
    yield from check_the_rest(ours)


# ---- classes and protocols: metal-cpp, libobjc ----


def check_kind(kind: Kind):
    apple = declared.read_libobjc().kinds.get(kind.name if kind.is_protocol else f"class {kind.name}")
    if apple is not None:
        yield from check_against_libobjc(kind, apple)
        return
    cpp = metal_cpp.read()
    if kind.name not in cpp.parents:
        yield f"metal-cpp: {kind.name} is not there"
        return
    for parent in kind.parents:
        if parent != cpp.parents[kind.name]:
            yield f"metal-cpp: {kind.name} is a kind of {parent}, not of {cpp.parents[kind.name]}"
    for key, method in kind.methods.items():
        yield from check_method(kind, key, method)
    for name, (_, words) in kind.properties.items():
        setter = f"-set{name[0].upper()}{name[1:]}:"
        if ("readonly" in words) == bool(cpp.find(kind.name, setter)):
            yield f"metal-cpp: {kind.name}.{name} is {'readonly' if 'readonly' in words else 'readwrite'}: not so"


def check_method(kind: Kind, key: str, method: Method):
    label = f"{key[0]}[{kind.name} {key[1:]}]"
    known = metal_cpp.read().find(kind.name, key)
    documented = DOCUMENTED.get((kind.name, key))
    if documented is not None and key[1:] in reference.tables("Foundation").selectors:
        known = [metal_cpp.Method(documented.result, documented.arguments, False)]
    if not known:
        yield f"metal-cpp: {label} is not there"
        return
    results = [generic(k.result) for k in known]
    if generic(method.result) not in results:
        yield f"metal-cpp: {label} gives {method.result}, not {' or '.join(results)}"
    if method.arguments not in [k.arguments for k in known]:
        others = " or ".join(f"({', '.join(k.arguments)})" for k in known)
        yield f"metal-cpp: {label} takes ({', '.join(method.arguments)}), not {others}"
    is_property = key[1:] in kind.getters
    if kind.is_protocol and is_property not in [k.is_const for k in known]:
        yield f"metal-cpp: {label} is {'a property' if is_property else 'a method'}: not so"


def generic(type_name: str) -> str:
    """metal-cpp has templates where Objective-C has `id`, and where it leaves out what a collection holds."""
    type_name = re.sub(r"<_\w+>", "", type_name)
    return "id" if type_name in {"NS_Object *", "NS_ObjectType *"} else type_name


def check_against_libobjc(kind: Kind, apple: Kind):
    if kind.parents != apple.parents:
        yield f"libobjc: {kind.name} has the parents {kind.parents}, not {apple.parents}"
    for key, method in kind.methods.items():
        if apple.methods.get(key) != method:
            yield f"libobjc: {key[0]}[{kind.name} {key[1:]}] is {method}, not {apple.methods.get(key)}"
    for name, prop in kind.properties.items():
        if apple.properties.get(name) != prop:
            yield f"libobjc: {kind.name}.{name} is {prop}, not {apple.properties.get(name)}"


# ---- protocols as the compiler wrote them: Apple's headers through Apple's compiler ----


def check_compiled(name: str, ours, apple):
    if apple is None:
        return  # not in PyObjC's modules: metal-cpp and the tables speak for it
    for parent in ours.adopts:
        if parent not in apple.adopts:
            yield f"compiled: {name} adopts {parent}, not {', '.join(apple.adopts)}"
    for key in ours.methods:
        label = f"{key[0]}[{name} {key[1:]}]"
        if key not in apple.methods:
            yield f"compiled: {label} is not there"
            continue
        for kind in ("methods", "long_types"):
            one, other = getattr(ours, kind)[key], getattr(apple, kind)[key]
            if one != other:
                yield f"compiled: {label} is {one}, not {other}"
        if (key in ours.optional) != (key in apple.optional):
            yield f"compiled: {label} is {'optional' if key in ours.optional else 'required'}: not so"
    for prop, attributes in ours.properties.items():
        if apple.properties.get(prop) != attributes:
            yield f"compiled: {name}.{prop} is {attributes}, not {apple.properties.get(prop)}"


# ---- enumerations, functions, the rest ----


def check_enums(ours: Declared):
    cpp, tables = metal_cpp.read(), reference.tables("Metal")
    for name, (kind, values) in ours.enums.items():
        if name not in cpp.enums:
            yield f"metal-cpp: the enumeration {name} is not there"
            continue
        if cpp.enums[name][0] != kind:
            yield f"metal-cpp: {name} is made of {kind}, not {cpp.enums[name][0]}"
        for constant, value in values.items():
            if cpp.enums[name][1].get(constant) != value:
                yield f"metal-cpp: {constant} is {value}, not {cpp.enums[name][1].get(constant)}"
            if tables.enums.get(constant) != value:
                yield f"PyObjC: {constant} is {value}, not {tables.enums.get(constant)}"


def encode(type_name: str) -> str:
    if type_name.startswith("id") or type_name.endswith("*"):
        return "@"
    return {"NSUInteger": "Q", "NSInteger": "q", "NSRange": "{_NSRange=QQ}", "void": "v", "BOOL": "Z", "uint64_t": "Q"}[
        type_name
    ]


def check_functions(ours: Declared):
    cpp = metal_cpp.read()
    for name, function in ours.functions.items():
        result = function.result.removeprefix("NS_RETURNS_RETAINED ")
        framework = "Metal" if name.startswith("MTL") else "Foundation"
        types = encode(result) + "".join(map(encode, function.arguments))
        told = reference.tables(framework).functions.get(name)
        if told != (types, function.result_is_owned):
            yield f"PyObjC: {name} is {types}, {'+1' if function.result_is_owned else 'borrowed'}, not {told}"
        if framework == "Metal" and cpp.functions.get(name) != (result, function.arguments):
            yield f"metal-cpp: {name} is {result} of {function.arguments}, not {cpp.functions.get(name)}"


def check_the_rest(ours: Declared):
    cpp, metal, foundation = metal_cpp.read(), reference.tables("Metal"), reference.tables("Foundation")
    libobjc = declared.read_libobjc()
    for name, type_name in ours.variables.items():
        kind = "NSErrorDomain" if name.endswith("Domain") else "NSErrorUserInfoKey"
        if metal.constants.get(name) != "" or type_name != f"const {kind}":
            yield f"PyObjC: the constant {name} of type {type_name} is not there"
    for name, fields in ours.structs.items():
        alias = name.lstrip("_")
        body = "".join(encode(t) for _, t in fields)
        told = (metal if alias.startswith("MTL") else foundation).structs.get(alias)
        if told != (f"{{{name}={body}}}", [f for f, _ in fields]) or cpp.structs.get(alias) != fields:
            yield f"the struct {name} is {fields}, not {told} (PyObjC), {cpp.structs.get(alias)} (metal-cpp)"
    for name, value in ours.macros.items():
        told = metal.enums.get(name, libobjc.macros.get(name))
        if name in metal.expressions:
            told = eval(metal.expressions[name], {}, metal.enums)
        if told != value:
            yield f"the macro {name} is {value}, not {told}"
    for name, meaning in ours.typedefs.items():
        told = f"enum {name}" if name in ours.enums else libobjc.typedefs.get(name, aliases().get(name))
        if told != meaning:
            yield f"the type {name} is {meaning}, not {told}"


def aliases() -> dict[str, str]:
    cpp = metal_cpp.read()
    return {
        **{name: metal_cpp.objective_c(cpp.aliases[name], "NS") for name in ("NSErrorDomain", "NSErrorUserInfoKey")},
        "MTLGPUAddress": cpp.aliases["MTLGPUAddress"],
        "MTLResourceID": "struct " + reference.tables("Metal").structs["MTLResourceID"][0].strip("{").partition("=")[0],
        "MTLCommandBufferHandler": metal_cpp.argument_type(cpp.aliases["MTLCommandBufferHandler"], "MTL"),
        "MTLAutoreleasedComputePipelineReflection": metal_cpp.objective_c(
            cpp.aliases["MTLAutoreleasedComputePipelineReflection"], "MTL"
        ),
        "NSRange": "struct " + reference.tables("Foundation").structs["NSRange"][0].strip("{").partition("=")[0],
        "CFTimeInterval": "double",  # what reads it is encoded "d" in the compiled protocols and the tables
    }
