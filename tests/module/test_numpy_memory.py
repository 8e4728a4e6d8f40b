"""NumPy's arrays in Metal buffers: which, how long, and that exchange finds the buffer itself."""

import asyncio
import concurrent.futures
import contextvars
import ctypes
import gc
import mmap
import random
import threading

import numpy as np
import pytest
from children import output_of
from eventually import PATIENCE

import metal_dlpack as md

pytestmark = pytest.mark.needs_numpy

LARGE = 1 << 16


def live():
    gc.collect()
    return md.memory_stats()["shared"]["live_buffers"]


@pytest.fixture(autouse=True)
def nothing_stays():
    before = live()
    yield
    assert live() == before


def test_large_arrays_are_buffers_and_small_ones_are_not():
    before = live()
    with md.numpy_memory():
        large = [np.empty(LARGE, np.uint8), np.zeros(LARGE, np.uint8), np.arange(LARGE)]
        small = [np.empty(LARGE - 1, np.uint8), np.ones(10), np.zeros(10)]
        assert live() == before + 3
        results = large[2] * 2 + 1  # what ufuncs make is there too
        assert live() == before + 4
    outside = np.empty(LARGE, np.uint8)
    assert live() == before + 4
    assert not large[1].any()
    assert results[7] == 15
    del small, outside


def test_exchange_finds_the_very_buffer():
    with md.numpy_memory():
        x = np.arange(LARGE, dtype=np.float32)
    before = live()
    a, b = md.from_dlpack(x, copy=False), md.asarray(x[10:20:3])
    assert live() == before, "no other buffer is made"
    assert a.buffer.handle == b.buffer.handle
    assert (a.byte_offset, b.byte_offset) == (0, 40)
    assert b.tolist() == [10, 13, 16, 19]
    x[13] = -1
    assert b.tolist()[1] == -1
    x.flags.writeable = False
    assert md.asarray(x).readonly
    assert not a.readonly


def test_the_arrays_live_as_long_as_anybody_uses_them():
    with md.numpy_memory():
        x = np.full(LARGE, 7, np.int32)
    buffers = live()
    a = md.from_dlpack(x)
    del x
    assert live() == buffers
    assert a[5].item() == 7
    view = np.asarray(a)
    del a
    assert live() == buffers
    assert view[-1] == 7
    del view
    assert live() == buffers - 1


def test_a_buffer_that_was_given_away_is_not_reused_for_numpy():
    with md.numpy_memory():
        x = np.ones(LARGE)
        handle = md.from_dlpack(x).buffer.handle
        wrapped = md.Buffer.from_handle(handle)
        del x
        gc.collect()
        y = np.zeros(LARGE)
    assert np.frombuffer(wrapped, np.float64)[0] == 1, "somebody else still has it"
    assert not y.any()


def test_zeros_are_zeros_in_memory_that_was_used():
    with md.numpy_memory():
        for _ in range(5):
            x = np.full(LARGE, 9, np.uint8)
            del x
            assert not np.zeros(LARGE, np.uint8).any()


@pytest.mark.parametrize("inside", [True, False])
def test_resizing_keeps_the_items(inside):
    with md.numpy_memory():
        x = np.arange(LARGE, dtype=np.int64)
        if inside:
            x.resize(3 * LARGE, refcheck=False)
    if not inside:
        x.resize(3 * LARGE, refcheck=False)
    assert (x[:LARGE] == np.arange(LARGE)).all()
    assert not x[LARGE:].any()
    x.resize(10, refcheck=False)
    assert x.tolist() == list(range(10))
    x.resize(2 * LARGE, refcheck=False)
    assert x[:11].tolist() == [*range(10), 0]


def test_the_context_ends_with_it_in_an_error_too():
    before = live()
    with pytest.raises(ZeroDivisionError), md.numpy_memory():
        _ = 1 // 0
    x = np.ones(LARGE)
    assert live() == before
    del x


def handler():
    """The name of the memory handler of this context."""
    from numpy._core.multiarray import get_handler_name

    return get_handler_name()


PLAIN, OURS = "default_allocator", "metal_dlpack"


def test_contexts_may_be_left_in_any_order():
    for seed in range(20):
        rng = random.Random(seed)
        contexts = [md.numpy_memory() for _ in range(3)]
        entered = []
        for _ in range(40):
            if entered and rng.random() < 0.5:
                entered.pop(rng.randrange(len(entered))).__exit__(None, None, None)
            else:
                entered.append(rng.choice(contexts).__enter__())
            assert handler() == (OURS if entered else PLAIN), seed
        for context in entered:
            context.__exit__(None, None, None)
        assert handler() == PLAIN, seed


def test_what_is_not_entered_cannot_be_left():
    context = md.numpy_memory()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not entered"):
            context.__exit__(None, None, None)
        with context, pytest.raises(RuntimeError, match="not entered"):
            md.numpy_memory().__exit__(None, None, None)
    assert handler() == PLAIN


def test_another_thread_cannot_leave_it_and_nothing_changes():
    with md.numpy_memory() as context, concurrent.futures.ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="thread or task"):
            pool.submit(context.__exit__, None, None, None).result()
        assert (pool.submit(handler).result(), handler()) == (PLAIN, OURS)
    assert handler() == PLAIN


def test_one_object_is_entered_by_two_threads_at_once():
    context = md.numpy_memory()
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def work(is_first):
        with context:
            barrier.wait()
            if not is_first:
                barrier.wait()  # the first one has left
            seen = handler()
        after = handler()
        if is_first:
            barrier.wait()
        return seen, after

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [True, False])) == [(OURS, PLAIN)] * 2
    assert handler() == PLAIN


def test_a_copied_context_keeps_it_and_has_an_end_of_its_own():
    context = md.numpy_memory()
    with context:
        copied = contextvars.copy_context()
    assert handler() == PLAIN
    assert copied.run(handler) == OURS
    copied.run(context.__exit__, None, None, None)
    assert copied.run(handler) == handler() == PLAIN
    with pytest.raises(RuntimeError, match="not entered"):
        copied.run(context.__exit__, None, None, None)
    empty = contextvars.copy_context()
    with context, pytest.raises(RuntimeError, match="not entered"):
        empty.run(context.__exit__, None, None, None)


def test_tasks_have_their_own():
    async def work(delay):
        with md.numpy_memory():
            await asyncio.sleep(delay)
            seen = handler()
        await asyncio.sleep(0)
        return seen, handler()

    async def plain():
        await asyncio.sleep(0.001)
        return handler()

    async def main():
        return await asyncio.gather(work(0.002), work(0.001), plain())

    assert asyncio.run(main()) == [(OURS, PLAIN), (OURS, PLAIN), PLAIN]
    assert handler() == PLAIN


def test_other_threads_are_not_touched_and_may_free():
    before = live()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with md.numpy_memory():
            other = pool.submit(np.ones, LARGE).result()
            assert live() == before
            kept = [np.ones(LARGE)]
        pool.submit(kept.clear).result()
        assert live() == before
    del other


def test_eight_threads_allocate_and_free_at_once():
    def work(seed):
        rng = random.Random(seed)
        kept = []
        with md.numpy_memory():
            for i in range(150):
                kept.append((i, np.full(rng.choice([10, LARGE, 3 * LARGE]), i)))
                if len(kept) > 5:
                    number, array = kept.pop(rng.randrange(len(kept)))
                    assert (array == number).all()

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_where_metal_has_no_room_numpy_has():
    before = live()
    md.set_memory_limit(0)
    try:
        with md.numpy_memory():
            x = np.ones(LARGE)
        assert live() == before
    finally:
        md.set_memory_limit(None)
    assert x.sum() == LARGE


PYDATAMEM_GET_HANDLER, PYDATAMEM_DEFAULT_HANDLER = 305, 306  # their places in NumPy's table of C functions


get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def numpy_table(of):
    """NumPy's C API, as pointers to `of`."""
    from numpy._core import _multiarray_umath as core

    return ctypes.cast(get_pointer(core._ARRAY_API, None), ctypes.POINTER(of))


def default_handler():
    """The bytes of NumPy's default memory handler: a name of 127 letters, a version and five pointers."""
    handler = get_pointer(numpy_table(ctypes.POINTER(ctypes.py_object))[PYDATAMEM_DEFAULT_HANDLER][0], b"mem_handler")
    return ctypes.string_at(handler, 128 + 5 * ctypes.sizeof(ctypes.c_void_p))


def current_free():
    """The function of the memory handler in use that frees."""
    current = ctypes.PYFUNCTYPE(ctypes.py_object)(numpy_table(ctypes.c_void_p)[PYDATAMEM_GET_HANDLER])()
    functions = ctypes.cast(get_pointer(current, b"mem_handler") + 128, ctypes.POINTER(ctypes.c_void_p))
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(functions[4])


def test_numpy_s_own_handler_is_never_written_to():
    before = default_handler()
    assert before.startswith(b"default_allocator\0")
    with md.numpy_memory():
        large, small = np.ones(LARGE), np.ones(10)
        assert default_handler() == before
    del large, small
    assert default_handler() == before
    assert not {"enable", "disable"} & set(dir(md.numpy_memory))


SCRIPT = """
import sys, metal_dlpack as md
assert "numpy" not in sys.modules
context = md.numpy_memory()
assert "numpy" not in sys.modules
context.__enter__()
import numpy as np
kept = np.ones(1 << 20)
shared = md.from_dlpack(kept)
class Late:
    def __del__(self, array=np.arange(1 << 20)):
        assert array[5] == 5
late = Late()
"""


@pytest.mark.needs_glibc
@pytest.mark.needs_no_sanitizer
def test_memory_that_others_allocated_is_freed_by_numpy_s_own_allocator():
    """Memory from malloc that begins on a page, above our array."""
    malloc, nbytes = ctypes.CDLL(None), 64 << 20
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    assert malloc.posix_memalign(ctypes.byref(first), mmap.PAGESIZE, nbytes) == 0
    with md.numpy_memory():
        array = np.zeros(nbytes, np.uint8)
        assert malloc.posix_memalign(ctypes.byref(second), mmap.PAGESIZE, nbytes) == 0
        below, above = sorted((first, second), key=lambda block: block.value)  # systems map upward or downward
        malloc.free(below)
        free = current_free()
        before = md.memory_stats()["live_buffers"]
        assert array.ctypes.data < above.value, "the test shows nothing"
        free(None, above, nbytes)
        assert md.memory_stats()["live_buffers"] == before
        del array
    assert md.memory_stats()["live_buffers"] == before - 1


def test_numpy_is_imported_when_it_is_used_and_the_interpreter_may_end_inside():
    output_of(SCRIPT)
