"""Objects that answer what a protocol asks, and raise an error of their own for anything else that is looked up."""

import numpy as np
import pytest
from dlpack_structs import READ_ONLY, VERSIONED_NAME, Versioned, capsule_name, capsule_pointer

import metal_dlpack as md

COUNT = 12


class Reticent(RuntimeError):
    """No AttributeError, which would mean that there is no such attribute."""


def twins(base=object, **members):
    """A class, and one whose objects have nothing else to say."""

    def look(self, name):
        if name in members or name == "__class__":
            return object.__getattribute__(self, name)
        raise Reticent(name)

    return type("Own", (base,), members), type("Own", (base,), {**members, "__getattribute__": look})


def dlpack_of(device, *, is_readonly=False):
    array = md.asarray(np.arange(COUNT, dtype="float32"))
    array = array.as_readonly() if is_readonly else array

    def give(_self, **keywords):
        return array.__dlpack__(dl_device=device, **{k: v for k, v in keywords.items() if k != "dl_device"})

    return twins(__dlpack__=give, __dlpack_device__=lambda _self: device)


PRODUCERS = {
    "CPU": dlpack_of((1, 0)),
    "Metal": dlpack_of((8, 0)),
    "read-only": dlpack_of((8, 0), is_readonly=True),
    "bytes": twins(bytes),
}
target = md.zeros(COUNT)
CALLS = {
    "from_dlpack": md.from_dlpack,
    "asarray": md.asarray,
    "copy": lambda x: md.asarray(x, copy=True),
    "copy_from": target.copy_from,
    "fill": target.fill,
    "explain": lambda x: md.explain(x).outcome,
    "shares_memory": lambda x: md.shares_memory(target, x),
    "from_host": md.Buffer.from_host,
    "from_iosurface": md.Buffer.from_iosurface,
    "equal": lambda x: target == x,
}


def came(call, op):
    try:
        result = call(op)
    except Exception as error:
        return type(error)
    return result.tolist() if isinstance(result, md.Array) else type(result) if result is not NotImplemented else result


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", PRODUCERS)
def test_what_an_object_will_not_answer_is_as_if_it_were_not_there(kind, call, live_buffers):
    """Where a call does something with an object that answers more."""
    plain, reticent = PRODUCERS[kind]
    content = (bytes(COUNT),) if kind == "bytes" else ()
    expected = came(CALLS[call], plain(*content))
    found = came(CALLS[call], reticent(*content))
    assert found == expected or (isinstance(expected, type) and issubclass(expected, Exception) and found is Reticent)


# ---- torch's wrapper for tensors that must not be written ----


@pytest.fixture
def wrap(torch):
    """As torch 2.15's ReadOnlyTensorWrapper: a tensor that refuses whatever is no DLPack, and exports itself read-only."""

    class Wrapper(torch.Tensor):
        exports = frozenset({torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__})

        @classmethod
        def __torch_function__(cls, function, types, arguments=(), keywords=None):
            if function not in cls.exports:
                raise Reticent(f"{function} is not allowed")
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **(keywords or {}))

        def __dlpack__(self, **keywords):
            capsule = super().__dlpack__(**{"max_version": (1, 0), **keywords})
            if capsule_name(capsule) == VERSIONED_NAME:
                Versioned.from_address(capsule_pointer(capsule, VERSIONED_NAME)).flags |= READ_ONLY
            return capsule

    return lambda x: x.as_subclass(Wrapper)


@pytest.mark.rule("exchange-as-method", "import-readonly")
@pytest.mark.parametrize("make", [
    lambda torch: torch.arange(12.0),
    lambda torch: torch.arange(12.0)[::2],
    lambda torch: torch.tensor(3.0),
    lambda torch: torch.arange(12.0).reshape(3, 4).T,
    lambda torch: torch.arange(12),
    lambda torch: torch.ones(3, dtype=torch.complex64),
    lambda torch: torch.zeros(0),
])  # fmt: skip
def test_a_tensor_that_only_speaks_dlpack_is_taken_read_only(torch, wrap, make, live_buffers):
    plain = make(torch)
    for take in (md.from_dlpack, md.asarray):
        array = take(wrap(plain))
        assert array.readonly
        assert array.tolist() == plain.tolist()
    target = md.zeros(tuple(plain.shape), array.dtype)
    target.copy_from(wrap(plain))
    assert target.tolist() == plain.tolist()
    assert md.shares_memory(md.from_dlpack(plain), wrap(plain)) == (plain.numel() > 0)
    assert md.explain(wrap(plain)).outcome == md.explain(plain).outcome


@pytest.mark.rule("exchange-as-method", "import-negated")
@pytest.mark.parametrize(("make", "sentence"), [
    (lambda torch: torch.zeros(3, requires_grad=True), "require gradient"),
    (lambda torch: torch.ones(3, dtype=torch.complex64).conj(), "conj"),
    (lambda torch: torch.tensor([1 + 2j, 3 + 4j]).conj().imag, "resolve_neg"),
    (lambda torch: torch.from_dlpack(md.asarray([1 + 2j, 3 + 4j]).host).conj().imag, "resolve_neg"),
])  # fmt: skip
def test_what_torchs_own_tensor_may_not_do_its_wrapper_may_not_either(torch, wrap, make, sentence, live_buffers):
    tensor = make(torch)
    for x in (tensor, wrap(tensor)):
        with pytest.raises(BufferError, match=sentence):
            md.from_dlpack(x)
