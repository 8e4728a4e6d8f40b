"""explain: says what the installed frameworks then do, row by row, and does nothing itself."""

import dataclasses
import importlib
import itertools
import json
import re
import sys

import numpy as np
import pytest
from children import output_of, run_child
from dlpack_structs import READ_ONLY, Producer, capsule_name
from explain_cases import ARRAYS, CASES, MEMORY, PLACE, THINGS, Modern, make_case, outcome_of
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import has_module
from places import SRC, SUPPORT

import metal_dlpack as md
from metal_dlpack.asking import trials

explain_module = importlib.import_module("metal_dlpack.explaining")
rules_module = importlib.import_module("metal_dlpack.asking.explain_rules")

MODULES = {"numpy": "numpy", "torch": "torch", "mlx": "mlx", "tvm": "tvm_ffi", "jax": "jax"}  # it starts threads: last
CONSUMERS = [
    pytest.param(name, marks=getattr(pytest.mark, f"needs_{name}")) if name != "numpy" else name for name in MODULES
]
#: Where the truth is not in the tensor: a struct of another major version happens to be read well here.
UNDECIDED = {("mlx", "major 2")}


@pytest.fixture(scope="module")
def done_by_consumers():
    """{(consumer, case): (outcome, text)} of the real frameworks, in one process."""
    consumers = [name for name, module in MODULES.items() if has_module(module)]
    child = run_child(SUPPORT / "explain_cases.py", *consumers)
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    assert (child.returncode, len(lines)) == (0, len(CASES) * len(consumers)), child.stderr[-2000:]
    return {(consumer, case): (outcome, text) for consumer, case, outcome, text in lines}


@pytest.mark.needs_no_sanitizer
@pytest.mark.skipif(sys.platform == "darwin", reason="forks after Metal was used")
@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.rule("explain-true", peers=("numpy", "torch", "mlx", "jax", "tvm"))
def test_each_consumer_does_what_was_said(consumer, done_by_consumers):
    wrong = []
    for case in CASES:
        outcome, text = done_by_consumers[consumer, case]
        said = md.explain(make_case(case), consumer=consumer)
        if said.outcome != outcome and (consumer, case) not in UNDECIDED:
            wrong.append(f"{case}: {outcome} {text[:100]!r}, and not: {said}")
    assert not wrong, "\n".join(wrong)


def test_every_row_of_this_machine_has_a_case(monkeypatch):
    """A row that no case makes speak is not held by the test above."""
    spoken = set()
    find = explain_module.findings

    def watch(facts):
        rules = find(facts)
        spoken.update(rule for rule, _ in rules)
        return rules

    monkeypatch.setattr(explain_module, "findings", watch)
    for case in CASES:
        for consumer in (None, *MODULES):
            md.explain(make_case(case), consumer=consumer)
    for array in (np.zeros(4), md.zeros(4, storage="private")):
        md.explain(array, device="cpu", consumer="numpy")
    here = {rule for consumer in ("metal_dlpack", *MODULES) for rule in explain_module.rules_for(consumer)}
    assert {f"{rule.consumer}: {rule.condition}" for rule in here - spoken} == set()


def test_a_private_map_of_a_file_is_told_where_the_gpu_may_touch_it(tmp_path):
    """On a Mac it becomes a copy, page by page; a shared map does not, and the CPU's consumers touch none."""
    np.save(tmp_path / "a.npy", np.zeros(50_000, "float32"))
    for mode, is_told in (("c", True), ("r", False)):
        mapped, array = np.load(tmp_path / "a.npy", mmap_mode=mode), md.open(tmp_path / "a.npy", mode)["arr_0"]
        answers = [md.explain(mapped), md.explain(array, consumer="tvm"), md.explain(mapped, consumer="numpy")]
        told = [any("private map of a file" in reason for reason in answer.reasons) for answer in answers]
        assert told == [is_told, is_told, False]
    assert any("mode 'r'" in fix for fix in md.explain(np.load(tmp_path / "a.npy", mmap_mode="c")).fixes)


#: The names of C's list of reasons.
REASONS = re.findall(r"X\(((?:DLPACK_FAULT|REFUSED|COPY)_\w+),", (SRC / "exchange" / "dlpack_check.h").read_text())


def test_every_reason_of_c_has_a_way_out_and_those_of_an_export_an_array():
    known = set(rules_module.WAYS_OUT)
    assert known <= set(REASONS)
    assert {name for name in REASONS if not name.startswith("DLPACK_FAULT")} <= known
    asked = itertools.product(ARRAYS.values(), (8, 1), (False, True))
    arrays = ((make(), device, is_versioned) for make, device, is_versioned in asked)
    given = {
        md._core._export_reason(x, device, is_versioned)
        for x, device, is_versioned in arrays
        if isinstance(x, md.Array)
    }
    exports = {"REFUSED_READONLY", "COPY_NEGATIVE", "COPY_APART", "COPY_PADDED", "COPY_PRIVATE", "COPY_OFFSET"}
    assert {reason[0] for reason in given if reason} == exports


def test_every_row_is_whole():
    for rule in rules_module.RULES:
        assert rule.outcome in {*rules_module.OUTCOMES, *rules_module.NOTES}
        assert rule.sentence.endswith((".", "}"))
        assert rule.fix == "" or rule.fix.endswith(".")
        assert rule.machine in {"", "metal", "no metal"}
    rows = [(rule.consumer, rule.condition, rule.machine) for rule in rules_module.RULES]
    assert len(rows) == len(set(rows))
    assert {rule.condition for rule in rules_module.RULES} == set(rules_module.CONDITIONS)


def test_every_row_of_a_consumer_has_an_example_or_cannot_have_one():
    """What is found by trying must be tried; a note changes no outcome."""
    untried = {
        f"{rule.consumer}: {rule.condition}"
        for rule in rules_module.RULES
        if rule.consumer in MODULES and rule.example is None and rule.outcome not in rules_module.NOTES
    }
    # By type, not by row; what another major version means cannot be seen here; private memory needs a Mac.
    assert {row for row in untried if "element_type" not in row} == {"mlx: other_major", "mlx: private"}


# ---- our own from_dlpack ----


def outcome_of_import(thing, copy):
    try:
        array = md.from_dlpack(thing, copy=copy)
    except (BufferError, AttributeError, ValueError, RuntimeError, TypeError):
        return "refusal"
    if array.size == 0:
        return "empty"
    shares = md.shares_memory(array, thing.capsule() if isinstance(thing, Producer) else thing)
    return "zero-copy" if shares else "copy"


@pytest.mark.rule("explain-true")
def test_from_dlpack_does_what_was_said(subtests):
    for copy in [None, True, False]:
        with subtests.test(str(copy)):
            wrong = []
            for case in CASES:
                said = md.explain(make_case(case), copy=copy)
                done = outcome_of_import(make_case(case), copy)
                if said.outcome != done and not ("empty" in case or "copied" in case):
                    wrong.append(f"{case}: {done}, and not: {said}")
            assert not wrong, "\n".join(wrong)


CHECKED = """
import numpy as np
import metal_dlpack as md

def check(x, **asked):
    for copy in (None, False, True):
        said = md.explain(x, copy=copy, **asked)
        try:
            done = "zero-copy" if md.shares_memory(md.from_dlpack(x, copy=copy, **asked), x) else "copy"
        except (MemoryError, md.CopyRequiredError):
            done = "refusal"
        assert said.outcome == done, (x, copy, asked, done, str(said))
        assert done != "refusal" or said.fixes
"""

LONG = """
x = np.zeros(1 << 16, "float32")
wide = np.broadcast_to(x[:3], (1 << 16, 3))
ours = md.from_dlpack(np.broadcast_to(x[:1], 1 << 16))
for part in (x, x[::2], x[::8], x[: 1 << 14], x[:16000], wide, ours, ours[:100], x.view("uint8")[1:-3].view("float32")):
    check(part)
"""

TWO_DEVICES = """
array = md.zeros(4)

class Foreign:
    __dlpack__, __dlpack_device__ = staticmethod(array.__dlpack__), staticmethod(array.__dlpack_device__)

for x in (array, md.zeros(4, device="metal:1"), Foreign()):
    for device in (None, "metal:0", "metal:1", md.devices()[1]):
        check(x, device=device)
said = md.explain(array, device="metal:1", copy=False)
assert "The data is on metal:0, and device asks for metal:1" in " ".join(said.reasons), said
"""


@pytest.mark.needs_softmetal
@pytest.mark.parametrize(
    ("code", "machine"),
    [(LONG, {"SOFTMETAL_MAX_BUFFER_LENGTH": "64K"}), (TWO_DEVICES, {"SOFTMETAL_DEVICES": "unified,discrete"})],
    ids=["longer than a buffer", "two devices"],
)
def test_from_dlpack_does_what_was_said_on_another_machine(code, machine):
    output_of(CHECKED + code, **machine)


def test_a_device_or_copy_that_from_dlpack_refuses_is_refused():
    for x in (md.zeros(4), np.zeros(4)):
        for device in ("gpu", "metal:9", 5, (8, 0)):
            with pytest.raises((ValueError, TypeError)) as refused:
                md.from_dlpack(x, device=device)
            with pytest.raises(type(refused.value), match=re.escape(str(refused.value))):
                md.explain(x, device=device)
        for copy in ("no", 1, np.True_):
            with pytest.raises(TypeError, match=re.escape(f"explain: copy must be True, False or None, not {copy!r}.")):
                md.explain(x, copy=copy)


def test_of_a_mapping_one_item_is_to_be_passed():
    assert md.explain({"weight": np.zeros(4)}).fixes == ("Take one of its items, x[key].",)
    assert md.explain([1.0]).fixes == ("Call md.asarray(x).",)
    assert md.explain([1.0], consumer="numpy").fixes == ("Pass md.asarray(x, copy=True).host.",)


# ---- nothing is done ----


def test_nothing_is_copied_taken_or_kept(live_buffers):
    buffer = md.Buffer(64)
    for versioned in (False, True):
        producer = Producer(versioned=versioned, data=buffer.handle, device=(8, 0), shape=(2,))
        capsule = producer.capsule()
        for consumer in (None, *MODULES):
            md.explain(capsule, consumer=consumer)
            md.explain(producer, consumer=consumer, copy=True)
        assert capsule_name(capsule) == producer.name
        assert producer.deletions == 0
    array = buffer.array(4, "float32")
    references = sys.getrefcount(array)
    for consumer in (None, *MODULES):
        for view in (array, array[::-1], array.host):
            md.explain(view, consumer=consumer)
    del view
    assert sys.getrefcount(array) == references
    assert live_buffers() == 1


@pytest.mark.needs_no_sanitizer
def test_no_consumer_is_imported():
    code = (
        "import sys, metal_dlpack as md\n"
        "for consumer in ('numpy', None):\n"  # each is asked in the same way
        "    md.explain(md.zeros(3), consumer=consumer)\n"
        "print([name for name in ('torch', 'mlx', 'numpy', 'jax', 'tvm_ffi') if name in sys.modules])\n"
    )
    child = run_child(code, check=True)
    assert child.stdout.strip() == "[]"


@pytest.mark.parametrize("consumer", [None, "numpy"])
def test_whatever_a_producer_raises_is_its_answer(consumer):
    class Producer:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **asked):
            raise self.error

    for error in (KeyError("k"), OSError("lost"), AssertionError(), SystemError("no result"), RuntimeError()):
        Producer.error = error
        said = md.explain(Producer(), consumer=consumer)
        assert not said
        assert said.reasons == (str(error) or type(error).__name__,)
    Producer.error = MemoryError()
    with pytest.raises(MemoryError):
        md.explain(Producer(), consumer=consumer)


def test_a_producer_that_knows_copy_is_forbidden_it():
    asked = []

    class Recording:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **keywords):
            asked.append(keywords)
            return np.zeros(3).__dlpack__()

    for consumer in (None, *MODULES):
        md.explain(Recording(), consumer=consumer)
    assert len(asked) == 1 + len(MODULES)
    assert all(keywords["copy"] is False for keywords in asked)


# ---- the answer ----


def test_an_explanation_is_true_where_the_data_arrives():
    array = md.zeros((4, 4))
    assert md.explain(array, consumer="torch")
    assert md.explain(array[::-1], consumer="torch").outcome == "copy"
    assert md.explain(array[::-1], consumer="torch")
    assert not md.explain(array, consumer="numpy")
    assert not md.explain(np.zeros(4)[::-1], consumer="torch")
    assert not md.explain(array[::-1], consumer="torch", copy=False)
    assert md.explain(array, consumer="numpy", device="cpu").outcome == "zero-copy"
    assert md.explain(array, device="cpu").outcome == "zero-copy"
    said = md.explain(md.zeros(4, storage="private"), device="cpu")
    assert (said.outcome, "shared" in said.fixes[0]) == ("refusal", True)


def words_of(said):
    """What is printed, without its lines."""
    return " ".join(str(said).split())


def test_what_is_printed_has_a_hanging_indent_and_fits_a_terminal():
    said = md.explain(np.zeros(9, "uint8")[1:].view("float32"))
    head, *lines = str(said).splitlines()
    assert head == "ndarray to metal_dlpack: copy"
    assert [len(line) - len(line.lstrip()) for line in lines] == [2, 4, 2]
    assert max(map(len, lines)) <= 78
    assert words_of(said) == " ".join([head, *said.reasons, *(f"Fix: {fix}" for fix in said.fixes)])


def test_an_explanation_can_be_read_and_not_changed():
    said = md.explain(md.zeros((4, 4)), consumer="numpy")
    assert said.outcome == "refusal"
    assert str(said).splitlines()[0] == "Array to numpy: refusal"
    assert str(said).splitlines()[-1] == "  Fix: Pass x.host."
    assert said.fixes[0] == "Pass x.host."
    assert "outcome='refusal'" in repr(said)
    assert said._repr_html_().startswith('<pre style="margin:0;white-space:pre-wrap;word-break:normal">')
    with pytest.raises(dataclasses.FrozenInstanceError):
        said.outcome = "copy"
    with pytest.raises(ValueError, match=r"'cupy'.*jax, mlx, numpy, torch, tvm"):
        md.explain(md.zeros(3), consumer="cupy")


def test_flags_that_are_dropped_are_said():
    for consumer in ("torch", "mlx", "tvm"):
        assert "drops the flag" in words_of(md.explain(md.zeros(3).as_readonly(), consumer=consumer))
    assert "read-only" in words_of(md.explain(Producer(data=PLACE, flags=READ_ONLY)))


def test_what_a_consumer_did_with_an_example_is_the_outcome(monkeypatch):
    """One that cannot be tried is judged by the table."""
    reversed_, types = np.zeros(4)[::-1], {"type float32": "refusal", "type int4": "copy"}
    for did, thing, outcome, words in [
        ({"negative_steps": "crash"}, reversed_, "crash", "ends the process"),
        ({"negative_steps": "refusal"}, reversed_, "refusal", ""),
        ({"negative_steps": "zero-copy"}, reversed_, "zero-copy", ""),
        ({"offset_ignored": "copy"}, md.zeros(8)[4:], "crash", "start"),
        (types, md.zeros(4), "refusal", ""),
        (types, md.zeros(4, "int4"), "zero-copy", ""),
        ({"type float32x4": "zero-copy"}, md.zeros(4, "int8x2").host, "zero-copy", ""),
        ({}, reversed_, "crash", "does not run here: judged as version 2.13"),
    ]:
        monkeypatch.setattr(trials, "trial_of", lambda _, did=did: trials.Trial(did))
        said = md.explain(thing, consumer="numpy" if isinstance(thing, md.HostView) else "torch")
        assert said.outcome == outcome and words in words_of(said), (did, str(said))
        assert ("ends the process" in words_of(said)) == (outcome == "crash")


def test_what_mlx_may_write_into_is_said_where_it_shares_and_nowhere_else(monkeypatch):
    """Here MLX copies whatever it imports; the rows of a Mac are asked."""
    may_write = "MLX may write a result into this memory"
    page = Producer(data=PLACE)
    assert may_write not in words_of(md.explain(md.zeros(8), consumer="mlx")) or sys.platform == "darwin"
    monkeypatch.setattr(explain_module.sys, "platform", "darwin")
    for shared in (md.zeros(8), md.zeros(8)[4:], md.zeros(8).as_readonly(), page, md.zeros(8, storage="managed")):
        said = md.explain(shared, consumer="mlx")
        assert (said.outcome, may_write in words_of(said)) == ("zero-copy", True), said
        assert "copy=True" in said.fixes[-1]
        assert "is_donatable" in said.sources[-1]
    copied = [md.zeros(8, storage="private"), md.zeros(8, "float64"), md.zeros(8)[::-1], Producer(data=PLACE + 64)]
    for thing in copied:
        said = md.explain(thing, consumer="mlx")
        assert (said.outcome, may_write in words_of(said)) == ("copy", False), said
    for thing in (md.zeros(8), page):
        assert may_write not in words_of(md.explain(thing, consumer="mlx", copy=True))
    assert may_write not in words_of(md.explain(md.zeros(0), consumer="mlx"))
    assert may_write not in words_of(md.explain(md.zeros(8), consumer="torch"))


@pytest.mark.needs_torch
def test_torch_moves_data_where_device_asks_for_it():
    array = md.zeros(8)
    assert md.explain(array, consumer="torch", device="cpu").outcome == "copy"
    assert md.explain(array.host, consumer="torch", device="cpu").outcome == "zero-copy"


# ---- any tensor ----


@st.composite
def any_tensors(draw):
    """Fields of a tensor within 2 KiB on either side of the middle of the cases' memory."""
    ndim = draw(st.integers(0, 3))
    types = [(2, 32, 4), (0, 8, 1), (2, 64, 8), (4, 16, 2), (6, 8, 1), (5, 64, 4)]
    code, bits, alignment = draw(st.sampled_from(types))
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=ndim, max_size=ndim)))
    strides = tuple(draw(st.lists(st.integers(-5, 12), min_size=ndim, max_size=ndim)))
    place = {"byte_offset": 512 + draw(st.sampled_from([0, 0, 64, alignment, 1]))}
    is_metal = draw(st.booleans())
    if draw(st.booleans()) and not is_metal:
        place = {"data": PLACE + place["byte_offset"]}
    return {
        "data": MEMORY.buffer.handle if is_metal else PLACE,
        "device": (8 if is_metal else 1, 0),
        "dtype": (code, bits, 1),
        "shape": shape,
        "strides": draw(st.sampled_from([strides, "C", "C", None])),
        "versioned": draw(st.booleans()),
        **place,
    } | ({"flags": READ_ONLY} if draw(st.booleans()) else {})


def tensor_of(fields):
    return Modern(**{key: value for key, value in fields.items() if fields["versioned"] or key != "flags"})


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize(
    "consumer", [pytest.param(name, marks=getattr(pytest.mark, f"needs_{name}")) for name in ("numpy", "torch", "tvm")]
)
@settings(max_examples=200)
@given(any_tensors())
@pytest.mark.rule("explain-true", peers=("numpy", "torch", "tvm"))
def test_of_any_tensor_it_says_what_a_consumer_does(consumer, fields):
    said = md.explain(tensor_of(fields), consumer=consumer)
    if said.outcome != "crash":
        done, text = outcome_of(consumer, tensor_of(fields))
        assert done == said.outcome, f"{done} {text}, and not: {said}"
    Producer._kept.clear()


@settings(max_examples=300)
@given(any_tensors(), st.sampled_from([None, True, False]))
@pytest.mark.rule("explain-true")
def test_of_any_tensor_it_says_what_from_dlpack_does(fields, copy):
    said = md.explain(tensor_of(fields), copy=copy)
    done = outcome_of_import(tensor_of(fields), copy)
    assert said.outcome in (("zero-copy", "copy") if done == "empty" else (done,)), f"{done}, and not: {said}"
    md.from_dlpack(md.zeros(1))
    Producer._kept.clear()


ASKED_OF_ASARRAY = {
    "int64": lambda: md.asarray(np.arange(6).reshape(2, 3)),
    "int64, 1-d": lambda: md.asarray(np.arange(6)),
    "int32, 1-d": lambda: md.asarray(np.arange(6, dtype="int32")),
    "float32": lambda: md.full((2, 3), 1.5),
    "float32, 1-d": lambda: md.full(6, 1.5),
    "float32, 0-d": lambda: md.full((), 1.5),
    "strided": lambda: md.zeros((4, 6))[:, ::2],
    "private": lambda: md.zeros((2, 3), storage="private"),
    "bfloat16": lambda: md.zeros((2, 3), "bfloat16"),
    "complex128": lambda: md.zeros(3, "complex128"),
}


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_it_warns_where_torch_asarray_reads_bytes(subtests, torch):
    arrays = {what: make() for what, make in ASKED_OF_ASARRAY.items()}
    asked = [(what, array, array) for what, array in arrays.items()]
    asked += [(f"{what}, host", a, a.host) for what, a in arrays.items() if a.storage != "private"]
    for what, array, given_to_torch in asked:
        with subtests.test(what):
            facts = tuple(array.shape), f"torch.{array.dtype.name}"
            try:
                tensor = torch.asarray(given_to_torch)
                is_garbled = (tuple(tensor.shape), str(tensor.dtype)) != facts
            except (ValueError, TypeError, BufferError, RuntimeError):
                is_garbled = False  # refused: nobody is deceived
            said = md.explain(given_to_torch, consumer="torch")
            warns = any("torch.asarray" in reason for reason in said.reasons)
            is_right_from_2_15_on = array.ndim == 1 and array.dtype != "float32" and not is_garbled
            assert warns == is_garbled or (warns and is_right_from_2_15_on)
            for take in (torch.from_dlpack, torch.as_tensor):
                tensor = take(given_to_torch)
                assert (tuple(tensor.shape), str(tensor.dtype)) == facts


# ---- the ways out work ----


#: Code in a sentence: a name, then attributes and calls, whose arguments may hold a call.  "not CODE" is a warning.
CODE = re.compile(r"(?<!not )\b(?:x|md|np|mx|torch|tvm_ffi)\b(?:\.\w+|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))+")


def arrives(code, x, consumer, take, names):
    """What is wrong with a way out, of this very object: ''; the code is a call, or what to pass to the consumer."""
    try:
        result = eval(code, {**names, "x": x, "t": take(x) if "(t)" in code else None})
        if callable(result):  # tvm_ffi.from_dlpack
            result = result(x)
        if code.startswith(("np.", "mx.", "torch.", "tvm_ffi.")):
            return ""
        said = md.explain(result, consumer=consumer)
        if not said or take(result) is None:
            return f"{said}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("consumer", [None, *CONSUMERS])
def test_every_way_out_can_be_gone_by_what_it_is_written_for(consumer):
    take = (
        md.from_dlpack if consumer is None else importlib.import_module(rules_module.MODULES[consumer][0]).from_dlpack
    )
    shorts = {"torch": "torch", "mx": "mlx.core", "tvm_ffi": "tvm_ffi"}
    names = {"md": md, "np": np} | {
        name: importlib.import_module(module) for name, module in shorts.items() if has_module(module.partition(".")[0])
    }
    wrong, tried = [], 0
    for name in [*ARRAYS, *THINGS]:
        x = make_case(name)
        said = md.explain(x, consumer=consumer)
        if "message says" in words_of(said) or not (said or said.fixes):
            wrong.append(f"{name} to {consumer}: {said}")
        for fix in said.fixes:
            codes = CODE.findall(fix)
            if fix.startswith(("Pass", "Call", "Keep", "Use")):
                assert codes, fix
            for code in codes:
                tried += 1
                failure = arrives(code, x, consumer, take, names)
                if failure:
                    wrong.append(f"{name} to {consumer}: {fix!r}: {code}: {failure}")
    assert tried >= 15
    assert not wrong, "\n".join(wrong)
