"""What C only borrows is not used once code has run that is not ours.

An open Buffer's storage is borrowed until somebody closes it, the object behind a handle until somebody lets go of it.
An argument's conversion can do both, as can the garbage collector, a finaliser, and another thread where the GIL is
released: so every argument is converted first, then the Buffer is held (or its storage, its handle retained), and only
then is there work.  tests/hostile/test_conversions.py tries it; this reads the sources, and finds what no test reaches.
"""

import itertools
import re

from places import SRC

FOLDERS = ("array", "exchange", "kernels", "module", "python", "streams", "values", "without_mac")

#: What gives something borrowed: the variable is what the call is assigned to, or the address that it takes last.
BORROWS = [
    re.compile(r"(\w+)\s*=\s*[^;=]*?\b(?:\w+_open_storage|\w+_storage_of_open|writable_storage)\("),
    re.compile(r"(\w+)\s*=\s*buffer_cast\(\w+\)->storage;"),
    re.compile(r"\bargs_handle\([^;]*?&(\w+)\)"),
    re.compile(r"(\w+)\s*=\s*Py\w+_GetItemWithError\("),
]
#: From here on it is kept.
HOLDS = re.compile(r"\b(buffer_hold|storage_retain|array_new|bridge_\w+_retain|event_set)\(")
#: CPython's functions that can run any code; errors end a function, and are not here.
RUNS_ANYTHING = re.compile(
    r"Py(Object_(?!Check|TypeCheck|GC_(UnTrack|Track|IsTracked|Del)|Init|ClearWeakRefs|CheckBuffer)\w+"
    r"|Number_(?!Check)\w+|Sequence_(?!Check|Fast_)\w+|Mapping_(?!Check)\w+|Iter_\w+|Import_Import\w*|Slice_Unpack"
    r"|Eval_SaveThread|Err_CheckSignals|Float_AsDouble|Complex_AsCComplex|Bytes_FromObject|MemoryView_FromObject"
    r"|(Tuple|List|Dict|Capsule)_New|Tuple_Pack|Dict_\w*Item\w*|Context\w+|Arg_Parse\w*|_BuildValue)"
    r"|Py_(X?DECREF|CLEAR|X?SETREF|BuildValue|BEGIN_ALLOW_THREADS)|WITHOUT_GIL|tp_alloc"
)
FUNCTION = re.compile(r"^(\w+)\(([^;{}]*?)\)\n\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
CALL = re.compile(r"\b(\w+)\s*\(")
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'', re.DOTALL)


def functions(text):
    """{name: body}; those of ARGS_METHOD and its like have the name that the macro is given."""
    found = {}
    for name, head, body in FUNCTION.findall(NOT_CODE.sub('""', text)):
        found[head.split(",")[0] + "_parsed" if name.startswith(("ARGS_", "MD_")) else name] = body
    return found


def those_that_run_anything(bodies):
    """Our functions that reach a CPython function that can run any code."""
    calls = {name: set(CALL.findall(body)) for name, body in bodies.items()}
    found = {name for name, called in calls.items() if any(RUNS_ANYTHING.fullmatch(one) for one in called)}
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return found


def end_of_call(body, start):
    """Behind the parenthesis that closes the one at `start`: what a call is given is read before it runs."""
    depth = 0
    for at in range(start, len(body)):
        depth += {"(": 1, ")": -1}.get(body[at], 0)
        if depth == 0:
            return at + 1
    return len(body)


def after_call(body, opening):
    """What runs after the call whose parenthesis opens there: the rest of its block if that returns, else of the body."""
    begin, depth = end_of_call(body, opening), 0
    for at in range(begin, len(body)):
        depth += {"{": 1, "}": -1}.get(body[at], 0)
        if depth < 0:
            block = body[begin:at]
            return block if re.search(r"\breturn\b", block) else body[begin:]
    return body[begin:]


def used_too_late(body, dangerous):
    """(variable, call) of each borrowed thing that is named again after a call that can run any code."""
    for borrowed in itertools.chain.from_iterable(pattern.finditer(body) for pattern in BORROWS):
        is_call = body[borrowed.end() - 1] == "("
        begin = end_of_call(body, borrowed.end() - 1) if is_call else borrowed.end()
        for call in CALL.finditer(body, begin):
            if HOLDS.match(body, call.start()):
                break
            is_dangerous = RUNS_ANYTHING.fullmatch(call[1]) or call[1] in dangerous
            used = rf"\b{borrowed[1]}\b(?!\s*=[^=])"
            if is_dangerous and re.search(used, after_call(body, call.end() - 1)):
                yield borrowed[1], call[1]
                break


def broken_in(sources):
    bodies = {name: body for text in sources.values() for name, body in functions(text).items()}
    dangerous = those_that_run_anything(bodies) - {"errors_raise"}
    return [
        f"{path}: {function} uses `{name}` after {call}()"
        for path, text in sources.items()
        for function, body in functions(text).items()
        for name, call in used_too_late(body, dangerous)
    ]


def test_what_is_borrowed_is_used_before_any_code_that_is_not_ours():
    sources = {
        str(path.relative_to(SRC)): path.read_text()
        for folder in FOLDERS
        for path in sorted((SRC / folder).glob("*.c"))
    }
    assert sum(text.count("buffer_open_storage(") for text in sources.values()) > 8
    assert broken_in(sources) == []


BAD = {
    "a conversion": "storage = buffer_open_storage(f, b);\n    if (convert(x) < 0) {\n    }\n    use(storage);",
    "a wait": "storage = buffer_open_storage(f, b);\n    status = WITHOUT_GIL(wait());\n    use(storage);",
    "a handle": "if (args_handle(s, f, k, is, v, &handle) < 0 || convert(x) < 0) {\n    }\n    use(handle);",
    "a finaliser": "item = PyDict_GetItemWithError(dict, key);\n    Py_DECREF(dict);\n    use(item);",
}
GOOD = {
    "converted before": "convert(x);\n    storage = buffer_open_storage(f, b);\n    use(storage);",
    "held": "storage = buffer_open_storage(f, b);\n    buffer_hold(b);\n    convert(x);\n    use(storage);",
    "read before": "storage = buffer_open_storage(f, b);\n    return PyObject_CallNoArgs(use(storage));",
    "taken again": "storage = buffer_open_storage(f, b);\n    convert(x);\n    storage = open(b);",
}
HELPERS = "int\nconvert(PyObject *x)\n{\n    return PyObject_IsTrue(x);\n}\n"


def test_the_law_finds_what_breaks_it_and_nothing_else():
    for what, body in (BAD | GOOD).items():
        text = f"{HELPERS}\nint\ncaller(void)\n{{\n    {body}\n}}\n"
        assert bool(broken_in({"a.c": text})) == (what in BAD), what
