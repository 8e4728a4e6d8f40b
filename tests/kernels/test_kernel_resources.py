"""Pointers in what a kernel is given, and resources=: what they reach is computed on, kept alive, ordered and checked."""

import gc
import random

import numpy as np
import pytest
from held_work import held

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
TYPES = {"float": "float32", "int": "int32", "uchar": "uint8", "long": "int64"}


def address(array):
    return array.buffer.gpu_address + array.byte_offset


# ---- random structures, beside NumPy ----


def numbers(pick, kind):
    """A view of memory that is Metal's or NumPy's, with a few items before it."""
    count, before = pick.randint(1, 9), pick.randint(0, 5) * (16 if kind == "uchar" else 4)
    values = np.array([pick.randint(0, 100) for _ in range(before + count)], TYPES[kind])
    return (md.asarray(values) if pick.random() < 0.5 else md.asarray(values).copy())[before:]


class Structure:
    """A structure of pointers, arrays of pointers, numbers and structures: its text, its dtype, and what it holds."""

    def __init__(self, pick, name, depth=0):
        self.pick, self.name, self.declared, self.fields, self.values = pick, name, [], [], []
        self.reached = []  # (how the kernel writes it, the Array, may it be written)
        self.inner, self.ids, self.has_ids = "", 0, pick.random() < 0.3
        for nth in range(pick.randint(1, 5)):
            kinds = [self.pointer, self.array, self.number, self.nested] if depth < 2 else [self.pointer, self.number]
            pick.choice(kinds)(f"m{nth}", depth)

    def add(self, declared, count, dtype, values):
        numbered = f" [[id({self.ids})]]" if self.has_ids else ""
        name, _, room = declared.partition("[")
        self.declared.append(f"{name}{numbered}{'[' if room else ''}{room};")
        self.ids += count
        self.fields.append((f"f{len(self.fields)}", *dtype))
        self.values.append(values)

    def one(self, expression, kind, space):
        array = numbers(self.pick, kind)
        is_written = space == "device"
        self.reached.append((expression, array if is_written else array.as_readonly(), is_written))
        return address(array)

    def pointer(self, name, depth):
        space, kind = self.pick.choice(["device", "constant", "const device"]), self.pick.choice(list(TYPES))
        self.add(f"{space} {kind} *{name}", 1, ["u8"], self.one(f".{name}", kind, space))

    def array(self, name, depth):
        count, kind = self.pick.randint(1, 3), self.pick.choice(list(TYPES))
        of_metal = self.pick.random() < 0.5
        declared = f"array<device {kind} *, {count}> {name}" if of_metal else f"device {kind} *{name}[{count}]"
        given = tuple(self.one(f".{name}[{nth}]", kind, "device") for nth in range(count))
        self.add(declared, count, ["u8", (count,)], given)

    def number(self, name, depth):
        self.add(f"uint {name}", 1, ["u4"], self.pick.randint(0, 9))

    def nested(self, name, depth):
        inner = Structure(self.pick, f"{self.name}_{name}", depth + 1)
        self.inner += inner.text
        self.reached += [(f".{name}{rest}", array, is_written) for rest, array, is_written in inner.reached]
        self.add(f"{inner.name} {name}", inner.ids, [inner.dtype], tuple(inner.values))

    @property
    def text(self):
        return f"{self.inner}struct {self.name} {{ {' '.join(self.declared)} }};\n"

    @property
    def dtype(self):
        return np.dtype(self.fields, align=True)

    @property
    def value(self):
        return np.array([tuple(self.values)], self.dtype)


def source_of(structure, parameter, given):
    body = []
    for expression, array, is_written in structure.reached:
        place = f"{given}{expression}[i % {array.size}]"
        body.append(f"out[i] += float({place});")
        if is_written:
            body.append(f"if (i < {array.size}) {given}{expression}[i] += 1;")
    return (
        f"{METAL}{structure.text}kernel void f({parameter}, device float *out)"
        f"{{ for (uint i = 0; i < 9; i++) {{ {' '.join(body)} }} }}"
    )


@pytest.mark.parametrize("is_checked", [0, 1])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.some(4)
def test_random_structures_compute_what_numpy_does(seed, is_checked, settings):
    settings(kernel_check=is_checked)
    pick = random.Random(seed)
    structure = Structure(pick, "S")
    way = pick.choice(["value", "constant", "device", "table"])
    before = [np.array(array) for _, array, _ in structure.reached]
    parameters = {
        "value": "constant S &s",
        "constant": "constant S *s",
        "device": "device S &s",
        "table": "constant ulong *s",
    }
    given = {"constant": "s[0]", "table": "(*(constant S *)s)"}.get(way, "s")
    kernel = md.kernel(source_of(structure, parameters[way], given), "f")
    bytes_of = structure.value
    argument = {
        "value": lambda: bytes_of[0] if pick.random() < 0.5 else bytes_of.tobytes(),
        "constant": lambda: md.asarray(bytes_of.view("u1")),
        "device": lambda: md.asarray(bytes_of.view("u1")),
        "table": lambda: md.asarray(np.resize(bytes_of.view("u1"), -(-bytes_of.nbytes // 8) * 8).view("u8")),
    }[way]()
    out = md.zeros(9)
    kernel(argument, out, n=1, resources=[array for _, array, _ in structure.reached])
    wanted = np.zeros(9, "float32")
    for values in before:
        wanted += values[np.arange(9) % len(values)].astype("float32")
    for (_, array, is_written), values in zip(structure.reached, before, strict=True):
        assert np.asarray(array).tolist() == (values + is_written).tolist()
        if is_written:  # an item that comes again was changed before
            wanted += (np.arange(9) >= len(values)).astype("float32")
    assert out.tolist() == wanted.tolist()


# ---- as an argument that the kernel may write ----

TABLE = (
    METAL
    + """
kernel void fill(constant ulong *table, constant int &value, uint i [[thread_position_in_grid]])
{ ((device int *)table[0])[i] = value; }
kernel void add(constant ulong *table, device int *out, uint i [[thread_position_in_grid]])
{ out[i] += ((device const int *)table[0])[i]; }
struct many { array<device int *, 200> at; };
kernel void sum(device const many &all, device int *out, uint i [[thread_position_in_grid]])
{ for (int k = 0; k < 200; k++) { out[i] += all.at[k][i]; } }
"""
)


@pytest.fixture(scope="module")
def library():
    made = md.Library(TABLE)
    for name in made.kernels:
        made[name]
    return made


def table(*arrays):
    return md.asarray(np.array([address(array) for array in arrays], "uint64"))


def ints(value=0, count=8, **keywords):
    return md.full(count, value, "int32", **keywords)


def test_what_was_dropped_after_the_call_lives_until_the_gpu_is_done(library, live_buffers, settings):
    settings(poison=1)
    x, out, stream = ints(5), ints(), md.Stream()
    given = table(x)
    with held(stream):
        library["add"](given, out, n=8, resources=[x], stream=stream)
        del x, given
        gc.collect()
        others = [ints(7) for _ in range(8)]  # which would have its memory
    assert out.tolist() == [5] * 8
    assert others[0].tolist() == [7] * 8


@pytest.mark.parametrize("mode", ["shared", "private"])
def test_streams_hand_over_on_the_gpu_in_both_directions(library, slow, mode):
    x, out, s, t = ints(1, storage=mode), ints(), md.Stream(), md.Stream()
    given = table(x)
    with held(s):
        library["fill"](given, 5, n=8, resources=[x], stream=s)  # t waits for what is written
        library["add"](given, out, n=8, resources=[x], stream=t)
        library["fill"](given, 9, n=8, resources=[x], stream=s)  # and s for what is read
        library["add"](given, out, n=8, resources=[x])
    assert out.tolist() == [14] * 8


def test_what_is_read_only_is_waited_for_by_writers_alone(library, slow):
    x, first, second, s, t = ints(4), ints(), ints(), md.Stream(), md.Stream()
    given = table(x)
    with held(s):
        library["add"](given, first, n=8, resources=[x.as_readonly()], stream=s)
        library["add"](given, second, n=8, resources=[x.as_readonly()], stream=t)
        assert second.tolist() == [4] * 8  # two readers do not wait for each other
        assert x.as_readonly().tolist() == [4] * 8
        library["fill"](given, 6, n=8, resources=[x], stream=t)
    assert (first.tolist(), x.tolist()) == ([4] * 8, [6] * 8)


def test_an_exchange_afterwards_sees_what_was_written(library, slow):
    x = ints()
    library["fill"](table(x), 3, n=8, resources=[x])
    assert np.from_dlpack(x, device="cpu", copy=False).tolist() == [3] * 8
    library["fill"](table(x), 4, n=8, resources=[x.buffer])
    assert x.__metal_stream__()[3] != 0  # an event that is still to come
    assert np.asarray(x).tolist() == [4] * 8


def test_an_array_may_be_an_argument_and_a_resource(library):
    x = ints(2)
    library["add"](table(x), x, n=8, resources=[x, x, x[2:]])
    assert x.tolist() == [4] * 8


def test_as_many_as_a_table_has(library, settings):
    for is_checked in (0, 1):
        settings(kernel_check=is_checked)
        arrays, out = [ints(k) for k in range(200)], ints()
        md.Library(TABLE)["sum"](table(*arrays).view("uint8"), out, n=8, resources=arrays)
        assert out.tolist() == [sum(range(200))] * 8
    library["sum"].count(table(*arrays).view("uint8"), out, n=8, resources=arrays)


def test_a_timeline_says_for_which_resource_a_kernel_waits(library, slow):
    x, out, s, t = ints(), ints(), md.Stream(), md.Stream()
    given = table(x)
    with md.timeline() as seen:
        library["fill"](given, 5, n=8, resources=[x], stream=s)
        library["add"](given, out, n=8, resources=[x], stream=t)
        out.tolist()
    fill, add = (work for work in seen.work if work.kind == "kernel")
    (waited,) = (wait for wait in seen.waits if wait.waiter is add)
    assert (waited.awaited, waited.memory) == (fill, "x")


def test_tensors_of_torch_are_resources(library, torch):
    x = torch.full((8,), 5, dtype=torch.int32, device="mps")
    a, out = md.from_dlpack(x), ints()
    library["add"](table(a), out, n=8, resources=[x])
    library["fill"](table(a), 6, n=8, resources=[x])
    assert (out.tolist(), x.cpu().tolist()) == ([5] * 8, [6] * 8)


class Tensor:
    """Its code runs while a call is made."""

    def __init__(self, array, runs):
        self.array, self.runs = array, runs

    def __dlpack__(self, **keywords):
        self.runs()
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_a_list_that_changes_during_the_call_is_used_as_it_was(library, live_buffers):
    out = ints()
    resources = [ints(1)]
    given = table(*resources)
    resources.append(Tensor(ints(), resources.clear))
    library["add"](given, out, n=8, resources=resources)
    assert (out.tolist(), resources) == ([1] * 8, [])


REFUSED = {
    "an Array": (lambda: ints(), TypeError, "resources is a list of what the kernel reaches by addresses, not an object of type .*Array"),
    "a generator": (lambda: (x for x in [ints()]), TypeError, "not an object of type generator"),
    "NumPy's memory": (lambda: [ints(), np.zeros(3)], TypeError, r"resources\[1\] is an object of type numpy.ndarray, which has no memory on Metal"),
    "a number": (lambda: [3], TypeError, r"resources\[0\] is an object of type int"),
    "None in it": (lambda: [None], TypeError, r"resources\[0\] is an object of type NoneType"),
    "a closed Buffer": (lambda: [closed()], ValueError, "closed"),
    "on the CPU": (lambda: [Tensor(np.zeros(3, "float32"), int)], TypeError, "no memory on Metal"),
}  # fmt: skip


def closed():
    buffer = md.Buffer(64)
    buffer.close()
    return buffer


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_resource_is_refused(library, what, live_buffers):
    make, error, words = REFUSED[what]
    with pytest.raises(error, match=f"^fill: .*{words}" if error is not ValueError or "fill" in words else words):
        library["fill"](table(ints()), 3, n=8, resources=make())


def test_nothing_is_reached_without_items(library):
    out = ints()
    library["add"](table(out), out, n=0, resources=[])
    library["add"](table(out), out, n=8, resources=(md.zeros((0, 3)), out))
    library["add"](table(out), out, n=0, resources=None)
    assert md.zeros(0).buffer.gpu_address == 0 and md.zeros(3).buffer.gpu_address != 0


# ---- the checker ----

REACH = (
    METAL
    + """
struct Args { uint n; device float *x; const device float *y; };
kernel void reach(device const Args &a, device float *out, uint i [[thread_position_in_grid]])
{
    %s
}
"""
)


def reached(settings, body, resources, args=None, out=None):
    """What the checker says, or None."""
    settings(kernel_check=1, validation_mode="log")
    x, y, out = md.full(16, 1.0), md.full(16, 2.0), out if out is not None else md.full(16, 0.0)
    given = args(x, y) if args else md.asarray(np.array([16, address(x), address(y)], "u8")).view("u1")
    md.kernel(REACH % body)(given, out, n=16, resources=resources(x, y))
    try:
        np.asarray(out)
    except md.MetalError as error:
        return str(error)
    return None


BOTH = "out[i] += a.y[i]; a.x[i] += 1;"
#: The kernel, what is resident, and what the checker says.
FOUND = {
    "clean": (BOTH, lambda x, y: [x, y.as_readonly()], None),
    "not resident": (BOTH, lambda x, y: [x], "reads bytes 0 to 3 of a buffer of 256 bytes that was not made resident (resources=, in Metal useResource); its address is at byte 16 of buffer 0 (a)"),
    "written, not resident": ("a.x[i] = 1;", lambda x, y: [y], "writes bytes 0 to 3 of a buffer of 256 bytes that was not made resident"),
    "past a resource": ("out[i] += a.y[i + 1];", lambda x, y: [x, y], "reads outside its memory: bytes 64 to 67 of resource 1, which has 64 bytes"),
    "before a resource": ("a.x[int(i) - 1] = 0;", lambda x, y: [x], "writes outside its memory: bytes -4 to -1 of resource 0, which has 64 bytes"),
    "past its part": (BOTH, lambda x, y: [x[:8], y], "outside its memory: bytes 32 to 35 of resource 0, which has 32 bytes"),
    "read only": (BOTH, lambda x, y: [x.as_readonly(), y], "writes resource 0, which it was given to read only"),
    "a race": ("a.x[i / 2] += 1;", lambda x, y: [y, x], "byte 0 of resource 1 with nothing between them"),
    "a race with an argument": ("out[i] += a.x[15 - i]; a.x[i] = 1;", lambda x, y: [x], "byte 0 of resource 0 with nothing between them"),
    "null": ("device float *p = a.x; if (i == 3) p = nullptr; *p = 1;", lambda x, y: [x], "writes through a null pointer"),
    "from a number": ("device float *p = (device float *)(0x123456789000ul); if (i == 3) *p = a.x[0];", lambda x, y: [x], "none of its buffers'"),
    "misaligned": ("*(device float4 *)(a.x + i % 4 + 1) = float4(a.y[i]);", lambda x, y: [x, y], "uses byte 4 of resource 0 by a type that lies at multiples of 16 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_the_checker_knows_what_is_resident(what, settings, request):
    body, resources, words = FOUND[what]
    said = reached(settings, body, resources)
    request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted
    assert (said is None) if words is None else (words in (said or "")), said


def test_an_alias_of_an_argument_is_named_with_it(settings, request):
    out = md.full(16, 1.0)

    def args(x, y):
        return md.asarray(np.array([16, address(out), address(y)], "u8")).view("u1")

    said = reached(settings, "out[i] = a.x[15 - i];", lambda x, y: [out, y], args, out)
    request.node.stash[plugin._reports_before] = softmetal.reports()
    assert "buffer 1 (out) and resource 0 are the same memory there" in said, said


def test_an_address_of_what_is_gone_is_no_ones(settings, request):
    lost = md.Buffer(1 << 20)
    gone = lost.gpu_address
    lost.close()
    md.empty_cache()

    def args(x, y):
        return md.asarray(np.array([16, address(x), gone], "u8")).view("u1")

    said = reached(settings, "if (i == 3) out[i] += a.y[i];", lambda x, y: [x, y], args)
    request.node.stash[plugin._reports_before] = softmetal.reports()
    assert "not made resident" not in said and "outside its memory" in said, said


def test_bytes_that_nobody_has_written_are_found_through_an_address(settings, request):
    settings(kernel_check=1, validation_mode="log")
    x, out = md.empty(16), md.zeros(16)
    given = md.asarray(np.array([16, address(x), 0], "u8")).view("u1")
    md.kernel(REACH % "if (i < 8) a.x[i] = 1; else out[i] += a.x[i];")(given, out, n=16, resources=[x])
    with pytest.raises(md.MetalError, match=r"reads byte 32 of resource 0, which nobody has written"):
        np.asarray(out)
    request.node.stash[plugin._reports_before] = softmetal.reports()
    # Written by a launch through the address, whether it is checked or not, they are written for the next.
    for check in (1, 0):
        x = md.empty(16)
        given = md.asarray(np.array([16, address(x), 0], "u8")).view("u1")
        settings(kernel_check=check)
        md.kernel(REACH % "a.x[i] = 1;")(given, out, n=16, resources=[x])
        settings(kernel_check=1)
        md.kernel(REACH % "out[i] = a.x[i];")(given, out, n=16, resources=[x])
        assert out.tolist() == [1] * 16


def test_a_count_has_the_resources(settings):
    x, y, out = md.full(16, 1.0), md.full(16, 2.0), md.zeros(16)
    given = md.asarray(np.array([16, address(x), address(y)], "u8")).view("u1")
    counted = md.kernel(REACH % BOTH).count(given, out, n=16, resources=[md.zeros(0), x, y])
    first, second = counted["resources[1]"], counted["resources[2]"]
    assert (first.index, first.bytes_read, first.bytes_written, first.nbytes) == (1, 64, 64, 64)
    assert (second.index, second.distinct_read, second.bytes_written) == (2, 64, 0)
    assert counted["out"].bytes_read == 64
