"""Who needs whom in src/ and python/: by the #include lines, by the symbols that the linker joins, by Python's imports.

A room is a file with its header: `metal/storage` is storage.c and storage.h.  tests/house/test_graph.py shows that
each of the three graphs finds what it should.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from places import KIT, PACKAGES, SRC, dlpack_include, python_files

Graph = dict[str, set[str]]

#: What nm calls a symbol that another object must define; v and w are weak.
UNDEFINED = {"U", "v", "w"}


def files() -> list[Path]:
    """Not the headers one folder deeper: Apple's, as the software Metal declares them, and the C API's."""
    parts = [path for path in SRC.glob("softmetal/*/*.[chm]") if path.parent.name not in {"Metal", "Foundation"}]
    return sorted([*SRC.glob("*.[chm]"), *SRC.glob("*/*.[chm]"), *parts])


def room(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").as_posix()


def folder(name: str) -> str:
    """The floor of a room: "softmetal/gpu" of "softmetal/gpu/lane", and "" is src/ itself."""
    return name.rpartition("/")[0]


def includes(path: Path) -> list[str]:
    """What stands between quotes, and what stands between angle brackets but is ours."""
    found = re.findall(r'^\s*#\s*(?:include|import)\s*(?:"([^"]+)"|<([^>]+)>)', path.read_text(), re.MULTILINE)
    return [quoted or angled for quoted, angled in found if quoted or (SRC / angled).is_file()]


def reaches_python(path: Path, seen: frozenset[Path] = frozenset()) -> bool:
    """Does Python.h come in, through any header of ours?"""
    if re.search(r"^\s*#\s*include\s*[<\"]Python\.h", path.read_text(), re.MULTILINE):
        return True
    others = {root / name for name in includes(path) for root in (SRC, PACKAGES)} - seen
    return any(reaches_python(other, seen | others) for other in others if other.is_file())


def include_graph() -> Graph:
    needs: Graph = defaultdict(set)
    rooms = {room(path) for path in files()}
    for path in files():
        needs[room(path)] |= {room(SRC / name) for name in includes(path)} & rooms - {room(path)}
    return needs


def symbol_graph(objects: Path) -> Graph:
    """A room needs those that define what it leaves undefined; what no build has compiled goes into `objects`."""
    sources = [path for path in files() if path.suffix != ".h"]
    defined: dict[str, str] = {}
    asked: Graph = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, (gives, takes) in zip(sources, pool.map(lambda path: symbols(path, objects), sources), strict=True):
            defined |= dict.fromkeys(gives, room(path))
            asked[room(path)] = takes
    return {name: {defined[s] for s in takes if s in defined} - {name} for name, takes in asked.items()}


def symbols(source: Path, objects: Path) -> tuple[set[str], set[str]]:
    """The names that the source's object defines for other files, and those that it asks for."""
    target = object_of_the_build(source) or compiled(source, objects)
    nm = shutil.which("gcc-nm") or "nm"  # the objects may be link-time optimisation's
    listing = subprocess.run([nm, "-P", "-g", target], capture_output=True, text=True, check=True).stdout
    kinds = [line.split()[:2] for line in listing.splitlines()]
    asked = {name for name, kind in kinds if kind in UNDEFINED}
    return {name for name, _ in kinds} - asked, asked


def object_of_the_build(source: Path) -> Path | None:
    """What `make build` compiled, if nothing has changed since."""
    folder = SRC.parent / "build" / f"temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    target = (folder / source.relative_to(SRC.parent)).with_suffix(".o")
    if not target.exists():
        return None
    newest = max(path.stat().st_mtime for path in [source, *SRC.rglob("*.h"), *PACKAGES.rglob("*.h")])
    return target if newest < target.stat().st_mtime else None


def compiled(source: Path, objects: Path) -> Path:
    compiler = os.environ.get("CC", "cc").split()
    target = objects / (room(source).replace("/", "-") + ".o")
    headers = [SRC, PACKAGES, SRC / "softmetal", dlpack_include(), sysconfig.get_path("include")]
    flags = ["-std=gnu11", "-O0", "-w", "-fPIC", *(f"-I{path}" for path in headers)]
    subprocess.run([*compiler, *flags, "-c", source, "-o", target], check=True)
    return target


def can_compile() -> bool:
    compiler = os.environ.get("CC", "cc").split()[0]
    return sys.platform != "darwin" and None not in (shutil.which(compiler), shutil.which("nm"))


def import_graph() -> Graph:
    """The modules of the Python packages, by every import in them that runs where the module is imported or used.

    import_module and __import__ count where their name is written out.  One put together at run time is not seen.
    """
    modules = {module_name(path): path for root in (PACKAGES, KIT) for path in python_files(root)}
    stubs = {module_name(path) for path in PACKAGES.rglob("*.pyi")}  # what they import is for type checkers
    needs: Graph = {name: set() for name in stubs}
    for name, path in modules.items():
        is_package = path.name == "__init__.py"
        found: set[str] = set()
        for node in running(ast.parse(path.read_text())):
            found |= imported(node, name, is_package) | called_for(node, name, is_package)
        needs[name] = {closest(target, stubs | modules.keys()) for target in found} - {None, name}
    return needs


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module, without those for type checkers alone, and those of the program that it is beside."""
    for node in ast.iter_child_nodes(tree):
        is_other = isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "__name__ == '__main__'"}
        for part in node.orelse if is_other else [node]:
            yield part
            yield from running(part)


def module_name(path: Path) -> str:
    root = KIT if KIT in path.parents else PACKAGES
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST, name: str, is_package: bool) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    base = absolute(node.level, node.module or "", name, is_package)
    return {f"{base}.{alias.name}" for alias in node.names}


def called_for(node: ast.AST, name: str, is_package: bool) -> set[str]:
    """What import_module("...") and __import__("...") name; the dots of the first count from its own package."""
    match node:
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(target)), *_],
        ):
            module = target.lstrip(".")
            return {absolute(len(target) - len(module), module, name, is_package)}
    return set()


def absolute(dots: int, module: str, name: str, is_package: bool) -> str:
    """The module that `dots` and `module` mean where `name` says them."""
    if not dots:
        return module
    parts = name.split(".")
    parts = parts[: len(parts) - dots + is_package]
    return ".".join([*parts, *filter(None, [module])])


def closest(target: str, modules) -> str | None:
    while target and target not in modules:
        target = target.rpartition(".")[0]
    return target or None


def circle(needs: Graph) -> list[str]:
    """Rooms of which each needs the next and the last the first, or none."""
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return error.args[1]
    return []
