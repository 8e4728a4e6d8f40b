"""The pool: what is reused and what is not, the counts, the limit, threads."""

import ctypes
import gc
import os
import random
import shutil
import subprocess

import numpy as np
import pytest
from children import output_of
from dlpack_structs import borrow, delete, open_capsule, table_of, tensor_from
from forking import exit_code_of_child
from held_work import gate
from objc_messages import encode_fill, pool, send
from own_threads import in_threads

import metal_dlpack as md
import softmetal

pytestmark = pytest.mark.needs_softmetal

MODES = ["shared", "managed", "private"]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty_pool():
    """An empty cache and no limit, before and after."""
    gc.collect()
    md.empty_cache()
    before = md.memory_stats()
    yield
    md.set_memory_limit(None)
    gc.collect()
    md.empty_cache()
    after = md.memory_stats()
    assert after["cached"] == after["cached_buffers"] == 0
    assert (after["live"], after["live_buffers"]) == (before["live"], before["live_buffers"])


def delta(before, after):
    return {name: after[name] - before[name] for name in ("live", "cached", "allocations", "hits")}


@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_nobody_uses_serves_the_next_of_its_size(mode):
    first = md.empty(1000, storage=mode)
    before = md.memory_stats()[mode]
    del first
    made = softmetal.live_objects("MTLBuffer")
    second = md.empty((10, 100), storage=mode)
    assert delta(before, md.memory_stats()[mode]) == {"live": 0, "cached": 0, "allocations": 1, "hits": 1}
    assert softmetal.live_objects("MTLBuffer") == made
    assert second.buffer.size == 4000


#: Each way to a large or small free buffer of the pool's, by what asks for it.
ASKS = {
    **{mode: lambda n, mode=mode: md.empty(n, md.uint8, storage=mode) for mode in MODES},
    "Buffer": lambda n: md.asarray(md.Buffer(n)),
    "NumPy": lambda n: md.from_dlpack(np.empty(n, np.uint8)),
}


def items_of(array):
    """Read by a copy, as private storage has to be."""
    return np.asarray(md.asarray(array, copy=True, storage="shared").host).reshape(-1).view(np.uint8)


@pytest.mark.parametrize("nbytes", [1, 1000, 100_000, 3 * MIB])
@pytest.mark.parametrize("ask", ASKS)
def test_poison_reaches_buffers_that_the_pool_gives_again(ask, nbytes, metal_settings):
    if ask == "NumPy" and nbytes < 1 << 16:
        pytest.skip("NumPy's own")
    metal_settings(poison=1)
    with md.numpy_memory():
        first = ASKS[ask](nbytes)
        first.fill(7)
        assert (items_of(first) == 7).all()
        softmetal.wait_idle()  # work on private storage has let go of it
        del first
        hits = md.memory_stats()["hits"]
        second = ASKS[ask](nbytes)
        assert md.memory_stats()["hits"] > hits
        assert (items_of(second) == 0xCD).all()
        assert not items_of(md.zeros(nbytes, md.uint8)).any()


def test_modes_and_sizes_are_kept_apart():
    for mode in MODES:
        del [md.empty(1000, storage=mode)][:]
    hits = md.memory_stats()["hits"]
    kept = [md.empty(2000, storage=mode) for mode in MODES]
    assert md.memory_stats()["hits"] == hits
    assert md.memory_stats()["cached_buffers"] == 3
    assert all(md.memory_stats()[mode]["cached_buffers"] == 1 for mode in MODES)
    kept += [md.empty(1000, storage=mode) for mode in MODES]
    assert md.memory_stats()["hits"] == hits + 3


def test_zeros_and_full_do_not_show_the_bytes_before_but_empty_may():
    address = md.full(1000, 7.0).buffer.address
    zeros = md.zeros(1000)
    assert zeros.buffer.address == address, "the same memory, or the test shows nothing"
    assert not np.asarray(zeros).any()
    del [md.full(1000, 7.0, storage="private")][:]
    assert not any(md.zeros(1000, storage="private").tolist())


@pytest.mark.parametrize(
    "hand_out",
    [
        lambda a: a.buffer.handle,
        lambda a: a.__dlpack__(),
        lambda a: md.from_dlpack(a.__dlpack__()),
        lambda a: md.Buffer.from_handle(a.buffer.handle, owner=a),
    ],
    ids=["handle", "capsule", "array", "from_handle"],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_was_given_away_is_reused_when_nobody_holds_it_any_more(hand_out, mode):
    a = md.empty(1000, storage=mode)
    before = md.memory_stats()
    given = hand_out(a)
    del a
    if not isinstance(given, int):
        assert md.memory_stats()["live"] == before["live"]
        assert md.memory_stats()["cached"] == before["cached"]
    del given
    gc.collect()
    assert delta(before, md.memory_stats())["cached"] == 4096
    made = softmetal.live_objects("MTLBuffer")
    b = md.empty(1000, storage=mode)
    assert softmetal.live_objects("MTLBuffer") == made, "the same MTLBuffer"
    del b
    assert md.memory_stats()["cached"] == before["cached"] + 4096, "nobody knows it now"


def test_a_buffer_that_somebody_retains_is_not_reused():
    a = md.empty(1000)
    handle = a.buffer.handle
    send(handle, "retain")
    before = md.memory_stats()
    del a
    assert delta(before, md.memory_stats()) == {"live": -4096, "cached": 0, "allocations": 0, "hits": 0}
    other = md.Buffer.from_handle(handle)
    send(handle, "release", result=None)
    assert other.array(1000).fill(1) is None, "its memory is there"
    del other
    assert md.memory_stats()["cached"] == before["cached"], "it is Metal's"


def test_a_handle_of_ours_keeps_our_buffer_and_gives_it_back_to_the_pool():
    a = md.full(1000, 7.0)
    other = md.Buffer.from_handle(a.buffer.handle)
    before = md.memory_stats()
    del a
    assert md.memory_stats() == before, "it lives"
    assert other.array(1000).tolist() == [7] * 1000
    del other
    gc.collect()
    assert delta(before, md.memory_stats()) == {"live": -4096, "cached": 4096, "allocations": 0, "hits": 0}


def handle_of_capsule(array):
    return open_capsule(array.__dlpack__()).tensor.data


def handle_of_table(array):
    managed = tensor_from(table_of(md.Array), array)
    handle = managed.tensor.data
    delete(ctypes.addressof(managed))
    return handle


def handle_of_borrowed_tensor(array):
    return borrow(table_of(md.Array), array).data


@pytest.mark.parametrize("hand_out", [handle_of_capsule, handle_of_table, handle_of_borrowed_tensor])
@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_a_consumer_retains_is_not_reused(hand_out, mode):
    a = md.zeros(1000, storage=mode)
    handle = hand_out(a)
    send(handle, "retain")
    before = md.memory_stats()
    del a
    assert delta(before, md.memory_stats())["cached"] == 0
    send(handle, "release", result=None)


@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_under_work_that_retains_nothing_is_kept_by_the_tensor(settings, mode):
    """As MLX works: nothing shows in the retain count, and the deleter is called when the work is over."""
    a = md.zeros(MIB, storage=mode)
    capsule, handle = a.__dlpack__(), a.buffer.handle
    del a
    settings(latency_us=100_000)
    with pool():
        queue = send(send(handle, "device"), "newCommandQueue")
        commands = send(send(queue, "commandBufferWithUnretainedReferences"), "retain")
        encode_fill(commands, handle, 7, 4 * MIB)
        send(commands, "commit", result=None)
    others = [md.empty(MIB, storage=mode) for _ in range(4)]
    assert handle not in [other.buffer.handle for other in others]
    send(commands, "waitUntilCompleted", result=None)
    softmetal.wait_idle()
    del capsule
    assert md.empty(MIB, storage=mode).buffer.handle == handle, "free at last"
    send(commands, "release", result=None)
    send(queue, "release", result=None)


@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_a_command_buffer_of_others_uses_is_not_reused(mode):
    a = md.zeros(MIB, storage=mode)
    handle = a.buffer.handle
    with pool():
        queue = send(send(handle, "device"), "newCommandQueue")
        commands = send(queue, "commandBuffer")
        with gate() as event:
            send(commands, "encodeWaitForEvent:value:", event, 1, result=None)
            encode_fill(commands, handle, 7, 4 * MIB)
            send(commands, "commit", result=None)
            before = md.memory_stats()
            del a
            assert delta(before, md.memory_stats())["cached"] == 0
            fresh = md.zeros(MIB, storage=mode)
        send(commands, "waitUntilCompleted", result=None)
        assert not any(fresh[::4096].tolist()), "the other's work was written into it"
        send(queue, "release", result=None)


@pytest.mark.parametrize(
    "mark",
    [
        lambda handle: send(handle, "setLabel:", send(send(handle, "device"), "name")),
        lambda handle: send(handle, "setPurgeableState:", 3),
    ],
    ids=["label", "purgeable"],
)
def test_a_buffer_that_somebody_marked_is_not_reused(mark):
    a = md.empty(1000)
    with pool():
        mark(a.buffer.handle)
    before = md.memory_stats()
    del a
    assert delta(before, md.memory_stats())["cached"] == 0


GROWTH = """
import ctypes
import metal_dlpack as md

class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks used f k".split()]

count = ctypes.CDLL(None).mallinfo2
count.restype = Counts

def work():
    for _ in range(5000):
        md.Buffer(5000).close()
        md.empty_cache()
    counts = count()
    return counts.used + counts.hblkhd

first = work()
grown = work() - first
assert grown < 20000, grown
"""


@pytest.mark.needs_glibc
@pytest.mark.needs_no_sanitizer
def test_buffers_that_metal_has_back_leave_no_memory_behind():
    """Without validation, which keeps what is freed."""
    output_of(GROWTH, SOFTMETAL_VALIDATION="0")


def test_a_buffer_that_was_only_host_memory_is_reused_when_the_last_view_goes():
    a = md.empty(1000)
    views = [np.asarray(a), np.from_dlpack(a.host), memoryview(a)]
    buffers = md.memory_stats()["live_buffers"]
    del a
    while views:
        assert md.memory_stats()["live_buffers"] == buffers
        views.pop()
        gc.collect()
    assert md.memory_stats()["live_buffers"] == buffers - 1
    assert md.memory_stats()["cached_buffers"] == 1


def test_a_label_does_not_pass_to_the_next_user():
    md.Buffer(5000, label="weights").close()
    assert md.memory_stats()["cached_buffers"] == 0
    assert md.Buffer(5000).label is None


def test_memory_in_use_by_the_gpu_is_not_reused(settings):
    stream = md.Stream()
    src, dst = md.full(MIB, 3.0, storage="private"), md.empty(MIB, storage="private")
    settings(latency_us=50_000)
    dst.copy_from(src, stream=stream)
    before = md.memory_stats()["private"]
    del dst, src
    other = md.empty(MIB, storage="private")
    assert delta(before, md.memory_stats()["private"])["hits"] == 0, "the copy is still running"
    assert softmetal.wait_idle()  # the copy lets go on a Metal thread
    assert md.memory_stats()["private"]["cached_buffers"] == 2
    del other


def test_lengths_are_at_most_an_eighth_more_and_fit():
    rng = random.Random(1)
    sizes = [
        *range(1, 70),
        *(1 << rng.randrange(24) for _ in range(20)),
        *(rng.randrange(1, 1 << 24) for _ in range(200)),
    ]
    for size in sizes:
        before = md.memory_stats()["live"]
        buffer = md.Buffer(size)
        length = md.memory_stats()["live"] - before
        assert buffer.size == size <= length <= max(256, size + size // 8 + 4)
        assert buffer.address is not None
        buffer.copy_from(bytes(size))
        buffer.close()


def test_the_peak_is_the_most_at_once():
    kept = md.empty(MIB)
    peak = md.memory_stats()["peak"]
    assert peak >= md.memory_stats()["live"]
    more = [md.empty(peak // 4) for _ in range(2)]
    high = md.memory_stats()
    assert high["peak"] == max(peak, high["live"]) > peak
    del more, kept
    assert md.memory_stats()["peak"] == high["peak"]


def test_empty_cache_gives_back_what_is_cached_and_nothing_else():
    live = md.full(1000, 1.0)
    arrays = [md.empty(1000 * (i + 1), storage=mode) for i in range(4) for mode in MODES]
    buffers = softmetal.live_objects("MTLBuffer")
    del arrays
    cached = md.memory_stats()["cached"]
    assert md.empty_cache() == cached > 12 * 4000
    assert md.empty_cache() == 0
    assert softmetal.live_objects("MTLBuffer") == buffers - 12
    assert set(live.tolist()) == {1.0}


def test_the_limit_holds_for_what_is_live_and_cached():
    assert md.set_memory_limit(16 * MIB) is None
    used = md.memory_stats()["live"]
    a = md.empty(2 * MIB)
    del a
    assert md.memory_stats()["cached"] == 8 * MIB
    b = md.empty(2 * MIB - 512, dtype="uint8"), md.empty(3 * MIB)
    stats = md.memory_stats()
    assert stats["live"] + stats["cached"] <= 16 * MIB, "what was cached made room"
    with pytest.raises(
        MemoryError, match=r"empty: allocating 12582912 bytes would exceed the limit .* \(16777216 bytes, \d{8} in use"
    ):
        md.empty(3 * MIB)
    assert md.memory_stats()["live"] == stats["live"], "nothing is counted that was refused"
    del b
    assert md.set_memory_limit(0) == 16 * MIB
    assert md.memory_stats()["cached"] == 0
    with pytest.raises(MemoryError):
        md.zeros(1)
    assert md.memory_stats()["limit"] == 0
    md.set_memory_limit(None)
    assert md.memory_stats()["live"] == used


def test_what_is_let_go_while_more_than_the_limit_is_in_use_goes_to_metal():
    arrays = [md.empty(MIB, "uint8") for _ in range(3)]
    limit = md.memory_stats()["live"] - 3 * MIB // 2
    md.set_memory_limit(limit)
    assert md.memory_stats()["live"] > limit, "what is in use stays"
    cached = []
    while arrays:
        arrays.pop()
        cached.append(md.memory_stats()["cached"])
    assert cached == [0, 0, MIB]


@pytest.mark.parametrize("sizes", [(MIB, 2 * MIB), (2 * MIB, MIB)], ids=["small", "large"])
def test_the_oldest_goes_first_where_the_cache_is_full(sizes):
    md.set_memory_limit(md.memory_stats()["live"] + 3 * MIB)
    old, young = map(md.Buffer, sizes)
    address = young.address
    old.close()
    young.close()
    assert md.memory_stats()["cached"] == 3 * MIB
    third = md.Buffer(MIB // 2)
    assert md.memory_stats()["cached"] == sizes[1]
    assert md.Buffer(sizes[1]).address == address
    third.close()


def test_an_allocation_that_fails_empties_the_cache_and_is_tried_once_more(settings):
    device = md.default_device()
    del [md.empty(MIB)][:]
    assert md.memory_stats()["cached"] == 4 * MIB
    settings(memory_limit=device.current_allocated_size + MIB)
    a = md.empty(MIB // 2)
    assert md.memory_stats()["cached"] == 0
    with pytest.raises(
        MemoryError, match=r"could not allocate a buffer of 16777216 bytes \(\d+ are in use\); delete Arrays"
    ):
        md.empty(4 * MIB)
    assert a.nbytes == 2 * MIB


def test_eight_threads_share_the_pool():
    def work(seed):
        rng = random.Random(seed)
        kept = []
        for i in range(400):
            value = seed * 1000 + i
            mode = rng.choice(["shared", "shared", "managed"])
            kept.append((value, md.full(rng.choice([1, 64, 500, 5000]), value, dtype="int32", storage=mode)))
            if len(kept) > 8:
                number, array = kept.pop(rng.randrange(len(kept)))
                assert (np.asarray(array) == number).all(), "another thread has the same memory"
            if rng.random() < 0.02:
                md.empty_cache()
                md.memory_stats()

    in_threads(8, work)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
def test_a_forked_child_takes_nothing_from_the_pool():
    del [md.empty(1000)][:]
    assert md.memory_stats()["cached_buffers"] == 1

    def allocate():
        with pytest.raises(md.MetalError):
            md.empty(1000)

    assert exit_code_of_child(allocate) == 0
    hits = md.memory_stats()["hits"]
    del [md.empty(1000)][:]
    assert md.memory_stats()["hits"] == hits + 1


#: As MLX after donation: the deleter is called while the GPU still writes, and no retain count tells.
PLAY_MLX = """
import ctypes, sys
import numpy as np
from held_work import gate
from objc_messages import encode_fill, pool, send
import metal_dlpack as md

def round_trip(mode):
    a = md.zeros(1 << 20, storage=mode)
    capsule, handle = a.__dlpack__(), a.buffer.handle
    md.default_device().synchronize()
    del a
    with pool(), gate() as event:
        queue = send(send(handle, "device"), "newCommandQueue")
        commands = send(send(queue, "commandBufferWithUnretainedReferences"), "retain")
        send(commands, "encodeWaitForEvent:value:", event, 1, result=None)
        encode_fill(commands, handle, 7, 4 << 20)
        send(commands, "commit", result=None)
        del capsule
        fresh = md.zeros(1 << 20, storage=mode)
        is_reused = md.memory_stats()["hits"]
    send(commands, "waitUntilCompleted", result=None)
    status = send(commands, "status", result=ctypes.c_ulong)
    send(commands, "release", result=None)
    send(queue, "release", result=None)
    return bool(is_reused), set(np.array(fresh).tolist()) == {0.0}, status

if len(sys.argv) > 2:
    ctypes.CDLL(sys.argv[2])
print(*round_trip(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def libmlx(tmp_path_factory):
    """An empty library with the name that MLX's has on a Mac."""
    path = tmp_path_factory.mktemp("mlx") / "libmlx.so"  # the emulator's compiler makes a program of another suffix
    command = [*os.environ.get("CC", "cc").split(), "-shared", "-x", "c", os.devnull, "-o", path]
    subprocess.run(command, check=True)
    return path.rename(path.with_suffix(".dylib"))


@pytest.mark.needs_no_sanitizer
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.some(1)
def test_a_buffer_that_mlx_may_still_write_to_becomes_no_other_array(libmlx, mode):
    """It goes back to Metal, which refuses the work (5, failed) or keeps the memory; a reused one is written to."""
    quiet = {"SOFTMETAL_VALIDATION": "0"}
    assert output_of(PLAY_MLX, mode, libmlx, **quiet).split() == ["False", "True", "5"]
    assert output_of(PLAY_MLX, mode, **quiet).split()[0] == "True", "without MLX the pool has it"


def test_nothing_that_is_loaded_before_or_after_hides_mlx(libmlx, tmp_path):
    """The loader is asked again whenever something else was loaded."""
    other = shutil.copy(libmlx, tmp_path / "libother.so")
    code = """
import ctypes, sys
import metal_dlpack as md
def is_cached():
    md.empty_cache()
    a = md.empty(1000)
    a.__dlpack__()
    del a
    return md.memory_stats()["cached_buffers"] == 1
found = [is_cached(), is_cached()]
for path in sys.argv[1:]:
    ctypes.CDLL(path)
    found += [is_cached(), is_cached()]
print(*found)
"""
    assert output_of(code, other, libmlx).split() == ["True"] * 4 + ["False"] * 2
    assert output_of(code, libmlx, other).split() == ["True"] * 2 + ["False"] * 4
