"""metal-cpp: Apple's C++ headers, read for what they say of Objective-C."""

import re
from dataclasses import dataclass, field
from functools import cache

import fetched_data

from apple import reference


@dataclass
class Method:
    result: str  # in Objective-C's words
    arguments: list[str]
    is_const: bool  # metal-cpp marks what reads a property so


@dataclass
class MetalCpp:
    methods: dict[tuple[str, str], list[Method]] = field(default_factory=dict)  # ("MTLBuffer", "-length")
    parents: dict[str, str] = field(default_factory=dict)
    enums: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    functions: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def find(self, name: str, key: str) -> list[Method]:
        """The method, of the class or of what it inherits from."""
        while name:
            if (name, key) in self.methods:
                return self.methods[name, key]
            name = self.parents.get(name, "")
        return []


NAMESPACES = {"Metal": "MTL", "Foundation": "NS"}
DEFINITION = re.compile(
    r"_(?:MTL|NS)_INLINE\s+(?P<result>[^;{}()]*?[\s*&])(?P<space>MTL|NS)::(?P<kind>\w+)(?:<[^>]*>)?::(?P<name>\w+)"
    r"\((?P<arguments>(?:[^()]|\([^()]*\))*)\)\s*(?P<const>const)?\s*\{(?P<body>[^{}]*)\}"
)
MESSAGE = re.compile(r"sendMessage(?:Safe)?<[^;]*?>\(\s*(?P<to>[^,]+),\s*_(?:MTL|NS)_PRIVATE_SEL\((?P<accessor>\w+)\)")
ENUM = re.compile(r"_(?:MTL|NS)_(?:ENUM|OPTIONS)\(\s*([\w:]+),\s*(\w+)\s*\)\s*\{([^}]*)\}")


@cache
def read() -> MetalCpp:
    reference.ready()
    headers = fetched_data.folder("mlx-metal") / "metal_cpp"
    found = MetalCpp()
    texts = {path: strip_comments(path.read_text()) for path in sorted(headers.rglob("*.hpp"))}
    selectors = {}
    for path, text in texts.items():
        for accessor, selector in re.findall(r'_DEF_SEL\(\s*(\w+),\s*"([^"]+)"\s*\)', text):
            selectors[NAMESPACES.get(path.parent.name, ""), accessor] = selector
    for path, text in texts.items():
        if path.parent.name not in NAMESPACES or path.name.startswith("MTL4"):
            continue
        prefix = NAMESPACES[path.parent.name]
        read_classes(text, prefix, found)
        read_enums(text, prefix, found)
        read_the_rest(text, prefix, found)
        for match in DEFINITION.finditer(text):
            read_definition(match, selectors, found)
    return found


def strip_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def read_classes(text: str, prefix: str, found: MetalCpp) -> None:
    pattern = r"\bclass (?:_NS_EXPORT )?(\w+)\s*:\s*public ([^{]+)\{"
    for name, base in re.findall(pattern, text):
        inner = re.search(r"<\s*\w+\s*,\s*([\w:]+)\s*>", base)
        parent = inner.group(1) if inner else "NS::Object"
        if name == "Object":
            continue
        found.parents[prefix + name] = qualified(parent, prefix)


def read_enums(text: str, prefix: str, found: MetalCpp) -> None:
    for kind, name, body in ENUM.findall(text):
        values = {}
        for entry in filter(None, (part.strip() for part in body.split(","))):
            constant, _, expression = (word.strip() for word in entry.partition("="))
            if re.fullmatch(r"[-0-9a-fA-FxUL<>| ()]+", expression):
                values[prefix + constant] = eval(re.sub(r"(?<=[\da-fA-F])[UL]+\b", "", expression), {})
        found.enums[prefix + name] = (objective_c(kind, prefix), values)


def read_the_rest(text: str, prefix: str, found: MetalCpp) -> None:
    for result, name, arguments in re.findall(r'extern "C" ([^;(]*?)(\w+)\(([^;]*)\);', text):
        types = [argument_type(a, prefix) for a in split_arguments(arguments)]
        found.functions[name] = (objective_c(result, prefix), types)
    for name, type_name in re.findall(r"^ *using (\w+)\s*= ([^;]+);", text, re.MULTILINE):
        found.aliases[prefix + name] = type_name
    for name, body in re.findall(r"^struct (\w+)\s*\{([^{}]*)\}", text, re.MULTILINE):
        fields = re.findall(r"^\s*([\w:]+)\s+(\w+);", body, re.MULTILINE)
        found.structs[prefix + name] = [(f, objective_c(t, prefix)) for t, f in fields]


def read_definition(match: re.Match, selectors: dict, found: MetalCpp) -> None:
    message = MESSAGE.search(match["body"])
    prefix = match["space"]
    if message is None or (prefix, message["accessor"]) not in selectors:
        return
    sign = "+" if "PRIVATE_CLS" in message["to"] else "-"
    key = (prefix + match["kind"], sign + selectors[prefix, message["accessor"]])
    arguments = [argument_type(a, prefix) for a in split_arguments(match["arguments"])]
    result = objective_c(match["result"], prefix)
    found.methods.setdefault(key, []).append(Method(result, arguments, bool(match["const"])))


# ---- types ----


def split_arguments(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for c in text:
        depth += c in "(<"
        depth -= c in ")>"
        if c == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += c
    return [p.strip() for p in [*parts, current] if p.strip()]


def argument_type(text: str, prefix: str) -> str:
    block = re.fullmatch(r"(.*)\(\s*\^\s*\w*\s*\)\((.*)\)", text.strip())
    if block:
        inner = ", ".join(objective_c(a, prefix) for a in split_arguments(block[2]))
        return f"{objective_c(block[1], prefix)} (^)({inner})"
    name = re.fullmatch(r"(.*[\s*&])\w+", text.strip())
    return objective_c(name[1] if name else text, prefix)


def qualified(name: str, prefix: str) -> str:
    space, _, plain = name.strip().rpartition("::")
    return (space or prefix) + plain


#: C++ types that are plain C.  All others are of metal-cpp: a class, a protocol or an enumeration.
PLAIN = {
    *("void", "char", "int", "float", "double", "uint64_t", "uint32_t", "uint8_t", "int64_t", "SEL"),
    *("CFTimeInterval", "task_id_token_t", "kern_return_t", "size_t", "unichar"),
}
#: metal-cpp's name: Objective-C's.
#: Of Metal's own types these are classes, and one a pointer to one; all others are protocols.
CLASSES = {
    *("MTLTextureDescriptor", "MTLSamplerDescriptor"),
    *("MTLCompileOptions", "MTLFunctionConstant", "MTLFunctionConstantValues", "MTLComputePipelineReflection"),
    *("MTLComputePipelineDescriptor", "MTLCommandBufferDescriptor", "MTLCaptureDescriptor", "MTLCaptureManager"),
    "MTLResidencySetDescriptor",
    "MTLAutoreleasedComputePipelineReflection",
}
RENAMED = {"bool": "BOOL", "NSObject *": "id"}


def objective_c(text: str, prefix: str) -> str:
    """A C++ type of metal-cpp in Objective-C's words: `const MTL::Buffer*` is `id<MTLBuffer>`."""
    stars = text.count("*")
    words = [w for w in re.sub(r"[*&]", " ", text).split() if w not in {"class", "static", "inline"}]
    is_const = "const" in words
    words = [w for w in words if w != "const"]
    base = " ".join(words)
    if base in RENAMED:
        return RENAMED[base] + " *" * stars
    if base in PLAIN:
        return ("const " if is_const and stars else "") + base + (" " + "*" * stars if stars else "")
    name = qualified(base, prefix)
    if name in {"NSErrorDomain", "NSErrorUserInfoKey"}:
        return name  # an alias of a pointer
    if not stars:
        return name
    if name.startswith("MTL") and name not in CLASSES and stars == 1:
        return f"id<{name}>"
    plain = f"{name} {'*' * stars}"
    return RENAMED.get(plain, plain)
