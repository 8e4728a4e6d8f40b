"""docs/inside/protocol.md: each rule of the exchange, who keeps it, and which tests hold it against whom.

    protocol.py [FILE]     writes it (default: docs/inside/protocol.md)

Made of three things, none of which it runs: the rules in tests/support/protocol_rules.md, `SPEC id` in the comments
of src/, `@pytest.mark.rule(id, ...)` on the tests.
The peers of a test are those that it needs (`@pytest.mark.needs_torch`), calls, or names (`peers=`).
"""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "inside" / "protocol.md"
#: Marker, or a module that a test calls: the peer's name in the table.
PEERS = {"torch": "torch", "numpy": "NumPy", "mlx": "MLX", "jax": "JAX", "tvm": "tvm-ffi"}
MODULES = {"np": "numpy", "torch": "torch", "mx": "mlx", "jnp": "jax", "tvm_ffi": "tvm"}
RULE = re.compile(r"^\| `([a-z0-9-]+)` \| (.+) \| (.+) \|$", re.MULTILINE)
_, *PARTS = (ROOT / "tests" / "support" / "protocol_rules.md").read_text().split("\n## ")
#: Part: {id: (what holds, source)}.
RULES = {
    part.partition("\n")[0]: {identifier: (sentence, source) for identifier, sentence, source in RULE.findall(part)}
    for part in PARTS
}
IDS = {identifier for part in RULES.values() for identifier in part}

INTRODUCTION = """# The protocol, rule by rule

What `metal_dlpack` does at each point of DLPack 1.3 and of the array API standard 2025.12, where they leave a choice,
and where the frameworks differ from them. `make docs` makes this page from the tests; a test fails
when a rule has no test or no place in the source.

To follow a rule: its id stands above the function that keeps it (`grep -rn "SPEC.*id" src`) and on the tests that hold
it (`grep -rn '"id"' tests`). "Against" are the frameworks whose own code takes part in these tests, NumPy sometimes as
the oracle only; "hand-made" are tensors made field by field, good and bad, through ctypes. On a machine without
Metal the frameworks take part with what their CPU builds do: torch and tvm-ffi carry kDLMetal tensors there.
"""

ENDINGS = """
## Deleters, and the end of things

- **Ours** (`managed_tensor.c`) touch no Python: any thread, with or without the GIL, in any order, also while the
  interpreter ends and after it. They free the MTLBuffer when they are the last.
- **Others'** are called once, with the GIL of the interpreter that imported the tensor, and never with an exception
  set; one that they leave behind is dropped. The last reference may go on a thread without the GIL: then the tensor
  waits on a list, which a pending call, the next import or export, or the end of the interpreter empties
  (`owners.c`).
- **While the interpreter ends** what is on the list is let go when the module is collected. **After it** foreign
  tensors and Python owners are left alone: their deleters may need what is gone.
- **Sub-interpreters** have modules, types and lists of their own. A tensor may cross; its owner is let go in the
  interpreter it came from. When that has ended before, a foreign tensor that it imported is left alone.
- **After fork()** the child may look at shared memory and let everything go, silently. It cannot talk to Metal: such a
  call raises MetalError.
- **On Metal's own threads** (completion handlers) nothing of Python runs.
"""


def places():
    """Rule: `file.c: function` for each function whose comment names it."""
    found = defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.[cm]"), key=lambda path: path.name):
        text = path.read_text()
        for comment in re.finditer(r"/\*.*?\*/", text, re.DOTALL):
            for tag in re.findall(r"SPEC ([a-z0-9-]+(?:,[\s*]+[a-z0-9-]+)*)", comment.group()):
                function = re.search(r"^(\w+)\(", text[comment.end() :], re.MULTILINE)
                for identifier in re.split(r"[\s*,]+", tag):
                    if identifier in IDS and function:
                        found[identifier].append(f"{path.name}: {function[1]}")
    return found


def markers_of(function):
    """(name, literal arguments, literal peers) of each pytest marker."""
    for decorator in function.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name = call.func if call else decorator
        if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Attribute) and name.value.attr == "mark":
            values = [a.value for a in call.args if isinstance(a, ast.Constant)] if call else []
            peers = [ast.literal_eval(k.value) for k in call.keywords if k.arg == "peers"] if call else []
            yield name.attr, values, peers[0] if peers else ()


def peers_of(function):
    """The frameworks that a test needs or calls."""
    named = set()
    for name, _, peers in markers_of(function):
        named |= {name.removeprefix("needs_"), *peers}
    called = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    named |= {MODULES[name] for name in called & MODULES.keys()}
    return [PEERS[name] for name in PEERS if name in named]


def tests():
    """Rule: (`file.py: test`, its peers) for each test that has it."""
    found = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py"), key=lambda path: path.name):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "mark.rule(" in text else ():
            if not isinstance(node, ast.FunctionDef):
                continue
            for name, values, _ in markers_of(node):
                for identifier in values if name == "rule" else ():
                    found[identifier].append((f"{path.name}: {node.name}", peers_of(node)))
    return found


def cell(lines):
    return "<br>".join(f"`{line}`" for line in lines) or "none"


def document(kept, held):
    text = [INTRODUCTION]
    for part, rules in RULES.items():
        text += [
            f"\n## {part}\n",
            "| rule | what holds | source | kept by | held by | against |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for identifier, (sentence, source) in rules.items():
            names = [name for name, _ in held[identifier]]
            against = sorted({peer for _, peers in held[identifier] for peer in peers}) or ["hand-made"]
            row = (f"`{identifier}`", sentence, source, cell(kept[identifier]), cell(names), ", ".join(against))
            text.append("| " + " | ".join(row) + " |")
    return "\n".join(text) + "\n" + ENDINGS


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    target.write_text(document(places(), tests()))
