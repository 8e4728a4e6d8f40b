"""Mutants of Python by rule: what may stand in place of a comparison, a constant, a statement.

Annotations, texts and what only a type checker runs are left as they are.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Function:
    name: str
    returns: str  # of C: its result's type, with what stands before
    head: int  # where it begins
    start: int  # of the body
    end: int


TURNED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is",
    "in": "not in", "not in": "in", "and": "or", "or": "and", "+": "-", "-": "+", "*": "+", "//": "*", "%": "//",
    "<<": ">>", ">>": "<<", "&": "|", "|": "&", "min": "max", "max": "min", "any": "all", "all": "any",
    "break": "continue", "continue": "break",
}  # fmt: skip
OPERATOR = re.compile(r"not\s+in|is\s+not|\b(?:in|is|and|or)\b|\*\*|<<|>>|//|[<>=!]=|[-+*%&|<>]")


def reader(text: str) -> Callable[[ast.AST], tuple[int, int]]:
    """What tells where a node begins and ends.  ast counts bytes of a line in UTF-8; a mutant is made of characters."""
    data = text.encode()
    starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]

    def span(node: ast.AST) -> tuple[int, int]:
        ends = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        return tuple(len(data[: starts[line - 1] + column].decode()) for line, column in ends)

    return span


def functions(text: str) -> list[Function]:
    """An inner one after the one that holds it."""
    span, found = reader(text), []

    def walk(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            inner = f"{outer}{child.name}." if is_function or isinstance(child, ast.ClassDef) else outer
            if is_function:
                head, end = span(child)
                found.append(Function(inner[:-1], "", head, span(child.body[0])[0], end))
            walk(child, inner)

    walk(ast.parse(text), "")
    return found


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """It and what it is made of, but for what is left as it is.  ast does not know the places in an f-string."""
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    if is_for_types or isinstance(node, ast.JoinedStr | ast.arg):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns"):
                yield from parts(child)


def changes(text: str) -> dict[tuple[int, int, str], str]:
    """What stands for which place, and the rule that says so: the first of two that say the same."""
    span = reader(text)
    found: dict[tuple[int, int, str], str] = {}

    def make(rule: str, node: ast.AST, instead: str) -> None:
        found.setdefault((*span(node), instead.replace("IT", text[slice(*span(node))])), rule)

    def turn_operators(rule: str, operands: list[ast.AST]) -> None:
        for left, right in pairwise(operands):
            start, end = span(left)[1], span(right)[0]
            between = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), text[start:end])
            if (operator := OPERATOR.search(between)) and (turned := TURNED.get(" ".join(operator[0].split()))):
                found.setdefault((start + operator.start(), start + operator.end(), turned), rule)

    for node in parts(ast.parse(text)):
        match node:
            case ast.Compare():
                turn_operators("comparison", [node.left, *node.comparators])
            case ast.BoolOp():
                turn_operators("logic", node.values)
            case ast.BinOp():
                turn_operators("sign", [node.left, node.right])
            case ast.Call(func=ast.Name(id="min" | "max" | "any" | "all")):
                make("comparison", node.func, TURNED[node.func.id])
            case ast.UnaryOp(op=ast.Not()):
                make("condition", node, text[slice(*span(node.operand))])
            case ast.IfExp() | ast.If() | ast.While():
                make("condition", node.test, "(not (IT))")
            case ast.comprehension():
                for test in node.ifs:
                    make("condition", test, "(not (IT))")
            case ast.Constant(value=bool()):
                make("constant", node, str(not node.value))
            case ast.Constant(value=int()):
                make("number", node, str(node.value + 1))
                make("number", node, f"({node.value - 1})")
            case ast.Slice():
                for bound in (node.lower, node.upper):
                    if bound is not None and not isinstance(bound, ast.Constant):
                        make("off by one", bound, "(IT) + 1")
            case ast.Raise():
                make("dropped raise", node, "pass")
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
                make("dropped statement", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                make("dropped statement", node, "pass")
            case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
                make("return", node, "return None")
            case ast.Break() | ast.Continue():
                make("loop", node, TURNED[text[slice(*span(node))]])
            case ast.ExceptHandler(body=[first, *_]):
                place = span(first)[0], span(node)[1]
                found.setdefault((*place, "raise" if isinstance(first, ast.Pass) else "pass"), "dropped handler")
    return found
