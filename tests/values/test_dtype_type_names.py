"""Every dtype of every framework: known or refused, as an object and as a text, wherever one is asked for; and back."""

import itertools
import re
import warnings

import ml_dtypes
import numpy as np
import pytest
from children import run_child

import metal_dlpack as md

DTYPES = [value for value in vars(md).values() if isinstance(value, md.dtype)]
#: Types of torch that DLPack has no code for.
NOT_IN_DLPACK = re.compile(r"q?u?int[3567]|qu?int\d+(x\d)?|bits\d+(x\d)?|bcomplex32")
#: Types whose tensors torch itself exports as bytes, and does not import.
SHELLS_OF_TORCH = {"uint1", "uint2", "uint4", "int1", "int2", "int4"}


def dtypes_in(module, kind):
    return {name: value for name, value in vars(module).items() if isinstance(value, kind)}


def known(value):
    try:
        return md.dtype(value)
    except TypeError:
        return None


def test_every_dtype_of_torch(torch):
    seen = set()
    for name, theirs in dtypes_in(torch, torch.dtype).items():
        plain = str(theirs).removeprefix("torch.")
        if NOT_IN_DLPACK.fullmatch(plain):
            for value in (theirs, str(theirs), plain):
                with pytest.raises(TypeError, match="is not an element type"):
                    md.dtype(value)
            continue
        ours = md.dtype(theirs)
        assert ours == md.dtype(str(theirs)) == md.dtype(plain), name
        assert ours.name == plain.replace("_x2", "x2")
        if plain not in SHELLS_OF_TORCH:
            assert ours.itemsize == theirs.itemsize
        seen.add(plain)
    assert len(seen) >= 25


def test_every_dtype_of_mlx_and_back(mx):
    found = dtypes_in(mx, mx.Dtype)
    assert len(found) >= 13
    for name, theirs in found.items():
        ours = md.dtype(theirs)
        assert ours == md.dtype(str(theirs)) == md.dtype(f"mlx.core.{name}") == md.dtype(name)
        assert ours.itemsize == theirs.size
        array = md.from_dlpack(mx.array([0, 1, 1, 0]).astype(theirs))
        assert array.dtype == ours
        assert [complex(x) for x in array.tolist()] == [0, 1, 1, 0]
        back = mx.array(array.host, dtype=theirs)
        assert back.dtype == theirs
        assert [complex(x) for x in back.tolist()] == [0, 1, 1, 0]
    with pytest.raises(TypeError):
        md.dtype(mx.array([1.0]))


def test_every_scalar_type_of_jax_and_back(jnp):
    types = {name: value for name, value in vars(jnp).items() if isinstance(value, type(jnp.float32))}
    assert {"float32", "bfloat16", "float8_e4m3fn", "int4", "float4_e2m1fn"} <= set(types)
    for name, theirs in types.items():
        ours = md.dtype(theirs)
        assert ours == md.dtype(theirs.dtype) == md.dtype(f"jax.numpy.{theirs.__name__}"), name
        assert theirs.dtype == ours.numpy
        if ours.name not in {"float6_e2m3fn", "float6_e3m2fn", "int1", "uint1"}:  # JAX has no arrays of them
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # 64 bits are 32 where JAX says so
                tensor = jnp.ones(5, "uint8").astype(theirs)
            array = md.asarray(np.asarray(tensor))
            assert array.dtype == md.dtype(tensor.dtype)
            assert all(x == 1 for x in array.tolist())


def test_every_type_of_numpy_and_ml_dtypes_and_back():
    scalars = [value for module in (np, ml_dtypes) for value in vars(module).values() if isinstance(value, type)]
    seen = set()
    for scalar in scalars:
        try:
            theirs = np.dtype(scalar) if issubclass(scalar, np.generic) or scalar.__module__ == "ml_dtypes" else None
        except TypeError:
            theirs = None
        ours = None if theirs is None or (theirs.kind in "OSUMmV" and theirs.isbuiltin != 2) else known(theirs)
        if ours is None:
            assert theirs is None or theirs.kind in "OSUMmV" or theirs.itemsize > 8 or theirs.name == "bcomplex32"
            continue
        assert ours == md.dtype(scalar) == md.dtype(theirs.name)
        assert ours.numpy == theirs
        if theirs.isbuiltin == 1:
            assert ours == md.dtype(theirs.str) == md.dtype(theirs.str.replace("<", "="))
            assert ours == md.dtype(f"numpy.{scalar.__name__}")
        else:
            assert ours == md.dtype(f"ml_dtypes.{scalar.__name__}")
        values = np.array([0, 1, 1], "int8").astype(theirs)
        array = md.asarray(values)
        assert array.dtype == ours
        back = np.asarray(array)
        assert (back.dtype, back.tobytes()) == (theirs, values.tobytes())
        seen.add(ours.name)
    assert seen == {dtype.name for dtype in DTYPES}


@pytest.mark.needs_tvm
def test_dtypes_of_tvm_are_their_names():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    unknown = {"complex32", "complex64", "complex128"}
    for dtype in DTYPES:
        if dtype.name not in unknown:
            assert md.dtype(tvm_ffi.dtype(dtype.name)) == dtype
            assert md.dtype(tvm_ffi.dtype(f"{dtype.name}x4")) == md.dtype(f"{dtype.name}x4")


def test_every_code_with_lanes_goes_through_dlpack():
    for dtype, lanes in itertools.product(DTYPES, [1, 2, 3, 16]):
        named = md.dtype(dtype.name if lanes == 1 else f"{dtype.name}x{lanes}")
        array = md.empty((3, 4), named)
        memory = bytes((7 * i + 1) % 256 for i in range(array.nbytes - 1)) + b"\1"  # the last byte is used in part
        array.buffer.copy_from(memory)
        used = array.size * named.bits * named.lanes
        for back in (md.from_dlpack(array.host, copy=False), md.from_dlpack(array, copy=True)):
            assert (back.dtype, back.shape, back.nbytes) == (named, array.shape, array.nbytes)
            found = bytes(memoryview(back.buffer))[back.byte_offset :][: len(memory)]
            assert found[:-1] == memory[:-1], named
            assert (found[-1] ^ memory[-1]) % (1 << (used - 1) % 8 + 1) == 0, named  # no item has the other bits


ENTRIES = {
    "dtype": md.dtype,
    "empty": lambda x: md.empty(3, x).dtype,
    "zeros": lambda x: md.zeros(3, dtype=x).dtype,
    "full": lambda x: md.full(3, 1, x).dtype,
    "empty_like": lambda x: md.empty_like(md.zeros(3), dtype=x).dtype,
    "asarray": lambda x: md.asarray([1, 0], dtype=x).dtype,
    "view": lambda x: md.zeros((2, 8)).view(x).dtype,
    "astype": lambda x: md.zeros(3).astype(x).dtype,
    "Buffer.array": lambda x: md.Buffer(64).array(3, x).dtype,
}


def test_every_way_to_name_a_type_is_taken_wherever_one_is_asked(torch, mx, jnp):
    short = [md.int16, "int16", np.int16, np.dtype("i2"), "<i2", torch.int16, "torch.int16", mx.int16, jnp.int16]
    short += ["mlx.core.int16"]
    brain = [ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), torch.bfloat16, mx.bfloat16, jnp.bfloat16]
    brain += ["ml_dtypes.bfloat16"]
    for name, entry in ENTRIES.items():
        assert [entry(value) for value in short] == [md.int16] * len(short), name
        assert [entry(value) for value in brain] == [md.bfloat16] * len(brain), name
        for value in (">i2", np.dtype(">i2")):
            with pytest.raises(ValueError, match=r"byte order.*newbyteorder"):
                entry(value)
        for value in (torch.qint8, np.dtype("S3"), "i3", object()):
            with pytest.raises(TypeError, match="is not an element type"):
                entry(value)


def test_an_array_of_the_other_byte_order_is_refused_with_the_way_out():
    theirs = np.arange(3, dtype="int16")
    swapped = theirs.astype(theirs.dtype.newbyteorder("S"))
    with pytest.raises(ValueError, match=r"asarray: .*newbyteorder\('='\)"):
        md.asarray(swapped)
    assert md.asarray(swapped.astype(swapped.dtype.newbyteorder("="))).tolist() == [0, 1, 2]
    array = md.zeros(3, "int16")
    array[...] = swapped  # which converts anyway
    assert array.tolist() == [0, 1, 2]


def test_a_text_that_only_looks_like_a_name_is_refused(subtests):
    names = ["f3", *(f"float32{tail}" for tail in ("x", "x0", "x1", "x02", "x65536", " ", "\0")), "\ud800"]
    codes = ["", "<", "g", "<x", "<ff", "<f0", "<f04", "<f3", "<x4", "<f4x", "<f99999999999999999999", "|V2", "=b2"]
    for text in [*names, *codes, "\0", "torch.", "torch.qint8", "os.float32"]:
        with subtests.test(text=text), pytest.raises(TypeError, match="is not an element type"):
            md.dtype(text)
    printed = type("dtype", (), {"__module__": "torch", "__str__": lambda _: "torch.float32\0"})
    with pytest.raises(TypeError, match="is not an element type"):
        md.dtype(printed())


def test_no_framework_is_imported_to_know_a_dtype():
    program = (
        "import sys, metal_dlpack as md\n"
        "for value in ('torch.float32', 'mlx.core.int8', '<f4', 'jax.numpy.bfloat16', 'ml_dtypes.int4'):\n"
        "    md.empty(2, value).fill(1)\n"
        "try: md.dtype(object())\n"
        "except TypeError: pass\n"
        "assert not {'numpy', 'ml_dtypes', 'torch', 'mlx', 'jax'} & set(sys.modules)\n"
    )
    run_child(program, check=True)


def test_numpys_short_codes_are_numpys_types():
    """Letters and typestrings, with every byte order that NumPy writes: the same type, or the refusal with its reason."""
    codes = [*np.typecodes["All"], "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
    taken = set()
    for code in codes:
        for order in ("", "<", "=", "|", ">"):
            theirs = np.dtype(order + code)
            if theirs.kind not in "biufc" or theirs.itemsize > 16 or theirs.char in "gG":
                with pytest.raises(TypeError, match="is not an element type"):
                    md.dtype(order + code)
            elif not theirs.isnative:
                with pytest.raises(ValueError, match=r"byte order.*without '>'"):
                    md.dtype(order + code)
            else:
                assert md.dtype(order + code) == theirs
                taken.add(theirs)
    assert len(taken) >= 14


def test_a_text_of_no_certain_width_is_refused_with_both():
    for text in ("float", "int", "complex"):
        words = rf"'{text}' is not an element type, because its width .*; give '{text}\d+' or '"
        with pytest.raises(TypeError, match=words):
            md.zeros(2, text)
    assert [md.dtype(kind).name for kind in (bool, int, float, complex)] == ["bool", "int64", "float64", "complex128"]


# ---- equality ----


@pytest.mark.needs_ml_dtypes
def test_a_dtype_equals_its_name_and_what_other_packages_call_it():
    pythons = {md.bool: [bool], md.int64: [int], md.float64: [float], md.complex128: [complex]}
    for dtype in DTYPES:
        for name in [dtype.name, dtype.numpy, dtype.numpy.type, *pythons.get(dtype, [])]:
            assert dtype == name and name == dtype
            assert (dtype != name) is (name != dtype) is False
            for other in DTYPES:
                assert (other == name) == (other is dtype) == (name == other)


def test_a_dtype_equals_those_of_torch_mlx_and_jax(torch, mx, jnp):
    array = md.zeros(2, "bfloat16")
    for theirs in (torch.bfloat16, jnp.bfloat16, ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert array.dtype == theirs and theirs == array.dtype
        assert md.float16 != theirs and theirs != md.float16
    assert array.dtype == mx.bfloat16 and md.float16 != mx.bfloat16  # mx.bfloat16 == x is MLX's answer


def test_a_dtype_is_unequal_to_everything_else():
    texts = ["f4", "<f4", "torch.float32", "", "float32\0"]
    types = [float, complex, object, np.dtype(">f4"), np.dtype("S3"), np.dtype("float64"), np.float64]
    for other in [None, 1, 2.5, *texts, *types, md.zeros(1).device]:
        assert md.float32 != other and other != md.float32
        assert (md.float32 == other) is (other == md.float32) is False


def test_what_another_dtype_raises_is_raised_and_no_value_is_asked_for_its_text():
    class Loud:
        def __repr__(self):
            raise ZeroDivisionError

        __str__ = __repr__

    assert md.float32 != Loud()

    class Broken(type):
        @property
        def __module__(cls):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        md.float32 == Broken("float32", (), {})  # noqa: B015


def test_a_dtype_hashes_as_its_name_so_either_finds_the_other():
    for dtype in [*DTYPES, md.dtype("float32x4")]:
        assert hash(dtype) == hash(dtype.name)
        assert {dtype: 1}[dtype.name] == {dtype.name: 1}[dtype] == 1
        assert len({dtype, dtype.name}) == 1


@pytest.mark.needs_ml_dtypes
def test_numpy_takes_a_dtype_wherever_it_asks_for_one():
    for dtype in DTYPES:
        assert np.dtype(dtype) == dtype.numpy
        assert np.zeros(2, dtype).dtype == dtype.numpy
        assert np.asarray(md.zeros(2, "int8"), dtype=dtype).dtype == dtype.numpy
    with pytest.raises(TypeError):
        np.dtype(md.dtype("float32x2"))
