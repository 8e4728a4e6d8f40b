"""Run in a child: every kind of deleter at every place where one is called.  `python -m hostile.deleting`."""

import ctypes
import gc
import itertools
import sys
import threading

from dlpack_structs import CAPSULE_NAMES, delete_on_raw_threads, object_from, open_capsule, table_of

import metal_dlpack as md
from hostile.cases import CPU, METAL
from hostile.routes import Memory, check_the_end, live_buffers
from hostile.tensors import Tensor, deleters

PLAIN, LEAVES_AN_EXCEPTION, ENTERS_PYTHON = range(3)  # as deleters.c has them
entries = []


def enter_again():
    """What a deleter of Python code may do: exchange tensors, collect garbage, raise and catch."""
    entries.append(md.from_dlpack(md.zeros(4).host).tolist())
    md.from_dlpack(md.zeros(3).__dlpack__())
    gc.collect(0)


ctypes.c_void_p.in_dll(deleters, "re_entry").value = id(enter_again)


def make(manner, versioned, device, memory):
    tensor = Tensor(versioned=versioned, data=memory.data, dies=memory.dies, device=device)
    tensor.context.manner = manner
    return tensor


# ---- the places: each gets a tensor, and when it is over the tensor was deleted once ----


def drop_the_array(tensor):
    array = md.from_dlpack(tensor.capsule())
    view = array[1:]
    del array
    assert tensor.deletions == 0
    del view


def copy_it(tensor):
    array = md.from_dlpack(tensor.capsule(), copy=True)
    assert tensor.deletions == 1
    assert array.shape == (2, 3)


def import_no_items(tensor):
    tensor.struct.tensor.shape[0] = 0
    assert md.from_dlpack(tensor.capsule()).size == 0


def refuse_another_major(tensor):
    if not tensor.versioned:
        return drop_the_array(tensor)
    tensor.struct.version[0] = 2
    try:
        md.from_dlpack(tensor.capsule())
    except BufferError as error:
        assert "DLPack 2" in str(error), error
        return None
    raise AssertionError("taken")


def refuse_at_our_table(tensor):
    if not tensor.versioned:
        return drop_the_array(tensor)
    tensor.struct.tensor.ndim = -1
    try:
        object_from(table_of(md.Array), tensor.struct)
    except BufferError as error:
        assert "ndim (-1)" in str(error), error
        return None
    raise AssertionError("taken")


def with_an_exception_in_flight(tensor):
    array = [md.from_dlpack(tensor.capsule())]
    try:
        try:
            raise KeyError("in flight")
        finally:
            array.clear()
    except KeyError as error:
        assert error.args == ("in flight",)


def export_and_delete_on_a_raw_thread(tensor):
    array = md.from_dlpack(tensor.capsule())
    for keywords in ({}, {"max_version": (1, 0)}, {"dl_device": (1, 0)}):
        delete_on_raw_threads([open_capsule(array.__dlpack__(**keywords))])
    opened = open_capsule(array.__dlpack__())
    del array
    assert tensor.deletions == 0
    delete_on_raw_threads([opened])
    md.from_dlpack(md.zeros(1))  # at the latest the next exchange lets go


def drop_on_another_thread(tensor):
    arrays = [md.from_dlpack(tensor.capsule())]
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()


def drop_in_a_cycle(tensor):
    cycle = [md.from_dlpack(tensor.capsule())]
    cycle.append(cycle)
    del cycle
    gc.collect()


def pass_it_on(tensor):
    """Through a second import, and out at the other end."""
    array = md.from_dlpack(md.from_dlpack(md.from_dlpack(tensor.capsule()).__dlpack__()).__dlpack__())
    assert tensor.deletions == 0
    del array


PLACES = (
    drop_the_array,
    copy_it,
    import_no_items,
    refuse_another_major,
    refuse_at_our_table,
    with_an_exception_in_flight,
    export_and_delete_on_a_raw_thread,
    drop_on_another_thread,
    drop_in_a_cycle,
    pass_it_on,
)


def run():
    buffers = live_buffers()
    count = 0
    manners = (PLAIN, LEAVES_AN_EXCEPTION, ENTERS_PYTHON)
    for place, manner, versioned, device in itertools.product(PLACES, manners, (False, True), (CPU, METAL)):
        print(place.__name__, manner, CAPSULE_NAMES[versioned], device, flush=True)
        memory = Memory(device)
        entered = len(entries)
        tensor = make(manner, versioned, device, memory)
        place(tensor)
        assert sys.exc_info() == (None, None, None)
        assert tensor.deletions == 1, tensor.deletions
        assert len(entries) - entered == (manner == ENTERS_PYTHON)
        tensor.free()
        memory.close()
        count += 1
    check_the_end(buffers)
    print(f"DONE {count} 0", flush=True)


if __name__ == "__main__":
    run()
