"""Kernels in order with whatever is in flight: copies, fills, other kernels, streams, the CPU, other frameworks."""

import sys

import numpy as np
import pytest
import stream_programs
from held_work import held

import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

#: Integers, so that every order of roundings is one.
SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void fill(device int *x, constant int &value, uint i [[thread_position_in_grid]]) { x[i] = value; }
kernel void add(device const int *x, device const int *y, device int *out, uint i [[thread_position_in_grid]])
{
    out[i] = x[i] + y[i];
}
kernel void advance(device int *x, constant int &value, uint i [[thread_position_in_grid]]) { x[i] = 3 * x[i] + value; }
kernel void reverse(device int *x, threadgroup int *all [[threadgroup(0)]], uint i [[thread_position_in_threadgroup]],
                    uint count [[threads_per_threadgroup]])
{
    all[i] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x[i] = all[count - 1 - i];
}
"""


@pytest.fixture(scope="module")
def library():
    made = md.Library(SOURCE)
    for name in made.kernels:  # compiled here, and not while something is slow
        made[name]
    return made


def numbers(count=8, value=0, **keywords):
    return md.full(count, value, "int32", **keywords)


def test_a_look_at_the_bytes_waits_for_the_kernel(library, slow):
    x = numbers()
    with held(md.current_stream()):
        library["fill"](x, 7, n=8)
    assert x.tolist() == [7] * 8


def test_a_write_waits_for_a_kernel_that_reads(library, slow):
    x, y, out = numbers(value=1), numbers(value=2), numbers()
    library["add"](x, y, out, n=8)
    x[...] = 100
    assert out.tolist() == [3] * 8


def test_a_kernel_that_only_reads_lets_the_cpu_read(library):
    x, y, out = numbers(value=1), numbers(value=2), numbers()
    with held(md.current_stream()):
        library["add"](x, y, out, n=8)
        assert (x.as_readonly().tolist(), y.tolist()) == ([1] * 8, [2] * 8)


def test_kernels_on_two_streams_hand_over_on_the_gpu(library, slow):
    x, y, s, t = numbers(), numbers(), md.Stream(), md.Stream()
    with held(s):
        library["fill"](x, 5, n=8, stream=s)
        library["add"](x, x, y, n=8, stream=t)
        y2 = y.copy(stream=s)
        with t:
            library["advance"](y2, 1, n=8)
    assert (y.tolist(), y2.tolist()) == ([10] * 8, [31] * 8)


def test_events_and_synchronisation_know_kernels(library, slow):
    x, stream = numbers(), md.Stream()
    view = np.asarray(x)
    library["fill"](x, 3, n=8, stream=stream)
    stream.record().wait()
    assert view.tolist() == [3] * 8
    assert stream.query()
    library["fill"](x, 4, n=8)
    md.default_device().synchronize()
    assert view.tolist() == [4] * 8
    assert x.__metal_stream__()[3] == 0


# ---- failures ----


@pytest.mark.parametrize("what", ["commandBuffer", "encoder"])
def test_a_launch_for_which_metal_has_no_command_is_an_error(library, settings, what, live_buffers):
    x = numbers(value=1)
    settings(fail=f"{what}@1+")
    with pytest.raises(md.MetalError, match="fill: Metal gave no command buffer or encoder"):
        library["fill"](x, 3, n=8)
    settings(fail=None)
    assert x.tolist() == [1] * 8


def test_time_tells_of_a_failure(library, settings):
    settings(fail="commit@1+=8")
    with pytest.raises(md.MetalError, match=r"fill: a command buffer failed: .*OutOfMemory, 8"):
        library["fill"].time(numbers(), 3, n=8)


# ---- other frameworks ----


class Tensor:
    """A tensor of a framework with a queue of its own, which cannot wait on the GPU for others."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(stream=-1)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class MomentTensor(Tensor):
    """... which says what it has to do first."""

    def __metal_stream__(self):
        return self.stream.__metal_stream__()


def test_the_cpu_waits_after_a_kernel_on_a_tensor_whose_framework_cannot(library, slow):
    x = numbers()
    view = np.asarray(x)
    library["fill"](Tensor(x), 7, n=8)
    assert view.tolist() == [7] * 8, "the framework could look now"


def test_where_a_stream_is_named_nobody_waits(library, slow):
    x, stream = numbers(), md.Stream()
    with held(stream):
        library["fill"](Tensor(x), 7, n=8, stream=stream)
        with stream:
            library["advance"](Tensor(x), 1, n=8)
    stream.synchronize()
    assert x.tolist() == [22] * 8


def test_a_registered_hook_runs_before_the_kernel(library):
    x, said = numbers(), []

    def wait(tensor):
        said.append(tensor)
        x.fill(5)

    md.register_sync(Tensor, wait)
    try:
        tensor = Tensor(x)
        library["advance"](tensor, 1, n=8)
        assert said == [tensor]
        assert x.tolist() == [16] * 8
    finally:
        md.register_sync(Tensor, None)


def test_a_tensor_that_names_its_moment_is_waited_for_on_the_gpu(library, slow):
    x, out, theirs = numbers(), numbers(), md.Stream()
    tensor = MomentTensor(x)
    tensor.stream = theirs
    with held(theirs):
        x.fill(6, stream=theirs)
        library["add"](tensor, x, out, n=8, stream=md.Stream())
    assert out.tolist() == [12] * 8


# ---- anything in any order ----


class KernelProgram(stream_programs.Program):
    """Copies, fills and looks as ever; and kernels among them."""

    library = None

    def add_array(self):
        count = self.random.choice((8, 64, 256))
        self.arrays.append(md.zeros(count, "int32", storage=self.random.choice(stream_programs.MODES)))
        self.wanted.append(np.zeros(count, "int32"))

    def launch(self, name, *arguments, **keywords):
        stream = self.pick_stream()
        if stream is not None and self.random.random() < 0.5:
            with stream:
                self.library[name](*arguments, **keywords)
        else:
            self.library[name](*arguments, stream=stream, **keywords)

    def run_fill(self):
        array, wanted = self.pick()
        start = self.random.randrange(array.size)
        value = self.random.randint(-100, 100)
        self.launch("fill", array[start:], value, n=array.size - start)
        wanted[start:] = value

    def run_step(self):
        array, wanted = self.pick()
        value = self.random.randint(-9, 9)
        count = self.random.randint(0, array.size)
        self.launch("advance", array, value, n=count, group=self.random.choice((None, 4, 32)))
        wanted[:count] = 3 * wanted[:count] + value

    def run_add(self):
        picked = [self.pick() for _ in range(3)]
        count = min(array.size for array, _ in picked)
        (x, x_wanted), (y, y_wanted), (out, out_wanted) = picked
        self.launch("add", x, y, out, threads=count)
        out_wanted[:count] = x_wanted[:count] + y_wanted[:count]

    def run_reverse(self):
        array, wanted = self.pick()
        self.launch("reverse", array, groups=1, group=array.size, threadgroup_memory={"all": array.nbytes})
        wanted[...] = wanted[::-1].copy()

    def run_on_tensor(self):
        array, wanted = self.pick()
        self.launch("fill", Tensor(array), 4, n=array.size)
        wanted[...] = 4

    def take_steps(self):
        kernels = [self.run_fill, self.run_step, self.run_add, self.run_reverse, self.run_on_tensor]
        others = [self.copy] * 3 + [self.fill, self.upload, self.write, self.look, self.copied, self.wait, self.renew]
        for _ in range(self.steps):
            yield self.random.choice(kernels * 3 + others)


@pytest.mark.filterwarnings("ignore:overflow")
def test_random_programs_come_to_what_numpy_comes_to(library, monkeypatch):
    monkeypatch.setattr(KernelProgram, "library", library)
    monkeypatch.setattr(stream_programs, "Program", KernelProgram)
    before = softmetal.reports()
    for number in range(150):
        stream_programs.run(number)
        assert softmetal.reports() == before, (number, softmetal.last_report())


def main():
    """Programs FIRST, FIRST + 1, ...: python tests/kernels/test_kernel_order.py [COUNT] [FIRST]"""
    KernelProgram.library = md.Library(SOURCE)
    stream_programs.Program = KernelProgram
    stream_programs.main()


if __name__ == "__main__":
    sys.exit(main())
