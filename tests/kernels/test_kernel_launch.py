"""How many threads a call makes, in which groups, on which stream; and what it costs."""

import os
import re
import sys
import time

import numpy as np
import pytest
from children import output_of
from eventually import until
from held_work import held
from own_threads import in_threads

import metal_dlpack as md
import softmetal

pytestmark = pytest.mark.needs_kernels

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
#: Each thread leaves its position, the size of its group, and the size of the grid.
WHERE = (
    METAL
    + """
kernel void where(device uint4 *out, uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
                  uint3 group [[dispatch_threads_per_threadgroup]])
{
    out[(at.z * grid.y + at.y) * grid.x + at.x] = uint4(at, group.x * group.y * group.z);
}
"""
)
FILL = (
    METAL
    + "kernel void fill(device float *x, constant float &value, uint i [[thread_position_in_grid]]) { x[i] = value; }"
)


@pytest.fixture(scope="module")
def where():
    return md.kernel(WHERE)


@pytest.fixture(scope="module")
def fill():
    return md.kernel(FILL)


def positions(kernel, extents, **keywords):
    """The threads that ran, in order, and the size of their group."""
    w, h, d = (*extents, 1, 1)[:3]
    out = md.full((w * h * d, 4), 99, "uint32")
    kernel(out, **keywords)
    items = np.asarray(out)
    z, y, x = np.meshgrid(range(d), range(h), range(w), indexing="ij")
    np.testing.assert_array_equal(items[:, :3], np.stack([x, y, z], -1).reshape(-1, 3))
    (group,) = set(items[:, 3].tolist())
    return group


@pytest.mark.parametrize(
    ("keywords", "extents"),
    [
        ({"n": 5}, (5,)),
        ({"n": np.int64(5)}, (5,)),
        ({"threads": 5}, (5,)),
        ({"threads": (5, 3)}, (5, 3)),
        ({"threads": [5, 3, 2]}, (5, 3, 2)),
        ({"groups": 3, "group": 4}, (12,)),
        ({"groups": (2, 3), "group": (4, 2)}, (8, 6)),
        ({"groups": (1, 2, 3), "group": (2, 2, 2)}, (2, 4, 6)),
        ({"threads": (5, 3), "group": (2, 2)}, (5, 3)),
        ({"n": 1000, "group": 64}, (1000,)),
    ],
)
def test_the_grid_is_what_was_asked_for(where, keywords, extents):
    group = positions(where, extents, **keywords)
    if "group" in keywords:
        assert group == np.prod(keywords["group"])
    assert 1 <= group <= where.max_total_threads


def test_a_group_of_the_default_size_suits_the_kernel(where):
    group = positions(where, (5000,), n=5000)
    assert group % where.thread_execution_width == 0


@pytest.mark.parametrize(
    ("keywords", "error", "sentence"),
    [
        ({}, TypeError, "where: the number of threads is missing; give the number of threads by one of n="),
        ({"n": None}, TypeError, "the number of threads is missing"),
        ({"group": 4}, TypeError, "the number of threads is missing"),
        ({"n": 4, "threads": 4}, TypeError, "the number of threads is given twice"),
        ({"n": 4, "groups": 1, "group": 4}, TypeError, "the number of threads is given twice"),
        ({"groups": 4}, TypeError, "groups= counts threadgroups; give the threads of each by group="),
        ({"n": (4, 2)}, TypeError, r"n is one number; give threads=\(4, 2\)"),
        ({"n": [4, 2]}, TypeError, r"n is one number; give threads=\[4, 2\]"),
        ({"n": [4]}, TypeError, r"n is one number; give threads=\[4\]"),
        ({"n": -1}, ValueError, r"n \(-1\) is not within 0"),
        ({"n": 2**32}, ValueError, r"n \(4294967296\) is not within 0 to"),
        ({"n": 1.5}, TypeError, "n"),
        ({"n": "4"}, TypeError, "n must be an int"),
        ({"threads": ()}, ValueError, "threads is empty"),
        ({"threads": (1, 2, 3, 4)}, ValueError, "threads"),
        ({"n": 4, "group": 0}, ValueError, r"a group of \(0, 1, 1\) is not between 1 and \d+ threads"),
        ({"n": 4, "group": (2**31, 2**31, 4)}, ValueError, "is not between 1 and"),
        ({"groups": 1, "group": (1 << 20)}, ValueError, "the kernel's max_total_threads"),
        ({"groups": (1, 2**31), "group": (1, 2)}, ValueError, r"groups \(2147483648\) of 2 threads are more"),
        ({"n": 4, "stream": "main"}, TypeError, "where: stream must be a Stream"),
    ],
)
def test_another_grid_is_refused(where, keywords, error, sentence):
    with pytest.raises(error, match=sentence):
        where(md.zeros((4, 4), "uint32"), **keywords)


def test_the_limit_of_a_group_is_named(where):
    limit = where.max_total_threads
    positions(where, (limit,), n=limit, group=limit)
    with pytest.raises(ValueError, match=rf"a group of \({limit}, 2, 1\) is not between 1 and {limit} threads"):
        where(md.zeros((4, 4), "uint32"), n=4, group=(limit, 2))


def test_no_threads_launch_nothing_but_the_arguments_are_checked(fill):
    x = md.ones(3)
    for keywords in ({"n": 0}, {"threads": (3, 0)}, {"groups": (0, 2), "group": 3}):
        fill(x, 5.0, **keywords)
    assert x.tolist() == [1, 1, 1]
    assert fill.time(x, 5.0, n=0) == 0.0
    with pytest.raises(TypeError, match="missing 'value'"):
        fill(x, n=0)


def test_a_kernel_says_what_it_is(fill):
    assert (fill.name, fill.device) == ("fill", md.default_device())
    assert repr(fill) == "<metal_dlpack.Kernel fill(x, value) on metal:0>"
    assert fill.thread_execution_width == 32
    assert fill.max_total_threads >= 256
    assert fill.threadgroup_memory == 0
    with pytest.raises(TypeError, match=r"call kernel\(source\)"):
        md.Kernel()
    with pytest.raises(TypeError, match="`arguments`"):
        md.Argument()


def test_it_takes_memory_for_its_own_variables():
    source = METAL + "kernel void sum(device float *x) { threadgroup float all[100]; all[0] = x[0]; x[1] = all[0]; }"
    assert md.kernel(source).threadgroup_memory >= 400


def test_a_call_returns_none_and_time_gives_seconds(fill):
    x = md.zeros(1 << 20)
    assert fill(x, 1.0, n=x.size) is None
    md.default_device().synchronize()
    begin = time.perf_counter()
    seconds = fill.time(x, 2.0, n=x.size)
    assert 0 < seconds < time.perf_counter() - begin
    assert (x[0].item(), x[-1].item()) == (2, 2)


# ---- streams ----


@pytest.mark.needs_softmetal
def test_the_stream_is_the_one_that_is_named_else_the_current_one_else_the_devices(fill):
    x, named, current, default = md.zeros(3), md.Stream(), md.Stream(), md.default_device().default_stream

    def queue_of_the_last_write():
        return x.__metal_stream__()[1]

    with held(named, current, default):
        with current:
            fill(x, 1.0, n=3, stream=named)
            assert queue_of_the_last_write() == named.handle
            fill(x, 2.0, n=3)
            assert queue_of_the_last_write() == current.handle
        fill(x, 3.0, n=3)
        assert queue_of_the_last_write() == default.handle
        fill(x, 4.0, n=3, stream=named.handle)
        assert queue_of_the_last_write() == named.handle
    assert x.tolist() == [4, 4, 4]


@pytest.mark.needs_softmetal
def test_a_call_lets_go_of_its_stream(fill):
    x = md.zeros(3)
    before = softmetal.live_objects("MTLCommandQueue")
    for _ in range(5):
        fill(x, 1.0, n=3, stream=md.Stream())
    md.default_device().synchronize()
    until(lambda: softmetal.live_objects("MTLCommandQueue") <= before)


def test_many_threads_call_one_kernel(fill):
    arrays = [md.zeros(100) for _ in range(4)]

    def work(number):
        for value in range(50):
            fill(arrays[number], float(value + number), n=100)

    in_threads(4, work)
    for number, array in enumerate(arrays):
        assert set(array.tolist()) == {49.0 + number}


MANY_THREADS = """
import os, resource, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import metal_dlpack as md
source = "kernel void k(device float *p, uint i [[thread_position_in_grid]]) { p[i] += 1; }"
kernel, stream, launches = md.kernel("#include <metal_stdlib>\\nusing namespace metal;\\n" + source), md.Stream(), 300

def work():
    x = md.zeros(64)
    for _ in range(launches):
        kernel(x, n=64, stream=stream)
    stream.synchronize()
    assert set(x.tolist()) == {launches}

def cost(count):
    used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    before, threads = used(), [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (used() - before) / count

cost(8)
print(min(cost(96) / cost(8) for _ in range(3)))
"""


@pytest.mark.long
@pytest.mark.needs_softmetal
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="asks for one processor")
def test_more_threads_than_a_stream_has_places_cost_no_more_each():
    """The CPU time of 96 threads on one processor, beside that of eight: who waits is woken for its own work alone."""
    assert (
        float(output_of(MANY_THREADS, SOFTMETAL_KERNEL_THREADS="1")) < 4
    )  # 1.5 to 3; 7 to 30 where each change wakes all


def test_what_a_kernel_uses_lives_until_it_is_done(fill, live_buffers):
    out = md.zeros(3)
    copy = md.kernel(
        METAL
        + "kernel void copy(device const float *x, device float *y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }"
    )
    for _ in range(20):
        copy(md.full(3, 7.0), out, n=3)
    assert out.tolist() == [7, 7, 7]


def test_arguments_are_not_kept_by_a_call_that_is_refused(fill):
    x = md.zeros(3)
    before = sys.getrefcount(x)
    for _ in range(10):
        with pytest.raises(TypeError):
            fill(x, "no", n=3)
        fill(x, 1.0, n=3)
    md.default_device().synchronize()
    assert sys.getrefcount(x) == before


def test_the_doc_names_every_keyword():
    for name in ("n", "threads", "groups", "group", "stream", "threadgroup_memory", "strides", "resources"):
        assert re.search(rf"^{name}\b|, {name} : ", md.Kernel.__doc__, re.MULTILINE), name


TWO_DEVICES = """
import metal_dlpack as md
source = "kernel void one(device float *x, uint i [[thread_position_in_grid]]) { x[i] = 1; }"
first, second = md.devices()
a, b = md.zeros(3), md.zeros(3, device=second)
for device, mine, other in ((first, a, b), (second, b, a)):
    kernel = md.kernel("#include <metal_stdlib>\\n" + source, device=device)
    assert kernel.device == device
    kernel(mine, n=3)
    assert mine.tolist() == [1, 1, 1]
    for arguments, keywords in (((other,), {}), ((mine,), {"stream": md.Stream(other.device)}), ((mine,), {"resources": [other]})):
        try:
            kernel(*arguments, n=3, **keywords)
        except ValueError as error:
            print(error)
"""


@pytest.mark.needs_softmetal
def test_the_arguments_and_the_stream_are_of_the_kernels_device():
    assert output_of(TWO_DEVICES, SOFTMETAL_DEVICES="unified,unified").splitlines() == [
        "one: argument 'x': the array is on metal:1, the kernel on metal:0; copy it there with to_device('metal:0').",
        "one: the stream is on metal:1, the kernel on metal:0; give a stream of its device.",
        "one: resources[0] is on metal:1, the kernel on metal:0; copy it there with to_device('metal:0').",
        "one: argument 'x': the array is on metal:0, the kernel on metal:1; copy it there with to_device('metal:1').",
        "one: the stream is on metal:0, the kernel on metal:1; give a stream of its device.",
        "one: resources[0] is on metal:0, the kernel on metal:1; copy it there with to_device('metal:1').",
    ]
