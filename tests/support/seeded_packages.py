"""A child that puts defects into the Metal kernels of MLX's packages, one at a time, and asks the checker.

    python tests/support/seeded_packages.py FOLDERS [WORD ...]     # as mlx_packages.py

A seed is made by program, from the kernel's own text, when a case of mlx_calls.py launches the kernel for the first time; the
changed kernel gets the same arguments and threads.  What must be said of a seed, and where:

    barrier out, barrier none    the barrier is taken out, or orders no memory: a race of an access that can come before the barrier
                                 with one that can come behind it, no other barrier between; or a read behind it of unwritten memory
    barrier divergent            lane 0 alone comes to it: the barrier's line; the races of a barrier that is out may be said too
    store beside, load beside    the index of an argument is one too large: outside of the memory, or a race, at that line
    slot beside                  the index of a store to threadgroup memory is one too large: at that line, or where it is used
    bound                        `if (i < n)` lets all in: an access in what the `if` guards, outside of the memory or a race
    return                       those that `if (i >= n) return;` sends home stay: the same, of an access behind it

Where a seed of a bound or an index is not found, a probe says whether anything was at the border with these sizes: else it is "idle".

Prints JSON: {"clean": {kernel: what was said of it unchanged}, "seeds": [the fields of a Seed, "judged"], "failed": {case: why}}.
"""

import contextlib
import io
import itertools
import json
import math
import os
import re
import sys
from dataclasses import dataclass, field

import mlx_packages

LOOP = re.compile(r"\b(for|while)\b|^(?!if|else|switch)\w.*\) \{")  # or a function, at the beginning of a line
BARRIER = re.compile(r"threadgroup_barrier\(\s*mem_flags::mem_threadgroup\s*\);")
BOUND = re.compile(r"^(\s*if \()(\w+ < \w+)(\) *\{)$")
SHARED = re.compile(r"\bthreadgroup\s+[\w:]+\s*\*?\s*(\w+)\s*[\[,)]")
RETURN = re.compile(r"^\s*(if \(.*\) )?return;$")
FAR = 0x3FFFFFFF  # items: no argument has so many
RACES = {"race", "unwritten-threadgroup-memory"}
BESIDE = {"race", "race-of-threadgroups", "out-of-bounds"}
DIVERGENCES = {"barrier-divergence", "simdgroup-divergence"}
SLOTS = {*RACES, "out-of-bounds", "array-index"}


@dataclass
class Seed:
    kernel: str
    kind: str
    part: str  # of the text: "" or " (header)"
    line: int
    text: str  # of the line, unchanged
    changed: str
    must: tuple = ()  # (kinds, sets of lines): one such finding there must be ...
    may: tuple = ()  # ... and none that is neither such nor such
    said: list = field(default_factory=list)  # (kind, places, times)
    failure: str = ""
    is_idle: bool = False  # with these sizes nothing is at the border: the guard turns no thread away, the line has not the last item

    def judge(self):
        """ "right", "beside" (something else was said too), "elsewhere", "twice", "missed", or "idle"."""
        if not self.said:
            return "idle" if self.is_idle else "missed"
        if len({(kind, *sorted(places)) for kind, places, _ in self.said}) < len(self.said):
            return "twice"
        if not any(self._fits(one, self.must) for one in self.said):
            return "elsewhere"
        allowed = [rule for rule in (self.must, self.may) if rule]
        return "right" if all(any(self._fits(one, rule) for rule in allowed) for one in self.said) else "beside"

    def _fits(self, said, rule):
        kind, places, _ = said
        kinds, wanted = rule
        near = [self._line_of(place) for place in places]
        if kind not in kinds:
            return False
        if len(wanted) == 2 and len(near) == 2:  # one on each side of a barrier
            before, behind = wanted
            return (near[0] in before and near[1] in behind) or (near[1] in before and near[0] in behind)
        return any(line in wanted[-1] for line in near)

    def _line_of(self, place):
        name, line, _ = place.rsplit(":", 2)
        is_own = name.removeprefix("near ") == f"kernel {self.kernel}{self.part}"
        return int(line) if is_own else None


# ---- which lines can come before and behind a barrier ----


def blocks(lines):
    """(first line, last line, is it a loop) of each pair of braces, lines from 1; the header's functions are loops as well."""
    found, opened = [], []
    for number, line in enumerate(lines, 1):
        for letter in re.sub(r"//.*", "", line):
            if letter == "{":
                opened.append((number, line))
            elif letter == "}" and opened:
                first, head = opened.pop()
                found.append((first, number, bool(LOOP.search(head))))
    return found


def around_barrier(lines, at):
    """The lines that can come before the barrier of line `at`, and behind it, with no other barrier between."""
    after = {number: {number + 1} for number in range(1, len(lines) + 1)}
    for first, last, is_loop in blocks(lines):
        after[first].add(last + 1)
        if is_loop:
            after[last].add(first)
    before = {number: {other for other in after if number in after[other]} for number in after}

    def reached(steps):
        seen, left = set(), [at]
        while left:
            for number in steps.get(left.pop(), ()):
                if number in after and number not in seen and not BARRIER.search(lines[number - 1]):
                    seen.add(number)
                    left.append(number)
        return seen | {at}

    return reached(before), reached(after)


def guarded(lines, at):
    """The lines of the block that begins in line `at`."""
    last = next((last for first, last, _ in blocks(lines) if first == at), at)
    return set(range(at, last + 1))


# ---- seeds ----


def seeds_of(kernel, part, text, names, turn):
    """(seed, the changed text) of what can be done to a part of a kernel's text; `turn`: of barriers, what is done to the next."""
    lines = text.split("\n")
    shared = [*SHARED.findall(text)]
    done = set()

    def seed(kind, number, changed, must, may=()):
        whole = "\n".join([*lines[: number - 1], changed, *lines[number:]])
        return Seed(kernel, kind, part, number, lines[number - 1], changed, must, may), whole

    def barrier(number, line):
        around = (RACES, around_barrier(lines, number))
        kind = next(turn)
        if kind == "divergent":
            lane = "lane" if part else "thread_index_in_simdgroup"
            changed = BARRIER.sub(lambda said: f"if ({lane} == 0) {said[0]}", line)
            return seed("barrier divergent", number, changed, (DIVERGENCES, [{number}]), around)
        changed = BARRIER.sub(";", line) if kind == "out" else line.replace("mem_threadgroup", "mem_none")
        return seed(f"barrier {kind}", number, changed, around)

    def beside(kind, number, line, names, tail, must):
        found = names and re.search(rf"\b({'|'.join(map(re.escape, names))})\[([^\[\]]+)\](?={tail})", line)
        if found and kind not in done and not found[2].isdecimal():  # item 0 of several is at no border
            done.add(kind)
            changed = line[: found.start()] + f"{found[1]}[({found[2]}) + 1]" + line[found.end() :]
            yield seed(kind, number, changed, must)

    for number, line in enumerate(lines, 1):
        if BARRIER.search(line):
            yield barrier(number, line)
        bound, inside = BOUND.match(line), guarded(lines, number)
        if bound and "bound" not in done and any("[" in lines[other - 1] for other in inside):
            done.add("bound")
            yield seed("bound", number, f"{bound[1]}true{bound[3]}", (BESIDE, [inside]))
        if not part and RETURN.match(line) and "return" not in done:
            done.add("return")
            behind = set(range(number, len(lines) + 1))
            yield seed("return", number, line.replace("return;", ";"), (BESIDE, [behind]))
        if not part:
            yield from beside("store beside", number, line, names[1], " = ", (BESIDE, [{number}]))
            yield from beside("load beside", number, line, names[0], "(?! *=[^=])", (BESIDE, [{number}]))
        used = {other for other, text in enumerate(lines, 1) if any(re.search(rf"\b{name}\b", text) for name in shared)}
        yield from beside("slot beside", number, line, shared, " = ", (SLOTS, [used]))


class Garden:
    """Stands for mx.fast.metal_kernel: the first launch of each kernel is followed by those of its seeds."""

    def __init__(self, mx):
        self.make = mx.fast.metal_kernel
        self.known = set()
        self.turn = itertools.cycle(("out", "none", "divergent"))
        self.clean = {}
        self.seeds = []

    def metal_kernel(self, name, input_names, output_names, source, header="", **keywords):
        kernel = self.make(name, input_names, output_names, source, header, **keywords)

        def call(**asked):
            outputs = kernel(**asked)
            if (source, header) not in self.known:
                self.known.add((source, header))
                again = self.make(name, input_names, output_names, source, header, **keywords)
                said, failure = said_of(lambda: again(**asked))
                self.clean[f"{name} {len(self.clean)}"] = [*said, *([failure] if failure else [])]
                if not said and not failure:
                    self.plant(name, (input_names, output_names), source, header, keywords, asked)
            return outputs

        return call

    def plant(self, name, names, source, header, keywords, asked):
        for part, text in ((" (header)", header), ("", source)):
            for seed, changed in seeds_of(name, part, text, names, self.turn):
                texts = (source, changed) if part else (changed, header)
                kernel = self.make(name, *names, *texts, **keywords)
                seed.said, seed.failure = said_of(lambda kernel=kernel: kernel(**asked))
                if not seed.said and not part:
                    seed.is_idle = self.is_idle(seed, names, source, header, keywords, asked)
                self.seeds.append(seed)

    def is_idle(self, seed, names, source, header, keywords, asked):
        """Is there nothing at the border?  A probe in the place of the seed goes far outside if there is."""
        out, line, bound = names[1][0], seed.text, BOUND.match(seed.text)
        if seed.kind == "bound":
            line = f"if (!({bound[2]})) {out}[{FAR}] = {out}[0]; {line}"
        elif seed.kind == "return":
            line = line.replace("return;", f"{{ {out}[{FAR}] = {out}[0]; }}")
        elif seed.kind in ("store beside", "load beside"):
            name, index = re.search(r"(\w+)\[\((.*?)\) \+ 1\]", seed.changed).groups()
            sizes = [math.prod(getattr(x, "shape", ())) for x in asked["inputs"]]
            sizes += [math.prod(shape) for shape in asked["output_shapes"]]
            last = dict(zip([*names[0], *names[1]], sizes, strict=True))[name] - 1
            line = seed.changed.replace(f"({index}) + 1", f"long({index}) == {last} ? {FAR} : long({index})")
        else:
            return False
        lines = source.split("\n")
        lines[seed.line - 1] = line
        kernel = self.make(seed.kernel, *names, "\n".join(lines), header, **keywords)
        said, seed.failure = said_of(lambda: kernel(**asked))
        return not said and not seed.failure


def said_of(run):
    """[(kind, places, times)] of what the checker said; if it said nothing, how the launch failed."""
    from softmetal.report import recording

    recording.start()
    failure = ""
    try:
        run()
    except Exception as error:
        failure = f"{type(error).__name__}: {str(error)[:500]}"
    recording.stop()
    found = recording.read().findings.values()
    said = [(one.told["kind"], [place[0] for place in one.told["places"]], one.times) for one in found]
    return said, failure if not said else ""


def main(folders, words):
    import softmetal
    from softmetal import report

    sys.path[:0] = folders
    sys.meta_path.insert(0, mlx_packages.AbsentModules())
    softmetal.configure(kernel_check="report")
    softmetal.mlx_kernels()
    report.with_lines = lambda text: text  # a changed text is in no file: lines are the text's own
    import mlx.core as mx
    from mlx_calls import CASES

    garden = Garden(mx)
    mx.fast.metal_kernel = garden.metal_kernel
    failed = {}
    for name, case in CASES.items():
        if any(word in name for word in words) or not words:
            mx.random.seed(7)
            with contextlib.redirect_stdout(io.StringIO()):
                wrong = mlx_packages.run(case)
            if wrong:
                failed[name] = wrong
    told = ("kernel", "kind", "part", "line", "text", "changed", "said", "failure")
    seeds = [{**{name: getattr(one, name) for name in told}, "judged": one.judge()} for one in garden.seeds]
    json.dump({"clean": garden.clean, "seeds": seeds, "failed": failed}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1].split(os.pathsep), sys.argv[2:])
