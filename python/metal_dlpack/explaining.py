"""explain(): what an exchange would do, and why, without doing it.

Reasons and ways out stand in explain_rules.py, what the installed consumers do is found by trials.py; here is how a
tensor is looked at, and how rules are put together to one answer.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Literal

from . import _core
from .asking import explain_rules, trials
from .asking.explain_rules import CPU, METAL, MODULES, Facts, Rule, fill, words_for

WIDTH = 78  # of what is printed, in columns


@dataclass(frozen=True)
class Explanation:
    """What would happen.  True where the data arrives: outcome 'zero-copy' or 'copy'."""

    outcome: str  #: 'zero-copy', 'copy', 'refusal' or 'crash'
    reasons: tuple[str, ...]  #: sentences, the deciding ones first
    fixes: tuple[str, ...]  #: what to do about them, in the same order; may be fewer
    producer: str  #: the type of what was asked about
    consumer: str  #: who would take it: 'metal_dlpack', or the name that was given
    sources: tuple[str, ...] = field(default=(), repr=False)  #: how each reason is known

    def __bool__(self) -> bool:
        return self.outcome in ("zero-copy", "copy")

    def _paragraphs(self) -> list[str]:
        head = f"{self.producer} to {self.consumer}: {self.outcome}"
        return [head, *self.reasons, *(f"Fix: {fix}" for fix in self.fixes)]

    def __str__(self) -> str:
        head, *rest = self._paragraphs()
        wrapper = textwrap.TextWrapper(WIDTH, "  ", "    ", break_long_words=False, break_on_hyphens=False)
        return "\n".join([head, *map(wrapper.fill, rest)])

    def _repr_html_(self) -> str:
        from html import escape

        head, *rest = map(escape, self._paragraphs())
        hanging = '<span style="display:block;padding-left:4ch;text-indent:-2ch">'
        body = "".join(f"{hanging}{text}</span>" for text in rest)
        return f'<pre style="margin:0;white-space:pre-wrap;word-break:normal">{head}{body}</pre>'


#: The way out for what gives no tensor, of our from_dlpack and of a consumer's.
ASARRAY, ASARRAY_PASSED = "Call md.asarray(x).", "Pass md.asarray(x, copy=True){host?}."


def takes_type(facts: Facts) -> bool:
    """Does the consumer take such items?  Vectors that were not tried go by those that were."""
    outcomes = trials.trial_of(facts.consumer).outcomes
    name = f"type {facts.dtype}"
    if facts.code[2] != 1 and name not in outcomes:
        name = f"type {trials.VECTOR}"
    if name in outcomes:
        return outcomes[name] in ("zero-copy", "copy")
    known = explain_rules.ELEMENT_TYPES[facts.consumer]
    return known is None or facts.dtype in known


def max_buffer_length() -> int:
    try:
        return _core.default_device().max_buffer_length
    except _core.MetalError:
        return sys.maxsize


# ---- looking ----


def name_of(code: tuple[int, int, int]) -> str:
    names = {(d.code, d.bits): name for name, d in vars(_core).items() if isinstance(d, _core.dtype)}
    name = names.get(code[:2], f"(code {code[0]}, bits {code[1]})")
    return name if code[2] == 1 else f"{name}x{code[2]}"


def facts_of_array(array: _core.Array, device: tuple[int, int], consumer: str, is_versioned: bool) -> Facts:
    """Read our Array's facts from its attributes: an export could copy."""
    is_metal = device == METAL
    address = array.buffer.handle if is_metal else array.buffer.address or 0
    return Facts(
        consumer=consumer,
        device=device,
        dtype=array.dtype.name,
        code=(array.dtype.code, array.dtype.bits, array.dtype.lanes),
        shape=array.shape,
        strides=array.strides,
        steps=array.strides,
        address=0 if array.size == 0 else address + (0 if is_metal else array.byte_offset),
        byte_offset=array.byte_offset if is_metal and array.size else 0,
        itemsize=array.itemsize,
        nitems=array.size,
        flags=(explain_rules.READ_ONLY if array.readonly else 0) | (explain_rules.PADDED if array.padded else 0),
        version="1.3" if is_versioned else "",
        storage=array.storage,
        ours=True,
        is_private_map=_core._is_private_map(array.buffer.address or 0),
        # tvm-ffi refuses padded items and asks again, for a legacy capsule
        reason=_core._export_reason(array, device[0], is_versioned and not (array.padded and consumer == "tvm")),
    )


def facts_of_tensor(found: dict[str, Any], consumer: str, by_exchange: bool) -> Facts:
    code = found.get("dtype", (0, 0, 0))
    known = {key: value for key, value in found.items() if key in Facts.__dataclass_fields__}
    version = found["version"]
    known.update(dtype=name_of(code), code=code, version="{}.{}".format(*version) if version else "")
    if consumer != "metal_dlpack":
        known["reason"] = None  # C's reasons are those of our from_dlpack
    facts = Facts(consumer=consumer, by_exchange=by_exchange, **known)
    if facts.device[0] == CPU[0]:
        facts.is_private_map = _core._is_private_map((facts.address + facts.byte_offset) % 2**64)  # as C adds them
    return facts


def ask(x: Any, keywords: dict[str, object]) -> dict[str, Any]:
    """The tensor for these keywords and copy=False, which not every producer knows."""
    try:
        return _core._tensor_facts(x, {**keywords, "copy": False})
    except TypeError:
        return _core._tensor_facts(x, keywords)


def calls_of(consumer: str) -> trials.Calls:
    """How the consumer asks for the tensor."""
    return trials.trial_of(consumer).calls or explain_rules.CALLS[consumer]


def look(x: Any, consumer: str, device: object) -> Facts:
    """The tensor that this consumer would get; whatever the producer raises."""
    if is_capsule(x) or consumer == "metal_dlpack":
        return facts_of_tensor(_core._tensor_facts(x, None), consumer, by_exchange=False)
    for keywords, retried in calls_of(consumer):
        try:
            if keywords == "exchange":
                if not hasattr(type(x), "__dlpack_c_exchange_api__"):
                    continue
                return facts_of_tensor(_core._tensor_facts(x, None), consumer, by_exchange=True)
            assert isinstance(keywords, dict)
            asked = dict(keywords)
            if device == "cpu" and "dl_device" in asked:
                asked["dl_device"] = CPU
            return facts_of_tensor(ask(x, asked), consumer, by_exchange=False)
        except retried:
            continue
    raise BufferError(f"{type(x).__name__} gives no tensor.")


def look_at_ours(array: _core.Array, is_host: bool, consumer: str, device: object) -> Facts:
    is_cpu = is_host or (consumer == "numpy" and device == "cpu")
    by_exchange, is_versioned = False, False
    for keywords, retried in calls_of(consumer):
        if keywords == "exchange" and is_host:
            continue  # host views have no table
        by_exchange = keywords == "exchange"
        is_versioned = by_exchange or "max_version" in keywords
        # a legacy capsule of read-only memory is refused
        if is_versioned or not array.readonly or BufferError not in retried:
            break
    facts = facts_of_array(array, CPU if is_cpu else METAL, consumer, is_versioned)
    facts.by_exchange = by_exchange
    return facts


def as_copied(facts: Facts) -> Facts:
    """What the consumer gets where the producer copies."""
    steps, step = [], 1
    for extent in reversed(facts.shape):
        steps.append(step)
        step *= max(extent, 1)
    facts.strides = facts.steps = tuple(reversed(steps))
    facts.byte_offset = facts.address = 0
    facts.flags = explain_rules.IS_COPIED
    facts.storage = "shared" if facts.device == CPU else facts.storage
    return facts


def is_capsule(x: object) -> bool:
    return type(x).__name__ == "PyCapsule"


# ---- judging ----


def rules_for(consumer: str) -> list[Rule]:
    """The rules of a consumer on this machine, each with the outcome that it has here."""
    machine = "metal" if sys.platform == "darwin" else "no metal"
    rules = [rule for rule in explain_rules.RULES if rule.consumer == consumer and rule.machine in ("", machine)]
    rules = [replace(rule, outcome=outcome_of(rule)) for rule in rules]
    return [rule for rule in rules if rule.outcome != "zero-copy"]


def outcome_of(rule: Rule) -> str:
    """What the consumer did with the rule's example; what the rule says, if that was not tried."""
    if rule.example is None:
        return rule.outcome
    outcome = trials.trial_of(rule.consumer).outcomes.get(rule.condition, rule.outcome)
    # a tensor whose items are read at the wrong place "arrives"
    return rule.outcome if (rule.outcome, outcome) == ("crash", "copy") else outcome


def findings(facts: Facts) -> list[tuple[Rule, str]]:
    """The rules of the consumer that this tensor meets, each with its sentence."""
    found = []
    words = {name: getattr(facts, name) for name in (*Facts.__dataclass_fields__, "device_id")}
    words["name"] = explain_rules.NAMES[facts.consumer]
    for rule in rules_for(facts.consumer):
        # Only the number is known of another major version.
        if facts.is_unknown and rule.condition not in explain_rules.ABOUT_VERSIONS:
            continue
        if explain_rules.CONDITIONS[rule.condition](facts):
            end = f" {facts.consumer} ends the process." if rule.outcome == "crash" else ""
            found.append((rule, rule.sentence.format(**words) + end))
    return found


def reason_of(facts: Facts) -> list[tuple[Rule, str]]:
    """C's own reason, as a rule: of an Array on its way out, or of a tensor on its way in."""
    if facts.reason is None:
        return []
    name, text = facts.reason
    outcome = "copy" if name.startswith("COPY_") else "refusal"
    end = ", so the array hands out a copy." if facts.ours and outcome == "copy" else "."
    sentence = text[0].upper() + text[1:] + end
    return [(Rule(sentence, explain_rules.WAYS_OUT.get(name, explain_rules.FAULT_WAY_OUT), outcome=outcome), sentence)]


def decide(found: list[tuple[Rule, str]], copy: bool | None, copied_nbytes: int) -> tuple[str, list[str], list[str]]:
    """The outcome, and what `copy` adds to reasons and fixes.

    copied_nbytes: of the Metal buffer that a copy would need.
    """
    outcomes = {rule.outcome for rule, _ in found}
    outcome = next((known for known in explain_rules.OUTCOMES if known in outcomes), "zero-copy")
    if outcome == "copy" and copy is False:
        return "refusal", ["A copy is needed, and copy=False forbids it."], ["Pass copy=None."]
    reasons = ["copy=True asks for one."] if outcome == "zero-copy" and copy is True else []
    outcome = "copy" if reasons else outcome
    if outcome == "copy" and copied_nbytes > max_buffer_length():
        too_long = f"The copy ({copied_nbytes:,} bytes) would be longer than a Metal buffer can be."
        return "refusal", [*reasons, too_long], ["Import it in parts."]
    return outcome, reasons, []


def ways_out(rules: list[Rule]) -> list[Rule]:
    """Return the rules whose fix gets the data to the consumer: no other reason may stop it then."""
    stopping = [rule for rule in rules if rule.outcome in ("crash", "refusal")]
    ranks = [
        max((rank for rank, name in enumerate(explain_rules.STRONGER) if name in rule.fix), default=-1)
        for rule in stopping
    ]
    return [rule for rule, rank in zip(stopping, ranks, strict=True) if rank in (-1, max(ranks))] or rules


def judge(facts: Facts, x: object, copy: bool | None, device: object) -> Explanation:
    consumer = facts.consumer
    words = words_for(x, facts)
    if consumer in MODULES:
        facts.takes_type = takes_type(facts)
    found = reason_of(facts)
    if facts.ours and (copy is True or any(rule.outcome == "copy" for rule, _ in found)):
        facts = as_copied(facts)
        found = [entry for entry in found if entry[0].outcome == "copy"]
    found += findings(facts)
    found += moves(facts, device)
    ranks = {outcome: rank for rank, outcome in enumerate([*explain_rules.OUTCOMES, *explain_rules.NOTES])}
    found.sort(key=lambda entry: ranks[entry[0].outcome])
    outcome, reasons, fixes = decide(found, copy, facts.copied_nbytes if consumer == "metal_dlpack" else 0)
    if outcome != "zero-copy":
        found = [entry for entry in found if entry[0].outcome != "note if shared"]
    reasons += [sentence for _, sentence in found]
    fixes += [fill(rule.fix, words) for rule in ways_out([rule for rule, _ in found]) if rule.fix]
    if consumer in MODULES and not trials.trial_of(consumer).outcomes:
        reasons.append(f"{consumer} does not run here: judged as version {MODULES[consumer][1]}.")
    if not reasons:
        reasons = ["The memory itself is handed over."]
    return Explanation(
        outcome,
        tuple(reasons),
        tuple(dict.fromkeys(fixes)),
        type(x).__name__,
        consumer,
        tuple(rule.source for rule, _ in found),
    )


def moves_of_ours(index: int, device: object) -> list[tuple[Rule, str]]:
    """The copy that from_dlpack makes of data on metal:index, where another Device is asked for."""
    if not isinstance(device, _core.Device) or device.index == index:
        return []
    sentence = f"The data is on metal:{index}, and device asks for {device}: it is copied there."
    return [(Rule(sentence, f"Leave device out to stay on metal:{index}.", outcome="copy"), sentence)]


def moves(facts: Facts, device: object) -> list[tuple[Rule, str]]:
    """A copy to the device that was asked for, where the consumer moves data."""
    if facts.consumer == "metal_dlpack" and facts.is_metal:
        return moves_of_ours(facts.device_id, device)
    if facts.consumer != "torch" or device is None:
        return []
    wanted = str(device).split(":")[0]
    here = "mps" if facts.is_metal else "cpu"
    if wanted == here:
        return []
    sentence = f"The tensor is on {here}, and device asks for {wanted}: torch copies it there."
    return [(Rule(sentence, f"Leave device out to stay on {here}.", outcome="copy"), sentence)]


def way_out(error: Exception) -> str:
    """What to do about a producer's refusal, by its words."""
    return next((fix for words, fix in explain_rules.REFUSALS if words in str(error)), explain_rules.LAST_RESORT)


def refusal(x: object, consumer: str, error: Exception, fix: str) -> Explanation:
    text = str(error).removeprefix("explain: ") or type(error).__name__
    return Explanation("refusal", (text,), (fix,), type(x).__name__, consumer, ("what the producer raised",))


def device_asked_for(device: Any) -> Any:
    """A Device for what from_dlpack takes as one; None and 'cpu' as they are.  Raises what it raises."""
    return device if device is None or device == "cpu" else _core.from_dlpack(_core.empty(0), device=device).device


def explain_import(x: Any, device: object, copy: bool | None) -> Explanation:
    """What our own from_dlpack would do."""
    if isinstance(x, _core.Array | _core.HostView):
        # No tensor in between: any of our own views is taken as it is.
        array = x.array if isinstance(x, _core.HostView) else x
        if device == "cpu" and array.storage == "private":
            error = _core.CopyRequiredError("Private storage has no CPU address, so it has no host view.")
            return refusal(x, "metal_dlpack", error, "Pass x.copy(storage='shared').")
        found = moves_of_ours(array.device.index, device)
        outcome, reasons, fixes = decide(found, copy, array.nbytes)
        reasons += [sentence for _, sentence in found]
        fixes += [rule.fix for rule, _ in found]
        if not reasons:
            reasons = ["An Array of ours becomes another view of its buffer."]
        return Explanation(outcome, tuple(reasons), tuple(fixes), type(x).__name__, "metal_dlpack")
    return judge(look(x, "metal_dlpack", device), x, copy, device)


def explain(
    x: Any,
    *,
    device: _core.Device | str | None = None,
    copy: bool | None = None,
    consumer: Literal["torch", "mlx", "numpy", "jax", "tvm"] | None = None,
) -> Explanation:
    """What an exchange would do: zero-copy, copy, refusal or crash, with the reasons and the way out.

    Parameters
    ----------
    x : object with __dlpack__, or a DLPack capsule, which stays unconsumed
    device, copy : optional
        As they would be given to from_dlpack.
    consumer : {'torch', 'mlx', 'numpy', 'jax', 'tvm'}, optional
        Whose from_dlpack.  Default: that of metal_dlpack.

    Returns
    -------
    Explanation
        True where the data would arrive.  Nothing is copied, and no consumer is imported; the producer is asked for
        its tensor, with copy=False if it knows that.  What the consumer does is found by giving it tensors of each
        kind: once, in a child process, which takes as long as its import.

    Raises
    ------
    ValueError, TypeError
        No such consumer; copy is not a bool or None; what our from_dlpack says of a device that it does not know.
    """
    if isinstance(consumer, ModuleType):  # as Array.to takes it
        consumer = consumer.__name__.partition(".")[0]
    if consumer is not None and consumer not in explain_rules.CALLS:
        raise ValueError(f"explain: consumer ({consumer!r}) is not one of {', '.join(sorted(explain_rules.CALLS))}.")
    if not any(copy is known for known in (None, True, False)):
        raise TypeError(f"explain: copy must be True, False or None, not {copy!r}.")
    if isinstance(device, str) and "\0" in device:
        raise ValueError(f"explain: device ({device!r}) holds a null character.")
    wanted = device_asked_for(device) if consumer is None else device
    try:
        if consumer is None:
            return explain_import(x, wanted, copy)
        is_host = isinstance(x, _core.HostView)
        if is_host or isinstance(x, _core.Array):
            return judge(look_at_ours(x.array if is_host else x, is_host, consumer, device), x, copy, device)
        return judge(look(x, consumer, device), x, copy, device)
    except _core.CopyRequiredError as error:
        outcome = "refusal" if copy is False else "copy"
        name = consumer or "metal_dlpack"
        return Explanation(outcome, (str(error),), (), type(x).__name__, name, ("what the producer raised",))
    except AttributeError as error:
        fix = ASARRAY if consumer is None else fill(ASARRAY_PASSED, words_for(None, Facts(consumer, METAL)))
        fix = "Take one of its items, x[key]." if isinstance(x, Mapping) else fix
        return refusal(x, consumer or "metal_dlpack", error, fix)
    except MemoryError:
        raise
    except Exception as error:  # whatever the producer raises is its answer
        return refusal(x, consumer or "metal_dlpack", error, way_out(error))
