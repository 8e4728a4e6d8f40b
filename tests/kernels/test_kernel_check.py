"""The checker of kernels: what it says, stops and leaves alone; defects of all kinds lie in tests/seeded."""

import re
import time
from pathlib import Path

import numpy as np
import pytest
from children import run_child
from eventually import until
from kernel_images import quickly
from machine import SANITIZER

import _metal_dlpack_pytest as plugin
import metal_dlpack as md
import softmetal

pytestmark = [pytest.mark.needs_kernels, pytest.mark.needs_softmetal]

METAL = "#include <metal_stdlib>\nusing namespace metal;\n"
#: Two threadgroups of two SIMD-groups; `a` and `b` have a float for each thread.
SIGNATURE = """
kernel void f(device const float *a, device float *b, uint i [[thread_position_in_grid]],
              uint t [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
              uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]])
"""
COUNT, GROUP = 128, 64
LAUNCH = {"threads": COUNT, "group": GROUP}
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
FENCE = "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);"


def source_of(body, signature=SIGNATURE, before=METAL):
    return f"{before}{signature}{{\n{body}\n}}\n"


def outside(verb, where, memory, nbytes):
    return f"{verb} outside its memory: bytes? {where} of {memory}, which has {nbytes} bytes"


@pytest.fixture(autouse=True)
def settings(metal_settings):
    metal_settings(kernel_check=1, validation_mode="log", kernel_timeout=5)
    return metal_settings


@pytest.fixture
def reports_of(request):
    """What the checker says of a launch, or None; the launch fails exactly if it says something."""

    def run(source, arrays=None, name="f", **launch):
        arrays = arrays or ones()
        before = softmetal.reports("kernel")
        md.kernel(source, name)(*arrays, **launch or LAUNCH)
        try:
            for array in arrays:
                np.asarray(array)
        except md.MetalError as error:
            assert softmetal.reports("kernel") > before
            request.node.stash[plugin._reports_before] = softmetal.reports()  # wanted: the plugin forgives them
            return str(error), softmetal.last_report()
        assert softmetal.reports("kernel") == before
        return None

    return run


def ones():
    return [md.full((COUNT,), 1, "float32") for _ in range(2)]


#: Statements that are right with the first number, and wrong with the second: (statement, right, wrong).
ALIKE = {
    "arrays": ("x[{}] += a[i];", "t % 8", "t"),
    "divisions": ("n += 100 / ({});", "t + 1", "t / 70"),  # an x86-64 faults by itself, an arm64 goes on
    "arrays by pointers": ("p[{}] += a[i];", "t % 8", "t"),
    "vectors": ("v[{}] += a[i];", "t % 4", "t"),
    "shifts": ("n += n << ({});", "t % 32", "t % 32 + 8"),
    "shifts of vectors": ("n += (uint2(n) << ({})).y;", "t % 32", "t % 32 + 8"),
    "reads of vectors": ("v += *(device const float4 *)(a + {});", "t / 4 * 4", "t / 4 * 4 + 1"),
    "reads": ("v.x += a[{}];", "i", "i + 200"),
    "writes": ("b[{}] = 1;", "i", "i + 200"),
    "copies": (
        "*(threadgroup float4 *)(s + 4 * t) = *(device const float4 *)(a + {});",
        "t / 4 * 4",
        "t / 4 * 4 + 400",
    ),
    "SIMD-groups' barriers": ("if ({}) simdgroup_barrier(mem_flags::mem_none);", "t < 70", "t % 3"),
}


@pytest.mark.parametrize("nth", quickly(1, of=range(3)))
@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.some(4)
def test_of_statements_that_look_alike_the_wrong_one_is_named(name, nth, reports_of):
    """The compiler makes one of what two branches do alike, and then knows neither's line."""
    statement, right, wrong = ALIKE[name]
    each = [statement.format(wrong if nth == k else right) for k in range(3)]
    source = source_of(
        "threadgroup float s[256];\nfloat x[8] = {1}; thread float *p = x; float4 v = 1; uint n = i;\n"
        f"if (simd == 1) {{\n  {each[0]}\n}} else if (a[i] > 0) {{\n  {each[1]}\n}}\n{each[2]}\n"
        "b[i] += x[t % 8] + p[t % 7] + v.x + v.w + n;\nif (n == 0) b[i] = s[4 * t];"
    )
    lines = [n for n, line in enumerate(source.splitlines(), 1) if line.strip() in each]
    _, text = reports_of(source)
    found = re.search(r": program_source:(\d+):", text)
    assert int(found[1]) == lines[nth], text


# ---- what would take Python along ----


@pytest.mark.skipif(
    SANITIZER == "thread", reason="ThreadSanitizer holds a signal back until the next call of the C library"
)
@pytest.mark.parametrize(
    "body",
    [
        "volatile thread uint go = 1;\nwhile (go)\n  ; /*1*/\nb[i] = 1;",
        pytest.param("while (a[i] == 1)\n  b[i] += 1; /*1*/", marks=pytest.mark.long),
        f"while (true)\n  {BARRIER} /*1*/",
    ],
    ids=["without memory", "with memory", "at a barrier"],
)
def test_a_kernel_that_hangs_is_stopped(body, reports_of, settings):
    settings(kernel_timeout=1)
    _, text = reports_of(source_of(body))
    assert "a thread still runs after 1 s (SOFTMETAL_KERNEL_TIMEOUT): program_source:" in text
    assert reports_of(source_of("b[i] = a[i];")) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("((device uint *)a)[1l << 40] = 1;", "writes outside its memory"),
        (
            "float x[4] = {};\nx[t % 4] = a[i];\nthread float *p = x;\nb[i] = p[(1l << 33) * t];",
            "a thread passes the end of an array",
        ),
        ("float x[4] = {};\nthread float *volatile p = x;\np[-100000] = b[i];", "writes outside its memory"),
    ],
    ids=["far past a buffer", "far past an array", "by a pointer of which nothing is known"],
)
@pytest.mark.some(1)
def test_a_wild_access_does_not_happen(body, words, reports_of):
    _, text = reports_of(source_of(body))
    assert words in text


@pytest.mark.parametrize("count", quickly(70_000, of=[70_000, 1_000_000]))
@pytest.mark.parametrize("barrier", ["", BARRIER])
@pytest.mark.some(1)
def test_too_large_an_array_does_not_leave_the_stack(count, barrier, reports_of):
    """However large it is, the first byte that is touched lies in the guard below the stack."""
    body = f"float x[{count}];\n{barrier}\nfor (uint k = 0; k < {count}; k += 9) x[k] = a[i];\nb[i] = x[9 * t];"
    _, text = reports_of(source_of(body))
    assert "f: a thread's variables need more than the 262144 bytes of stack that it has here: " in text
    assert ", thread (0,0,0) of threadgroup (0,0,0)" in text


@pytest.mark.parametrize(("body", "verb"), [("*out = x[0];", "reads"), ("x[0] = 1; *out = 1;", "writes")])
def test_an_array_without_items_has_nothing_to_touch(body, verb, reports_of):
    source = f"{METAL}kernel void f(device float *x, device float *out) {{ {body} }}"
    text, _ = reports_of(source, [md.zeros(0), md.zeros(1)], n=1)
    assert f"f: a thread {verb} outside its memory: bytes 0 to 3 of buffer 0 (x), which has 0 bytes" in text


@pytest.mark.parametrize("key", [np.s_[::-1], np.s_[::2], np.s_[5:2:-1], np.s_[6::-3]])
def test_a_view_in_any_strides_has_the_bytes_between_its_items_and_no_more(key, reports_of):
    source = METAL + "kernel void f(device float *x, constant int &at) { x[at] += 1; }"
    items = np.arange(8)[key]
    low, high = items.min() - items[0], items.max() - items[0]
    for at in range(low - 1, high + 2):
        found = reports_of(source, [md.zeros(10)[1:9][key], int(at)], n=1, strides="ignore")
        place = f"{4 * (at - low)} to {4 * (at - low) + 3}"
        words = outside("reads", place, r"buffer 0 \(x\)", 4 * (high - low + 1))
        assert (found is None) == (low <= at <= high)
        assert found is None or re.search(words, found[0])


def test_a_number_has_the_bytes_of_its_type_and_no_more(reports_of):
    source = METAL + "kernel void f(constant float &a, device float *b) { b[0] = (&a)[1]; }"
    message, _ = reports_of(source, [3.0, md.zeros(1)], n=1)
    assert re.search(outside("reads", "4 to 7", r"buffer 0 \(a\)", 4), message)


def caught_signals() -> str:
    """As the system has them: Python's table knows of its own handlers only."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigCgt")]
    return line


def test_handlers_of_signals_are_given_back(reports_of):
    import signal

    seen = []
    numbers = [signal.SIGSEGV, signal.SIGILL, signal.SIGFPE, signal.SIGBUS, signal.SIGTRAP, signal.SIGURG]
    previous = signal.signal(signal.SIGURG, lambda *_: seen.append(1))
    before = [signal.getsignal(number) for number in numbers], caught_signals()
    try:
        assert reports_of(source_of("b[i] = 100 / t;")) is not None
        assert ([signal.getsignal(number) for number in numbers], caught_signals()) == before
        signal.raise_signal(signal.SIGURG)
        assert seen == [1]
    finally:
        signal.signal(signal.SIGURG, previous)


@pytest.mark.skipif(
    SANITIZER == "thread", reason="ThreadSanitizer holds a signal back until the next call of the C library"
)
def test_a_signal_of_the_programs_stops_no_kernel(reports_of, settings):
    """The guard's timer sends SIGURG; before the time is up, one that comes is somebody else's, and handed on."""
    import ctypes
    import os
    import signal
    import threading

    settings(kernel_timeout=600)  # however busy the machine is
    libc = ctypes.CDLL(None)
    seen, read, is_over = [], [], threading.Event()
    come, go = os.pipe()
    gate = md.zeros((COUNT,), "uint32")
    may_end, has_begun = np.asarray(gate)[:1], np.asarray(gate)[1:2]
    body = """atomic_store_explicit(b + 1, 1u, memory_order_relaxed);
while (atomic_load_explicit(b, memory_order_relaxed) == 0)
  ;"""
    source = source_of(body, SIGNATURE.replace("float *b", "atomic_uint *b"))

    def send_to_each_thread():
        while not has_begun[0] and not is_over.wait(0.001):
            pass
        for _ in range(100):
            for thread in os.listdir("/proc/self/task"):
                libc.tgkill(os.getpid(), int(thread), signal.SIGURG)
            is_over.wait(0.001)
        may_end[0] = 1

    def is_coming(thread):
        with open(f"/proc/self/task/{thread}/status") as file:
            masks = dict(line.split(":\t") for line in file if line.startswith(("SigPnd", "SigBlk")))
        return int(masks["SigPnd"], 16) & ~int(masks["SigBlk"], 16) & 1 << signal.SIGURG - 1

    def wait_in_the_system():
        read.append(libc.read(come, ctypes.create_string_buffer(1), 1))

    previous = signal.signal(signal.SIGURG, lambda *_: seen.append(1))
    signal.siginterrupt(signal.SIGURG, False)
    threads = [threading.Thread(target=run) for run in (wait_in_the_system, send_to_each_thread)]
    for thread in threads:
        thread.start()
    try:
        assert reports_of(source, [md.zeros(COUNT), gate]) is None
    finally:
        is_over.set()
        os.write(go, b"!")
        for thread in threads:
            thread.join()
        os.close(come)
        os.close(go)
        until(lambda: not any(map(is_coming, os.listdir("/proc/self/task"))))
        time.sleep(0.01)  # Python complains of a signal that comes while its handler goes
        signal.signal(signal.SIGURG, previous)
    assert seen
    assert read == [1]  # no signal has ended the call


# ---- texts ----


@pytest.mark.parametrize("folder", ["folder/", "dossié/"])
def test_a_report_is_whole_however_long_the_names_are(reports_of, folder):
    path, kernel, argument = folder * 60 + "file.metal", "kernel_" * 10, "argument_" * 10
    body = f"""#line 7 "{path}"
kernel void {kernel}(device float *{argument}, uint i [[thread_position_in_grid]]) {{
    {argument}[i / 2] = i;
}}"""
    text, _ = reports_of(METAL + body, [md.zeros((COUNT,), "float32")], name=kernel, threads=COUNT, group=GROUP)
    place = r"\.\.\.[\w/é]*/file\.metal:8:\d+, thread \({},0,0\) of threadgroup \(0,0,0\)"
    found = re.search(rf"{kernel}: (.*): {place.format(0)}; {place.format(1)}\.$", text)
    assert found, text
    assert found[1] == f"two threads write byte 0 of buffer 0 ({argument}) with nothing between them"


# ---- launches ----


def test_launches_do_not_race_with_each_other(reports_of):
    arrays = ones()
    for _ in range(3):
        assert reports_of(source_of(f"b[(i * 7) % {COUNT}] = a[i] + 1;"), arrays) is None
    assert np.asarray(arrays[1]).tolist() == [2] * COUNT


def test_launches_of_two_queues_are_checked_at_the_same_time():
    kernel = md.kernel(source_of("for (uint k = 0; k < 100; k++) b[i] += a[i];"))
    streams = [md.Stream() for _ in range(4)]
    arrays = [(md.full((COUNT,), 1, "float32"), md.zeros((COUNT,), "float32")) for _ in streams]
    for _ in range(5):
        for stream, (a, b) in zip(streams, arrays, strict=True):
            kernel(a, b, **LAUNCH, stream=stream)
    for _, b in arrays:
        assert np.asarray(b).tolist() == [500] * COUNT


def test_a_fence_orders_threadgroups(reports_of):
    """The last threadgroup to come adds up what the others have left."""
    body = f"""threadgroup bool is_last;
if (t == 0) {{
  b[1 + g] = a[i];
  fence();
  is_last = atomic_fetch_add_explicit((device atomic_uint *)b, 1u, memory_order_relaxed) == 1;
}}
{BARRIER}
if (is_last && t == 0) {{
  fence();
  b[3] = b[1] + b[2];
}}"""
    a, b = md.full((COUNT,), 2, "float32"), md.zeros((COUNT,), "float32")
    assert reports_of(source_of(body.replace("fence();", FENCE)), [a, b]) is None
    assert np.asarray(b)[3] == 4
    assert reports_of(source_of(body.replace("fence();", "")), [a, md.zeros((COUNT,), "float32")]) is not None


@pytest.mark.parametrize("missing", [None, 0, 1])
@pytest.mark.some(1)
def test_after_a_fence_the_next_barrier_orders_device_memory_and_no_later_one(reports_of, missing):
    first, second = ("" if missing == nth else FENCE for nth in range(2))
    body = f"""b[i] = a[i];
{first}
{BARRIER}
float x = b[i ^ 32];
{BARRIER}
b[i] = x;
{second}
{BARRIER}
x = b[i ^ 32];
{BARRIER}
b[i] = x;"""
    assert (reports_of(source_of(body)) is None) == (missing is None)


@pytest.mark.long
def test_every_threadgroup_variable_that_a_kernel_may_have_is_known(reports_of):
    """placement.c gives 128 of them a place."""
    names = [f"s{number}" for number in range(128)]
    variables = "".join(f"threadgroup float {name}[1];\n" for name in names)
    writes = "".join(f"{name}[0] = a[i];\n" for name in names)
    total = " + ".join(f"{name}[0]" for name in names)
    body = f"{variables}if (t == 0) {{\n{writes}}}\n{BARRIER}\nb[i] = {total};"
    assert reports_of(source_of(body)) is None


def test_all_may_leave_the_same_result(reports_of):
    """One instruction, one threadgroup, one value: how kernels leave a sum that every thread has."""
    body = f"threadgroup float s;\ns = 3;\n{BARRIER}\nb[g] = s;"
    arrays = ones()
    assert reports_of(source_of(body), arrays) is None
    assert np.asarray(arrays[1])[:3].tolist() == [3, 3, 1]
    assert reports_of(source_of(body.replace("s = 3;", "s = t < 63 ? 3 : 4;"))) is not None


@pytest.mark.parametrize("body", ["s[t] = a[i];\nb[i] = s[63 - t];", "s[t % 2] = 1;\ns[1 - t % 2] = 2;"])
def test_a_race_that_is_met_from_both_sides_is_reported_once(body, reports_of):
    before = softmetal.reports("kernel")
    reports_of(source_of(f"threadgroup float s[64];\n{body}"))
    assert softmetal.reports("kernel") == before + 1


@pytest.mark.long
def test_what_stops_a_launch_is_told_however_many_races_came_before(reports_of):
    races = "\n".join(f"threadgroup float s{n}; if (t == 33) s{n} = a[i]; b[i] += s{n};" for n in range(40))
    _, last = reports_of(source_of(f"{races}\nif (t == 0) {BARRIER}"))
    assert "a thread waits at a threadgroup_barrier that thread (1,0,0) never reaches" in last


def test_rows_of_threads_that_write_the_same_items_from_other_places_on_race(reports_of):
    """The second row begins within a block of the checker's memory; what the first has written begins with the next."""
    source = f"""{METAL}kernel void f(device const float *a, device float *b, uint2 t [[thread_position_in_threadgroup]]) {{
    if (t.y == 1 || t.x < 16) b[uint(a[t.y]) + t.x] = t.y;
}}"""
    arrays = [md.asarray([16.0, 8.0]), md.zeros(COUNT)]
    _, text = reports_of(source, arrays, groups=(1, 1), group=(32, 2))
    assert re.search(r"two threads write byte \d+ of buffer 1 \(b\)", text)  # which of them, the order of threads says


@pytest.mark.parametrize(("written", "barrier", "count"), [("t < 40", BARRIER, 2), ("t < 64", "", 1)])
def test_what_nobody_writes_is_told_beside_a_race_with_it(written, barrier, count, reports_of):
    before = softmetal.reports("kernel")
    assert reports_of(
        source_of(f"""threadgroup float s[64];
if ({written}) s[t] = a[i];
{barrier}
for (uint n = 32; n > 0; n /= 2) if (t < n) s[t] += s[t + n];
if (t == 0) b[g] = s[0];""")
    )
    assert (softmetal.reports("kernel") - before >= 2) == (count == 2)


def test_the_same_kernel_is_unchecked_without_the_setting(settings):
    settings(kernel_check=0)
    before = softmetal.reports("kernel")
    a, b = ones()
    md.kernel(source_of("b[0] = a[i] + 1;"))(a, b, **LAUNCH)
    assert np.asarray(b)[0] == 2
    assert softmetal.reports("kernel") == before


WITHOUT_MEMORY = """
import resource
import metal_dlpack as md

kernel = md.kernel("kernel void race(device float *x) { x[0] += 1; }")
small, large = md.zeros(64), md.zeros(1 << 23)
for array in (small, large):
    try:
        kernel(array, n=64)
        md.default_device().synchronize()
    except md.MetalError as error:
        print(error)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 26),) * 2)
"""


@pytest.mark.needs_no_sanitizer
def test_what_there_is_no_memory_to_check_does_not_pass():
    settings = {"SOFTMETAL_KERNEL_CHECK": "1", "SOFTMETAL_VALIDATION": "0"}
    first, second = run_child(WITHOUT_MEMORY, check=True, **settings).stdout.splitlines()
    assert "two threads write byte 0" in first
    assert "the checker has no memory left" in second


def test_of_what_one_instruction_reads_some_is_written_later_and_the_rest_never(reports_of):
    body = "threadgroup float s[32]; if (lane == 0) s[simd] = a[i]; if (simd == 0) b[i] = s[lane];"
    first, last = reports_of(source_of(body))
    assert "reads byte 8 of threadgroup variable s, which no thread of the threadgroup has written" in first
    assert "thread (2,0,0)" in first
    assert "one thread writes and another reads byte 4 of threadgroup variable s" in last


@pytest.mark.parametrize("never", [{16}, {1, 30}, {0}, {31}, set()])
def test_each_place_that_stays_unwritten_is_told_whatever_is_written_later_around_it(never, reports_of):
    """One instruction reads 32 places, each of which but these a thread writes without a barrier."""
    is_late = " && ".join(["t > 0", *(f"t != {place}" for place in never)])
    before = softmetal.reports("kernel")
    said = reports_of(
        source_of(f"""threadgroup float s[64];
if (t == 0) for (uint n = 0; n < 32; n++) b[64 * g + n] = s[n];
if (t == 32 && {int(0 not in never)}) s[0] = 1; else if ({is_late}) s[t] = 1;""")
    )
    assert softmetal.reports("kernel") - before == 1 + (0 not in never) + bool(never)
    told = re.findall(r"reads byte (\d+) of threadgroup variable s, which no thread", "".join(said))
    assert [int(byte) for byte in told] == [4 * place for place in sorted(never)[:1]]
