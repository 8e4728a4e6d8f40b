"""The exchange tables of other libraries' types, as from_dlpack uses them."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from dlpack_structs import Header, Producer, capsule_of, kind_with_table, table_of, table_with, tensor_from

import metal_dlpack as md
from metal_dlpack import _core


def test_ctrl_c_within_a_question_to_torch_is_raised(torch, live_buffers):
    class Interrupted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            if function == torch.Tensor.requires_grad.__get__:
                raise KeyboardInterrupt
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **(keywords or {}))

    with pytest.raises(KeyboardInterrupt):
        md.from_dlpack(torch.from_dlpack(md.ones(3).host).as_subclass(Interrupted))


@pytest.mark.rule("exchange-as-method")
def test_what_torchs_table_refuses_torchs_method_explains(torch, live_buffers):
    """The table raises RuntimeError with a trace of C++ calls, the method BufferError with a sentence."""
    for tensor, sentence in [
        (torch.eye(3).to_sparse(), "layout other than torch.strided"),
        (torch.zeros(3, dtype=torch.uint8).view(torch.bits8), "Bit types are not supported"),
    ]:
        with pytest.raises(BufferError, match=sentence) as caught:
            md.from_dlpack(tensor)
        assert "frame #" not in str(caught.value)
        assert caught.value.__context__ is None
        assert "frame #" not in str(md.explain(tensor))


@pytest.mark.rule("import-negated")
def test_torchs_negated_memory_is_refused(torch, live_buffers):
    z = torch.tensor([[1 + 2j, 3 + 4j]]).repeat(3, 1)
    for negated in (z.conj().imag, z[0].conj().imag, z[0, 0].conj().imag, z.conj().imag[:, :1]):
        assert negated.is_neg()
        with pytest.raises(BufferError, match="resolve_neg"):
            md.from_dlpack(negated)
        assert md.explain(negated).outcome == "refusal"
        assert md.from_dlpack(negated.resolve_neg()).tolist() == negated.tolist()
    for plain in (
        z.imag,
        z.conj().real,
        z[0, 0].imag,
        torch.ones(4, 2)[:, 1],
        torch.ones(()),
        torch.nn.Parameter(z.real, False),
    ):
        assert md.from_dlpack(plain).tolist() == plain.tolist()


def test_types_seen_are_remembered_and_let_go():
    kinds = [kind_with_table(None) for _ in range(12)]
    for kind in kinds:
        assert md.from_dlpack(kind()).shape == (3,)
    alive = [weakref.ref(kind) for kind in kinds]
    del kinds, kind
    gc.collect()
    assert sum(reference() is not None for reference in alive) <= 4


@pytest.mark.rule("exchange-versions")
def test_a_table_of_another_major_version_is_left_for_the_one_before_it():
    """The new one's members are not even looked at."""
    calls = []

    def from_object(_op, out):
        calls.append("table")
        out[0] = ctypes.addressof(tensor_from(table_of(md.Array), array))
        return 0

    array = md.full(3, 4.0)
    older = table_with(from_object=from_object)
    newer = Header((2, 0), ctypes.addressof(older))
    newest = Header((3, 1), ctypes.addressof(newer))
    strangest = Header((2, 0), None)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Base:
        def __dlpack_device__(self):
            return (8, 0)

        def __dlpack__(self, **keywords):
            calls.append("method")
            return array.__dlpack__(**keywords)

    for header, expected in ((older, "table"), (newer, "table"), (newest, "table"), (strangest, "method")):
        capsule = new(ctypes.addressof(header), b"dlpack_exchange_api", None)
        kind = type("Kind", (Base,), {"__dlpack_c_exchange_api__": capsule})
        assert md.from_dlpack(kind()).tolist() == [4.0] * 3
        assert calls.pop() == expected
    _core._forget_types()


@pytest.mark.rule("exchange-versions")
def test_versions_in_a_circle_tables_with_holes_and_what_is_no_table_are_passed_over():
    one, two = Header((2, 0), None), Header((3, 0), None)
    one.prev_api, two.prev_api = ctypes.addressof(two), ctypes.addressof(one)
    with_holes = table_with(from_object=None), table_with(to_object=None)
    for header in (one, *with_holes, None, 5, "text", ctypes.c_int(3)):
        kind = kind_with_table(header)
        assert md.from_dlpack(kind()).tolist() == [0, 1, 2]
        with pytest.raises(TypeError, match="no __dlpack_c_exchange_api__"):
            md.zeros(3).to(kind)
        with pytest.raises(AttributeError, match="__dlpack__"):
            md.from_dlpack(kind_with_table(header, has_method=False)())
    _core._forget_types()


@pytest.mark.rule("exchange-as-method")
def test_a_table_that_fails_is_followed_by_the_method_if_there_is_one(live_buffers):
    kept = []

    def make(function, *, has_method):
        table = table_with(from_object=function)
        kept.append(table)
        return kind_with_table(table, has_method=has_method)()

    def gives_nothing(_op, out):
        out[0] = None
        return 0

    for function in (gives_nothing, lambda _op, _out: -1):
        assert md.from_dlpack(make(function, has_method=True)).tolist() == [0, 1, 2]
        with pytest.raises(BufferError, match="returned no tensor and no error"):
            md.from_dlpack(make(function, has_method=False))
    _core._forget_types()


@pytest.mark.rule("exchange-foreign")
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"strides": None}, None),
        ({"shape": None, "strides": None, "ndim": 2}, "shape is NULL"),
        ({"ndim": 10**6}, "ndim"),
        ({"ndim": -1}, "ndim"),
        ({"version": (2, 0), "shape": None, "strides": None}, "major version"),
    ],
)
def test_a_subclass_of_torchs_with_a_table_of_its_own_is_checked_as_any_other(torch, fields, sentence, live_buffers):
    memory = np.arange(6, dtype="float32")
    producer = Producer(data=memory.ctypes.data, **fields)

    def give(_op, out):
        out[0] = ctypes.addressof(producer.struct)
        return 0

    table = table_with(from_object=give)
    kind = type("Kind", (torch.Tensor,), {"__dlpack_c_exchange_api__": capsule_of(table)})
    tensor = torch.zeros(6).as_subclass(kind)
    if sentence is None:
        assert md.from_dlpack(tensor).tolist() == memory.reshape(2, 3).tolist()
    else:
        with pytest.raises(BufferError, match=sentence):
            md.from_dlpack(tensor)
    _core._forget_types()
    gc.collect()
    assert producer.deletions == 1
