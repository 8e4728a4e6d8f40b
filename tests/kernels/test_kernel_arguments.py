"""What a kernel's parameters take, and what they refuse: the sentence names the kernel, the parameter and the way out."""

import struct
import sys
from functools import cache, partial

import ml_dtypes
import numpy as np
import pytest
from kernel_images import quickly

import metal_dlpack as md
import softmetal

pytestmark = pytest.mark.needs_kernels

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
#: take: a copy of items, whatever they are.  keep: a value, given by value.
TAKE_AND_KEEP = """
struct pair { int first; float second; };
enum hue { red, green };
template <class T> kernel void take(device const T *x, device T *out, uint i [[thread_position_in_grid]]) { out[i] = x[i]; }
template <class T> kernel void keep(constant T &value, device T *out) { *out = value; }
"""
OF_A_TYPE = """
template [[host_name("take_{0}")]] kernel void take<{0}>(device const {0} *, device {0} *, uint);
template [[host_name("keep_{0}")]] kernel void keep<{0}>(constant {0} &, device {0} *);
"""
SCALE = (
    METAL
    + "kernel void scale(device float *x, constant float &factor, constant uint &count, uint i [[thread_position_in_grid]])"
    "{ if (i < count) { x[i] *= factor; } }"
)
INTEGERS = {
    "char": "int8",
    "uchar": "uint8",
    "short": "int16",
    "ushort": "uint16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "ulong": "uint64",
}
FLOATS = {"float": "float32", "half": "float16", "bfloat": "bfloat16"}


OTHERS = ["bool", "pair", "hue", "float2", "float3", "float4", "int2", "uchar2", "half3", "half4", "long4", "float2x2"]
OTHERS += ["packed_float3", "packed_float4"]


@cache
def library():
    return md.Library(METAL + TAKE_AND_KEEP + "".join(map(OF_A_TYPE.format, [*INTEGERS, *FLOATS, *OTHERS])))


def take(name):
    return library()[f"take_{name}"]


def kept(name, value, dtype, count=1):
    """What a kernel found in a parameter by value."""
    out = md.zeros(count, dtype)
    library()[f"keep_{name}"](value, out, n=1)
    return out.tolist() if count > 1 else out[0].item()


@pytest.fixture(scope="module")
def scale():
    return md.kernel(SCALE)


# ---- Arrays ----


def of(dtype, *shape):
    """0, 1, 2, ... of any type."""
    return md.asarray(np.arange(np.prod(shape)).reshape(shape), dtype=dtype)


TYPES = INTEGERS | FLOATS | {"bool": "bool"}
#: What is taken: the kernel's type, an Array, and how many of the type it makes.
TAKEN = {name: (name, partial(of, dtype, 5), 5) for name, dtype in TYPES.items()} | {
    "scalars for vectors": ("float4", lambda: of("float32", 2, 4), 2),
    "integers for vectors": ("int2", lambda: of("int32", 2, 2), 2),
    "halves for vectors": ("half4", lambda: of("float16", 2, 4), 2),
    "complex numbers for vectors of two": ("float2", lambda: of("complex64", 2), 2),
    "rows of three for packed vectors": ("packed_float3", lambda: of("float32", 4, 3), 4),
    "bytes for a struct": ("pair", lambda: of("uint8", 16), 2),
    "a view, from its first item": ("float", lambda: of("float32", 5)[2:], 3),
    "a view on the type's alignment": ("float4", lambda: of("float32", 8)[4:], 1),
    "a view that need not be aligned": ("packed_float4", lambda: of("float32", 8)[1:5], 1),
    "no items": ("float", lambda: md.zeros((0, 3)), 0),
    "managed storage": ("float", lambda: md.full(3, 2.0, storage="managed"), 3),
    "private storage": ("float", lambda: md.full(3, 2.0, storage="private"), 3),
}
QUICK = [what for what in TAKEN if what not in TYPES] + ["char", "ulong", "float", "bool"]


@pytest.mark.parametrize("what", quickly(*QUICK, of=TAKEN))
def test_an_array_is_taken_in_place(what):
    name, make, n = TAKEN[what]
    x = make()
    out = md.zeros_like(x)
    take(name)(x, out, n=n)
    assert out.tolist() == x.tolist()


#: What is refused: the kernel's type, an Array, and why.
REFUSED = [
    ("float", lambda: of("float16", 5), TypeError, "points at float, and the array's items are float16"),
    ("uint", lambda: of("int32", 5), TypeError, "points at uint, and the array's items are int32"),
    ("half", lambda: of("bfloat16", 5), TypeError, "points at half, and the array's items are bfloat16"),
    ("bool", lambda: of("uint8", 5), TypeError, "points at bool, and the array's items are uint8"),
    ("float", lambda: of("complex64", 2), TypeError, "the array's items are complex64"),
    ("float4", lambda: of("float32", 9), ValueError, "points at float4 of 16 bytes, and the array has 36 bytes"),
    ("pair", lambda: of("uint8", 12), ValueError, "points at struct of 8 bytes, and the array has 12 bytes"),
    ("float3", lambda: of("float32", 4, 3), ValueError,
     "room for 4 numbers, and the array has rows of 3; let the kernel take packed_float3"),
    ("float", lambda: of("float32", 2, 2).T, ValueError, 'the array is not contiguous, .* strides="ignore"'),
    ("float", lambda: of("float32", 2, 2)[:, :1], ValueError, 'the array is not contiguous, .* strides="ignore"'),
    ("float4", lambda: of("float32", 8)[1:5], ValueError,
     "begins at byte 4 of its buffer, and the parameter's type needs a multiple of 16"),
]  # fmt: skip


IN_SPACE = """
using namespace metal;
[[kernel]] void read({space} const {type} *x [[buffer(1)]], device float *out [[buffer(0)]], uint i [[thread_position_in_grid]])
{{
    out[i] = x[i];
}}
"""


@pytest.mark.parametrize("space", ["constant", "device"])
@pytest.mark.parametrize(("dtype", "type_name"), [("uint8", "uchar"), ("float16", "half"), ("float32", "float")])
def test_an_offset_in_the_constant_address_space_is_a_multiple_of_four_bytes(space, dtype, type_name):
    """As Apple's GPUs ask, whose reflection does not name the space."""
    kernel = md.kernel(IN_SPACE.format(space=space, type=type_name))
    x, out = md.asarray(np.arange(32, dtype=dtype), copy=True), md.zeros(16)
    for first in range(8):
        if space == "constant" and first * x.dtype.itemsize % 4:
            with pytest.raises(
                ValueError, match=r"argument 'x': the array begins at byte \d+ of its buffer.* multiple of 4"
            ):
                kernel(x[first:], out, n=16)
        else:
            kernel(x[first:], out, n=16)
            assert out.tolist() == list(range(first, first + 16))
    kernel(x=x.copy()[4:], out=out, n=16)
    assert out.tolist() == list(range(4, 20))


@pytest.mark.parametrize(("name", "make", "error", "sentence"), REFUSED)
def test_an_array_that_does_not_suit_the_type_is_refused(name, make, error, sentence):
    x = make()
    with pytest.raises(error, match=f"take_{name}: argument 'x'.*{sentence}"):
        take(name)(x, md.zeros_like(x), n=1)


@pytest.mark.parametrize("dtype", ["float64", "float8_e4m3fn", "int4", "float4_e2m1fn", "uint1", "complex128"])
def test_types_that_metal_lacks_are_taken_as_bytes(dtype):
    x = md.ones(16, dtype)
    out = md.zeros(x.nbytes, "uint8")
    take("uchar")(x, out, n=x.nbytes)
    assert bytes(out) == bytes(x.buffer)[: x.nbytes]
    with pytest.raises(TypeError, match=f"Metal has no {dtype}; convert the array with astype"):
        take("float")(x, md.zeros(16), n=1)


def test_strides_can_be_ignored():
    x, out = md.asarray([[1.0, 2], [3, 4]]), md.zeros((2, 2))
    take("float")(x.T, out, n=4, strides="ignore")
    assert out.tolist() == x.tolist()
    with pytest.raises(ValueError, match="strides is \"ignore\" or None, not 'C'"):
        take("float")(x, out, n=4, strides="C")


def test_read_only_arrays_can_be_read_only():
    x, out = md.ones(3), md.zeros(3)
    take("float")(x.as_readonly(), out, n=3)
    assert out.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="argument 'out': the array is read-only, and the kernel may write there"):
        take("float")(x, out.as_readonly(), n=3)


def test_a_kernel_runs_beside_an_array_without_items():
    kernel = md.kernel(METAL + "kernel void count(device const float *x, device uint *out) { *out += 1; }")
    out = md.zeros(1, "uint32")
    kernel(md.zeros(0), out, n=1)
    assert out.tolist() == [1]


@pytest.mark.needs_softmetal
def test_without_memory_for_what_an_array_without_items_stands_for_a_call_is_refused(metal_settings):
    kernel = md.kernel(METAL + "kernel void count(device float *x, device uint *out) { *out += 1; }")
    nothing, out = md.zeros(0), md.zeros(1, "uint32")
    md.empty_cache()
    metal_settings(fail="buffer@1+")
    with pytest.raises(MemoryError, match="count: Metal could not allocate a buffer of 4 bytes"):
        kernel(nothing, out, n=1)
    metal_settings(fail=None)
    assert out.tolist() == [0]


def test_one_buffer_can_be_bound_twice():
    x = md.asarray([1.0, 2, 3, 4])
    take("float")(x[:2], x[2:], n=2)
    assert x.tolist() == [1, 2, 1, 2]


# ---- other objects with memory ----


def test_a_buffer_is_taken_whatever_its_bytes_are():
    source, out = md.full(4, 3.0), md.Buffer(16)
    take("float")(source.buffer, out, n=4)
    assert out.array(4, "float32").tolist() == [3, 3, 3, 3]
    out = md.Buffer(16)
    out.close()
    with pytest.raises(ValueError, match=r"^take_float: argument '\w+': the Buffer is closed\.$"):
        take("float")(source, out, n=4)


def test_a_tensor_on_mps_is_taken_in_place(torch):
    x, out = md.asarray([1.0, 2, 3, 4]), md.zeros(4)
    take("float")(torch.from_dlpack(x[1:]), torch.from_dlpack(out), n=3)
    assert out.tolist() == [2, 3, 4, 0]


@pytest.mark.needs_tvm
def test_a_tensor_of_tvm_is_taken_in_place():
    import tvm_ffi

    x, out = md.ones(4), md.zeros(4)
    take("float")(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(out), n=4)
    assert out.tolist() == [1, 1, 1, 1]


def test_memory_of_the_cpu_is_refused_with_the_way_out():
    x, out = np.ones(1 << 14, "float32"), md.zeros(4)
    strange = [x, x[:4], x.view(type("Own", (np.ndarray,), {})), memoryview(x).cast("B").cast("f"), bytearray(8)]
    for value in strange:
        with pytest.raises((TypeError, ValueError), match="argument 'x'"):
            take("float")(value, out, n=4)
    for value in strange[:3]:
        with pytest.raises(
            TypeError, match=r"in the CPU's memory cannot be an argument of a kernel; give md.asarray\(x\)"
        ):
            take("float")(value, out, n=4)
    take("float")(md.asarray(x), out, n=4)
    assert out.tolist() == [1, 1, 1, 1]


def test_a_tensor_on_the_cpu_is_refused(torch):
    for tensor in (torch.ones(4), torch.ones(1 << 16)):
        with pytest.raises(TypeError, match=r"argument 'x': an object of type .*Tensor in the CPU's memory"):
            take("float")(tensor, md.zeros(4), n=4)


# ---- values ----


@pytest.mark.parametrize("name", quickly("char", "ulong", of=INTEGERS))
def test_an_integer_is_exact_or_refused(name):
    dtype = INTEGERS[name]
    bounds = np.iinfo(dtype)
    for value in (bounds.min, bounds.max, np.int8(5), True):
        assert kept(name, value, dtype) == int(value)
    for value in (int(bounds.min) - 1, int(bounds.max) + 1, 2**70):
        with pytest.raises(OverflowError, match=f"keep_{name}: argument 'value': "):
            kept(name, value, dtype)
    for value in (1.0, np.float32(2), 1j, "1", None):
        with pytest.raises(TypeError, match="argument 'value'"):
            kept(name, value, dtype)


@pytest.mark.parametrize(("name", "dtype"), FLOATS.items())
def test_a_real_number_is_rounded_once_and_does_not_overflow(name, dtype):
    kind = {"bfloat16": ml_dtypes.bfloat16}.get(dtype, np.dtype(dtype).type if dtype != "bfloat16" else None)
    for value in (
        0.1,
        3,
        -2.5,
        np.float64(0.3),
        np.float16(0.5),
        float("inf"),
        True,
        2**20 + 1 if name != "half" else 2049,
    ):
        assert kept(name, value, dtype) == float(kind(float(value)))
    assert np.isnan(kept(name, float("nan"), dtype))
    for value in (1e39, -1e300, 10**40, -(10**400), 10**5000):
        with pytest.raises(OverflowError, match=f"argument 'value': .* (is too large for {name}|does not fit)"):
            kept(name, value, dtype)

    class Fading:
        """Too large, and then no number any more."""

        answers = iter([1e300])

        def __float__(self):
            return next(self.answers)

    with pytest.raises(StopIteration):
        kept(name, Fading(), dtype)


def test_a_bool_is_a_truth_value():
    assert kept("bool", True, "bool") is True
    assert kept("bool", np.bool_(False), "bool") is False
    for value in (1, 0.0, np.int8(1)):
        with pytest.raises(TypeError, match="a bool is True or False"):
            kept("bool", value, "bool")


@pytest.mark.parametrize(
    "make", [lambda x: np.array(x), lambda x: sys.modules["torch"].tensor(x), lambda x: md.full((), x)]
)
def test_what_has_no_axes_is_a_number(torch, make):
    assert kept("float", make(3.5), "float32") == 3.5


def test_what_has_no_axes_on_the_cpu_is_as_strict_as_a_number():
    assert kept("bool", np.array(True), "bool") is True
    assert kept("int", np.array(7), "int32") == 7
    for name, value, dtype in [("int", 3.5, "int32"), ("bool", 1, "bool"), ("float", 1j, "float32")]:
        with pytest.raises(TypeError, match="argument 'value'"):
            kept(name, np.array(value), dtype)
    with pytest.raises(TypeError, match="in the CPU's memory"):  # the kernel may write there
        take("float")(md.zeros(4), np.array(3.5), n=4)


@pytest.mark.parametrize("several", [[1.0, 2.0], (1, 2), [], [[1.0]]])
def test_several_numbers_for_a_pointer_to_them_are_told_the_way_out(several):
    words = rf"of {len(several)} items is not one float; .* give an Array: md.asarray\(x, dtype='float32'\)"
    with pytest.raises(TypeError, match=words):
        take("float")(several, md.zeros(4), n=4)


def test_a_launch_as_cudas_front_ends_write_it_is_told_the_way_out():
    kernel = take("float")
    for key in (4, (1, 4)):
        with pytest.raises(TypeError, match=r"write .*\(x, groups=grid, group=block\), or n= or threads="):
            kernel[key](md.ones(4), md.zeros(4))
    for name in ("grid", "threadgroup", "block"):
        with pytest.raises(TypeError, match=r"threads \(a grid in threads\).* group \(a threadgroup, or block\)"):
            kernel(md.ones(4), md.zeros(4), **{name: 4})


def test_a_tuple_is_a_vector():
    assert kept("float4", (1, 2.5, -3, 0), "float32", 4) == [1, 2.5, -3, 0]
    assert kept("uchar2", [1, 255], "uint8", 2) == [1, 255]
    assert kept("float3", (1, 2, 3), "float32", 4)[:3] == [1, 2, 3]
    assert kept("long4", (1, 2, 3, -(2**63)), "int64", 4) == [1, 2, 3, -(2**63)]
    with pytest.raises(ValueError, match="a float4 is a tuple of 4 numbers"):
        kept("float4", (1, 2), "float32", 4)
    for wrong in [("a", 1, 2, 3), (1, 2, 3, "a")]:
        with pytest.raises(TypeError, match="argument 'value': 'a' does not fit the element type float32"):
            kept("float4", wrong, "float32", 4)
    with pytest.raises(TypeError, match="a float4 is a tuple of 4 numbers"):
        kept("float4", 1, "float32", 4)
    with pytest.raises(OverflowError):
        kept("uchar2", (1, 256), "uint8", 2)


def test_a_struct_is_given_by_its_bytes():
    packed = struct.pack("<if", 7, 0.5)
    numpy = np.array((7, 0.5), dtype=[("first", "<i4"), ("second", "<f4")])[()]
    for value in (packed, bytearray(packed), memoryview(packed), numpy):
        assert bytes(np.asarray(md.asarray(kept("pair", value, "uint8", 8), dtype="uint8"))) == packed
    with pytest.raises(ValueError, match="7 bytes are given, and the parameter's type has 8"):
        kept("pair", packed[:7], "uint8", 8)
    refused = [("pair", 1, "a struct"), ("pair", (), "a struct"), ("float2x2", (1, 2), "a float2x2")]
    if softmetal.is_present():  # Metal's types have no enum
        refused += [("hue", 1, "a value of a type that Metal does not report")]
    for name, value, words in refused:
        with pytest.raises(TypeError, match=f"cannot become {words}; give its bytes"):
            kept(name, value, "uint8", 8)


def test_a_value_cannot_be_written(scale):
    for value in (1.0, (1.0,), bytes(4)):
        with pytest.raises(TypeError, match="argument 'x'"):
            scale(value, 1.0, 1, n=1)
    with pytest.raises(
        TypeError, match="argument 'x': the kernel may write there, and the result would be lost in a value"
    ):
        scale(1.0, 1.0, 1, n=1)


def test_other_objects_are_refused(scale):
    for value in (None, object(), "text", {}, scale):
        with pytest.raises(TypeError, match=r"argument 'x': an object of type .* cannot be an argument of a kernel"):
            scale(value, 1.0, 1, n=1)


# ---- which argument is which ----


def test_arguments_come_by_position_or_by_name(scale):
    for call in (
        lambda x: scale(x, 2.0, 3, n=3),
        lambda x: scale(x, count=3, factor=2.0, n=3),
        lambda x: scale(count=3, x=x, factor=2, n=3),
    ):
        x = md.ones(3)
        call(x)
        assert x.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "keywords", "sentence"),
    [
        ((1.0,), {}, r"scale: missing 'factor', 'count' of \(x, factor, count\)\."),
        ((1.0, 2.0), {}, r"scale: missing 'count' of \(x, factor, count\)\."),
        ((1, 2, 3, 4), {}, r"scale: it takes 3 arguments, not 4: \(x, factor, count\)\."),
        ((1, 2), {"x": 1}, r"scale: there are two values for 'x'; it takes \(x, factor, count\)\."),
        (
            (1, 2),
            {"cuont": 1},
            r"scale: there is no argument 'cuont'; it takes \(x, factor, count\), and for the launch n,",
        ),
    ],
)
def test_missing_surplus_and_repeated_arguments_are_named(scale, arguments, keywords, sentence):
    with pytest.raises(TypeError, match=sentence):
        scale(*arguments, n=1, **keywords)


def test_a_parameter_with_the_name_of_a_launch_keyword_is_given_by_position():
    kernel = md.kernel(
        METAL + "kernel void fill(device int *x, constant int &n, uint i [[thread_position_in_grid]]) { x[i] = n; }"
    )
    x = md.zeros(2, "int32")
    kernel(x, 7, n=2)
    assert x.tolist() == [7, 7]
    with pytest.raises(
        TypeError,
        match=r"fill: missing 'n' of \(x, n\); give by position an argument that is named as a keyword of the",
    ):
        kernel(x, n=2)


def test_the_arguments_describe_themselves(scale):
    x, factor, count = scale.arguments
    assert (x.name, x.index, x.kind, x.dtype, x.nbytes) == ("x", 0, "buffer", md.float32, 4)
    assert x.access in ("write", "read_write")
    assert (factor.name, factor.index, factor.dtype, factor.access) == ("factor", 1, md.float32, "read")
    assert (count.name, count.dtype) == ("count", md.uint32)
    assert repr(factor) == "Argument(name='factor', index=1, kind='buffer', dtype=float32, access='read')"
    vector, pair = (library()[f"keep_{name}"].arguments[0] for name in ("half3", "pair"))
    assert (vector.dtype, vector.nbytes) == (md.dtype("float16x3"), 8)
    assert (pair.dtype, pair.nbytes) == (None, 8)


def test_an_argument_gives_back_the_words_that_it_shares(scale):
    """One string for all arguments: what keeps it leaves no block behind."""
    words = scale.arguments[0].kind, scale.arguments[0].access
    before = [sys.getrefcount(word) for word in words]
    for _ in range(100):
        assert len(scale.arguments) == 3
    assert all(sys.getrefcount(word) < count + 50 for word, count in zip(words, before, strict=True))


# ---- threadgroup memory ----

REVERSE = (
    METAL
    + """
kernel void reverse(device float *x, threadgroup float *shared [[threadgroup(0)]],
                    uint i [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]])
{
    shared[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = shared[size - 1 - i];
}
"""
)


# ---- in which order ----

SWAPPED = (
    METAL
    + """
kernel void f(device float *out [[buffer(1)]], device float *x [[buffer(0)]], constant uint &unused [[buffer(2)]],
              uint i [[thread_position_in_grid]]) { out[i] = x[i] + 1; }"""
)


def test_positional_arguments_are_in_the_order_of_the_signature():
    """Whatever Metal lists: by index, or as the software Metal does, from the last one on."""
    k = md.kernel(SWAPPED)
    out, x = md.zeros(2), md.full(2, 5.0)
    k(out, x, 0, n=2)
    assert (out.tolist(), x.tolist()) == ([6, 6], [5, 5])
    assert [(one.name, one.index) for one in k.arguments] == [("out", 1), ("x", 0), ("unused", 2)]
    assert repr(k) == "<metal_dlpack.Kernel f(out, x, unused) on metal:0>"


def test_an_argument_that_metal_does_not_list_takes_its_place(monkeypatch):
    """A compiler may leave out what changes nothing: the call is the same, and nothing is bound."""
    from metal_dlpack.language import signatures

    order, left_out = (
        signatures.order,
        "constant uint &unused [[buffer(2)]], threadgroup float *room [[threadgroup(0)]],",
    )
    monkeypatch.setattr(
        signatures, "order", lambda text, asked: order(text.replace("uint i", f"{left_out} uint i"), asked)
    )
    k = md.kernel(SWAPPED.replace("constant uint &unused [[buffer(2)]],", ""))
    assert [one.name for one in k.arguments] == ["out", "x"]
    out, x, room = md.zeros(2), md.full(2, 5.0), {"room": 16}
    k(out, x, 0, n=2, threadgroup_memory=room)
    k(out, x, n=2, unused=object(), threadgroup_memory=room)
    assert out.tolist() == [6, 6]
    with pytest.raises(TypeError, match=r"f: missing 'unused' of \(out, x, unused\)"):
        k(out, x, n=2, threadgroup_memory=room)
    with pytest.raises(TypeError, match="'room' lies in threadgroup memory"):
        k(out, x, 0, n=2)


def test_a_signature_that_says_otherwise_than_metal_is_refused(monkeypatch):
    from metal_dlpack.language import signatures

    order = signatures.order
    monkeypatch.setattr(signatures, "order", lambda text, asked: order(text.replace("*x ", "*y "), asked))
    with pytest.raises(
        TypeError, match=r"Metal lists buffer 0 of 'f' as 'x', which the source's signature \(out, y, unused, i\)"
    ):
        md.kernel(SWAPPED)


def test_threadgroup_memory_is_given_by_its_size():
    reverse = md.kernel(REVERSE)
    x = md.asarray([1.0, 2, 3])
    reverse(x, groups=1, group=3, threadgroup_memory={"shared": 12})
    assert x.tolist() == [3, 2, 1]
    assert [one.kind for one in reverse.arguments] == ["buffer", "threadgroup"]


@pytest.mark.parametrize(
    ("sizes", "error", "sentence"),
    [
        (
            None,
            TypeError,
            r"'shared' lies in threadgroup memory; give its bytes by threadgroup_memory={'shared': nbytes}",
        ),
        ({}, TypeError, "'shared' lies in threadgroup memory"),
        ({"shared": 12, "other": 16}, TypeError, "does not name a parameter in threadgroup memory"),
        ({"shared": 0}, ValueError, "'shared' cannot have 0 bytes"),
        ({"shared": -4}, ValueError, "'shared' cannot have -4 bytes"),
        ({"shared": 1 << 30}, ValueError, "'shared' cannot have 1073741824 bytes of threadgroup memory; give 1 to "),
        ({"shared": 1.5}, TypeError, "threadgroup_memory"),
        (12, TypeError, "threadgroup_memory must be a dict of bytes by parameter, not int"),
    ],
)
def test_other_sizes_are_refused(sizes, error, sentence):
    with pytest.raises(error, match=sentence):
        md.kernel(REVERSE)(md.zeros(3), groups=1, group=3, threadgroup_memory=sizes)


def test_the_kernels_own_variables_count_too():
    source = REVERSE.replace(
        "shared[i] = x[i];", "threadgroup float own[64]; own[i % 64] = 0; shared[i] = x[i] + own[i % 64];"
    )
    reverse = md.kernel(source)
    with pytest.raises(
        ValueError, match=r"(\d+) bytes of threadgroup memory, the kernel's own \d+ included, are more than"
    ):
        reverse(md.zeros(3), groups=1, group=3, threadgroup_memory={"shared": 32768 - reverse.threadgroup_memory + 1})


def test_an_array_is_no_texture():
    source = METAL + "kernel void blur(texture2d<float> image, device float *out) { out[0] = image.get_width(); }"
    with pytest.raises(TypeError, match=r"'image' is a texture2d<float>.*give md\.texture\(array\)"):
        md.kernel(source)(md.zeros((2, 4)), md.zeros(1), n=1)
