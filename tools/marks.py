"""What sources say of themselves to `make coverage` and `make mutants`, at the line.

    /* unreached: why */                no test reaches it
    /* mutant survives (RULE): why */   no test can see what this rule of mutant_rules.py makes of the line;
                                        "bound #2": the second that the rule makes of it
    # mutant survives (RULE): why       the same in Python; rules of mutant_python.py

At the end of a line, `unreached` is about that statement, with the block that it opens; on a line of its own, about the
rest of the block; before a function, about the whole of it.  `mutant survives` is about its line, or the next of code.
"""

import re

MARK = re.compile(r"(?:/\*|#) (?P<kind>unreached|mutant survives)(?: \((?P<rule>[^)]+)\))?: (?P<why>.+?)(?: \*/|$)")
COMMENT = re.compile(r"/\*.*?\*/|# mutant survives .*")


def code_of(line: str) -> str:
    return COMMENT.sub("", line).strip()


def column_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def end_of_rest(lines: list[str], first: int) -> int:
    """The last line before one that stands further to the left: clang-format has indented them."""
    column = column_of(lines[first])
    ends = (i for i in range(first, len(lines)) if lines[i].strip() and column_of(lines[i]) < column)
    return next(ends, len(lines)) - 1


def end_of_statement(lines: list[str], first: int) -> int:
    for i in range(first, len(lines)):
        code = code_of(lines[i])
        if code.endswith("{"):
            return end_of_rest(lines, i + 1)
        if code.endswith((";", "}", ":")):
            return i
    return len(lines) - 1


def places_of(lines: list[str], i: int, kind: str) -> range:
    """The lines that a mark on this one is about, counted from 0."""
    first = next(j for j in range(i, len(lines)) if code_of(lines[j]))
    if kind == "mutant survives":
        return range(first, first + 1)
    if first == i:
        return range(i, end_of_statement(lines, i) + 1)
    if column_of(lines[i]) == 0:
        return range(first, lines.index("}", first) + 1)
    return range(first, end_of_rest(lines, i) + 1)


def marks_of(text: str, kind: str) -> list[tuple[range, str, str]]:
    """(lines, rule, why) of each mark of a kind."""
    lines = text.splitlines()
    return [
        (places_of(lines, i, kind), mark["rule"] or "", mark["why"])
        for i, line in enumerate(lines)
        for mark in MARK.finditer(line)
        if mark["kind"] == kind
    ]
