"""Whether Metal's times are what timelines take them for: each test prints them."""

import pytest

import metal_dlpack as md

pytestmark = pytest.mark.mac
SOURCE = """
#include <metal_stdlib>
kernel void spin(device float *x, constant uint &turns, uint i [[thread_position_in_grid]])
{
    float sum = x[i];
    for (uint turn = 0; turn < turns; turn++) {
        sum = metal::fma(sum, 1.000001f, 0.5f);
    }
    x[i] = sum;
}
"""
TURNS = 20_000


@pytest.mark.needs_kernels
def test_a_pieces_times_increase_on_one_clock():
    """Submitted by our clock; scheduled, started and ended by Metal's clock; seen to be done by our clock."""
    spin, a, s = md.kernel(SOURCE), md.ones(1024), md.Stream(label="s")
    with md.timeline() as t:
        for _ in range(20):
            spin(a, TURNS, n=a.size, stream=s)
            s.synchronize()
    kernels = [work for work in t.work if work.kind == "kernel"]
    waits = [wait for wait in t.waits if wait.waiter is None]
    for work in kernels:
        print(f"{work.submitted:.6f} {work.scheduled:.6f} {work.started:.6f} {work.ended:.6f}")
        assert work.submitted <= work.started < work.ended <= t.seconds
        assert work.submitted <= work.scheduled <= work.ended
    assert all(wait.ended >= wait.awaited.ended for wait in waits if wait.awaited is not None)


@pytest.mark.needs_kernels
def test_two_queues_overlap():
    """For a person to judge: two kernels of two queues, of few threads each, run at the same time."""
    spin, a, b = md.kernel(SOURCE), md.ones(32), md.ones(32)
    one, two = md.Stream(label="one"), md.Stream(label="two")
    with md.timeline() as t:
        spin(a, 20 * TURNS, n=a.size, stream=one)
        spin(b, 20 * TURNS, n=b.size, stream=two)
        one.synchronize()
        two.synchronize()
    first, second = (work for work in t.work if work.kind == "kernel")
    shared = min(first.ended, second.ended) - max(first.started, second.started)
    print(f"{first.seconds * 1e3:.3f} ms and {second.seconds * 1e3:.3f} ms, {shared * 1e3:.3f} ms of them together")
    print(t)
    assert not t.waits or all(wait.waiter is None for wait in t.waits)


@pytest.mark.needs_kernels
def test_a_kernels_time_is_that_of_kernel_time():
    """`Kernel.time` and the timeline tell the same within a tenth: both read one command buffer's times."""
    spin, a = md.kernel(SOURCE), md.ones(1 << 16)
    spin(a, TURNS, n=a.size)
    md.default_device().synchronize()
    with md.timeline() as t:
        timed = spin.time(a, TURNS, n=a.size)
    seen = [work.seconds for work in t.work if work.kind == "kernel"]
    print(f"Kernel.time {timed}, timeline {seen}")
    assert seen == [pytest.approx(timed, rel=0.1)]
