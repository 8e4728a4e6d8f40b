"""Mutants by rule: one comparison turned, one call dropped, one constant returned, at each place of the sources.

C is read as text, as clang-format leaves it, Python by its syntax.  What does not compile costs a second.
A mutant is known by file, function, rule and the code of its line, so it keeps its name when lines move.
"""

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import mutant_python
from marks import code_of, marks_of
from mutant_python import Function

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    *("arithmetic", "copy", "bridge", "metal", "python", "values"),
    *("streams", "array", "exchange", "kernels", "module", "without_mac"),
)


@dataclass(frozen=True)
class Mutant:
    """`instead` in place of the text at `start`..`end` of a file."""

    file: str
    function: str
    rule: str
    line: str  # the code of the line that holds the place
    nth: int  # of the mutants that are alike in all that
    start: int
    end: int
    instead: str
    reason: str = ""  # why no test can see it; "": one must

    @cached_property
    def name(self) -> str:
        nth = f" #{self.nth}" if self.nth > 1 else ""
        return f"{self.file} {self.function}: {self.rule}{nth}: {self.line}"

    def apply(self, text: str) -> str:
        return text[: self.start] + self.instead + text[self.end :]


# ---- reading C ----

CODE_ONLY = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ ]*\#(?:[^\n]*\\\n)*[^\n]*""", re.S | re.M
)


def blank(text: str) -> str:
    """Comments, texts and preprocessor lines are spaces; each character keeps its place."""
    return CODE_ONLY.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


BODY = re.compile(r"^(?P<head>\w[^;{}=]*?\)|[-+] \([^;{}=]*?)\s*\n\{\n(?P<body>.*?)^\}", re.S | re.M)
METHOD = re.compile(r"^[-+] \(.*?\)\s*(\w+)", re.S)


def functions(file: str, text: str) -> list[Function]:
    if file.endswith(".py"):
        return mutant_python.functions(text)
    found = []
    code = blank(text)
    for match in BODY.finditer(code):
        head = re.sub(r"\A.*?^ARGS_\w+\((\w+),", r"PyObject *\n\1(", match["head"], flags=re.S | re.M)  # python/args.h
        name = METHOD.match(head) or re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\(\(.*?\)\)", "", head))
        returns = re.sub(r"__attribute__\(\(.*?\)\)", "", head)[: name.start()]
        owner = re.findall(r"^@implementation (\w+)", code[: match.start()], re.M) if METHOD.match(head) else []
        called = ".".join([*owner[-1:], name[1]])
        found.append(Function(called, " ".join(returns.split()), match.start(), match.start("body"), match.end("body")))
    return found


def function_at(of_file: list[Function], place: int) -> Function | None:
    """The innermost."""
    return next((function for function in reversed(of_file) if function.head <= place < function.end), None)


# ---- rules: (name, pattern, what stands in place of its group x; None: `replaced` says) ----
# Of two rules that make the same of a place, the first names it.

TURNED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "++": "--",
    "--": "++", "true": "false", "false": "true",
}  # fmt: skip

RELEASES = r"\w*(?:retain|release|INCREF|DECREF|CLEAR|free|forget|destroy|drain|delete)\w*"
LOCKS = r"\w*(?:lock_take|lock_drop|_lock|_unlock)"
WAITS = r"\w*wait\w*"
STATEMENT = r"^[ ]+(?P<x>(?:\(void\))?{name}\([^;]*\);)[ ]*$"
MESSAGE = r"^[ ]+(?P<x>\[(?:[^;\]]|\][^;])*\b{name}\b[^;]*\];)[ ]*$"
CONDITION = r"\bif \((?P<x>(?:[^;{{}}]|\n)*?{end})\) \{{[ ]*$"
FAILURE = r"(?:< 0|== NULL|!= BRIDGE_OK|PyErr_Occurred\(\))"

RULES: list[tuple[str, str, str | None]] = [
    ("bound", r" (?P<x><=?|>=?) ", None),
    ("comparison", r" (?P<x>[!=]=) ", None),
    ("sign", r"(?<=[\w)\]]) (?P<x>[-+]=?) ", None),
    ("sign", r"(?<=[\w)\]])(?P<x>\+\+|--)(?=;)", None),
    ("off by one", r"(?P<x> [-+] 1)\b(?!\w| <<)", ""),
    ("off by one", r"\(int i = (?P<x>0);", "1"),
    ("product", r"(?<=[\w)\]]) (?P<x>[*/%]|<<|>>) (?=[\w(])", None),
    ("logic", r" (?P<x>&&|\|\|)(?= |$)", None),
    ("not", r"(?P<x>!)(?=[\w(])", ""),
    ("dropped flag", r"(?P<x> \| \w+)\b(?! [-+*/])", ""),
    ("ignored flag", r"\b(?P<x>is_\w+|has_\w+|may_\w+|\w+->is_\w+) \?", "true"),
    ("ignored flag", r"(?<=[\w)]\.|->)(?:is|has)_\w+ = (?P<x>[^;]+);", "false"),
    ("constant", r"(?<!return )\b(?P<x>true|false)\b", None),
    ("if for while", r"^ +(?P<x>while) \(", "if"),
    ("dropped error", CONDITION.format(end=FAILURE), "false"),
    ("condition never", CONDITION.format(end=""), "false"),
    ("condition always", CONDITION.format(end=""), "true"),
    ("dropped count", STATEMENT.format(name=RELEASES), ";"),
    ("dropped count", MESSAGE.format(name="(?:retain|release|drain)"), ";"),
    ("dropped lock", STATEMENT.format(name=LOCKS), ";"),
    ("skipped wait", STATEMENT.format(name=WAITS), ";"),
    ("skipped wait", r"\breturn (?P<x>\w*wait\w*\([^;]*\));", "0"),
    ("dropped call", STATEMENT.format(name=r"\w+"), ";"),
    ("dropped call", MESSAGE.format(name=r"\w+"), ";"),
    ("dropped assignment", r"^ +(?P<x>(?:\*?[\w.>\[\]-]+) (?:[-+|&*/]|<<|>>)?= [^;]*;)[ ]*$", ";"),
    ("constant returned", r"\breturn (?P<x>[^;]+);", None),
]
COMPILED = [(name, re.compile(pattern, re.M), instead) for name, pattern, instead in RULES]


def constant_of(function: Function, value: str) -> str | None:
    """A result of the function's type that is wrong now and then."""
    if value in ("0", "-1", "NULL", "true", "false"):
        return {"0": "-1", "true": "false", "false": "true"}.get(value)
    if function.returns.endswith("PyObject *"):
        return "Py_NewRef(Py_None)"
    if function.returns.endswith("*"):
        return "NULL"
    return "true" if function.returns.endswith("bool") else "0"


def replaced(name: str, instead: str | None, text: str, function: Function) -> str | None:
    if instead is not None:
        return instead
    if name == "constant returned":
        return constant_of(function, text)
    return TURNED[text]


def changes_in_c(text: str, named: list[Function]) -> dict[tuple[int, int, str], str]:
    """What stands for which place, and the rule that says so."""
    code = blank(text)
    found: dict[tuple[int, int, str], str] = {}
    for function in named:
        for name, pattern, wanted in COMPILED:
            for match in pattern.finditer(code, function.start, function.end):
                start, end = match.span("x")
                instead = replaced(name, wanted, code[start:end], function)
                if instead is not None and code[start:end] != instead:
                    found.setdefault((start, end, instead), name)
    return found


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All that the rules make of a file, in the order of its lines."""
    named = functions(file, text)
    found = mutant_python.changes(text) if file.endswith(".py") else changes_in_c(text, named)
    reasons = {(places.start, rule): why for places, rule, why in marks_of(text, "mutant survives")}
    seen: Counter = Counter()
    made = []
    for (start, end, instead), rule in sorted(found.items(), key=lambda item: item[0]):
        first = text.rfind("\n", 0, start) + 1
        line = code_of(text[first : text.find("\n", start)])
        function = function_at(named, start)
        key = (function.name if function else "", rule, line)
        seen[key] += 1
        row = text.count("\n", 0, start)
        why = reasons.get((row, rule)) or reasons.get((row, f"{rule} #{seen[key]}"), "")
        made.append(Mutant(file, *key, seen[key], start, end, instead, why))
    return made


#: What is broken: the core, which `make mutants` takes unless it is told otherwise, and the two others.
SOURCES = {
    "core": [f"src/{folder}/*.[chm]" for folder in FOLDERS],
    "softmetal": [f"src/softmetal/{f}*.[chm]" for f in ("", "apple/", "checker/", "gpu/", "kernels/")],
    "python": [
        *(f"python/metal_dlpack/{f}.py" for f in ("asking/*", "files/*", "language/*", "explaining")),
        "python/softmetal/msl/*.py",
        "kit/dlpack_conformance/*.py",
    ],
}


def sources(*of: str) -> list[str]:
    """List the sources of these parts, or of all."""
    patterns = [pattern for part in of or SOURCES for pattern in SOURCES[part]]
    return [str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def all_mutants(*of: str) -> dict[str, list[Mutant]]:
    return {file: mutants_of(file, (ROOT / file).read_text()) for file in sources(*of)}


# ---- choosing ----

#: Rules whose mutants are chosen so many times as often: few places, and the bugs that hurt.
WEIGHTS = {"skipped wait": 6, "dropped flag": 6, "constant": 2}
WEIGHTS |= dict.fromkeys(("dropped error", "dropped count", "dropped lock", "if for while", "ignored flag"), 3)


def chance(mutant: Mutant) -> float:
    """The lower, the sooner.  Made of the name, so that lines may move."""
    drawn = int(sha256(mutant.name.encode()).hexdigest()[:12], 16) / 16**12
    return -math.log(1 - drawn) / WEIGHTS.get(mutant.rule, 1)


def spread(mutants: list[Mutant], count: int, used: Counter) -> list[Mutant]:
    """So many of them, spread over functions and rules; `used` counts those, also of the folder's files before."""
    left = {mutant: chance(mutant) for mutant in mutants}
    order: list[Mutant] = []
    while left and len(order) < count:
        best = min(left, key=lambda m: (used[m.function] + used[m.rule], left[m]))
        del left[best]
        used.update((best.function, best.rule))
        order.append(best)
    return order


def choose(count: int, of: str = "core") -> list[Mutant]:
    """So many, of each file by how much there is to break in it; at least one."""
    everything = {file: mutants for file, mutants in all_mutants(of).items() if mutants}
    total = sum(map(len, everything.values()))
    chosen = []
    used: dict[Path, Counter] = defaultdict(Counter)
    for file, mutants in everything.items():
        chosen += spread(mutants, max(1, round(count * len(mutants) / total)), used[Path(file).parent])
    return chosen


# ---- a list that was made before ----


def read_given(path: Path) -> tuple[list[Mutant], list[str]]:
    """The mutants whose names a file has, a line each, and the names of those that are gone."""
    known = {mutant.name: mutant for made in all_mutants().values() for mutant in made}
    names = path.read_text().splitlines()
    return [known[name] for name in names if name in known], [name for name in names if name not in known]
