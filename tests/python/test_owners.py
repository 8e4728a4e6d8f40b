"""Owners of foreign memory: let go once, by the interpreter they belong to, whoever asks for it."""

import weakref

import pytest
from children import output_of
from dlpack_structs import Producer, delete_on_raw_threads, open_capsule
from eventually import until
from machine import tries

import metal_dlpack as md


class Owner:
    pass


def owned_export():
    original = md.Buffer(64)
    owner = Owner()
    buffer = md.Buffer.from_handle(original.handle, owner=owner)
    return weakref.ref(owner), open_capsule(buffer.array(4).__dlpack__())


@pytest.mark.rule("import-deleter-thread")
def test_a_foreign_tensor_is_deleted_with_the_gil_after_a_deleter_without_it(live_buffers):
    """The producer's deleter is Python code here: it can only run with the GIL."""
    buffer = md.Buffer(64)
    producer = Producer(data=buffer.handle, device=(8, 0), shape=(2,))
    opened = open_capsule(md.from_dlpack(producer).__dlpack__())
    assert producer.deletions == 0
    delete_on_raw_threads([opened])
    until(lambda: producer.deletions)
    assert producer.deletions == 1


def test_many_owners_from_many_raw_threads(live_buffers):
    exports = [owned_export() for _ in range(500)]
    delete_on_raw_threads([opened for _, opened in exports])
    until(lambda: all(alive() is None for alive, _ in exports))


def test_an_exception_in_flight_survives_an_owners_end(live_buffers):
    class Noisy:
        def __del__(self):
            try:
                raise RuntimeError
            except RuntimeError:
                pass

    original = md.Buffer(64)
    with pytest.raises(KeyError, match="in flight"):
        array = md.Buffer.from_handle(original.handle, owner=Noisy()).array(4)
        holder = {"array": array}
        del array
        try:
            raise KeyError("in flight")
        finally:
            holder.clear()


@pytest.mark.rule("module-ends")
def test_a_module_goes_with_arrays_in_the_same_cycle():
    """The garbage collector takes the module from its types before the Arrays go."""
    output_of("""
        import gc, importlib.util
        import metal_dlpack._core as core
        spec = importlib.util.find_spec("metal_dlpack._core")
        class Memory(bytearray):
            pass
        for _ in range(3):
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            memory = Memory(8192)
            array = memory.array = module.asarray(memory)
            module.kept = [array, array[1:], array.buffer]
            del array, memory, module
            gc.collect()
        assert sum(getattr(thing, "__name__", "") == "Array" for thing in gc.get_objects()) == 1, "types are left"
    """)


@pytest.mark.parametrize("step", ["md.asarray(np.asarray(a))", "md.from_dlpack(np.from_dlpack(a.host))"])
def test_a_long_chain_of_owners_does_not_overflow_the_stack(step):
    """Each link is the last to hold the next; the memory goes at once with the first."""
    output_of(f"""
        import numpy as np
        import metal_dlpack as md
        a = md.zeros(4)
        memory = a.buffer
        for _ in range({tries(100_000)}):
            a = {step}
        del a
        memory.close()
    """)


@pytest.mark.rule("module-ends")
def test_the_module_can_be_dropped_and_imported_again():
    assert (
        output_of("""
        import sys
        import metal_dlpack as md
        array = md.zeros(3)
        capsule = array.__dlpack__()
        for name in [name for name in sys.modules if name.startswith("metal_dlpack")]:
            del sys.modules[name]
        import metal_dlpack as again
        assert again is not md
        print(again.from_dlpack(capsule).tolist(), again.from_dlpack(array).tolist())
    """).strip()
        == "[0.0, 0.0, 0.0] [0.0, 0.0, 0.0]"
    )


@pytest.mark.rule("fork")
def test_a_forked_child_deletes_silently():
    """tests/module/test_fork.py calls everything else there."""
    out = output_of("""
        import os
        import metal_dlpack as md
        from forking import fork
        array = md.zeros(3)
        private = md.zeros(3, storage="private")
        capsule = array.__dlpack__()
        if fork() == 0:
            print(array.tolist(), flush=True)
            del array, capsule, private
            os._exit(0)
        print(os.wait()[1], array.tolist(), private.tolist())
    """)
    assert out == "[0.0, 0.0, 0.0]\n0 [0.0, 0.0, 0.0] [0.0, 0.0, 0.0]\n"
