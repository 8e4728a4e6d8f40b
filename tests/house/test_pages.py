"""Every page: its code runs as it stands there, top to bottom; its commands, links and names exist."""

import ast
import contextlib
import doctest
import importlib
import re
import tomllib

import page_names
import pytest
from places import ROOT
from recipes import blocks, pages, without_blocks

PAGES = pages()
#: Module of `page_names.MODULES`, or of an import: the marker.
MARKERS = {"jax": "jax", "mlx": "mlx", "numpy": "numpy", "torch": "torch", "tvm_ffi": "tvm", "ml_dtypes": "ml_dtypes"}
MARKS = ("", "not run", "run by", "needs", "printed", "timeline")
#: Blocks that are not run: pictures, output, commands.
WORDS = ("", "text", "sh", "console")


# ---- Python ----


def names_in(code):
    """The names that the code uses, and the modules that it imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            yield page_names.MODULES.get(node.id, "").partition(".")[0]
        elif isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def python_of(block):
    """The code alone, where the block is a session with `>>>`."""
    if not block.text.startswith(">>>"):
        return block.text
    return "".join(example.source for example in doctest.DocTestParser().get_examples(block.text))


def needs_of(code):
    found = {MARKERS.get(name) for block in code if block.is_run for name in names_in(python_of(block))}
    compiles = any(re.search(r"md\.(kernel|Library)\(", block.text) for block in code)
    return {f"needs_{name}" for name in found if name} | ({"needs_kernels"} if compiles else set())


def cases():
    """Each page with what runs everywhere, and once more whole where some of it needs a machine of its own."""
    for page in PAGES:
        code = [block for block in blocks(page) if block.is_run or block.mark == "printed"]
        special = frozenset().union(*(block.needs for block in code))
        for more in {frozenset(), special}:
            kept = [block for block in code if block.needs <= more]
            if any(block.is_run for block in kept) and any(block.needs == more for block in kept):
                marks = [getattr(pytest.mark, name) for name in sorted(needs_of(kept) | more)]
                yield pytest.param(page, kept, marks=marks, id="-".join([page, *sorted(more)]))


def modules_of(block):
    """Pages do not repeat the imports in each fragment."""
    used = {node.id for node in ast.walk(ast.parse(python_of(block))) if isinstance(node, ast.Name)}
    return {name: importlib.import_module(page_names.MODULES[name]) for name in used & page_names.MODULES.keys()}


def run(page, block, names):
    """With the page's own line numbers, for tracebacks."""
    if block.text.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.text, names, page, page, block.line - 1)
        failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
        assert not failed
        names.update(test.globs)
    else:
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)


def nbytes_of(begin, end):
    return int(end.replace(",", "")) - int(begin.replace(",", ""))


def without_places(printed):
    """What was printed, but for where memory lies, how long a page is, and how a sentence is broken into lines."""
    printed = re.sub(r"(?m)(0x[0-9a-f]+.*)\n {4}", r"\1 ", printed)
    printed = re.sub(r"(0x[0-9a-f]+ \(shared\)), .*", r"\1", printed)
    printed = re.sub(r"bytes ([\d,]+) to ([\d,]+)", lambda range_: f"{nbytes_of(*range_.groups())} bytes", printed)
    lines = (line.rstrip() for line in re.sub(r"0x[0-9a-f]+", "0x...", printed).splitlines())
    return "\n".join(lines).strip()


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(("page", "code"), list(cases()))
def test_the_code_of_a_page_runs_from_top_to_bottom(page, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    setup = getattr(page_names, page.removeprefix("docs/").removesuffix(".md").replace("/", "_").lower(), None)
    with contextlib.contextmanager(setup)() if setup else contextlib.nullcontext({}) as names:
        names["__name__"] = "page"
        for block in code:
            if block.is_run:
                names.update({**modules_of(block), **names})
                run(page, block, names)
            else:
                assert without_places(capsys.readouterr().out) == without_places(block.text), f"{page}:{block.line}"


# ---- other languages ----


def test_a_block_is_run_or_says_why_not():
    found = [(page, block) for page in PAGES for block in blocks(page)]
    for page, block in found:
        where = f"{page}:{block.line}"
        assert block.mark in MARKS, where
        if block.mark == "not run":
            assert len(block.words) > 10, where
        elif block.mark == "run by":
            test = (ROOT / block.words).read_text()
            assert page.rpartition("/")[2] in test, where
            assert block.language == "python" or f'"{block.language}"' in test, where
        elif block.language == "toml":
            tomllib.loads(block.text)
        else:
            assert block.language in ("python", *WORDS), where


def test_code_is_not_wider_than_a_page_shows():
    """On a laptop, beside the sidebar.  What is printed, and pictures, are as they are."""
    wide = [
        f"{page}:{block.line + number}"
        for page in PAGES
        for block in blocks(page)
        for number, line in enumerate(block.text.splitlines())
        if block.language not in ("", "text") and len(line) > 78
    ]
    assert wide == []


# ---- commands ----

MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def check_make(words):
    for target in (word for word in words if re.fullmatch(r"[a-z][\w-]*", word)):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def check_python(words):
    """A module that is there, or a file."""
    if words[:1] == ["-m"]:
        assert importlib.util.find_spec(words[1].partition(".")[0]), words[1]
    elif words and words[0].endswith(".py"):
        assert (ROOT / words[0]).is_file(), words[0]


def check_pip(words):
    extras = PROJECT["project"]["optional-dependencies"]
    for extra in re.findall(r"metal_dlpack\[(\w+)\]", " ".join(words)):
        assert extra in extras, extra


COMMANDS = {"make": check_make, "python": check_python, "python3": check_python, "pip": check_pip}
#: Others' programs.
OTHERS = {
    "apt-get",
    "cc",
    "dask",
    "export",
    "git",
    "ray",
    "sudo",
    "taskset",
    "pre-commit",
    "xcode-select",
    "cd",
    "grep",
}


def commands(page):
    """(line, its words) of each command in blocks and in lines that are set in by four."""
    for block in blocks(page):
        if block.language in WORDS:
            for line in block.text.replace("\\\n", " ").splitlines():
                yield block.language, re.sub(r"^\$ |(?<=\S)  +.*", "", line).split()
    for line in re.findall(r"^ {4}(\S.*)$", without_blocks(page), re.MULTILINE):
        yield "", line.split()
    for code in re.findall(r"`(make [^`]*)`", without_blocks(page)):
        yield "", code.split()


def test_the_commands_of_a_page_exist():
    found = [(page, language, words) for page in PAGES for language, words in commands(page) if words]
    assert len(found) > 50
    for page, language, (first, *words) in found:
        if first in COMMANDS:
            COMMANDS[first](words)
        else:
            assert language not in ("sh", "console") or first in OTHERS, f"{page}: {first}"


# ---- links and names ----


def anchors(path):
    """The headings of a page as GitHub and the site name them."""
    found = []
    text = re.sub(r"^( *)```.*?^\1```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found


def test_the_files_and_headings_that_a_page_links_to_exist():
    dead = []
    for page in PAGES:
        for target in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", without_blocks(page)):
            path, _, anchor = target.partition("#")
            path = (ROOT / page).parent / path if path else ROOT / page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                dead.append(f"{page}: {target}")
    assert dead == []


def test_the_names_that_a_page_uses_exist():
    import metal_dlpack as md

    used = [(page, name) for page in PAGES for name in re.findall(r"(?<![\w./])md\.(\w+)", (ROOT / page).read_text())]
    assert len(used) > 150
    assert [f"{page}: md.{name}" for page, name in used if not hasattr(md, name)] == []
