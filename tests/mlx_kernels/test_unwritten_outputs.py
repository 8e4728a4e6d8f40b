"""Under the checker: outputs that a launch leaves unwritten, and reads of an item that nobody wrote."""

import contextlib

import pytest

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal
from softmetal import report

mark = pytest.mark
pytestmark = [mark.needs_softmetal, mark.needs_kernels, mark.needs_mlx, mark.needs_no_sanitizer]

HERE = "uint i = thread_position_in_grid.x;\n"
DOUBLE = HERE + "out[i] = a[i] * 2;"
READ = r"a thread reads byte {} of buffer 1 \(out\), which nobody has written"


def left(count, first, last, items=300):
    return rf"leaves {count} of {items} items of buffer 1 \(out\) unwritten, from item {first} to item {last}"


@pytest.fixture(autouse=True)
def checked(settings):
    settings(kernel_check=1)


@pytest.fixture
def is_found(request):
    """A context in which the checker finds what the words say."""

    @contextlib.contextmanager
    def found(words):
        with pytest.raises(md.MetalError, match=words):
            yield
        request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them

    return found


WRONG = {
    "a grid in threadgroups": (DOUBLE, 2, left(298, 2, 299)),
    "a grid of whole blocks": (DOUBLE, 160, left(140, 160, 299)),
    "every other item": (HERE + "if (i % 2 == 0) out[i] = a[i];", 300, left(150, 1, 299)),
    "one item in the middle": (HERE + "if (i != 100) out[i] = a[i];", 300, left(1, 100, 100)),
    "a part of each item": (HERE + "((device ushort *)out)[2 * i] = 1;", 300, left(300, 0, 299)),
    "nothing": ("if (false) out[0] = a[0];", 300, left(300, 0, 299)),
    "a sum": (HERE + "out[i] += a[i];", 300, READ.format(0)),
    "its own item": (HERE + "out[i] = i == 7 ? out[i] : a[i];", 300, READ.format(28)),
    "a read before the own write": (HERE + "float v = out[299 - i]; out[299 - i] = v + a[i];", 300, READ.format(1196)),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.some(3)
def test_what_nobody_wrote_is_found(mx, run, is_found, name):
    source, grid, words = WRONG[name]
    with is_found(words):
        run(source, [mx.zeros((300,))], (300,), grid=grid, threadgroup=128)


def test_an_atomic_sum_wants_a_first_value(mx, run, is_found):
    source = "atomic_fetch_add_explicit(&out[0], a[0], memory_order_relaxed);"
    given = {"grid": 300, "threadgroup": 64, "made": {"atomic_outputs": True}}
    with is_found(READ.format(0)):
        run(source, [mx.ones((300,))], (1,), **given)
    assert run(source, [mx.ones((300,))], (1,), init_value=0, **given)[0].item() == 300


RIGHT = {
    "once": DOUBLE,
    "read behind the own write": HERE + "out[i] = a[i]; out[i] += 1; out[i] = out[i] * 2;",
    "read by all once one has written": HERE
    + "out[i] = a[i]; threadgroup_barrier(mem_flags::mem_device); float v = out[i / 128 * 128];"
    + "threadgroup_barrier(mem_flags::mem_device); out[i] = v;",
    "backwards": HERE + "out[299 - i] = a[i]; if (out[299 - i] > 5) out[299 - i] = 1;",
    "in many places, so that some wait and some do not": HERE
    + "out[i] = a[i] + a[(i * 7) % 300] + a[(i + 1) % 300] + a[(i + 2) % 300] + a[(i + 3) % 300] + a[(i + 4) % 300]"
    + " + a[(i + 5) % 300] + a[(i + 6) % 300] + a[299 - i]; out[i] += a[i]; out[i] += a[0];",
    "by one thread": HERE + "if (i == 0) for (uint k = 0; k < 300; k++) { out[k] = k == 0 ? 0 : out[k - 1] + a[k]; }",
    "by bytes": HERE + "for (uint k = 0; k < 4; k++) ((device uchar *)out)[4 * i + k] = k;",
    "by vectors": HERE + "if (i < 75) ((device float4 *)out)[i] = float4(a[i]);",
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.some(2)
def test_what_is_written_is_silent(mx, run, name):
    run(RIGHT[name], [mx.zeros((300,))], (300,), grid=300, threadgroup=128)


def test_init_value_is_a_value(mx, run):
    run(DOUBLE, [mx.zeros((300,))], (300,), grid=2, threadgroup=2, init_value=0)


COUNTS_ON_IT = "uint t = thread_position_in_threadgroup.x; out[threadgroup_position_in_grid.y * 24 + t] = a[t];"
CUTS = {
    "it is cut": (COUNTS_ON_IT, (24, 4, 1), (256, 1, 1), 1),
    "it fits": (COUNTS_ON_IT, (24, 4, 1), (24, 1, 1), 0),
    "nobody looks": (
        "out[thread_position_in_grid.y * 24 + thread_position_in_grid.x] = a[0];",
        (24, 4, 1),
        (256, 1, 1),
        0,
    ),
}


@mark.parametrize("name", CUTS)
@pytest.mark.some(1)
def test_a_threadgroup_that_mlx_cuts_is_advice_where_the_kernel_counts_on_it(mx, run, name):
    source, grid, threadgroup, count = CUTS[name]
    report.start()
    try:
        for _ in range(2):
            run(source, [mx.zeros((24,))], (4, 24), grid=grid, threadgroup=threadgroup)
    finally:
        found = report.end()["findings"]
    assert [(one["kind"], one["launches"]) for one in found] == [("clipped-threadgroup", 2)] * count
    assert all("(256,1,1) to (24,1,1)" in one["text"] for one in found)
