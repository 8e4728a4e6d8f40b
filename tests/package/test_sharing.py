"""show(): the picture against shares_memory, against what the arrays say of themselves, and where it appears."""

import io
import itertools
import random
import sys

import numpy as np
import pytest
from children import output_of, run_child
from hypothesis import given
from hypothesis import strategies as st

import metal_dlpack as md
from metal_dlpack.looking.memory_lanes import MAX_RUNS, byte_runs
from metal_dlpack.sharing import FULL, GAPS, NONE, WIDTH, bar, draw


def memory_of(picture, name):
    (memory,) = [memory for memory in picture.memories if any(lane.name == name for lane in memory.lanes)]
    return memory


def test_an_array_its_views_and_its_buffer_stand_together(live_buffers):
    a = md.zeros((4, 6))
    picture = draw(a, a[1:, ::2], np.asarray(a), other=md.zeros(3))
    assert [[lane.name for lane in memory.lanes] for memory in picture.memories] == [["0", "1", "2"], ["other"]]
    assert f"MTLBuffer {a.buffer.handle:#x} (shared), 96 bytes" in str(picture)
    view = "1  " + NONE * 12 + GAPS * 34 + NONE * 2 + "  bytes 24 to 92, with gaps: Array (3, 3) float32"
    assert view in str(picture)
    assert FULL * WIDTH + "  bytes 0 to 96: numpy.ndarray (4, 6) float32" in str(picture)


def test_memory_of_numpy_s_is_cpu_memory_until_it_is_wrapped(live_buffers):
    x, y = np.zeros(5000), np.zeros(5000)
    picture = draw(x=x, half=x[2500:], y=y)
    assert len(picture.memories) == 2
    assert memory_of(picture, "x").title == f"CPU memory at {x.ctypes.data:#x}, 39.06 KiB"
    assert memory_of(draw(x=x, a=md.from_dlpack(x)), "x").title.startswith("MTLBuffer")


@pytest.mark.parametrize("is_given_away", [False, True])
def test_a_picture_gives_no_handle_away(is_given_away, settings):
    """A fill of private memory waits for the GPU only if somebody else could look."""
    a = md.zeros(8, storage="private")
    for look in (repr, str, md.Array._repr_html_, draw, lambda a: draw(a)._repr_html_()):
        look(a)
    a.buffer._repr_html_()
    handle = a.buffer.handle if is_given_away else 0
    settings(latency_us=500_000)
    a.fill(1)
    is_done = md._core._buffer_work(a.buffer)[0] == "idle"
    assert is_done == is_given_away == bool(handle)
    a.device.synchronize()


def test_arrays_without_items_are_in_no_memory(live_buffers):
    picture = draw(md.zeros(0), np.zeros(0), md.zeros((3, 0), storage="private"))
    assert [memory.title for memory in picture.memories] == ["no memory, 0 bytes"] * 3


def test_tensors_of_torch_are_placed_by_their_buffer(live_buffers, torch):
    a = md.zeros((4, 6))
    picture = draw(a=a, t=torch.from_dlpack(a))
    assert [lane.handle for lane in memory_of(picture, "t").lanes] == [a.buffer.handle] * 2
    assert "torch.Tensor (4, 6) float32" in str(picture)


def test_what_cannot_be_placed_says_why(live_buffers):
    picture = draw("text", readonly=np.zeros(3, "M8[s]"))
    assert picture.memories == ()
    assert [name for name, _ in picture.refusals] == ["0", "readonly"]
    assert "0: from_dlpack: str has no __dlpack__" in str(picture)


def test_work_in_flight_is_said(settings):
    a, stream = md.zeros(3), md.Stream()
    settings(latency_us=100_000)
    a.fill(1, stream=stream)
    assert memory_of(draw(a), "0").title.endswith("12 bytes, GPU writes in flight")
    stream.synchronize()
    assert memory_of(draw(a), "0").title.endswith("12 bytes")


def test_arrays_that_share_bytes_stand_in_one_group(live_buffers, subtests):
    for seed in range(20):
        with subtests.test(str(seed)):
            chance = random.Random(seed)
            memories = [np.zeros(256, np.uint8), md.zeros(256, "uint8"), md.zeros(256, "uint8", storage="private")]
            arrays = []
            for _ in range(8):
                memory = chance.choice(memories)
                first = chance.randrange(256)
                arrays.append(memory[first : chance.randrange(first, 257) : chance.choice([1, 2, 3])])
            picture = draw(*arrays)
            assert not picture.refusals
            for (i, a), (j, b) in itertools.combinations(enumerate(arrays), 2):
                if md.shares_memory(a, b):
                    assert memory_of(picture, str(i)) is memory_of(picture, str(j))
                if isinstance(a, md.Array) and isinstance(b, md.Array) and a.size and b.size:
                    is_same = memory_of(picture, str(i)) is memory_of(picture, str(j))
                    assert is_same == (a.buffer.handle == b.buffer.handle)
            for memory in picture.memories:
                for lane in memory.lanes:
                    row = bar(memory, lane)
                    assert len(row) == WIDTH
                    assert (FULL in row or GAPS in row) == (lane.end > lane.begin)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-20, 20)), max_size=4),
    st.sampled_from([1, 4, 6, 8, 32]),
)
def test_the_runs_of_a_layout_are_its_items_bytes(axes, item_bits):
    shape, strides = [extent for extent, _ in axes], [stride for _, stride in axes]
    offsets = [sum(map(int.__mul__, index, strides)) for index in itertools.product(*map(range, shape))]
    touched = {bit // 8 for offset in offsets for bit in range(offset * item_bits, (offset + 1) * item_bits)}
    runs, is_dense = byte_runs(shape, strides, item_bits)
    covered = {byte for begin, end in runs for byte in range(begin, end)}
    assert (runs[0][0], runs[-1][1]) == (min(touched), max(touched) + 1)
    assert touched <= covered
    assert len(runs) <= MAX_RUNS
    if is_dense or len(runs) > 1:
        assert covered == touched
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(runs))


# ---- where the picture appears ----

SCRIPT = "import metal_dlpack as md; a = md.zeros(3); assert md.show(a=a) is None"


def test_a_name_stays_on_its_line_and_tells_the_terminal_nothing():
    picture = str(draw(**{"\x1b[31mred\n": md.zeros(3), "layer." * 1000 + "end": md.zeros(3), "\r": "no array"}))
    assert picture.count("\n") == 4
    assert "\x1b" not in picture
    assert "\r" not in picture
    assert r"\x1b[31mred\n  " in picture
    assert "layer.layer.layer.l…" in picture
    assert max(map(len, picture.splitlines())) < 200


def test_a_script_prints_the_picture():
    printed = output_of(SCRIPT).splitlines()
    assert printed[0].startswith("MTLBuffer 0x")
    assert printed[1:] == ["  a  " + FULL * WIDTH + "  bytes 0 to 12: Array (3,) float32"]


def test_a_terminal_without_the_characters_gets_ascii(monkeypatch):
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", written)
    md.show(md.zeros(3), **{"ä": md.zeros(3)[::2]})
    written.flush()
    printed = written.buffer.getvalue().decode("ascii")
    assert "0  " + "#" * WIDTH in printed
    assert r"\xe4  " + "%" * WIDTH in printed


def test_ipython_in_a_terminal_prints_it_once(tmp_path):
    options = ["-m", "IPython", "--simple-prompt", "--colors=NoColor"]
    printed = run_child(SCRIPT + "; md.show(a=a)", options=options, check=True, IPYTHONDIR=str(tmp_path)).stdout
    assert printed.count("MTLBuffer") == 2


NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
shell.display_formatter.active_types = shell.display_formatter.format_types  # as a kernel has it
with capture_output() as said:
    shell.run_cell("import metal_dlpack as md; a = md.zeros(3)\\nmd.show(a=a)")
assert said.stdout == "", said.stdout
(output,) = said.outputs
assert "<svg" in output.data["text/html"] and "MTLBuffer" in output.data["text/plain"]
"""


def test_a_notebook_draws_it_once(tmp_path):
    run_child(NOTEBOOK, check=True, IPYTHONDIR=str(tmp_path))


class WriteOnly:
    """What people put in the place of sys.stdout."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


def test_a_stdout_that_only_writes_is_enough(monkeypatch):
    monkeypatch.setattr(sys, "stdout", WriteOnly())
    md.show(a=md.zeros(3))
    assert f"{FULL}  bytes 0 to 12: Array (3,) float32" in sys.stdout.text
    monkeypatch.setattr(sys, "stdout", None)  # pythonw
    md.show(md.zeros(3))


@pytest.mark.parametrize("error", [RuntimeError("Array has been deleted."), NotImplementedError(), KeyError("x")])
def test_whatever_a_producer_raises_stands_under_the_groups(error):
    class Deleted:
        def __dlpack__(self, **options):
            raise error

        def __dlpack_device__(self):
            return (1, 0)

    picture = draw(md.zeros(3), gone=Deleted())
    assert len(picture.memories) == 1
    assert picture.refusals == (("gone", str(error) or "NotImplementedError"),)
