"""Who waits for work in flight is decided in wait_rule.c, and asked there by everybody else."""

import re

import pytest
from places import SRC

#: What carries a decision out, and who may call it besides the file that it stands in.
CARRIED_OUT_BY = {
    "waiting_for_busy_storage": {"streams/wait_rule.c", "streams/wait_rule.h"},
    "waiting_for_event": {"streams/wait_rule.c", "streams/event_type.c"},
    "work_wait_storage": {"streams/wait_rule.c"},
    "work_wait_event": {"streams/wait_rule.c"},
}
FLOORS = ("streams", "array", "exchange", "module")


@pytest.mark.parametrize("function", CARRIED_OUT_BY)
def test_nobody_else_carries_out_a_wait(function):
    callers = {
        path.relative_to(SRC).as_posix()
        for floor in FLOORS
        for path in (SRC / floor).glob("*.[ch]")
        if re.search(rf"\b{function}\(", path.read_text())
    }
    assert callers == CARRIED_OUT_BY[function]
