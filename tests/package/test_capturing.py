"""md.capture, and the names that Xcode, Instruments and errors know work by."""

import os

import pytest
from children import output_of
from forking import exit_code_of_child

import metal_dlpack as md

pytestmark = pytest.mark.needs_softmetal  # whose trace is text; of a Mac's asks tests/mac/test_commands.py

SOURCE = "kernel void add(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }"


@pytest.fixture(autouse=True)
def enabled(monkeypatch):
    monkeypatch.setenv("METAL_CAPTURE_ENABLED", "1")


def seen(path):
    return [line for line in (path / "commands.txt").read_text().splitlines() if '""' not in line]


def test_a_trace_has_the_names_of_what_was_done_in_the_block_and_nothing_else(tmp_path):
    add, a, private = md.kernel(SOURCE), md.zeros(16), md.zeros(16, storage="private")
    buffer = md.Buffer(64, storage="private")
    add(a, n=16)
    with md.capture(tmp_path / "one.gputrace"):
        add(a, n=16)
        buffer.fill(3)
        a.copy(stream=md.Stream())
        private[::2].copy()
    add(a, n=16)
    names = ["add", "metal_dlpack fill", "metal_dlpack copy", "metal_dlpack_copy_4"]
    lines = seen(tmp_path / "one.gputrace")
    assert lines[:6] == [line for name in names[:3] for line in (f'command buffer "{name}"', f'    encoder "{name}"')]
    assert f'    encoder "{names[3]}"' in lines
    assert lines.count('command buffer "add"') == 1


@pytest.mark.needs_torch
@pytest.mark.needs_no_sanitizer
def test_operators_that_torch_keeps_back_are_waited_for(tmp_path):
    code = """
import sys, torch
import metal_dlpack as md
import softmetal
softmetal.torch_mps()
library = torch.mps.compile_shader(sys.argv[2])
x = torch.zeros(8, device="mps")
with md.capture(sys.argv[1]):
    library.add(x)
"""
    output_of(code, tmp_path / "torch.gputrace", SOURCE)
    assert '    encoder "add"' in seen(tmp_path / "torch.gputrace")


def test_a_capture_ends_with_its_block_whatever_happens_there(tmp_path, settings):
    with pytest.raises(ZeroDivisionError), md.capture(tmp_path / "one.gputrace"):
        1 / 0  # noqa: B018
    lost = md.capture(tmp_path / "lost.gputrace")
    with pytest.raises(md.MetalError, match="a command buffer failed"), lost:
        settings(fail="commit")
        md.kernel(SOURCE)(md.zeros(4), n=4)
    settings(fail=None)
    with md.capture(tmp_path / "two.gputrace"):
        pass


def test_what_is_wrong_with_a_path_is_said_before_metal_is_asked(tmp_path):
    with pytest.raises(ValueError, match=r"must end in '.gputrace', or Xcode does not open it"):
        md.capture(tmp_path / "trace")
    (tmp_path / "one.gputrace").mkdir()
    with pytest.raises(FileExistsError, match=r"one\.gputrace is there, and Metal writes over no trace"):
        md.capture(tmp_path / "one.gputrace").__enter__()
    with pytest.raises(FileNotFoundError, match=r"no/folder is no folder; make it first"):
        md.capture(tmp_path / "no" / "folder" / "one.gputrace").__enter__()


def test_one_capture_at_a_time_and_each_once(tmp_path):
    first = md.capture(os.fsencode(tmp_path / "one.gputrace"))
    with pytest.raises(RuntimeError, match="it was never begun"):
        first.__exit__(None, None, None)
    with first:
        with pytest.raises(md.MetalError, match="a capture is on, and Metal takes one at a time"):
            md.capture(tmp_path / "two.gputrace").__enter__()
        with pytest.raises(RuntimeError, match="it was begun already"):
            first.__enter__()
    with pytest.raises(RuntimeError, match="it was ended already"):
        first.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="it was begun already"):
        first.__enter__()


def test_a_process_that_may_not_capture_is_told_how_it_may(tmp_path, monkeypatch):
    monkeypatch.delenv("METAL_CAPTURE_ENABLED")
    with pytest.raises(md.MetalError, match="was started with METAL_CAPTURE_ENABLED=1 in the environment"):
        md.capture(tmp_path / "one.gputrace").__enter__()
    assert not (tmp_path / "one.gputrace").exists()


def test_a_trace_that_metal_cannot_begin_is_told_in_metals_words(tmp_path):
    (tmp_path / "closed").mkdir()
    long = tmp_path / ("n" * 300 + ".gputrace")  # no file system takes the name
    with pytest.raises(md.MetalError, match=r"does not begin to write the trace: The capture did not start"):
        md.capture(long).__enter__()


def test_a_forked_child_captures_nothing_and_ends_no_capture_of_its_parent(tmp_path):
    def in_child():
        with pytest.raises(md.MetalError, match="forked child"):
            md.capture(tmp_path / "child.gputrace").__enter__()
        with pytest.raises(md.MetalError, match="forked child"):
            capture.__exit__(None, None, None)

    with md.capture(tmp_path / "one.gputrace") as capture:
        assert exit_code_of_child(in_child) == 0
        md.kernel(SOURCE)(md.zeros(4), n=4)
    assert '    encoder "add"' in seen(tmp_path / "one.gputrace")


FAILING = """
import metal_dlpack as md
import softmetal
add, a, private = md.kernel(%r), md.zeros(16), md.Buffer(64, storage="private")
for work in (lambda: add(a, n=16), lambda: private.fill(3)):
    for code in ("Internal", "AccessRevoked"):
        softmetal.configure(fail=f"commit={code}")
        try:
            work()
            md.default_device().synchronize()
        except md.MetalError as error:
            print(error)
        softmetal.configure(fail=None)
"""


@pytest.mark.parametrize(("layer", "told"), [
    ("0", ["It ran 'add'", "It ran 'metal_dlpack fill'"]),
    ("1", ["Its encoders: 'add' is at fault", "'add' is affected", "Its encoders: 'metal_dlpack fill' is at fault",
           "'metal_dlpack fill' is affected"]),
])  # fmt: skip
def test_work_that_fails_is_named_and_under_metals_validation_whether_it_is_at_fault(layer, told):
    said = output_of(FAILING % SOURCE, MTL_DEBUG_LAYER=layer)
    assert [words for words in told if words not in said] == []
    assert said.count("a command buffer failed") == 4
