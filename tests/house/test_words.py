"""How the project speaks: forms that a reader stumbles over are counted in comments, docstrings and pages, and fall."""

import re
import subprocess
from pathlib import Path

from places import ROOT

#: The most that there may be of each form.
MOST = {
    r"\bWhoever\b": 0,
    r"(?:^|[.:] +)Of (?!course)[a-z]": 0,
    r"(?:^|[.] +)[Tt]hose\b": 0,
    r"\b(?:of|with|by) (?:[A-Za-z]+'s|ours|theirs)(?=[.,:;)]|$| (?:of|that|which|who|in|on|is|are|and|or|at|to|for"
    r"|from|has|have|with|by|without|whose|as|where|makes|would|may|can|cannot|tells|goes|there|here|alone)\b)": 0,
}

#: What is read: comments and docstrings, and the paragraphs of pages, their code left out.
READ = {".py": r"(?m:(?:^ *#.*\n)+)|#:? .*|\"\"\"(?s:.*?)\"\"\"", ".md": r"(?m:(?:^.*\S.*\n)+)"}
IN_C = r"/\*(?s:.*?)\*/|(?m:(?:^ *//.*\n)+)|// .*"


def sentences():
    """Yield (place, text) of each comment, docstring and paragraph, its lines joined."""
    folders = ("src", "python", "kit", "docs", "tests", "tools", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
    for path in map(Path, subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True).splitlines()):
        if path.suffix in (".py", ".c", ".h", ".m", ".cpp", ".md") and path.name != Path(__file__).name:
            text = (ROOT / path).read_text()
            if path.suffix == ".md":
                text = re.sub(r"(?ms)^ *```.*?^ *```", lambda code: "\n" * code[0].count("\n"), text)
            for found in re.finditer(READ.get(path.suffix, IN_C), text):
                words = re.sub(r"\n *(?://|#:?|\*(?!\*))? *", " ", found[0]).strip('/*#:"- |')
                yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}", words


def test_forms_that_readers_stumble_over_only_become_fewer():
    found = {form: [] for form in MOST}
    for place, words in sentences():
        for form, there in found.items():
            there += [f"{place}: {words[max(at.start() - 40, 0) : at.end() + 40]}" for at in re.finditer(form, words)]
    assert {form: len(there) for form, there in found.items()} == MOST, found
